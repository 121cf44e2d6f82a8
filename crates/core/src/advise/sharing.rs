//! Cores together with others, or fewer of them alone; with a companion, all cores shared or half of them each.
//!
//! Problem: a stranger on one core holds up every thread that meets the one there. Rule: with fine steps, leave the strangers their cores; the work
//! is then divided among fewer threads, which is counted as if it divided perfectly. Two programs gain by sharing only what one leaves idle.

use super::known::Known;
use super::load::Way;
use super::{Advice, Gain, Situation, Topic};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const STRANGERS: &str = "a thread beside a stranger has the core in turn with it, and all wait for that thread (IPDPS 2010; docs/advise.md, \"Sharing\")";
const PAIRS: &str = "sharing gains what the other leaves idle, if nobody meets often; published: 33 % and 23 % by sharing on cores without SMT, no difference with SMT (IPDPS 2010)";
/// Meetings less often than this feel the other program's turns little: five ticks.
const COARSE: f64 = 0.02;

pub(super) fn advise(known: &Known<'_>, machine: &Machine, situation: &Situation) -> Advice {
    if let Some(companion) = &situation.companion {
        return pair(known, &companion.profile, machine);
    }
    let advice = Advice::about(Topic::Sharing, STRANGERS);
    let Some(rivals) = known.rivals else {
        return advice.lacking(vec!["what others do on these CPUs".to_owned()]);
    };
    if rivals == 0 {
        return advice.no_change("nobody else uses these CPUs");
    }
    let missing = known.missing(true);
    let Some(way) = known.way.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    let advice = advice.seen(known.evidence());
    if rivals >= known.cpus {
        return advice.unsure("others keep all of these CPUs busy: there is none that could be had alone; other cores, or another time, would be better");
    }
    if known.threads > known.cpus && way != Way::Spin {
        return advice.unsure("more threads than CPUs have more of the CPUs beside others, and lose more by meeting: which counts more cannot be told");
    }
    let cores = known.cpus - rivals;
    let threads = known.threads.min(cores);
    // With a CPU for each thread the launcher leaves waiting to the runtime: no worse than what it does now.
    let gain = known.gain(&known.now(way), &known.loads(threads, cores, 0, way));
    let setting = Setting::new().with(Knob::Cores, cores.to_string());
    let setting = setting.and_then(|one| one.with(Knob::Threads, threads.to_string())).unwrap_or_default();
    let words = format!(
        "take {cores} of the {} cores for this program alone: on the others it would wait for strangers",
        known.cpus
    );
    advice.weigh(setting, gain, words).but(
        "others may go away, or come to these cores too; work that does not divide well among threads gains more, work that needs every core's memory less",
    )
}

/// All cores shared by two programs, against half of them each.
fn pair(known: &Known<'_>, other: &Profile, machine: &Machine) -> Advice {
    let advice = Advice::about(Topic::Sharing, PAIRS);
    let mut missing = known.missing(true);
    let busy = |profile: &Profile| {
        let capacity = profile.wall.times(f64::from(profile.cpus.max(1)));
        (profile.user + profile.system).share_of(capacity)
    };
    if other.intervals.is_none() {
        missing.push("how often the companion's threads meet".to_owned());
    }
    let (Some(way), Some(idle), true) =
        (known.way, busy(other).map(|busy| 1.0 - busy.min(1.0)), missing.is_empty())
    else {
        return advice.lacking(missing);
    };
    let mut advice = advice.seen(known.evidence());
    advice.evidence.push(format!("{} leaves {:.0} % of its CPUs' time idle", other.program, 100.0 * idle));
    let mean = |profile: &Profile| profile.intervals.map_or(0.0, |intervals| intervals.mean.seconds());
    let fine = mean(known.profile).min(mean(other)) < COARSE;
    let spins = way == Way::Spin;
    if fine || spins {
        let why = if spins {
            "threads that spin take the other's turns"
        } else {
            "threads that meet often wait for the other's turns"
        };
        return advice.unsure(format!(
            "keep them apart, half of the cores each, as long as nothing else is known: {why}"
        ));
    }
    if machine.smt() > 1 {
        return advice.no_change("no difference is expected on cores with several hardware threads");
    }
    // What the other leaves idle comes on top of one's own half.
    let likely = 1.0 / (1.0 + idle);
    advice.gain = Some(Gain { low: likely / 1.33, likely, high: 1.05 });
    advice.unsure("sharing all cores may help as far as the companion leaves them idle, but how it would be hit is not known").but(
        "what the companion does from moment to moment is not in its profile",
    )
}
