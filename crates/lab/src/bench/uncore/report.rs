//! Report of `bench uncore`: tables of cases, and of the validation of each index.

use super::super::harness::Head;
use super::UncoreFindings;
use super::records::{UncoreEnd, UncoreStart};
use std::fmt::Write as _;
use trimtab_core::index_validation::{CHANGE_MIN, Change, IndexQuality};
use trimtab_core::penalty::Index;
use trimtab_front::table::{Align, Table};

/// Formats the whole report.
pub(super) fn page(start: &UncoreStart, found: &UncoreFindings<'_>, end: UncoreEnd) -> String {
    let (UncoreStart { repeats, seed, rung, .. }, Head { summary, kernel, .. }) = (start, &start.head);
    let counted = counted(found);
    let mut text = format!(
        "{summary}; Linux {kernel}\n{repeats} rounds in random order, seed {seed}; medians; counted: {rung}\n"
    );
    for said in &start.left_out {
        let _ = writeln!(text, "{said}");
    }
    if start.quick {
        text.push_str("--quick: few sizes, short windows; not for conclusions\n");
    }
    text.push('\n');
    let times = times(found, &counted);
    if times.is_empty() {
        text.push_str("nothing was measured\n");
        ending(&mut text, end);
        return text;
    }
    let _ = write!(text, "{times}");
    text.push_str(
        "\nTIME: nanoseconds of CPU time per access in both variants (elapsed nanoseconds if threads wait at barriers); then the change of\n\
         time and of each index from the first variant to the second\n",
    );
    if counted.is_empty() {
        text.push_str("No index could be counted: only times are shown\n");
    } else {
        text.push_str(
            "penalty: busy cycles per request (P); busy: busy cycles per instruction; share: share of busy cycles (W); cpi: cycles per \
             instruction;\nmiss-rate: of the last-level cache; far: share of memory on other nodes; estimate: of P, from generic counters\n",
        );
    }
    if found.worth.iter().flat_map(|(_, all)| all).any(|(_, worth)| worth.levels.pairs > 0) {
        let _ = write!(text, "\n{}", worths(found, &counted));
        let _ = writeln!(
            text,
            "\nLEVELS: index and time of all cases in both variants; CHANGES: their relative changes; r: Pearson, rank: Spearman;\nSIGNS: \
             changes of time above {:.0} % in which the index has the same direction",
            100.0 * CHANGE_MIN
        );
        let _ = write!(text, "\n{}", by_experiment(found, &counted));
        text.push_str("\nr of changes, and signs, for each experiment\n");
    }
    ending(&mut text, end);
    text
}

fn ending(text: &mut String, end: UncoreEnd) {
    let UncoreEnd { complete, runs, failed, uncounted } = end;
    let _ = writeln!(text, "\n{runs} runs");
    if uncounted > 0 {
        let _ = writeln!(text, "{uncounted} runs could not be counted, or only in part");
    }
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed");
    }
    if !complete {
        text.push_str("Stopped early: not all rounds were run\n");
    }
}

/// Returns the indices that were counted in any case.
fn counted(found: &UncoreFindings<'_>) -> Vec<Index> {
    let counted = |index: &Index| found.cases.iter().any(|(_, contrast)| contrast.index(*index).is_some());
    Index::ALL.into_iter().filter(counted).collect()
}

fn times(found: &UncoreFindings<'_>, counted: &[Index]) -> Table {
    let mut columns = vec![
        ("CASE", Align::Left),
        ("VARIANTS", Align::Left),
        ("TIME", Align::Right),
        ("", Align::Right),
        ("CHANGE", Align::Right),
    ];
    columns.extend(counted.iter().map(|index| (index.word(), Align::Right)));
    let mut table = Table::new(&columns);
    for (case, contrast) in &found.cases {
        let Some(time) = contrast.time() else { continue };
        let mut row = vec![
            case.case.clone(),
            case.ways.join(", "),
            format!("{:.1}", time.first),
            format!("{:.1}", time.second),
            percent(Some(time)),
        ];
        row.extend(counted.iter().map(|index| percent(contrast.index(*index))));
        table.row(row);
    }
    table
}

/// Formats a relative change.
fn percent(change: Option<Change>) -> String {
    change
        .and_then(|change| change.relative)
        .map_or_else(|| "-".to_owned(), |relative| format!("{:+.0} %", 100.0 * relative))
}

fn number(correlation: Option<f64>) -> String {
    correlation.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"))
}

fn signs(worth: &IndexQuality) -> String {
    format!("{}/{}", worth.signs.agree, worth.signs.of)
}

fn worths(found: &UncoreFindings<'_>, counted: &[Index]) -> Table {
    let mut table = Table::new(&[
        ("INDEX", Align::Left),
        ("LEVELS r", Align::Right),
        ("rank", Align::Right),
        ("CHANGES r", Align::Right),
        ("rank", Align::Right),
        ("SIGNS", Align::Right),
    ]);
    let over_all = found.worth.iter().filter(|(of, _)| of.is_none()).flat_map(|(_, all)| all);
    for (index, worth) in over_all.filter(|(index, _)| counted.contains(index)) {
        table.row([
            index.word().to_owned(),
            number(worth.levels.pearson),
            number(worth.levels.spearman),
            number(worth.changes.pearson),
            number(worth.changes.spearman),
            signs(worth),
        ]);
    }
    table
}

fn by_experiment(found: &UncoreFindings<'_>, counted: &[Index]) -> Table {
    let mut columns = vec![("EXPERIMENT", Align::Left), ("CASES", Align::Right)];
    columns.extend(counted.iter().map(|index| (index.word(), Align::Right)));
    let mut table = Table::new(&columns);
    for (experiment, all) in &found.worth {
        let Some(experiment) = experiment else { continue };
        let cases = all.iter().map(|(_, worth)| worth.changes.pairs).max().unwrap_or(0);
        let mut row = vec![(*experiment).to_owned(), cases.to_string()];
        row.extend(
            all.iter()
                .filter(|(index, _)| counted.contains(index))
                .map(|(_, worth)| format!("{} {}", number(worth.changes.pearson), signs(worth))),
        );
        table.row(row);
    }
    table
}
