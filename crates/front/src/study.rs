//! Results of an oversubscription study as text, for the benchmark's report and the page of
//! `trimtab report`.

use std::fmt::Write as _;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::stats::correlation::spearman;
use trimtab_core::stats::{Estimate, Interval};
use trimtab_core::study::{Runtime, StudyCell, Summary};

/// Share of the cores' time used by other programs above which a run counts as disturbed.
pub const FOREIGN_SHARE_MAX: f64 = 0.05;
/// Fewest pairs of values from which a rank correlation is computed.
const PAIRS_MIN: usize = 6;

/// Returns a runtime's title.
pub fn title(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Libgomp => "OpenMP of GCC (libgomp)",
        Runtime::Libomp => "OpenMP of LLVM (libomp)",
        Runtime::OpenMpi => "Open MPI",
        Runtime::Mpich => "MPICH",
        Runtime::TeamThread => "Teams of threads",
        Runtime::TeamProcess => "Teams of processes",
        Runtime::Upcxx => "UPC++",
        Runtime::Any => "Commands",
    }
}

/// Returns the runtime of both programs of a pair, or both runtimes.
pub fn runtimes(first: &StudyCell, second: &StudyCell) -> String {
    match (first.runtime, second.runtime) {
        (one, other) if one == other => one.to_string(),
        (one, other) => format!("{one}+{other}"),
    }
}

/// Formats a slowdown with its confidence interval, or the reason why there is none.
pub fn slowdown(one: &Summary) -> String {
    match one.slowdown {
        None if one.failed > 0 => "failed".to_owned(),
        None => "-".to_owned(),
        Some(Estimate { median, .. }) if one.at_least => format!(">{median:.1}"),
        Some(found) => estimate(found),
    }
}

/// Formats a median with its confidence interval.
pub fn estimate(Estimate { median, interval }: Estimate) -> String {
    match interval {
        Some(Interval { low, high }) => format!("{median:.2} [{low:.2}, {high:.2}]"),
        None => format!("{median:.2}"),
    }
}

/// Formats the rank correlation of slowdown and the interval between barriers, in which the
/// published study found its best predictor. Cases with a schedule do not count: they would
/// count a program several times.
pub fn intervals(summaries: &[Summary]) -> String {
    let crowded =
        |one: &&Summary| one.cell.company.is_none() && one.cell.schedule.is_none() && one.cell.per_core > 1;
    let pair = |one: &Summary| Some((one.interval?, one.slowdown?.median));
    let mut text = String::new();
    for wait in WaitPolicy::ALL {
        let pairs: Vec<(f64, f64)> =
            summaries.iter().filter(crowded).filter(|one| one.cell.wait == wait).filter_map(pair).collect();
        if let Some(relation) = spearman(&pairs).filter(|_| pairs.len() >= PAIRS_MIN) {
            let _ = writeln!(text, "  {wait}: {relation:+.2} over {} cases", pairs.len());
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\nRank correlation of slowdown and interval, for cases with known intervals (-1: the shorter, the slower)\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::study::{Family, LoopSchedule, ThreadBinding};

    fn summary(rank: u32, schedule: Option<LoopSchedule>) -> Summary {
        let cell = StudyCell {
            program: format!("p{rank}"),
            class: None,
            family: Family::Nas,
            runtime: Runtime::Libgomp,
            threads: 4,
            cores: 2,
            per_core: 2,
            grip: ThreadBinding::Floating,
            wait: WaitPolicy::Keep,
            schedule,
            company: None,
        };
        // With a schedule the shortest interval is the fastest, without one the slowest.
        let median = f64::from(if schedule.is_some() { rank } else { 10 - rank });
        Summary {
            cell,
            samples: 1,
            stopped: 0,
            failed: 0,
            seconds: None,
            slowdown: Some(Estimate { median, interval: None }),
            at_least: false,
            variation: None,
            cpu: None,
            balance: None,
            interval: Some(f64::from(rank)),
        }
    }

    #[test]
    fn cases_with_a_schedule_are_not_in_the_rank_correlation() {
        let plain = (1..=6).map(|rank| summary(rank, None));
        let scheduled = (1..=6).map(|rank| summary(rank, Some(LoopSchedule::Guided)));
        let text = intervals(&plain.chain(scheduled).collect::<Vec<_>>());
        assert!(text.contains("keep: -1.00 over 6 cases"), "{text}");
    }
}
