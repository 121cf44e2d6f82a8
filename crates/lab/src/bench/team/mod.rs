//! `trimtab bench team`: teams of threads and of processes, compared with MPI, OpenMP, pthreads and
//! Python.
//!
//! Each round runs all cells by all contestants in another random order that follows from the seed.
//! A run of a program is one sample. [`mod@matrix`] defines the runs, [`mod@cell`] and [`measure`]
//! are our own program, [`samples`] evaluates runs, [`goals`] judges the results, [`report`] and
//! [`chart`] show them. [`kernels`] runs whole programs instead of single operations.

mod cell;
mod chart;
mod contest;
mod goals;
mod kernels;
mod matrix;
mod measure;
pub(super) mod peers;
pub(super) mod plot;
mod records;
mod report;
mod samples;

use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use crate::args::{BenchTeamArgs, TeamCellArgs};
use crate::usable::Usable;
use anyhow::{Result, bail};
use contest::Contestant;
use goals::JudgedGoal;
use matrix::{TeamCell, TeamPlan};
use records::{TeamLine, TeamResultLine, TeamRunLine, TeamStart};
use samples::TeamSamples;
use std::collections::BTreeMap;
use trimtab_front::exit::Exit;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;

/// Measures one cell with a team.
///
/// # Errors
/// Those of the cell program.
pub(super) fn cell(args: &TeamCellArgs) -> Result<u8, Exit> {
    cell::run(args)
}

/// Runs the benchmark and shows the results.
///
/// # Errors
/// A run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchTeamArgs) -> Result<u8> {
    if !args.kernels.is_empty() {
        return kernels::run(world, args);
    }
    let plan = matrix::plan(args)?;
    if args.list {
        let runs = plan.matrix.listing(|cell, contestant| plan.tools.command(cell, contestant));
        return harness::list(runs, &plan.matrix.left_out);
    }
    if plan.matrix.runs.is_empty() {
        bail!("there is nothing to measure: {}", plan.matrix.left_out.join("; "));
    }
    let usable = Usable::live(world, false)?;
    harness::measure(|_| TeamBench::prepare(args, &usable, plan))
}

struct TeamBench {
    plan: TeamPlan,
    rounds: Rounds,
    start: TeamStart,
    /// By cell and contestant.
    samples: BTreeMap<(usize, usize), TeamSamples>,
}

impl TeamBench {
    fn prepare(args: &BenchTeamArgs, usable: &Usable, plan: TeamPlan) -> Result<(Self, Outlet)> {
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), false)?;
        let times = if args.quick { 1 } else { args.rounds };
        let start = TeamStart {
            head: harness::head("team", usable),
            rounds: times,
            quick: args.quick,
            seed: args.seed,
            pinned: args.pin,
            unoptimised: cfg!(debug_assertions),
            cpus: measure::allowed()?.len(),
            columns: plan.matrix.columns(),
            left_out: plan.matrix.left_out.clone(),
        };
        let rounds = Rounds::of(&plan.matrix.names(), times, args.seed);
        Ok((Self { plan, rounds, start, samples: BTreeMap::new() }, outlet))
    }
}

/// Findings of the operations.
type TeamFindings<'a> = contest::ContestFindings<'a, TeamCell, TeamSamples>;

impl Benchmark for TeamBench {
    type Findings<'f>
        = (TeamFindings<'f>, Vec<JudgedGoal>)
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&TeamLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let Some(&place) = self.plan.matrix.runs.get(at) else { return Ok(RunOutcome::Well) };
        let (cell, contestant) = (self.plan.matrix.cells[place.0], &self.plan.matrix.contestants[place.1]);
        let words = self.plan.tools.command(cell, contestant);
        let (came, stderr) =
            peers::run(self.plan.tools.peers.start(&words), |said| samples::read(said, cell), interrupt);
        if interrupt.came().is_some() {
            return Ok(RunOutcome::Stopped);
        }
        let line = TeamRunLine {
            cell,
            column: contestant.to_string(),
            round,
            command: harness::words(&words),
            batches: came.as_deref().unwrap_or_default(),
            error: came.as_ref().err().map(String::as_str),
            stderr: &stderr,
        };
        recorder.write(&TeamLine::Run(line))?;
        match came {
            Ok(batches) => {
                self.samples.entry(place).or_default().add(&batches);
                Ok(RunOutcome::Well)
            }
            Err(error) => Ok(RunOutcome::Badly { error, stderr }),
        }
    }

    fn evaluate(&self) -> (TeamFindings<'_>, Vec<JudgedGoal>) {
        let found = TeamFindings::new(&self.plan.matrix, &self.samples, self.start.seed);
        (found, goals::judge(&found))
    }

    fn report(&self, (found, judged): &(TeamFindings<'_>, Vec<JudgedGoal>), ended: SeriesEnd) -> String {
        report::page(&self.start, *found, judged, ended)
    }

    fn chart(&self, (found, _): &(TeamFindings<'_>, Vec<JudgedGoal>)) -> String {
        chart::picture(&self.start, *found)
    }

    fn conclude(
        &self,
        (found, judged): &(TeamFindings<'_>, Vec<JudgedGoal>),
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        for (cell, contestant) in self.plan.matrix.each() {
            let Some(samples) = found.of(cell, contestant) else { continue };
            let ours = matches!(contestant, Contestant::Team(_));
            recorder.write(&TeamLine::Result(TeamResultLine {
                cell,
                column: contestant.to_string(),
                clean: &samples.us.clean,
                noisy: &samples.us.noisy,
                us: samples.estimate(found.seed),
                least_us: samples.least(),
                cpu_us: samples.cpu(),
                best_peer: found.best_peer(cell).filter(|_| ours).map(|(peer, _)| peer.to_string()),
                ratio: found.ratio(cell, contestant).filter(|_| ours),
            }))?;
        }
        for one in judged {
            recorder.write(&TeamLine::Goal(one))?;
        }
        recorder.write(&TeamLine::End(ended))
    }
}
