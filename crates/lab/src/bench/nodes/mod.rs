//! `trimtab bench nodes`: memory between nodes, and `brm` on programs that begin on the wrong node.
//!
//! [`mod@matrix`] defines the runs, [`placed`] makes one, [`report`] shows the results.

mod matrix;
mod placed;
mod records;
mod report;

use super::harness::{self, Benchmark, Outlet, Recorder, Rounds, RunOutcome, SeriesEnd};
use super::uncore::PROGRAM;
use crate::args::NodesArgs;
use crate::usable::Usable;
use anyhow::{Result, bail};
use matrix::{NodesCase, NodesPlan, NodesWay};
use placed::PlacedRun;
use records::{NodesEnd, NodesLine, NodesResultLine, NodesRunLine, NodesStart};
use std::path::PathBuf;
use trimtab_core::stats::{Better, Comparison, Estimate, compare, estimate};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;

/// Runs the benchmark and shows the results.
///
/// # Errors
/// The program is missing, a run of it failed, or a file cannot be written.
pub(super) fn run(world: &World, args: &NodesArgs) -> Result<u8> {
    let usable = Usable::live(world, true)?;
    let mut plan = matrix::plan(&usable.machine, &usable.allowed, args.quick);
    if !args.only.is_empty() {
        let wanted = |case: &NodesCase| args.only.iter().any(|part| case.to_string().contains(part));
        plan.cases.retain(wanted);
    }
    if args.list {
        let name = |case: &NodesCase, way: &NodesWay| format!("{case}/{}", way.word());
        let runs = plan.cases.iter().flat_map(|case| case.ways.iter().map(move |way| name(case, way)));
        return harness::list(runs, &plan.left_out);
    }
    if plan.cases.is_empty() {
        if plan.left_out.is_empty() {
            return Err(harness::no_such_case("nodes", &args.only));
        }
        bail!("there is nothing to measure here: {}", plan.left_out.join("; "));
    }
    harness::measure(|_| NodesBench::prepare(world, args, &usable, plan))
}

struct NodesBench {
    trimtab: PathBuf,
    folder: PathBuf,
    cases: Vec<NodesCase>,
    /// The case and the variant of each run of a round.
    runs: Vec<(usize, NodesWay)>,
    rounds: Rounds,
    start: NodesStart,
    /// Samples of each run of a round.
    samples: Vec<Vec<f64>>,
}

impl NodesBench {
    fn prepare(world: &World, args: &NodesArgs, usable: &Usable, plan: NodesPlan) -> Result<(Self, Outlet)> {
        let (trimtab, folder) = harness::programs(args.programs.as_deref(), &[PROGRAM])?;
        let outlet = Outlet::open(args.json.as_deref(), None, false)?;
        let balancing = std::fs::read_to_string(world.proc().join("sys/kernel/numa_balancing")).ok();
        let start = NodesStart {
            head: harness::head("nodes", usable),
            repeats: args.repeats,
            quick: args.quick,
            seed: args.seed,
            programs: folder.display().to_string(),
            numa_balancing: balancing.map(|text| text.trim().to_owned()),
            left_out: plan.left_out,
        };
        let cases = plan.cases;
        let mut runs = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            runs.extend(case.ways.iter().map(|way| (at, *way)));
        }
        let names: Vec<String> =
            runs.iter().map(|(at, way)| format!("{} {}", cases[*at], way.word())).collect();
        let rounds = Rounds::of(&names, args.repeats, args.seed);
        let samples = vec![Vec::new(); runs.len()];
        Ok((Self { trimtab, folder, cases, runs, rounds, start, samples }, outlet))
    }
}

/// All runs of a case in a variant.
#[derive(Debug)]
struct NodesMeasured<'a> {
    case: &'a NodesCase,
    way: NodesWay,
    samples: &'a [f64],
    estimate: Option<Estimate>,
    against_linux: Option<Comparison>,
}

impl Benchmark for NodesBench {
    type Findings<'f>
        = Vec<NodesMeasured<'f>>
    where
        Self: 'f;

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn begin(&self, recorder: &mut Recorder) -> Result<()> {
        recorder.write(&NodesLine::Start(&self.start))
    }

    fn one(
        &mut self,
        at: usize,
        round: u32,
        recorder: &mut Recorder,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome> {
        let (of, way) = self.runs[at];
        let case = &self.cases[of];
        let ran = placed::run(case, way, &self.folder, &self.trimtab, interrupt);
        let came = match &ran {
            PlacedRun::Stopped => return Ok(RunOutcome::Stopped),
            PlacedRun::Well(value) => Ok(*value),
            PlacedRun::Badly { error, stderr } => Err((error.as_str(), stderr.as_str())),
        };
        recorder.write(&NodesLine::Run(NodesRunLine::new(case, way, round, came)))?;
        Ok(match ran {
            PlacedRun::Badly { error, stderr } => RunOutcome::Badly { error, stderr },
            PlacedRun::Well(value) => {
                self.samples[at].push(value);
                RunOutcome::Well
            }
            PlacedRun::Stopped => RunOutcome::Stopped,
        })
    }

    fn evaluate(&self) -> Vec<NodesMeasured<'_>> {
        let seed = self.start.seed;
        let linux = |of: usize| {
            let at = self.runs.iter().position(|run| *run == (of, NodesWay::Linux))?;
            self.samples.get(at).filter(|samples| !samples.is_empty())
        };
        let mut measured = Vec::new();
        for ((of, way), samples) in self.runs.iter().zip(&self.samples) {
            if samples.is_empty() {
                continue;
            }
            let baseline = linux(*of).filter(|_| way.options().is_some());
            measured.push(NodesMeasured {
                case: &self.cases[*of],
                way: *way,
                samples,
                estimate: estimate(samples, seed),
                against_linux: baseline.map(|base| compare(base, samples, Better::More, seed)),
            });
        }
        measured
    }

    fn report(&self, measured: &Vec<NodesMeasured<'_>>, ended: SeriesEnd) -> String {
        report::page(&self.start, measured, ended)
    }

    fn conclude(
        &self,
        measured: &Vec<NodesMeasured<'_>>,
        ended: SeriesEnd,
        recorder: &mut Recorder,
    ) -> Result<()> {
        for one in measured {
            recorder.write(&NodesLine::Result(NodesResultLine {
                case: one.case.to_string(),
                kind: one.case.kind,
                unit: one.case.kind.unit(),
                way: one.way,
                samples: one.samples,
                estimate: one.estimate,
                against_linux: one.against_linux,
            }))?;
        }
        let SeriesEnd { complete, runs, failed } = ended;
        recorder.write(&NodesLine::End(&NodesEnd { complete, runs, failed }))
    }
}
