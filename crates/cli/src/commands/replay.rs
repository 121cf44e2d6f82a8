//! `trimtab replay`: a recorded run fed to a policy once more.

use crate::args::ReplayArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::recorder::Recorder;
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use trimtab_core::balance::{Decision, Finding, policy};
use trimtab_core::drive::Go;
use trimtab_core::replay::{Compared, Replayed, replay};
use trimtab_core::trace::{Header, StepRecord, Trace};
use trimtab_core::words::plural;

/// Runs the command.
///
/// # Errors
/// The trace cannot be read, or something cannot be written.
pub fn run(args: &ReplayArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let trace = read(&args.trace).map_err(failed)?;
    if trace.cut {
        crate::say::warning(
            crate::say::Volume::Normal,
            &format!("{}: the last line is cut off and left out", args.trace.display()),
        );
    }
    let header = Header {
        policy: args.policy.unwrap_or(trace.header.policy),
        settings: args.settings.over(trace.header.settings.clone()),
        ..trace.header.clone()
    };
    if let Some(to) = &args.to {
        crate::traces::keeps(&args.trace, to).map_err(failed)?;
    }
    let mut to = args.to.as_deref().map(Recorder::open).transpose().map_err(failed)?;
    let mut record = |write: &mut dyn FnMut(&mut Recorder) -> Result<(), String>| match &mut to {
        Some(to) => write(to).map_err(|why| anyhow!("{why}")),
        None => Ok(()),
    };
    record(&mut |to| to.begin(header.clone())).map_err(failed)?;
    let mut policy = policy(header.policy, &trace.header.machine, &header.settings);
    let (mut text, mut trouble) = (String::new(), Ok(()));
    let replayed = replay(&trace, &mut *policy, &mut |compared, again: &StepRecord| {
        if args.json {
            text.push_str(&line("step", compared));
        } else {
            show(compared, &mut text);
        }
        trouble = record(&mut |to| to.again(again));
        if trouble.is_ok() { Go::On } else { Go::Stop }
    });
    trouble.map_err(failed)?;
    let why = format!("a replay of {}", args.trace.display());
    record(&mut |to| to.end(&why, None)).map_err(failed)?;
    if args.json {
        text.push_str(&line("summary", &replayed));
    } else {
        summary(&trace, &header, &replayed, &mut text);
    }
    print(&text).map_err(|error| failed(error.into()))?;
    Ok(if args.check && !replayed.same() { exit::NO } else { exit::DONE })
}

/// Reads a trace.
fn read(path: &Path) -> Result<Trace, anyhow::Error> {
    let name = path.display();
    if path.is_dir() {
        return Err(anyhow!("{name} is a folder, and a trace is a file"));
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    // A cut may go through a character; anything else that is no text is no trace.
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err(anyhow!("{name}: this is no trimtab trace: it is no text")),
    };
    Trace::parse(text).map_err(|error| anyhow!("{name}: {error}"))
}

fn line<T: Serialize>(kind: &str, value: &T) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    serde_json::json!({ kind: value }).to_string() + "\n"
}

/// A step in which the two differ, for people: `-` then and not now, `+` now and not then.
fn show(step: &Compared, out: &mut String) {
    if step.agrees() && step.found_then == step.found_now {
        return;
    }
    let _ = writeln!(out, "step {} at {:.3} s", step.step, step.at.since(Default::default()).seconds());
    let both = step.both.len();
    if both > 0 {
        let _ = writeln!(out, "  = {} both times", plural(both, "decision"));
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
        "steps with the same decisions: {agreeing}; decisions both times: {both}, only then: {only_recorded}, only now: {only_replayed}"
    );
    let _ = match first_difference {
        None if *steps == 0 => writeln!(out, "nothing to compare: the trace has no look in it"),
        None => writeln!(out, "every turn is equal"),
        Some(step) => writeln!(
            out,
            "the first turn that differs is that of step {step}; the recorded world does not react to what is decided now"
        ),
    };
}
