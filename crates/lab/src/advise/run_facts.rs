//! Facts of a run that its profile does not hold: CPUs, other programs on them, quota, effect of
//! `sched_yield`, wake-up time, nested teams that were requested.
//!
//! The load of other programs is measured twice: briefly before the program begins, and as the load
//! of its CPUs during the run minus its own CPU time. If both agree, the value is used. If other
//! programs started or ended meanwhile, no value is used and a note reports that.

use anyhow::Result;
use std::time::{Duration, Instant};
use trimtab_cli::args::{AdviseArgs, PlaceArgs, RunArgs, RunOnly};
use trimtab_cli::gather::{plan_now, trouble_cause};
use trimtab_core::advise::Situation;
use trimtab_core::place::runtimes::BINDING_VARIABLES;
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_front::process_env::World;
use trimtab_hold::facts::measured_yield;
use trimtab_launch::LaunchPlan;
use trimtab_linux::calibrate::wake_time;
use trimtab_linux::survey::{Load, LoadSample};
use trimtab_linux::sys::usage;

/// Duration of the load measurement before the run: twenty ticks of the kernel's clock.
const LOAD_WINDOW_BEFORE: Duration = Duration::from_millis(200);
/// Shortest run that shows the load of others: the kernel counts in hundredths of a second.
const RUN_LENGTH_MIN: Duration = Duration::from_millis(400);
/// Load of others, in CPUs, that counts as the background noise of a machine.
const FOREIGN_NOISE_CPUS: f64 = 0.25;
/// Attempts to measure the effect of a yield: other programs can disturb one.
const YIELD_TRIALS_MAX: usize = 3;

/// Facts that were gathered.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    cpus: CpuSet,
    others: Option<f64>,
    quota: Option<u32>,
    yields: Yield,
    wake: Option<Span>,
    notes: Vec<String>,
}

/// Facts before the program begins.
#[derive(Debug)]
pub(super) struct FactsBefore {
    place: PlaceArgs,
    seen: RunFacts,
    before: Option<f64>,
    sample: Option<LoadSample>,
    used: Duration,
    begin: Instant,
}

/// Returns the user's options about CPUs, as typed.
pub(super) fn bounds(args: &AdviseArgs) -> Vec<String> {
    let mut options = Vec::new();
    if let Some(cores) = args.cores {
        options.push(format!("--cores={cores}"));
    }
    if let Some(cpus) = &args.cpus {
        options.push(format!("--cpus={cpus}"));
    }
    if args.share {
        options.push("--share".to_owned());
    }
    options
}

/// Finds the CPUs that the program will get, and measures the load of others on them.
///
/// # Errors
/// There are not enough CPUs; the message is that of `trimtab plan`.
pub(super) fn begin(world: &World, args: &AdviseArgs, setting: &Setting) -> Result<FactsBefore> {
    let mut places = Setting::new();
    for (knob, value) in
        setting.iter().filter(|(knob, _)| matches!(knob, Knob::Cores | Knob::Smt | Knob::Strategy))
    {
        places = places.with(knob, value)?;
    }
    let launch = plan(world, args, &places)?;
    let cpus: CpuSet = launch.placement.slots.iter().map(|slot| slot.cpu).collect();
    // If the setting does not choose CPUs, the run gets the same CPUs that were measured.
    let place = if places.is_empty() {
        PlaceArgs { cpus: Some(cpus.clone().into()), share: args.share, ..PlaceArgs::default() }
    } else {
        asked(args)
    };
    let mut tries = (0..YIELD_TRIALS_MAX).map(|_| measured_yield(&cpus));
    let yields = tries.find(|came| *came != Yield::Unknown).unwrap_or_default();
    let wake = wake_time(&cpus);
    let before = if args.others.is_some() { None } else { busy_for(world, &cpus, LOAD_WINDOW_BEFORE) };
    Ok(FactsBefore {
        place,
        seen: RunFacts { cpus, quota: launch.taken.quota, yields, wake, ..RunFacts::default() },
        before,
        used: usage::of_children().unwrap_or_default(),
        sample: LoadSample::read(&world.proc()).ok(),
        begin: Instant::now(),
    })
}

/// Returns the user's options about CPUs, as those of a run.
fn asked(args: &AdviseArgs) -> PlaceArgs {
    PlaceArgs {
        cores: args.cores,
        cpus: args.cpus.clone().map(Into::into),
        share: args.share,
        ..PlaceArgs::default()
    }
}

/// Returns the plan of a run that would start now.
fn plan(world: &World, args: &AdviseArgs, places: &Setting) -> Result<LaunchPlan> {
    let run = RunOnly { set: places.clone(), ..RunOnly::default() };
    let args = RunArgs { place: asked(args), run, command: Vec::new() };
    plan_now(world, &args).map_err(trouble_cause)
}

/// Returns the work on some CPUs between two samples, in CPUs.
fn busy(before: &LoadSample, after: &LoadSample, cpus: &CpuSet) -> f64 {
    let load = Load::between(before, after);
    load.cpus
        .iter()
        .filter(|(cpu, _)| cpus.contains(**cpu))
        .map(|(_, load)| f64::from(load.busy_permille) / 1000.0)
        .sum()
}

fn busy_for(world: &World, cpus: &CpuSet, time: Duration) -> Option<f64> {
    let before = LoadSample::read(&world.proc()).ok()?;
    std::thread::sleep(time);
    Some(busy(&before, &LoadSample::read(&world.proc()).ok()?, cpus))
}

impl FactsBefore {
    /// Returns the placement of the run that is measured.
    pub(super) fn place(&self) -> PlaceArgs {
        self.place.clone()
    }

    /// Returns the number of CPUs that the program gets.
    pub(super) fn cpus(&self) -> u32 {
        u32::try_from(self.seen.cpus.len()).unwrap_or(u32::MAX)
    }

    /// Completes the facts after the program has ended.
    pub(super) fn end(self, world: &World, args: &AdviseArgs) -> RunFacts {
        let Self { mut seen, before, sample, used, begin, .. } = self;
        if args.others.is_some() {
            seen.others = args.others;
            return seen;
        }
        let (wall, own) = (begin.elapsed(), usage::of_children().unwrap_or_default().saturating_sub(used));
        let after = LoadSample::read(&world.proc()).ok();
        let during = sample.zip(after).filter(|_| wall >= RUN_LENGTH_MIN).map(|(before, after)| {
            (busy(&before, &after, &seen.cpus) - own.as_secs_f64() / wall.as_secs_f64()).max(0.0)
        });
        (seen.others, seen.notes) = agreed(before, during);
        seen
    }
}

/// Returns the load of others if both measurements agree.
fn agreed(before: Option<f64>, during: Option<f64>) -> (Option<f64>, Vec<String>) {
    match (before, during) {
        (Some(before), Some(during)) if (before < FOREIGN_NOISE_CPUS) != (during < FOREIGN_NOISE_CPUS) => (
            None,
            vec![format!(
                "other programs used {before:.1} of these CPUs before the run and {during:.1} during it: the load changed, so neither value is used (set it with --others N)"
            )],
        ),
        (Some(before), Some(during)) => (Some(before.max(during)), Vec::new()),
        (Some(one), None) | (None, Some(one)) => (Some(one), Vec::new()),
        (None, None) => (
            None,
            vec!["the load of other programs cannot be measured here (set it with --others N)".to_owned()],
        ),
    }
}

impl RunFacts {
    /// Facts for a stored profile: only the values that options give now.
    pub(super) fn of_kept(args: &AdviseArgs) -> Self {
        let notes = match args.others {
            Some(_) => Vec::new(),
            None => vec![
                "the profile does not contain the load of other programs: set it with --others N (0 for none)"
                    .to_owned(),
            ],
        };
        Self { others: args.others, notes, ..Self::default() }
    }

    /// Returns notes for the user.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the facts in the form that the rules take.
    pub(super) fn situation(&self, world: &World, args: &AdviseArgs, profile: &Profile) -> Situation {
        // The current variables do not apply to a run in the past.
        let teams = if args.from.is_some() { Vec::new() } else { teams(world) };
        Situation {
            cpus: u32::try_from(self.cpus.len()).unwrap_or(u32::MAX),
            others: self.others,
            quota: self.quota,
            yields: self.yields,
            wake: self.wake,
            bound: bound(world, profile),
            teams,
            companion: None,
        }
    }
}

/// Returns the sizes of nested teams that the user requests.
fn teams(world: &World) -> Vec<u32> {
    let sizes = world.of_user("OMP_NUM_THREADS").unwrap_or_default();
    let sizes: Option<Vec<u32>> = sizes.split(',').map(|size| size.trim().parse().ok()).collect();
    sizes.filter(|sizes| sizes.len() > 1 && !sizes.contains(&0)).unwrap_or_default()
}

/// Returns whether threads are bound: `trimtab run` binds OpenMP threads while each has a CPU.
/// `None` if the user binds them or for other runtimes.
fn bound(world: &World, profile: &Profile) -> Option<bool> {
    if BINDING_VARIABLES.iter().any(|name| world.of_user(name).is_some()) {
        return None;
    }
    if profile.setting.get(Knob::Pin) == Some("mask") {
        return Some(false);
    }
    let openmp = profile.runtimes.iter().all(|runtime| runtime.is_openmp());
    (openmp && !profile.runtimes.is_empty() && profile.workers <= profile.cpus).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_others_is_used_if_both_measurements_agree() {
        assert_eq!(agreed(Some(0.1), Some(0.0)).0, Some(0.1));
        assert_eq!(agreed(Some(1.0), Some(0.6)).0, Some(1.0));
        assert_eq!(agreed(Some(1.0), None).0, Some(1.0));
        let (others, notes) = agreed(Some(1.0), Some(0.0));
        assert_eq!(others, None);
        assert!(notes[0].contains("the load changed"), "{notes:?}");
        assert!(agreed(None, None).1[0].contains("--others"));
    }
}
