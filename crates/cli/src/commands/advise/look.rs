//! What a program met that its profile does not say: CPUs, others on them, a quota, what a yield does, how long waking takes, nested teams that were asked for.
//!
//! Others are looked at twice: for a moment before the program begins, and as what its CPUs did during the run beyond what it used itself. Where both
//! agree, that is believed; where others came or went meanwhile nothing is, and it is said.

use crate::args::{AdviseArgs, PlaceArgs, RunArgs, RunOnly};
use crate::gather::{measured_yield, plan_now, trouble_cause};
use crate::world::World;
use anyhow::Result;
use std::time::{Duration, Instant};
use trimtab_core::advise::Situation;
use trimtab_core::place::runtimes::BINDING_VARIABLES;
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_launch::LaunchPlan;
use trimtab_linux::calibrate::wake_time;
use trimtab_linux::survey::{Load, LoadSample};
use trimtab_linux::sys::usage;

/// How long others are looked at before: twenty ticks of the kernel's clock.
const BEFORE: Duration = Duration::from_millis(200);
/// Shorter runs do not show who else ran: the kernel counts in hundredths of a second.
const DURING: Duration = Duration::from_millis(400);
/// So much of a CPU that others take is what machines do by themselves.
const NOISE: f64 = 0.25;
/// How often what a yield does is tried: others can disturb a trial.
const TRIES: usize = 3;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    cpus: CpuSet,
    others: Option<f64>,
    quota: Option<u32>,
    yields: Yield,
    wake: Option<Span>,
    notes: Vec<String>,
}

/// What there is before the program begins.
#[derive(Debug)]
pub(super) struct Looking {
    options: Vec<String>,
    seen: Seen,
    before: Option<f64>,
    sample: Option<LoadSample>,
    used: Duration,
    begin: Instant,
}

/// What the user said of CPUs.
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

/// Looks for the CPUs that the program will get, and at who is on them.
///
/// # Errors
/// There are not enough; the words are those of `trimtab plan`.
pub(super) fn begin(world: &World, args: &AdviseArgs, setting: &Setting) -> Result<Looking> {
    let mut places = Setting::new();
    for (knob, value) in
        setting.iter().filter(|(knob, _)| matches!(knob, Knob::Cores | Knob::Smt | Knob::Strategy))
    {
        places = places.with(knob, value)?;
    }
    let bounds = bounds(args);
    let launch = plan(world, args, &places)?;
    let cpus: CpuSet = launch.placement.slots.iter().map(|slot| slot.cpu).collect();
    // The same CPUs as were looked at, where the setting says nothing of them.
    let options = if places.is_empty() {
        let mut options = vec![format!("--cpus={cpus}")];
        options.extend(args.share.then(|| "--share".to_owned()));
        options
    } else {
        bounds
    };
    let mut tries = (0..TRIES).map(|_| measured_yield(&cpus));
    let yields = tries.find(|came| *came != Yield::Unknown).unwrap_or_default();
    let wake = wake_time(&cpus);
    let before = if args.others.is_some() { None } else { busy_for(world, &cpus, BEFORE) };
    Ok(Looking {
        options,
        seen: Seen { cpus, quota: launch.taken.quota, yields, wake, ..Seen::default() },
        before,
        used: usage::of_children().unwrap_or_default(),
        sample: LoadSample::read(&world.proc()).ok(),
        begin: Instant::now(),
    })
}

/// The plan of a run that would start now.
fn plan(world: &World, args: &AdviseArgs, places: &Setting) -> Result<LaunchPlan> {
    let place =
        PlaceArgs { cores: args.cores, cpus: args.cpus.clone(), share: args.share, ..PlaceArgs::default() };
    let run = RunOnly { set: places.clone(), ..RunOnly::default() };
    let args = RunArgs { place, run, command: Vec::new() };
    plan_now(world, &args).map_err(trouble_cause)
}

/// CPUs' worth of work on some CPUs between two samples.
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

impl Looking {
    /// For the run that is measured.
    pub(super) fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    /// When the program has ended.
    pub(super) fn end(self, world: &World, args: &AdviseArgs) -> Seen {
        let Self { mut seen, before, sample, used, begin, .. } = self;
        if args.others.is_some() {
            seen.others = args.others;
            return seen;
        }
        let (wall, own) = (begin.elapsed(), usage::of_children().unwrap_or_default().saturating_sub(used));
        let after = LoadSample::read(&world.proc()).ok();
        let during = sample.zip(after).filter(|_| wall >= DURING).map(|(before, after)| {
            (busy(&before, &after, &seen.cpus) - own.as_secs_f64() / wall.as_secs_f64()).max(0.0)
        });
        (seen.others, seen.notes) = agreed(before, during);
        seen
    }
}

/// What others take, where two looks say alike.
fn agreed(before: Option<f64>, during: Option<f64>) -> (Option<f64>, Vec<String>) {
    match (before, during) {
        (Some(before), Some(during)) if (before < NOISE) != (during < NOISE) => (
            None,
            vec![format!(
                "others kept {before:.1} of these CPUs busy before the run and {during:.1} during it: they came or went, so nothing is taken for sure (--others N says how many to reckon with)"
            )],
        ),
        (Some(before), Some(during)) => (Some(before.max(during)), Vec::new()),
        (Some(one), None) | (None, Some(one)) => (Some(one), Vec::new()),
        (None, None) => (None, vec!["what others do cannot be seen here (--others N says it)".to_owned()]),
    }
}

impl Seen {
    /// Of a profile that was kept: only what is said now.
    pub(super) fn of_kept(args: &AdviseArgs) -> Self {
        let notes = match args.others {
            Some(_) => Vec::new(),
            None => vec![
                "what others did when the profile was made is not in it: --others N says it (0: nobody)"
                    .to_owned(),
            ],
        };
        Self { others: args.others, notes, ..Self::default() }
    }

    /// In words, what people should know.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// As the rules take it.
    pub(super) fn situation(&self, world: &World, args: &AdviseArgs, profile: &Profile) -> Situation {
        // The variables of now say nothing of a run that was long ago.
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

/// Sizes of nested teams that the user asks for.
fn teams(world: &World) -> Vec<u32> {
    let sizes = world.of_user("OMP_NUM_THREADS").unwrap_or_default();
    let sizes: Option<Vec<u32>> = sizes.split(',').map(|size| size.trim().parse().ok()).collect();
    sizes.filter(|sizes| sizes.len() > 1 && !sizes.contains(&0)).unwrap_or_default()
}

/// Whether threads are bound: as `trimtab run` binds those of OpenMP while each has a CPU. What the user binds, and what other runtimes do, is not known.
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
    fn others_are_believed_where_both_looks_agree() {
        assert_eq!(agreed(Some(0.1), Some(0.0)).0, Some(0.1));
        assert_eq!(agreed(Some(1.0), Some(0.6)).0, Some(1.0));
        assert_eq!(agreed(Some(1.0), None).0, Some(1.0));
        let (others, notes) = agreed(Some(1.0), Some(0.0));
        assert_eq!(others, None);
        assert!(notes[0].contains("came or went"), "{notes:?}");
        assert!(agreed(None, None).1[0].contains("--others"));
    }
}
