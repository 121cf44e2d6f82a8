//! `trimtab profile`: runs a program under the monitor and reports its profile. `Measurement` is
//! the same as a value, for other commands.

use super::run;
use crate::args::{ProfileArgs, RunArgs, RunOnly};
use crate::exit::{self, Exit};
use crate::profile::{self, Ask, ProfileTarget};
use crate::say;
use crate::world::World;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::stdio::{dup2_stdout, stderr};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use trimtab_core::place::Fit;
use trimtab_core::profile::Profile;
use trimtab_linux::sys::fork::{ForkSide, fork};

/// Runs the command.
///
/// # Errors
/// The errors of `trimtab run`.
pub fn run(world: &World, mut args: ProfileArgs) -> Result<u8, Exit> {
    let target = args.output.take().map_or(ProfileTarget::Stderr, ProfileTarget::File);
    run_for(world, args, target)
}

fn run_for(world: &World, args: ProfileArgs, target: ProfileTarget) -> Result<u8, Exit> {
    let ProfileArgs { place, json, output: _, set, wait_policy, pin, counting, verbose, quiet, command } =
        args;
    let setting = set.unwrap_or_default();
    let only = RunOnly {
        pin,
        wait_policy,
        verbose,
        quiet,
        // The program is measured as the user runs it.
        no_tuning: true,
        fit: Some(Fit::Keep),
        set: setting.clone(),
        profile: Some(Ask { json, target, setting }),
        ..RunOnly::default()
    };
    let mut args = RunArgs { place, run: only, command };
    args.run.watch.counting = counting;
    run::run(world, &args)
}

/// A measurement of one run, in a process of its own: the program's parent gets signals only for
/// the program, and forks again.
#[derive(Debug)]
pub struct Measurement {
    process: Pid,
    /// A byte from here begins the run.
    begin: PipeWriter,
    profile: PipeReader,
}

impl Measurement {
    /// Prepares the measurement. The program's output goes to stderr. This process must have one
    /// thread, so that the child's copy of its memory is consistent.
    ///
    /// # Errors
    /// No process or no pipe is available, or this process has other threads.
    pub fn prepare(world: &World, args: ProfileArgs) -> Result<Self> {
        let pipe = || std::io::pipe().context("cannot create a pipe for the measurement");
        let ((begins, begin), (profile, target)) = (pipe()?, pipe()?);
        match fork().context("cannot create a process for the measurement")? {
            ForkSide::Child => {
                drop((begin, profile));
                std::process::exit(i32::from(measure(world, args, begins, target)))
            }
            ForkSide::Parent(process) => {
                let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
                Ok(Self { process, begin, profile })
            }
        }
    }

    /// Returns the process that runs the program, to which a signal may be sent.
    pub fn process(&self) -> Pid {
        self.process
    }

    /// Carries the measurement out. Returns the profile, and how the program ended.
    ///
    /// # Errors
    /// The program cannot be started; then no profile exists. A program that fails or is killed has
    /// one.
    pub fn carry_out(self) -> Result<(Profile, ExitStatus)> {
        let Self { process, mut begin, mut profile } = self;
        // A process that has ended already leaves its status.
        let _ = begin.write_all(&[1]);
        drop(begin);
        let mut text = String::new();
        let taken = profile.read_to_string(&mut text);
        let status = ended(process).context("cannot wait for the program")?;
        taken.context("cannot read the profile")?;
        if text.is_empty() {
            bail!("no profile: the program could not be started ({status})");
        }
        Ok((profile::read(&text)?, status))
    }
}

/// Waits for the end of a process.
fn ended(process: Pid) -> Result<ExitStatus, Errno> {
    loop {
        match waitpid(Some(process), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Measures a run in the process that was made for it, and returns its exit status.
fn measure(world: &World, args: ProfileArgs, mut begins: PipeReader, target: PipeWriter) -> u8 {
    // The pipe ends without a byte if the other process has ended before.
    if !matches!(begins.read(&mut [0]), Ok(1)) {
        return exit::RUN_FAILED;
    }
    drop(begins);
    let failed = |error: Errno| Exit::new(exit::RUN_FAILED, error);
    let done = dup2_stdout(stderr()).map_err(failed);
    let done = done.and_then(|()| run_for(world, args, ProfileTarget::Process(Arc::new(target))));
    done.unwrap_or_else(|error| {
        say::error(&error);
        error.status
    })
}
