//! `trimtab bench cost`: what looking at programs costs, whether the budget is kept, and how much counting slows them.
//!
//! Three parts. *Looks*: the service's loop looks at a hundred threads every 10 ms, with so large a budget that nothing stretches that; CPU
//! time of this process over elapsed time is what it costs. *Budget*: the same with the budget that is stated, at more and more threads;
//! the time between looks is what gives. *Slowing*: a program is run in windows of three ways that take turns within one
//! process: alone, looked at, and looked at and counted; windows side by side make pairs. [`cells`] says what is run, [`looker`] looks,
//! `trimtab_core::sampling_overhead` does the arithmetic.

mod cells;
mod lines;
mod looker;
mod page;

use super::series::{self, Came, Ended, Outlet, Rounds, Series};
use super::talk::Talk;
use crate::args::CostArgs;
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::situation::Situation;
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use cells::{Cell, PROGRAM, Scope, State, Way};
use lines::{Counters, End, Figure, Line, ResultLine, RunLine, Start, Windows};
use looker::{How, Looker, TICK};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;
use trimtab_core::sampling_overhead::{Toll, is_below, slowing};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{estimate, shuffled};
use trimtab_core::time::Span;
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_linux::perf::{self, Choice, Standing};

/// Events of the kernel's own that stand in where hardware counts nothing.
const SOFTWARE: &str = "busy=task-clock,requests=page-faults,cycles=cpu-clock";
/// Nothing stretches the time between looks when they may cost this much of a core.
const AMPLE: f64 = 0.5;
/// How long looks are measured, and a window of a slowed program, in milliseconds.
const LASTING: u64 = 1_500;
const QUICK_LASTING: u64 = 500;
const WINDOW: u64 = 150;
const QUICK_WINDOW: u64 = 50;
/// So many windows of each way in a run.
const TURNS: usize = 4;
/// Looking at a hundred threads every 10 ms may cost so much of a core where counters are the hardware's, and counting may slow a
/// program by so much.
const LOOKS_MAX: f64 = 0.005;
const SLOWING_MAX: f64 = 0.01;
/// A budget is kept if no more than so many times as much is taken: a stretch ends amid the debt of a round, and asking whether it
/// is over costs, too.
const KEPT: f64 = 1.05;
/// So often it is asked whether looking is over: seldom enough to cost nothing itself.
const ASKED: Duration = Duration::from_millis(250);

/// Measures, and shows.
///
/// # Errors
/// [`exit::FAILED`] when the program is not there, a run of it failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &CostArgs) -> Result<u8, Exit> {
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let counting = Counting::find(world);
    let scope = Scope { quick: args.quick, only: &args.only, counts: counting.choice.is_some() };
    let cells = cells::cells(scope);
    if cells.is_empty() {
        return Err(failed(anyhow!(
            "no case is named like {}: trimtab bench cost --list shows all",
            args.only.join(" or ")
        )));
    }
    if args.list {
        let names: Vec<String> = cells.iter().map(ToString::to_string).collect();
        print(&names.join("\n")).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    let mut bench = Bench::prepare(world, args, counting, cells).map_err(failed)?;
    let interrupt = Interrupt::listen().map_err(failed)?;
    series::measure(&mut bench, &interrupt)
}

/// What can be counted here.
struct Counting {
    counters: Counters,
    /// What to ask for; `None` where nothing can be counted.
    choice: Option<Choice>,
    standing: Standing,
    said: Option<String>,
}

impl Counting {
    fn find(world: &World) -> Self {
        let look = |choice: &Choice| perf::look(&world.proc(), &world.sys(), choice, None);
        let standing = look(&Choice::Auto);
        if standing.rung.counts() {
            return Self { counters: Counters::Hardware, choice: Some(Choice::Auto), standing, said: None };
        }
        let why = standing.missing.first().map(|missing| format!(": {}", missing.why)).unwrap_or_default();
        let software: Option<Choice> = SOFTWARE.parse().ok();
        let stands_in = software.map(|choice| (look(&choice), choice)).filter(|(one, _)| one.rung.counts());
        match stands_in {
            Some((standing, choice)) => Self {
                counters: Counters::Software,
                choice: Some(choice),
                standing,
                said: Some(format!(
                    "hardware counts nothing here{why}; events of the kernel's own stand in: what reading costs beyond the kernel's path is \
                     missing, and what policies decide by them means nothing"
                )),
            },
            None => Self {
                counters: Counters::None,
                choice: None,
                standing,
                said: Some(format!("nothing can be counted here{why}; looks alone are measured")),
            },
        }
    }
}

/// The machine as policies see it: one with a single place for threads is taken for two nodes, since they would rest on it.
fn ground(machine: &Machine, allowed: &CpuSet) -> Option<Machine> {
    if machine.nodes().len() > 1 || machine.llcs().len() > 1 {
        return None;
    }
    let together = (0..).take_while(|cpu| allowed.contains(OsCpu(*cpu))).count();
    if together < 2 { None } else { parse_synthetic(&format!("numa:2 l3:1 core:{}", together / 2)).ok() }
}

/// All that a cell came to, a sample a run.
#[derive(Debug, Default)]
struct Samples {
    tolls: Vec<Toll>,
    windows: Vec<Windows>,
}

struct Bench<'a> {
    args: &'a CostArgs,
    folder: PathBuf,
    proc: PathBuf,
    cells: Vec<Cell>,
    rounds: Rounds,
    choice: Option<Choice>,
    machine: Machine,
    /// One of each core.
    cpus: Vec<OsCpu>,
    start: Start,
    outlet: Outlet,
    samples: Vec<Samples>,
}

impl<'a> Bench<'a> {
    fn prepare(world: &World, args: &'a CostArgs, counting: Counting, cells: Vec<Cell>) -> Result<Self> {
        let situation = Situation::live(world, false)?;
        let (_, folder) = series::programs(args.programs.as_deref(), &[PROGRAM])?;
        let outlet = Outlet::open(args.json.as_deref(), None)?;
        let head = series::head("cost", &situation);
        if let Some(said) = &counting.said {
            say::warning(Volume::Normal, said);
        }
        let (machine, allowed) = (&situation.machine, &situation.taken.allowed);
        let cpus: Vec<OsCpu> = series::one_of_each_core(&situation).iter().collect();
        let halves = ground(machine, allowed);
        let mut left_out = Vec::new();
        let rests = halves.is_none() && machine.nodes().len() < 2 && machine.llcs().len() < 2;
        if rests {
            left_out
                .push("brm and serial rest on one core: what they cost at work is not seen here".to_owned());
        }
        if counting.choice.is_none() {
            left_out.push("nothing can be counted: what counting costs is not seen here".to_owned());
        }
        let Counting { counters, choice, standing, .. } = counting;
        let events = standing.recipe.iter().flat_map(|recipe| &recipe.events);
        let start = Start {
            head,
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            tick_ns: TICK.0,
            budget: args.budget,
            counters,
            rung: standing.rung,
            events: events.map(|(role, event)| format!("{}={event}", role.word())).collect(),
            halved: halves.is_some(),
            cpus: cpus.iter().copied().collect::<CpuSet>().to_string(),
            left_out,
        };
        let machine = halves.unwrap_or_else(|| machine.clone());
        let samples = cells.iter().map(|_| Samples::default()).collect();
        let rounds = Rounds::of(&cells, args.repeats, args.seed);
        Ok(Self {
            args,
            folder,
            proc: world.proc(),
            cells,
            rounds,
            choice,
            machine,
            cpus,
            start,
            outlet,
            samples,
        })
    }

    fn how(&self, kind: Kind, counted: bool, budget: f64, threads: u32, lasting: Option<Span>) -> How {
        How {
            kind,
            counting: self.choice.clone().filter(|_| counted),
            budget,
            threads,
            lasting,
            machine: self.machine.clone(),
            proc: self.proc.clone(),
        }
    }

    /// What looks at a crowd cost; `None` when a signal came.
    fn looks(&self, talk: &mut Talk, how: How, interrupt: &Interrupt) -> Result<Option<Toll>> {
        talk.threads()?;
        let looker = Looker::start(talk.pid(), how)?;
        while !looker.is_over() && interrupt.came().is_none() {
            std::thread::sleep(ASKED);
        }
        let looks = looker.end()?;
        if interrupt.came().is_some() {
            return Ok(None);
        }
        let toll = Toll::of(&looks).context("too few looks were made")?;
        if toll.threads == 0.0 {
            bail!("no thread was looked at");
        }
        Ok(Some(toll))
    }

    /// What windows took in each way; `None` when a signal came.
    fn windows(&self, talk: &mut Talk, round: u32, interrupt: &Interrupt) -> Result<Option<Windows>> {
        talk.threads()?;
        let ways = &Way::ALL[..self.ways()];
        let mut windows = Windows::new();
        for turn in 0..TURNS {
            // Each turn in another order.
            let seed = self.args.seed.wrapping_add(u64::from(round) << 8).wrapping_add(turn as u64);
            for way in shuffled(ways.len(), seed).into_iter().filter_map(|at| ways.get(at)) {
                let lasting = self.how(Kind::Float, *way == Way::Counted, self.args.budget, 0, None);
                let looker = (*way != Way::Alone).then(|| Looker::start(talk.pid(), lasting)).transpose()?;
                if let Some(looker) = &looker {
                    looker.warm_up()?;
                }
                talk.open()?;
                let report = talk.report()?;
                if let Some(looker) = looker {
                    looker.end()?;
                }
                if interrupt.came().is_some() {
                    return Ok(None);
                }
                let time = report["turn_ns"].as_f64().context("its report lacks turn_ns")?;
                windows.entry(*way).or_default().push(time);
            }
        }
        Ok(Some(windows))
    }

    /// In how many ways a program is slowed here.
    fn ways(&self) -> usize {
        if self.choice.is_some() { Way::ALL.len() } else { Way::ALL.len() - 1 }
    }

    fn command(&self, cell: &Cell) -> Vec<std::ffi::OsString> {
        match cell {
            Cell::Looks { threads, state, .. } => cells::crowd(&self.folder, *threads, *state),
            Cell::Budget { threads, .. } => cells::crowd(&self.folder, *threads, State::Working),
            Cell::Slowing { work } => {
                let window = if self.args.quick { QUICK_WINDOW } else { WINDOW };
                let seconds = Span::from_ms(window).seconds();
                cells::slowed(&self.folder, *work, &self.cpus, seconds, TURNS * self.ways())
            }
        }
    }

    /// Runs a cell.
    fn measure(&self, cell: &Cell, round: u32, interrupt: &Interrupt) -> Result<Measured, Badly> {
        let early = |error: anyhow::Error| Badly { error: format!("{error:#}"), stderr: String::new() };
        let mut talk = Talk::start(&self.command(cell)).map_err(early)?;
        interrupt.runs(talk.child());
        let lasting = Span::from_ms(if self.args.quick { QUICK_LASTING } else { LASTING });
        let measured = match *cell {
            Cell::Looks { kind, counted, threads, .. } => {
                let how = self.how(kind, counted, AMPLE, threads, Some(lasting));
                self.looks(&mut talk, how, interrupt).map(|toll| toll.map(Measured::Toll))
            }
            Cell::Budget { kind, counted, threads } => {
                let how = self.how(kind, counted, self.args.budget, threads, Some(lasting));
                self.looks(&mut talk, how, interrupt).map(|toll| toll.map(Measured::Toll))
            }
            Cell::Slowing { .. } => {
                self.windows(&mut talk, round, interrupt).map(|windows| windows.map(Measured::Windows))
            }
        };
        let stderr = talk.stop();
        interrupt.ended();
        match measured {
            _ if interrupt.came().is_some() => Ok(Measured::Stopped),
            Ok(measured) => Ok(measured.unwrap_or(Measured::Stopped)),
            Err(_) if interrupt.comes_within(Duration::from_millis(200)) => Ok(Measured::Stopped),
            Err(error) => Err(Badly { error: format!("{error:#}"), stderr }),
        }
    }
}

/// What a run came to.
enum Measured {
    Toll(Toll),
    Windows(Windows),
    Stopped,
}

/// What went wrong.
struct Badly {
    error: String,
    stderr: String,
}

impl Series for Bench<'_> {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&mut self) -> Result<()> {
        self.outlet.recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, interrupt: &Interrupt) -> Result<Came> {
        let Some(cell) = self.cells.get(at).copied() else { return Ok(Came::Well) };
        let measured = self.measure(&cell, round, interrupt);
        let mut line = RunLine {
            cell: cell.to_string(),
            what: &cell,
            round,
            toll: None,
            windows: None,
            error: None,
            stderr: "",
        };
        match &measured {
            Ok(Measured::Stopped) => return Ok(Came::Stopped),
            Ok(Measured::Toll(toll)) => line.toll = Some(*toll),
            Ok(Measured::Windows(windows)) => line.windows = Some(windows),
            Err(Badly { error, stderr }) => {
                (line.error, line.stderr) = (Some(error.as_str()), stderr.as_str())
            }
        }
        self.outlet.recorder.write(&Line::Run(Box::new(line)))?;
        let Some(samples) = self.samples.get_mut(at) else { return Ok(Came::Well) };
        match measured {
            Ok(Measured::Toll(toll)) => samples.tolls.push(toll),
            Ok(Measured::Windows(windows)) => samples.windows.push(windows),
            Ok(Measured::Stopped) => {}
            Err(Badly { error, stderr }) => return Ok(Came::Badly { error, stderr }),
        }
        Ok(Came::Well)
    }

    fn finish(&mut self, Ended { complete, runs, failed }: Ended) -> Result<()> {
        let end = End { complete, runs, failed };
        let found: Vec<(Cell, ResultLine)> = self
            .cells
            .iter()
            .zip(&self.samples)
            .map(|(cell, samples)| (*cell, evaluate(cell, samples, &self.start)))
            .collect();
        let start = &self.start;
        let shown = self.outlet.show(|| page::page(start, &found, end), String::new);
        let recorder = &mut self.outlet.recorder;
        let results = found.into_iter().map(|(_, result)| Line::Result(result));
        let recorded = results.chain([Line::End(end)]).try_for_each(|line| recorder.write(&line));
        recorded.and(shown)
    }
}

/// Pairs of windows side by side.
fn pairs(windows: &Windows, without: Way, with: Way) -> Vec<(f64, f64)> {
    let of = |way| windows.get(&way).into_iter().flatten().copied();
    of(without).zip(of(with)).collect()
}

/// What a cell came to.
fn evaluate(cell: &Cell, samples: &Samples, start: &Start) -> ResultLine {
    let Start { seed, budget, counters, .. } = *start;
    let mut figures = BTreeMap::new();
    let mut figure = |name: &'static str, samples: Vec<f64>| {
        let estimate = estimate(&samples, seed);
        figures.insert(name, Figure { samples, estimate });
        estimate
    };
    let below = |estimate: Option<trimtab_core::stats::Estimate>, bound: f64| is_below(&estimate?, bound);
    let tolls = |of: fn(&Toll) -> Option<f64>| samples.tolls.iter().filter_map(of).collect::<Vec<f64>>();
    let met = match cell {
        Cell::Slowing { .. } => {
            let mut changes = |name, without, with| {
                let of = |windows: &Windows| slowing(&pairs(windows, without, with));
                figure(name, samples.windows.iter().filter_map(of).collect())
            };
            changes("looked", Way::Alone, Way::Looked);
            changes("looked_and_counted", Way::Alone, Way::Counted);
            let counted = changes("counted", Way::Looked, Way::Counted);
            below(counted, SLOWING_MAX).filter(|_| counters == Counters::Hardware)
        }
        Cell::Looks { .. } | Cell::Budget { .. } => {
            let share = figure("share", tolls(|toll| Some(toll.share())));
            let hundred = figure("share_of_100", tolls(Toll::share_of_hundred));
            figure("tick_ns", tolls(|toll| Some(1e9 * toll.tick())));
            figure("threads", tolls(|toll| Some(toll.threads)));
            figure("counted", tolls(|toll| Some(toll.counted)));
            match cell {
                Cell::Looks { counted: true, .. } => {
                    below(hundred, LOOKS_MAX).filter(|_| counters == Counters::Hardware)
                }
                Cell::Budget { .. } => below(share, KEPT * budget),
                _ => None,
            }
        }
    };
    ResultLine { cell: cell.to_string(), figures, met }
}
