//! One run of `bench nodes`: the programs of a case side by side, with a balancer beside them if
//! the variant has one.

use super::super::harness::talk::Talk;
use super::matrix::{NodesCase, NodesKind, NodesWay};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trimtab_front::interrupt::Interrupt;

/// Bytes that one access of the program reads: a line of memory.
const LINE_BYTES: f64 = 64.0;
/// A terminal's Ctrl-C reaches the programs and trimtab together; trimtab has certainly noticed it
/// after this time.
const INTERRUPT_DELAY_MAX: Duration = Duration::from_millis(200);
/// Time for a balancer to find the threads of the programs, which sleep meanwhile.
const ATTACH_TIME: Duration = Duration::from_millis(300);
/// A balancer ends when its programs have ended; after this time it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Result of a run.
#[derive(Debug)]
pub(super) enum PlacedRun {
    Well(f64),
    /// The error in one line, and a program's standard error.
    Badly {
        error: String,
        stderr: String,
    },
    /// A signal to stop arrived.
    Stopped,
}

/// Runs a case in a variant, and returns its value.
pub(super) fn run(
    case: &NodesCase,
    way: NodesWay,
    folder: &Path,
    trimtab: &Path,
    interrupt: &Interrupt,
) -> PlacedRun {
    let mut talks = Vec::new();
    let measured = measure(case, way, folder, trimtab, &mut talks, interrupt);
    let stopped = || interrupt.came().is_some() || interrupt.comes_within(INTERRUPT_DELAY_MAX);
    let outcome = match measured {
        Ok(value) => PlacedRun::Well(value),
        Err(_) if stopped() => PlacedRun::Stopped,
        Err(error) => {
            let said: Vec<String> = talks.iter_mut().map(Talk::stop).collect();
            PlacedRun::Badly { error: format!("{error:#}"), stderr: said.concat() }
        }
    };
    interrupt.ended();
    outcome
}

fn measure(
    case: &NodesCase,
    way: NodesWay,
    folder: &Path,
    trimtab: &Path,
    talks: &mut Vec<Talk>,
    interrupt: &Interrupt,
) -> Result<f64> {
    for program in &case.programs {
        talks.push(Talk::start(&program.command(folder, case.seconds))?);
    }
    // A signal ends the first program, and with it the run; the others are killed when dropped.
    if let Some(first) = talks.first() {
        interrupt.runs(first.child());
    }
    for talk in talks.iter_mut() {
        talk.threads()?;
    }
    let balancer = way.options().map(|options| Balancer::start(trimtab, options, talks)).transpose()?;
    for talk in talks.iter_mut() {
        talk.open()?;
    }
    let mut reports = Vec::new();
    for talk in talks.iter_mut() {
        reports.push(talk.report()?);
    }
    if let Some(balancer) = balancer {
        balancer.was_there()?;
    }
    for talk in talks.drain(..) {
        talk.end()?;
    }
    value(case.kind, &reports).context("a report lacks steps or seconds")
}

/// Returns the value of a case from the reports of its programs, which ran at the same time.
fn value(kind: NodesKind, reports: &[Value]) -> Option<f64> {
    let rate = |report: &Value| {
        let seconds = report["seconds"].as_f64().filter(|seconds| *seconds > 0.0)?;
        Some(report["steps"].as_f64()? / seconds)
    };
    let rate: f64 = reports.iter().map(rate).sum::<Option<f64>>()?;
    match kind {
        // CPU time, so that other programs do not count.
        NodesKind::Latency => reports.first()?["turn_cpu_ns"].as_f64(),
        NodesKind::Bandwidth => Some(rate * LINE_BYTES / 1e9),
        NodesKind::Placed => Some(rate / 1e6),
    }
}

/// A balancer of running programs. It is killed on drop, and its guardian gives the masks back.
struct Balancer {
    child: Child,
}

impl Balancer {
    fn start(trimtab: &Path, options: &[&str], talks: &[Talk]) -> Result<Self> {
        let mut command = Command::new(trimtab);
        command.arg("attach").args(options).args(talks.iter().map(|talk| talk.pid().to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {}", trimtab.display()))?;
        std::thread::sleep(ATTACH_TIME);
        Ok(Self { child })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended before its programs.
    fn was_there(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            // Without its message, which may name processes: records are sent to strangers.
            bail!("trimtab attach ended early ({status})");
        }
        let Ok(pid) = i32::try_from(self.child.id()) else { return Ok(()) };
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begin = Instant::now();
        while begin.elapsed() < END_TIME_MAX && self.child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_rates_of_all_programs_together() {
        let reports = [
            json!({"steps": 2_000_000, "seconds": 2.0, "turn_cpu_ns": 80.0}),
            json!({"steps": 9_000_000, "seconds": 3.0, "turn_cpu_ns": 90.0}),
        ];
        assert_eq!(value(NodesKind::Latency, &reports[..1]), Some(80.0));
        assert_eq!(value(NodesKind::Placed, &reports), Some(4.0));
        assert_eq!(value(NodesKind::Bandwidth, &reports), Some(4e6 * 64.0 / 1e9));
        for broken in [json!({}), json!({"steps": 1, "seconds": 0.0}), json!({"steps": null, "seconds": 1.0})]
        {
            assert_eq!(value(NodesKind::Placed, &[reports[0].clone(), broken]), None);
        }
    }
}
