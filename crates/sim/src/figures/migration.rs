//! Bias random migration against Xen's credit scheduler and the best static placement: seed 002; and what became of it here.
//!
//! The virtual machine's memory lies on node 0, as Xen 4.0 fills the node of the first virtual CPU before any other; the study says nothing of it.
//! Hyper-threading is off up to eight threads ("future work: considering simultaneous multithreading").

use super::draft::{Contestant, Draft, LOAD, machine, profile, scenario};
use super::placements::{all, name};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::looking::{BARE, Looking, TICK};
use crate::model::Model;
use crate::program::mixes::micro;
use crate::program::{Bind, Body, Pages, Program, Wait, jobs};
use crate::scenario::{Event, Happening, Scenario};
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Runs of each cell.
const RUNS: u32 = 10;
const MIB: u64 = 1 << 20;
/// Of each thread: with waits, some twenty to forty seconds.
const WORK: Span = Span::from_ms(10_000);

const CREDIT: Contestant = Contestant { name: "credit", kernel: "xen-4.0", ..LOAD };
const PAPER: Contestant = Contestant { name: "brm-paper", policy: Some(Kind::BrmPaper), ..CREDIT };
const BRM: Contestant = Contestant { name: "brm", policy: Some(Kind::Brm), ..CREDIT };
const SERIAL: Contestant = Contestant { name: "serial", policy: Some(Kind::Serial), ..CREDIT };

const PLACE: &str = "seed 002, improving performance";
const VARIATION: &str = "seed 002, reducing variation: on average no more than 2 %";
const OVERHEAD: &str = "seed 002, overhead";

/// What a contestant's looks cost.
fn looking(of: Contestant) -> Looking {
    match of.policy {
        None => Looking::default(),
        Some(Kind::BrmPaper) => TICK,
        Some(_) => BARE,
    }
}

/// Domain 0: a virtual CPU that works for a moment every 15 ms (estimated: timers and back ends of a quiet host, 2 % of a CPU).
fn host() -> Program {
    let duty = Some((Span::from_us(300), Span::from_us(14_700)));
    Program { name: "dom0".to_owned(), body: Body::Hog { duty }, ..Program::hog("dom0", 1) }
}

/// What is run, by whom it may be run.
struct Workload {
    name: String,
    programs: Vec<Program>,
    /// Of which kind each thread is.
    kinds: Vec<usize>,
}

struct Bench {
    draft: Draft,
    model: Model,
    /// The CPUs of each node that are used.
    nodes: Vec<CpuSet>,
}

impl Bench {
    fn scenario(&self, of: Contestant, programs: Vec<Program>) -> Result<Scenario, FigureError> {
        let mut scenario = scenario(&self.model, of, programs)?;
        scenario.programs.push(host());
        scenario.looking = looking(of);
        let used = self.nodes.iter().fold(CpuSet::new(), |all, node| all.union(node));
        if used.len() < self.model.machine.pu_count() {
            scenario.events.push(Event { at: Moment(0), what: Happening::Usable(used) });
        }
        Ok(scenario)
    }

    /// How long a workload takes under a contestant.
    fn time(&mut self, work: &Workload, of: Contestant, runs: u32) -> Result<Measure, FigureError> {
        let scenario = self.scenario(of, work.programs.clone())?;
        Ok(self.draft.cell(&format!("{} {}", work.name, of.name), scenario, Metric::Mean, runs))
    }

    /// How long it takes where it is best placed once and for all.
    fn hand(&mut self, work: &Workload) -> Result<Measure, FigureError> {
        let room = self.nodes.first().map_or(0, CpuSet::len);
        let mut times = Vec::new();
        for placement in all(&work.kinds, self.nodes.len(), room) {
            let mut programs = work.programs.clone();
            let mut places = placement.iter().map(|&node| self.nodes[node].clone());
            for program in &mut programs {
                program.bind = Bind::List(places.by_ref().take(program.threads as usize).collect());
            }
            let scenario = self.scenario(CREDIT, programs)?;
            let label = format!("{} bound {}", work.name, name(&placement, &work.kinds, self.nodes.len()));
            times.push(self.draft.cell(&label, scenario, Metric::Mean, 1));
        }
        Ok(Measure::Lowest(times))
    }
}

/// The first hardware thread of each core, or all, by node.
fn nodes(model: &Model, threads: bool) -> Vec<CpuSet> {
    let machine = &model.machine;
    let cpus = |node: usize| {
        let cores = machine.cores().iter().filter(|core| core.node.is_some_and(|at| at.index() == node));
        let of = |core: &trimtab_core::topology::Core| {
            let pus: Vec<OsCpu> = core.pus.clone().map(|pu| machine.os(Id::from_index(pu as usize))).collect();
            pus.into_iter().take(if threads { usize::MAX } else { 1 }).collect::<Vec<_>>()
        };
        cores.flat_map(of).collect::<CpuSet>()
    };
    (0..machine.nodes().len()).map(cpus).collect()
}
