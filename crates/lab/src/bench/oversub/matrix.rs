//! What is run: the cases of a round, by groups that have their baselines in common.

use super::programs::{Tools, deaf, waits as waits_of};
use crate::args::{Class, Couple, Mix, OversubArgs, Program};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::set::CpuSet;
use trimtab_core::study::{Arrangement, Cell, Company, Grip, Runtime};

/// Programs that are run unless others are named: all but those that take long.
const USUAL: [Program; 11] = [
    Program::Cg,
    Program::Ep,
    Program::Ft,
    Program::Is,
    Program::Lu,
    Program::Mg,
    Program::Barriers1ms,
    Program::Barriers10ms,
    Program::Barriers100ms,
    Program::Pipeline,
    Program::Zones,
];
const QUICK: [Program; 6] =
    [Program::Cg, Program::Ep, Program::Ft, Program::Barriers1ms, Program::Pipeline, Program::Zones];
const WAITS: [WaitPolicy; 5] =
    [WaitPolicy::Keep, WaitPolicy::Auto, WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Sleep];
const QUICK_WAITS: [WaitPolicy; 3] = [WaitPolicy::Keep, WaitPolicy::Spin, WaitPolicy::Sleep];
const PAIRS: [(Program, Program); 3] =
    [(Program::Cg, Program::Ep), (Program::Ep, Program::Ep), (Program::Lu, Program::Barriers10ms)];
/// Rounds of a first look, if no others were asked for.
const QUICK_ROUNDS: u32 = 3;
/// Minutes of a first look: what runs then still has one to end.
const QUICK_MINUTES: f64 = 9.0;
/// What rounds are by default, as the options say it.
const ROUNDS: u32 = 5;

/// One program in one cell.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Job {
    pub(super) program: Program,
    pub(super) cell: Cell,
    pub(super) cpus: CpuSet,
}

/// What is run at once: one program, or two.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) jobs: Vec<Job>,
}

impl Step {
    /// Steps of a group have the same baselines, and are run one after the other.
    pub(super) fn group(&self) -> Vec<(Program, Runtime)> {
        self.jobs.iter().map(|job| (job.program, job.cell.runtime)).collect()
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.jobs.first().map(|job| job.cell.to_string());
        f.write_str(name.as_deref().unwrap_or("nothing"))
    }
}

/// All that is to be run, and what is not.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) class: Class,
    pub(super) rounds: u32,
    pub(super) minutes: Option<f64>,
    pub(super) steps: Vec<Step>,
    /// What cannot be run here, or was left out for haste, and why.
    pub(super) left_out: Vec<String>,
}

/// What was named, or these, each once.
fn or<T: Clone + PartialEq>(named: &[T], usual: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for one in if named.is_empty() { usual } else { named } {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// Decides on these CPUs, one of each core.
pub(super) fn plan(args: &OversubArgs, tools: &Tools, cpus: &CpuSet) -> Plan {
    let quick = args.quick;
    let class = args.class.unwrap_or(Class::W);
    let mut plan = Plan {
        class,
        rounds: if quick && args.rounds == ROUNDS { QUICK_ROUNDS } else { args.rounds },
        minutes: args.minutes.or(quick.then_some(QUICK_MINUTES)),
        steps: Vec::new(),
        left_out: Vec::new(),
    };
    if quick {
        plan.left_out.push(
            "--quick: few programs, few ways, few rounds; what other options name is taken as named"
                .to_owned(),
        );
    }
    let mut chosen =
        Chosen { args, tools, cpus, quick, lacking: BTreeMap::new(), deaf: BTreeMap::new(), plan };
    chosen.alone();
    chosen.pairs();
    for ((runtime, why), waits) in chosen.deaf {
        let waits: Vec<&str> = waits.into_iter().collect();
        chosen.plan.left_out.push(format!("{runtime} with --waits {}: {why}", waits.join(", ")));
    }
    for ((runtime, why), programs) in chosen.lacking {
        let programs: Vec<&str> = programs.into_iter().collect();
        chosen.plan.left_out.push(format!("{} by {runtime} cannot be run here: {why}", programs.join(", ")));
    }
    chosen.plan
}

struct Chosen<'a> {
    args: &'a OversubArgs,
    tools: &'a Tools,
    cpus: &'a CpuSet,
    quick: bool,
    /// Of which it was said already that it cannot be run.
    lacking: BTreeMap<(Runtime, String), BTreeSet<&'static str>>,
    /// Ways to wait that runtimes have no words for.
    deaf: BTreeMap<(Runtime, &'static str), BTreeSet<&'static str>>,
    plan: Plan,
}

impl Chosen<'_> {
    /// Whether it can be run here; if not, that is said once.
    fn is_here(&mut self, program: Program, runtime: Runtime) -> bool {
        let Some(why) = self.tools.lacks(program, runtime) else { return true };
        let lacking = self.lacking.entry((runtime, why)).or_default();
        lacking.insert(program.word());
        false
    }

    fn leave_out(&mut self, said: String) {
        if !self.plan.left_out.contains(&said) {
            self.plan.left_out.push(said);
        }
    }

    fn cell(&self, program: Program, runtime: Runtime, per_core: u32, cores: u32) -> Cell {
        Cell {
            program: program.word().to_owned(),
            class: Some(self.plan.class.word().to_owned()),
            family: program.family(),
            runtime,
            threads: cores.saturating_mul(per_core),
            cores,
            per_core,
            grip: Grip::Floating,
            wait: WaitPolicy::Keep,
            company: None,
        }
    }

    /// Ways to wait and be bound. Waiting is varied with floating threads, binding with waiting as it is, unless all is asked for.
    fn ways(&self) -> Vec<(Grip, WaitPolicy)> {
        let grips = or(&self.args.grips, if self.quick { &[Grip::Floating] } else { &Grip::ALL });
        let waits = or(&self.args.waits, if self.quick { &QUICK_WAITS } else { &WAITS });
        let all = grips.iter().flat_map(|grip| waits.iter().map(move |wait| (*grip, *wait)));
        // Without the one that all others are varied from, all is asked for.
        let from_there = !grips.contains(&Grip::Floating) || !waits.contains(&WaitPolicy::Keep);
        let wanted = |(grip, wait): &(Grip, WaitPolicy)| {
            self.args.cross || from_there || *grip == Grip::Floating || *wait == WaitPolicy::Keep
        };
        all.filter(wanted).collect()
    }

    fn alone(&mut self) {
        let cores = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let per_core = match self.quick && self.args.per_core == [1, 2, 4, 8] {
            true => vec![1, 2, 4],
            false => or(&self.args.per_core, &[]),
        };
        for program in or(&self.args.kernels, if self.quick { &QUICK } else { &USUAL }) {
            for runtime in or(&self.args.runtimes, &Runtime::ALL) {
                if !program.has(runtime) || !self.is_here(program, runtime) {
                    continue;
                }
                for &per_core in &per_core {
                    for (grip, wait) in self.ways() {
                        let cell = Cell { grip, wait, ..self.cell(program, runtime, per_core, cores) };
                        if let Some(why) = deaf(runtime, wait) {
                            let deaf = self.deaf.entry((runtime, why)).or_default();
                            deaf.insert(wait.word());
                        } else if wait == WaitPolicy::Auto && waits_of(runtime, wait, &cell).is_empty() {
                            // As it is where every thread has a core, which is told apart only if asked for.
                            if !self.args.waits.is_empty() {
                                let why =
                                    "it is left as it is where every thread has a core, or has no variable";
                                self.leave_out(format!("{runtime} with --waits auto: {why}"));
                            }
                        } else if grip == Grip::Balanced
                            && matches!(runtime, Runtime::OpenMpi | Runtime::Mpich)
                        {
                            self.leave_out(format!("{runtime} balanced: --balance has the threads of one program, not of a launcher's"));
                        } else {
                            let jobs = vec![Job { program, cell, cpus: self.cpus.clone() }];
                            self.plan.steps.push(Step { jobs });
                        }
                    }
                }
            }
        }
    }

    fn pairs(&mut self) {
        let usual: Vec<Couple> = PAIRS.iter().map(|(one, other)| Couple::Of(*one, *other)).collect();
        let usual = if self.quick { &usual[..1] } else { &usual[..] };
        let couples = or(self.args.pairs.as_deref().unwrap_or(usual), &[]);
        let mixes = or(&self.args.mixes, &[]);
        let mixes = if self.quick && mixes.len() == 3 { vec![Mix(1, 1), Mix(1, 4)] } else { mixes };
        let waits = or(&self.args.waits, &[WaitPolicy::Keep, WaitPolicy::Auto]);
        // Both by the same runtime, and that one of threads.
        let of_threads = |runtime: &Runtime| matches!(runtime, Runtime::Libgomp | Runtime::Libomp);
        let mut runtimes = or(&self.args.runtimes, &[Runtime::Libgomp, Runtime::Libomp]);
        runtimes.retain(of_threads);
        if self.quick && self.args.runtimes.is_empty() {
            runtimes.truncate(1);
        }
        for couple in couples {
            let Couple::Of(one, other) = couple else { continue };
            if self.cpus.len() < 2 {
                self.leave_out("pairs: one core cannot be partitioned".to_owned());
                continue;
            }
            for &runtime in &runtimes {
                if !self.is_here(one, runtime) || !self.is_here(other, runtime) {
                    continue;
                }
                for mix in &mixes {
                    for &wait in waits.iter().filter(|wait| deaf(runtime, **wait).is_none()) {
                        for arrangement in Arrangement::ALL {
                            let step = self.pair([one, other], runtime, *mix, wait, arrangement);
                            // Where it changes nothing it is as it is.
                            let told = |job: &Job| !waits_of(job.cell.runtime, wait, &job.cell).is_empty();
                            if wait != WaitPolicy::Auto || step.jobs.iter().any(told) {
                                self.plan.steps.push(step);
                            }
                        }
                    }
                }
            }
        }
    }

    fn pair(
        &self,
        both: [Program; 2],
        runtime: Runtime,
        mix: Mix,
        wait: WaitPolicy,
        arrangement: Arrangement,
    ) -> Step {
        let half = self.cpus.len() / 2;
        let part = |place: usize| -> CpuSet {
            match (arrangement, place) {
                (Arrangement::Shared, _) => self.cpus.clone(),
                (_, 0) => self.cpus.iter().take(half).collect(),
                _ => self.cpus.iter().skip(half).take(half).collect(),
            }
        };
        let mixed = [mix.0, mix.1];
        let job = |place: usize| {
            let cpus = part(place);
            let cores = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
            let (program, other) = (both[place], both[1 - place]);
            let company = Company {
                program: other.word().to_owned(),
                class: Some(self.plan.class.word().to_owned()),
                runtime,
                per_core: mixed[1 - place],
                arrangement,
                place: if place == 0 { 1 } else { 2 },
            };
            let cell =
                Cell { wait, company: Some(company), ..self.cell(program, runtime, mixed[place], cores) };
            Job { program, cell, cpus }
        };
        Step { jobs: vec![job(0), job(1)] }
    }
}
