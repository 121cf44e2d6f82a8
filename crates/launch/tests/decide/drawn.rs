//! Random requests and facts: `plan` is what `run` carries out.

use crate::util::*;
use proptest::prelude::*;
use trimtab_core::place::PlaceError;
use trimtab_core::place::launchers::Launcher;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::place::waiting::Yield;
use trimtab_core::set::CpuSet;
use trimtab_launch::facts::{Answers, LauncherFacts, ProgramFacts};
use trimtab_launch::rules::{Rule, Site};
use trimtab_launch::*;

/// Random request and facts.
#[derive(Clone, Debug)]
struct Drawn {
    machine: &'static str,
    options: Options,
    tuning: Option<(&'static str, u32)>,
    rule: Option<Rule>,
    site: Site,
    variables: Vec<(&'static str, &'static str)>,
    program: Option<ProgramFacts>,
    library: bool,
    quota: Option<u32>,
    held: u64,
    pinned: u64,
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.3, proptest::sample::select(values))
}

fn parsed<T: std::str::FromStr + Clone + std::fmt::Debug>(
    words: &'static [&'static str],
) -> impl Strategy<Value = Option<T>> {
    maybe(words).prop_map(|word| word.and_then(|word| word.parse().ok()))
}

fn options() -> impl Strategy<Value = Options> {
    let places = (
        parsed(&["auto", "1", "2", "3", "50%", "node", "1/node", "9"]),
        parsed::<CpuSet>(&["0", "0-1", "0-5", "30"]),
        parsed(&["scatter", "balanced", "stride:2"]),
        parsed(&["1", "2", "all"]),
        parsed(&["bind", "interleave", "none", "local", "bind:0", "bind:9"]),
        parsed(&["on", "off", "advised", "inherit"]),
        maybe(&["2,scatter", "2,scatter,2,subcompact", "9,compact"]),
    );
    let runs = (
        maybe(&[1u32, 3, 64]),
        parsed(&["auto", "keep"]),
        maybe(&[0.5f64, 3.0]),
        parsed(&["spin", "yield", "sleep", "keep", "auto"]),
        parsed(&["auto", "mask"]),
        parsed::<EnvMode>(&["keep", "print", "set"]),
        parsed(&["auto", "speed", "float"]),
        maybe(&[1u32, 2, 5]),
    );
    (places, runs, any::<[bool; 5]>()).prop_map(|(places, runs, flags)| {
        let (cores, cpus, strategy, smt, mem, thp, nest) = places;
        let (threads, fit, slice, wait_policy, pin, env, balance, ranks) = runs;
        let [share, or_fewer, strict, quiet, no_tuning] = flags;
        Options {
            cores,
            cpus,
            strategy,
            smt,
            mem,
            thp,
            nest: nest.map(str::to_owned),
            threads,
            fit,
            slice,
            wait_policy,
            pin,
            env: env.unwrap_or_default(),
            balance,
            ranks: ranks.filter(|_| quiet),
            share,
            or_fewer,
            strict: strict && share,
            quiet,
            no_tuning: no_tuning && strict,
            ..Options::default()
        }
    })
}

fn programs() -> impl Strategy<Value = Option<ProgramFacts>> {
    let families = [Family::Jvm, Family::Python, Family::Launcher, Family::Shell, Family::Make];
    let openmp = proptest::option::of(proptest::sample::select(&[Runtime::Libgomp, Runtime::Libomp][..]));
    let family = proptest::option::weighted(0.4, proptest::sample::select(families.to_vec()));
    (openmp, family, any::<[bool; 6]>()).prop_map(|(openmp, family, flags)| {
        let [there, script, go, loadable, starts_threads, sets_teams] = flags;
        let launcher = family.filter(|family| *family == Family::Launcher).map(|_| LauncherFacts {
            launcher: if go { Launcher::OpenMpi4 } else { Launcher::Slurm },
            name: "mpirun".to_owned(),
            at: 0,
        });
        let preload = if loadable { Ok(()) } else { Err("it is statically linked".to_owned()) };
        there.then(|| ProgramFacts {
            family,
            script,
            go: go && launcher.is_none(),
            preload,
            starts_threads,
            sets_teams,
            launcher,
            ..program(openmp)
        })
    })
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let tunings =
        ["threads=3 wait=sleep", "cores=2 threads=2 thp=on", "balance=speed smt=all", "slice=1 pin=mask"];
    let tuning = proptest::option::of((proptest::sample::select(tunings.to_vec()), 1..9u32));
    let rule =
        (parsed(&["scatter"]), parsed(&["all"]), any::<bool>()).prop_map(|(strategy, smt, mask_only)| Rule {
            program: "app".to_owned(),
            strategy,
            smt,
            mask_only,
            ..Rule::default()
        });
    let site = (maybe(&[1u32, 4]), maybe(&[2u32, 6])).prop_map(|(auto_cores, max_cores)| Site {
        auto_cores,
        max_cores,
        reserved_cpus: None,
        ..Site::default()
    });
    let variables = [
        ("OMP_NUM_THREADS", "4"),
        ("OMP_NUM_THREADS", "2,2"),
        ("OMP_PROC_BIND", "true"),
        ("OMP_WAIT_POLICY", "active"),
        ("SLURM_CPUS_ON_NODE", "3"),
        ("LOCAL_WORLD_SIZE", "3"),
        ("LOCAL_RANK", "1"),
        ("GLIBC_TUNABLES", "x"),
        ("LD_PRELOAD", "/a.so"),
        ("TRIMTAB_NESTING", "2,scatter"),
        ("OPENBLAS_NUM_THREADS", "40"),
    ];
    let variables = proptest::sample::subsequence(variables.to_vec(), 0..6);
    let rule = proptest::option::of(rule);
    let numbers = (proptest::option::of(500..9_000u32), any::<u64>(), any::<u64>(), any::<bool>());
    (proptest::sample::select(&MACHINES[..]), options(), tuning, rule, site, variables, programs(), numbers)
        .prop_map(|(machine, options, tuning, rule, site, variables, program, numbers)| {
            let (quota, held, pinned, library) = numbers;
            let (held, pinned) = (held & pinned, pinned & !held & 0b1010_0101);
            Drawn { machine, options, tuning, rule, site, variables, program, library, quota, held, pinned }
        })
}

impl Drawn {
    fn request(&self) -> Result<LaunchRequest, Refusal> {
        let Self { options, rule, site, .. } = self.clone();
        let tuning = self.tuning.and_then(|(setting, cores)| tuning(setting, cores));
        LaunchRequest::merge(Sources { options, rule, site, tuning, ..sources(&self.variables) })
    }

    fn facts(&self) -> LaunchFacts {
        let mut facts = facts(self.machine);
        let bit = |bits: u64, at: usize| bits >> (at % 64) & 1 == 1;
        // Holds consist of whole cores.
        let cores = facts.machine.cores().iter().enumerate().filter(|(at, _)| bit(self.held, *at));
        let held = cores.fold(CpuSet::new(), |sum, (_, core)| sum.union(&facts.machine.cpus_of(&core.pus)));
        let pinned = facts.machine.cpus().iter().filter(|cpu| bit(self.pinned, cpu.0 as usize)).collect();
        facts.ledger.held = held;
        facts.load.pinned = pinned;
        facts.bounds.quota = self.quota;
        facts.program.clone_from(&self.program);
        if !self.library {
            facts.library = Err("it is not installed".to_owned());
        }
        facts
    }
}

/// Decides as `trimtab plan` does: at once, and again with the answers to the questions.
fn planned(request: &LaunchRequest, mut facts: LaunchFacts) -> Result<LaunchPlan, Refusal> {
    let plan = decide(request, &facts)?;
    answer(&plan, &mut facts);
    decide(request, &facts)
}

/// Decides as `trimtab run` does: places first, takes and records the cores, and then decides.
fn carried(request: &LaunchRequest, mut facts: LaunchFacts) -> Result<(CpuSet, LaunchPlan), Refusal> {
    let role = Role::of(request, &facts);
    let hold = place(request, &facts, &role).map_err(|error: PlaceError| Refusal::from(error))?.hold;
    if role.shared().is_some() {
        facts.ledger.allotment = Some(hold.clone());
    }
    let plan = decide(request, &facts)?;
    answer(&plan, &mut facts);
    Ok((hold, decide(request, &facts)?))
}

fn answer(plan: &LaunchPlan, facts: &mut LaunchFacts) {
    facts.answers = Answers {
        cpus: plan.placement.mask.clone(),
        yields: plan.questions.yields.then_some(Yield::Posix),
        picture: plan.questions.picture.then(|| Ok("/proc/7/fd/600".to_owned())),
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_what_a_run_carries_out(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        match (planned(&request, drawn.facts()), carried(&request, drawn.facts())) {
            (Ok(planned), Ok((hold, carried))) => {
                prop_assert_eq!(&planned, &carried);
                prop_assert!(carried.placement.mask.is_subset(&hold));
                prop_assert!(!carried.questions.any());
            }
            (Err(planned), Err(carried)) => prop_assert_eq!(planned.passes(), carried.passes()),
            (planned, carried) => prop_assert!(false, "plan {:?}, run {:?}", planned.err(), carried.err()),
        }
    }

    /// A variable of the user changes only if a count exceeds the CPUs or if requested nested teams
    /// place the threads; the plan then says so.
    #[test]
    fn variables_of_the_user_stay(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        let Ok(plan) = planned(&request, drawn.facts()) else { return Ok(()) };
        let environment = &request.environment;
        for (name, changed) in environment.changes(&plan.environment) {
            let Some(mine) = environment.text(&name) else { continue };
            let now = changed.map(|value| value.into_string().unwrap());
            let allowed = match name.as_str() {
                "OMP_NUM_THREADS" | "OPENBLAS_NUM_THREADS" => now.is_some() || request.nest.is_some(),
                "OMP_PROC_BIND" => request.nest.is_some(),
                "LD_PRELOAD" => now.as_ref().is_some_and(|now| now.contains(&mine)),
                _ => now.as_ref() == Some(&mine),
            };
            prop_assert!(allowed, "{name}: {mine} became {now:?}");
        }
    }

    #[test]
    fn equal_requests_and_facts_give_equal_plans_with_reasons(drawn in drawn()) {
        let Ok(request) = drawn.request() else { return Ok(()) };
        let (one, other) = (decide(&request, &drawn.facts()), decide(&request, &drawn.facts()));
        prop_assert_eq!(&one, &other);
        if let Ok(plan) = one {
            prop_assert!(request.env == EnvMode::Print || plan.reasons.iter().any(|reason| reason.level == Level::Headline));
            serde_json::to_string(&plan).unwrap();
        }
    }
}
