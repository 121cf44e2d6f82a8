//! `trimtab run`: plan, reserve, apply, become the program.

use super::ranks;
use crate::args::{EnvMode, PinMode, ReportTo, RunArgs, Thp, report_to};
use crate::exit::{self, Exit};
use crate::guest::{self, Guest};
use crate::launch::{Variables, apply, become_program, set};
use crate::launchers;
use crate::meetings;
use crate::monitor::{self, Asked, Outputs, Run};
use crate::nest::{self, Nesting};
use crate::own_values::{OwnValues, SET_BY_US};
use crate::reserve::{Order, Reserved, reserve};
use crate::say::{self, Volume};
use crate::situation::{HOLD, Situation};
use crate::surroundings::Surroundings;
use crate::table::{Align, Table};
use crate::tuned;
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::path::Path;
use trimtab_agent::monitor::announcement::{ChildFacts, announce, retract};
use trimtab_agent::restoration;
use trimtab_core::balance::Kind;
use trimtab_core::handoff::{self, Missed, NestHandoff, Report};
use trimtab_core::hash::fnv1a;
use trimtab_core::place::nesting::Nest;
use trimtab_core::place::runtimes::{BINDING_VARIABLES, Runtime};
use trimtab_core::place::waiting::{Occupancy, Waiting, Yield, decide};
use trimtab_core::place::{
    Action, Amount, Asked as Counts, Binder, Fit, LocalRank, OPENMP, Plan, Reason, State, Stated, Variable,
    counts, effective, environment, fitted_lines, local_rank, pins_itself, stated,
};
use trimtab_core::set::CpuSet;
use trimtab_core::words::plural;
use trimtab_linux::calibrate::{YieldKind, yield_share};
use trimtab_linux::child::{self, Two};
use trimtab_linux::limits::parent_mask;
use trimtab_linux::process::{self, Pid};
use trimtab_linux::program::{Family, Program, resolve};
use trimtab_linux::text::printable;

/// Where LLVM's runtime looks for tools.
const TOOLS: &str = "OMP_TOOL_LIBRARIES";

/// Functions by which programs start threads: of POSIX, of C++'s library and of C11.
const STARTS_THREADS: [&str; 3] = ["pthread_create", "_M_start_thread", "thrd_create"];

/// Runs the command.
///
/// # Errors
/// Whatever stands between the options and the running program; see [`exit`] for the statuses.
pub fn run(world: &World, args: &RunArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::RUN_FAILED, cause);
    let volume = Volume::of(args.run.quiet, args.run.verbose);
    let strict = args.place.strict;
    let nest = nest::asked(world, args.place.nest.as_deref(), strict, volume).map_err(failed)?;
    let mut missed = nest.as_ref().map_or(Missed::Ignored, |nest| nest.missed(strict, volume));
    let nest = nest.map(|asked| asked.nest);
    if nest.is_some() && args.run.pin == Some(PinMode::Mask) {
        return Err(failed(anyhow!(
            "--pin mask leaves threads free, and nested teams place them: drop one of the two"
        )));
    }
    let report_to = args.run.report.as_ref().map(report_to);
    if let Some(path) = report_to.as_ref().and_then(|to| to.file.as_deref()) {
        check_report(path).map_err(failed)?;
    }
    let program = find(world, args)?;
    if let Some(ranks) = args.run.ranks {
        return ranks::run(world, args, ranks);
    }
    restoration::tidy(&world.paths(), &volume);
    if args.run.with_parent {
        // Who tries settings may be killed, and what it tries goes with it.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let given = args;
    let (mut args, tuned) = tuned::over(world, given, &program, nest.is_some(), volume);
    let watch = Asked::by(&args.run).map_err(failed)?;
    let balances = watch.as_ref().is_some_and(|watch| watch.balances);
    if let Some(kind) =
        watch.as_ref().map(|watch| watch.kind).filter(|kind| nest.is_some() && *kind != Kind::Float)
    {
        return Err(failed(anyhow!(
            "--balance={kind} moves the threads that --nest places: drop one of the two, or only watch with --balance=float"
        )));
    }
    // What is only printed needs nobody who stays, and no file.
    let watch = watch.filter(|_| args.run.env != EnvMode::Print);
    let watch = match watch {
        Some(asked) => Some((asked, Outputs::open(&args.run).map_err(failed)?)),
        None => None,
    };
    let situation = Situation::live(world, !args.place.no_rules).map_err(failed)?;
    for warning in &situation.warnings {
        say::note(volume, warning);
    }
    let (mut request, rule) = situation.request(&args.place, Some(&program.path)).map_err(failed)?;
    if let Some(rule) = rule.as_ref().filter(|rule| nest.is_some() && rule.mask_only) {
        let name = &rule.program;
        return Err(failed(anyhow!(
            "the rule for \"{name}\" leaves threads free (pin = \"mask\"), and nested teams place them: --no-rules ignores it"
        )));
    }
    let rank = rank(world, &situation, volume);
    if let Rank::Bound(_) = rank {
        // The launcher gave this rank its CPUs; whatever was asked for is a count for the whole machine.
        request.amount = Amount::Auto;
        request.or_fewer = true;
    }
    warn_about(&program, volume);
    let seen = Surroundings::look(world, args.place.survey, &situation.machine, &situation.taken.allowed);
    let label = label(&args.command);
    let order = Order {
        request: &request,
        nest: nest.as_ref(),
        seen: &seen,
        rank: match &rank {
            Rank::Shares(rank, job) => Some((rank, *job)),
            _ => None,
        },
        wait: args.run.wait,
        label: &label,
        strict: args.place.strict,
        volume,
    };
    // From here on there may be two of us, and all that follows is the program's.
    let mut word = None;
    let counted = watch.as_ref().and_then(|(_, outputs)| outputs.sync_page());
    if let Some((asked, outputs)) = watch {
        match child::two().context("no process can be had for the program").map_err(failed)? {
            Two::Parent(child) => {
                let shim_reports =
                    nest.is_some() && report_to.is_some_and(|to| to.file.is_some() && !to.json);
                let run = Run {
                    machine: situation.machine,
                    label: printable(label.as_bytes()),
                    shim_reports,
                    program,
                    volume,
                };
                return monitor::stay(world, child, asked, outputs, run);
            }
            Two::Program(parent) => word = Some(parent),
        }
    }
    let Reserved { mut plan, held, free, wide } = reserve(world, &situation, &order)?;
    if let Some(tuned) = &tuned {
        tuned.settle(&plan, given, &mut args, volume);
    }
    if let Some(threads) = args.run.threads {
        plan.threads = threads;
    }

    let user = |name: &str| world.of_user(name);
    let said = said_by_command(&args.command, &program);
    let told = Counts {
        threads: args.run.threads,
        stated: said.as_ref(),
        fit: if args.run.env == EnvMode::Keep { Fit::Keep } else { args.run.fit.unwrap_or_default() },
    };
    let omp = effective(&plan, &user, &told, OPENMP);
    // What is balanced is not bound at its birth.
    let frees = balances && nest.is_none();
    let pin = if frees { PinMode::Mask } else { args.run.pin.unwrap_or_default() };
    let binds = pin == PinMode::Auto && !rule.as_ref().is_some_and(|rule| rule.mask_only);
    let openmp = openmp(&program);
    let bound = BINDING_VARIABLES.iter().any(|name| user(name).is_some());
    let own = leaves_binding_to(&program, openmp);
    let carries = guest::bears(&program).is_ok() && guest::library().is_ok();
    let asked_for = nest.is_some();
    let nest = nest.or_else(|| {
        let places = binds && own.is_none() && args.run.env != EnvMode::Keep;
        shape(world, &program, &plan, omp.as_deref()).filter(|_| places)
    });
    let nesting = nest.and_then(|nest| Nesting::new(&situation.machine, &free, &plan, wide, &nest));
    let binder = match (&nesting, openmp) {
        (Some(nesting), _) if asked_for => Binder::Teams(nesting.resolved()),
        (Some(nesting), _) => Binder::Shape(nesting.resolved()),
        (None, Some(openmp)) if binds && (carries || bound) => {
            own.map_or(Binder::Runtime(openmp), |own| Binder::Program(own.why))
        }
        (None, Some(_)) => Binder::Free,
        _ => Binder::Unknown,
    };
    let mut environment = environment(&plan, &user, binder, &told);
    let machine = &situation.machine;
    let of_launchers = launchers::variables(world, &program, &args, machine, &mut plan, volume)?;
    let places = environment.iter().any(|Variable { name, action, .. }| {
        matches!(name.as_str(), "OMP_PLACES" | "KMP_AFFINITY") && matches!(action, Action::Set { .. })
    });
    let pin = if own.is_some_and(|own| own.pins) && pin == PinMode::Auto { PinMode::Mask } else { pin };
    let floats = places || nesting.is_some() || (own.is_some() && !bound);
    let more = nesting.is_some() || (plan.threads as usize) < plan.mask.len();
    let guest = guest::decide(&program, pin, rule.as_ref(), floats, more);
    if let Some(nesting) = nesting.as_ref().filter(|_| asked_for) {
        let missing = guest::library().err();
        let out_of_reach = guest.stays_out().or_else(|| unreached(&program)).or(missing.as_deref());
        nest::tell(world, nesting, openmp, out_of_reach, args.place.strict, volume)?;
        if out_of_reach.is_some() {
            missed = Missed::Ignored; // it was just said
        }
        for Variable { name, action, .. } in &environment {
            if let Action::Removed { value, why } = action {
                say::warning(volume, &format!("{name}={value} is taken away: {why}"));
            }
        }
    }
    let report = report(report_to.as_ref());
    let teams = match &nesting {
        Some(nesting) => Some(nesting.handoff(args.run.nest_roots, report, missed)),
        None if binds && own.is_none() => nest::for_calls(&situation.machine, &plan, &program, report),
        None => None,
    };
    let nested = nesting.as_ref().map(|nesting| nesting.resolved().threads());
    let quota = situation.taken.quota;
    let by_command = said.as_ref().map(|said| said.threads.to_string());
    let occupancy = Occupancy::of(&plan, by_command.or(omp).as_deref(), nested, quota);
    let waiting = decide(args.run.wait_policy.unwrap_or_default(), &occupancy);
    let mpi = !matches!(rank, Rank::None) || program.family == Some(Family::Launcher);
    let yields = waiting.asks_for_yield(mpi).then(|| measured_yield(&plan.mask));
    environment.extend(waiting.variables(yields.unwrap_or_default(), &user));
    if args.place.thp == Some(Thp::On) {
        environment.push(tuned::asks_for_huge_pages(&user, volume));
    }
    environment.extend(guest_variables(world, &plan, &guest, teams.as_ref(), volume));
    environment.extend(changed(&environment, &guest).filter(|_| volume > Volume::Quiet));
    environment.extend(of_launchers);
    if let Some(path) = &counted {
        meetings::count(world, &program, &mut environment, path);
    }
    if args.run.env == EnvMode::Print {
        crate::commands::print(&environment_table(&environment)).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    tell(&plan, &guest, nesting.as_ref(), rule.as_ref().map(|rule| rule.program.as_str()), volume);
    for line in fitted_lines(&environment, &plan) {
        say::notice(volume, &line);
    }
    if args.run.env == EnvMode::Set {
        tell_waiting(&waiting, yields, &user, volume);
    }
    apply(&plan, request.memory.policy, args.place.strict, volume)?;
    if let Some(why) = args.run.slice.and_then(|ms| tuned::ask_for_slice(ms).err()) {
        if args.place.strict {
            return Err(failed(anyhow!("{why} (--strict)")));
        }
        say::warning(volume, &why);
    }

    let mut variables = Variables::new();
    if args.run.env == EnvMode::Set {
        put(world, &mut variables, &environment);
    }
    if let Some(held) = held {
        if let Some(error) = held.unnamed() {
            say::note(volume, &format!("trimtab ps cannot name this run: {error}"));
        }
        let (depth, id) = (held.level().depth(), held.id().map(|id| id.number()));
        let descriptor = held.keep().context("cannot keep the cores reserved").map_err(failed)?;
        let id = id.map_or_else(String::new, |id| format!(" {id}"));
        set(&mut variables, HOLD, format!("{depth} {descriptor}{id}"));
    }
    if let Some(word) = &mut word {
        let left = waiting.left_to_user(&user);
        let facts = counted.as_ref().map(|_| ChildFacts::now(&waiting, &left));
        announce(word, &plan.mask, facts.as_ref());
    }
    if args.run.with_parent {
        // A process that was forked off has another parent.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let why = become_program(&program, &args.command, world, &variables);
    if let Some(word) = &mut word {
        retract(word);
    }
    Err(why)
}

/// Looks the program up before anything is reserved.
fn find(world: &World, args: &RunArgs) -> Result<Program, Exit> {
    let search = world.raw("PATH");
    let Some(name) = args.command.first() else {
        return Err(Exit::new(exit::RUN_FAILED, anyhow!("no command is given")));
    };
    let path = resolve(name, search).map_err(|error| {
        let status = error.exit_status();
        match taken_for_program(args) {
            Some(hint) => Exit::new(status, anyhow!("{error}; {hint}")),
            None => Exit::new(status, error),
        }
    })?;
    Program::look(&path, search).map_err(|error| Exit::new(exit::CANNOT_EXECUTE, error))
}

/// What to say of a program that is not there and whose name would be the value of an option that was given without: such
/// options take theirs after an equals sign only, since else the program could be taken for it.
fn taken_for_program(args: &RunArgs) -> Option<String> {
    let (word, run) = (args.command.first()?.to_str()?, &args.run);
    let option = if run.watch.balance.is_some() && word.parse::<Kind>().is_ok() {
        "--balance"
    } else if run.wait.is_some() && crate::args::time::wait(word).is_ok() {
        "--wait"
    } else if run.report.is_some()
        && (["text", "json", "stderr"].contains(&word) || word.ends_with(".json") || word.ends_with(".txt"))
    {
        "--report"
    } else {
        return None;
    };
    Some(format!("if it is the value of {option}, write {option}={word}"))
}

/// The OpenMP runtime a program links.
pub fn openmp(program: &Program) -> Option<Runtime> {
    program.binary.as_ref()?.openmp
}

/// The thread count that the command line of a known program states.
fn said_by_command(command: &[OsString], program: &Program) -> Option<Stated> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    stated(&words, program.family == Some(Family::Launcher))
}

/// Why the OpenMP threads of a program are not bound by the runtime.
#[derive(Clone, Copy)]
struct OwnBinding {
    /// The reason, in words.
    why: &'static str,
    /// Whether the program binds its threads itself, so that no thread of it is placed.
    pins: bool,
}

/// Programs whose OpenMP threads the runtime must not bind. GNU OpenMP gives every thread that opens
/// a team by itself the first places, so that the teams of a program that starts threads of its own
/// meet on the same CPUs. LLVM's runtime deals places round among them.
fn leaves_binding_to(program: &Program, openmp: Option<Runtime>) -> Option<OwnBinding> {
    if pins_itself(&program.path.to_string_lossy()).is_some() {
        return Some(OwnBinding { why: "the program binds its own threads", pins: true });
    }
    let starts = |word: &&str| program.mentions(word, nest::SEARCHED) != Some(false);
    let meet = openmp.is_some_and(|runtime| runtime.row().reuses_first_places);
    let starts_threads = meet && STARTS_THREADS.iter().any(starts);
    starts_threads.then_some(OwnBinding {
        why: "the program starts threads of its own, and each could open a team",
        pins: false,
    })
}

/// The nested teams that the user's `OMP_NUM_THREADS` lists, where they fit the plan and the preload
/// library can place them. A binding that the user set stays in force instead.
fn shape(world: &World, program: &Program, plan: &Plan, omp: Option<&str>) -> Option<Nest> {
    let reachable = program.family.is_none() && guest::bears(program).is_ok() && guest::library().is_ok();
    if openmp(program).is_none()
        || !reachable
        || BINDING_VARIABLES.iter().any(|name| world.of_user(name).is_some())
    {
        return None;
    }
    let counts = counts(omp?)?;
    let threads = counts.iter().fold(1u64, |product, &count| product.saturating_mul(u64::from(count)));
    Nest::of_counts(&counts).filter(|_| threads <= plan.slots.len() as u64)
}

/// Why nested teams of a program that the guest goes along with cannot be placed: threads are only those of the process
/// that trimtab becomes.
fn unreached(program: &Program) -> Option<&'static str> {
    match program.family {
        Some(Family::Shell) => Some(
            "it is a shell, and only a program that it becomes by exec would be reached: put trimtab run before the program inside",
        ),
        Some(Family::Make) => Some("it starts other programs: put trimtab run before them"),
        _ => None,
    }
}

/// The guest takes the name as text.
fn check_report(path: &Path) -> Result<(), anyhow::Error> {
    if path.to_str().is_none() {
        return Err(anyhow!("--report={}: the name must be text in UTF-8", path.display()));
    }
    Ok(())
}

/// Where the guest reports: what it writes is text, and a file of JSON is no place for it.
fn report(option: Option<&ReportTo>) -> Report {
    match option {
        None => Report::No,
        Some(ReportTo { json: false, file: Some(path) }) => {
            // The program may change its directory before it ends.
            Report::File(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        Some(_) => Report::Stderr,
    }
}

/// What this process is to a parallel job.
enum Rank {
    /// Nothing: started by hand.
    None,
    /// One of several that share an allotment, known by the job's key.
    Shares(LocalRank, u64),
    /// One that its launcher has bound by itself.
    Bound(#[expect(dead_code, reason = "says who, for debugging")] LocalRank),
}

fn rank(world: &World, situation: &Situation, volume: Volume) -> Rank {
    let Some(rank) = local_rank(&|name| world.text(name)) else { return Rank::None };
    let Some(of) = rank.of else {
        let launcher = rank.launcher;
        say::warning(
            volume,
            &format!("{launcher} does not say how many ranks run here, so this rank is placed alone"),
        );
        return Rank::None;
    };
    let parent = parent_mask(&world.proc(), Pid::own()).ok().flatten();
    let allowed = &situation.taken.allowed;
    if of > 1 && parent.is_some_and(|parent| parent.difference(allowed).intersects(&situation.machine.cpus()))
    {
        let launcher = rank.launcher;
        say::note(
            volume,
            &format!(
                "{launcher} bound this rank to CPUs {allowed}, and it stays there; with mpirun --bind-to none trimtab places the ranks"
            ),
        );
        return Rank::Bound(rank);
    }
    if of < 2 {
        return Rank::None;
    }
    let job = job_key(world, &rank);
    Rank::Shares(rank, job)
}

/// What the ranks of one job have in common on this machine: the launcher's name for the job, or the process that
/// started them.
fn job_key(world: &World, rank: &LocalRank) -> u64 {
    let parent = || {
        let parent = process::stat(&world.proc(), Pid::own()).ok()?.parent;
        let start = process::stat(&world.proc(), parent).ok()?.start;
        Some(format!("{parent} {}", start.0))
    };
    let job = rank.job.clone().or_else(parent).unwrap_or_default();
    // A name for a job, not a secret. 0 means no job.
    fnv1a(rank.launcher.bytes().chain([0]).chain(job.bytes())).max(1)
}

fn warn_about(program: &Program, volume: Volume) {
    if program.family == Some(Family::Launcher) {
        let name = program.path.file_name().unwrap_or_default().to_string_lossy();
        say::warning(
            volume,
            &format!(
                "trimtab does not place the threads of the ranks that {name} starts; better put trimtab behind it: {name} … trimtab run … ./app"
            ),
        );
    }
}

/// What the holder is called in `trimtab ps`: the command line, as typed.
fn label(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// The variables that bring the guest along.
fn guest_variables(
    world: &World,
    plan: &Plan,
    guest: &Guest,
    teams: Option<&NestHandoff>,
    volume: Volume,
) -> Vec<Variable> {
    let variable =
        |name: &str, action| Variable { name: name.to_owned(), reader: "trimtab's guest library", action };
    let unset = |why: &str| {
        let unset = || Action::Unset { why: why.to_owned() };
        let preload = match (world.text("LD_PRELOAD"), guest::preload_of_others(world)) {
            (Some(all), Some(others)) if all == others => Action::Kept { value: all },
            (_, Some(value)) => Action::Set { value },
            _ => unset(),
        };
        vec![
            variable("LD_PRELOAD", preload),
            variable(handoff::VARIABLE, unset()),
            variable(handoff::NEST_VARIABLE, unset()),
        ]
    };
    let pin = match guest {
        Guest::Stays(why) => return unset(why),
        Guest::Goes(pin) => *pin,
    };
    match guest::library() {
        Ok(library) => {
            let value = guest::handoff(plan, pin).to_string();
            let nest = match teams {
                Some(teams) => Action::Set { value: teams.to_string() },
                None => Action::Unset { why: "no nested teams were asked for".to_owned() },
            };
            let mut variables = vec![
                variable("LD_PRELOAD", Action::Set { value: guest::preload(world, &library) }),
                variable(handoff::VARIABLE, Action::Set { value }),
                variable(handoff::NEST_VARIABLE, nest),
            ];
            if teams.is_some() {
                // Some builds of LLVM's runtime look for tools here only. Another tool keeps its place.
                let set = || Action::Set { value: library.display().to_string() };
                let action = world.of_user(TOOLS).map_or_else(set, |value| Action::Kept { value });
                variables.push(variable(TOOLS, action));
            }
            variables
        }
        Err(why) => {
            say::warning(volume, &format!("threads are not pinned at birth: {why}"));
            unset(&why)
        }
    }
}

/// The names of the variables that the launch changes, for the line that the preload library writes
/// where the program fails within seconds.
fn changed(environment: &[Variable], guest: &Guest) -> Option<Variable> {
    let ours = |name: &str| name.starts_with("TRIMTAB_") || name == "LD_PRELOAD" || name == TOOLS;
    let names = environment
        .iter()
        .filter(|variable| !matches!(variable.action, Action::Kept { .. } | Action::Unset { .. }))
        .map(|variable| variable.name.as_str())
        .filter(|name| !ours(name));
    let text = handoff::changed_text(std::process::id(), names)?;
    matches!(guest, Guest::Goes(_)).then(|| Variable {
        name: handoff::CHANGED_VARIABLE.to_owned(),
        reader: "trimtab's guest library",
        action: Action::Set { value: text },
    })
}

/// Puts the variables that are to be set, and the list of them for runs inside this one.
fn put(world: &World, variables: &mut Variables, environment: &[Variable]) {
    let mut ours = OwnValues::default();
    for Variable { name, action, .. } in environment {
        match action {
            Action::Set { value } | Action::Fitted { value, .. } => {
                set(variables, name, value);
                ours.add(name, value);
            }
            // What an enclosing run set is for its own cores.
            Action::Removed { .. } => {
                variables.insert(name.clone(), None);
            }
            Action::Unset { .. } if world.text(name).is_some() && world.of_user(name).is_none() => {
                variables.insert(name.clone(), None);
            }
            Action::Unset { .. } | Action::Kept { .. } => {}
        }
    }
    // What an enclosing run set and this one leaves stays known as not the user's.
    let before = world.own_values();
    for name in world.names().filter(|name| !variables.contains_key(*name)) {
        if let Some(value) = world.text(name).filter(|value| before.contain(name, value)) {
            ours.add(name, &value);
        }
    }
    let list = (!ours.is_empty()).then(|| OsString::from(ours.to_string()));
    variables.insert(SET_BY_US.to_owned(), list);
}

fn environment_table(environment: &[Variable]) -> String {
    let mut table =
        Table::new(&[("VARIABLE", Align::Left), ("READ BY", Align::Left), ("ACTION", Align::Left)]);
    for Variable { name, reader, action } in environment {
        let action = match action {
            Action::Set { value } => format!("set to {value}"),
            Action::Kept { value } => format!("kept as you set it: {value}"),
            Action::Fitted { value, from } => {
                format!("fitted to {value}: you set {from}, more than the run has CPUs (--fit keep)")
            }
            Action::Removed { value, why } => format!("taken away (you set it to {value}): {why}"),
            Action::Unset { why } => format!("not set: {why}"),
        };
        table.row([name.clone(), (*reader).to_owned(), action]);
    }
    table.to_string()
}

/// Says what the run got, and with `--verbose` why.
fn tell(plan: &Plan, guest: &Guest, nesting: Option<&Nesting>, rule: Option<&str>, volume: Volume) {
    say::headline(volume, &headline(plan));
    if let Some(line) = short_of(plan).filter(|_| volume == Volume::Normal) {
        say::notice(volume, &line);
    }
    for reason in &plan.reasons {
        say::note(volume, &format!("  {reason}"));
    }
    if let Some(rule) = rule {
        say::note(volume, &format!("  the rule for \"{rule}\" applies"));
    }
    let threads = match guest {
        Guest::Stays(why) => why.clone(),
        Guest::Goes(_) if nesting.is_some() => {
            let teams = nesting.map_or_else(String::new, |nesting| nesting.resolved().to_string());
            format!("threads of nested teams are placed as {teams}, other threads float inside the mask")
        }
        Guest::Goes(handoff::Pin::Born) => "new threads are born on their own slots".to_owned(),
        Guest::Goes(handoff::Pin::Float) => {
            "OpenMP threads get exact places, other threads float inside the mask".to_owned()
        }
        Guest::Goes(handoff::Pin::Mask) => "threads float inside the mask".to_owned(),
    };
    say::note(volume, &format!("  {threads}"));
}

/// What `sched_yield` does on these CPUs.
pub(crate) fn measured_yield(cpus: &CpuSet) -> Yield {
    match yield_share(cpus) {
        None => Yield::Unknown,
        Some(YieldKind::Posix) => Yield::Posix,
        Some(YieldKind::Weak { share }) => Yield::Weak { share },
    }
}

/// Says how threads wait, and what of it is not ours to say.
fn tell_waiting(
    waiting: &Waiting,
    yields: Option<Yield>,
    user: &dyn Fn(&str) -> Option<String>,
    volume: Volume,
) {
    say::note(volume, &format!("  {waiting}"));
    match yields.map(|yields| (yields, waiting.caution(yields))) {
        Some((_, Some(caution))) => say::warning(volume, &caution),
        Some((yields, None)) => say::note(volume, &format!("    {yields}")),
        None => {}
    }
    for left in waiting.left_to_user(user) {
        say::note(volume, &format!("    {left}"));
    }
}

/// Why a plan that leaves open how many cores has fewer than could be used, where other programs are the cause: the
/// program then has fewer threads than its user may expect, and nothing else says so.
fn short_of(plan: &Plan) -> Option<String> {
    if plan.amount != Amount::Auto
        || !plan.reasons.iter().any(|reason| matches!(reason, Reason::Auto { cap: None, .. }))
    {
        return None;
    }
    let avoided = plan.reasons.iter().filter_map(|reason| match reason {
        Reason::Avoided { state: State::Busy | State::Pinned, cpus } => Some(cpus),
        _ => None,
    });
    let avoided = avoided.fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let cores = plan.slots.iter().map(|slot| slot.core).collect::<std::collections::BTreeSet<_>>().len();
    (!avoided.is_empty()).then(|| {
        let cores = plural(cores, "core");
        format!("{cores} only, as other programs keep CPUs {avoided} busy or are bound to them (-c N takes busy ones too)")
    })
}

/// One line: how much, where.
pub fn headline(plan: &Plan) -> String {
    let cores: std::collections::BTreeSet<_> = plan.slots.iter().map(|slot| slot.core).collect();
    let nodes = if plan.nodes.is_empty() { String::new() } else { format!(" on node {}", plan.nodes) };
    let threads = if plan.slots.len() == cores.len() {
        String::new()
    } else {
        format!(", {}", plural(plan.slots.len(), "slot"))
    };
    format!("{}{threads}: CPUs {}{nodes}", plural(cores.len(), "core"), plan.mask)
}
