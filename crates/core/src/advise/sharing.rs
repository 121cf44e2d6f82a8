//! Rule for sharing cores: all cores shared with others, or fewer cores alone; with a companion,
//! all cores shared or half of them each.
//!
//! Problem: a foreign thread on one core delays every thread that synchronises with the thread
//! there. Rule: with fine steps, leave the foreign threads their cores. The work is then divided
//! among fewer threads, and is assumed to divide perfectly. Two programs gain by sharing only the
//! time that one leaves idle.

use super::known::ProgramFacts;
use super::load::WaitMode;
use super::{Advice, Gain, Situation, Topic};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const STRANGERS: &str = "a thread that shares a core with another program runs only part of the time, and all threads wait for it (IPDPS 2010; docs/advise.md, \"Sharing\")";
const PAIRS: &str = "sharing gains the time that the other program leaves idle, if neither synchronises often; published: 33 % and 23 % by sharing on cores without SMT, no difference with SMT (IPDPS 2010)";
/// Interval between barriers in seconds above which the other program's slices matter little: five
/// ticks.
const COARSE_INTERVAL_S: f64 = 0.02;

pub(super) fn advise(known: &ProgramFacts<'_>, machine: &Machine, situation: &Situation) -> Advice {
    if let Some(companion) = &situation.companion {
        return pair(known, &companion.profile, machine);
    }
    let advice = Advice::about(Topic::Sharing, STRANGERS);
    let Some(rivals) = known.rivals else {
        return advice.lacking(vec!["the load of other programs on these CPUs".to_owned()]);
    };
    if rivals == 0 {
        return advice.no_change("no other program uses these CPUs");
    }
    let missing = known.missing(true);
    let Some(mode) = known.mode.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    let advice = advice.seen(known.evidence());
    if rivals >= known.cpus {
        return advice.unsure("other programs keep all of these CPUs busy, so no CPU is available exclusively; use other cores or another time");
    }
    if known.threads > known.cpus && mode != WaitMode::Spin {
        return advice.unsure("more threads than CPUs get a larger share of the CPUs next to other programs, but lose more at barriers: the net effect is unknown");
    }
    let cores = known.cpus - rivals;
    let threads = known.threads.min(cores);
    // With a CPU for each thread the launcher leaves waiting to the runtime: no worse than the
    // present behaviour.
    let gain = known.gain(&known.now(mode), &known.loads(threads, cores, 0, mode));
    let setting = Setting::new().with(Knob::Cores, cores.to_string());
    let setting = setting.and_then(|one| one.with(Knob::Threads, threads.to_string())).unwrap_or_default();
    let words = format!(
        "use {cores} of the {} cores exclusively: on the others its threads would wait for other programs",
        known.cpus
    );
    advice.weigh(setting, gain, words).but(
        "the other programs stay where they are; work that divides badly among threads gains more, work that needs every core's memory bandwidth less",
    )
}

/// Compares sharing all cores between two programs with half of the cores each.
fn pair(known: &ProgramFacts<'_>, other: &Profile, machine: &Machine) -> Advice {
    let advice = Advice::about(Topic::Sharing, PAIRS);
    let mut missing = known.missing(true);
    let busy = |profile: &Profile| {
        let capacity = profile.wall.times(f64::from(profile.cpus.max(1)));
        (profile.user + profile.system).share_of(capacity)
    };
    if other.intervals.is_none() {
        missing.push("the companion's synchronisation intervals".to_owned());
    }
    let (Some(mode), Some(idle), true) =
        (known.mode, busy(other).map(|busy| 1.0 - busy.min(1.0)), missing.is_empty())
    else {
        return advice.lacking(missing);
    };
    let mut advice = advice.seen(known.evidence());
    advice.evidence.push(format!("{} leaves {:.0} % of its CPUs' time idle", other.program, 100.0 * idle));
    let mean = |profile: &Profile| profile.intervals.map_or(0.0, |intervals| intervals.mean.seconds());
    let fine = mean(known.profile).min(mean(other)) < COARSE_INTERVAL_S;
    let spins = mode == WaitMode::Spin;
    if fine || spins {
        let why = if spins {
            "spinning threads use up the other program's time slices"
        } else {
            "threads that synchronise often wait for the other program's time slices"
        };
        return advice.unsure(format!(
            "keep them apart, half of the cores each, unless a measurement shows otherwise: {why}"
        ));
    }
    if machine.smt() > 1 {
        return advice.no_change("no difference is expected on cores with several hardware threads");
    }
    // The idle time of the other program comes on top of the own half.
    let likely = 1.0 / (1.0 + idle);
    advice.gain = Some(Gain { low: likely / 1.33, likely, high: 1.05 });
    advice.unsure("sharing all cores may help if the companion leaves them idle, but the effect on the companion is unknown").but(
        "the companion's profile does not show its load over time",
    )
}
