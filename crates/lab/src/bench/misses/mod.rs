//! `trimtab bench misses`: cache misses of the NAS kernels per 1,000 instructions.
//!
//! [`counting`] starts a program under a source of counts and reads them, [`report`] shows the
//! results. A case is a kernel with a number of threads.

mod counting;
mod records;
mod report;
mod scratch;

use super::harness::programs::{self, ProgramOutcome};
use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::{Class, MissesArgs};
use crate::usable::Usable;
use anyhow::{Result, anyhow};
use counting::{MissCounter, MissCounts};
use records::{MissesLine, MissesResultLine, MissesRunLine, MissesStart};
use scratch::ScratchFolder;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trimtab_core::stats::median;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_linux::perf::Cpu;

/// All kernels, in the order of the options.
const KERNELS: [&str; 8] = ["bt", "cg", "ep", "ft", "is", "lu", "mg", "sp"];
/// Variables of the user that would change the team or its waiting.
const REMOVED: [&str; 8] = [
    "GOMP_SPINCOUNT",
    "GOMP_CPU_AFFINITY",
    "KMP_BLOCKTIME",
    "OMP_DYNAMIC",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_SCHEDULE",
    "OMP_THREAD_LIMIT",
];

/// A kernel with a number of threads.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MissesCase {
    kernel: String,
    class: Class,
    per_core: u32,
    threads: u32,
}

impl MissesCase {
    /// Returns kernel and class, such as `cg.W`.
    fn name(&self) -> String {
        format!("{}.{}", self.kernel, self.class.word())
    }
}

impl std::fmt::Display for MissesCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} per core", self.name(), self.per_core)
    }
}

/// Result of all runs of a case.
#[derive(Debug)]
struct MissesFound<'a> {
    case: &'a MissesCase,
    samples: usize,
    per_kilo: f64,
}

/// Runs the benchmark and shows the results.
///
/// # Errors
/// Nothing counts here, the programs are missing, a run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &MissesArgs) -> Result<u8> {
    let usable = Usable::live(world, false)?;
    let cpu = Cpu::here(&world.root.join("proc"), &world.root.join("sys"));
    let (counter, why) =
        MissCounter::find(args.by, args.cache, cpu.as_ref()).map_err(|error| anyhow!(error))?;
    let cores = match counter {
        MissCounter::Counters => u32::try_from(harness::one_of_each_core(&usable).len()).unwrap_or(u32::MAX),
        MissCounter::Cachegrind(_) => 1,
    };
    let cases = cases(args, counter, cores);
    let kernels: Vec<&str> = cases.iter().map(|case| case.kernel.as_str()).collect();
    let folder = programs::folder(args.programs.as_deref(), &harness::own()?, &kernels)?;
    let left_out: Vec<String> = why.into_iter().collect();
    if args.list {
        let line = |case: &MissesCase| {
            let words = harness::words(&words(case, counter, &folder, Path::new("COUNTS"))).join(" ");
            format!("{case}: OMP_NUM_THREADS={} {words}", case.threads)
        };
        return harness::list(cases.iter().map(line), &left_out);
    }
    harness::measure(|_| {
        let outlet = Outlet::open(args.json.as_deref(), None, false)?;
        let start = MissesStart {
            head: harness::head("misses", &usable),
            rounds: args.rounds,
            seed: args.seed,
            programs: folder.display().to_string(),
            counted_by: counter.to_string(),
            left_out,
        };
        let rounds = Rounds::of(&cases, args.rounds, args.seed);
        let samples = vec![Vec::new(); cases.len()];
        let scratch = ScratchFolder::new(&std::env::temp_dir())?;
        Ok((MissesBench { counter, folder, scratch, cases, rounds, start, samples }, outlet))
    })
}

/// Returns the cases: each kernel with each number of threads, once.
fn cases(args: &MissesArgs, counter: MissCounter, cores: u32) -> Vec<MissesCase> {
    let usual = if counter == MissCounter::Counters { Class::W } else { Class::S };
    let class = args.class.unwrap_or(usual);
    let wanted = |kernel: &&str| args.kernels.is_empty() || args.kernels.iter().any(|one| one == kernel);
    let mut cases: Vec<MissesCase> = Vec::new();
    for kernel in KERNELS.into_iter().filter(wanted) {
        for &per_core in &args.per_core {
            let threads = cores.saturating_mul(per_core);
            let case = MissesCase { kernel: kernel.to_owned(), class, per_core, threads };
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    }
    cases
}

/// Returns the command of a case.
fn words(case: &MissesCase, counter: MissCounter, folder: &Path, file: &Path) -> Vec<OsString> {
    let mut words = counter.words(file);
    words.push(folder.join(&case.kernel).into());
    words.extend([case.class.word(), "--json"].map(OsString::from));
    words
}

struct MissesBench {
    counter: MissCounter,
    folder: PathBuf,
    /// Folder of the file that a source of counts writes.
    scratch: ScratchFolder,
    cases: Vec<MissesCase>,
    rounds: Rounds,
    start: MissesStart,
    /// Misses per 1,000 instructions, of each case.
    samples: Vec<Vec<f64>>,
}

impl MissesBench {
    /// Runs a case. `Ok(None)` after a signal; the error has the program's standard error.
    fn count(
        &self,
        case: &MissesCase,
        interrupt: &Interrupt,
    ) -> Result<Option<MissCounts>, (String, String)> {
        let mut variables: Vec<(&str, Option<String>)> = REMOVED.map(|name| (name, None)).to_vec();
        variables.push(("OMP_NUM_THREADS", Some(case.threads.to_string())));
        variables.push(("OMP_WAIT_POLICY", Some("passive".to_owned())));
        let check = |report: &Value| {
            let same = report["kernel"] == case.kernel && report["threads"] == case.threads;
            (!same).then(|| "its report is of another run".to_owned())
        };
        let file = self.scratch.path().join("counts");
        let words = words(case, self.counter, &self.folder, &file);
        let came = programs::run(&words, &variables, &check, interrupt);
        let text = std::fs::read_to_string(&file);
        // A file of an earlier run must not be read again.
        let _ = std::fs::remove_file(&file);
        match came {
            ProgramOutcome::Stopped => Ok(None),
            ProgramOutcome::Badly { error, stderr } => Err((error, stderr)),
            ProgramOutcome::Well { stderr, .. } => {
                let text =
                    text.map_err(|error| (format!("no counts were written: {error}"), stderr.clone()))?;
                self.counter.read(&text).map(Some).map_err(|error| (error, stderr))
            }
        }
    }
}

impl Benchmark for MissesBench {
    type Findings<'f>
        = Vec<MissesFound<'f>>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&MissesLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some(case) = self.cases.get(at) else { return Ok(RunOutcome::Well) };
        let came = match self.count(case, interrupt) {
            Ok(None) => return Ok(RunOutcome::Stopped),
            Ok(Some(counts)) => Ok(counts),
            Err(failure) => Err(failure),
        };
        let failure = came.as_ref().err();
        recorder.write(&MissesLine::Run(MissesRunLine {
            kernel: &case.kernel,
            class: case.class.word(),
            per_core: case.per_core,
            threads: case.threads,
            round,
            counts: came.as_ref().ok().copied(),
            error: failure.map(|(error, _)| error.as_str()),
            stderr: failure.map_or("", |(_, stderr)| stderr.as_str()),
        }))?;
        match came {
            Ok(counts) => {
                self.samples[at].push(counts.per_kilo());
                Ok(RunOutcome::Well)
            }
            Err((error, stderr)) => Ok(RunOutcome::Badly { error, stderr }),
        }
    }

    fn evaluate(&self) -> Vec<MissesFound<'_>> {
        let found = |(case, samples): (_, &Vec<f64>)| {
            Some(MissesFound { case, samples: samples.len(), per_kilo: median(samples)? })
        };
        self.cases.iter().zip(&self.samples).filter_map(found).collect()
    }

    fn report(&self, found: &Vec<MissesFound<'_>>, ended: SeriesEnd) -> String {
        report::page(&self.start, found, ended)
    }

    fn conclude(
        &self,
        found: &Vec<MissesFound<'_>>,
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        for one in found {
            recorder.write(&MissesLine::Result(MissesResultLine {
                kernel: &one.case.kernel,
                class: one.case.class.word(),
                per_core: one.case.per_core,
                threads: one.case.threads,
                samples: one.samples,
                misses_per_kilo: one.per_kilo,
            }))?;
        }
        recorder.write(&MissesLine::End(ended))
    }
}
