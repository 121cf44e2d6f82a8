//! Writer of scenario files, which are read again as the same scenario.
//!
//! Machines and kernels are written as a base with the keys that differ. The text is read back and
//! compared before it is returned, so that a written file has exactly its scenario.

mod machine;

use super::File;
use super::happenings::METRICS;
use super::machines::{KINDS, ORDERS, YIELDINGS};
use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::observer_cost::ObserverCost;
use crate::program::{Bind, Body, Footprint, PagePlacement, ProgramSpec, WaitMode};
use crate::reader::write_time;
use crate::scenario::{Happening, Scenario, ScenarioEvent};
use std::fmt::{Display, Write as _};
use thiserror::Error;
use toml::Value;
use trimtab_core::balance::Settings;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Error: a scenario cannot be a file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the scenario cannot be written as a file: {0}")]
pub struct Unwritable(String);

/// Writes a scenario.
///
/// # Errors
/// [`Unwritable`] if it holds a value that no file may hold: one beyond the limits, or a machine
/// that no description gives.
pub fn write(scenario: &Scenario) -> Result<String, Unwritable> {
    let mut out = Out::default();
    out.text("name", &scenario.name);
    let machine = machine::written(&scenario.model).ok_or_else(|| {
        Unwritable(format!("no description gives the machine {}", scenario.model.machine.name()))
    })?;
    if machine.starts_with('[') {
        out.tables.push_str(&machine)
    } else {
        out.head.push_str(&machine)
    }
    kernel(&mut out, &scenario.kernel, scenario.model.machine.pu_count());
    policy(&mut out, scenario);
    out.time("end", since_start(scenario.end));
    out.bare("seed", scenario.seed);
    if !scenario.memory {
        out.bare("memory", false);
    }
    for one in &scenario.programs {
        out.section("[[program]]");
        if one.start > Moment(0) {
            out.time("start", since_start(one.start));
        }
        program(&mut out, "program", one);
    }
    for arrivals in &scenario.arrivals {
        out.section("[[arrivals]]");
        out.time("every", arrivals.every);
        out.bare("most", arrivals.most);
        program(&mut out, "arrivals", &arrivals.program);
    }
    for one in &scenario.events {
        event(&mut out, one);
    }
    faults(&mut out, &scenario.faults);
    let text = out.head + &out.tables;
    let read = File::open("written", &text, &[], &mut |_| Err("no other file is read".to_owned()));
    let read = read.and_then(|file| file.scenario(0)).map_err(|error| Unwritable(error.to_string()))?;
    if read == *scenario { Ok(text) } else { Err(Unwritable("it would be read as another one".to_owned())) }
}

fn since_start(moment: Moment) -> Span {
    moment.since(Moment(0))
}

/// Text so far: keys of the file itself, and then its sections.
#[derive(Default)]
struct Out {
    head: String,
    tables: String,
    /// Whether the first section has begun.
    below: bool,
}

impl Out {
    fn section(&mut self, header: &str) {
        self.below = true;
        let _ = writeln!(self.tables, "\n{header}");
    }

    fn bare(&mut self, key: &str, value: impl Display) {
        let to = if self.below { &mut self.tables } else { &mut self.head };
        let _ = writeln!(to, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.bare(key, quoted(value));
    }

    fn time(&mut self, key: &str, value: Span) {
        self.text(key, &write_time(value));
    }

    fn number(&mut self, key: &str, value: f64) {
        self.bare(key, number(value));
    }
}

/// Returns a text in quotes.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Returns a number in a form that is read again as the same.
fn number(value: f64) -> String {
    format!("{value:?}")
}

/// Returns the word for a value.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

fn kernel(out: &mut Out, kernel: &Kernel, cpus: usize) {
    let own = kernel_keys(kernel);
    let differing = |preset: &Kernel| -> Vec<(&'static str, String)> {
        let preset = kernel_keys(preset);
        own.iter().filter(|key| !preset.contains(key)).cloned().collect()
    };
    let presets = Kernel::PRESETS.iter().filter_map(|name| Some((*name, Kernel::preset(name, cpus).ok()?)));
    let nearest = presets.map(|(name, preset)| (name, differing(&preset))).min_by_key(|(_, keys)| keys.len());
    let (name, keys) = nearest.unwrap_or_default();
    inline(out, "kernel", "preset", name, &keys);
}

fn kernel_keys(kernel: &Kernel) -> Vec<(&'static str, String)> {
    let time = |span: Span| quoted(&write_time(span));
    vec![
        ("kind", quoted(word(&KINDS, &kernel.kind))),
        ("order", quoted(word(&ORDERS, &kernel.order))),
        ("tick", time(kernel.tick)),
        ("slice", time(kernel.slice)),
        ("latency", time(kernel.latency)),
        ("wakeup", time(kernel.wakeup)),
        ("yielding", quoted(word(&YIELDINGS, &kernel.yielding))),
        ("balance", time(kernel.balance)),
        ("busy_factor", kernel.busy_factor.to_string()),
        ("groups", kernel.groups.to_string()),
        ("idle_pull", kernel.idle_pull.to_string()),
        ("idle_least", time(kernel.idle_least)),
        ("idle_odds", kernel.idle_odds.to_string()),
        ("spread", kernel.spread.to_string()),
    ]
}

/// Writes a word, or a table of one line with the word and the keys that differ.
fn inline(out: &mut Out, key: &str, short: &str, word: &str, keys: &[(&str, String)]) {
    let mut text = quoted(word);
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        text = format!("{{ {short} = {text}, {} }}", keys.join(", "));
    }
    let _ = writeln!(out.head, "{key} = {text}");
}

fn policy(out: &mut Out, scenario: &Scenario) {
    let Some((kind, settings)) = &scenario.policy else { return };
    let keys = |settings: &Settings| {
        let penalty = &settings.penalty;
        let index = penalty.index.map(|index| ("index", quoted(index.word())));
        let mean = penalty.mean.map(|mean| ("mean", quoted(mean.word())));
        let mut keys = vec![
            ("seed", settings.seed.to_string()),
            ("interval", quoted(&write_time(settings.interval))),
            ("metric", quoted(word(&METRICS, &settings.metric))),
            ("threshold", number(settings.threshold)),
            ("across_nodes", settings.across_nodes.to_string()),
            ("free", settings.free.to_string()),
            ("candidates", quoted(penalty.candidates.word())),
            ("move_memory", penalty.move_memory.to_string()),
            ("margin", number(penalty.margin)),
            ("budget", number(penalty.budget)),
            ("bounded", penalty.bounded.to_string()),
            ("bias", quoted(penalty.bias.word())),
        ];
        let moves = penalty.moves.map(|moves| ("moves", number(moves)));
        keys.extend(index.into_iter().chain(mean).chain(moves));
        keys
    };
    let usual = keys(&Settings { seed: scenario.seed, ..Settings::of(*kind) });
    let mut own: Vec<_> = keys(settings).into_iter().filter(|key| !usual.contains(key)).collect();
    let ObserverCost { each, thread, pair, inside, noise } = scenario.observer_cost;
    let prices = [("look", each), ("look_thread", thread), ("look_pair", pair)];
    let priced = prices.into_iter().filter(|(_, price)| *price > Span::ZERO);
    own.extend(priced.map(|(key, price)| (key, quoted(&write_time(price)))));
    own.extend((noise > 0.0).then(|| ("look_noise", number(noise))));
    own.extend(inside.then(|| ("look_inside", inside.to_string())));
    inline(out, "policy", "kind", kind.word(), &own);
}

fn program(out: &mut Out, path: &str, program: &ProgramSpec) {
    out.text("name", &program.name);
    let kind = match program.body {
        Body::Spmd { .. } => "spmd",
        Body::Nested { .. } => "nested",
        Body::Teams { .. } => "teams",
        Body::Hog { .. } => "hog",
        Body::Churn { .. } => "churn",
    };
    out.text("kind", kind);
    out.bare("threads", program.threads);
    match &program.body {
        Body::Spmd { work, interval, imbalance, jitter } => {
            out.time("work", *work);
            if let Some(interval) = interval {
                out.time("interval", *interval);
            }
            for (key, value) in [("imbalance", *imbalance), ("jitter", *jitter)] {
                if value != 0.0 {
                    out.number(key, value);
                }
            }
        }
        Body::Nested { inner, regions, work } => {
            out.bare("inner", inner);
            out.bare("regions", regions);
            out.time("work", *work);
        }
        Body::Teams { regions, work, pause, hold } => {
            out.bare("regions", regions);
            out.time("work", *work);
            if let Some(pause) = pause {
                out.time("pause", *pause);
            }
            if let Some(hold) = hold {
                out.bare("hold", hold);
            }
        }
        Body::Hog { duty } => {
            if let Some((works, sleeps)) = duty {
                out.time("works", *works);
                out.time("sleeps", *sleeps);
            }
        }
        Body::Churn { at_once, work, jobs } => {
            out.bare("at_once", at_once);
            out.time("work", *work);
            if let Some(jobs) = jobs {
                out.bare("jobs", jobs);
            }
        }
    }
    match program.wait {
        WaitMode::Spin => out.text("wait", "spin"),
        WaitMode::Yield => out.text("wait", "yield"),
        WaitMode::Sleep => out.text("wait", "sleep"),
        WaitMode::SpinThenSleep(patience) => {
            out.text("wait", "spin-then-sleep");
            out.time("spin_for", patience);
        }
    }
    if let Some(mask) = &program.mask {
        out.text("mask", &mask.to_string());
    }
    match &program.bind {
        Bind::Free => {}
        Bind::Close => out.text("bind", "close"),
        Bind::Spread => out.text("bind", "spread"),
        Bind::List(sets) => out.bare("bind", cpu_sets(sets)),
        Bind::BeginOn(sets) => out.bare("begin_on", cpu_sets(sets)),
    }
    out.bare("balanced", program.balanced);
    out.bare("weight", program.weight);
    out.bare("group", program.group);
    if program.footprint != Footprint::default() {
        footprint(out, path, &program.footprint);
    }
}

fn cpu_sets(sets: &[CpuSet]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| quoted(&set.to_string())).collect();
    format!("[{}]", sets.join(", "))
}

fn footprint(out: &mut Out, path: &str, footprint: &Footprint) {
    out.section(&format!("[{path}.footprint]"));
    out.bare("working_set", footprint.working_set);
    out.number("misses", footprint.misses);
    out.number("parallelism", footprint.parallelism);
    out.number("locality", footprint.locality);
    out.bare("shared", footprint.shared);
    out.number("shared_writes", footprint.shared_writes);
    let pages = match footprint.pages {
        PagePlacement::FirstTouch => "first-touch".to_owned(),
        PagePlacement::Master => "master".to_owned(),
        PagePlacement::Interleave => "interleave".to_owned(),
        PagePlacement::Node(node) => format!("node {node}"),
    };
    out.text("pages", &pages);
}

fn event(out: &mut Out, event: &ScenarioEvent) {
    out.section("[[event]]");
    out.time("at", since_start(event.at));
    match &event.what {
        Happening::Usable(cpus) => out.text("usable", &cpus.to_string()),
        // By its place, because names need not differ.
        Happening::Stop(at) => out.bare("stop", at + 1),
        Happening::Start(started) => {
            out.section("[event.start]");
            program(out, "event.start", started);
        }
    }
}

fn faults(out: &mut Out, faults: &Faults) {
    if *faults == Faults::default() {
        return;
    }
    out.section("[faults]");
    let Faults { lost, stale, refused, delayed, late, jumps, until } = *faults;
    for (key, value) in
        [("lost", lost), ("stale", stale), ("refused", refused), ("delayed", delayed), ("jumps", jumps)]
    {
        if value != 0.0 {
            out.number(key, value);
        }
    }
    if late > Span::ZERO {
        out.time("late", late);
    }
    if let Some(until) = until {
        out.time("until", since_start(until));
    }
}
