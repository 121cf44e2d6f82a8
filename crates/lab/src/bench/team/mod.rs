//! `trimtab bench team`: teams of threads and of processes beside what others use.
//!
//! Rounds of all cells by all who are measured, each round in another random order that follows from the seed. A run of a program is one
//! sample. [`cases`] says what is run, [`mod@cell`] and [`measure`] are our own program, [`samples`] what runs come to, [`goals`] whether that is
//! good, [`page`] and [`chart`] show it. [`kernels`] has whole programs in place of single operations.

mod cell;
mod chart;
mod goals;
mod kernels;
mod matrix;
mod measure;
pub(super) mod peers;
pub(super) mod plot;
mod records;
mod report;
mod samples;

use super::series::{self, Came, Ended, Outlet, Rounds, Series};
use crate::args::{BenchTeamArgs, Mode, TeamCellArgs};
use crate::usable::Usable;
use anyhow::{Result, anyhow};
use matrix::{Cell, Plan, Who};
use peers::said;
use records::{End, Line, ResultLine, RunLine, Start};
use samples::Samples;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use trimtab_core::stats::{self, Estimate};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::print;
use trimtab_front::process_env::World;

/// Measures one cell with a team.
///
/// # Errors
/// As its program says.
pub(super) fn cell(args: &TeamCellArgs) -> Result<u8, Exit> {
    cell::run(args)
}

/// Measures, and shows.
///
/// # Errors
/// [`exit::FAILED`] when a run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchTeamArgs) -> Result<u8, Exit> {
    if !args.kernels.is_empty() {
        return kernels::run(world, args);
    }
    let failed = |cause| Exit::new(exit::FAILED, cause);
    let plan = matrix::plan(args).map_err(failed)?;
    if args.list {
        print(&listing(&plan)).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    if plan.runs.is_empty() {
        return Err(failed(anyhow!("there is nothing to measure: {}", plan.left_out.join("; "))));
    }
    let usable = Usable::live(world, false).map_err(failed)?;
    let mut bench = Bench::prepare(args, &usable, plan).map_err(failed)?;
    let interrupt = Interrupt::listen().map_err(failed)?;
    series::measure(&mut bench, &interrupt)
}

fn listing(plan: &Plan) -> String {
    let mut text = String::new();
    for &(cell, who) in &plan.runs {
        let (cell, who) = (plan.cells[cell], &plan.whos[who]);
        let words = said(&plan.tools.command(cell, who)).join(" ");
        let _ = writeln!(text, "{cell} {who}: {words}");
    }
    for said in &plan.left_out {
        let _ = writeln!(text, "# {said}");
    }
    text.trim_end().to_owned()
}

struct Bench {
    plan: Plan,
    rounds: Rounds,
    start: Start,
    outlet: Outlet,
    /// By cell and who is measured.
    samples: BTreeMap<(usize, usize), Samples>,
}

impl Bench {
    fn prepare(args: &BenchTeamArgs, usable: &Usable, plan: Plan) -> Result<Self> {
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref())?;
        let times = if args.quick { 1 } else { args.rounds };
        let start = Start {
            head: series::head("team", usable),
            rounds: times,
            quick: args.quick,
            seed: args.seed,
            pinned: args.pin,
            unoptimised: cfg!(debug_assertions),
            cpus: measure::allowed()?.len(),
            columns: plan.whos.iter().map(ToString::to_string).collect(),
            left_out: plan.left_out.clone(),
        };
        let name = |&(cell, who): &(usize, usize)| format!("{} {}", plan.cells[cell], plan.whos[who]);
        let names: Vec<String> = plan.runs.iter().map(name).collect();
        let rounds = Rounds::of(&names, times, args.seed);
        Ok(Self { plan, rounds, start, outlet, samples: BTreeMap::new() })
    }

    fn found(&self) -> Found<'_> {
        Found {
            cells: &self.plan.cells,
            whos: &self.plan.whos,
            samples: &self.samples,
            seed: self.start.seed,
        }
    }
}

/// What is known at the end.
#[derive(Clone, Copy)]
struct Found<'a> {
    cells: &'a [Cell],
    whos: &'a [Who],
    samples: &'a BTreeMap<(usize, usize), Samples>,
    seed: u64,
}

impl<'a> Found<'a> {
    /// What was measured; `None` where nothing was.
    fn of(&self, cell: Cell, who: &Who) -> Option<&'a Samples> {
        let cell = self.cells.iter().position(|one| *one == cell)?;
        let who = self.whos.iter().position(|one| one == who)?;
        self.samples.get(&(cell, who)).filter(|samples| !samples.us.shown().is_empty())
    }

    /// The quickest peer. Loose and resident calls, which peers have not, are set beside their stream of the same operation and size.
    fn best_peer(&self, cell: Cell) -> Option<(&'a Who, &'a Samples)> {
        let mode = if cell.mode == Mode::Strict { Mode::Strict } else { Mode::Stream };
        let cell = Cell { mode, ..cell };
        let peers = self.whos.iter().filter(|who| matches!(who, Who::Peer { .. }));
        let measured = peers.filter_map(|who| Some((who, self.of(cell, who)?)));
        measured.min_by(|(_, one), (_, other)| {
            let median = |samples: &Samples| samples.median().unwrap_or(f64::INFINITY);
            median(one).total_cmp(&median(other))
        })
    }

    /// Time beside that of the quickest peer.
    fn ratio(&self, cell: Cell, who: &Who) -> Option<Estimate> {
        let (ours, (_, theirs)) = (self.of(cell, who)?, self.best_peer(cell)?);
        stats::ratio_of_medians(ours.us.shown(), theirs.us.shown(), self.seed)
    }
}

impl Series for Bench {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&mut self) -> Result<()> {
        self.outlet.recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, interrupt: &Interrupt) -> Result<Came> {
        let Some(&place) = self.plan.runs.get(at) else { return Ok(Came::Well) };
        let (cell, who) = (self.plan.cells[place.0], &self.plan.whos[place.1]);
        let words = self.plan.tools.command(cell, who);
        let (came, stderr) =
            peers::run(self.plan.tools.peers.start(&words), |said| samples::read(said, cell), interrupt);
        if interrupt.came().is_some() {
            return Ok(Came::Stopped);
        }
        let line = RunLine {
            cell,
            column: who.to_string(),
            round,
            command: said(&words),
            batches: came.as_deref().unwrap_or_default(),
            error: came.as_ref().err().map(String::as_str),
            stderr: &stderr,
        };
        self.outlet.recorder.write(&Line::Run(line))?;
        match came {
            Ok(batches) => {
                self.samples.entry(place).or_default().add(&batches);
                Ok(Came::Well)
            }
            Err(error) => Ok(Came::Badly { error, stderr }),
        }
    }

    fn finish(&mut self, Ended { complete, runs, failed }: Ended) -> Result<()> {
        let end = End { complete, runs, failed };
        let judged = goals::judge(&self.found());
        let found = Found {
            samples: &self.samples,
            cells: &self.plan.cells,
            whos: &self.plan.whos,
            seed: self.start.seed,
        };
        let start = &self.start;
        let shown =
            self.outlet.show(|| report::page(start, found, &judged, end), || chart::picture(start, found));
        let recorder = &mut self.outlet.recorder;
        for &(cell, who) in &self.plan.runs {
            let (cell, who) = (self.plan.cells[cell], &self.plan.whos[who]);
            let Some(samples) = found.of(cell, who) else { continue };
            let ours = matches!(who, Who::Team(_));
            recorder.write(&Line::Result(ResultLine {
                cell,
                column: who.to_string(),
                clean: &samples.us.clean,
                noisy: &samples.us.noisy,
                us: samples.estimate(found.seed),
                least_us: samples.least(),
                cpu_us: samples.cpu(),
                best_peer: found.best_peer(cell).filter(|_| ours).map(|(peer, _)| peer.to_string()),
                ratio: found.ratio(cell, who).filter(|_| ours),
            }))?;
        }
        for one in &judged {
            recorder.write(&Line::Goal(one))?;
        }
        recorder.write(&Line::End(end)).and(shown)
    }
}
