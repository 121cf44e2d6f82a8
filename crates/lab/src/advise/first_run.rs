//! The first run: profiled, watched for the threads of its processes, and ended early if they show
//! the cause already, or if another way to start the program may be much faster.

use super::run_facts::{self, RunFacts};
use super::tree;
use anyhow::{Context, Result, bail};
use rustix::fs::{FileType, SeekFrom, fstat, seek, tell};
use rustix::process::{Pid, Signal, kill_process};
use rustix::stdio::{dup2_stdin, stdin};
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use trimtab_cli::args::{AdviseArgs, CountingArgs, ProfileArgs};
use trimtab_cli::commands::profile::Measurement;
use trimtab_core::advise::early;
use trimtab_core::advise::libraries::Library;
use trimtab_core::profile::Profile;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_hold::site_facts::HOLD;
use trimtab_linux::process::Pid as Process;

/// First interval between samples of threads, its growth, and the longest one. Short programs get
/// some samples, and long ones are hardly disturbed.
const SAMPLE_INTERVAL_FIRST: Duration = Duration::from_millis(10);
const SAMPLE_INTERVAL_GROWTH: f64 = 1.3;
const SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// Samples that are kept: more than a window of the diagnosis has.
const SAMPLES_KEPT: usize = 16;
/// Time that a program has to end after SIGTERM.
const TERM_TIME: Duration = Duration::from_secs(1);

/// What the samples of the first run showed.
#[derive(Debug, Default)]
pub(super) struct ThreadFindings {
    pub libraries: Vec<Library>,
    /// Largest number of processes that computed at the same time.
    pub processes: u32,
    /// Largest number of threads that had or wanted a CPU at the same time.
    pub computing: u32,
    /// Number of threads that hardly ever slept, if the run was ended for that.
    pub ended_early: Option<u32>,
    /// Number of threads that wanted a CPU, if the run was ended because they were more than the
    /// CPUs for some seconds.
    pub undecided: Option<u32>,
}

impl ThreadFindings {
    /// Returns whether the run was ended before its end.
    pub(super) fn was_ended(&self) -> bool {
        self.ended_early.is_some() || self.undecided.is_some()
    }
}

/// The result of the first run.
pub(super) struct FirstRun {
    pub profile: Profile,
    pub facts: RunFacts,
    pub watched: ThreadFindings,
    pub status: ExitStatus,
    pub interrupt: Interrupt,
    /// Place in the input at which it began, in bytes; 0 if the input is no file.
    pub input_at: u64,
}

/// Runs the program once.
///
/// # Errors
/// It cannot be started.
pub(super) fn first_run(world: &World, args: &AdviseArgs) -> Result<FirstRun> {
    refuse_inside(world)?;
    if !args.once {
        same_input()?;
    }
    let setting = args.set.clone().unwrap_or_default();
    let input_at = tell(stdin()).unwrap_or(0);
    let before = run_facts::begin(world, args, &setting)?;
    let run = ProfileArgs {
        place: before.place(),
        json: true,
        output: None,
        set: Some(setting),
        wait_policy: None,
        pin: None,
        counting: CountingArgs::default(),
        verbose: false,
        quiet: true,
        command: args.command.clone(),
    };
    // Before signals are heard, which is the work of another thread.
    let measurement = Measurement::prepare(world, run)?;
    let interrupt = Interrupt::listen()?;
    let process = measurement.process();
    interrupt.runs_process(process);
    let watch =
        Watch { proc: world.proc(), process, cpus: before.cpus(), ends_early: !args.complete && !args.once };
    let (over, ends) = channel::<()>();
    let (done, watched) = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || watch.run(&ends));
        let done = measurement.carry_out();
        drop(over);
        (done, watcher.join().unwrap_or_default())
    });
    interrupt.ended();
    let (profile, status) = done?;
    let facts = before.end(world, args);
    Ok(FirstRun { profile, facts, watched, status, interrupt, input_at })
}

/// Refuses to measure inside a run.
///
/// # Errors
/// This process is in a `trimtab run`.
pub(super) fn refuse_inside(world: &World) -> Result<()> {
    if world.raw(HOLD).is_some() {
        bail!(
            "trimtab advise runs inside a trimtab run, whose cores and variables would distort the measurement: start it outside"
        );
    }
    Ok(())
}

/// Gives the first run the same input as the trials: a file from its beginning, or none.
fn same_input() -> Result<()> {
    let is_file =
        fstat(stdin()).is_ok_and(|data| FileType::from_raw_mode(data.st_mode) == FileType::RegularFile);
    if is_file {
        seek(stdin(), SeekFrom::Start(0)).context("the input cannot be read from its beginning")?;
    } else {
        dup2_stdin(File::open("/dev/null").context("cannot open /dev/null")?).context("no input")?;
    }
    Ok(())
}

struct Watch {
    proc: PathBuf,
    /// The process that measures the program.
    process: Pid,
    cpus: u32,
    ends_early: bool,
}

impl Watch {
    /// Samples the program's threads until its end, or ends it.
    fn run(&self, ends: &Receiver<()>) -> ThreadFindings {
        let mut watched = ThreadFindings::default();
        let mut libraries = tree::Libraries::default();
        let mut samples = Vec::new();
        let (begin, mut interval) = (Instant::now(), SAMPLE_INTERVAL_FIRST);
        let root = Process(self.process.as_raw_nonzero().get().unsigned_abs());
        while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(interval) {
            interval = interval.mul_f64(SAMPLE_INTERVAL_GROWTH).min(SAMPLE_INTERVAL_MAX);
            let programs = tree::programs(&self.proc, root);
            let sample = tree::sample(&self.proc, &programs, begin.elapsed());
            libraries.take(&self.proc, &sample);
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            watched.computing = watched.computing.max(count(sample.running()));
            watched.processes = watched.processes.max(count(sample.by_process().len()));
            samples.push(sample);
            if samples.len() > SAMPLES_KEPT {
                samples.remove(0);
            }
            watched.ended_early = early::crowd(&samples, self.cpus).filter(|_| self.ends_early);
            if watched.ended_early.is_none() {
                watched.undecided = early::undecided(&samples, self.cpus).filter(|_| self.ends_early);
            }
            if watched.was_ended() {
                self.end(root, ends);
                break;
            }
        }
        watched.libraries = libraries.all();
        watched
    }

    /// Ends the program: by a request, and by force the processes that do not follow or stay
    /// behind.
    fn end(&self, root: Process, ends: &Receiver<()>) {
        let all = tree::identified(&self.proc, tree::programs(&self.proc, root));
        let _ = kill_process(self.process, Signal::TERM);
        let _ = ends.recv_timeout(TERM_TIME);
        tree::kill(&tree::remaining(&self.proc, &all));
    }
}
