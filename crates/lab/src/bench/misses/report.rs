//! Report of `bench misses`: kernels over threads per core, the kernel with the most misses first.

use super::super::harness::SeriesEnd;
use super::MissesFound;
use super::records::MissesStart;
use std::fmt::Write as _;
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &MissesStart, found: &[MissesFound<'_>], ended: SeriesEnd) -> String {
    let (head, rounds) = (&start.head, start.rounds);
    let mut text = format!(
        "{}: {}; Linux {}\nMisses of the last-level cache per 1,000 instructions: {}\nRuns of each case: {rounds}, medians; in brackets, times that of the fewest threads\n",
        head.machine, head.summary, head.kernel, start.counted_by
    );
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    match found.is_empty() {
        true => text.push_str("\nnothing was measured\n"),
        false => {
            let _ = write!(text, "\n{}", table(found));
        }
    }
    let SeriesEnd { complete, runs, failed } = ended;
    let _ = writeln!(text, "\n{runs} runs");
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}

fn table(found: &[MissesFound<'_>]) -> Table {
    let mut counts: Vec<u32> = found.iter().map(|one| one.case.per_core).collect();
    counts.sort_unstable();
    counts.dedup();
    let heads: Vec<String> = counts.iter().map(|count| format!("{count} PER CORE")).collect();
    let mut columns = vec![("KERNEL", Align::Left)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let of = |name: &str, count: u32| {
        found.iter().find(|one| one.case.name() == name && one.case.per_core == count).map(|one| one.per_kilo)
    };
    let fewest = |name: &str| counts.iter().find_map(|count| of(name, *count));
    let mut names: Vec<String> = found.iter().map(|one| one.case.name()).collect();
    names.sort();
    names.dedup();
    names.sort_by(|one, other| fewest(other).unwrap_or(0.0).total_cmp(&fewest(one).unwrap_or(0.0)));
    for name in names {
        let base = fewest(&name);
        let cell = |(at, count): (usize, &u32)| match (of(&name, *count), base) {
            (None, _) => "-".to_owned(),
            (Some(value), Some(base)) if at > 0 && base > 0.0 => format!("{value:.3} ({:.2})", value / base),
            (Some(value), _) => format!("{value:.3}"),
        };
        let cells: Vec<String> = counts.iter().enumerate().map(cell).collect();
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    table
}
