//! Report of `bench misses`: kernels over threads per core, the kernel with the most misses first.

use super::super::harness::SeriesEnd;
use super::MissesFound;
use super::records::MissesStart;
use std::fmt::Write as _;
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &MissesStart, found: &[MissesFound<'_>], ended: SeriesEnd) -> String {
    let (head, rounds) = (&start.head, runs_of_each(found, start.rounds));
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

/// Returns the numbers of runs that the medians are of: fewer than the rounds after failures, or if
/// the measurement was stopped.
fn runs_of_each(found: &[MissesFound<'_>], rounds: u32) -> String {
    let counts = || found.iter().map(|one| one.samples);
    match (counts().min(), counts().max()) {
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most} of {rounds}"),
        (Some(all), _) if usize::try_from(rounds).is_ok_and(|rounds| all < rounds) => {
            format!("{all} of {rounds}")
        }
        _ => rounds.to_string(),
    }
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
        // Without a value in the first column there is nothing to compare with.
        let base = counts.first().and_then(|first| of(&name, *first));
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

#[cfg(test)]
mod tests {
    use super::super::MissesCase;
    use super::*;
    use crate::args::Class;

    fn case(kernel: &str, per_core: u32) -> MissesCase {
        MissesCase { kernel: kernel.to_owned(), class: Class::S, per_core, threads: per_core }
    }

    #[test]
    fn failed_runs_are_not_among_the_runs_of_a_median() {
        let case = case("cg", 1);
        let of = |samples| MissesFound { case: &case, samples, per_kilo: 1.0 };
        assert_eq!(runs_of_each(&[of(3), of(3)], 3), "3");
        assert_eq!(runs_of_each(&[of(3), of(1)], 3), "1 to 3 of 3");
        assert_eq!(runs_of_each(&[of(2)], 3), "2 of 3");
        assert_eq!(runs_of_each(&[], 3), "3");
    }

    #[test]
    fn a_kernel_without_the_first_column_has_no_ratios() {
        let cases = [case("cg", 1), case("cg", 4), case("ep", 2), case("ep", 4)];
        let found: Vec<MissesFound<'_>> =
            cases.iter().map(|case| MissesFound { case, samples: 1, per_kilo: 2.0 }).collect();
        let text = table(&found).to_string();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("cg.S"), ["cg.S", "2.000", "-", "2.000", "(1.00)"]);
        assert_eq!(row("ep.S"), ["ep.S", "-", "2.000", "2.000"]);
    }
}
