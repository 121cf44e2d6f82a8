//! Groups of ranks that share a cache, and shorter routes through them.
//!
//! **Problem.** A line that passes from one cache to another of the same socket takes tens of
//! nanoseconds, from one node to another hundreds. If all ranks read from one rank's cell, most of
//! them read over the same link.
//!
//! **Idea.** Ranks on CPUs that share a last-level cache are a *group*; its first rank is its
//! representative (*speaker*). Barriers synchronise within groups, then among speakers; a broadcast
//! goes to the speakers, and from each to its own group. Other broadcasts go down a *tree* of
//! ranks.
//!
//! **Properties.** Pure, except for [`domains`], which reads the kernel's description of caches.
//! Groups are part of the table that rank 0 hands to all ([`crate::algorithm_table`]): ranks with
//! different groups would deadlock.

use crate::shared_layout::Mask;

/// A set of CPUs, as in masks.
pub type Cpus = [u64; Mask::WORD_COUNT];

/// The rank from which a rank takes a block, and whether others take it from this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// The rank from which it takes; `None` at the root.
    pub parent: Option<u32>,
    /// Whether it has children.
    pub forwards: bool,
}

/// Returns a relay in which every rank takes from the root.
pub fn flat(me: u32, root: u32, ranks: u32) -> Relay {
    Relay { parent: (me != root).then_some(root), forwards: me == root && ranks > 1 }
}

/// Returns a relay down a tree in which each rank has up to 2^`log` children, numbered from the
/// root on.
pub fn tree(log: u8, me: u32, root: u32, ranks: u32) -> Relay {
    let place = u64::from((me + ranks - root) % ranks);
    let parent = place.checked_sub(1).map(|below| (below >> log) as u32);
    Relay {
        parent: parent.map(|place| (place + root) % ranks),
        forwards: (place << log) + 1 < u64::from(ranks),
    }
}

/// Groups of ranks, and their speakers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// By rank: index of its group in `speakers`. Empty if groups have no advantage.
    of: Vec<u32>,
    speakers: Vec<u32>,
}

impl Groups {
    /// Makes groups from the number of each rank's group. They have no advantage if there is only
    /// one, if no two ranks share one, or if the numbers do not cover all ranks.
    pub fn new(numbers: &[u32], ranks: u32) -> Self {
        let mut groups = Self::default();
        if numbers.len() != ranks as usize {
            return groups;
        }
        for (rank, number) in (0..).zip(numbers) {
            let known = groups.speakers.iter().position(|speaker| numbers[*speaker as usize] == *number);
            let place = known.unwrap_or(groups.speakers.len());
            if known.is_none() {
                groups.speakers.push(rank);
            }
            groups.of.push(place as u32);
        }
        if groups.speakers.len() < 2 || groups.speakers.len() == numbers.len() {
            return Self::default();
        }
        groups
    }

    /// Returns whether there are groups.
    pub fn are_any(&self) -> bool {
        !self.of.is_empty()
    }

    /// Returns the speaker of each group, lowest first.
    pub fn speakers(&self) -> &[u32] {
        &self.speakers
    }

    /// Returns the speaker of a rank's group.
    pub fn speaker(&self, rank: u32) -> u32 {
        self.speakers[self.of[rank as usize] as usize]
    }

    /// Returns the other ranks of a speaker's group.
    pub fn spoken_for(&self, speaker: u32) -> impl Iterator<Item = u32> {
        let group = self.of[speaker as usize];
        (0..).zip(&self.of).filter(move |(rank, of)| **of == group && *rank != speaker).map(|(rank, _)| rank)
    }

    /// Returns a relay from the root to one rank of each group, and from that rank to the others of
    /// its group.
    pub fn relay(&self, me: u32, root: u32) -> Relay {
        if !self.are_any() {
            return flat(me, root, self.of.len() as u32);
        }
        let group = |rank: u32| self.of[rank as usize];
        let first = if group(me) == group(root) { root } else { self.speaker(me) };
        let members = self.of.iter().filter(|of| **of == group(me)).count();
        Relay {
            parent: if me == root { None } else { Some(if me == first { root } else { first }) },
            forwards: me == root || (me == first && members > 1),
        }
    }
}

/// Returns the number of each rank's group: the first domain that contains all CPUs that the rank
/// may use. Empty if any rank has none.
pub fn numbers(masks: &[Cpus], domains: &[Cpus]) -> Vec<u32> {
    let within = |mask: &Cpus, domain: &Cpus| mask.iter().zip(domain).all(|(cpus, all)| cpus & !all == 0);
    let of = |mask: &Cpus| domains.iter().position(|domain| within(mask, domain)).map(|at| at as u32);
    masks.iter().map(of).collect::<Option<Vec<u32>>>().unwrap_or_default()
}

/// Returns the CPUs that share each last-level cache of this machine, or each node if caches are
/// not known.
pub fn domains() -> Vec<Cpus> {
    let listed = |path: &std::path::Path| std::fs::read_to_string(path).ok().and_then(|text| list(&text));
    let entries = |folder: &std::path::Path, name: &str| {
        let all = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is = |path: &std::path::PathBuf| {
            let stem =
                path.file_name().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix(name));
            stem.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut all: Vec<_> = all.filter(is).collect();
        all.sort();
        all
    };
    let system = std::path::Path::new("/sys/devices/system");
    let mut found: Vec<Cpus> = Vec::new();
    for cpu in entries(&system.join("cpu"), "cpu") {
        // Levels are numbered from the core outwards; the last has the largest number.
        if let Some(cpus) =
            entries(&cpu.join("cache"), "index").last().and_then(|last| listed(&last.join("shared_cpu_list")))
            && !found.contains(&cpus)
        {
            found.push(cpus);
        }
    }
    if found.is_empty() {
        found = entries(&system.join("node"), "node")
            .iter()
            .filter_map(|node| listed(&node.join("cpulist")))
            .collect();
    }
    found
}

/// Parses a list in the kernel's format: `0-3,8`. CPUs beyond a mask's are left out.
fn list(text: &str) -> Option<Cpus> {
    let mut cpus: Cpus = [0; Mask::WORD_COUNT];
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        for cpu in from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?.min(64 * Mask::WORD_COUNT - 1) {
            *cpus.get_mut(cpu / 64)? |= 1 << (cpu % 64);
        }
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Cpus {
        list(text).unwrap()
    }

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(cpus("0-3,65\n")[..2], [0b1111, 0b10]);
        assert_eq!(cpus(""), [0; Mask::WORD_COUNT]);
        assert_eq!([list("a"), list("3-")], [None, None]);
        assert_eq!(list("5000"), list(""), "beyond what a mask has");
        assert_eq!(cpus("1000-9999")[15], u64::MAX << 40);
    }

    #[test]
    fn ranks_on_cpus_of_one_domain_are_in_one_group() {
        let domains = [cpus("0-3"), cpus("4-7")];
        let masks = [cpus("0"), cpus("4-5"), cpus("2-3"), cpus("7")];
        assert_eq!(numbers(&masks, &domains), [0, 1, 0, 1]);
        assert_eq!(numbers(&[cpus("0"), cpus("3-4")], &domains), [0_u32; 0], "one is of both");
        assert_eq!(numbers(&masks, &[]), [0_u32; 0]);
    }

    #[test]
    fn groups_of_all_or_of_one_each_are_of_no_use() {
        assert!(!Groups::new(&[3, 3, 3], 3).are_any());
        assert!(!Groups::new(&[3, 1, 2], 3).are_any());
        assert!(!Groups::new(&[1, 1, 2], 4).are_any(), "of another team");
        let groups = Groups::new(&[9, 4, 9, 4, 4], 5);
        assert_eq!(groups.speakers(), [0, 1]);
        assert_eq!(groups.spoken_for(1).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(groups.speaker(2), 0);
    }

    /// Every rank is connected to the root through parents, and every parent forwards.
    #[test]
    fn every_relay_reaches_all_ranks() {
        for ranks in 1..20_u32 {
            for root in 0..ranks {
                let three: Vec<u32> = (0..ranks).map(|rank| rank % 3).collect();
                let halves: Vec<u32> = (0..ranks).map(|rank| rank * 2 / ranks).collect();
                let by_groups =
                    |numbers: &[u32]| {
                        let groups = Groups::new(numbers, ranks);
                        (0..ranks)
                            .map(|me| {
                                if groups.are_any() { groups.relay(me, root) } else { flat(me, root, ranks) }
                            })
                            .collect::<Vec<_>>()
                    };
                let mut ways = vec![by_groups(&three), by_groups(&halves)];
                ways.extend((1..4).map(|log| (0..ranks).map(|me| tree(log, me, root, ranks)).collect()));
                for way in ways {
                    assert_eq!(way[root as usize].parent, None);
                    for me in 0..ranks {
                        let has_children = way.iter().any(|relay| relay.parent == Some(me));
                        assert_eq!(way[me as usize].forwards, has_children, "{me} of {ranks} from {root}");
                        let mut at = me;
                        for _ in 0..ranks {
                            at = way[at as usize].parent.unwrap_or(at);
                        }
                        assert_eq!(at, root, "{me} of {ranks}");
                    }
                }
            }
        }
    }

    #[test]
    fn this_machine_has_domains_of_its_processors() {
        let domains = domains();
        assert!(domains.iter().all(|domain| domain.iter().any(|word| *word != 0)), "{domains:?}");
    }
}
