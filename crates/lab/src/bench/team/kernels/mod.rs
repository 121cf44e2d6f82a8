//! `trimtab bench team --kernels`: NAS kernels FT and IS by teams of threads, of processes and of
//! both, compared with MPI and OpenMP.
//!
//! Rounds run all kernels by all contestants, as for single operations ([`super`]). The programs
//! are in bench/team/kernels; teams are called through their C interface there, like a peer.
//! [`mod@matrix`] defines the runs, [`samples`] evaluates them, [`report`] and [`chart`] show the
//! results.

mod chart;
mod matrix;
mod records;
mod report;
mod samples;

use super::super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use super::contest;
use super::contest::Contestant;
use super::measure;
use super::peers;
use crate::args::BenchTeamArgs;
use crate::usable::Usable;
use anyhow::{Result, bail};
use matrix::{KernelsCell, KernelsPlan};
use records::{KernelsComparison, KernelsLine, KernelsResultLine, KernelsRunLine, KernelsStart};
use samples::KernelsSamples;
use std::collections::BTreeMap;
use trimtab_core::stats::Estimate;
use trimtab_front::args::ranks::RankLayout;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;

/// Runs the benchmark and shows the results.
///
/// # Errors
/// A run failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &BenchTeamArgs) -> Result<u8> {
    let plan = matrix::plan(args)?;
    if args.list {
        let runs = plan.matrix.listing(|cell, contestant| plan.command(cell, contestant));
        return harness::list(runs, &plan.matrix.left_out);
    }
    if plan.matrix.runs.is_empty() {
        bail!("there is nothing to measure: {}", plan.matrix.left_out.join("; "));
    }
    let usable = Usable::live(world, false)?;
    harness::measure(|_| KernelsBench::prepare(args, &usable, plan))
}

struct KernelsBench {
    plan: KernelsPlan,
    rounds: Rounds,
    start: KernelsStart,
    /// By cell and contestant.
    samples: BTreeMap<(usize, usize), KernelsSamples>,
}

impl KernelsBench {
    fn prepare(args: &BenchTeamArgs, usable: &Usable, plan: KernelsPlan) -> Result<(Self, Outlet)> {
        let outlet = Outlet::open(args.json.as_deref(), args.svg.as_deref(), false)?;
        let times = if args.quick { 1 } else { args.rounds };
        let start = KernelsStart {
            head: harness::head("team-kernels", usable),
            rounds: times,
            quick: args.quick,
            seed: args.seed,
            pinned: args.pin,
            cpus: measure::allowed()?.len(),
            columns: plan.matrix.columns(),
            left_out: plan.matrix.left_out.clone(),
        };
        let rounds = Rounds::of(&plan.matrix.names(), times, args.seed);
        Ok((Self { plan, rounds, start, samples: BTreeMap::new() }, outlet))
    }
}

/// Findings of the kernels.
type KernelsFindings<'a> = contest::ContestFindings<'a, KernelsCell, KernelsSamples>;

impl KernelsFindings<'_> {
    /// Returns the ratio of another kind of team to a team of threads.
    fn beside_threads(&self, cell: KernelsCell, contestant: &Contestant) -> Option<Estimate> {
        let others = matches!(contestant, Contestant::Team(layout) if *layout != RankLayout::Threads);
        let threads =
            self.of(cell, &Contestant::Team(RankLayout::Threads)).filter(|_| others && cell.ranks > 1)?;
        self.ratio_of(self.of(cell, contestant)?, threads)
    }
}

impl Benchmark for KernelsBench {
    type Findings<'f>
        = KernelsFindings<'f>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&KernelsLine::Start(&self.start))
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
        let words = self.plan.command(cell, contestant);
        let (came, stderr) =
            peers::run(self.plan.peers.start(&words), |said| samples::read(said, cell), interrupt);
        if interrupt.came().is_some() {
            return Ok(RunOutcome::Stopped);
        }
        recorder.write(&KernelsLine::Run(KernelsRunLine {
            cell,
            column: contestant.to_string(),
            round,
            command: harness::words(&words),
            repetitions: came.as_deref().unwrap_or_default(),
            error: came.as_ref().err().map(String::as_str),
            stderr: &stderr,
        }))?;
        match came {
            Ok(repetitions) => {
                self.samples.entry(place).or_default().add(&repetitions);
                Ok(RunOutcome::Well)
            }
            Err(error) => Ok(RunOutcome::Badly { error, stderr }),
        }
    }

    fn evaluate(&self) -> KernelsFindings<'_> {
        KernelsFindings::new(&self.plan.matrix, &self.samples, self.start.seed)
    }

    fn report(&self, found: &KernelsFindings<'_>, ended: SeriesEnd) -> String {
        report::page(&self.start, *found, ended)
    }

    fn chart(&self, found: &KernelsFindings<'_>) -> String {
        chart::picture(&self.start, *found)
    }

    fn conclude(&self, found: &KernelsFindings<'_>, ended: SeriesEnd, recorder: &mut Recorder) -> Result<()> {
        for (cell, contestant) in self.plan.matrix.each() {
            let Some(samples) = found.of(cell, contestant) else { continue };
            let ours = matches!(contestant, Contestant::Team(_));
            recorder.write(&KernelsLine::Result(KernelsResultLine {
                cell,
                column: contestant.to_string(),
                clean: samples.clean(),
                noisy: samples.noisy(),
                seconds: samples.estimate(found.seed),
                least_seconds: samples.least(),
                cpu_seconds: samples.cpu(),
                communication: samples.share(),
                best_peer: found.best_peer(cell).filter(|_| ours).map(|(peer, _)| peer.to_string()),
                ratio: found.ratio(cell, contestant).filter(|_| ours),
            }))?;
            if let Some(ratio) = found.beside_threads(cell, contestant) {
                let (above, below) =
                    (contestant.to_string(), Contestant::Team(RankLayout::Threads).to_string());
                recorder.write(&KernelsLine::Comparison(KernelsComparison { cell, above, below, ratio }))?;
            }
        }
        recorder.write(&KernelsLine::End(ended))
    }
}
