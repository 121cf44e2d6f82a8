//! What is measured, as data: who looks how at how many threads, and what kind of program is slowed by being counted.

use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;

/// The program.
pub(super) const PROGRAM: &str = "uncore_lists";

/// The policies whose looks are measured: who only watches, and who balances by what is counted.
const KINDS: [Kind; 3] = [Kind::Float, Kind::Brm, Kind::Serial];
/// The number of threads for which the cost of looking is stated, and those at which the budget must be kept.
const THREADS: u32 = 100;
const CROWDS: [u32; 3] = [100, 400, 1_000];
/// How long a thread at work sleeps, in seconds for each thread there is: a hundred wake every 5 ms, and all take less than half a CPU.
const PAUSE: f64 = 5e-5;
/// As long as a program runs that is stopped when it is no longer needed.
const FOR_EVER: &str = "3600";

/// What the threads do that are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Each runs for some microseconds and sleeps, so that all have run from one look to the next and leave whoever looks a CPU.
    Working,
    /// All sleep.
    Asleep,
}

/// What a program does that is slowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Work {
    /// Walks through memory.
    Memory,
    /// Walks through its private cache.
    Cached,
    /// The same, and sleeps at barriers some thousand times a second: counters are switched each time.
    Meetings,
}

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// By itself.
    Alone,
    /// Looked at.
    Looked,
    /// Looked at and counted.
    Counted,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Looked, Self::Counted];
}

/// One thing that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(super) enum Cell {
    /// What looks cost as often as they are wanted.
    Looks { kind: Kind, counted: bool, state: State, threads: u32 },
    /// How seldom looks become so that they cost no more than they may.
    Budget { kind: Kind, counted: bool, threads: u32 },
    /// How much slower a program gets.
    Slowing { work: Work },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Working => "working",
            Self::Asleep => "asleep",
        })
    }
}

impl fmt::Display for Work {
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

impl fmt::Display for Cell {
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

/// What cells depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) quick: bool,
    /// Parts of names; none for all.
    pub(super) only: &'a [String],
    /// Whether anything can be counted.
    pub(super) counts: bool,
}

/// All cells.
pub(super) fn cells(scope: Scope<'_>) -> Vec<Cell> {
    let both: &[bool] = if scope.counts { &[false, true] } else { &[false] };
    let mut cells = Vec::new();
    for kind in KINDS {
        for &counted in both {
            for state in
                if scope.quick { [State::Working].as_slice() } else { &[State::Working, State::Asleep] }
            {
                cells.push(Cell::Looks { kind, counted, state: *state, threads: THREADS });
            }
        }
    }
    for kind in KINDS {
        for threads in if scope.quick { &CROWDS[..2] } else { &CROWDS } {
            cells.push(Cell::Budget { kind, counted: scope.counts, threads: *threads });
        }
    }
    cells.extend([Work::Memory, Work::Cached, Work::Meetings].map(|work| Cell::Slowing { work }));
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

/// So many threads in this state, until they are stopped.
pub(super) fn crowd(folder: &Path, threads: u32, state: State) -> Vec<OsString> {
    let options = [("--threads", threads.to_string()), ("--private", "4096".to_owned())];
    let mut words = words(folder, &options);
    match state {
        State::Working => {
            let pause = PAUSE * f64::from(threads);
            let options = ["--seconds", FOR_EVER, "--pause", &pause.to_string()];
            words.extend(options.map(OsString::from));
        }
        State::Asleep => words.push("--wait".into()),
    }
    words
}

/// A program with one thread for each of these CPUs, and windows that are opened from outside.
pub(super) fn slowed(
    folder: &Path,
    work: Work,
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
        ("--private", (if work == Work::Memory { 16 << 20 } else { 32 << 10 }).to_string()),
    ];
    if work == Work::Meetings {
        options.extend([("--phase", "50000".to_owned()), ("--barrier", "sleep".to_owned())]);
    }
    let mut words = words(folder, &options);
    words.push("--wait".into());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Scope<'_> = Scope { quick: false, only: &[], counts: true };

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        for counts in [true, false] {
            for quick in [true, false] {
                let cells = cells(Scope { quick, counts, ..ALL });
                let names: std::collections::BTreeSet<String> =
                    cells.iter().map(ToString::to_string).collect();
                assert_eq!(names.len(), cells.len());
                assert!(counts || names.iter().all(|name| !name.contains("/counted")));
                assert!(names.contains("slowing/meetings"));
            }
        }
        assert_eq!(cells(ALL).len(), 12 + 9 + 3);
        assert_eq!(cells(Scope { only: &["budget/".to_owned()], ..ALL }).len(), 9);
    }

    #[test]
    fn programs_are_told_what_to_do() {
        let shown = |words: Vec<OsString>| {
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let folder = Path::new("/b");
        assert_eq!(
            shown(crowd(folder, 400, State::Working)),
            "/b/uncore_lists --threads 400 --private 4096 --seconds 3600 --pause 0.02"
        );
        assert!(shown(crowd(folder, 1, State::Asleep)).ends_with(" --wait"));
        let meetings = shown(slowed(folder, Work::Meetings, &[OsCpu(0), OsCpu(2)], 0.1, 6));
        assert_eq!(
            meetings,
            "/b/uncore_lists --threads 2 --cpus 0,2 --seconds 0.1 --repeats 6 --private 32768 --phase 50000 --barrier sleep --wait"
        );
    }
}
