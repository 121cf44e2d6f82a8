//! Chrome trace events of a trace, for Perfetto and chrome://tracing.
//!
//! Unit: microseconds since the beginning of the trace. Tracks are threads; a slice is a stay on
//! one CPU, an instant a decision, a counter a speed. Unknown values make no event. Events are
//! written while the trace is read, so that memory does not grow with its size.
//!
//! Source: "Trace Event Format", the JSON array of objects with `ph`, `ts`, `pid`, `tid`.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use trimtab_core::balance::{Decision, Outcome, Settled};
use trimtab_core::ids::{OsCpu, ProgramId, ThreadId};
use trimtab_core::telemetry::account::{Account, Keep, Playback, ThreadAccount};
use trimtab_core::time::Moment;
use trimtab_core::topology::draw;
use trimtab_core::trace::Trace;

/// Writes the events.
///
/// # Errors
/// They cannot be written.
pub(super) fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let start = trace.steps.iter().map(|step| step.sample.at).min().unwrap_or_default();
    let mut events = Events { out, start, first: true, failed: Ok(()) };
    let head = json!({
        "command": trace.header.command, "policy": trace.header.policy.word(),
        "seed": trace.header.settings.seed, "machine": draw::summary(&trace.header.machine),
    });
    write!(events.out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{head},\"traceEvents\":[")?;
    let mut story = WriterState::default();
    let mut playback = Playback::new(&trace.header, Keep { history: 0, moves: 1 });
    for record in &trace.steps {
        playback.step(record, &mut |step, account| {
            story.step(account, &mut events);
            for (at, decision) in step.turn.decisions.iter().enumerate() {
                decided(account, decision, step.outcomes.get(at), &mut events);
            }
        });
        if events.failed.is_err() {
            break;
        }
    }
    for thread in playback.account().threads() {
        story.leave(thread, playback.account().at(), &mut events);
    }
    events.failed?;
    events.out.write_all(b"\n]}\n")
}

/// Output of events.
struct Events<'a> {
    out: &'a mut dyn Write,
    start: Moment,
    first: bool,
    failed: io::Result<()>,
}

impl Events<'_> {
    fn us(&self, moment: Moment) -> f64 {
        moment.since(self.start).0 as f64 / 1e3
    }

    fn add(&mut self, event: &Value) {
        if self.failed.is_ok() {
            let comma = if self.first { "" } else { "," };
            self.failed = write!(self.out, "{comma}\n{event}");
            self.first = false;
        }
    }
}

/// State of the writer: names already written, open slices, and the last counter values.
#[derive(Default)]
struct WriterState {
    named: BTreeSet<ThreadId>,
    processes: BTreeSet<u32>,
    stays: BTreeMap<ThreadId, (OsCpu, Moment)>,
    speeds: BTreeMap<ThreadId, i64>,
    programs: BTreeMap<ProgramId, [i64; 2]>,
}

impl WriterState {
    fn step(&mut self, account: &Account, events: &mut Events<'_>) {
        for thread in account.ended() {
            self.leave(thread, account.at(), events);
            self.speeds.remove(&thread.info.id);
        }
        for thread in account.threads() {
            self.name(account, thread, events);
            self.stay(thread, account.at(), events);
            self.speed(thread, account.at(), events);
        }
        for program in account.programs() {
            let Some(pid) = program.info.as_ref().map(|info| info.pid) else { continue };
            let (Some(speed), Some(slowest)) = (program.speed, program.slowest) else { continue };
            let now = [thousandths(speed), thousandths(slowest)];
            if self.programs.insert(program.id, now) != Some(now) {
                events.add(&json!({"ph": "C", "name": "speed", "pid": pid, "ts": events.us(account.at()),
                    "args": {"mean": speed, "slowest": slowest}}));
            }
        }
    }

    fn name(&mut self, account: &Account, thread: &ThreadAccount, events: &mut Events<'_>) {
        let info = &thread.info;
        if !self.named.insert(info.id) {
            return;
        }
        if self.processes.insert(info.pid) {
            let program = account.programs().find(|program| program.id == info.program);
            let name = program.map_or("", |program| program.name());
            events.add(&json!({"ph": "M", "name": "process_name", "pid": info.pid, "args": {"name": name}}));
        }
        events.add(&json!({"ph": "M", "name": "thread_name", "pid": info.pid, "tid": info.tid,
            "args": {"name": info.name}}));
        events.add(&json!({"ph": "M", "name": "thread_sort_index", "pid": info.pid, "tid": info.tid,
            "args": {"sort_index": info.id.0}}));
    }

    fn stay(&mut self, thread: &ThreadAccount, now: Moment, events: &mut Events<'_>) {
        let Some(cpu) = thread.cpu else { return };
        match self.stays.get(&thread.info.id) {
            Some((before, _)) if *before == cpu => {}
            _ => {
                self.leave(thread, now, events);
                self.stays.insert(thread.info.id, (cpu, now));
            }
        }
    }

    /// Ends a thread's slice on a CPU.
    fn leave(&mut self, thread: &ThreadAccount, now: Moment, events: &mut Events<'_>) {
        let Some((cpu, since)) = self.stays.remove(&thread.info.id) else { return };
        let span = now.since(since).0 as f64 / 1e3;
        events.add(&json!({"ph": "X", "name": format!("CPU {cpu}"), "cat": "stay", "pid": thread.info.pid,
            "tid": thread.info.tid, "ts": events.us(since), "dur": span, "args": {"cpu": cpu.0}}));
    }

    fn speed(&mut self, thread: &ThreadAccount, now: Moment, events: &mut Events<'_>) {
        let Some(speed) = thread.speed else { return };
        if self.speeds.insert(thread.info.id, thousandths(speed)) != Some(thousandths(speed)) {
            events.add(&json!({"ph": "C", "name": format!("speed of {}", thread.info.tid),
                "pid": thread.info.pid, "ts": events.us(now), "args": {"speed": speed}}));
        }
    }
}

fn decided(account: &Account, decision: &Decision, outcome: Option<&Outcome>, events: &mut Events<'_>) {
    let Some(thread) = account.thread(decision.thread) else { return };
    let end = outcome.map_or(Settled::Pending, |outcome| outcome.end);
    events.add(&json!({"ph": "i", "s": "t", "cat": "decision", "name": decision.act.to_string(),
        "pid": thread.info.pid, "tid": thread.info.tid, "ts": events.us(account.at()),
        "args": {"why": decision.reason.to_string(), "gain": decision.gain, "outcome": end}}));
}

fn thousandths(share: f64) -> i64 {
    (share * 1_000.0).round() as i64
}
