//! Report of `bench balance`: a table of scenarios, variants and goals.

use super::super::harness::Head;
use super::BalanceResult;
use super::records::{BalanceEnd, BalanceStart};
use std::fmt::Write as _;
use trimtab_core::ideal_ratio::{Judged, NOISE_MAX};
use trimtab_core::stats::{Comparison, Estimate, Interval, Verdict};
use trimtab_front::table::{Align, Table};

/// Legend of the last column.
const GOALS: &str = "\nno worse: at most 1 % above the kernel's median; steady: max/min at most the kernel's; half of spin: at most half \
     of the median with waiters that spin without limit\n";

/// Formats the whole report.
pub(super) fn page(start: &BalanceStart, measured: &[BalanceResult<'_>], end: BalanceEnd) -> String {
    let (BalanceStart { cpus, repeats, seed, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let mut text = format!(
        "{summary}; Linux {kernel}; CPUs {cpus}\n{repeats} rounds in random order; run time over the ideal time, medians with 95 % \
         bootstrap intervals, seed {seed}\n1.00: all threads share the cores evenly all the time; a hog gets the same share as each \
         thread\n"
    );
    if start.quick {
        text.push_str("--quick: little work, few cases; not for conclusions\n");
    }
    text.push('\n');
    let mut table = Table::new(&[
        ("SCENARIO", Align::Left),
        ("WAIT", Align::Left),
        ("VARIANT", Align::Left),
        ("RATIO", Align::Right),
        ("MAX/MIN", Align::Right),
        ("TO KERNEL", Align::Left),
        ("CLEAN", Align::Right),
        ("GOAL", Align::Left),
    ]);
    for item in measured.iter().filter(|item| !item.ratios.shown().is_empty()) {
        let (clean, noisy) = (item.ratios.clean.len(), item.ratios.noisy.len());
        table.row([
            item.cell.scenario_name().to_owned(),
            item.cell.wait.word().to_owned(),
            item.cell.way.word().to_owned(),
            format!("{}{}", estimate(item.estimate), if clean == 0 { " noisy" } else { "" }),
            item.spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.2}")),
            item.against.as_ref().map_or_else(|| "-".to_owned(), against),
            format!("{clean}/{}", clean + noisy),
            item.goals.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        ]);
    }
    if measured.iter().all(|item| item.ratios.shown().is_empty()) {
        text.push_str("nothing was measured\n");
    } else {
        let _ = write!(text, "{table}");
    }
    text.push_str(GOALS);
    summary_of(&mut text, measured, end);
    text
}

fn summary_of(text: &mut String, measured: &[BalanceResult<'_>], end: BalanceEnd) {
    let BalanceEnd { complete, runs, failed, clean } = end;
    let judged: Vec<&Judged> = measured.iter().flat_map(|item| &item.goals).collect();
    let count = |met: Option<bool>| judged.iter().filter(|judged| judged.met == met).count();
    let _ = writeln!(
        text,
        "{clean} of {runs} runs were clean: other processes used at most {:.0} % of the machine. Goals are judged on five clean runs \
         or more, and never on noisy ones: {} met, {} missed, {} not judged.",
        NOISE_MAX * 100.0,
        count(Some(true)),
        count(Some(false)),
        count(None),
    );
    if clean < runs {
        text.push_str("The machine was not idle: values marked noisy do not show the effect of balancing.\n");
    }
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
}

fn estimate(estimate: Option<Estimate>) -> String {
    let Some(Estimate { median, interval }) = estimate else { return "-".to_owned() };
    match interval {
        Some(Interval { low, high }) => format!("{median:.2} [{low:.2}, {high:.2}]"),
        None => format!("{median:.2}"),
    }
}

/// Formats the comparison with Linux alone.
fn against(comparison: &Comparison) -> String {
    let verdict = match comparison.verdict {
        Verdict::Better => "shorter",
        Verdict::Worse => "LONGER",
        Verdict::NoDifference => "no difference",
        Verdict::Unknown => "not known",
    };
    match comparison.gain {
        Some(gain) => format!("{:.2}x {verdict}", 1.0 / gain.median),
        None => verdict.to_owned(),
    }
}
