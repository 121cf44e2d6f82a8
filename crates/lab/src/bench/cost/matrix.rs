//! Matrix of `bench cost` as data: the sampled programs, the policies that sample them, and the
//! programs that counting slows.

use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;

/// File name of the benchmark program.
pub(super) const PROGRAM: &str = "uncore_lists";

/// Policies whose sampling cost is measured: one that only observes, and two that balance by
/// counters.
const KINDS: [Kind; 3] = [Kind::Float, Kind::Brm, Kind::Serial];
/// Number of threads for which the cost of sampling is stated, and numbers at which the budget must
/// be kept.
const STATED_THREADS: u32 = 100;
const CROWDS: [u32; 3] = [100, 400, 1_000];
/// Sleep of a working thread, in seconds per thread of the program: a hundred threads wake every 5
/// ms, and together use less than half a CPU.
const PAUSE_PER_THREAD_S: f64 = 5e-5;
/// Run time of a program that is stopped when it is no longer needed, in seconds.
const UNLIMITED_SECONDS: &str = "3600";

/// State of the sampled threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CrowdState {
    /// Each thread runs for some microseconds and sleeps, so that all threads have run between two
    /// samples and leave the sampler a CPU.
    Working,
    /// All threads sleep.
    Asleep,
}

/// Work of a slowed program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SlowedWork {
    /// Traverses memory.
    Memory,
    /// Traverses its private cache.
    Cached,
    /// Traverses its private cache, and sleeps at barriers some thousand times a second: counters
    /// are switched each time.
    Meetings,
}

/// Variant in which a slowed program is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SlowingVariant {
    /// Alone.
    Alone,
    /// Sampled.
    Looked,
    /// Sampled and counted.
    Counted,
}

impl SlowingVariant {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Looked, Self::Counted];
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(super) enum CostCell {
    /// Cost of samples at the requested interval.
    Looks { kind: Kind, counted: bool, state: CrowdState, threads: u32 },
    /// Interval of samples that keeps their cost within the budget.
    Budget { kind: Kind, counted: bool, threads: u32 },
    /// Slowdown of a program.
    Slowing { work: SlowedWork },
}

impl fmt::Display for CrowdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Working => "working",
            Self::Asleep => "asleep",
        })
    }
}

impl fmt::Display for SlowedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Cached => "cached",
            Self::Meetings => "meetings",
        })
    }
}

fn counted_word(counted: bool) -> &'static str {
    if counted { "counted" } else { "uncounted" }
}

impl fmt::Display for CostCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looks { kind, counted, state, threads } => {
                write!(f, "looks/{kind}/{}/{state}/{threads}", counted_word(*counted))
            }
            Self::Budget { kind, counted, threads } => {
                write!(f, "budget/{kind}/{}/{threads}", counted_word(*counted))
            }
            Self::Slowing { work } => write!(f, "slowing/{work}"),
        }
    }
}

/// Parameters of the matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostScope<'a> {
    pub(super) quick: bool,
    /// Patterns of cell names; empty for all cells.
    pub(super) only: &'a [String],
    /// Whether any event can be counted.
    pub(super) counts: bool,
}

/// Returns all cells.
pub(super) fn cells(scope: CostScope<'_>) -> Vec<CostCell> {
    let both: &[bool] = if scope.counts { &[false, true] } else { &[false] };
    let mut cells = Vec::new();
    for kind in KINDS {
        for &counted in both {
            for state in if scope.quick {
                [CrowdState::Working].as_slice()
            } else {
                &[CrowdState::Working, CrowdState::Asleep]
            } {
                cells.push(CostCell::Looks { kind, counted, state: *state, threads: STATED_THREADS });
            }
        }
    }
    for kind in KINDS {
        for threads in if scope.quick { &CROWDS[..2] } else { &CROWDS } {
            cells.push(CostCell::Budget { kind, counted: scope.counts, threads: *threads });
        }
    }
    cells.extend(
        [SlowedWork::Memory, SlowedWork::Cached, SlowedWork::Meetings].map(|work| CostCell::Slowing { work }),
    );
    cells.retain(|cell| {
        let name = cell.to_string();
        scope.only.is_empty() || scope.only.iter().any(|part| name.contains(part.as_str()))
    });
    cells
}

fn words(folder: &Path, options: &[(&str, String)]) -> Vec<OsString> {
    let options = options.iter().flat_map(|(name, value)| [OsString::from(name), value.into()]);
    [folder.join(PROGRAM).into_os_string()].into_iter().chain(options).collect()
}

/// Returns the command line of a program with this number of threads in this state, which runs
/// until it is stopped.
pub(super) fn crowd(folder: &Path, threads: u32, state: CrowdState) -> Vec<OsString> {
    let options = [("--threads", threads.to_string()), ("--private", "4096".to_owned())];
    let mut words = words(folder, &options);
    match state {
        CrowdState::Working => {
            let pause = PAUSE_PER_THREAD_S * f64::from(threads);
            let options = ["--seconds", UNLIMITED_SECONDS, "--pause", &pause.to_string()];
            words.extend(options.map(OsString::from));
        }
        CrowdState::Asleep => words.push("--wait".into()),
    }
    words
}

/// Returns the command line of a program with one thread for each of these CPUs, and windows that
/// are opened from outside.
pub(super) fn slowed(
    folder: &Path,
    work: SlowedWork,
    cpus: &[OsCpu],
    seconds: f64,
    windows: usize,
) -> Vec<OsString> {
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let mut options = vec![
        ("--threads", cpus.len().to_string()),
        ("--cpus", list.join(",")),
        ("--seconds", seconds.to_string()),
        ("--repeats", windows.to_string()),
        ("--private", (if work == SlowedWork::Memory { 16 << 20 } else { 32 << 10 }).to_string()),
    ];
    if work == SlowedWork::Meetings {
        options.extend([("--phase", "50000".to_owned()), ("--barrier", "sleep".to_owned())]);
    }
    let mut words = words(folder, &options);
    words.push("--wait".into());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CostScope<'_> = CostScope { quick: false, only: &[], counts: true };

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        for counts in [true, false] {
            for quick in [true, false] {
                let cells = cells(CostScope { quick, counts, ..ALL });
                let names: std::collections::BTreeSet<String> =
                    cells.iter().map(ToString::to_string).collect();
                assert_eq!(names.len(), cells.len());
                assert!(counts || names.iter().all(|name| !name.contains("/counted")));
                assert!(names.contains("slowing/meetings"));
            }
        }
        assert_eq!(cells(ALL).len(), 12 + 9 + 3);
        assert_eq!(cells(CostScope { only: &["budget/".to_owned()], ..ALL }).len(), 9);
    }

    #[test]
    fn programs_get_their_commands() {
        let shown = |words: Vec<OsString>| {
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let folder = Path::new("/b");
        assert_eq!(
            shown(crowd(folder, 400, CrowdState::Working)),
            "/b/uncore_lists --threads 400 --private 4096 --seconds 3600 --pause 0.02"
        );
        assert!(shown(crowd(folder, 1, CrowdState::Asleep)).ends_with(" --wait"));
        let meetings = shown(slowed(folder, SlowedWork::Meetings, &[OsCpu(0), OsCpu(2)], 0.1, 6));
        assert_eq!(
            meetings,
            "/b/uncore_lists --threads 2 --cpus 0,2 --seconds 0.1 --repeats 6 --private 32768 --phase 50000 --barrier sleep --wait"
        );
    }
}
