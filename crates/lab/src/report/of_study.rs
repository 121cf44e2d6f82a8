//! Page of a study: a table and a picture for each runtime, and pairs of programs.

use super::sheet::{CellColour, Section, Sheet, SheetCell, Table};
use super::strip_plot::{Strip, StripRow};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::stats::Estimate;
use trimtab_core::study::{self, About, Pair, Runtime, Sample, Study, StudyCell, Summary};
use trimtab_front::study::{FOREIGN_SHARE_MAX, estimate, intervals, runtimes, slowdown, title};
use trimtab_front::units::short_time as time;

/// Least slow-down or gain that is coloured.
const CHANGE_COLOURED_MIN: f64 = 0.1;
/// Slow-downs beyond this value, and gains beyond its inverse, are drawn at the ends of the scale.
const SLOWDOWN_DRAWN_MAX: f64 = 16.0;

/// Builds the page.
pub(super) fn sheet(study: &Study) -> Sheet {
    let Study { about, samples } = study;
    let summaries = study::cells(samples, about.seed);
    let pairs = study::pairs(samples, about.seed);
    let mut sections: Vec<Section> =
        Runtime::ALL.into_iter().filter_map(|runtime| alone(runtime, &summaries, samples)).collect();
    let relation = intervals(&summaries);
    if !relation.is_empty() {
        sections.push(Section {
            title: "Slow-down and synchronisation interval".to_owned(),
            words: "Rank correlation of slow-down and synchronisation interval: at -1 the program with the shorter interval is always slowed more.".to_owned(),
            lines: relation.lines().filter(|line| line.starts_with(' ')).map(|line| line.trim().to_owned()).collect(),
            ..Section::default()
        });
    }
    if !pairs.is_empty() {
        sections.push(together(about, &pairs));
    }
    let fact = |name: &str, value: String| (name.to_owned(), value);
    if !about.left_out.is_empty() {
        let lines = about.left_out.clone();
        sections.push(Section { title: "Left out".to_owned(), lines, ..Section::default() });
    }
    let mut warnings = Vec::new();
    let noisy =
        samples.iter().filter(|one| one.foreign.is_some_and(|foreign| foreign > FOREIGN_SHARE_MAX)).count();
    if noisy > 0 {
        warnings.push(format!("Other programs used more than 5 % of the cores during {noisy} of {} runs: confidence intervals are wider than on a quiet machine.", samples.len()));
    }
    Sheet {
        title: "More threads than cores".to_owned(),
        about: format!(
            "Time relative to one thread per core, run just before: alone, floating, with the runtime's own wait policy. Medians with 95 % confidence intervals; >: stopped after {} times \
             the baseline's time.",
            about.limit
        ),
        facts: vec![
            fact("machine", format!("{}: {}", about.machine, about.summary)),
            fact("kernel", format!("Linux {}", about.kernel)),
            fact("CPUs", about.cpus.clone()),
            fact("yields", about.yields.to_string()),
            fact("rounds", about.rounds.to_string()),
            fact("runs", samples.len().to_string()),
            fact("seed", about.seed.to_string()),
            fact("trimtab", about.trimtab.clone()),
        ],
        warnings,
        sections,
    }
}

/// Returns the section of programs that ran alone, for one runtime.
fn alone(runtime: Runtime, summaries: &[Summary], samples: &[Sample]) -> Option<Section> {
    let mut of: Vec<&Summary> = summaries
        .iter()
        .filter(|one| one.cell.runtime == runtime && one.cell.company.is_none())
        .filter(|one| one.slowdown.is_some() || one.failed > 0)
        .collect();
    if of.is_empty() {
        return None;
    }
    // Cases were measured in random order.
    of.sort_by_key(|one| {
        let cell = &one.cell;
        (cell.name(), cell.per_core, cell.schedule, cell.grip, cell.wait.word())
    });
    let columns =
        ["PROGRAM", "MEETS EVERY", "THREADS", "A CORE", "WAIT", "SLOW-DOWN", "CPU TIME", "BALANCE", "RUNS"];
    let rows = of.iter().map(|one| row(one)).collect();
    let waits: Vec<WaitPolicy> =
        WaitPolicy::ALL.into_iter().filter(|wait| of.iter().any(|one| one.cell.wait == *wait)).collect();
    let pictured = of.iter().filter(|one| one.cell.per_core > 1).map(|one| {
        let Summary { cell, .. } = one;
        let values: Vec<f64> =
            samples.iter().filter(|sample| sample.cell == *cell).filter_map(Sample::slowdown).collect();
        let name = format!("{} a core, {}, {}", cell.per_core, cell.grip, waiting(cell));
        let bar =
            one.slowdown.and_then(|slowdown| slowdown.interval).map(|interval| (interval.low, interval.high));
        StripRow {
            group: cell.name(),
            bar,
            colour: waits.iter().position(|wait| *wait == cell.wait).unwrap_or(0),
            ..StripRow::of(&name, values)
        }
    });
    let rows_of_picture: Vec<StripRow> = pictured.collect();
    Some(Section {
        title: title(runtime).to_owned(),
        words: "A dot is a run relative to its baseline, the tick their median; the dashed line is one thread per \
                core. Left of it more threads gain, right of it they lose. An arrow is a value beyond the scale. \
                The colour is the wait policy."
            .to_owned(),
        table: Some(Table { columns: columns.map(str::to_owned).to_vec(), rows }),
        strip: Some(Strip {
            of: "times the baseline's time".to_owned(),
            ratio_most: Some(SLOWDOWN_DRAWN_MAX),
            colours: waits.iter().map(|wait| format!("wait policy {wait}")).collect(),
            rows: rows_of_picture,
            ..Strip::default()
        }),
        lines: Vec::new(),
    })
}

fn row(one: &Summary) -> Vec<SheetCell> {
    let Summary { cell, slowdown: found, .. } = one;
    let or_dash = |cell: Option<SheetCell>| cell.unwrap_or_else(|| "-".into());
    vec![
        cell.name().into(),
        or_dash(one.interval.map(|interval| SheetCell::number(interval, time(interval)))),
        cell.grip.to_string().into(),
        SheetCell::number(f64::from(cell.per_core), cell.per_core.to_string()),
        waiting(cell).into(),
        SheetCell {
            text: slowdown(one),
            number: found.map(|found| found.median),
            mood: mood(found.as_ref()),
        },
        or_dash(one.cpu.map(|cpu| SheetCell::number(cpu, format!("{cpu:.3} s")))),
        or_dash(one.balance.map(|balance| SheetCell::number(balance, format!("{balance:.2}")))),
        SheetCell::number(one.samples as f64, one.samples.to_string()),
    ]
}

/// Returns the wait policy, and the schedule of loops if one was set.
fn waiting(cell: &StudyCell) -> String {
    let schedule = cell.schedule.map_or_else(String::new, |schedule| format!(", loops {schedule}"));
    format!("{}{schedule}", cell.wait)
}

fn mood(slowdown: Option<&Estimate>) -> CellColour {
    match slowdown.map(|found| found.median) {
        Some(median) if median > 1.0 + CHANGE_COLOURED_MIN => CellColour::Bad,
        Some(median) if median < 1.0 - CHANGE_COLOURED_MIN => CellColour::Good,
        _ => CellColour::Plain,
    }
}

/// Returns the section of two programs at once.
fn together(about: &About, pairs: &[Pair]) -> Section {
    let beside = study::sharing(pairs, about.seed);
    let columns = [
        "PAIR",
        "A CORE",
        "RUNTIME",
        "WAIT",
        "CORES",
        "FIRST",
        "SECOND",
        "THROUGHPUT",
        "FAIRNESS",
        "SHARING GAINS",
    ];
    let cell = |found: Option<Estimate>, more: bool| match found {
        Some(found) => {
            SheetCell::number(found.median, format!("{}{}", if more { ">" } else { "" }, estimate(found)))
        }
        None => "-".into(),
    };
    let rows = pairs.iter().map(|pair| {
        let Pair { first, second, arrangement, slowdowns, throughput, fairness, at_least, .. } = pair;
        let gain = beside.iter().find(|one| std::ptr::eq(one.shared, pair)).and_then(|one| one.gain);
        vec![
            format!("{}+{}", first.name(), second.name()).into(),
            format!("{}:{}", first.per_core, second.per_core).into(),
            runtimes(first, second).into(),
            first.wait.to_string().into(),
            arrangement.to_string().into(),
            cell(slowdowns[0], at_least[0]),
            cell(slowdowns[1], at_least[1]),
            cell(*throughput, false),
            cell(*fairness, false),
            gain.map_or_else(|| "".into(), |gain| cell(Some(gain), false)),
        ]
    });
    Section {
        title: "Two programs at once".to_owned(),
        words: "First and second: time relative to the baseline, alone on all cores. Throughput: the sum of both speeds; 1 equals running them in sequence. Fairness: the smaller slow-down \
                over the greater. Sharing gains: throughput over that with half of the cores each."
            .to_owned(),
        table: Some(Table { columns: columns.map(str::to_owned).to_vec(), rows: rows.collect() }),
        ..Section::default()
    }
}
