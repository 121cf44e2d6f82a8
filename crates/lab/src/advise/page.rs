//! Text form of advice: the changes with their reasons, then the reasons for everything that stays,
//! then the command.

use super::AdviceReport;
use std::fmt::Write as _;
use trimtab_core::advise::{Advice, Conclusion};
use trimtab_core::words::plural;

/// Formats the advice as text.
pub(super) fn words(document: &AdviceReport<'_>, notes: &[String]) -> String {
    document.warn();
    let mut out = String::new();
    let profile = document.profile;
    let _ = write!(
        out,
        "{} ran {:.2} s with {} on {}",
        profile.program,
        profile.wall.seconds(),
        plural(u64::from(profile.workers), "working thread"),
        plural(u64::from(document.cpus), "CPU"),
    );
    let _ = match document.others {
        Some(others) if others >= 0.25 => writeln!(out, ", of which other programs used {others:.1}."),
        Some(_) => writeln!(out, ", without load from other programs."),
        None => writeln!(out, "; the load of other programs is unknown."),
    };
    for advice in document.advice.iter().filter(|advice| advice.verdict == Conclusion::Change) {
        change(&mut out, advice);
    }
    let stays = document.advice.iter().filter(|advice| advice.verdict != Conclusion::Change);
    for (at, advice) in stays.enumerate() {
        if at == 0 {
            let _ = writeln!(out, "\nNo change:");
        }
        stay(&mut out, advice);
    }
    let unseen: Vec<&String> = profile.unseen.iter().chain(notes).collect();
    if !unseen.is_empty() {
        let _ = writeln!(out, "\nMissing data:");
        for one in unseen {
            let _ = writeln!(out, "  {one}");
        }
    }
    let _ = writeln!(out);
    match &document.run {
        Some(run) => {
            let _ = writeln!(out, "Use:\n  {run}");
        }
        None => {
            let _ = writeln!(out, "No recommendation: no change is certain to gain at least 2 %.");
        }
    }
    if document.changes() {
        for caution in document.cautions {
            let _ = writeln!(out, "  ({caution})");
        }
    }
    if let Some(tune) = &document.tune {
        let _ = writeln!(out, "Measure the undecided topics with:\n  {tune}");
    }
    out
}

fn change(out: &mut String, advice: &Advice) {
    let _ = writeln!(out, "\nChange {}: {}", advice.setting, advice.words);
    if let Some(gain) = advice.gain {
        let _ = writeln!(out, "  expected: {gain}");
    }
    if !advice.evidence.is_empty() {
        let _ = writeln!(out, "  evidence: {}", advice.evidence.join("; "));
    }
    if !advice.uncertainty.is_empty() {
        let _ = writeln!(out, "  assumption: {}", advice.uncertainty);
    }
    let _ = writeln!(out, "  rule: {}", advice.rule);
}

fn stay(out: &mut String, advice: &Advice) {
    let mark = if advice.verdict == Conclusion::Unsure { " (uncertain)" } else { "" };
    let _ = writeln!(out, "  {}{mark}: {}", advice.topic, advice.words);
    match advice.gain {
        Some(gain) if !advice.words.contains("times the run time") => {
            let _ = writeln!(out, "    best alternative considered: {gain}");
        }
        _ => {}
    }
}
