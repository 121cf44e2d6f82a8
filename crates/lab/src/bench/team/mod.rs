//! `trimtab bench team`: teams of threads and of processes beside what others use.
//!
//! Rounds of all cells by all who are measured, each round in another random order that follows from the seed. A run of a program is one
//! sample. [`mod@matrix`] says what is run, [`mod@cell`] and [`measure`] are our own program, [`samples`] what runs come to, [`goals`] whether that is
//! good, [`report`] and [`chart`] show it. [`kernels`] has whole programs in place of single operations.

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

use super::harness::{self, Came, Ended, Outlet, Recorder, Rounds, Series};
use crate::args::{BenchTeamArgs, TeamCellArgs};
use crate::usable::Usable;
use anyhow::{Result, bail};
use goals::Judged;
use matrix::{Cell, Plan, Who};
use records::{Line, ResultLine, RunLine, Start};
use samples::Samples;
use std::collections::BTreeMap;
use trimtab_front::exit::Exit;
use trimtab_front::interrupt::Interrupt;
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
/// A run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchTeamArgs) -> Result<u8> {
    if !args.kernels.is_empty() {
        return kernels::run(world, args);
    }
    let plan = matrix::plan(args)?;
    if args.list {
        let runs = plan.matrix.listing(|cell, who| plan.tools.command(cell, who));
        return harness::list(runs, &plan.matrix.left_out);
    }
    if plan.matrix.runs.is_empty() {
        bail!("there is nothing to measure: {}", plan.matrix.left_out.join("; "));
    }
    let usable = Usable::live(world, false)?;
    harness::measure(|_| Bench::prepare(args, &usable, plan))
}

struct Bench {
    plan: Plan,
    rounds: Rounds,
    start: Start,
    /// By cell and who is measured.
    samples: BTreeMap<(usize, usize), Samples>,
}

impl Bench {
    fn prepare(args: &BenchTeamArgs, usable: &Usable, plan: Plan) -> Result<(Self, Outlet)> {
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), false)?;
        let times = if args.quick { 1 } else { args.rounds };
        let start = Start {
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

/// What is known at the end.
type Found<'a> = contest::Found<'a, Cell, Samples>;

impl Series for Bench {
    type Findings<'f>
        = (Found<'f>, Vec<Judged>)
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&Line::Start(&self.start))
    }

    fn one(&mut self, at: usize, round: u32, recorder: &mut Recorder, interrupt: &Interrupt) -> Result<Came> {
        let Some(&place) = self.plan.matrix.runs.get(at) else { return Ok(Came::Well) };
        let (cell, who) = (self.plan.matrix.cells[place.0], &self.plan.matrix.whos[place.1]);
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
            command: harness::words(&words),
            batches: came.as_deref().unwrap_or_default(),
            error: came.as_ref().err().map(String::as_str),
            stderr: &stderr,
        };
        recorder.write(&Line::Run(line))?;
        match came {
            Ok(batches) => {
                self.samples.entry(place).or_default().add(&batches);
                Ok(Came::Well)
            }
            Err(error) => Ok(Came::Badly { error, stderr }),
        }
    }

    fn evaluate(&self) -> (Found<'_>, Vec<Judged>) {
        let found = Found::new(&self.plan.matrix, &self.samples, self.start.seed);
        (found, goals::judge(&found))
    }

    fn report(&self, (found, judged): &(Found<'_>, Vec<Judged>), ended: Ended) -> String {
        report::page(&self.start, *found, judged, ended)
    }

    fn chart(&self, (found, _): &(Found<'_>, Vec<Judged>)) -> String {
        chart::picture(&self.start, *found)
    }

    fn conclude(
        &self,
        (found, judged): &(Found<'_>, Vec<Judged>),
        ended: Ended,
        recorder: &mut Recorder,
    ) -> Result<()> {
        for (cell, who) in self.plan.matrix.each() {
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
        for one in judged {
            recorder.write(&Line::Goal(one))?;
        }
        recorder.write(&Line::End(ended))
    }
}
