//! Sources of counts: `perf stat` over the hardware's counters, and valgrind's cachegrind over
//! simulated caches. Both start the program and write a file, which is read here.

use crate::args::CountSource;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};
use trimtab_linux::perf::Cpu;

const PERF: &str = "perf";
const VALGRIND: &str = "valgrind";
/// Events that perf counts: of user mode, as cachegrind simulates it. `cache-misses` means the
/// last-level cache on Intel only.
const EVENTS: &str = "instructions:u,cache-misses:u";
/// Ways and bytes a line of a simulated cache of a given size.
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
    pub(super) fn find(
        wanted: CountSource,
        cache: Option<u64>,
        cpu: Option<&Cpu>,
    ) -> Result<(Self, Option<String>), String> {
        let counters = || {
            match misleading(cpu) {
                Some(why) => Err(why),
                None => probe(PERF, &["stat", "-x,", "-e", EVENTS, "--", "true"]),
            }
            .and_then(|said| read_perf(&said))
        };
        let simulated = || probe(VALGRIND, &["--version"]).map(|_| Self::Cachegrind(cache));
        match wanted {
            CountSource::Counters if cache.is_some() => {
                Err("--cache names a simulated cache: leave out --by counters".to_owned())
            }
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
                out.push(plain(file.as_os_str()));
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

/// Returns a file's name as valgrind takes it, which replaces `%p` and `%q` in it.
fn plain(name: &OsStr) -> OsString {
    let doubled =
        name.as_bytes().iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'%')));
    OsString::from_vec(doubled.collect())
}

/// Returns why perf's `cache-misses` are not those of the last-level cache on this processor.
fn misleading(cpu: Option<&Cpu>) -> Option<String> {
    let here = match cpu {
        Some(Cpu::X86 { vendor, .. }) if vendor == "GenuineIntel" => return None,
        Some(Cpu::X86 { vendor, .. }) => vendor,
        Some(Cpu::Arm { .. }) => "an Arm processor",
        None => "an unknown processor",
    };
    Some(format!("perf's cache-misses are those of the last-level cache on Intel only; here is {here}"))
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

/// Reads the lines of `perf stat -x,`: value, unit, event, ... A processor with two kinds of cores
/// has a line for each kind, such as `cpu_core/instructions:u/`; a kind on which nothing ran has no
/// value.
fn read_perf(text: &str) -> Result<MissCounts, String> {
    let of = |event: &str| {
        let fields = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let is_of = |name: &str| name.split('/').any(|part| part.starts_with(event));
        let found = fields.filter(|fields| fields.get(2).is_some_and(|name| is_of(name)));
        let values: Vec<String> = found.map(|fields| fields[0].to_owned()).collect();
        let said = values.first().ok_or_else(|| format!("perf names no {event}"))?;
        let counts: Vec<u64> = values.iter().filter_map(|value| value.parse().ok()).collect();
        match counts.is_empty() {
            true => Err(format!("hardware counts no {event} here (perf: {said})")),
            false => Ok(counts.iter().sum::<u64>()),
        }
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
    fn both_kinds_of_cores_of_a_hybrid_processor_count() {
        let said = "<not counted>,,cpu_atom/instructions:u/,0,0.00,,\n900,,cpu_core/instructions:u/,1,100.00,,\n\
             3,,cpu_atom/cache-misses:u/,1,50.00,,\n4,,cpu_core/cache-misses:u/,1,50.00,,\n";
        assert_eq!(read_perf(said), Ok(MissCounts { instructions: 900, misses: 7 }));
    }

    #[test]
    fn only_intel_counts_misses_of_the_last_cache_by_this_name() {
        let x86 = |vendor: &str| Cpu::X86 { vendor: vendor.to_owned(), family: 6, model: 1 };
        assert_eq!(misleading(Some(&x86("GenuineIntel"))), None);
        let amd = x86("AuthenticAMD");
        let why = MissCounter::find(CountSource::Counters, None, Some(&amd)).unwrap_err();
        assert!(why.contains("on Intel only; here is AuthenticAMD"), "{why}");
        assert!(misleading(Some(&Cpu::Arm { implementer: 0x41, part: 1 })).is_some());
        assert!(misleading(None).is_some());
    }

    #[test]
    fn the_size_of_a_simulated_cache_says_nothing_of_hardware() {
        let why = MissCounter::find(CountSource::Counters, Some(65_536), None).unwrap_err();
        assert!(why.contains("leave out --by counters"), "{why}");
    }

    #[test]
    fn valgrind_writes_the_file_that_is_named() {
        let words = MissCounter::Cachegrind(None).words(Path::new("/tmp/50%p/counts"));
        assert_eq!(words.last().unwrap(), "--cachegrind-out-file=/tmp/50%%p/counts");
        let words = MissCounter::Counters.words(Path::new("/tmp/50%p/counts"));
        assert!(words.contains(&OsString::from("/tmp/50%p/counts")), "{words:?}");
    }

    #[test]
    fn misses_of_cachegrind_are_those_of_the_last_cache() {
        let text = "desc: I1 cache: 1\ncmd: x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfl=a\nfn=b\n1 9 9 9 9 9 9 9 9 9\nsummary: 1000 50 1 300 40 2 100 30 4\n";
        assert_eq!(read_cachegrind(text), Ok(MissCounts { instructions: 1_000, misses: 7 }));
        assert!(read_cachegrind("events: Ir\n").unwrap_err().contains("summary:"));
        assert!(read_cachegrind("events: Ir\nsummary: 5\n").unwrap_err().contains("no sum of ILmr"));
    }
}
