//! `trimtab counters`: the hardware counters that this machine offers, their cost, the reasons for
//! missing ones, and the counts of some programs.

use crate::args::{CountersArgs, distinct};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::table::{Align, Table};
use crate::world::World;
use anyhow::Result;
use serde::Serialize;
use trimtab_core::balance::Wanted;
use trimtab_core::counter_budget::{CounterThrottle, Price};
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::drive::{Awake, Host};
use trimtab_core::observe::Sample;
use trimtab_core::telemetry::Accumulator;
use trimtab_core::telemetry::counter_totals::{self, CounterTotals};
use trimtab_core::time::Span;
use trimtab_front::units;
use trimtab_linux::host::{HostOptions, Live, Root};
use trimtab_linux::perf::{self, Event, Missing, Role, Standing, Why};
use trimtab_linux::process::Pid;
use trimtab_linux::sys::affinity;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.counters/1";

/// Default time for which programs are counted.
const COUNT_TIME_DEFAULT: Span = Span::from_ms(1_000);
/// Time between two samples. Chosen: short enough for threads that live a fraction of a second.
const SAMPLE_INTERVAL: Span = Span::from_ms(50);

#[derive(Serialize)]
struct CountersJson {
    schema: &'static str,
    rung: Rung,
    cpu: Option<String>,
    processor: Option<String>,
    events: Vec<EventRow>,
    user_only: bool,
    no_guests: bool,
    cost: Option<Cost>,
    counters_max: Option<u32>,
    every_ns: u64,
    one_in: u32,
    rests: bool,
    switches_max: Option<f64>,
    missing: Vec<MissingRow>,
    watched_ns: Option<u64>,
    threads: Option<Vec<ThreadRow>>,
}

#[derive(Serialize)]
struct EventRow {
    role: &'static str,
    event: String,
}

#[derive(Serialize)]
struct Cost {
    read_ns: u64,
    switch_one_ns: u64,
    switch_two_ns: u64,
    trapped: bool,
}

#[derive(Serialize)]
struct MissingRow {
    rung: Rung,
    why: &'static str,
    text: String,
}

#[derive(Serialize)]
struct ThreadRow {
    pid: u32,
    tid: u32,
    name: String,
    run_ns: u64,
    counts: Option<Counts>,
    penalty: Option<f64>,
    share: Option<f64>,
    busy_per_instruction: Option<f64>,
    cycles_per_instruction: Option<f64>,
    miss_rate: Option<f64>,
    far_share: Option<f64>,
}

impl From<CounterTotals> for ThreadRow {
    fn from(thread: CounterTotals) -> Self {
        let counts = thread.counts.as_ref();
        Self {
            penalty: counts.and_then(Counts::penalty),
            share: counts.and_then(Counts::share),
            busy_per_instruction: counts.and_then(Counts::busy_per_instruction),
            cycles_per_instruction: counts.and_then(Counts::cycles_per_instruction),
            miss_rate: counts.and_then(Counts::miss_rate),
            far_share: counts.and_then(Counts::far_share),
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name,
            run_ns: thread.ran.0,
            counts: thread.counts,
        }
    }
}

impl CountersJson {
    fn of(standing: &Standing, seen: Option<(Span, Vec<CounterTotals>)>) -> Self {
        let (span, threads) = seen.unzip();
        let recipe = standing.recipe.as_ref();
        let event = |(role, event): &(Role, Event)| EventRow { role: role.word(), event: event.name.clone() };
        let missing = |Missing { rung, why }: &Missing| MissingRow {
            rung: *rung,
            why: why.word(),
            text: why.to_string(),
        };
        let cost = |price: Price| Cost {
            read_ns: price.read.0,
            switch_one_ns: price.one.0,
            switch_two_ns: price.two.0,
            trapped: price.is_trapped(),
        };
        Self {
            schema: SCHEMA,
            rung: standing.rung,
            cpu: standing.cpu.as_ref().map(ToString::to_string),
            processor: standing.processor.clone(),
            events: recipe.iter().flat_map(|recipe| &recipe.events).map(event).collect(),
            user_only: recipe.is_some_and(|recipe| recipe.user_only),
            no_guests: recipe.is_some_and(|recipe| recipe.no_guests),
            cost: standing.price.map(cost),
            counters_max: standing.thrift.counters,
            every_ns: standing.thrift.every.0,
            one_in: standing.thrift.one_in,
            rests: standing.thrift().rests,
            switches_max: standing.thrift.switches_max,
            missing: standing.missing.iter().map(missing).collect(),
            watched_ns: span.map(|span| span.0),
            threads: threads.map(|threads| threads.into_iter().map(ThreadRow::from).collect()),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when a process cannot be watched, or stdout cannot be written.
pub fn run(world: &World, args: &CountersArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn show(world: &World, args: &CountersArgs) -> Result<u8> {
    let (standing, seen) = if args.pids.is_empty() {
        (perf::look(&world.proc(), &world.sys(), &args.events, None), None)
    } else {
        let (standing, span, threads) = count(world, args)?;
        (standing, Some((span, threads)))
    };
    let text = if args.json {
        serde_json::to_string_pretty(&CountersJson::of(&standing, seen))?
    } else {
        let seen = seen.map(|(span, threads)| format!("\n{}", figures(&standing, span, &threads)));
        format!("{}{}", words(&standing), seen.unwrap_or_default())
    };
    print(&text)?;
    Ok(if standing.rung == Rung::Nothing { exit::NO } else { exit::DONE })
}

/// Counts the threads of some programs for a while.
fn count(world: &World, args: &CountersArgs) -> Result<(Standing, Span, Vec<CounterTotals>)> {
    let roots: Vec<Root> = distinct(&args.pids).into_iter().map(|pid| Root::Tree(Pid(pid))).collect();
    let options = HostOptions { hands_off: true, counting: args.events.clone(), ..HostOptions::default() };
    // No thread is moved, so the set of usable CPUs does not matter.
    let usable = affinity::get(None)?;
    let mut live = Live::with(&world.proc(), &roots, &usable, options)?;
    let wanted = Wanted { places: true, counts: true, ..Wanted::default() };
    let mut totals = Accumulator::default();
    // The first sample determines the available counters, which takes time. Only its list of
    // processes is used.
    totals.add(&Sample { threads: Vec::new(), ..live.observe(&wanted)? });
    let first = live.observe(&wanted)?;
    let (begin, lasting) = (first.at, args.time.unwrap_or(COUNT_TIME_DEFAULT));
    totals.add(&first);
    let mut now = begin;
    while now.since(begin) < lasting {
        let rest = lasting.less(now.since(begin));
        if live.wait(now + rest.min(SAMPLE_INTERVAL))? == Awake::Over {
            break;
        }
        let sample = live.observe(&wanted)?;
        now = sample.at;
        totals.add(&sample);
    }
    // The field is set once counts were requested.
    let standing = live.counting().cloned();
    let standing = standing.unwrap_or_else(|| perf::look(&world.proc(), &world.sys(), &args.events, None));
    Ok((standing, now.since(begin), counter_totals::threads(&totals)))
}

/// Returns a description of the events that a rung counts.
fn meaning(rung: Rung) -> &'static str {
    match rung {
        Rung::Exact => "busy cycles and requests, which give the uncore penalty",
        Rung::Proxy => "stalls and requests, which approximate the uncore penalty",
        Rung::Generic => "cycles, instructions and misses, from which the penalty is estimated",
        Rung::HintFaults => "no counters; hint faults on local and remote memory",
        Rung::Residency => "no counters; location of sampled pages, local or remote",
        Rung::Nothing => "nothing is counted",
    }
}

fn words(standing: &Standing) -> String {
    let mut lines = vec![format!("{}: {}", standing.rung, meaning(standing.rung))];
    let cpu = standing.cpu.as_ref().map(ToString::to_string);
    match (&standing.processor, cpu) {
        (Some(name), Some(cpu)) => lines.push(format!("processor  {name} ({cpu})")),
        (None, Some(cpu)) => lines.push(format!("processor  {cpu}, which is not in the table of events")),
        _ => {}
    }
    if let Some(recipe) = &standing.recipe {
        for (at, (role, event)) in recipe.events.iter().enumerate() {
            let head = if at == 0 { "events" } else { "" };
            lines.push(format!("{head:9}  {role:12} {event}"));
        }
        if recipe.user_only {
            lines.push(
                "           user mode only: kernel.perf_event_paranoid does not allow kernel mode".to_owned(),
            );
        }
        if recipe.no_guests {
            lines.push(
                "           without virtual machines: KVM gives them the counters while they run".to_owned(),
            );
        }
    }
    if let Some(price) = &standing.price {
        let kind = if price.is_trapped() { "; each access traps to a hypervisor" } else { "" };
        lines.push(format!(
            "cost       reading {}, switching off and on {} (one counter), {} (two){kind}",
            price.read, price.one, price.two
        ));
    }
    if standing.thrift != CounterThrottle::FREE {
        let CounterThrottle { counters, every, one_in, rests, switches_max } = standing.thrift();
        let counters = counters.map_or_else(String::new, |most| format!("at most {most} counters, "));
        let most = switches_max.map_or_else(String::new, |most| {
            format!(", not threads with more than {most:.0} context switches a second")
        });
        let (every, runs) = if rests {
            (every, format!(", counting during 1/{one_in} of that time"))
        } else {
            (every.times(f64::from(one_in)), String::new())
        };
        lines.push(format!("therefore  {counters}read every {every}{runs}{most}"));
    }
    lines.extend(not(&standing.missing));
    lines.join("\n") + "\n"
}

/// Returns the reasons for missing rungs, one line per reason. Rungs that were not requested are
/// left out.
fn not(missing: &[Missing]) -> Vec<String> {
    let told = missing.iter().filter(|missing| missing.why != Why::NotAsked);
    let mut lines: Vec<(String, String)> = Vec::new();
    for Missing { rung, why } in told {
        let why = why.to_string();
        match lines.last_mut() {
            Some((rungs, before)) if *before == why => *rungs = format!("{rungs}, {rung}"),
            _ => lines.push((rung.to_string(), why)),
        }
    }
    lines.into_iter().map(|(rungs, why)| format!("not {rungs}: {why}")).collect()
}

fn figures(standing: &Standing, span: Span, threads: &[CounterTotals]) -> String {
    if threads.is_empty() {
        return format!("no thread ran in {span}\n");
    }
    let mut table = Table::new(&[
        ("PID", Align::Right),
        ("TID", Align::Right),
        ("NAME", Align::Left),
        ("RAN", Align::Right),
        ("P", Align::Right),
        ("W", Align::Right),
        ("BUSY/INSTR", Align::Right),
        ("CPI", Align::Right),
        ("LLC MISS", Align::Right),
        ("FAR", Align::Right),
    ]);
    let number =
        |value: Option<f64>, digits: usize| units::or_dash(value, |value| format!("{value:.digits$}"));
    let percent = |value: Option<f64>| units::or_dash(value, |value| units::percent(value, 1));
    for thread in threads {
        let counts = thread.counts.as_ref();
        table.row([
            thread.pid.to_string(),
            thread.tid.to_string(),
            thread.name.clone(),
            thread.ran.to_string(),
            number(counts.and_then(Counts::penalty), 1),
            percent(counts.and_then(Counts::share)),
            number(counts.and_then(Counts::busy_per_instruction), 3),
            number(counts.and_then(Counts::cycles_per_instruction), 2),
            percent(counts.and_then(Counts::miss_rate)),
            percent(counts.and_then(Counts::far_share)),
        ]);
    }
    let uncounted = threads.iter().filter(|thread| thread.counts.is_none()).count();
    let note = match uncounted {
        0 => String::new(),
        _ if standing.rung == Rung::Nothing => String::new(),
        many => format!(
            "{many} of {} not counted: too little CPU time, too many context switches, or no permission\n",
            threads.len()
        ),
    };
    format!("over {span}:\n{table}{note}")
}
