//! Draft of a scenario: small parts before the scenario is built, so that some can be left out.

use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::model::shipped;
use crate::observer_cost::ObserverCost;
use crate::program::{Bind, ProgramSpec};
use crate::scenario::{Arrivals, Happening, Scenario, ScenarioEvent};
use std::sync::Arc;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;
use trimtab_core::topology::parse_synthetic;

/// Machine before it is built.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DraftMachine {
    /// A machine that is shipped with trimtab, by its name.
    Shipped(&'static str),
    /// A regular machine: nodes, caches of each, cores of each, hardware threads of each.
    Made {
        /// Memory nodes, each a package.
        nodes: u32,
        /// LLCs of each node.
        caches: u32,
        /// Cores of each cache.
        cores: u32,
        /// Hardware threads of each core.
        smt: u32,
        /// Speed of every second core, if not that of the others.
        slow: Option<f64>,
        /// Whether memory and shared caches have latencies.
        far: bool,
    },
}

impl DraftMachine {
    /// Machine with one core and no more.
    pub const LEAST: Self = Self::Made { nodes: 1, caches: 1, cores: 1, smt: 1, slow: None, far: false };

    /// Returns the topology as hwloc writes it, or the name.
    pub fn text(&self) -> String {
        match self {
            Self::Shipped(name) => (*name).to_owned(),
            Self::Made { nodes, caches, cores, smt, .. } => {
                format!("pack:{nodes} numa:1 l3:{caches} core:{cores} pu:{smt}")
            }
        }
    }

    /// Returns the machine.
    pub fn model(&self) -> Model {
        let made = match self {
            Self::Shipped(name) => shipped::find(name).and_then(Result::ok),
            Self::Made { slow, far, .. } => parse_synthetic(&self.text()).ok().map(|machine| {
                let mut model = Model::plain(machine);
                if *far && let Some(Ok(westmere)) = shipped::find("westmere-e5620") {
                    (model.caches, model.memory) = (westmere.caches, westmere.memory);
                }
                for speed in model.speeds.iter_mut().skip(1).step_by(2) {
                    *speed = slow.unwrap_or(1.0);
                }
                model
            }),
        };
        made.unwrap_or_else(|| Self::LEAST.model())
    }
}

/// Scenario in parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// Machine.
    pub ground: DraftMachine,
    /// Whether memory delays threads.
    pub memory: bool,
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Programs.
    pub programs: Vec<ProgramSpec>,
    /// Programs that arrive.
    pub arrivals: Vec<Arrivals>,
    /// Policy that balances the programs.
    pub policy: Option<(Kind, Settings)>,
    /// Events.
    pub events: Vec<ScenarioEvent>,
    /// Faults.
    pub faults: Faults,
    /// End.
    pub end: Moment,
    /// Seed.
    pub seed: u64,
}

impl Draft {
    /// Returns the scenario. Masks are cut to the CPUs of the machine; a program whose mask would
    /// be empty is free.
    pub fn scenario(&self) -> Scenario {
        let model = self.ground.model();
        let cpus = model.machine.cpus();
        let count = model.machine.pu_count();
        let kernel = Kernel::preset(self.kernel, count).or_else(|_| Kernel::preset("linux-6.12", count));
        let cut = |program: &ProgramSpec| cut(program, &cpus);
        let events = self.events.iter().filter_map(|event| {
            let what = match &event.what {
                Happening::Usable(usable) => {
                    let usable = usable.intersection(&cpus);
                    (!usable.is_empty()).then_some(Happening::Usable(usable))?
                }
                Happening::Start(program) => Happening::Start(Box::new(cut(program))),
                Happening::Stop(program) => Happening::Stop(*program),
            };
            Some(ScenarioEvent { at: event.at, what })
        });
        Scenario {
            name: format!("swarm {}", self.seed),
            memory: self.memory,
            // A preset of this name exists: it was drawn from them.
            kernel: kernel.unwrap_or_else(|_| unreachable!("linux-6.12 is a preset")),
            programs: self.programs.iter().map(cut).collect(),
            arrivals: self
                .arrivals
                .iter()
                .map(|arrivals| Arrivals { program: cut(&arrivals.program), ..arrivals.clone() })
                .collect(),
            policy: self.policy.clone(),
            events: events.collect(),
            faults: self.faults,
            observer_cost: ObserverCost::default(),
            end: self.end,
            seed: self.seed,
            model,
        }
    }
}

fn cut(program: &ProgramSpec, cpus: &CpuSet) -> ProgramSpec {
    let some = |mask: CpuSet| (!mask.is_empty()).then_some(mask);
    let inside = |mask: &CpuSet| some(mask.intersection(cpus));
    let kept = |places: &[CpuSet], bind: fn(Arc<[CpuSet]>) -> Bind| {
        let places: Arc<[CpuSet]> = places.iter().filter_map(inside).collect();
        if places.is_empty() { Bind::Free } else { bind(places) }
    };
    let bind = match &program.bind {
        Bind::List(places) => kept(places, Bind::List),
        Bind::BeginOn(places) => kept(places, Bind::BeginOn),
        other => other.clone(),
    };
    ProgramSpec { mask: program.mask.as_ref().and_then(inside), bind, ..program.clone() }
}
