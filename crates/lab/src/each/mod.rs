//! `trimtab each`: a command for each of many values, each run on cores of its own.
//!
//! Each job is a `trimtab run --wait`, so jobs, other runs and other users' runs share one queue
//! and one ledger. `template` fills in the words, `pool` runs the jobs, `job_log` is the log from
//! which `--resume` goes on.

mod job_log;
mod pool;
mod template;

use crate::args::EachArgs;
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use job_log::{EndedJob, JobLog};
use pool::{FinishedJob, Job, Pool, Starter};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::time::Duration;
use template::Template;
use trimtab_core::words::plural;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_front::sibling::{self, TRIMTAB};

/// Interval at which the estimate of the rest is drawn anew, at a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Most failed jobs that the summary names.
const FAILED_NAMED_MAX: usize = 10;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the values cannot be read, the log cannot be used, or `trimtab` is
/// missing.
pub fn run(world: &World, args: &EachArgs) -> Result<u8, Exit> {
    each(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn each(world: &World, args: &EachArgs) -> Result<u8> {
    let (command, given) = template::divided(&args.command);
    if command.is_empty() {
        bail!("no command is given before :::");
    }
    let template = Template::parse(command);
    let mut jobs = jobs(values(args, given)?);
    let log = match &args.log {
        Some(path) if args.resume => {
            let (log, mut done) = JobLog::resume(path, command)?;
            jobs.retain(|job| !job_log::take(&mut done, &job.value));
            Some(log)
        }
        Some(path) if !args.dry_run => Some(JobLog::begin(path, command)?),
        _ => None,
    };
    let options = options(args);
    if args.dry_run {
        return dry_run(&options, &template, &jobs);
    }
    let at_once = args.jobs.map_or_else(|| at_once(world, args.cores), |jobs| Ok(jobs as usize))?;
    let starter = Starter { trimtab: sibling::find(TRIMTAB)?, options, template, live: args.live };
    let volume = Volume::of(args.quiet, false);
    Work {
        args,
        log,
        volume,
        bar: bar(args, jobs.len()),
        kept: BTreeMap::new(),
        next: 0,
        failed: Vec::new(),
        said: BTreeSet::new(),
    }
    .all(&starter, jobs, at_once)
}

/// Returns the values: those behind `:::`, or the lines of the file or of standard input.
fn values(args: &EachArgs, given: Option<&[OsString]>) -> Result<Vec<OsString>> {
    let mut text = Vec::new();
    match (given, &args.values) {
        (Some(_), Some(_)) => bail!("values are given twice: behind ::: and with --values"),
        (Some(given), None) => return Ok(given.to_vec()),
        (None, Some(path)) => {
            text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        (None, None) => {
            std::io::stdin().read_to_end(&mut text).context("cannot read the values from standard input")?;
        }
    }
    Ok(template::values(&text, args.null))
}

fn jobs(values: Vec<OsString>) -> Vec<Job> {
    values.into_iter().enumerate().map(|(at, value)| Job { number: at + 1, value }).collect()
}

/// Returns the options of `trimtab run` for a job.
fn options(args: &EachArgs) -> Vec<OsString> {
    let own = ["--wait".to_owned(), format!("--cores={}", args.cores)];
    own.into_iter().chain(args.run.split_whitespace().map(str::to_owned)).map(OsString::from).collect()
}

/// Returns how many jobs of this many cores the usable cores suffice for, at least one.
fn at_once(world: &World, cores: u32) -> Result<usize> {
    let Usable { machine, allowed, .. } = Usable::live(world, true)?;
    let usable: BTreeSet<_> =
        allowed.iter().filter_map(|cpu| machine.pu(cpu)).map(|pu| machine.core_of(pu)).collect();
    Ok((usable.len() / cores.max(1) as usize).max(1))
}

fn dry_run(options: &[OsString], template: &Template, jobs: &[Job]) -> Result<u8> {
    let mut out = std::io::stdout().lock();
    for job in jobs {
        let words = [OsStr::new("trimtab"), OsStr::new("run")].map(OsStr::to_owned).into_iter();
        let words = words.chain(options.to_vec()).chain([OsString::from("--")]);
        let words = words.chain(template.fill(job.number, &job.value));
        let line: Vec<String> = words.map(|word| quoted(&word)).collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    Ok(exit::DONE)
}

/// Returns a word as a shell reads it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Copies standard error of a job without those lines of trimtab's that an earlier job had too.
fn copy_new(err: File, said: &mut BTreeSet<Vec<u8>>) -> std::io::Result<()> {
    let (mut from, mut to) = (BufReader::new(err), std::io::stderr().lock());
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        let is_repeated = line.starts_with(b"trimtab: ") && !said.insert(line.clone());
        if !is_repeated {
            to.write_all(&line)?;
        }
        line.clear();
    }
    Ok(())
}

fn bar(args: &EachArgs, jobs: usize) -> ProgressBar {
    if args.quiet || args.live { ProgressBar::hidden() } else { progress::bar(jobs) }
}

/// The work of one call.
struct Work<'a> {
    args: &'a EachArgs,
    log: Option<JobLog>,
    volume: Volume,
    bar: ProgressBar,
    /// Ended jobs whose output waits for that of earlier ones, by their place among the jobs.
    kept: BTreeMap<usize, [Option<File>; 2]>,
    /// Place of the job with the output that is printed next, with `--in-order`.
    next: usize,
    failed: Vec<EndedJob>,
    /// The messages of trimtab that were printed.
    said: BTreeSet<Vec<u8>>,
}

impl Work<'_> {
    /// Runs all jobs; returns the exit status.
    fn all(mut self, starter: &Starter, jobs: Vec<Job>, at_once: usize) -> Result<u8> {
        let places: BTreeMap<usize, usize> =
            jobs.iter().enumerate().map(|(at, job)| (job.number, at)).collect();
        let total = jobs.len();
        let mut waiting = jobs.into_iter();
        let mut pool = Pool::new(starter)?;
        let mut ended = 0;
        loop {
            let stopping = pool.stopped().is_some() || self.args.fail_fast && !self.failed.is_empty();
            while !stopping && pool.len() < at_once {
                let Some(job) = waiting.next() else { break };
                pool.start(job)?;
            }
            if pool.len() == 0 {
                break;
            }
            self.bar.set_message(format!("{} running, {} failed", pool.len(), self.failed.len()));
            if let Some(job) = pool.next(REDRAW_INTERVAL)? {
                ended += 1;
                self.finish(job, &places)?;
            } else {
                self.bar.tick();
            }
        }
        for output in std::mem::take(&mut self.kept).into_values() {
            self.print(output)?;
        }
        self.bar.finish_and_clear();
        self.summary(ended, total);
        let stopped = pool.stopped();
        Ok(match stopped {
            Some(signal) => exit::by_signal(signal),
            None if self.failed.is_empty() => exit::DONE,
            None => exit::NO,
        })
    }

    /// Records a job that has ended, and prints what can be printed.
    fn finish(&mut self, job: FinishedJob, places: &BTreeMap<usize, usize>) -> Result<()> {
        let FinishedJob { ended, output } = job;
        if let Some(log) = &mut self.log {
            log.add(&ended)?;
        }
        let place = places.get(&ended.job).copied().unwrap_or_default();
        if !ended.succeeded() {
            self.failed.push(ended);
        }
        if self.args.in_order {
            self.kept.insert(place, output);
            while let Some(output) = self.kept.remove(&self.next) {
                self.print(output)?;
                self.next += 1;
            }
        } else {
            self.print(output)?;
        }
        self.bar.inc(1);
        Ok(())
    }

    /// Prints the output of a job.
    fn print(&mut self, [out, err]: [Option<File>; 2]) -> Result<()> {
        let said = &mut self.said;
        self.bar.suspend(|| {
            if let Some(mut err) = err {
                err.rewind()?;
                copy_new(err, said)?;
            }
            if let Some(mut out) = out {
                out.rewind()?;
                std::io::copy(&mut out, &mut std::io::stdout())?;
            }
            std::io::stdout().flush()
        })?;
        Ok(())
    }

    /// Says how many jobs ended, and which failed.
    fn summary(&self, ended: usize, total: usize) {
        let failed = self.failed.len();
        for job in self.failed.iter().take(FAILED_NAMED_MAX) {
            let how = match (job.status, job.signal) {
                (Some(status), _) => format!("ended with status {status}"),
                (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
            };
            diagnostics::warning(self.volume, &format!("job {} ({}) {how}", job.job, job.value));
        }
        if failed > FAILED_NAMED_MAX {
            diagnostics::warning(
                self.volume,
                &format!("{} more failed", plural(failed - FAILED_NAMED_MAX, "job")),
            );
        }
        let left = total - ended;
        if failed > 0 || left > 0 {
            let rest = if left > 0 { format!(", {left} not run") } else { String::new() };
            diagnostics::notice(
                self.volume,
                &format!("{ended} of {total} jobs ended, {failed} failed{rest}"),
            );
        }
    }
}
