//! Sources of counts: `perf stat` over the hardware's counters, and valgrind's cachegrind over
//! simulated caches. Both start the program and write a file, which is read here.

use crate::args::CountSource;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

const PERF: &str = "perf";
const VALGRIND: &str = "valgrind";
/// Events that perf counts: of user mode, as cachegrind simulates it.
const EVENTS: &str = "instructions:u,cache-misses:u";
/// Ways and bytes a line of a simulated cache whose size was given.
const CACHE_SHAPE: &str = ",16,64";

/// A source of counts that works here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MissCounter {
    /// Hardware counters.
    Counters,
    /// Simulated caches; the size of the last one in bytes, if it was given.
    Cachegrind(Option<u64>),
}

/// Counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct MissCounts {
    pub(super) instructions: u64,
    /// Misses of the last-level cache.
    pub(super) misses: u64,
}

impl MissCounts {
    /// Returns the misses per 1,000 instructions.
    pub(super) fn per_kilo(self) -> f64 {
        1_000.0 * self.misses as f64 / self.instructions.max(1) as f64
    }
}

impl fmt::Display for MissCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counters => f.write_str("hardware counters, read by perf stat, in user mode"),
            Self::Cachegrind(None) => f.write_str("caches of one core, simulated by valgrind's cachegrind"),
            Self::Cachegrind(Some(bytes)) => write!(
                f,
                "caches of one core, the last one of {bytes} bytes, simulated by valgrind's cachegrind"
            ),
        }
    }
}

impl MissCounter {
    /// Finds a source that works here, and the reason why a better one was not taken.
    ///
    /// # Errors
    /// The wanted source does not work, or none does.
    pub(super) fn find(wanted: CountSource, cache: Option<u64>) -> Result<(Self, Option<String>), String> {
        let counters =
            || probe(PERF, &["stat", "-x,", "-e", EVENTS, "--", "true"]).and_then(|said| read_perf(&said));
        let simulated = || probe(VALGRIND, &["--version"]).map(|_| Self::Cachegrind(cache));
        match wanted {
            CountSource::Counters => counters().map(|_| (Self::Counters, None)),
            CountSource::Cachegrind => simulated().map(|source| (source, None)),
            CountSource::Auto if cache.is_some() => {
                let why = "--cache names a simulated cache, so hardware was not asked".to_owned();
                simulated().map(|source| (source, Some(why)))
            }
            CountSource::Auto => match counters() {
                Ok(_) => Ok((Self::Counters, None)),
                Err(why) => simulated().map(|source| (source, Some(why.clone()))).map_err(|no| {
                    format!("{why}; {no}: install valgrind, or perf on a machine with counters")
                }),
            },
        }
    }

    /// Returns the words before the program's, which write what was counted into the file.
    pub(super) fn words(self, file: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self {
            Self::Counters => [PERF, "stat", "-x,", "-e", EVENTS, "-o"].map(OsString::from).to_vec(),
            Self::Cachegrind(_) => {
                [VALGRIND, "--quiet", "--tool=cachegrind", "--cache-sim=yes"].map(OsString::from).to_vec()
            }
        };
        match self {
            Self::Counters => words.extend([file.into(), OsString::from("--")]),
            Self::Cachegrind(cache) => {
                words.extend(cache.map(|bytes| OsString::from(format!("--LL={bytes}{CACHE_SHAPE}"))));
                let mut out = OsString::from("--cachegrind-out-file=");
                out.push(file);
                words.push(out);
            }
        }
        words
    }

    /// Returns the counts of the file's text.
    pub(super) fn read(self, text: &str) -> Result<MissCounts, String> {
        match self {
            Self::Counters => read_perf(text),
            Self::Cachegrind(_) => read_cachegrind(text),
        }
    }
}

/// Runs a program that shows whether a source works. Returns its standard error.
fn probe(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program} cannot be started ({error})"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            Err(format!("{program} fails: {}", said.trim().lines().last().unwrap_or("it gives no reason")))
        }
    }
}

/// Reads the lines of `perf stat -x,`: value, unit, event, ...
fn read_perf(text: &str) -> Result<MissCounts, String> {
    let of = |event: &str| {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let found = lines.find(|fields| fields.get(2).is_some_and(|name| name.starts_with(event)));
        let value = found
            .and_then(|fields| fields.first().copied())
            .ok_or_else(|| format!("perf names no {event}"))?;
        value.parse().map_err(|_| format!("hardware counts no {event} here (perf: {value})"))
    };
    Ok(MissCounts { instructions: of("instructions")?, misses: of("cache-misses")? })
}

/// Reads the names of events and their sums.
fn read_cachegrind(text: &str) -> Result<MissCounts, String> {
    let words = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map(|line| line.split_whitespace().collect::<Vec<_>>())
            .ok_or_else(|| format!("valgrind's file has no line \"{key}\""))
    };
    let (names, sums) = (words("events:")?, words("summary:")?);
    let of = |event: &str| {
        let at = names.iter().position(|name| *name == event);
        at.and_then(|at| sums.get(at)?.parse::<u64>().ok())
            .ok_or_else(|| format!("valgrind's file has no sum of {event}"))
    };
    let misses = ["ILmr", "DLmr", "DLmw"].into_iter().map(of).sum::<Result<u64, String>>()?;
    Ok(MissCounts { instructions: of("Ir")?, misses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_perf_are_read_by_event_and_refused_if_hardware_counts_nothing() {
        let said = "# started\n\n2000000,,instructions:u,1000,100.00,,\n5000,,cache-misses:u,1000,100.00,,\n";
        let counts = read_perf(said).unwrap();
        assert_eq!(counts, MissCounts { instructions: 2_000_000, misses: 5_000 });
        assert!((counts.per_kilo() - 2.5).abs() < 1e-12);
        let none = "<not supported>,,instructions:u,0,100.00,,\n<not supported>,,cache-misses:u,0,100.00,,\n";
        let why = "hardware counts no instructions here (perf: <not supported>)";
        assert_eq!(read_perf(none).unwrap_err(), why);
        assert_eq!(read_perf("").unwrap_err(), "perf names no instructions");
    }

    #[test]
    fn misses_of_cachegrind_are_those_of_the_last_cache() {
        let text = "desc: I1 cache: 1\ncmd: x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfl=a\nfn=b\n1 9 9 9 9 9 9 9 9 9\nsummary: 1000 50 1 300 40 2 100 30 4\n";
        assert_eq!(read_cachegrind(text), Ok(MissCounts { instructions: 1_000, misses: 7 }));
        assert!(read_cachegrind("events: Ir\n").unwrap_err().contains("summary:"));
        assert!(read_cachegrind("events: Ir\nsummary: 5\n").unwrap_err().contains("no sum of ILmr"));
    }
}
