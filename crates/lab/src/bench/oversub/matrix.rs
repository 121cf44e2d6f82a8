//! Matrix of `bench oversub`: the cases of a round, in groups with common baselines.

use super::programs::{OversubTools, deaf, peer, waits as waits_of};
use super::reference;
use crate::args::{Class, Mix, NpbKernel, OversubArgs, PairMember, Program, ProgramPair};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::set::CpuSet;
use trimtab_core::study::{Arrangement, PairedProgram, Runtime, StudyCell, ThreadBinding};

/// Default programs: all but those that take long.
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
/// Rounds of a quick measurement, unless others were requested.
const QUICK_ROUNDS: u32 = 3;
/// Time limit of a quick measurement, in minutes: runs under way then have one minute to end.
const QUICK_MINUTES: f64 = 9.0;
/// Reason why a pair with `--waits auto` is left out.
const AUTO_IS_KEEP: &str = "pairs with --waits auto: those for which it changes nothing";
/// Default number of rounds, as in the options.
const ROUNDS_DEFAULT: u32 = 5;

/// One program in one cell.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct OversubJob {
    pub(super) program: Program,
    pub(super) cell: StudyCell,
    pub(super) cpus: CpuSet,
}

/// Programs that run at once: one or two.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct OversubStep {
    pub(super) jobs: Vec<OversubJob>,
}

impl OversubStep {
    /// Returns the group of the step: steps of a group have the same baselines, and are run one
    /// after the other.
    pub(super) fn group(&self) -> Vec<(Program, Runtime)> {
        self.jobs.iter().map(|job| (job.program, job.cell.runtime)).collect()
    }
}

impl std::fmt::Display for OversubStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.jobs.first().map(|job| job.cell.to_string());
        f.write_str(name.as_deref().unwrap_or("nothing"))
    }
}

/// All runs of the benchmark, and the cases left out.
#[derive(Debug)]
pub(super) struct OversubPlan {
    pub(super) class: Class,
    pub(super) rounds: u32,
    pub(super) minutes: Option<f64>,
    pub(super) steps: Vec<OversubStep>,
    /// Cases that cannot run here or were left out to save time, with reasons.
    pub(super) left_out: Vec<String>,
}

/// Returns the named items, or else the usual ones, each once.
fn or<T: Clone + PartialEq>(named: &[T], usual: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for one in if named.is_empty() { usual } else { named } {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// Returns the problem class of all programs.
pub(super) fn class(args: &OversubArgs) -> Class {
    args.class.unwrap_or(Class::W)
}

/// Returns the programs to run alone.
pub(super) fn kernels(args: &OversubArgs) -> Vec<Program> {
    or(&args.kernels, if args.quick { &QUICK } else { &USUAL })
}

/// Plans the benchmark for these CPUs, one of each core.
pub(super) fn plan(args: &OversubArgs, tools: &OversubTools, cpus: &CpuSet) -> OversubPlan {
    let quick = args.quick;
    let class = class(args);
    let mut plan = OversubPlan {
        class,
        rounds: if quick && args.rounds == ROUNDS_DEFAULT { QUICK_ROUNDS } else { args.rounds },
        minutes: args.minutes.or(quick.then_some(QUICK_MINUTES)),
        steps: Vec::new(),
        left_out: tools.references.left_out.clone(),
    };
    if quick {
        plan.left_out.push(
            "--quick: few programs, variants and rounds; lists given by other options are used unchanged"
                .to_owned(),
        );
    }
    let mut chosen =
        OversubPlanner { args, tools, cpus, quick, lacking: BTreeMap::new(), deaf: BTreeMap::new(), plan };
    chosen.alone();
    chosen.pairs();
    for ((runtime, why), waits) in chosen.deaf {
        let waits: Vec<&str> = waits.into_iter().collect();
        chosen.plan.left_out.push(format!("{runtime} with --waits {}: {why}", waits.join(", ")));
    }
    for ((runtime, why), programs) in chosen.lacking {
        let programs: Vec<&str> = programs.into_iter().collect();
        chosen.plan.left_out.push(format!("{} with {runtime} cannot run here: {why}", programs.join(", ")));
    }
    chosen.plan
}

struct OversubPlanner<'a> {
    args: &'a OversubArgs,
    tools: &'a OversubTools,
    cpus: &'a CpuSet,
    quick: bool,
    /// Programs that cannot run here, by runtime and reason.
    lacking: BTreeMap<(Runtime, String), BTreeSet<&'static str>>,
    /// Wait policies that runtimes do not support, by runtime and reason.
    deaf: BTreeMap<(Runtime, &'static str), BTreeSet<&'static str>>,
    plan: OversubPlan,
}

impl OversubPlanner<'_> {
    /// Returns whether the program can run here; if not, notes the reason.
    fn is_here(&mut self, program: Program, runtime: Runtime, scheduled: bool) -> bool {
        let Some(why) = self.tools.lacks(program, runtime, scheduled) else { return true };
        let lacking = self.lacking.entry((runtime, why)).or_default();
        lacking.insert(program.word());
        false
    }

    fn leave_out(&mut self, said: String) {
        if !self.plan.left_out.contains(&said) {
            self.plan.left_out.push(said);
        }
    }

    fn cell(&self, program: Program, runtime: Runtime, per_core: u32, cores: u32) -> StudyCell {
        StudyCell {
            program: program.word().to_owned(),
            class: program.class(self.plan.class),
            family: program.family(),
            runtime,
            threads: cores.saturating_mul(per_core),
            cores,
            per_core,
            grip: ThreadBinding::Floating,
            wait: WaitPolicy::Keep,
            schedule: None,
            company: None,
        }
    }

    /// Returns the combinations of binding and wait policy. Wait policies vary with floating
    /// threads, bindings with the runtime's own wait policy, unless all combinations are requested.
    fn ways(&self) -> Vec<(ThreadBinding, WaitPolicy)> {
        let grips =
            or(&self.args.grips, if self.quick { &[ThreadBinding::Floating] } else { &ThreadBinding::ALL });
        let waits = or(&self.args.waits, if self.quick { &QUICK_WAITS } else { &WAITS });
        let all = grips.iter().flat_map(|grip| waits.iter().map(move |wait| (*grip, *wait)));
        // If the common starting point of the variations is missing, all combinations are
        // requested.
        let from_there = !grips.contains(&ThreadBinding::Floating) || !waits.contains(&WaitPolicy::Keep);
        let wanted = |(grip, wait): &(ThreadBinding, WaitPolicy)| {
            self.args.cross || from_there || *grip == ThreadBinding::Floating || *wait == WaitPolicy::Keep
        };
        all.filter(wanted).collect()
    }

    /// Returns whether pairs of the user's own commands were requested.
    fn has_commands(&self) -> bool {
        let own = |pair: &ProgramPair| matches!(pair, ProgramPair::Of((Program::Own(_), _), _));
        self.args.pairs.as_ref().is_some_and(|pairs| pairs.iter().any(own))
    }

    fn alone(&mut self) {
        if self.args.kernels.is_empty() && self.has_commands() {
            return;
        }
        let per_core = match self.quick && self.args.per_core == [1, 2, 4, 8] {
            true => vec![1, 2, 4],
            false => or(&self.args.per_core, &[]),
        };
        let own = kernels(self.args);
        let references = own.iter().filter_map(|program| NpbKernel::of(*program)).map(Program::Npb);
        let references: Vec<Program> = references.filter(|_| self.args.npb.is_some()).collect();
        let runtimes = or(&self.args.runtimes, &Runtime::ALL);
        for program in own.into_iter().chain(references) {
            self.unnamed(program, &runtimes);
            for runtime in runtimes.iter().copied() {
                if !self.tools.has(program, runtime) || !self.is_here(program, runtime, false) {
                    continue;
                }
                for &per_core in &per_core {
                    for (grip, wait) in self.ways() {
                        self.one(program, runtime, per_core, (grip, wait));
                    }
                }
                self.scheduled(program, runtime, &per_core);
            }
        }
    }

    /// Notes a reference program that runs with none of these runtimes: it has one only.
    fn unnamed(&mut self, program: Program, runtimes: &[Runtime]) {
        let Program::Npb(kernel) = program else { return };
        match self.tools.references.runtime(kernel) {
            Some(runtime) if !runtimes.contains(&runtime) => self.leave_out(format!(
                "{}: it is linked with {runtime}, which --runtimes does not name",
                program.word()
            )),
            _ => {}
        }
    }

    /// Adds a case of a program that runs alone, or notes the reason why it is left out.
    fn one(
        &mut self,
        program: Program,
        runtime: Runtime,
        per_core: u32,
        (grip, wait): (ThreadBinding, WaitPolicy),
    ) {
        let cores = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let cell = StudyCell { grip, wait, ..self.cell(program, runtime, per_core, cores) };
        let launched = matches!(runtime, Runtime::OpenMpi | Runtime::Mpich);
        if let Some(why) = deaf(runtime, wait) {
            let deaf = self.deaf.entry((runtime, why)).or_default();
            deaf.insert(wait.word());
        } else if wait == WaitPolicy::Auto && waits_of(runtime, wait, &cell).is_empty() {
            // `auto` changes nothing if every thread has a core; the note is printed only if `auto`
            // was requested.
            if !self.args.waits.is_empty() {
                let why = "it changes nothing if every thread has a core, or has no variable";
                self.leave_out(format!("{runtime} with --waits auto: {why}"));
            }
        } else if grip == ThreadBinding::Balanced && launched {
            self.leave_out(format!("{runtime} balanced: --balance moves the threads of one program, not those that a launcher starts"));
        } else if let Some(why) = self.refused(program, &cell) {
            self.leave_out(why);
        } else {
            let jobs = vec![OversubJob { program, cell, cpus: self.cpus.clone() }];
            self.plan.steps.push(OversubStep { jobs });
        }
    }

    /// Returns why a reference program of ranks cannot run like this, or `None`.
    fn refused(&self, program: Program, cell: &StudyCell) -> Option<String> {
        let Program::Npb(kernel) = program else { return None };
        peer(cell.runtime)?;
        let StudyCell { runtime, threads, cores, grip, .. } = *cell;
        if grip != ThreadBinding::Floating {
            return Some(format!(
                "reference programs with {runtime}, {grip}: their ranks do not bind themselves"
            ));
        }
        // The baseline has a rank for each core.
        let counts = [cores, threads];
        let (ranks, why) =
            counts.into_iter().find_map(|ranks| Some((ranks, reference::refuses(kernel, ranks)?)))?;
        Some(format!("{} with {runtime} and {ranks} ranks: {why}", program.word()))
    }

    /// Adds a case of a program for each schedule of its loops, with floating threads that wait as
    /// their runtime does.
    fn scheduled(&mut self, program: Program, runtime: Runtime, per_core: &[u32]) {
        let schedules = or(&self.args.schedules, &[]);
        if schedules.is_empty() || peer(runtime).is_some() {
            return;
        }
        if !program.takes_schedule() {
            self.leave_out(format!(
                "{} with --schedules: its loops have a schedule of their own",
                program.word()
            ));
        } else if self.is_here(program, runtime, true) {
            let cores = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
            for &per_core in per_core {
                for &schedule in &schedules {
                    let cell = self.cell(program, runtime, per_core, cores);
                    let cell = StudyCell { schedule: Some(schedule), ..cell };
                    let jobs = vec![OversubJob { program, cell, cpus: self.cpus.clone() }];
                    self.plan.steps.push(OversubStep { jobs });
                }
            }
        }
    }

    fn pairs(&mut self) {
        let usual: Vec<ProgramPair> =
            PAIRS.iter().map(|(one, other)| ProgramPair::Of((*one, None), (*other, None))).collect();
        let usual = if self.quick { &usual[..1] } else { &usual[..] };
        let couples = or(self.args.pairs.as_deref().unwrap_or(usual), &[]);
        let mixes = or(&self.args.mixes, &[]);
        let mixes = if self.quick && mixes.len() == 3 { vec![Mix(1, 1), Mix(1, 4)] } else { mixes };
        // The variables do not reach commands of every kind.
        let mixes = if self.has_commands() && mixes.len() == 3 { vec![Mix(1, 1)] } else { mixes };
        let waits = or(&self.args.waits, &[WaitPolicy::Keep, WaitPolicy::Auto]);
        // Unless a pair names its runtimes, both programs use the same one, and its ranks are
        // threads.
        let of_threads = |runtime: &Runtime| matches!(runtime, Runtime::Libgomp | Runtime::Libomp);
        let mut runtimes = or(&self.args.runtimes, &[Runtime::Libgomp, Runtime::Libomp]);
        runtimes.retain(of_threads);
        if self.quick && self.args.runtimes.is_empty() {
            runtimes.truncate(1);
        }
        for couple in couples {
            let ProgramPair::Of(one, other) = couple else { continue };
            if self.cpus.len() < 2 {
                self.leave_out("pairs: one core cannot be partitioned".to_owned());
                continue;
            }
            let usual = if one.0.reports() { &runtimes[..] } else { &[Runtime::Any][..] };
            let combinations = runtimes_of(one, other, usual);
            if combinations.is_empty() {
                self.leave_out(format!(
                    "pairs of {} and {}: --runtimes names neither libgomp nor libomp, and the pair does not name both runtimes",
                    one.0.word(), other.0.word()
                ));
            }
            for both in combinations {
                let programs = [one.0, other.0];
                if !programs.into_iter().zip(both).all(|(program, runtime)| self.is_member(program, runtime))
                {
                    continue;
                }
                let heard: Vec<WaitPolicy> =
                    waits.iter().copied().filter(|wait| self.is_heard(both, *wait)).collect();
                for mix in &mixes {
                    for &wait in &heard {
                        for arrangement in Arrangement::ALL {
                            let step = self.pair(programs, both, *mix, wait, arrangement);
                            // `auto` that changes nothing for either program equals `keep`.
                            let told =
                                |job: &OversubJob| !waits_of(job.cell.runtime, wait, &job.cell).is_empty();
                            if wait != WaitPolicy::Auto || step.jobs.iter().any(told) {
                                self.plan.steps.push(step);
                            } else if !self.args.waits.is_empty() {
                                self.leave_out(AUTO_IS_KEEP.to_owned());
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns whether both programs of a pair can be told to wait like this; if not, notes the
    /// reason.
    fn is_heard(&mut self, both: [Runtime; 2], wait: WaitPolicy) -> bool {
        let mut heard = true;
        for runtime in both {
            if let Some(why) = deaf(runtime, wait) {
                self.deaf.entry((runtime, why)).or_default().insert(wait.word());
                heard = false;
            }
        }
        heard
    }

    /// Returns whether a program can be one of a pair with this runtime; if not, notes the reason.
    fn is_member(&mut self, program: Program, runtime: Runtime) -> bool {
        if program.reports() && !self.tools.has(program, runtime) {
            self.leave_out(format!("pairs of {} with {runtime}: there is no such program", program.word()));
            return false;
        }
        self.is_here(program, runtime, false)
    }

    fn pair(
        &self,
        both: [Program; 2],
        runtimes: [Runtime; 2],
        mix: Mix,
        wait: WaitPolicy,
        arrangement: Arrangement,
    ) -> OversubStep {
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
            let company = PairedProgram {
                program: other.word().to_owned(),
                class: other.class(self.plan.class),
                runtime: runtimes[1 - place],
                per_core: mixed[1 - place],
                arrangement,
                place: if place == 0 { 1 } else { 2 },
            };
            let cell = StudyCell {
                wait,
                company: Some(company),
                ..self.cell(program, runtimes[place], mixed[place], cores)
            };
            OversubJob { program, cell, cpus }
        };
        OversubStep { jobs: vec![job(0), job(1)] }
    }
}

/// Returns the runtimes of both programs of a pair, for each of the usual ones: what a pair names
/// stays, each combination once.
fn runtimes_of(one: PairMember, other: PairMember, usual: &[Runtime]) -> Vec<[Runtime; 2]> {
    let all: Vec<[Runtime; 2]> =
        usual.iter().map(|runtime| [one.1.unwrap_or(*runtime), other.1.unwrap_or(*runtime)]).collect();
    // A pair that names both does not depend on --runtimes.
    match (one.1, other.1) {
        (Some(one), Some(other)) => vec![[one, other]],
        _ => or(&all, &[]),
    }
}
