//! One part of a field measurement: a benchmark of this program in a process of its own, which
//! writes its record to a pipe, and is stopped when its time is over.
//!
//! Problem: the time of a round depends on the machine, so no number of rounds fits all. Idea: the
//! benchmark gets more rounds than it can make, and SIGTERM at the end of its time; it then writes
//! the results of the rounds so far, as after Ctrl-C.

use super::cleaning::Cleaner;
use super::record::{FieldPartRecord, PartEnd};
use crate::args::FieldPart;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use trimtab_agent::spawn::spawn;
use trimtab_front::interrupt::Interrupt;

/// Time that a benchmark may take to show its results after it was stopped: it ends its program,
/// and computes intervals.
const END_TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two looks at the clock.
const POLL: Duration = Duration::from_millis(100);
/// Longest standard error that is read, in bytes.
const STDERR_BYTES_MAX: u64 = 1 << 20;
/// Most messages of a part that are kept.
const MESSAGES_MAX: usize = 8;

/// Needs of every part.
pub(super) struct Measurement<'a> {
    /// The program `trimtab-lab`.
    pub(super) program: &'a Path,
    pub(super) programs: Option<&'a Path>,
    pub(super) cleaner: &'a Cleaner,
    pub(super) interrupt: &'a Interrupt,
}

/// Status with which a benchmark ends after SIGTERM, when its results are written.
const TERMINATED: i32 = 128 + Signal::TERM.as_raw();

/// A process with a group of its own, which is killed on drop: programs of the benchmark must not
/// run beside those of the next one.
struct RunningPart(Child);

impl RunningPart {
    /// Returns whether the process has ended. It is not collected, so that its number, and that of
    /// its group, are still its own.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(Pid::from_child(&self.0)), options), Ok(Some(_)))
    }

    /// Waits for the end, kills the group, and returns the status.
    fn end(&mut self, time: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < time && !self.has_ended() {
            std::thread::sleep(POLL / 10);
        }
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait().context("the benchmark's end is unknown")
    }
}

impl Drop for RunningPart {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.end(Duration::ZERO);
        }
    }
}

impl Measurement<'_> {
    /// Measures a part for at most this time. `tell` is called a few times a second with the number
    /// of runs so far.
    pub(super) fn run(
        &self,
        part: FieldPart,
        time: Duration,
        tell: &mut dyn FnMut(usize),
    ) -> FieldPartRecord {
        let began = Instant::now();
        let mut lines = Vec::new();
        let ended = self.benchmark(part, time, &mut lines, tell);
        // Cleaned with the lines.
        let mut why = refusals(&lines);
        let end = match ended {
            Ok(Ended { status, stopped, said }) => {
                let end = end_of(self.interrupt.came().is_some(), stopped, status);
                let messages = said.lines().map(|line| line.trim().trim_start_matches("trimtab: "));
                let messages = messages.filter(|line| !line.is_empty());
                why.extend(messages.take(MESSAGES_MAX).map(|line| self.cleaner.text(line)));
                if end == PartEnd::Failed {
                    why.push(failure(stopped, status));
                }
                end
            }
            Err(error) => {
                why.push(self.cleaner.text(&format!("{error:#}")));
                PartEnd::Failed
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        FieldPartRecord { part: part.word().to_owned(), end, why, seconds, lines }
    }

    fn benchmark(
        &self,
        part: FieldPart,
        time: Duration,
        lines: &mut Vec<Value>,
        tell: &mut dyn FnMut(usize),
    ) -> Result<Ended> {
        let mut command = Command::new(self.program);
        command.args(part.arguments(time, self.programs));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut running = RunningPart(command.spawn().context("the benchmark cannot be started")?);
        let stdout = running.0.stdout.take().context("the benchmark has no standard output")?;
        let stderr = running.0.stderr.take().context("the benchmark has no standard error")?;
        let (to, from) = channel();
        spawn("record", move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        })?;
        let (to_said, said) = channel();
        spawn("messages", move || {
            let mut text = Vec::new();
            let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut text);
            let _ = to_said.send(String::from_utf8_lossy(&text).into_owned());
        })?;
        self.interrupt.runs(&running.0);
        let stopped = self.collect(&running, &from, time, lines, tell);
        self.interrupt.ended();
        let status = running.end(END_TIME_MAX)?;
        let said = said.recv_timeout(POLL * 10).unwrap_or_default();
        Ok(Ended { status, stopped, said })
    }

    /// Takes the lines of the record until the benchmark ends. Returns whether it was stopped
    /// because its time was over.
    fn collect(
        &self,
        running: &RunningPart,
        from: &Receiver<String>,
        time: Duration,
        lines: &mut Vec<Value>,
        tell: &mut dyn FnMut(usize),
    ) -> bool {
        let began = Instant::now();
        let (mut runs, mut stopped) = (0, None);
        loop {
            match from.recv_timeout(POLL) {
                Ok(line) => {
                    let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                    runs += usize::from(line["record"] == "run");
                    lines.extend(self.cleaner.line(&line));
                }
                // Another process may hold its output open. All it wrote itself has been read.
                Err(RecvTimeoutError::Timeout) if running.has_ended() => return stopped.is_some(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return stopped.is_some(),
            }
            tell(runs);
            let over = began.elapsed() >= time || self.interrupt.came().is_some();
            if over && stopped.is_none() {
                stopped = Some(Instant::now());
                signal(&running.0, Signal::TERM);
            }
            if stopped.is_some_and(|stopped: Instant| stopped.elapsed() > END_TIME_MAX) {
                // Its output then ends, and the rest of it is read.
                let _ = kill_process_group(Pid::from_child(&running.0), Signal::KILL);
            }
        }
    }
}

/// End of a benchmark.
struct Ended {
    status: ExitStatus,
    /// Whether it was stopped because its time was over, or by a signal.
    stopped: bool,
    /// Its standard error.
    said: String,
}

fn signal(child: &Child, signal: Signal) {
    // The child was not waited for yet, so that its number is still its own.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Returns how a part ended. `stopped`: because its time was over; `interrupted`: by the user.
fn end_of(interrupted: bool, stopped: bool, status: ExitStatus) -> PartEnd {
    let terminated = status.code() == Some(TERMINATED) || status.signal() == Some(Signal::TERM.as_raw());
    match (interrupted, stopped) {
        (true, _) => PartEnd::Stopped,
        (false, true) if terminated || status.success() => PartEnd::TimeOver,
        (false, false) if status.success() => PartEnd::Done,
        (false, _) => PartEnd::Failed,
    }
}

/// Returns the reason of a failure that the status tells.
fn failure(stopped: bool, status: ExitStatus) -> String {
    if stopped && status.signal() == Some(Signal::KILL.as_raw()) {
        let seconds = END_TIME_MAX.as_secs();
        return format!("it was killed: it did not end within {seconds} s after its time was over");
    }
    format!("the benchmark failed ({status})")
}

/// Returns what the benchmark left out, and why.
fn refusals(lines: &[Value]) -> Vec<String> {
    let start = lines.iter().filter(|line| line["record"] == "start");
    let said = start.filter_map(|line| line["left_out"].as_array()).flatten();
    said.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Measures a part by a script that stands in for the laboratory.
    fn measured(script: &str, time: Duration) -> (FieldPartRecord, usize) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("lab");
        std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let cleaner = Cleaner::new(&["alice".to_owned()], &[]).unwrap();
        let interrupt = Interrupt::listen().unwrap();
        let measurement =
            Measurement { program: &program, programs: None, cleaner: &cleaner, interrupt: &interrupt };
        let mut runs = 0;
        let record = measurement.run(FieldPart::Nodes, time, &mut |so_far| runs = so_far);
        (record, runs)
    }

    #[test]
    fn a_benchmark_is_stopped_when_its_time_is_over_and_its_results_are_kept() {
        // It runs for ever, and shows its results when it is interrupted.
        let script = r#"
trap 'echo "{\"record\":\"result\",\"case\":\"a\"}"; exit 143' TERM
echo '{"record":"start","left_out":["two nodes"],"programs":"/home/alice"}'
while :; do echo '{"record":"run","case":"a","value":1}'; sleep 0.05; done
"#;
        let (record, runs) = measured(script, Duration::from_millis(400));
        assert_eq!((record.end, record.why.as_slice()), (PartEnd::TimeOver, &["two nodes".to_owned()][..]));
        assert_eq!(record.of_kind("result").count(), 1, "{record:?}");
        assert!(runs > 0 && record.of_kind("run").count() >= runs);
    }

    #[test]
    fn a_benchmark_that_fails_says_why_without_names() {
        let script = "echo 'trimtab: no program in /home/alice/bin of alice' >&2; exit 2";
        let (record, runs) = measured(script, Duration::from_secs(600));
        assert_eq!((record.end, runs), (PartEnd::Failed, 0));
        assert_eq!(record.why, ["no program in [path] of [name]", "the benchmark failed (exit status: 2)"]);
    }

    #[test]
    fn a_benchmark_that_ends_is_done_and_a_line_that_is_no_json_is_left_out() {
        let script =
            r#"echo half; echo '{"record":"run","case":"a"}'; echo '{"record":"end","complete":true}'"#;
        let (record, _) = measured(script, Duration::from_secs(600));
        assert_eq!((record.end, record.lines.len()), (PartEnd::Done, 2));
    }

    #[test]
    fn a_benchmark_that_fails_or_is_killed_when_its_time_is_over_has_failed() {
        let script = "trap 'exit 2' TERM; while :; do sleep 0.05; done";
        let (record, _) = measured(script, Duration::from_millis(200));
        assert_eq!(record.end, PartEnd::Failed);
        assert_eq!(record.why, ["the benchmark failed (exit status: 2)"]);
        let (stopped, by_signal) = (true, |signal: Signal| ExitStatus::from_raw(signal.as_raw()));
        assert_eq!(end_of(false, stopped, by_signal(Signal::KILL)), PartEnd::Failed);
        assert!(failure(stopped, by_signal(Signal::KILL)).contains("killed"));
        assert_eq!(end_of(false, stopped, by_signal(Signal::TERM)), PartEnd::TimeOver);
        assert_eq!(end_of(false, !stopped, by_signal(Signal::TERM)), PartEnd::Failed);
        assert_eq!(end_of(true, stopped, by_signal(Signal::KILL)), PartEnd::Stopped);
    }

    #[test]
    fn programs_of_a_benchmark_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        // The program keeps the output open.
        let script = format!("sleep 1000 & echo $! >{}; echo '{{\"record\":\"run\"}}'", file.display());
        let (record, _) = measured(&script, Duration::from_secs(600));
        assert_eq!((record.end, record.lines.len()), (PartEnd::Done, 1));
        let pid = std::fs::read_to_string(&file).unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
        };
        for _ in 0..1_000 {
            if gone() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it runs on");
    }
}
