//! How threads wait.
//!
//! Rule: with a CPU for each thread, spinning costs nothing and sleeping costs waking, each time; where CPUs are short, spinning wastes turns of others
//! and of its own, yielding wastes none where a yield is one, and sleeping costs switches. A wait policy reaches runtimes, not loops in a program's own code.

use super::known::Known;
use super::load::Way;
use super::{Advice, Gain, Topic};
use crate::place::waiting::Yield;
use crate::setting::{Knob, Setting};

const RULE: &str = "who spins wastes a turn of 4 ms whenever it has to wait for somebody without a CPU; who sleeps pays waking (IPDPS 2010; docs/advise.md, \"Waiting\")";
const QUOTA: &str = "a quota counts CPU time, and spinning is CPU time (docs/advise.md, \"Waiting\")";

pub(super) fn advise(known: &Known<'_>) -> Advice {
    let advice = Advice::about(Topic::Wait, RULE);
    let missing = known.missing(true);
    let Some(way) = known.way.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    if known.profile.runtimes.is_empty() {
        return advice.lacking(vec![
            "which runtime its threads wait in: a wait policy reaches no loop of the program's own"
                .to_owned(),
        ]);
    }
    if known.threads < 2 {
        return advice.no_change("one thread waits for nobody");
    }
    let mut advice = advice.seen(known.evidence());
    if known.quota_is_short() && way == Way::Spin {
        return by_quota(known, advice);
    }
    if known.is_crowded() && known.rivals.is_some_and(|rivals| rivals >= known.cpus) {
        return advice.unsure("others keep every CPU busy: who does not spin may have to wait for the end of their turns, and who spins too");
    }
    if known.is_crowded() && known.rivals != Some(0) && way != Way::Spin {
        return advice
            .no_change("beside others it is spinning that costs most, and these threads do not spin");
    }
    if known.situation.bound == Some(true) && known.rivals != Some(0) {
        return advice.unsure("threads that are bound beside others: Linux moves the others, and what that brings depends on them");
    }
    let before = known.now(way);
    let gain = |to: Way| known.gain(&before, &known.now(to));
    let mut ways = vec![(Way::Sleep, "sleep"), (Way::Moment, "auto")];
    if !known.is_crowded() {
        // Every thread has a CPU: as the runtime does by itself, which is to spin, at first.
        ways = vec![(Way::Spin, "auto")];
    } else if known.situation.yields == Yield::Posix && known.rivals == Some(0) {
        ways.push((Way::Yield, "yield"));
    }
    let best = ways
        .into_iter()
        .filter(|(to, word)| *to != way && !(*word == "auto" && known.find_way(Some("auto")) == Some(way)))
        .filter_map(|(to, word)| Some((gain(to)?, word)))
        .min_by(|(one, _), (other, _)| one.high.total_cmp(&other.high));
    let Some((gain, word)) = best else {
        return advice.no_change("threads wait in the way that suits these CPUs");
    };
    if let Some(wake) = known.situation.wake.filter(|_| !known.is_crowded()) {
        advice.evidence.push(format!("waking takes {:.0} us here, measured", 1e6 * wake.seconds()));
    }
    if known.situation.yields == Yield::Unknown && known.is_crowded() {
        advice.evidence.push("what a yield does here is not known, so none is advised".to_owned());
    }
    let setting = Setting::new().with(Knob::Wait, word).unwrap_or_default();
    let words = if known.is_crowded() {
        format!("let threads wait by \"{word}\": CPUs are short, and what waits now keeps others from them")
    } else {
        format!("let threads wait by \"{word}\": each has a CPU, and waking costs more than spinning")
    };
    advice
        .weigh(setting, Some(gain), words)
        .but("steps are taken as even; a program that waits in loops of its own is not reached")
}

/// What spins is taken from what the control group grants.
fn by_quota(known: &Known<'_>, mut advice: Advice) -> Advice {
    advice.rule = QUOTA.to_owned();
    let Some(waiting) = known.profile.waiting else {
        return advice.lacking(vec!["which share of the time threads wait".to_owned()]);
    };
    let used = (known.profile.user + known.profile.system).share_of(known.profile.wall).unwrap_or(0.0);
    let granted = f64::from(known.situation.quota.unwrap_or(0)) / 1000.0;
    advice.evidence.push(format!("{used:.2} CPUs were used of {granted:.2} that are granted"));
    if used < 0.9 * granted {
        return advice.no_change("the quota was not used up: spinning takes nothing that is needed");
    }
    // All of the waiting is saved at best, half of it counts on.
    let gain = Gain { low: 1.0 - waiting, likely: 1.0 - 0.75 * waiting, high: 1.0 - 0.5 * waiting };
    let setting = Setting::new().with(Knob::Wait, "sleep").unwrap_or_default();
    advice
        .weigh(setting, Some(gain), "let threads sleep: spinning uses up the quota that work needs")
        .but("that half of the waiting is saved at least was chosen, not measured")
}
