//! Tree of the cores that a program may use, without details irrelevant to nested teams.
//!
//! The tree contains only the data needed for placement: which cores are together, in what order,
//! and the limits of memory domains (a NUMA node; on machines with a single node, a socket).
//! Objects with one core, or with the same cores as the enclosing object, carry no information and
//! are omitted. The tree has a text form of a few bytes per core, because the preload library gets
//! it through the environment: `[(0+8,1+9),(2,3)],[(4,5),(6,7)]`. In it `+` joins the hardware
//! threads of a core, `( )` groups cores with a shared resource, and `[ ]` is a memory domain. The
//! text contains no names; names are only for users.

use crate::ids::{CPUS_MAX, Id, ObjectId, OsCpu, Pu};
use crate::set::CpuSet;
use crate::topology::{Level, Machine};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use thiserror::Error;

/// Maximum nesting depth of groups in a text. The deepest machine of the corpus has 6.
const DEPTH_MAX: usize = 32;

/// Cores and their groups. There is at least one core; core and group numbers are positions in tree
/// order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// CPUs of each core, in the order of use.
    cores: Vec<Vec<OsCpu>>,
    /// Groups, depth first; the first group contains all cores.
    groups: Vec<CoreGroup>,
    /// Innermost group of each core.
    home: Vec<u32>,
    /// Memory domains, and the runs of cores between them that are in no domain and count as one
    /// each.
    domains: Vec<(Range<u32>, String)>,
}

/// Cores with a shared resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CoreGroup {
    pub(super) cores: Range<u32>,
    pub(super) parent: Option<u32>,
    /// Groups directly inside. Cores outside these groups are directly inside too.
    pub(super) children: Vec<u32>,
    /// Whether it is a memory domain.
    pub(super) memory: bool,
    /// Name for users; empty if the tree was parsed from a text.
    pub(super) name: String,
}

/// Reason why a text is not a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{problem} at position {} of the tree", at + 1)]
pub struct TreeError {
    /// Byte offset of the error, from 0.
    pub at: usize,
    /// Description of the error.
    pub problem: &'static str,
}

impl Tree {
    /// Returns the cores of `machine` with a CPU in `cpus`, with those CPUs; `None` if there are
    /// none.
    pub fn new(machine: &Machine, cpus: &CpuSet) -> Option<Self> {
        let objects = machine.objects();
        let nodes = objects.iter().filter(|object| object.level == Level::Node).count();
        let domains = if nodes > 1 { Level::Node } else { Level::Package };
        let mut builder = Builder::default();
        // Objects are ordered depth first: an object ends when the next begins behind it.
        let mut open: Vec<u32> = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            while open.last().is_some_and(|&end| end <= object.pus.start) {
                open.pop();
                builder.close();
            }
            if object.level == Level::Core {
                let all = object.pus.clone().map(|pu| machine.os(Pu(pu)));
                let allowed: Vec<OsCpu> = all.filter(|&cpu| cpus.contains(cpu)).collect();
                if !allowed.is_empty() {
                    builder.core(allowed);
                }
            } else {
                open.push(object.pus.end);
                builder.open(object.level == domains, name(machine, ObjectId::from_index(at)));
            }
        }
        builder.finish()
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Returns the CPUs of a core, in the order of use.
    pub fn cpus(&self, core: u32) -> &[OsCpu] {
        self.cores.get(core as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns all CPUs of the tree.
    pub fn mask(&self) -> CpuSet {
        self.cores.iter().flatten().copied().collect()
    }

    /// Returns the memory domain of a core, as a run of cores.
    pub fn domain(&self, core: u32) -> Range<u32> {
        let at = self.domains.partition_point(|(cores, _)| cores.end <= core);
        self.domains.get(at).map_or(0..0, |(cores, _)| cores.clone())
    }

    /// Returns the memory domains with their names, as runs of cores; together they contain all
    /// cores.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = (Range<u32>, &str)> + Clone {
        self.domains.iter().map(|(cores, name)| (cores.clone(), name.as_str()))
    }

    /// Returns the tree of some of its cores, which must be ascending.
    pub(super) fn only(&self, cores: &[u32]) -> Option<Self> {
        let mut builder = Builder::default();
        let mut open: Vec<u32> = Vec::new();
        let mut groups = self.groups.iter().peekable();
        for &core in cores {
            while let Some(group) = groups.next_if(|group| group.cores.start <= core) {
                if group.cores.contains(&core) {
                    while open.last().is_some_and(|&end| end <= group.cores.start) {
                        open.pop();
                        builder.close();
                    }
                    open.push(group.cores.end);
                    builder.open(group.memory, group.name.clone());
                }
            }
            while open.last().is_some_and(|&end| end <= core) {
                open.pop();
                builder.close();
            }
            builder.core(self.cpus(core).to_vec());
        }
        builder.finish()
    }

    /// Returns the number of memory domains, and the number of parts of the first domain: the sizes
    /// for a `*` that is not the last.
    pub(super) fn fanouts(&self) -> Vec<u64> {
        let inside = |group: &CoreGroup| group.children.len().max(1) as u64;
        let first = self.groups.iter().find(|group| group.memory).or(self.groups.first());
        vec![self.domains().len() as u64, first.map_or(1, inside)]
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn groups(&self) -> &[CoreGroup] {
        &self.groups
    }

    /// Returns the groups around a core, innermost first.
    pub(super) fn around(&self, core: u32) -> impl Iterator<Item = &CoreGroup> {
        self.positions_around(core).filter_map(|at| self.groups.get(at))
    }

    /// Returns the positions of the groups around a core, innermost first.
    pub(super) fn positions_around(&self, core: u32) -> impl Iterator<Item = usize> {
        let parent = |at: &usize| self.groups.get(*at)?.parent.map(|at| at as usize);
        std::iter::successors(self.home.get(core as usize).map(|&at| at as usize), parent)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, group: &CoreGroup) -> fmt::Result {
        let mut children =
            group.children.iter().filter_map(|&child| self.groups.get(child as usize)).peekable();
        let mut core = group.cores.start;
        while core < group.cores.end {
            if core > group.cores.start {
                f.write_str(",")?;
            }
            if let Some(child) = children.next_if(|child| child.cores.start == core) {
                let (open, close) = if child.memory { ("[", "]") } else { ("(", ")") };
                f.write_str(open)?;
                self.write(f, child)?;
                f.write_str(close)?;
                core = child.cores.end;
            } else {
                for (at, cpu) in self.cpus(core).iter().enumerate() {
                    write!(f, "{}{cpu}", if at == 0 { "" } else { "+" })?;
                }
                core += 1;
            }
        }
        Ok(())
    }
}

/// Returns the name of an object for users: `node 3`, `package 0`, `l3 5`.
fn name(machine: &Machine, object: ObjectId) -> String {
    let objects = machine.objects();
    let Some(object) = objects.get(object.index()) else { return String::new() };
    let number = object.os.unwrap_or_else(|| {
        let before = |other: &&_| std::ptr::eq::<crate::topology::Object>(*other, object);
        u32::try_from(machine.at(object.level).take_while(|other| !before(other)).count()).unwrap_or(0)
    });
    match object.level {
        Level::Machine => "machine".to_owned(),
        level => format!("{level} {number}"),
    }
}

/// Builder of a tree from objects as they open and close.
#[derive(Default)]
struct Builder {
    cores: Vec<Vec<OsCpu>>,
    groups: Vec<CoreGroup>,
    open: Vec<u32>,
}

impl Builder {
    fn len(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    fn core(&mut self, cpus: Vec<OsCpu>) {
        self.cores.push(cpus);
    }

    fn open(&mut self, memory: bool, name: String) {
        let at = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let parent = self.open.last().copied();
        self.groups.push(CoreGroup {
            cores: self.len()..self.len(),
            parent,
            children: Vec::new(),
            memory,
            name,
        });
        self.open.push(at);
    }

    fn close(&mut self) {
        let len = self.len();
        if let Some(group) = self.open.pop().and_then(|at| self.groups.get_mut(at as usize)) {
            group.cores.end = len;
        }
    }

    /// Drops the groups without information, and links the others.
    fn finish(mut self) -> Option<Tree> {
        while !self.open.is_empty() {
            self.close();
        }
        let all = 0..self.len();
        if all.is_empty() {
            return None;
        }
        let mut kept: Vec<CoreGroup> = vec![CoreGroup {
            cores: all.clone(),
            parent: None,
            children: Vec::new(),
            memory: false,
            name: String::new(),
        }];
        let mut new_number: Vec<u32> = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let outer = group.parent.and_then(|at| new_number.get(at as usize).copied()).unwrap_or(0);
            let around = &mut kept[outer as usize];
            if around.cores == group.cores {
                // Of two groups with the same cores the inner name is used: a node is more
                // informative than the package around it.
                if group.memory || !around.memory {
                    around.name.clone_from(&group.name);
                }
                around.memory |= group.memory;
                new_number.push(outer);
            } else if group.cores.len() < if group.memory { 1 } else { 2 } {
                new_number.push(outer); // never used: this group does not contain a group of two cores either
            } else {
                let at = u32::try_from(kept.len()).unwrap_or(u32::MAX);
                kept[outer as usize].children.push(at);
                kept.push(CoreGroup { parent: Some(outer), ..group.clone() });
                new_number.push(at);
            }
        }
        if !kept.iter().any(|group| group.memory) {
            kept[0].memory = true; // one memory for all cores
        }
        let mut home = vec![0; self.cores.len()];
        for (at, group) in kept.iter().enumerate() {
            // Inner groups come later, so that the innermost group remains.
            home[group.cores.start as usize..group.cores.end as usize]
                .fill(u32::try_from(at).unwrap_or(u32::MAX));
        }
        let domains = domains(&kept);
        Some(Tree { cores: self.cores, groups: kept, home, domains })
    }
}

fn domains(groups: &[CoreGroup]) -> Vec<(Range<u32>, String)> {
    let mut domains: Vec<(Range<u32>, String)> = Vec::new();
    let all = groups.first().map_or(0..0, |group| group.cores.clone());
    let end = |domains: &[(Range<u32>, String)]| domains.last().map_or(0, |(cores, _)| cores.end);
    for group in groups.iter().filter(|group| group.memory) {
        let covered = end(&domains);
        if group.cores.start > covered {
            domains.push((covered..group.cores.start, String::new()));
        }
        // A domain inside another one is part of it.
        if group.cores.start >= covered {
            domains.push((group.cores.clone(), group.name.clone()));
        }
    }
    let covered = end(&domains);
    if all.end > covered {
        domains.push((covered..all.end, String::new()));
    }
    domains
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = self.groups.first() else { return Ok(()) };
        if all.memory {
            f.write_str("[")?;
            self.write(f, all)?;
            return f.write_str("]");
        }
        self.write(f, all)
    }
}

impl FromStr for Tree {
    type Err = TreeError;

    fn from_str(text: &str) -> Result<Self, TreeError> {
        let fault = |at, problem| TreeError { at, problem };
        let bytes = text.as_bytes();
        let mut builder = Builder::default();
        let mut closers: Vec<u8> = Vec::new();
        let mut seen = CpuSet::new();
        let mut at = 0;
        loop {
            // Expects a core or the beginning of a group.
            match bytes.get(at) {
                Some(b'(' | b'[') if closers.len() == DEPTH_MAX => {
                    return Err(fault(at, "too many groups in groups"));
                }
                Some(open @ (b'(' | b'[')) => {
                    builder.open(*open == b'[', String::new());
                    closers.push(if *open == b'[' { b']' } else { b')' });
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let mut cpus = Vec::new();
            loop {
                let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let cpu = text.get(at..at + digits).and_then(|digits| digits.parse::<u32>().ok());
                let cpu = cpu.ok_or_else(|| fault(at, "a CPU is missing"))?;
                if cpu as usize >= CPUS_MAX {
                    return Err(fault(at, "the CPU is too large"));
                }
                if !seen.insert(OsCpu(cpu)) {
                    return Err(fault(at, "the CPU is there twice"));
                }
                cpus.push(OsCpu(cpu));
                at += digits;
                if bytes.get(at) != Some(&b'+') {
                    break;
                }
                at += 1;
            }
            builder.core(cpus);
            while let Some(close) = bytes.get(at).filter(|close| closers.last() == Some(close)) {
                debug_assert!(matches!(close, b')' | b']'));
                closers.pop();
                builder.close();
                at += 1;
            }
            match bytes.get(at) {
                None if closers.is_empty() => break,
                None => return Err(fault(at, "a group is not closed")),
                Some(b',') => at += 1,
                Some(_) => return Err(fault(at, "a comma or the end of a group is missing")),
            }
        }
        builder.finish().ok_or_else(|| fault(0, "a CPU is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn of(machine: &str) -> String {
        let machine = parse_synthetic(machine).unwrap();
        Tree::new(&machine, &machine.cpus()).unwrap().to_string()
    }

    #[test]
    fn machines_become_trees() {
        for (machine, tree) in [
            ("core:4", "[0,1,2,3]"),
            ("pack:2 core:2", "[0,1],[2,3]"),
            ("pack:2 numa:1 l3:2 core:2", "[(0,1),(2,3)],[(4,5),(6,7)]"),
            ("pack:2 numa:2 core:2", "([0,1],[2,3]),([4,5],[6,7])"),
            ("numa:2 core:2 pu:2", "[0+1,2+3],[4+5,6+7]"),
            ("pack:2 l2:2 core:1", "[0,1],[2,3]"),
            ("numa:4 core:1", "[0],[1],[2],[3]"),
            ("core:1", "[0]"),
        ] {
            assert_eq!(of(machine), tree, "{machine}");
        }
    }

    #[test]
    fn a_mask_prunes_the_tree() {
        let machine = parse_synthetic("pack:2 numa:1 l3:2 core:2 pu:2").unwrap();
        for (cpus, tree) in [
            ("0-7", "[(0+1,2+3),(4+5,6+7)]"),
            ("0,2,8", "[0,2],[8]"),
            ("4", "[4]"),
            ("1-2,6,15", "[(1,2),6],[15]"),
        ] {
            let found = Tree::new(&machine, &cpus.parse().unwrap()).unwrap();
            assert_eq!(found.to_string(), tree, "{cpus}");
        }
        assert_eq!(Tree::new(&machine, &"64".parse().unwrap()), None);
    }

    #[test]
    fn cores_outside_all_domains_are_one() {
        let tree: Tree = "0,[1,2],3,(4,5),[6]".parse().unwrap();
        let domains: Vec<_> = tree.domains().map(|(cores, _)| cores).collect();
        assert_eq!(domains, [0..1, 1..3, 3..6, 6..7]);
        assert_eq!([0, 2, 4, 6].map(|core| tree.domain(core)), [0..1, 1..3, 3..6, 6..7]);
    }

    #[test]
    fn parts_keep_their_groups() {
        let tree: Tree = "[(0,1),(2,3)],[(4,5),(6,7)]".parse().unwrap();
        let parts = |count| tree.parts(count).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(parts(1), ["[(0,1),(2,3)],[(4,5),(6,7)]"]);
        assert_eq!(parts(2), ["[(0,1),(2,3)]", "[(4,5),(6,7)]"]);
        assert_eq!(parts(3), ["[0,1]", "[2,3]", "[(4,5),(6,7)]"]);
        assert_eq!(parts(9).len(), 9);
        assert_eq!(tree.only(&[1, 2, 3, 6]).unwrap().to_string(), "[1,(2,3)],[6]");
    }

    #[test]
    fn domains_have_names() {
        let machine = parse_synthetic("pack:2 numa:2 core:2").unwrap();
        let tree = Tree::new(&machine, &machine.cpus()).unwrap();
        let names: Vec<_> = tree.domains().map(|(_, name)| name.to_owned()).collect();
        assert_eq!(names, ["node 0", "node 1", "node 2", "node 3"]);
        assert_eq!(tree.domain(5), 4..6);
    }

    #[test]
    fn faults_name_their_position() {
        for (text, at, problem) in [
            ("", 0, "a CPU is missing"),
            ("0,,1", 2, "a CPU is missing"),
            ("0,1,", 4, "a CPU is missing"),
            ("[0,1", 4, "a group is not closed"),
            ("[0,1)", 4, "a comma or the end of a group is missing"),
            ("0,1]", 3, "a comma or the end of a group is missing"),
            ("[]", 1, "a CPU is missing"),
            ("0,0", 2, "the CPU is there twice"),
            ("0+", 2, "a CPU is missing"),
            ("8192", 0, "the CPU is too large"),
            ("99999999999", 0, "a CPU is missing"),
            ("0 1", 1, "a comma or the end of a group is missing"),
        ] {
            assert_eq!(text.parse::<Tree>(), Err(TreeError { at, problem }), "{text:?}");
        }
        assert!("(".repeat(40).parse::<Tree>().is_err());
    }

    proptest! {
        #[test]
        fn a_text_is_simplified_once_and_then_stable(text in "([0-9(\\[]|\\]|\\)|,|\\+|1[0-9]){0,14}") {
            if let Ok(tree) = text.parse::<Tree>() {
                let written = tree.to_string();
                prop_assert_eq!(written.parse::<Tree>().map(|tree| tree.to_string()), Ok(written));
            }
        }

        #[test]
        fn the_text_of_a_machine_says_all(packs in 1usize..4, numa in 1usize..3, l3 in 1usize..4, cores in 1usize..5, pus in 1usize..3) {
            let machine = parse_synthetic(&format!("pack:{packs} numa:{numa} l3:{l3} core:{cores} pu:{pus}")).unwrap();
            let mut tree = Tree::new(&machine, &machine.cpus()).unwrap();
            for group in &mut tree.groups {
                group.name.clear();
            }
            for (_, name) in &mut tree.domains {
                name.clear();
            }
            prop_assert_eq!(tree.to_string().parse::<Tree>(), Ok(tree));
        }
    }
}
