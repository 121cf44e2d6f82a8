//! Report of `bench oversub`: tables as in the published study, with programs over threads per
//! core, balance, and pairs.

use super::records::OversubEnd;
use std::fmt::Write as _;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::stats::Estimate;
use trimtab_core::study::{
    self, About, LoopSchedule, Pair, Runtime, Sample, StudyCell, Summary, ThreadBinding,
};
use trimtab_front::study::{FOREIGN_SHARE_MAX, estimate, intervals, runtimes, slowdown, title};
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
            let balances = by_binding(&of, &|one| one.balance.map(|balance| format!("{balance:.2}")));
            if !balances.is_empty() {
                let _ = write!(text, "\n{runtime}: lowest over highest user time of the cores\n\n{balances}");
            }
            let variations = by_binding(&of, &|one| one.variation.map(|percent| format!("{percent:.0} %")));
            if !variations.is_empty() {
                let _ = write!(text, "\n{runtime}: longest over shortest time, less 1\n\n{variations}");
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
fn way(cell: &StudyCell) -> (String, ThreadBinding, WaitPolicy, Option<LoopSchedule>) {
    (cell.name(), cell.grip, cell.wait, cell.schedule)
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
    let has_schedules = of.iter().any(|one| one.cell.schedule.is_some());
    columns.extend(has_schedules.then_some(("LOOPS", Align::Left)));
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let mut ways = each(of, |one| way(&one.cell));
    ways.sort_by_key(|(name, grip, wait, schedule)| (name.clone(), *schedule, *grip, wait.word()));
    let mut last = String::new();
    for (name, grip, wait, schedule) in ways {
        let base = of.iter().find(|one| one.cell.is_baseline() && one.cell.name() == name);
        let first = last != name;
        let only_first =
            |word: Option<String>| if first { word.unwrap_or_else(|| "-".to_owned()) } else { String::new() };
        let cells = counts.iter().map(|count| {
            let found = of.iter().find(|one| {
                one.cell.per_core == *count && way(&one.cell) == (name.clone(), grip, wait, schedule)
            });
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
        let loops = schedule.map_or_else(|| "as built".to_owned(), |schedule| schedule.to_string());
        table.row(row.into_iter().chain(has_schedules.then_some(loops)).chain(cells));
        last = name;
    }
    table
}

/// Formats a value of each binding with the runtime's own wait policy and the program's own
/// schedule, by threads per core.
fn by_binding(of: &[&Summary], value: &dyn Fn(&Summary) -> Option<String>) -> Table {
    let plain = |cell: &StudyCell| cell.wait == WaitPolicy::Keep && cell.schedule.is_none();
    let of: Vec<&Summary> =
        of.iter().copied().filter(|one| plain(&one.cell) && value(one).is_some()).collect();
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
            found.and_then(|one| value(one)).unwrap_or_else(|| "-".to_owned())
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
        let names = (first.name(), second.name(), first.runtime, second.runtime);
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
            runtimes(first, second),
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
