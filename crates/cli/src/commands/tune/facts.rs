//! What is known before the first run: what the program gets, what the machine has, what the user has set already.

use crate::args::{PlaceArgs, RunArgs, RunOnly, SurveyMode, TuneArgs};
use crate::gather::{plan_now, trouble_cause};
use crate::machine::Which;
use crate::world::World;
use anyhow::{Context, Result, bail};
use trimtab_core::setting::Knob;
use trimtab_core::tuning::Choice;
use trimtab_core::tuning::grid::{Facts, Left, grid};
use trimtab_launch::{TUNABLES, TUNABLES_SINCE};
use trimtab_linux::memory::{SystemHugePages, system_huge_pages};
use trimtab_linux::sys::{slice, version};

/// Linux that knows "only where asked for".
const ADVISED: (u32, u32) = (6, 18);
/// Variables by which users say how threads wait.
const WAITING: [&str; 4] = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"];

/// The cores that the program will get, by a plan that is made now, whatever load there is.
///
/// # Errors
/// There are not enough; the words are those of `trimtab plan`.
pub(super) fn cores(world: &World, args: &TuneArgs) -> Result<u32> {
    let place = PlaceArgs {
        cores: args.cores,
        cpus: args.cpus.clone(),
        share: args.share,
        survey: SurveyMode::None,
        ..PlaceArgs::default()
    };
    let args = RunArgs { place, run: RunOnly::default(), command: Vec::new() };
    let launch = plan_now(world, &args).map_err(trouble_cause)?;
    u32::try_from(trimtab_launch::cores(&launch.placement)).context("so many cores")
}

/// What may be tried, and what not and why.
///
/// # Errors
/// The machine cannot be looked at, or nothing is left to try.
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
    // What the user says stays as it is.
    let said = |knob: Knob| {
        let variable = |names: &[&str]| {
            names
                .iter()
                .find(|name| world.of_user(name).is_some())
                .map(|name| format!("you set {name}, and that stays"))
        };
        match knob {
            Knob::Threads => variable(&["OMP_NUM_THREADS"]),
            Knob::Wait => variable(&WAITING),
            Knob::Cores if args.cpus.is_some() => Some("--cpus says exactly which".to_owned()),
            Knob::Smt | Knob::Strategy if args.cpus.is_some() => {
                Some("--cpus says exactly which CPUs".to_owned())
            }
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
    // What it begins with can be changed, too.
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
