//! The figures of an oversubscription study in words, as the benchmark's report and the page of `trimtab report` show them.

use std::fmt::Write as _;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::stats::correlation::spearman;
use trimtab_core::stats::{Estimate, Interval};
use trimtab_core::study::{Runtime, Summary};

/// The share of the cores' time used by other programs above which a run was disturbed.
pub const FOREIGN_SHARE_MAX: f64 = 0.05;
/// The fewest pairs of figures from which a rank correlation is computed.
const PAIRS_MIN: usize = 6;

/// A runtime in words.
pub fn title(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Libgomp => "OpenMP of GCC (libgomp)",
        Runtime::Libomp => "OpenMP of LLVM (libomp)",
        Runtime::OpenMpi => "Open MPI",
        Runtime::Mpich => "MPICH",
        Runtime::TeamThread => "Teams of threads",
        Runtime::TeamProcess => "Teams of processes",
    }
}

/// A short time.
pub fn time(seconds: f64) -> String {
    if seconds < 0.001 { format!("{:.0} us", seconds * 1e6) } else { format!("{:.0} ms", seconds * 1e3) }
}

/// A slow-down with its interval, or why there is none.
pub fn slowdown(one: &Summary) -> String {
    match one.slowdown {
        None if one.failed > 0 => "failed".to_owned(),
        None => "-".to_owned(),
        Some(Estimate { median, .. }) if one.at_least => format!(">{median:.1}"),
        Some(found) => estimate(found),
    }
}

/// A median with its interval.
pub fn estimate(Estimate { median, interval }: Estimate) -> String {
    match interval {
        Some(Interval { low, high }) => format!("{median:.2} [{low:.2}, {high:.2}]"),
        None => format!("{median:.2}"),
    }
}

/// The relation of slow-down and the interval between barriers, in which the published study found its best predictor.
pub fn intervals(summaries: &[Summary]) -> String {
    let crowded = |one: &&Summary| one.cell.company.is_none() && one.cell.per_core > 1;
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
        "\nRank correlation of slow-down and interval, where intervals are known (-1: the shorter, the slower)\n{text}"
    )
}
