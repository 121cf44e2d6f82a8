//! Policy, events, arrivals and faults of a scenario file.

use super::{END, SEED, ScenarioMachine, programs};
use crate::faults::Faults;
use crate::observer_cost::ObserverCost;
use crate::program::ProgramSpec;
use crate::reader::{CountLimits, FileError, NumberLimits, Section, TimeLimits, write_time};
use crate::scenario::{Arrivals, Happening, ScenarioEvent};
use std::collections::BTreeMap;
use trimtab_core::balance::{BiasReading, Candidates, Kind, PenaltySettings, Settings};
use trimtab_core::observe::Metric;
use trimtab_core::penalty::{Index, Mean};
use trimtab_core::time::{Moment, Span};

/// Highest number of streams of arrivals, and of events.
const MOST_STREAMS: usize = 1_000;
const MOST_EVENTS: usize = 100_000;
/// Highest number of jobs that arrive, of one stream and of all.
const MOST_JOBS: u64 = 1_000_000;
const JOBS: CountLimits = CountLimits::new(1, MOST_JOBS, "jobs");
/// Limits of the time between two jobs.
const EVERY: TimeLimits = TimeLimits::new(Span::from_us(1), Span::from_ms(86_400_000));
/// Limits of the time between two samples, as in `trimtab run --interval`.
const INTERVAL: TimeLimits = TimeLimits::new(Span::from_ms(1), Span::from_ms(3_600_000));
const THRESHOLD: NumberLimits = NumberLimits::new(0.01, 1.0, "parts of the mean speed");
const MARGIN: NumberLimits = NumberLimits::new(0.0, 0.9, "parts of the index");
const BUDGET: NumberLimits = NumberLimits::new(0.0001, 1.0, "parts of a CPU");
const MOVES: NumberLimits = NumberLimits::new(0.0, 1e6, "moves a second");
const PROBABILITY: NumberLimits = NumberLimits::new(0.0, 1.0, "probabilities");
/// Limits of the cost of a sample, and of the error of its counts.
const PRICE: TimeLimits = TimeLimits::new(Span::ZERO, Span::from_ms(1_000));
const NOISE: NumberLimits = NumberLimits::new(0.0, 10.0, "parts of the counts");
/// Limits of the delay of a sample.
const LATE: TimeLimits = TimeLimits::new(Span::ZERO, Span::from_ms(60_000));

pub(super) const METRICS: [(&str, Metric); 2] =
    [("run-wait", Metric::RunWait), ("cpu-share", Metric::CpuShare)];

/// Reads `policy`: a word, or a table with `kind` and the keys that differ from the defaults.
/// Random numbers come from the scenario's seed.
pub(super) fn policy(
    top: &Section<'_>,
    seed: u64,
) -> Result<(Option<(Kind, Settings)>, ObserverCost), FileError> {
    if !top.is_section("policy") {
        let kind = kind(top, "policy")?.unwrap_or(None);
        return Ok((
            kind.map(|kind| (kind, Settings { seed, ..Settings::of(kind) })),
            ObserverCost::default(),
        ));
    }
    let section = top.needed_section("policy")?;
    let kind = kind(&section, "kind")?;
    let kind = kind.ok_or_else(|| section.error("kind", "is missing: the name of a policy is needed"))?;
    let settings = kind.map_or_else(Settings::default, Settings::of);
    let settings = Settings {
        seed: section.count("seed", SEED)?.unwrap_or(seed),
        interval: section.time("interval", INTERVAL)?.unwrap_or(settings.interval),
        metric: section.one_of("metric", &METRICS)?.unwrap_or(settings.metric),
        threshold: section.number("threshold", THRESHOLD)?.unwrap_or(settings.threshold),
        across_nodes: section.flag("across_nodes")?.unwrap_or(settings.across_nodes),
        free: section.flag("free")?.unwrap_or(settings.free),
        penalty: penalty(&section)?,
    };
    let observer_cost = observer_cost(&section)?;
    section.finish()?;
    Ok((kind.map(|kind| (kind, settings)), observer_cost))
}

fn observer_cost(section: &Section<'_>) -> Result<ObserverCost, FileError> {
    let price = |key| Ok::<Span, FileError>(section.time(key, PRICE)?.unwrap_or(Span::ZERO));
    Ok(ObserverCost {
        each: price("look")?,
        thread: price("look_thread")?,
        pair: price("look_pair")?,
        inside: section.flag("look_inside")?.unwrap_or(false),
        noise: section.number("look_noise", NOISE)?.unwrap_or(0.0),
    })
}

/// Reads the settings of the policies of the uncore penalty; other policies ignore them.
fn penalty(section: &Section<'_>) -> Result<PenaltySettings, FileError> {
    let usual = PenaltySettings::default();
    Ok(PenaltySettings {
        index: section.one_of("index", &Index::ALL.map(|index| (index.word(), index)))?,
        mean: section.one_of("mean", &Mean::ALL.map(|mean| (mean.word(), mean)))?,
        candidates: section
            .one_of("candidates", &Candidates::ALL.map(|one| (one.word(), one)))?
            .unwrap_or(usual.candidates),
        move_memory: section.flag("move_memory")?.unwrap_or(usual.move_memory),
        margin: section.number("margin", MARGIN)?.unwrap_or(usual.margin),
        budget: section.number("budget", BUDGET)?.unwrap_or(usual.budget),
        moves: section.number("moves", MOVES)?,
        bounded: section.flag("bounded")?.unwrap_or(usual.bounded),
        bias: section.one_of("bias", &BiasReading::ALL.map(|one| (one.word(), one)))?.unwrap_or(usual.bias),
    })
}

fn kind(section: &Section<'_>, key: &'static str) -> Result<Option<Option<Kind>>, FileError> {
    let mut words = vec![("none", None)];
    words.extend(Kind::ALL.map(|kind| (kind.word(), Some(kind))));
    section.one_of(key, &words)
}

pub(super) fn arrivals(
    top: &Section<'_>,
    ground: &ScenarioMachine,
    end: Moment,
) -> Result<Vec<Arrivals>, FileError> {
    let mut all = Vec::new();
    let (mut jobs, mut threads) = (0, 0);
    for section in top.sections("arrivals", MOST_STREAMS)? {
        let every = section.needed_time("every", EVERY)?;
        if Moment(0) + every > end {
            let end = write_time(end.since(Moment(0)));
            let problem = format!(
                "is longer than the whole run, end = \"{end}\": hardly one would come; up to the end is allowed"
            );
            return Err(section.error("every", problem));
        }
        let most = section.needed_count("most", JOBS)? as u32;
        let program = programs::one(&section, ground, "job")?;
        jobs += u64::from(most);
        threads += u64::from(most) * programs::threads(&program);
        if jobs > MOST_JOBS {
            let problem =
                format!("with the streams before, {jobs} jobs would come: up to {MOST_JOBS} are allowed");
            return Err(section.error("most", problem));
        }
        if threads > programs::MOST_COMING {
            let problem = format!(
                "with the streams before, {threads} threads would come: up to {} are allowed",
                programs::MOST_COMING
            );
            return Err(section.error("most", problem));
        }
        section.finish()?;
        all.push(Arrivals { program, every, most });
    }
    Ok(all)
}

pub(super) fn events(
    top: &Section<'_>,
    ground: &ScenarioMachine,
    known: &[ProgramSpec],
    end: Moment,
) -> Result<Vec<ScenarioEvent>, FileError> {
    let mut all = Vec::new();
    for section in top.sections("event", MOST_EVENTS)? {
        let at = Moment(0) + section.needed_time("at", TimeLimits::new(Span::ZERO, END.high))?;
        let at = programs::before(&section, "at", at, end)?;
        let usable = section.cpus("usable", &ground.cpus)?.map(Happening::Usable);
        // The program that it stops is known only after all starts are read.
        let stop = stop(&section)?.then_some(Happening::Stop(usize::MAX));
        let start = match section.section("start")? {
            Some(inner) => {
                let program = programs::one(&inner, ground, "started")?;
                inner.finish()?;
                Some(Happening::Start(Box::new(program)))
            }
            None => None,
        };
        let mut given = [usable, stop, start].into_iter().flatten();
        let (Some(what), None) = (given.next(), given.next()) else {
            return Err(section.error("at", "exactly one of usable, stop and start is needed with it"));
        };
        all.push((section, ScenarioEvent { at, what }));
    }
    // Of events at one moment, the one written first happens first.
    all.sort_by_key(|(_, event)| event.at);
    let starts = all.iter().enumerate().filter_map(|(at, (_, event))| match &event.what {
        Happening::Start(program) => Some((program.name.clone(), at)),
        Happening::Usable(_) | Happening::Stop(_) => None,
    });
    // A program's name, and the place of the event that starts it.
    let known = StoppablePrograms::of(
        known
            .iter()
            .map(|program| (program.name.clone(), None))
            .chain(starts.map(|(name, at)| (name, Some(at)))),
    );
    let mut events = Vec::with_capacity(all.len());
    for (at, (section, mut event)) in all.into_iter().enumerate() {
        if let Happening::Stop(place) = &mut event.what {
            *place = known.stopped(&section)?;
            if known.starts[*place].is_some_and(|start| start > at) {
                let problem = "this program is started by a later event: stop it after that";
                return Err(section.error("stop", problem));
            }
        }
        section.finish()?;
        events.push(event);
    }
    Ok(events)
}

/// Returns whether an event stops a program.
fn stop(section: &Section<'_>) -> Result<bool, FileError> {
    Ok(section.is_number("stop") || section.words("stop")?.is_some())
}

/// Programs that may be stopped, in order of their places.
struct StoppablePrograms {
    /// Place of the event that starts the program, if there is one.
    starts: Vec<Option<usize>>,
    /// By name: the first program that has it, and the next one.
    names: BTreeMap<String, (usize, Option<usize>)>,
}

impl StoppablePrograms {
    fn of(programs: impl Iterator<Item = (String, Option<usize>)>) -> Self {
        let mut known = Self { starts: Vec::new(), names: BTreeMap::new() };
        for (place, (name, start)) in programs.enumerate() {
            known.starts.push(start);
            known
                .names
                .entry(name)
                .and_modify(|(_, next)| *next = next.or(Some(place)))
                .or_insert((place, None));
        }
        known
    }

    /// Returns the program that an event stops: by its name, or its place from 1.
    fn stopped(&self, section: &Section<'_>) -> Result<usize, FileError> {
        if section.is_number("stop") {
            let places = CountLimits::new(1, self.starts.len() as u64, "places of programs");
            return Ok(section.needed_count("stop", places)? as usize - 1);
        }
        let problem = match self.names.get(section.words("stop")?.unwrap_or_default()) {
            Some((place, None)) => return Ok(*place),
            Some((place, Some(next))) => format!(
                "several programs have this name: give them different ones, or say which by its place, stop = {} or {}",
                place + 1,
                next + 1
            ),
            None => {
                let names: Vec<&str> = self.names.keys().take(20).map(String::as_str).collect();
                format!("no program has this name; there are {}", names.join(", "))
            }
        };
        Err(section.error("stop", problem))
    }
}

pub(super) fn faults(top: &Section<'_>) -> Result<Faults, FileError> {
    let Some(section) = top.section("faults")? else { return Ok(Faults::default()) };
    let probability = |key: &'static str| Ok(section.number(key, PROBABILITY)?.unwrap_or(0.0));
    let faults = Faults {
        lost: probability("lost")?,
        stale: probability("stale")?,
        refused: probability("refused")?,
        delayed: probability("delayed")?,
        late: section.time("late", LATE)?.unwrap_or(Span::ZERO),
        jumps: probability("jumps")?,
        until: section.time("until", TimeLimits::new(Span::ZERO, END.high))?.map(|until| Moment(0) + until),
    };
    section.finish()?;
    Ok(faults)
}
