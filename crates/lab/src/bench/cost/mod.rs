//! `trimtab bench cost`: cost of sampling, adherence to the budget, and slowdown by counting.
//!
//! Three parts. *Looks*: the service's loop samples a hundred threads every 10 ms, with a budget so
//! large that nothing stretches the interval; the cost is the CPU time of this process over the
//! elapsed time. *Budget*: the same with the given budget, for increasing numbers of threads; the
//! result is the time between samples. *Slowing*: a program runs in windows of three variants that
//! alternate within one process: alone, sampled, and sampled and counted; adjacent windows make
//! pairs. [`mod@matrix`] defines the runs, [`sampler`] samples, `trimtab_core::sampling_overhead`
//! does the arithmetic.

mod matrix;
mod records;
mod report;
mod sampler;

use super::harness::talk::Talk;
use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::CostArgs;
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
use matrix::{CostCell, CostScope, CrowdState, PROGRAM, SlowingVariant};
use records::{CostFigure, CostLine, CostResult, CostRunLine, CostStart, CountedEvents, Windows};
use sampler::{SAMPLE_INTERVAL, Sampler, SamplerOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;
use trimtab_core::sampling_overhead::{SamplingCost, is_below, slowing};
use trimtab_core::set::CpuSet;
use trimtab_core::stats::{estimate, shuffled};
use trimtab_core::time::Span;
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_linux::perf::{self, Choice, Standing};

/// Software events of the kernel that replace hardware events where the hardware counts nothing.
const SOFTWARE: &str = "busy=task-clock,requests=page-faults,cycles=cpu-clock";
/// Budget, as a share of one core, that never stretches the time between samples.
const AMPLE_BUDGET_SHARE: f64 = 0.5;
/// Duration of a measurement of samples, and of a window of a slowed program, in milliseconds.
const MEASURE_MS: u64 = 1_500;
const QUICK_MEASURE_MS: u64 = 500;
const WINDOW_MS: u64 = 150;
const QUICK_WINDOW_MS: u64 = 50;
/// Windows of each variant in a run.
const WINDOWS_PER_VARIANT: usize = 4;
/// Goals with hardware counters: largest share of one core for sampling a hundred threads every 10
/// ms, and largest slowdown of a program by counting.
const SAMPLING_SHARE_MAX: f64 = 0.005;
const SLOWING_MAX: f64 = 0.01;
/// A budget counts as kept up to this multiple of it: the measurement may end before a round's debt
/// is paid off, and checking for the end costs, too.
const BUDGET_FACTOR_MAX: f64 = 1.05;
/// Period of the check whether sampling has ended: long enough to cost nothing itself.
const CHECK_PERIOD: Duration = Duration::from_millis(250);

/// Runs the benchmark and shows the results.
///
/// # Errors
/// The program is missing, a run of it failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &CostArgs) -> Result<u8> {
    let counting = Counting::find(world);
    let scope = CostScope { quick: args.quick, only: &args.only, counts: counting.choice.is_some() };
    let cells = matrix::cells(scope);
    if cells.is_empty() {
        return Err(harness::no_such_case("cost", &args.only));
    }
    if args.list {
        return harness::list(cells.iter().map(ToString::to_string), &[]);
    }
    harness::measure(|_| CostBench::prepare(world, args, counting, cells))
}

/// Counters that work on this machine.
struct Counting {
    counters: CountedEvents,
    /// Counters to request; `None` if nothing can be counted.
    choice: Option<Choice>,
    standing: Standing,
    said: Option<String>,
}

impl Counting {
    fn find(world: &World) -> Self {
        let look = |choice: &Choice| perf::look(&world.proc(), &world.sys(), choice, None);
        let standing = look(&Choice::Auto);
        if standing.rung.counts() {
            return Self {
                counters: CountedEvents::Hardware,
                choice: Some(Choice::Auto),
                standing,
                said: None,
            };
        }
        let why = standing.missing.first().map(|missing| format!(": {}", missing.why)).unwrap_or_default();
        let software: Option<Choice> = SOFTWARE.parse().ok();
        let stands_in = software.map(|choice| (look(&choice), choice)).filter(|(one, _)| one.rung.counts());
        match stands_in {
            Some((standing, choice)) => Self {
                counters: CountedEvents::Software,
                choice: Some(choice),
                standing,
                said: Some(format!(
                    "no hardware counter works here{why}; kernel software events replace them: the cost of reading hardware is \
                     missing, and decisions of policies based on these events are meaningless"
                )),
            },
            None => Self {
                counters: CountedEvents::None,
                choice: None,
                standing,
                said: Some(format!("nothing can be counted here{why}; only sampling is measured")),
            },
        }
    }
}

/// Returns the machine as policies see it. A machine with one node and one LLC is presented as two
/// nodes, because brm and serial have nothing to do on one.
fn ground(machine: &Machine, allowed: &CpuSet) -> Option<Machine> {
    if machine.nodes().len() > 1 || machine.llcs().len() > 1 {
        return None;
    }
    let together = (0..).take_while(|cpu| allowed.contains(OsCpu(*cpu))).count();
    if together < 2 { None } else { parse_synthetic(&format!("numa:2 l3:1 core:{}", together / 2)).ok() }
}

/// All measurements of a cell, one sample per run.
#[derive(Debug, Default)]
struct CostSamples {
    costs: Vec<SamplingCost>,
    windows: Vec<Windows>,
}

struct CostBench<'a> {
    args: &'a CostArgs,
    folder: PathBuf,
    proc: PathBuf,
    cells: Vec<CostCell>,
    rounds: Rounds,
    choice: Option<Choice>,
    machine: Machine,
    /// One CPU of each core.
    cpus: Vec<OsCpu>,
    start: CostStart,
    samples: Vec<CostSamples>,
}

impl<'a> CostBench<'a> {
    fn prepare(
        world: &World,
        args: &'a CostArgs,
        counting: Counting,
        cells: Vec<CostCell>,
    ) -> Result<(Self, Outlet)> {
        let usable = Usable::live(world, false)?;
        let (_, folder) = harness::programs(args.programs.as_deref(), &[PROGRAM])?;
        let outlet = Outlet::open(args.json.as_deref(), None, false)?;
        let head = harness::head("cost", &usable);
        if let Some(said) = &counting.said {
            diagnostics::warning(Volume::Normal, said);
        }
        let (machine, allowed) = (&usable.machine, &usable.allowed);
        let cpus: Vec<OsCpu> = harness::one_of_each_core(&usable).iter().collect();
        let halves = ground(machine, allowed);
        let mut left_out = Vec::new();
        let rests = halves.is_none() && machine.nodes().len() < 2 && machine.llcs().len() < 2;
        if rests {
            let why =
                "brm and serial have nothing to do on one core: their cost at work is not measured here";
            left_out.push(why.to_owned());
        }
        if counting.choice.is_none() {
            left_out.push("nothing can be counted: the cost of counting is not measured here".to_owned());
        }
        let Counting { counters, choice, standing, .. } = counting;
        let events = standing.recipe.iter().flat_map(|recipe| &recipe.events);
        let start = CostStart {
            head,
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            tick_ns: SAMPLE_INTERVAL.0,
            budget: args.budget,
            counters,
            rung: standing.rung,
            events: events.map(|(role, event)| format!("{}={event}", role.word())).collect(),
            halved: halves.is_some(),
            cpus: cpus.iter().copied().collect::<CpuSet>().to_string(),
            left_out,
        };
        let machine = halves.unwrap_or_else(|| machine.clone());
        let samples = cells.iter().map(|_| CostSamples::default()).collect();
        let rounds = Rounds::of(&cells, args.repeats, args.seed);
        let proc = world.proc();
        let bench = Self { args, folder, proc, cells, rounds, choice, machine, cpus, start, samples };
        Ok((bench, outlet))
    }

    fn how(
        &self,
        kind: Kind,
        counted: bool,
        budget: f64,
        threads: u32,
        lasting: Option<Span>,
    ) -> SamplerOptions {
        SamplerOptions {
            kind,
            counting: self.choice.clone().filter(|_| counted),
            budget,
            threads,
            lasting,
            machine: self.machine.clone(),
            proc: self.proc.clone(),
        }
    }

    /// Measures the cost of sampling many threads; `None` after a signal.
    fn looks(
        &self,
        talk: &mut Talk,
        how: SamplerOptions,
        interrupt: &Interrupt,
    ) -> Result<Option<SamplingCost>> {
        talk.threads()?;
        let sampler = Sampler::start(talk.pid(), how)?;
        while !sampler.is_over() && interrupt.came().is_none() {
            std::thread::sleep(CHECK_PERIOD);
        }
        let samples = sampler.end()?;
        if interrupt.came().is_some() {
            return Ok(None);
        }
        let cost = SamplingCost::of(&samples).context("too few samples were taken")?;
        if cost.threads == 0.0 {
            bail!("no thread was sampled");
        }
        Ok(Some(cost))
    }

    /// Measures the windows of each variant; `None` after a signal.
    fn windows(&self, talk: &mut Talk, round: u32, interrupt: &Interrupt) -> Result<Option<Windows>> {
        talk.threads()?;
        let ways = &SlowingVariant::ALL[..self.ways()];
        let mut windows = Windows::new();
        for turn in 0..WINDOWS_PER_VARIANT {
            // Each turn has another order.
            let seed = self.args.seed.wrapping_add(u64::from(round) << 8).wrapping_add(turn as u64);
            for way in shuffled(ways.len(), seed).into_iter().filter_map(|at| ways.get(at)) {
                let lasting =
                    self.how(Kind::Float, *way == SlowingVariant::Counted, self.args.budget, 0, None);
                let sampler = (*way != SlowingVariant::Alone)
                    .then(|| Sampler::start(talk.pid(), lasting))
                    .transpose()?;
                if let Some(sampler) = &sampler {
                    sampler.warm_up()?;
                }
                talk.open()?;
                let report = talk.report()?;
                if let Some(sampler) = sampler {
                    sampler.end()?;
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

    /// Returns the number of variants of a slowed program on this machine.
    fn ways(&self) -> usize {
        if self.choice.is_some() { SlowingVariant::ALL.len() } else { SlowingVariant::ALL.len() - 1 }
    }

    fn command(&self, cell: &CostCell) -> Vec<std::ffi::OsString> {
        match cell {
            CostCell::Looks { threads, state, .. } => matrix::crowd(&self.folder, *threads, *state),
            CostCell::Budget { threads, .. } => matrix::crowd(&self.folder, *threads, CrowdState::Working),
            CostCell::Slowing { work } => {
                let window = if self.args.quick { QUICK_WINDOW_MS } else { WINDOW_MS };
                let seconds = Span::from_ms(window).seconds();
                matrix::slowed(&self.folder, *work, &self.cpus, seconds, WINDOWS_PER_VARIANT * self.ways())
            }
        }
    }

    /// Runs a cell.
    fn measure(
        &self,
        cell: &CostCell,
        round: u32,
        interrupt: &Interrupt,
    ) -> Result<CostMeasurement, CostFailure> {
        let early = |error: anyhow::Error| CostFailure { error: format!("{error:#}"), stderr: String::new() };
        let mut talk = Talk::start(&self.command(cell)).map_err(early)?;
        interrupt.runs(talk.child());
        let lasting = Span::from_ms(if self.args.quick { QUICK_MEASURE_MS } else { MEASURE_MS });
        let measured = match *cell {
            CostCell::Looks { kind, counted, threads, .. } => {
                let how = self.how(kind, counted, AMPLE_BUDGET_SHARE, threads, Some(lasting));
                self.looks(&mut talk, how, interrupt).map(|cost| cost.map(CostMeasurement::Cost))
            }
            CostCell::Budget { kind, counted, threads } => {
                let how = self.how(kind, counted, self.args.budget, threads, Some(lasting));
                self.looks(&mut talk, how, interrupt).map(|cost| cost.map(CostMeasurement::Cost))
            }
            CostCell::Slowing { .. } => {
                self.windows(&mut talk, round, interrupt).map(|windows| windows.map(CostMeasurement::Windows))
            }
        };
        let stderr = talk.stop();
        interrupt.ended();
        match measured {
            _ if interrupt.came().is_some() => Ok(CostMeasurement::Stopped),
            Ok(measured) => Ok(measured.unwrap_or(CostMeasurement::Stopped)),
            Err(_) if interrupt.comes_within(Duration::from_millis(200)) => Ok(CostMeasurement::Stopped),
            Err(error) => Err(CostFailure { error: format!("{error:#}"), stderr }),
        }
    }
}

/// Result of a run.
enum CostMeasurement {
    Cost(SamplingCost),
    Windows(Windows),
    Stopped,
}

/// Error of a run.
struct CostFailure {
    error: String,
    stderr: String,
}

impl Benchmark for CostBench<'_> {
    type Findings<'f>
        = Vec<(CostCell, CostResult)>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&CostLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some(cell) = self.cells.get(at).copied() else { return Ok(RunOutcome::Well) };
        let measured = self.measure(&cell, round, interrupt);
        let mut line = CostRunLine {
            cell: cell.to_string(),
            what: &cell,
            round,
            cost: None,
            windows: None,
            error: None,
            stderr: "",
        };
        match &measured {
            Ok(CostMeasurement::Stopped) => return Ok(RunOutcome::Stopped),
            Ok(CostMeasurement::Cost(cost)) => line.cost = Some(*cost),
            Ok(CostMeasurement::Windows(windows)) => line.windows = Some(windows),
            Err(CostFailure { error, stderr }) => {
                (line.error, line.stderr) = (Some(error.as_str()), stderr.as_str())
            }
        }
        recorder.write(&CostLine::Run(Box::new(line)))?;
        let Some(samples) = self.samples.get_mut(at) else { return Ok(RunOutcome::Well) };
        match measured {
            Ok(CostMeasurement::Cost(cost)) => samples.costs.push(cost),
            Ok(CostMeasurement::Windows(windows)) => samples.windows.push(windows),
            Ok(CostMeasurement::Stopped) => {}
            Err(CostFailure { error, stderr }) => return Ok(RunOutcome::Badly { error, stderr }),
        }
        Ok(RunOutcome::Well)
    }

    fn evaluate(&self) -> Vec<(CostCell, CostResult)> {
        let all = self.cells.iter().zip(&self.samples);
        all.map(|(cell, samples)| (*cell, evaluate(cell, samples, &self.start))).collect()
    }

    fn report(&self, found: &Vec<(CostCell, CostResult)>, ended: SeriesEnd) -> String {
        report::page(&self.start, found, ended)
    }

    fn conclude(
        &self,
        found: &Vec<(CostCell, CostResult)>,
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        let results = found.iter().map(|(_, result)| CostLine::Result(result));
        results.chain([CostLine::End(ended)]).try_for_each(|line| recorder.write(&line))
    }
}

/// Returns pairs of adjacent windows.
fn pairs(windows: &Windows, without: SlowingVariant, with: SlowingVariant) -> Vec<(f64, f64)> {
    let of = |way| windows.get(&way).into_iter().flatten().copied();
    of(without).zip(of(with)).collect()
}

/// Evaluates a cell.
fn evaluate(cell: &CostCell, samples: &CostSamples, start: &CostStart) -> CostResult {
    let CostStart { seed, budget, counters, .. } = *start;
    let mut figures = BTreeMap::new();
    let mut figure = |name: &'static str, samples: Vec<f64>| {
        let estimate = estimate(&samples, seed);
        figures.insert(name, CostFigure { samples, estimate });
        estimate
    };
    let below = |estimate: Option<trimtab_core::stats::Estimate>, bound: f64| is_below(&estimate?, bound);
    let costs =
        |of: fn(&SamplingCost) -> Option<f64>| samples.costs.iter().filter_map(of).collect::<Vec<f64>>();
    let met = match cell {
        CostCell::Slowing { .. } => {
            let mut changes = |name, without, with| {
                let of = |windows: &Windows| slowing(&pairs(windows, without, with));
                figure(name, samples.windows.iter().filter_map(of).collect())
            };
            changes("looked", SlowingVariant::Alone, SlowingVariant::Looked);
            changes("looked_and_counted", SlowingVariant::Alone, SlowingVariant::Counted);
            let counted = changes("counted", SlowingVariant::Looked, SlowingVariant::Counted);
            below(counted, SLOWING_MAX).filter(|_| counters == CountedEvents::Hardware)
        }
        CostCell::Looks { .. } | CostCell::Budget { .. } => {
            let share = figure("share", costs(|cost| Some(cost.share())));
            let hundred = figure("share_of_100", costs(SamplingCost::share_of_hundred));
            figure("tick_ns", costs(|cost| Some(1e9 * cost.tick())));
            figure("threads", costs(|cost| Some(cost.threads)));
            figure("counted", costs(|cost| Some(cost.counted)));
            match cell {
                CostCell::Looks { counted: true, .. } => {
                    below(hundred, SAMPLING_SHARE_MAX).filter(|_| counters == CountedEvents::Hardware)
                }
                CostCell::Budget { .. } => below(share, BUDGET_FACTOR_MAX * budget),
                _ => None,
            }
        }
    };
    CostResult { cell: cell.to_string(), figures, met }
}
