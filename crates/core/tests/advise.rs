//! How good the advice is: predictions and advice over recorded cells, half of which the constants were set on and half of which they never saw.
//!
//! A *point* is a program of fixed work with fixed meetings, beside fixed others, on one machine and kernel; it was run with several counts of threads, ways
//! to wait, with and without a policy. A *cell* is one change of one of these at a point. Points are held out by a hash of what they are, so that no
//! cell of a held-out point was seen. `docs/advise.md` has the table, and a test here
//! compares it with what it computes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of it is test")]

use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use trimtab_core::advise::load::{Load, WAKE, Way};
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

/// What is the same of all runs of a point.
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
    /// FNV-1a of what it is; odd ones are held out.
    fn is_held_out(&self) -> bool {
        let Self { source, kernel, cpus, rivals, total } = self;
        let text = format!("{source}/{kernel}/{cpus}/{rivals}/{total}");
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash % 2 == 1
    }
}

/// How it was run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Run {
    threads: u32,
    way: Way,
    auto: bool,
    bound: bool,
}

/// Seconds of each run of each point.
type Records = BTreeMap<Point, BTreeMap<Run, f64>>;

fn way(word: &str) -> Way {
    match word {
        "spin" => Way::Spin,
        "yield" => Way::Yield,
        "sleep" => Way::Sleep,
        "moment" | "hyb" => Way::Moment,
        other => panic!("{other}"),
    }
}

/// Lines without remarks and heading, as words.
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
        let run = Run {
            threads: threads.parse().unwrap(),
            way: way(wait),
            auto: policy == "auto",
            bound: bound == "1",
        };
        let seconds = seconds.parse::<f64>().unwrap() / phases.parse::<f64>().unwrap();
        records.entry(point).or_default().insert(run, seconds);
    }
    records
}

/// What was measured: Linux alone, bound threads and `auto`; beside nobody or a hog that may go anywhere.
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
            let run = Run { threads, way: way(wait), auto: how == "auto", bound: how == "pinned" };
            let ideal = step as f64 * 1e-6 * f64::from(threads + rivals) / 2.0;
            records.entry(point).or_default().insert(run, median.parse::<f64>().unwrap() * ideal);
        }
    }
    records
}

fn load(point: &Point, run: Run, rivals: u32) -> Load {
    Load {
        threads: run.threads,
        cpus: point.cpus,
        rivals,
        step: point.total as f64 * 1e-6 / f64::from(run.threads),
        way: run.way,
        bound: run.bound,
        posix: point.kernel != "linux-6.1",
        auto: run.auto,
        wake: WAKE,
    }
}

/// A change: what was recorded of it, and what is predicted.
struct Cell {
    topic: Topic,
    was: f64,
    predicted: f64,
}

/// Each change of one thing at a point, each pair of ways once.
fn cells(point: &Point, runs: &BTreeMap<Run, f64>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (&run, &seconds) in runs {
        let mut add = |topic, other: Run, rivals| {
            let Some(&after) = runs.get(&other) else { return };
            // A program on fewer cores keeps out of the strangers' way.
            let predicted = load(point, other, rivals).phase() / load(point, run, point.rivals).phase();
            cells.push(Cell { topic, was: after / seconds, predicted });
        };
        for way in Way::ALL.into_iter().filter(|&way| way > run.way && !run.auto) {
            add(Topic::Wait, Run { way, ..run }, point.rivals);
        }
        if run.auto {
            continue;
        }
        add(Topic::Balance, Run { auto: true, ..run }, point.rivals);
        if run.bound {
            continue;
        }
        if run.threads > point.cpus {
            add(Topic::Threads, Run { threads: point.cpus, ..run }, point.rivals);
        }
        if point.rivals > 0 && point.rivals < point.cpus && run.threads >= point.cpus {
            let threads = point.cpus - point.rivals;
            let way = if threads == 1 { Way::Spin } else { run.way };
            add(Topic::Sharing, Run { threads, way, ..run }, 0);
        }
    }
    cells
}

/// Counts over cells whose effect is above 5 %.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Score {
    cells: u32,
    right: u32,
    /// The effect that is predicted is below 2 %: that is no wrong sign, and no right one.
    silent: u32,
}

impl Score {
    fn take(&mut self, cell: &Cell) {
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

/// A profile of a run as it would be measured: in its setting, with its time.
fn profile(point: &Point, run: Run, seconds: f64) -> Profile {
    let phases = 1000;
    let step = point.total as f64 * 1e-6 / f64::from(run.threads);
    let span = |seconds: f64| Span((seconds * 1e9) as u64);
    let word = match run.way {
        Way::Spin => "spin",
        Way::Yield => "yield",
        Way::Sleep => "sleep",
        Way::Moment => "auto",
    };
    let phase = span(seconds);
    // What of a phase is neither work nor waiting is time without a CPU; guests cannot tell both apart, so all of it is called waiting.
    let waiting = (1.0 - step / seconds).clamp(0.0, 1.0);
    Profile {
        setting: Setting::new().with(Knob::Wait, word).unwrap(),
        cpus: point.cpus,
        cores: point.cpus,
        wall: span(seconds * f64::from(phases)),
        user: span(step * f64::from(phases * run.threads)),
        workers: run.threads,
        // One that does what it is told.
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

fn situation(point: &Point, run: Run) -> Situation {
    Situation {
        cpus: point.cpus,
        others: Some(f64::from(point.rivals)),
        yields: if point.kernel == "linux-6.1" { Yield::Weak { share: 0.5 } } else { Yield::Posix },
        bound: Some(run.bound),
        ..Situation::default()
    }
}

/// A run after a change that was advised for it.
fn changed(point: &Point, run: Run, advice: &Advice) -> Run {
    let mut after = run;
    for (knob, value) in advice.setting.iter() {
        match knob {
            Knob::Threads => after.threads = value.parse().unwrap(),
            Knob::Wait => {
                after.way = match value {
                    "auto" if after.threads + point.rivals <= point.cpus => Way::Spin,
                    "auto" => Way::Moment,
                    word => way(word),
                }
            }
            Knob::Balance => after.auto = value == "auto",
            // Threads are as few as cores then, and the simulated kernel puts them there.
            Knob::Cores => {}
            other => panic!("{other}"),
        }
    }
    if after.threads == 1 {
        after.way = Way::Spin;
    }
    after
}

/// What became of advice.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Taken {
    advised: u32,
    /// Slower by more than 2 %.
    slower: u32,
    worst: f64,
    /// Sum of the logarithms.
    gained: f64,
    /// Recorded ratio inside the interval that was told.
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

/// All scores: by where records are from, whether they were held out, and topic.
type Scores = BTreeMap<(&'static str, bool, Topic), (Score, Taken)>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of a program by a runtime: times over the baseline's, round by round, by threads and how they wait.
type Ratios<'a> = BTreeMap<(u32, &'a str), Vec<f64>>;

/// Another hour, another set of programs: NAS kernels and barriers by two runtimes, none of which any constant was set on.
fn programs() -> Scores {
    let mut scores = Scores::new();
    let mut runs: BTreeMap<(&str, &str), Ratios<'_>> = BTreeMap::new();
    let mut intervals = BTreeMap::new();
    // What `trimtab advise` measured on that machine.
    let wake = PROGRAMS.lines().find_map(|line| line.strip_prefix("# wake_ns: ")).unwrap().parse().unwrap();
    let wake = Span(wake);
    for line in lines(PROGRAMS) {
        let [program, runtime, wait, threads, interval, ratios] = line[..] else { panic!("{line:?}") };
        let ratios = ratios.split(' ').map(|ratio| ratio.parse().unwrap()).collect();
        runs.entry((program, runtime)).or_default().insert((threads.parse().unwrap(), wait), ratios);
        intervals.insert((program, runtime), interval.parse::<f64>().unwrap() * 1e-9);
    }
    for (which, mut ways) in runs {
        // What ratios are to.
        ways.insert((2, "keep"), vec![1.0; 3]);
        let load = |threads: u32, wait: &str| Load {
            threads,
            cpus: 2,
            rivals: 0,
            step: intervals[&which] * 2.0 / f64::from(threads),
            way: match (wait, which.1) {
                ("keep", "libgomp") if threads > 2 => Way::Moment,
                ("keep", "libgomp") => Way::Spin,
                ("keep", _) => Way::Yield,
                // Neither insists where its own threads crowd.
                ("spin", "libgomp") if threads > 2 => Way::Moment,
                ("spin", _) if threads > 2 => Way::Yield,
                (word, _) => way(word),
            },
            bound: false,
            posix: true,
            auto: false,
            wake: wake.seconds(),
        };
        let mut take = |topic, before: (u32, &str), after: (u32, &str)| {
            let pairs: Vec<f64> =
                ways[&before].iter().zip(&ways[&after]).map(|(before, after)| after / before).collect();
            // An effect that is not there in each round is noise.
            if !pairs.iter().all(|&pair| pair > 1.0) && !pairs.iter().all(|&pair| pair < 1.0) {
                return;
            }
            let predicted = load(after.0, after.1).phase() / load(before.0, before.1).phase();
            let cell = Cell { topic, was: median(pairs), predicted };
            scores.entry(("programs", true, topic)).or_default().0.take(&cell);
        };
        for wait in ["keep", "spin", "sleep"] {
            take(Topic::Threads, (4, wait), (2, wait));
            take(Topic::Threads, (8, wait), (2, wait));
        }
        let wanted: Vec<(u32, &str)> = ways.keys().copied().collect();
        for threads in [2, 4, 8] {
            take(Topic::Wait, (threads, "keep"), (threads, "sleep"));
            take(Topic::Wait, (threads, "spin"), (threads, "sleep"));
            take(Topic::Wait, (threads, "keep"), (threads, "spin"));
        }
        for (threads, wait) in wanted {
            let total = (intervals[&which] * 2e6) as u64;
            let point =
                Point { source: which.0.to_owned(), kernel: String::new(), cpus: 2, rivals: 0, total };
            let run = Run { threads, way: load(threads, wait).way, auto: false, bound: false };
            let at = Situation { wake: Some(wake), ..situation(&point, run) };
            let seconds = intervals[&which] * median(ways[&(threads, wait)].clone());
            let all = advise(&profile(&point, run, seconds), &machine(), &at);
            let mut now = (threads, wait);
            for advice in all.iter().filter(|advice| advice.verdict == Conclusion::Change) {
                let before = now;
                for (knob, value) in advice.setting.iter() {
                    match (knob, value) {
                        (Knob::Threads, count) => now.0 = count.parse().unwrap(),
                        (Knob::Wait, "sleep") => now.1 = "sleep",
                        (Knob::Wait, "auto") => now.1 = "keep",
                        // Was not recorded.
                        (Knob::Wait, "yield") => now.1 = "yield",
                        other => panic!("{other:?}"),
                    }
                }
                let (Some(before), Some(after)) = (ways.get(&before), ways.get(&now)) else { continue };
                let was = median(before.iter().zip(after).map(|(before, after)| after / before).collect());
                let gain = advice.gain.unwrap();
                scores.entry(("programs", true, advice.topic)).or_default().1.take(was, gain);
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
                // Each piece is judged after those before it.
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

/// The table of `docs/advise.md`.
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
fn the_published_table_is_what_is_computed() {
    let table = table(&scores());
    let published = include_str!("../../../docs/advise.md");
    assert!(published.contains(&table), "docs/advise.md has another table than this:\n{table}");
}

/// Of one half, over all topics, without the second set.
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
fn what_is_predicted_of_held_out_cells_has_the_right_sign_in_nine_of_ten() {
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
