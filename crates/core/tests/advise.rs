//! Tests of the quality of the advice: predictions and advice over recorded cells. The constants
//! were set on half of the cells and never saw the other half.
//!
//! A *point* is a program of fixed work with fixed barriers, beside fixed others, on one machine
//! and kernel; it ran with several thread counts and ways to wait, with and without a policy. A
//! *cell* is one change of one of these at a point. Points are held out by a hash of their
//! parameters, so no cell of a held-out point was seen. `docs/advise.md` has the table, and a test
//! here compares it with the computed one.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of it is test")]

use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use trimtab_core::advise::load::{PhaseLoad, WAKE_S, WaitMode};
use trimtab_core::advise::{Advice, Conclusion, Gain, Situation, Topic, advise};
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::{Intervals, Profile};
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;

const SIMULATED: &[u8] = include_bytes!("../../../experiments/advise/simulated.csv.gz");
const PROGRAMS: &str = include_str!("../../../experiments/advise/measured.csv");
const LIVE: [(&str, &str); 4] = [
    ("bench-6.18", include_str!("../../../experiments/simulator/live/bench-6.18.csv")),
    ("host-6.18", include_str!("../../../experiments/simulator/live/host-6.18.csv")),
    ("guest-6.12", include_str!("../../../experiments/simulator/live/guest-6.12.csv")),
    ("guest-6.1", include_str!("../../../experiments/simulator/live/guest-6.1.csv")),
];

/// Parameters that are equal for all runs of a point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Point {
    source: String,
    kernel: String,
    cpus: u32,
    rivals: u32,
    /// Work of all threads in a phase, in microseconds.
    total: u64,
}

impl Point {
    /// Returns whether the point is held out: the FNV-1a hash of its parameters is odd.
    fn is_held_out(&self) -> bool {
        let Self { source, kernel, cpus, rivals, total } = self;
        let text = format!("{source}/{kernel}/{cpus}/{rivals}/{total}");
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash % 2 == 1
    }
}

/// Parameters of one run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RunConfig {
    threads: u32,
    mode: WaitMode,
    auto: bool,
    bound: bool,
}

/// Seconds of each run of each point.
type Records = BTreeMap<Point, BTreeMap<RunConfig, f64>>;

fn mode(word: &str) -> WaitMode {
    match word {
        "spin" => WaitMode::Spin,
        "yield" => WaitMode::Yield,
        "sleep" => WaitMode::Sleep,
        "moment" | "hyb" => WaitMode::Moment,
        other => panic!("{other}"),
    }
}

/// Returns the lines without comments and heading, split into words.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split(',').collect())
}

fn simulated() -> Records {
    let mut text = String::new();
    GzDecoder::new(SIMULATED).read_to_string(&mut text).unwrap();
    let mut records = Records::new();
    for line in lines(&text) {
        let [machine, kernel, cpus, threads, rivals, total, _, wait, policy, bound, phases, seconds] =
            line[..]
        else {
            panic!("{line:?}")
        };
        let point = Point {
            source: machine.to_owned(),
            kernel: kernel.to_owned(),
            cpus: cpus.parse().unwrap(),
            rivals: rivals.parse().unwrap(),
            total: total.parse().unwrap(),
        };
        let run = RunConfig {
            threads: threads.parse().unwrap(),
            mode: mode(wait),
            auto: policy == "auto",
            bound: bound == "1",
        };
        let seconds = seconds.parse::<f64>().unwrap() / phases.parse::<f64>().unwrap();
        records.entry(point).or_default().insert(run, seconds);
    }
    records
}

/// Returns the measured records: Linux alone, bound threads and `auto`; alone or beside a hog that
/// may run anywhere.
fn live() -> Records {
    let mut records = Records::new();
    for (source, text) in LIVE {
        for line in lines(text) {
            let [_, threads, work, phase, wait, rival, binds, how, _, median, ..] = line[..] else {
                panic!("{line:?}")
            };
            let rivals = match rival {
                "none" => 0,
                "hog" if how != "pinned" => 1,
                _ => continue,
            };
            if binds != "0" || !["kernel", "auto", "pinned"].contains(&how) {
                continue;
            }
            let threads: u32 = threads.parse().unwrap();
            let step: u64 =
                [phase, work].iter().map(|text| text.parse().unwrap()).find(|&us| us > 0).unwrap();
            let kernel = if source == "guest-6.1" { "linux-6.1" } else { "linux-6.18" };
            let point = Point {
                source: source.to_owned(),
                kernel: kernel.to_owned(),
                cpus: 2,
                rivals,
                total: step * u64::from(threads),
            };
            let run = RunConfig { threads, mode: mode(wait), auto: how == "auto", bound: how == "pinned" };
            let ideal = step as f64 * 1e-6 * f64::from(threads + rivals) / 2.0;
            records.entry(point).or_default().insert(run, median.parse::<f64>().unwrap() * ideal);
        }
    }
    records
}

fn load(point: &Point, run: RunConfig, rivals: u32) -> PhaseLoad {
    PhaseLoad {
        threads: run.threads,
        cpus: point.cpus,
        rivals,
        step: point.total as f64 * 1e-6 / f64::from(run.threads),
        mode: run.mode,
        bound: run.bound,
        posix: point.kernel != "linux-6.1",
        auto: run.auto,
        wake: WAKE_S,
    }
}

/// A change with its recorded and its predicted effect.
struct Change {
    topic: Topic,
    was: f64,
    predicted: f64,
}

/// Returns each change of one parameter at a point, each pair once.
fn cells(point: &Point, runs: &BTreeMap<RunConfig, f64>) -> Vec<Change> {
    let mut cells = Vec::new();
    for (&run, &seconds) in runs {
        let mut add = |topic, other: RunConfig, rivals| {
            let Some(&after) = runs.get(&other) else { return };
            // A program on fewer cores avoids the foreign threads.
            let predicted = load(point, other, rivals).phase() / load(point, run, point.rivals).phase();
            cells.push(Change { topic, was: after / seconds, predicted });
        };
        for mode in WaitMode::ALL.into_iter().filter(|&mode| mode > run.mode && !run.auto) {
            add(Topic::Wait, RunConfig { mode, ..run }, point.rivals);
        }
        if run.auto {
            continue;
        }
        add(Topic::Balance, RunConfig { auto: true, ..run }, point.rivals);
        if run.bound {
            continue;
        }
        if run.threads > point.cpus {
            add(Topic::Threads, RunConfig { threads: point.cpus, ..run }, point.rivals);
        }
        if point.rivals > 0 && point.rivals < point.cpus && run.threads >= point.cpus {
            let threads = point.cpus - point.rivals;
            let mode = if threads == 1 { WaitMode::Spin } else { run.mode };
            add(Topic::Sharing, RunConfig { threads, mode, ..run }, 0);
        }
    }
    cells
}

/// Counts over cells whose effect is above 5 %.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Score {
    cells: u32,
    right: u32,
    /// The predicted effect is below 2 %: neither a wrong sign nor a right one.
    silent: u32,
}

impl Score {
    fn take(&mut self, cell: &Change) {
        if (cell.was - 1.0).abs() <= 0.05 {
            return;
        }
        self.cells += 1;
        if (cell.predicted - 1.0).abs() < 0.02 {
            self.silent += 1;
        } else if (cell.predicted < 1.0) == (cell.was < 1.0) {
            self.right += 1;
        }
    }
}

/// Returns the profile of a run as it would be measured: with its setting and its time.
fn profile(point: &Point, run: RunConfig, seconds: f64) -> Profile {
    let phases = 1000;
    let step = point.total as f64 * 1e-6 / f64::from(run.threads);
    let span = |seconds: f64| Span((seconds * 1e9) as u64);
    let word = match run.mode {
        WaitMode::Spin => "spin",
        WaitMode::Yield => "yield",
        WaitMode::Sleep => "sleep",
        WaitMode::Moment => "auto",
    };
    let phase = span(seconds);
    // The part of a phase that is neither work nor waiting is time without a CPU; guests cannot
    // distinguish the two, so all of it is called waiting.
    let waiting = (1.0 - step / seconds).clamp(0.0, 1.0);
    Profile {
        setting: Setting::new().with(Knob::Wait, word).unwrap(),
        cpus: point.cpus,
        cores: point.cpus,
        wall: span(seconds * f64::from(phases)),
        user: span(step * f64::from(phases * run.threads)),
        workers: run.threads,
        // A runtime that follows the setting.
        runtimes: vec![Runtime::OpenMpi],
        intervals: Some(Intervals {
            count: u64::from(phases),
            mean: phase,
            median: phase,
            tenth: phase,
            ninetieth: phase,
        }),
        waiting: Some(waiting),
        ..Profile::default()
    }
}

fn situation(point: &Point, run: RunConfig) -> Situation {
    Situation {
        cpus: point.cpus,
        others: Some(f64::from(point.rivals)),
        yields: if point.kernel == "linux-6.1" { Yield::Weak { share: 0.5 } } else { Yield::Posix },
        bound: Some(run.bound),
        ..Situation::default()
    }
}

/// Returns the run after an advised change.
fn changed(point: &Point, run: RunConfig, advice: &Advice) -> RunConfig {
    let mut after = run;
    for (knob, value) in advice.setting.iter() {
        match knob {
            Knob::Threads => after.threads = value.parse().unwrap(),
            Knob::Wait => {
                after.mode = match value {
                    "auto" if after.threads + point.rivals <= point.cpus => WaitMode::Spin,
                    "auto" => WaitMode::Moment,
                    word => mode(word),
                }
            }
            Knob::Balance => after.auto = value == "auto",
            // There are then as few threads as cores, and the simulated kernel puts them there.
            Knob::Cores => {}
            other => panic!("{other}"),
        }
    }
    if after.threads == 1 {
        after.mode = WaitMode::Spin;
    }
    after
}

/// Effect of following the advice.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Taken {
    advised: u32,
    /// Number of changes that were slower by more than 2 %.
    slower: u32,
    worst: f64,
    /// Sum of the logarithms.
    gained: f64,
    /// Number of recorded ratios inside the predicted interval.
    inside: u32,
}

impl Taken {
    fn take(&mut self, was: f64, gain: Gain) {
        self.advised += 1;
        self.slower += u32::from(was > 1.02);
        self.worst = self.worst.max(was);
        self.gained += was.ln();
        self.inside += u32::from((gain.low..=gain.high).contains(&was));
    }

    fn mean(&self) -> f64 {
        (self.gained / f64::from(self.advised.max(1))).exp()
    }
}

/// All scores, by origin of the records, whether they were held out, and topic.
type Scores = BTreeMap<(&'static str, bool, Topic), (Score, Taken)>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Ratios of a program with a runtime: times over the baseline's, round by round, by thread count
/// and wait policy.
type Ratios<'a> = BTreeMap<(u32, &'a str), Vec<f64>>;

/// The runs of a program with a runtime: NAS kernels and barriers, another hour and another set of
/// programs than the other records'. No constant was set on these.
struct ProgramRuns<'a> {
    program: &'a str,
    runtime: &'a str,
    /// Seconds between barriers, with two threads.
    interval: f64,
    wake: Span,
    ratios: Ratios<'a>,
}

impl<'a> ProgramRuns<'a> {
    fn all() -> Vec<ProgramRuns<'static>> {
        let mut runs: BTreeMap<(&str, &str), ProgramRuns<'static>> = BTreeMap::new();
        // The wake-up time that `trimtab advise` measured on that machine.
        let wake = PROGRAMS.lines().find_map(|line| line.strip_prefix("# wake_ns: ")).unwrap();
        let wake = Span(wake.parse().unwrap());
        for line in lines(PROGRAMS) {
            let [program, runtime, wait, threads, interval, ratios] = line[..] else { panic!("{line:?}") };
            let of = runs.entry((program, runtime)).or_insert_with(|| ProgramRuns {
                program,
                runtime,
                interval: 0.0,
                wake,
                ratios: Ratios::new(),
            });
            of.interval = interval.parse::<f64>().unwrap() * 1e-9;
            let ratios = ratios.split(' ').map(|ratio| ratio.parse().unwrap()).collect();
            of.ratios.insert((threads.parse().unwrap(), wait), ratios);
        }
        for of in runs.values_mut() {
            // The baseline of the ratios.
            of.ratios.insert((2, "keep"), vec![1.0; 3]);
        }
        runs.into_values().collect()
    }

    fn load(&self, threads: u32, wait: &str) -> PhaseLoad {
        PhaseLoad {
            threads,
            cpus: 2,
            rivals: 0,
            step: self.interval * 2.0 / f64::from(threads),
            mode: match (wait, self.runtime) {
                ("keep", "libgomp") if threads > 2 => WaitMode::Moment,
                ("keep", "libgomp") => WaitMode::Spin,
                ("keep", _) => WaitMode::Yield,
                // Neither runtime insists on spinning if its own threads outnumber the CPUs.
                ("spin", "libgomp") if threads > 2 => WaitMode::Moment,
                ("spin", _) if threads > 2 => WaitMode::Yield,
                (word, _) => mode(word),
            },
            bound: false,
            posix: true,
            auto: false,
            wake: self.wake.seconds(),
        }
    }

    /// Returns the recorded and the predicted effect of a change, if it is in each round: otherwise
    /// it is noise.
    fn change(&self, topic: Topic, before: (u32, &str), after: (u32, &str)) -> Option<Change> {
        let (from, to) = (&self.ratios[&before], &self.ratios[&after]);
        let pairs: Vec<f64> = from.iter().zip(to).map(|(before, after)| after / before).collect();
        if !pairs.iter().all(|&pair| pair > 1.0) && !pairs.iter().all(|&pair| pair < 1.0) {
            return None;
        }
        let predicted = self.load(after.0, after.1).phase() / self.load(before.0, before.1).phase();
        Some(Change { topic, was: median(pairs), predicted })
    }

    fn changes(&self) -> Vec<Change> {
        let mut all = Vec::new();
        for wait in ["keep", "spin", "sleep"] {
            all.extend(self.change(Topic::Threads, (4, wait), (2, wait)));
            all.extend(self.change(Topic::Threads, (8, wait), (2, wait)));
        }
        for threads in [2, 4, 8] {
            all.extend(self.change(Topic::Wait, (threads, "keep"), (threads, "sleep")));
            all.extend(self.change(Topic::Wait, (threads, "spin"), (threads, "sleep")));
            all.extend(self.change(Topic::Wait, (threads, "keep"), (threads, "spin")));
        }
        all
    }

    /// Returns the recorded effect of each advised change of a run, and the predicted one.
    fn advised(&self, (threads, wait): (u32, &'a str)) -> Vec<(Topic, f64, Gain)> {
        let total = (self.interval * 2e6) as u64;
        let point =
            Point { source: self.program.to_owned(), kernel: String::new(), cpus: 2, rivals: 0, total };
        let run = RunConfig { threads, mode: self.load(threads, wait).mode, auto: false, bound: false };
        let at = Situation { wake: Some(self.wake), ..situation(&point, run) };
        let seconds = self.interval * median(self.ratios[&(threads, wait)].clone());
        let mut now = (threads, wait);
        let mut effects = Vec::new();
        for advice in advise(&profile(&point, run, seconds), &machine(), &at) {
            if advice.verdict != Conclusion::Change {
                continue;
            }
            let before = now;
            for (knob, value) in advice.setting.iter() {
                match (knob, value) {
                    (Knob::Threads, count) => now.0 = count.parse().unwrap(),
                    (Knob::Wait, "sleep") => now.1 = "sleep",
                    (Knob::Wait, "auto") => now.1 = "keep",
                    // This case was not recorded.
                    (Knob::Wait, "yield") => now.1 = "yield",
                    other => panic!("{other:?}"),
                }
            }
            let (Some(from), Some(to)) = (self.ratios.get(&before), self.ratios.get(&now)) else { continue };
            let was = median(from.iter().zip(to).map(|(before, after)| after / before).collect());
            effects.push((advice.topic, was, advice.gain.unwrap()));
        }
        effects
    }
}

/// Returns the scores of the programs.
fn programs() -> Scores {
    let mut scores = Scores::new();
    for runs in ProgramRuns::all() {
        for change in runs.changes() {
            scores.entry(("programs", true, change.topic)).or_default().0.take(&change);
        }
        for &run in runs.ratios.keys() {
            for (topic, was, gain) in runs.advised(run) {
                scores.entry(("programs", true, topic)).or_default().1.take(was, gain);
            }
        }
    }
    scores
}

fn scores() -> Scores {
    let machine = machine();
    let mut scores = programs();
    for (source, records) in [("simulated", simulated()), ("measured", live())] {
        for (point, runs) in &records {
            let held = point.is_held_out();
            for cell in cells(point, runs) {
                scores.entry((source, held, cell.topic)).or_default().0.take(&cell);
            }
            for (&run, &seconds) in runs.iter().filter(|(run, _)| !run.auto) {
                let all = advise(&profile(point, run, seconds), &machine, &situation(point, run));
                // Each piece of advice is judged after those before it.
                let mut now = run;
                for advice in all.iter().filter(|advice| advice.verdict == Conclusion::Change) {
                    let after = changed(point, now, advice);
                    let before = std::mem::replace(&mut now, after);
                    let was = runs.get(&after).zip(runs.get(&before)).map(|(after, before)| after / before);
                    if let (Some(was), Some(gain)) = (was, advice.gain) {
                        scores.entry((source, held, advice.topic)).or_default().1.take(was, gain);
                    }
                }
            }
        }
    }
    scores
}

fn machine() -> Machine {
    trimtab_core::topology::parse_synthetic("core:2").unwrap()
}

/// Formats the table of `docs/advise.md`.
fn table(scores: &Scores) -> String {
    let mut out = String::from(
        "| records | half | topic | cells above 5 % | sign right | no opinion | wrong | advised | slower by 2 % | worst | mean ratio | inside |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for ((source, held, topic), (score, taken)) in scores {
        let half = if *held { "held out" } else { "calibration" };
        let Score { cells, right, silent } = *score;
        let part = |number: u32, of: u32| match of {
            0 => "-".to_owned(),
            _ => format!("{:.1} %", 100.0 * f64::from(number) / f64::from(of)),
        };
        let number = |value: f64| if taken.advised == 0 { "-".to_owned() } else { format!("{value:.2}") };
        let _ = writeln!(
            out,
            "| {source} | {half} | {topic} | {cells} | {} | {} | {} | {} | {} | {} | {} | {} |",
            part(right, cells),
            part(silent, cells),
            part(cells - right - silent, cells),
            taken.advised,
            taken.slower,
            number(taken.worst),
            number(taken.mean()),
            part(taken.inside, taken.advised),
        );
    }
    out
}

#[test]
fn the_published_table_equals_the_computed_one() {
    let table = table(&scores());
    let published = include_str!("../../../docs/advise.md");
    assert!(published.contains(&table), "docs/advise.md has another table than this:\n{table}");
}

/// Sums one half over all topics, without the second set.
fn sum(held: bool) -> (Score, Taken) {
    let mut all = (Score::default(), Taken::default());
    for ((source, half, _), (score, taken)) in scores() {
        if half == held && source != "programs" {
            all.0.cells += score.cells;
            all.0.right += score.right;
            all.0.silent += score.silent;
            all.1.advised += taken.advised;
            all.1.slower += taken.slower;
            all.1.worst = all.1.worst.max(taken.worst);
        }
    }
    all
}

#[test]
fn predictions_of_held_out_cells_have_the_right_sign_in_nine_of_ten() {
    let (score, _) = sum(true);
    assert!(score.cells > 1000);
    let predicted = score.cells - score.silent;
    assert!(f64::from(score.right) >= 0.9 * f64::from(predicted), "{score:?}");
}

#[test]
fn advice_makes_no_held_out_cell_slower_by_more_than_two_percent() {
    let (_, taken) = sum(true);
    assert!(taken.advised > 100, "{taken:?}");
    assert_eq!(taken.slower, 0, "{taken:?}");
}
