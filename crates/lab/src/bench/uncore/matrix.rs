//! Matrix of `bench uncore` as data: experiments, their cases, and the two variants of each.
//!
//! The published measurement has three experiments of one factor and three of several, on two nodes
//! with a last-level cache each. A seventh is about programs whose threads spin while they wait for
//! one of them: the counted events of waiting look like work. If a machine lacks one side of an
//! experiment's contrast, another contrast with the same factor replaces it, or the experiment is
//! left out; a note says which.

#[cfg(test)]
mod tests;

use crate::args::Experiment;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;

/// File name of the benchmark program.
pub(in crate::bench) const PROGRAM: &str = "uncore_lists";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Private sets, as published, and smaller ones: some machines give a core less of its last-level
/// cache than they report.
const SETS: [u64; 8] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB];
const QUICK_SETS: [u64; 3] = [MIB, 8 * MIB, 32 * MIB];
/// Shared areas, as published.
const AREAS: [u64; 6] = [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB];
const QUICK_AREAS: [u64; 2] = [4 * KIB, 128 * KIB];
/// Private set beside a varying shared area, as published, and shared area beside a varying private
/// set.
const PRIVATE_BYTES: u64 = 4 * MIB;
const SHARED_BYTES: u64 = 128 * KIB;
/// A single shared line, and areas that are still small: with few threads, the number of threads
/// alone gives too few cases.
const LINES: [u64; 4] = [64, 512, 4 * KIB, 32 * KIB];
/// Simultaneous walks: one load after the other, and several at once.
const CHAINS: [u32; 2] = [1, 4];
/// Numbers of threads that add to one line, as published; limited by the machine's cores.
const SHARERS: [usize; 6] = [2, 4, 6, 8, 10, 12];
/// Default limit of threads in a run, as published, and the limit if their number is varied.
const THREADS_MAX: usize = 4;
const SHARERS_MAX: usize = 12;
/// List sizes of the thread that the others wait for; and the list of the waiting threads (and of
/// all threads where none is waited for), which fits any private cache.
const WAITED_FOR: [u64; 8] = [512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB];
const QUICK_WAITED_FOR: [u64; 3] = [MIB, 8 * MIB, 64 * MIB];
const CACHED_BYTES: u64 = 64 * KIB;
/// Turns from one barrier to the next: a fraction of a millisecond, so that a window has some
/// hundred barriers.
const PHASE_TURNS: u64 = 5_000;
/// Bytes that a competitor for memory and its controller reads in order.
const STREAM_BYTES: u64 = 64 * MIB;

/// All experiments, in the order of the tables.
pub(super) const ALL: [Experiment; 7] = [
    Experiment::Locality,
    Experiment::Contention,
    Experiment::Sharing,
    Experiment::LocalityContention,
    Experiment::ContentionSharing,
    Experiment::All,
    Experiment::Spinning,
];

/// Returns the word for an experiment.
pub(super) fn word(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Locality => "locality",
        Experiment::Contention => "contention",
        Experiment::Sharing => "sharing",
        Experiment::LocalityContention => "locality-contention",
        Experiment::ContentionSharing => "contention-sharing",
        Experiment::All => "all",
        Experiment::Spinning => "spinning",
    }
}

/// A competitor, which is not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct MemoryCompetitor {
    pub(super) cpus: Vec<OsCpu>,
    pub(super) private: u64,
    /// Whether the competitor reads in order, at the bandwidth of memory, rather than at random.
    pub(super) streams: bool,
}

/// One variant of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Setup {
    /// Name of the variant: `near`, `far`, `alone`, ...
    pub(super) way: &'static str,
    /// CPUs of the threads, one for each.
    pub(super) cpus: Vec<OsCpu>,
    /// CPU that first writes the memory, if it is not the one that uses it.
    pub(super) home: Option<OsCpu>,
    pub(super) private: u64,
    pub(super) chains: u32,
    pub(super) shared: u64,
    pub(super) barriers: Option<Barriers>,
    pub(super) rival: Option<MemoryCompetitor>,
}

/// Barriers of the threads; early threads spin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Barriers {
    /// List size of the first thread, which the others wait for.
    pub(super) first: u64,
    /// Turns between two barriers.
    pub(super) turns: u64,
}

/// Two variants to be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UncoreCase {
    pub(super) experiment: Experiment,
    /// Parameter that varies within the experiment: `8M x4`.
    pub(super) point: String,
    pub(super) ways: [Setup; 2],
}

impl fmt::Display for UncoreCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", word(self.experiment), self.point)
    }
}

/// All cases on this machine, and the experiments left out.
#[derive(Debug, Default)]
pub(super) struct UncorePlan {
    pub(super) cases: Vec<UncoreCase>,
    /// Experiments that this machine does not support, as text.
    pub(super) left_out: Vec<String>,
}

/// Parameters of the matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct UncoreScope<'a> {
    pub(super) quick: bool,
    /// Experiments; empty for all.
    pub(super) only: &'a [Experiment],
    /// Largest number of threads; `None` for the published numbers.
    pub(super) threads: Option<usize>,
}

/// One CPU of each usable core, grouped by shared resources.
#[derive(Debug)]
struct CoreGroups {
    all: Vec<OsCpu>,
    /// By node, for nodes with memory of their own.
    nodes: Vec<Vec<OsCpu>>,
    /// By last-level cache.
    caches: Vec<Vec<OsCpu>>,
}

impl CoreGroups {
    fn of(machine: &Machine, allowed: &CpuSet) -> Self {
        let first = |core: usize| {
            let core = machine.cores().get(core)?;
            machine.cpus_of(&core.pus).intersection(allowed).iter().next()
        };
        let all = (0..machine.cores().len()).filter_map(first).collect();
        let some = |groups: Vec<Vec<OsCpu>>| groups.into_iter().filter(|group| !group.is_empty()).collect();
        let caches = machine
            .llcs()
            .iter()
            .map(|llc| llc.cores.clone().filter_map(|core| first(core as usize)).collect());
        let nodes = machine.nodes().iter().map(|node| {
            let cores = node.cores.iter().filter_map(|id| first(id.0 as usize));
            cores.collect()
        });
        Self { all, nodes: some(nodes.collect()), caches: some(caches.collect()) }
    }
}

/// Takes `count` CPUs, one after the other from each group.
fn spread(groups: &[Vec<OsCpu>], count: usize) -> Vec<OsCpu> {
    let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|at| groups.iter().filter_map(move |group| group.get(at)));
    turns.copied().take(count).collect()
}

/// Returns a size as in the names of points, which records keep.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(MIB) => format!("{}M", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{}K", bytes / KIB),
        _ => format!("{bytes}B"),
    }
}

/// Plans the cases for this machine.
pub(super) fn plan(machine: &Machine, allowed: &CpuSet, scope: UncoreScope<'_>) -> UncorePlan {
    let ground = CoreGroups::of(machine, allowed);
    let mut plan = UncorePlan::default();
    for experiment in ALL.into_iter().filter(|one| scope.only.is_empty() || scope.only.contains(one)) {
        let most = scope.threads.unwrap_or(THREADS_MAX);
        let (mut cases, said) = match contrast(experiment, &ground, most) {
            Ok((ways, said)) => (cases_of(experiment, &ways, scope.quick), said),
            Err(why) => (Vec::new(), Some(why)),
        };
        if experiment == Experiment::Sharing && !scope.quick {
            cases.append(&mut by_sharers(&ground, most, scope.threads.unwrap_or(SHARERS_MAX)));
        }
        plan.cases.append(&mut cases);
        plan.left_out.extend(said.map(|said| format!("{}: {said}", word(experiment))));
    }
    plan
}

/// Returns cases with one shared line, for numbers of threads that the other cases do not have.
fn by_sharers(ground: &CoreGroups, usual: usize, most: usize) -> Vec<UncoreCase> {
    let contrast = |count: usize| contrast(Experiment::Sharing, ground, count).ok().map(|(ways, _)| ways);
    let threads = |ways: &SetupPair| ways[1].cpus.len();
    let known = contrast(usual).as_ref().map(threads);
    let case = |count: usize| {
        let ways = contrast(count).filter(|ways| threads(ways) == count)?;
        let ways = ways.map(|way| Setup { shared: LINES[0], ..way });
        let point = format!("{} by {count}", size(LINES[0]));
        Some(UncoreCase { experiment: Experiment::Sharing, point, ways })
    };
    SHARERS.into_iter().filter(|count| *count <= most && Some(*count) != known).filter_map(case).collect()
}

/// The two variants of an experiment, without their sizes.
type SetupPair = [Setup; 2];

/// Returns the two variants of an experiment on this machine, and a note about a replaced contrast.
fn contrast(
    experiment: Experiment,
    ground: &CoreGroups,
    most: usize,
) -> Result<(SetupPair, Option<String>), String> {
    let way = |way, cpus: Vec<OsCpu>| Setup {
        way,
        cpus,
        home: None,
        private: 0,
        chains: 1,
        shared: 0,
        barriers: None,
        rival: None,
    };
    let [here, beside] = match ground.all.as_slice() {
        [] | [_] => return Err("needs two cores; left out".to_owned()),
        [here, beside @ ..] => [vec![*here], beside.to_vec()],
    };
    let rival = |streams| MemoryCompetitor {
        cpus: beside.iter().copied().take(most.max(2) - 1).collect(),
        private: 0,
        streams,
    };
    let loaded = |streams| {
        let second = Setup { rival: Some(rival(streams)), ..way("loaded", here.clone()) };
        [way("alone", here.clone()), second]
    };
    let together = || {
        let all: Vec<OsCpu> = ground.all.iter().copied().take(most.max(2)).collect();
        [way("alone", here.clone()), way("together", all)]
    };
    let instead = |what: &str| Some(format!("{what}; alone against beside others is measured instead"));
    let one_node = "near against far memory needs two nodes with cores, but there is one";
    let one_cache = "threads in one last-level cache or apart need two caches, but there is one";

    // Groups that differ in the factor of the experiment; the first one is large enough to be
    // crowded.
    let crowd = |groups: &[Vec<OsCpu>]| {
        let first = groups.first().filter(|first| groups.len() > 1 && first.len() > 1)?;
        let count = most.min(first.len());
        (count > 1).then(|| [way("close", first[..count].to_vec()), way("apart", spread(groups, count))])
    };
    let with_home = |ways: SetupPair, home: OsCpu| ways.map(|way| Setup { home: Some(home), ..way });
    Ok(match experiment {
        Experiment::Locality => match ground.nodes.as_slice() {
            [near, far, ..] => {
                let far = Setup { home: Some(near[0]), ..way("far", vec![far[0]]) };
                ([way("near", vec![near[0]]), far], None)
            }
            _ => return Err(format!("{one_node}; left out")),
        },
        Experiment::Contention => match crowd(&ground.caches) {
            Some([close, apart]) => {
                ([Setup { way: "separate", ..apart }, Setup { way: "shared", ..close }], None)
            }
            None => (loaded(false), instead(one_cache)),
        },
        Experiment::Sharing | Experiment::ContentionSharing => match crowd(&ground.caches) {
            Some(ways) => (ways, None),
            None => (together(), instead(one_cache)),
        },
        Experiment::LocalityContention => match crowd(&ground.nodes) {
            Some(ways) => (with_home(ways, ground.nodes[0][0]), None),
            None => (loaded(true), instead(one_node)),
        },
        Experiment::All => match crowd(&ground.nodes) {
            Some(ways) => (with_home(ways, ground.nodes[0][0]), None),
            None => (together(), instead(one_node)),
        },
        Experiment::Spinning => spinning(ground, &way),
    })
}

/// Returns variants with two threads, of which one waits for the other most of the time: the other
/// thread's memory is near or far, or it runs alone or beside a competitor.
fn spinning(
    ground: &CoreGroups,
    way: &dyn Fn(&'static str, Vec<OsCpu>) -> Setup,
) -> (SetupPair, Option<String>) {
    let pairs: Vec<&[OsCpu]> = ground.nodes.iter().filter_map(|node| node.get(..2)).collect();
    let instead = |what: &str| {
        Some(format!(
            "near against far memory needs two nodes with two cores each; {what} is measured instead"
        ))
    };
    match (pairs.as_slice(), ground.all.as_slice()) {
        ([near, far, ..], _) => {
            let home = Some(near[0]);
            ([way("near", near.to_vec()), Setup { home, ..way("far", far.to_vec()) }], None)
        }
        (_, [one, two, beside @ ..]) if !beside.is_empty() => {
            let cpus = vec![*one, *two];
            let rival =
                Some(MemoryCompetitor { cpus: beside.to_vec(), private: STREAM_BYTES, streams: true });
            let loaded = Setup { rival, ..way("loaded", cpus.clone()) };
            ([way("alone", cpus), loaded], instead("alone against beside others"))
        }
        _ => {
            let both = |name| way(name, ground.all.clone());
            (
                [both("cached"), both("missing")],
                instead("a list that fits a private cache against larger ones"),
            )
        }
    }
}

/// Returns the cases of an experiment: its two variants in all sizes.
fn cases_of(experiment: Experiment, ways: &SetupPair, quick: bool) -> Vec<UncoreCase> {
    let sets: &[u64] = if quick { &QUICK_SETS } else { &SETS };
    let areas: &[u64] = if quick { &QUICK_AREAS } else { &AREAS };
    let mut cases = Vec::new();
    let mut add = |point: String, private: u64, chains: u32, shared: u64| {
        let ways = ways.clone().map(|way| {
            let private_of_rival = |rival: MemoryCompetitor| MemoryCompetitor {
                private: if rival.streams { STREAM_BYTES } else { private },
                ..rival
            };
            Setup { private, chains, shared, rival: way.rival.clone().map(private_of_rival), ..way }
        });
        cases.push(UncoreCase { experiment, point, ways });
    };
    match experiment {
        Experiment::Locality | Experiment::Contention | Experiment::LocalityContention => {
            for chains in CHAINS {
                for &private in sets {
                    add(format!("{}x{chains}", size(private)), private, chains, 0);
                }
            }
        }
        Experiment::Sharing => {
            for shared in LINES.into_iter().take(if quick { 2 } else { LINES.len() }) {
                add(size(shared), 0, 1, shared);
            }
        }
        Experiment::ContentionSharing => {
            for &shared in areas {
                add(size(shared), PRIVATE_BYTES, 1, shared);
            }
        }
        Experiment::All => {
            for &private in sets {
                add(size(private), private, 1, SHARED_BYTES);
            }
        }
        Experiment::Spinning => {
            for &first in if quick { QUICK_WAITED_FOR.as_slice() } else { &WAITED_FOR } {
                let sized = |way: Setup| {
                    // In this variant no thread is waited for.
                    let first = if way.way == "cached" { CACHED_BYTES } else { first };
                    Setup {
                        private: CACHED_BYTES,
                        barriers: Some(Barriers { first, turns: PHASE_TURNS }),
                        ..way
                    }
                };
                cases.push(UncoreCase { experiment, point: size(first), ways: ways.clone().map(sized) });
            }
        }
    }
    cases
}

fn list(cpus: &[OsCpu]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl Setup {
    /// Returns the command line of the variant, with windows of this length, each opened from
    /// outside.
    pub(super) fn command(&self, folder: &Path, seconds: f64, windows: usize) -> Vec<OsString> {
        let mut words = vec![folder.join(PROGRAM).into()];
        let mut option = |name: &str, value: String| words.extend([OsString::from(name), value.into()]);
        option("--threads", self.cpus.len().to_string());
        option("--cpus", list(&self.cpus));
        option("--private", self.private.to_string());
        option("--chains", self.chains.to_string());
        option("--share", self.shared.to_string());
        if let Some(Barriers { first, turns }) = self.barriers {
            option("--first", first.to_string());
            option("--phase", turns.to_string());
        }
        option("--seconds", seconds.to_string());
        option("--repeats", windows.to_string());
        if let Some(home) = self.home {
            option("--home", home.to_string());
        }
        words.push("--wait".into());
        words
    }
}

impl MemoryCompetitor {
    /// Returns the command line of the competitor: one window that lasts until it is stopped.
    pub(super) fn command(&self, folder: &Path) -> Vec<OsString> {
        let mut words = vec![folder.join(PROGRAM).into()];
        let mut option = |name: &str, value: String| words.extend([OsString::from(name), value.into()]);
        option("--threads", self.cpus.len().to_string());
        option("--cpus", list(&self.cpus));
        option("--private", self.private.to_string());
        option("--order", if self.streams { "sequential" } else { "random" }.to_owned());
        option("--seconds", "3600".to_owned());
        words
    }
}
