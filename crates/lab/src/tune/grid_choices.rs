//! Facts before the first run: the cores that the program gets, the features of the machine, the
//! variables that the user set.

use anyhow::{Context, Result, bail};
use trimtab_cli::args::{PlaceArgs, RunArgs, RunOnly, SurveyMode, TuneArgs};
use trimtab_cli::gather::{plan_now, trouble_cause};
use trimtab_core::setting::Knob;
use trimtab_core::tuning::Choice;
use trimtab_core::tuning::grid::{Facts, Left, grid};
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_launch::{TUNABLES, TUNABLES_SINCE};
use trimtab_linux::memory::{SystemHugePages, system_huge_pages};
use trimtab_linux::sys::{slice, version};

/// First Linux version in which one process can restrict huge pages to memory for which it asks
/// (`madvise`), although the system gives them always.
const ADVISED: (u32, u32) = (6, 18);
/// Variables that set the wait policy.
const WAITING: [&str; 4] = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"];

/// Returns the number of cores that the program will get, from a plan made now, without regard to
/// load.
///
/// # Errors
/// There are not enough cores; the message is that of `trimtab plan`.
pub(super) fn cores(world: &World, args: &TuneArgs) -> Result<u32> {
    let place = PlaceArgs {
        cores: args.cores,
        cpus: args.cpus.clone().map(Into::into),
        share: args.share,
        survey: SurveyMode::None,
        ..PlaceArgs::default()
    };
    let args = RunArgs { place, run: RunOnly::default(), command: Vec::new() };
    let launch = plan_now(world, &args).map_err(trouble_cause)?;
    u32::try_from(trimtab_launch::cores(&launch.placement)).context("so many cores")
}

/// Returns the knobs to try, and the others with the reason.
///
/// # Errors
/// The machine cannot be read, or nothing is left to try.
pub(super) fn choices(world: &World, args: &TuneArgs, cores: u32) -> Result<(Vec<Choice>, Vec<Left>)> {
    let (machine, _) = Which::Live.load(world)?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let system = system_huge_pages(&world.sys()).ok().flatten();
    let facts = Facts {
        cores,
        smt: count(machine.smt()),
        nodes: count(machine.nodes().len()),
        caches: count(machine.llcs().len()),
        machine_cores: count(machine.cores().len()),
        huge: system.is_some_and(|system| system != SystemHugePages::Never),
        huge_always: system == Some(SystemHugePages::Always),
        advised: kernel().is_some_and(|kernel| kernel >= ADVISED),
        allocator: version::glibc().is_some_and(|version| version >= TUNABLES_SINCE)
            && world.of_user(TUNABLES).is_none(),
        slice: matches!(slice::get(), Ok(Some(_))),
    };
    let wanted = if args.knobs.is_empty() { Knob::ALL.to_vec() } else { args.knobs.clone() };
    // The user's settings are not changed.
    let said = |knob: Knob| {
        let variable = |names: &[&str]| {
            names
                .iter()
                .find(|name| world.of_user(name).is_some())
                .map(|name| format!("you set {name}, which is not changed"))
        };
        match knob {
            Knob::Threads => variable(&["OMP_NUM_THREADS"]),
            Knob::Wait => variable(&WAITING),
            Knob::Cores if args.cpus.is_some() => Some("--cpus names the CPUs".to_owned()),
            Knob::Smt | Knob::Strategy if args.cpus.is_some() => Some("--cpus names the CPUs".to_owned()),
            _ => None,
        }
    };
    let mut left = Vec::new();
    let mut free = Vec::new();
    for knob in Knob::ALL.into_iter().filter(|knob| wanted.contains(knob)) {
        match said(knob) {
            Some(why) => left.push(Left { knob, why }),
            None => free.push(knob),
        }
    }
    let (mut choices, more) = grid(&facts, &free);
    left.extend(more);
    // The values of the start setting can be changed, too.
    for choice in &mut choices {
        let own = args.from.get(choice.knob).map(str::to_owned);
        if !choice.values.contains(&own) {
            choice.values.push(own);
        }
    }
    if choices.is_empty() {
        let why: Vec<String> = left.iter().map(|left| format!("{}: {}", left.knob, left.why)).collect();
        bail!("there is nothing to try ({})", why.join("; "));
    }
    Ok((choices, left))
}

fn kernel() -> Option<(u32, u32)> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
