//! `trimtab replay`: feeds a recorded run to a policy again.

use anyhow::anyhow;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _, stdout};
use trimtab_agent::recorder::Recorder;
use trimtab_cli::args::ReplayArgs;
use trimtab_cli::traces;
use trimtab_core::balance::{Decision, Finding, policy};
use trimtab_core::drive::Go;
use trimtab_core::replay::{Compared, Replayed, replay};
use trimtab_core::trace::{Header, StepRecord, Trace};
use trimtab_core::words::plural;
use trimtab_front::exit::{self, Exit};

/// Runs the command.
///
/// # Errors
/// The trace cannot be read, or an output cannot be written.
pub fn run(args: &ReplayArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let trace = traces::read(&args.trace).map_err(failed)?;
    let name = traces::name(&args.trace);
    if trace.cut {
        trimtab_front::diagnostics::warning(
            trimtab_front::diagnostics::Volume::Normal,
            &format!("{name}: the last line is incomplete and ignored"),
        );
    }
    let header = Header {
        policy: args.policy.unwrap_or(trace.header.policy),
        settings: args.settings.over(trace.header.settings.clone()),
        ..trace.header.clone()
    };
    if let Some(why) = args.settings.unfit(header.policy) {
        return Err(failed(anyhow!("{why}")));
    }
    if let Some(to) = &args.to {
        traces::keeps(&args.trace, to).map_err(failed)?;
    }
    let mut to = args.to.as_deref().map(|to| Recorder::open("--to", to)).transpose().map_err(failed)?;
    let mut record = |write: &mut dyn FnMut(&mut Recorder) -> Result<(), String>| match &mut to {
        Some(to) => write(to).map_err(|why| anyhow!("{why}")),
        None => Ok(()),
    };
    record(&mut |to| to.begin(header.clone())).map_err(failed)?;
    let mut policy = policy(header.policy, &trace.header.machine, &header.settings);
    let (mut out, mut trouble) = (BufWriter::new(stdout().lock()), Ok(()));
    let replayed = replay(&trace, &mut *policy, &mut |compared, again: &StepRecord| {
        let mut text = String::new();
        if args.json {
            text = line("step", compared);
        } else {
            show(compared, &mut text);
        }
        // Printed step by step: a long trace makes more text than memory holds.
        trouble = out
            .write_all(text.as_bytes())
            .map_err(Into::into)
            .and_then(|()| record(&mut |to| to.again(again)));
        if trouble.is_ok() { Go::On } else { Go::Stop }
    });
    trouble.map_err(failed)?;
    let why = format!("a replay of {name}");
    record(&mut |to| to.end(&why, None)).map_err(failed)?;
    let mut text = String::new();
    if args.json {
        text = line("summary", &replayed);
    } else {
        summary(&trace, &header, &replayed, &mut text);
    }
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| failed(error.into()))?;
    Ok(if args.check && !replayed.same() { exit::NO } else { exit::DONE })
}

fn line<T: Serialize>(kind: &str, value: &T) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    serde_json::json!({ kind: value }).to_string() + "\n"
}

/// Formats a step in which the two differ: `-` marks a recorded decision that is missing now, `+` a
/// new one.
fn show(step: &Compared, out: &mut String) {
    if step.agrees() && step.found_then == step.found_now {
        return;
    }
    let _ = writeln!(out, "step {} at {:.3} s", step.step, step.at.since(Default::default()).seconds());
    let both = step.both.len();
    if both > 0 {
        let _ = writeln!(out, "  = {} in both", plural(both, "decision"));
    }
    for decision in &step.recorded {
        let _ = writeln!(out, "  - {}", decided(decision));
    }
    for decision in &step.replayed {
        let _ = writeln!(out, "  + {}", decided(decision));
    }
    if step.found_then != step.found_now {
        let found = |mark: char, findings: &[Finding], out: &mut String| {
            for finding in findings {
                let _ = writeln!(out, "  {mark} found: {finding}");
            }
        };
        found('-', &step.found_then, out);
        found('+', &step.found_now, out);
    }
}

fn decided(decision: &Decision) -> String {
    format!("thread {} {}: {}", decision.thread, decision.act, decision.reason)
}

fn summary(trace: &Trace, header: &Header, replayed: &Replayed, out: &mut String) {
    let Replayed { steps, agreeing, both, only_recorded, only_replayed, first_difference } = replayed;
    let then = trace.header.policy;
    let _ = writeln!(
        out,
        "{}: {then} then, {} now, {}",
        trace.header.command,
        header.policy,
        plural(*steps, "step")
    );
    let _ = writeln!(
        out,
        "steps with the same decisions: {agreeing}; decisions in both: {both}, only recorded: {only_recorded}, only replayed: {only_replayed}"
    );
    let _ = match first_difference {
        None if *steps == 0 => writeln!(out, "nothing to compare: the trace contains no sample"),
        None => writeln!(out, "every turn is equal"),
        Some(step) => writeln!(
            out,
            "the first difference is in step {step}; the recorded machine does not react to the decisions of the replay"
        ),
    };
}
