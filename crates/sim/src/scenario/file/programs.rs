//! Programs of a scenario file.

use super::{END, ScenarioMachine};
use crate::program::{Bind, Body, Footprint, PagePlacement, ProgramSpec, WaitMode, nas};
use crate::reader::{CountLimits, FileError, NumberLimits, Section, TimeLimits, write_time};
use crate::scenario::{Happening, ScenarioEvent};
use trimtab_core::time::{Moment, Span};

/// Highest number of programs, copies included.
const MOST_PROGRAMS: usize = 10_000;
/// Highest number of threads of a scenario at a time, except those that arrive.
pub(super) const MOST_THREADS: u64 = 1 << 16;
/// Highest number of threads that arrive one after the other, of all streams. Each is kept to the
/// end of the run.
pub(super) const MOST_COMING: u64 = 4_000_000;

const THREADS: CountLimits = CountLimits::new(1, MOST_THREADS, "threads");
const COPIES: CountLimits = CountLimits::new(1, MOST_PROGRAMS as u64, "copies");
const REGIONS: CountLimits = CountLimits::new(1, 1_000_000_000, "regions");
const JOBS: CountLimits = CountLimits::new(1, u32::MAX as u64, "jobs");
/// `nice` from 19 to -20.
const WEIGHT: CountLimits = CountLimits::new(15, 88_761, "weights");
const GROUP: CountLimits = CountLimits::new(0, u32::MAX as u64, "groups");
const HOLD: CountLimits = CountLimits::new(0, u32::MAX as u64, "numbers of holds");
/// Limits of work, and of waiting times.
const WORK: TimeLimits = TimeLimits::new(Span::from_us(1), Span::from_ms(360_000_000));
const PATIENCE: TimeLimits = TimeLimits::new(Span::ZERO, END.high);
/// Limits of the imbalance: a thread may have nearly nothing, or twice its share.
const IMBALANCE: NumberLimits = NumberLimits::new(-0.99, 0.99, "parts of the work");
const JITTER: NumberLimits = NumberLimits::new(0.0, 1.0, "relative deviations");
/// Largest memory of one thread: a terabyte.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
const RATE: NumberLimits = NumberLimits::new(0.0, 1e4, "a microsecond of work");
const PARALLELISM: NumberLimits = NumberLimits::new(1.0, 128.0, "misses at once");
const LOCALITY: NumberLimits = NumberLimits::new(0.01, 100.0, "exponents");

/// Kind of a program's body.
#[derive(Clone, Copy)]
enum BodyKind {
    Spmd,
    Nested,
    Teams,
    Hog,
    Churn,
}

const KINDS: [(&str, BodyKind); 5] = [
    ("spmd", BodyKind::Spmd),
    ("nested", BodyKind::Nested),
    ("teams", BodyKind::Teams),
    ("hog", BodyKind::Hog),
    ("churn", BodyKind::Churn),
];

/// Returns the number of threads that a program has at a time.
pub(super) fn threads(program: &ProgramSpec) -> u64 {
    match program.body {
        Body::Nested { inner, .. } => u64::from(program.threads) * u64::from(inner),
        Body::Churn { at_once, .. } => u64::from(at_once),
        Body::Spmd { .. } | Body::Teams { .. } | Body::Hog { .. } => u64::from(program.threads),
    }
}

/// Reads the programs with which a scenario begins.
pub(super) fn all(
    top: &Section<'_>,
    ground: &ScenarioMachine,
    end: Moment,
) -> Result<Vec<ProgramSpec>, FileError> {
    let mut programs = Vec::new();
    for (place, section) in (1..).zip(top.sections("program", MOST_PROGRAMS)?) {
        let start = section.time("start", PATIENCE)?.unwrap_or(Span::ZERO);
        let copies = section.count("count", COPIES)?;
        let mut program = one(&section, ground, &format!("program {place}"))?;
        program.start = before(&section, "start", Moment(0) + start, end)?;
        if programs.len() + copies.unwrap_or(1) as usize > MOST_PROGRAMS {
            let key = if copies.is_some() { "count" } else { "name" };
            let problem = format!(
                "more than {MOST_PROGRAMS} programs in all, copies included: up to {MOST_PROGRAMS} are allowed"
            );
            return Err(section.error(key, problem));
        }
        match copies {
            None => programs.push(program),
            Some(copies) => programs.extend(
                (1..=copies)
                    .map(|copy| ProgramSpec { name: format!("{} {copy}", program.name), ..program.clone() }),
            ),
        }
        section.finish()?;
    }
    Ok(programs)
}

/// Returns a moment of the scenario, which must be before its end.
pub(super) fn before(section: &Section<'_>, key: &str, at: Moment, end: Moment) -> Result<Moment, FileError> {
    if at < end {
        return Ok(at);
    }
    let end = write_time(end.since(Moment(0)));
    Err(section.error(key, format!("is not before the end of the run, end = \"{end}\": it would never happen; set it earlier, or the end later")))
}

/// Refuses more threads than are allowed at a time.
pub(super) fn bounded(
    top: &Section<'_>,
    programs: &[ProgramSpec],
    events: &[ScenarioEvent],
) -> Result<(), FileError> {
    let started = events.iter().filter_map(|event| match &event.what {
        Happening::Start(program) => Some(program.as_ref()),
        Happening::Usable(_) | Happening::Stop(_) => None,
    });
    let all: u64 = programs.iter().chain(started).map(threads).sum();
    if all > MOST_THREADS {
        let problem = format!("all programs together have {all} threads: up to {MOST_THREADS} are allowed");
        return Err(top.error("program", problem));
    }
    Ok(())
}

/// Reads one program, without its start.
pub(super) fn one(
    section: &Section<'_>,
    ground: &ScenarioMachine,
    name: &str,
) -> Result<ProgramSpec, FileError> {
    let profile = profile(section)?;
    let name = section.words("name")?.unwrap_or(profile.map_or(name, |profile| profile.name));
    let kind = section.one_of("kind", &KINDS)?.unwrap_or(BodyKind::Spmd);
    if profile.is_some() && !matches!(kind, BodyKind::Spmd) {
        return Err(section.error("profile", "contradicts kind: profiles are of kind \"spmd\""));
    }
    let threads = match kind {
        BodyKind::Churn => section.count("threads", THREADS)?.map_or(1, |threads| threads as u32),
        _ => section.needed_count("threads", THREADS)? as u32,
    };
    let like = profile.map(|profile| profile.program(threads, WaitMode::Spin, f64::INFINITY));
    let body = body(section, kind, threads, like.as_ref())?;
    let hog = matches!(kind, BodyKind::Hog);
    Ok(ProgramSpec {
        name: name.to_owned(),
        start: Moment(0),
        threads,
        body,
        footprint: footprint(section, ground, like.map(|like| like.footprint).unwrap_or_default())?,
        wait: wait(section)?,
        mask: section.cpus("mask", &ground.cpus)?,
        bind: bind(section, ground)?,
        balanced: section.flag("balanced")?.unwrap_or(!hog),
        weight: section.count("weight", WEIGHT)?.map_or(1024, |weight| weight as u32),
        group: section.count("group", GROUP)?.map_or(u32::from(hog), |group| group as u32),
    })
}

/// Reads the benchmark profile of a program. Keys given next to it replace the profile's values.
fn profile(section: &Section<'_>) -> Result<Option<&'static nas::Profile>, FileError> {
    let Some(name) = section.words("profile")? else { return Ok(None) };
    let known: Vec<String> = nas::PROFILES.iter().map(|profile| format!("\"{}\"", profile.name)).collect();
    let found = nas::find(name);
    found.map(Some).ok_or_else(|| section.error("profile", format!("{} are allowed", known.join(", "))))
}

fn body(
    section: &Section<'_>,
    kind: BodyKind,
    threads: u32,
    like: Option<&ProgramSpec>,
) -> Result<Body, FileError> {
    Ok(match kind {
        BodyKind::Spmd => {
            let (known, every, noise) = match like.map(|like| &like.body) {
                Some(Body::Spmd { work, interval, jitter, .. }) => (Some(*work), *interval, *jitter),
                _ => (None, None, 0.0),
            };
            Body::Spmd {
                work: work(section, threads, known)?,
                interval: section.time("interval", WORK)?.or(every),
                imbalance: section.number("imbalance", IMBALANCE)?.unwrap_or(0.0),
                jitter: section.number("jitter", JITTER)?.unwrap_or(noise),
            }
        }
        BodyKind::Nested => {
            let inner = section.needed_count("inner", THREADS)? as u32;
            if u64::from(inner) * u64::from(threads) > MOST_THREADS {
                let problem = format!("{threads} x {inner} threads: up to {MOST_THREADS} are allowed");
                return Err(section.error("inner", problem));
            }
            let regions = section.needed_count("regions", REGIONS)? as u32;
            Body::Nested { inner, regions, work: section.needed_time("work", WORK)? }
        }
        BodyKind::Teams => Body::Teams {
            regions: section.needed_count("regions", REGIONS)? as u32,
            work: section.needed_time("work", WORK)?,
            pause: section.time("pause", WORK)?,
            hold: section.count("hold", HOLD)?.map(|hold| hold as u32),
        },
        BodyKind::Hog => {
            let duty = (section.time("works", WORK)?, section.time("sleeps", WORK)?);
            match duty {
                (Some(works), Some(sleeps)) => Body::Hog { duty: Some((works, sleeps)) },
                (None, None) => Body::Hog { duty: None },
                (Some(_), None) => {
                    return Err(section.error("works", "needs sleeps too: the time that the program sleeps"));
                }
                (None, Some(_)) => {
                    return Err(section.error("sleeps", "needs works too: the time that the program works"));
                }
            }
        }
        BodyKind::Churn => Body::Churn {
            at_once: section.needed_count("at_once", THREADS)? as u32,
            work: section.needed_time("work", WORK)?,
            jobs: section.count("jobs", JOBS)?.map(|jobs| jobs as u32),
        },
    })
}

/// Reads the work of a thread: `work`, or its part of `total_work`.
fn work(section: &Section<'_>, threads: u32, known: Option<Span>) -> Result<Span, FileError> {
    match section.time("total_work", WORK)? {
        None => match known {
            Some(known) => Ok(section.time("work", WORK)?.unwrap_or(known)),
            None => section.needed_time("work", WORK),
        },
        Some(_) if section.has("work") => {
            Err(section.error("total_work", "contradicts work: only one of them is allowed"))
        }
        Some(total) => Ok(Span((total.0 / u64::from(threads)).max(1))),
    }
}

fn wait(section: &Section<'_>) -> Result<WaitMode, FileError> {
    let words = [
        ("spin", WaitMode::Spin),
        ("yield", WaitMode::Yield),
        ("sleep", WaitMode::Sleep),
        ("spin-then-sleep", DEFAULT_PATIENCE),
    ];
    let wait = section.one_of("wait", &words)?.unwrap_or(WaitMode::Spin);
    match (wait, section.time("spin_for", PATIENCE)?) {
        (WaitMode::SpinThenSleep(_), Some(patience)) => Ok(WaitMode::SpinThenSleep(patience)),
        (_, Some(_)) => Err(section.error("spin_for", "contradicts wait: it is for \"spin-then-sleep\"")),
        (wait, None) => Ok(wait),
    }
}

/// `KMP_BLOCKTIME` of libomp before it was made zero.
const DEFAULT_PATIENCE: WaitMode = WaitMode::SpinThenSleep(Span::from_ms(200));

fn bind(section: &Section<'_>, ground: &ScenarioMachine) -> Result<Bind, FileError> {
    if section.has("begin_on") {
        if section.has("bind") {
            return Err(
                section.error("begin_on", "contradicts bind: bound threads begin where they are bound")
            );
        }
        return Ok(Bind::BeginOn(section.cpu_sets("begin_on", &ground.cpus, MOST_THREADS as usize)?.into()));
    }
    if section.is_list("bind") {
        return Ok(Bind::List(section.cpu_sets("bind", &ground.cpus, MOST_THREADS as usize)?.into()));
    }
    let words = ["free", "close", "spread"].map(|word| (word, word));
    Ok(match section.one_of("bind", &words)? {
        Some("close") => Bind::Close,
        Some("spread") => Bind::Spread,
        _ => Bind::Free,
    })
}

fn footprint(
    section: &Section<'_>,
    ground: &ScenarioMachine,
    base: Footprint,
) -> Result<Footprint, FileError> {
    let Some(section) = section.section("footprint")? else { return Ok(base) };
    let footprint = Footprint {
        working_set: section.bytes("working_set", MEMORY_BYTES_MAX)?.unwrap_or(base.working_set),
        misses: section.number("misses", RATE)?.unwrap_or(base.misses),
        parallelism: section.number("parallelism", PARALLELISM)?.unwrap_or(base.parallelism),
        locality: section.number("locality", LOCALITY)?.unwrap_or(base.locality),
        shared: section.bytes("shared", MEMORY_BYTES_MAX)?.unwrap_or(base.shared),
        shared_writes: section.number("shared_writes", RATE)?.unwrap_or(base.shared_writes),
        pages: pages(&section, ground)?.unwrap_or(base.pages),
    };
    section.finish()?;
    Ok(footprint)
}

fn pages(section: &Section<'_>, ground: &ScenarioMachine) -> Result<Option<PagePlacement>, FileError> {
    let nodes = ground.model.machine.nodes().len();
    let Some(word) = section.words("pages")? else { return Ok(None) };
    let node = || word.strip_prefix("node ")?.parse().ok().filter(|&node: &u32| (node as usize) < nodes);
    Ok(Some(match word {
        "first-touch" => PagePlacement::FirstTouch,
        "master" => PagePlacement::Master,
        "interleave" => PagePlacement::Interleave,
        _ => PagePlacement::Node(node().ok_or_else(|| {
            let last = nodes.saturating_sub(1);
            section.error(
                "pages",
                format!("\"first-touch\", \"master\", \"interleave\" and \"node 0\" to \"node {last}\" are allowed"),
            )
        })?),
    }))
}
