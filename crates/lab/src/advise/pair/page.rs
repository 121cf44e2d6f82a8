//! Text form of the advice on two programs: the measured times, and the command to use.

use super::{PairReport, TriedArrangement, short};
use crate::advise::page::seconds;
use std::fmt::Write as _;
use trimtab_core::advise::choice::Choice;
use trimtab_core::advise::pair::Arrangement;
use trimtab_core::words::plural;

/// Names an arrangement.
pub(super) fn name(arrangement: Arrangement) -> String {
    match arrangement {
        Arrangement::AtOnce => "both at once, as now".to_owned(),
        Arrangement::InTurn => "one after the other".to_owned(),
        Arrangement::Split { first, second } => {
            format!("{} and {}", plural(u64::from(first), "core"), plural(u64::from(second), "core"))
        }
        Arrangement::Shared => "both on all cores, by trimtab".to_owned(),
    }
}

/// Formats the advice as text.
pub(super) fn words(report: &PairReport) -> String {
    let mut out = String::new();
    let [one, other] = [0, 1].map(|place| short(&report.commands[place]));
    let _ = write!(out, "A is {one}, B is {other}, on {}.", plural(u64::from(report.cores), "core"));
    if let Some([first, second]) = report.alone {
        let _ = write!(out, " Alone under trimtab run A takes {}, B {}.", seconds(first), seconds(second));
    }
    let _ =
        writeln!(out, "\n\nTime until both have ended (A, B), in {:.1} s of trials:", report.spent.seconds());
    for tried in &report.arrangements {
        row(&mut out, tried);
    }
    out.push('\n');
    conclusion(&mut out, report);
    out
}

/// Prints an arrangement.
fn row(out: &mut String, tried: &TriedArrangement) {
    let entrant = &tried.entrant;
    let time = match (entrant.median(), tried.figures, entrant.stopped, &entrant.rejected) {
        (.., Some(why)) => format!("failed: {why}"),
        (Some(both), Some(figures), ..) => {
            let [one, other] = figures.ends.map(seconds);
            let runs = plural(entrant.seconds.len() as u64, "run");
            format!("{} ({one}, {other}; {runs})", seconds(both))
        }
        (None, _, Some(stopped), _) => format!("more than {}", seconds(stopped)),
        _ => "not tried".to_owned(),
    };
    let _ = write!(out, "  {:<30} {time}", name(tried.arrangement));
    if let Some(faster) = tried.faster {
        let _ = write!(out, "  {faster}");
    }
    out.push('\n');
}

/// Prints the command to use, and what each program gets.
fn conclusion(out: &mut String, report: &PairReport) {
    let tried = |at: usize| &report.arrangements[at];
    let failed = report.arrangements.iter().take(2).any(|tried| tried.entrant.rejected.is_some());
    let _ = match report.choice {
        _ if failed => writeln!(out, "No recommendation: a program failed."),
        Choice::Use { entrant } => {
            let chosen = tried(entrant);
            let faster = chosen.faster.map(|faster| faster.to_string()).unwrap_or_default();
            writeln!(out, "Use: {faster}\n  {}", chosen.command)
        }
        Choice::Keep => writeln!(out, "No change: no other arrangement ends clearly sooner."),
        Choice::Unsure { entrant } => writeln!(
            out,
            "No recommendation: the best arrangement that was tried is not certain to gain 2 %. More time may decide it: --budget {:.0}s\n  best so far: {}",
            (4.0 * report.budget.seconds()).ceil(),
            tried(entrant).command
        ),
        Choice::Unknown => writeln!(
            out,
            "No recommendation: the trials did not end within {:.0} s; --budget gives them more time.",
            report.budget.seconds()
        ),
    };
    let shown = match report.choice {
        Choice::Use { entrant } | Choice::Unsure { entrant } if !failed => entrant,
        Choice::Keep if !failed => 0,
        _ => return,
    };
    if let Some(figures) = tried(shown).figures
        && let (Some([one, other]), Some(throughput), Some(fairness)) =
            (figures.slowdowns, figures.throughput, figures.fairness)
    {
        let _ = writeln!(
            out,
            "A then ends after {one:.2} times its time alone, B after {other:.2}. Throughput {throughput:.2} (1: one after the other), fairness {fairness:.2} (1: both lose the same)."
        );
    }
}
