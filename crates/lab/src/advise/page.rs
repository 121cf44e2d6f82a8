//! Text form of advice: the measured times first, then the command to use, then the reasons, and
//! the rules.

use super::AdviceReport;
use super::compare::{Tested, Variant};
use std::fmt::Write as _;
use trimtab_core::advise::choice::Choice;
use trimtab_core::advise::entrant::Kind;
use trimtab_core::advise::{Advice, Conclusion};
use trimtab_core::words::plural;

/// Formats the advice as text.
pub(super) fn words(document: &AdviceReport<'_>, notes: &[String]) -> String {
    document.warn();
    let mut out = String::new();
    headline(&mut out, document);
    match &document.tested {
        Some(tested) => {
            measured(&mut out, tested);
            conclusion(&mut out, document, tested);
            tried(&mut out, tested);
        }
        None => predicted(&mut out, document),
    }
    rules(&mut out, document);
    let unseen: Vec<&String> = document.profile.unseen.iter().chain(notes).collect();
    if !unseen.is_empty() {
        let _ = writeln!(out, "\nMissing data:");
        for one in unseen {
            let _ = writeln!(out, "  {one}");
        }
    }
    if document.tested.is_none() {
        let _ = writeln!(out);
        match &document.run {
            Some(run) => {
                let _ = writeln!(out, "Use (predicted, not tested):\n  {run}");
            }
            None => {
                let _ = writeln!(out, "No recommendation: no change is certain to gain at least 2 %.");
            }
        }
        for caution in document.cautions.iter().filter(|_| document.run.is_some()) {
            let _ = writeln!(out, "  ({caution})");
        }
    }
    if let Some(tune) = &document.tune {
        let _ = writeln!(out, "Measure more settings with:\n  {tune}");
    }
    out
}

/// Prints how the first run went.
fn headline(out: &mut String, document: &AdviceReport<'_>) {
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
        Some(others) if others >= 0.25 => write!(out, ", of which other programs used {others:.1}."),
        Some(_) => write!(out, ", without load from other programs."),
        None => write!(out, "; the load of other programs is unknown."),
    };
    if let Some(threads) = document.ended_early {
        let _ = write!(
            out,
            "\nThe first run was ended: for a second {} competed for {} and hardly ever slept.",
            plural(u64::from(threads), "thread"),
            plural(u64::from(document.cpus), "CPU"),
        );
    }
    if let Some(threads) = document.outrun {
        let _ = write!(
            out,
            "\nThe first run was ended: {} wanted {} for some seconds, and another way took less time.",
            plural(u64::from(threads), "thread"),
            plural(u64::from(document.cpus), "CPU"),
        );
    }
    for library in document.libraries {
        let _ = write!(out, "\n{}.", library.words());
    }
    out.push('\n');
}

/// Formats seconds with three digits or a millisecond.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds >= 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.3} s") }
}

/// Formats the time of a variant.
fn time(variant: &Variant) -> String {
    let runs = variant.entrant.seconds.len();
    match (&variant.entrant.rejected, variant.time, variant.entrant.stopped) {
        (Some(_), ..) => "failed".to_owned(),
        (None, _, Some(stopped)) if runs == 0 => format!("more than {}", seconds(stopped)),
        (None, Some(time), _) => format!("{} ({})", seconds(time.median), plural(runs as u64, "run")),
        (None, None, _) => "not tried".to_owned(),
    }
}

/// Prints a row of the table of times.
fn row(out: &mut String, name: &str, variant: &Variant) {
    let _ = write!(out, "  {name:<14} {:<20}", time(variant));
    if let Some(faster) = variant.faster {
        let _ = write!(out, "  {faster}");
    }
    if let Some(why) = &variant.entrant.rejected {
        let _ = write!(out, "  {why}");
    }
    let end = out.trim_end().len();
    out.truncate(end);
    if variant.entrant.kind == Kind::Candidate {
        let _ = write!(out, "\n    {}", variant.way);
    }
    out.push('\n');
}

/// Returns the best candidate: the chosen one, or that with the lowest median.
fn best(tested: &Tested) -> Option<usize> {
    if let Choice::Use { entrant } | Choice::Unsure { entrant } = tested.choice
        && entrant >= 2
    {
        return Some(entrant);
    }
    let candidates = tested.variants.iter().enumerate().skip(2);
    let measured = candidates.filter_map(|(at, variant)| Some((at, variant.entrant.median()?)));
    measured.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(at, _)| at)
}

/// Prints the times: the program as it is, `trimtab run`, and the best candidate.
fn measured(out: &mut String, tested: &Tested) {
    let _ = writeln!(out, "\nMeasured, compared with the program as you start it now:");
    for (variant, name) in tested.variants.iter().zip(["now", "trimtab run"]) {
        row(out, name, variant);
    }
    if let Some(at) = best(tested) {
        row(out, "best candidate", &tested.variants[at]);
    }
}

/// Prints the command to use.
fn conclusion(out: &mut String, document: &AdviceReport<'_>, tested: &Tested) {
    let _ = writeln!(out);
    let variant = |at: usize| &tested.variants[at];
    let _ = match tested.choice {
        Choice::Use { entrant } => {
            let faster = variant(entrant).faster.map(|faster| faster.to_string()).unwrap_or_default();
            writeln!(out, "Use: {faster}\n  {}", variant(entrant).command)
        }
        Choice::Keep => writeln!(out, "No change: nothing that was tried is clearly faster."),
        Choice::Unsure { entrant } => writeln!(
            out,
            "No recommendation: the fastest way that was tried is not certain to gain 2 %. More time may decide it: --budget {:.0}s\n  fastest so far: {}",
            (4.0 * tested.budget.seconds()).ceil(),
            variant(entrant).command
        ),
        Choice::Unknown if variant(0).entrant.rejected.is_some() => {
            writeln!(out, "No recommendation: the program failed as you start it now.")
        }
        Choice::Unknown => writeln!(
            out,
            "No recommendation: no run ended within {:.0} s. Give the trials more time (--budget), or let the first run go on (--complete).",
            tested.budget.seconds()
        ),
    };
    for caution in document.cautions {
        let _ = writeln!(out, "  ({caution})");
    }
}

/// Prints the candidates with their reasons, predictions and times.
fn tried(out: &mut String, tested: &Tested) {
    let candidates = tested.variants.get(2..).unwrap_or_default();
    let _ = match candidates {
        [] => writeln!(out, "\nNo other way was tried: the profile suggests none."),
        _ => writeln!(out, "\nTried, in {:.1} s:", tested.spent.seconds()),
    };
    for variant in candidates {
        let _ = writeln!(out, "  {}", variant.way);
        let _ = writeln!(out, "    reason: {}", variant.why);
        let _ = write!(out, "    measured: {}", time(variant));
        if let Some(faster) = variant.faster {
            let _ = write!(out, ", {faster}");
        }
        if let Some(why) = &variant.entrant.rejected {
            let _ = write!(out, ": {why}");
        }
        if let Some(gain) = variant.predicted {
            let _ = write!(out, "; predicted: {gain}");
            if let Some(faster) = variant.faster.filter(|faster| faster.high.is_some()) {
                let _ = write!(out, ", true: {:.2}", 1.0 / faster.likely);
            }
        }
        out.push('\n');
    }
}

/// Prints predictions, if nothing was tested.
fn predicted(out: &mut String, document: &AdviceReport<'_>) {
    for advice in document.advice.iter().filter(|advice| advice.verdict == Conclusion::Change) {
        let _ = writeln!(out, "\nPredicted: {}: {}", advice.setting, advice.words);
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
}

/// Prints the opinions of the rules.
fn rules(out: &mut String, document: &AdviceReport<'_>) {
    let tested = document.tested.is_some();
    let shown = document.advice.iter().filter(|advice| tested || advice.verdict != Conclusion::Change);
    let _ = writeln!(out, "\nOpinions of the rules, from the profile alone:");
    for advice in shown {
        opinion(out, advice);
    }
}

fn opinion(out: &mut String, advice: &Advice) {
    let mark = if advice.verdict == Conclusion::Unsure { " (uncertain)" } else { "" };
    let _ = writeln!(out, "  {}{mark}: {}", advice.topic, advice.words);
    match advice.gain {
        Some(gain) if !advice.words.contains("times the run time") => {
            let _ = writeln!(out, "    best alternative considered: {gain}");
        }
        _ => {}
    }
}
