//! Rule for the wait policy.
//!
//! Rule: with a CPU for each thread, spinning costs nothing and sleeping costs waking, each time.
//! With fewer CPUs than threads, spinning wastes slices of other programs and of its own; yielding
//! wastes none if a yield gives the CPU away; sleeping costs switches. A wait policy affects
//! runtimes, not loops in a program's own code.

use super::known::ProgramFacts;
use super::load::WaitMode;
use super::{Advice, Gain, Topic};
use crate::place::waiting::Yield;
use crate::setting::{Knob, Setting};

const RULE: &str = "a spinning thread wastes a time slice of 4 ms when it waits for a thread without a CPU; a sleeping thread pays the wake-up (IPDPS 2010; docs/advise.md, \"Waiting\")";
const QUOTA: &str = "a quota limits CPU time, and spinning uses CPU time (docs/advise.md, \"Waiting\")";

pub(super) fn advise(known: &ProgramFacts<'_>) -> Advice {
    let advice = Advice::about(Topic::Wait, RULE);
    let missing = known.missing(true);
    let Some(mode) = known.mode.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    if known.profile.runtimes.is_empty() {
        return advice.lacking(vec![
            "the runtime in which its threads wait (a wait policy does not affect the program's own loops)"
                .to_owned(),
        ]);
    }
    if known.threads < 2 {
        return advice.no_change("a single thread does not wait for others");
    }
    let mut advice = advice.seen(known.evidence());
    if known.quota_is_short() && mode == WaitMode::Spin {
        return by_quota(known, advice);
    }
    if known.is_crowded() && known.rivals.is_some_and(|rivals| rivals >= known.cpus) {
        return advice.unsure("other programs keep every CPU busy: both spinning and sleeping threads may wait for a competitor's time slice");
    }
    if known.is_crowded() && known.rivals != Some(0) && mode != WaitMode::Spin {
        return advice.no_change("next to other programs spinning costs most, and these threads do not spin");
    }
    if known.situation.bound == Some(true) && known.rivals != Some(0) {
        return advice.unsure(
            "the threads are bound next to other programs: Linux moves those, with an unpredictable effect",
        );
    }
    let before = known.now(mode);
    let gain = |to: WaitMode| known.gain(&before, &known.now(to));
    let mut modes = vec![(WaitMode::Sleep, "sleep"), (WaitMode::Moment, "auto")];
    if !known.is_crowded() {
        // Every thread has a CPU: the runtime's own behaviour, which is to spin at first.
        modes = vec![(WaitMode::Spin, "auto")];
    } else if known.situation.yields == Yield::Posix && known.rivals == Some(0) {
        modes.push((WaitMode::Yield, "yield"));
    }
    let best = modes
        .into_iter()
        .filter(|(to, word)| {
            *to != mode && !(*word == "auto" && known.wait_mode_under(Some("auto")) == Some(mode))
        })
        .filter_map(|(to, word)| Some((gain(to)?, word)))
        .min_by(|(one, _), (other, _)| one.high.total_cmp(&other.high));
    let Some((gain, word)) = best else {
        return advice.no_change("the current wait policy suits these CPUs");
    };
    if let Some(wake) = known.situation.wake.filter(|_| !known.is_crowded()) {
        advice.evidence.push(format!("waking a thread takes {:.0} us here (measured)", 1e6 * wake.seconds()));
    }
    if known.situation.yields == Yield::Unknown && known.is_crowded() {
        advice
            .evidence
            .push("the effect of sched_yield here is unknown, so yielding is not advised".to_owned());
    }
    let setting = Setting::new().with(Knob::Wait, word).unwrap_or_default();
    let words = if known.is_crowded() {
        format!(
            "use wait policy \"{word}\": there are fewer CPUs than threads, and waiting threads occupy CPUs that others need"
        )
    } else {
        format!("use wait policy \"{word}\": each thread has a CPU, and waking costs more than spinning")
    };
    advice
        .weigh(setting, Some(gain), words)
        .but("the work between barriers is even; a program that waits in its own loops is not affected")
}

/// Judges spinning under a quota: its CPU time is taken from the quota of the control group.
fn by_quota(known: &ProgramFacts<'_>, mut advice: Advice) -> Advice {
    advice.rule = QUOTA.to_owned();
    let Some(waiting) = known.profile.waiting else {
        return advice.lacking(vec!["the share of the time that threads wait".to_owned()]);
    };
    let used = (known.profile.user + known.profile.system).share_of(known.profile.wall).unwrap_or(0.0);
    let granted = f64::from(known.situation.quota.unwrap_or(0)) / 1000.0;
    advice.evidence.push(format!("{used:.2} CPUs were used of a quota of {granted:.2}"));
    if used < 0.9 * granted {
        return advice.no_change("the quota was not used up: spinning does not take needed CPU time");
    }
    // At best all waiting is avoided; half of it is assumed.
    let gain = Gain { low: 1.0 - waiting, likely: 1.0 - 0.75 * waiting, high: 1.0 - 0.5 * waiting };
    let setting = Setting::new().with(Knob::Wait, "sleep").unwrap_or_default();
    advice
        .weigh(setting, Some(gain), "let waiting threads sleep: spinning uses up the quota")
        .but("at least half of the waiting is saved (chosen, not measured)")
}
