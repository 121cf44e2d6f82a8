//! Report of `bench oversub`: tables as in the published study, with programs over threads per
//! core, balance, and pairs.

use super::records::OversubEnd;
use std::fmt::Write as _;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::stats::Estimate;
use trimtab_core::study::{self, About, Pair, Runtime, Sample, StudyCell, Summary, ThreadBinding};
use trimtab_front::study::{FOREIGN_SHARE_MAX, estimate, intervals, slowdown, title};
use trimtab_front::table::{Align, Table};
use trimtab_front::units::short_time as time;

/// Formats the whole report.
pub(super) fn page(
    about: &About,
    samples: &[Sample],
    summaries: &[Summary],
    pairs: &[Pair],
    end: Option<OversubEnd>,
) -> String {
    let mut text = head(about);
    for runtime in Runtime::ALL {
        let alone = |one: &&Summary| one.cell.company.is_none() && one.cell.runtime == runtime;
        // A program that only runs in pairs has a baseline here and no other cell.
        let beside = |one: &Summary| one.slowdown.is_some() || one.failed > 0;
        let shown: Vec<String> =
            summaries.iter().filter(alone).filter(|one| beside(one)).map(|one| one.cell.name()).collect();
        let of: Vec<&Summary> =
            summaries.iter().filter(alone).filter(|one| shown.contains(&one.cell.name())).collect();
        if !of.is_empty() {
            let _ = write!(
                text,
                "\n{}: time over that of one thread per core, by threads per core\n\n{}",
                title(runtime),
                slowdowns(&of)
            );
            let balances = balances(&of);
            if !balances.is_empty() {
                let _ = write!(text, "\n{runtime}: lowest over highest user time of the cores\n\n{balances}");
            }
        }
    }
    text.push_str(&intervals(summaries));
    text.push_str(&sharing(about, pairs));
    text.push_str(&foot(samples, summaries, end));
    text
}

fn head(about: &About) -> String {
    let About { machine, summary, kernel, cpus, yields, rounds, seed, limit, .. } = about;
    let mut text = format!(
        "{machine}: {summary}; Linux {kernel}\nCPUs {cpus}, one of each core; {yields}\n{rounds} rounds in random order, each case after its baseline: \
         alone, one thread per core, floating, with the runtime's own wait policy\n\
         Medians of ratios with 95 % bootstrap intervals, seed {seed}; >: lower bound, stopped after {limit} times the baseline's time\n"
    );
    for said in &about.left_out {
        let _ = writeln!(text, "left out: {said}");
    }
    text
}

/// Returns the parameters of a cell that vary, except threads per core.
fn way(cell: &StudyCell) -> (String, ThreadBinding, WaitPolicy) {
    (cell.name(), cell.grip, cell.wait)
}

/// Returns each value of a property once, in order of first occurrence.
fn each<T: PartialEq, S>(all: &[S], of: impl Fn(&S) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for one in all.iter().map(of) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn per_core(of: &[&Summary]) -> Vec<u32> {
    let mut all = each(of, |one| one.cell.per_core);
    all.sort_unstable();
    all
}

fn slowdowns(of: &[&Summary]) -> Table {
    let counts = per_core(of);
    let heads: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let mut columns = vec![
        ("PROGRAM", Align::Left),
        ("INTERVAL", Align::Right),
        ("1/CORE", Align::Right),
        ("THREADS", Align::Left),
        ("WAIT", Align::Left),
    ];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let mut ways = each(of, |one| way(&one.cell));
    ways.sort_by(|one, other| (&one.0, one.1, one.2.word()).cmp(&(&other.0, other.1, other.2.word())));
    let mut last = String::new();
    for (name, grip, wait) in ways {
        let base = of.iter().find(|one| one.cell.is_baseline() && one.cell.name() == name);
        let first = last != name;
        let only_first =
            |word: Option<String>| if first { word.unwrap_or_else(|| "-".to_owned()) } else { String::new() };
        let cells = counts.iter().map(|count| {
            let found = of
                .iter()
                .find(|one| one.cell.per_core == *count && way(&one.cell) == (name.clone(), grip, wait));
            found.map_or_else(|| "-".to_owned(), |one| slowdown(one))
        });
        let cells: Vec<String> = cells.collect();
        let interval = of.iter().find(|one| one.cell.name() == name).and_then(|one| one.interval);
        let seconds = base.and_then(|one| one.seconds).map(|seconds| format!("{:.3} s", seconds.median));
        let row = [
            if first { name.clone() } else { String::new() },
            only_first(interval.map(time)),
            only_first(seconds),
            grip.to_string(),
            wait.to_string(),
        ];
        table.row(row.into_iter().chain(cells));
        last = name;
    }
    table
}

/// Formats the balance of floating threads with the runtime's own wait policy, by threads per core.
fn balances(of: &[&Summary]) -> Table {
    let of: Vec<&Summary> =
        of.iter().copied().filter(|one| one.cell.wait == WaitPolicy::Keep && one.balance.is_some()).collect();
    let counts = per_core(&of);
    let heads: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let mut columns = vec![("PROGRAM", Align::Left), ("THREADS", Align::Left)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let mut ways = each(&of, |one| (one.cell.name(), one.cell.grip));
    ways.sort();
    for (name, grip) in ways {
        let cells = counts.iter().map(|count| {
            let found = of
                .iter()
                .find(|one| (one.cell.per_core, one.cell.grip) == (*count, grip) && one.cell.name() == name);
            found
                .and_then(|one| one.balance)
                .map_or_else(|| "-".to_owned(), |balance| format!("{balance:.2}"))
        });
        table.row([name.clone(), grip.to_string()].into_iter().chain(cells));
    }
    table
}

fn sharing(about: &About, pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("PAIR", Align::Left),
        ("PER CORE", Align::Left),
        ("RUNTIME", Align::Left),
        ("WAIT", Align::Left),
        ("CORES", Align::Left),
        ("FIRST", Align::Right),
        ("SECOND", Align::Right),
        ("THROUGHPUT", Align::Right),
        ("FAIRNESS", Align::Right),
        ("SHARING GAINS", Align::Right),
    ]);
    let beside = study::sharing(pairs, about.seed);
    let mut sorted: Vec<&Pair> = pairs.iter().collect();
    sorted.sort_by_key(|pair| {
        let Pair { first, second, arrangement, .. } = *pair;
        let names = (first.name(), second.name(), first.runtime);
        (names, first.per_core, second.per_core, first.wait.word(), *arrangement)
    });
    for pair in sorted {
        let Pair { first, second, arrangement, slowdowns, throughput, fairness, at_least, .. } = pair;
        let more = at_least.map(|more| if more { ">" } else { "" });
        let or_dash = |found: &Option<Estimate>| found.map_or_else(|| "-".to_owned(), estimate);
        let gain = beside.iter().find(|one| std::ptr::eq(one.shared, pair)).and_then(|one| one.gain);
        table.row([
            format!("{}+{}", first.name(), second.name()),
            format!("{}:{}", first.per_core, second.per_core),
            first.runtime.to_string(),
            first.wait.to_string(),
            arrangement.to_string(),
            format!("{}{}", more[0], or_dash(&slowdowns[0])),
            format!("{}{}", more[1], or_dash(&slowdowns[1])),
            or_dash(throughput),
            or_dash(fairness),
            gain.map_or_else(String::new, |gain| format!("{}x", estimate(gain))),
        ]);
    }
    format!(
        "\nTwo programs at once: time of each over that of its baseline, alone on all cores\n\n{table}\n\
         THROUGHPUT: the sum of both speeds; 1 equals one program after the other. FAIRNESS: the smaller slowdown over the larger. SHARING GAINS:\n\
         throughput over that with half of the cores for each program\n"
    )
}

fn foot(samples: &[Sample], summaries: &[Summary], end: Option<OversubEnd>) -> String {
    let mut text = String::from("\n");
    if !summaries.iter().any(|one| one.slowdown.is_some()) {
        text.push_str("nothing was measured\n");
    }
    let noisy =
        samples.iter().filter(|one| one.foreign.is_some_and(|foreign| foreign > FOREIGN_SHARE_MAX)).count();
    if noisy > 0 {
        let _ = writeln!(
            text,
            "Other processes used more than 5 % of the cores during {noisy} of {} runs: intervals are wider than on an idle machine",
            samples.len()
        );
    }
    let Some(OversubEnd { complete, runs, failed, out_of_time }) = end else { return text };
    let _ = writeln!(text, "{runs} cases");
    if failed > 0 {
        let _ = writeln!(text, "{failed} cases failed");
    }
    if out_of_time > 0 {
        let _ = writeln!(
            text,
            "The time limit was reached: {out_of_time} cases were not run; --resume with the record runs them"
        );
    }
    if !complete && out_of_time == 0 {
        text.push_str("Stopped early: not all rounds were run\n");
    }
    text
}
