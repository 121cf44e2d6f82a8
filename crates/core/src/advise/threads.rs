//! Threads for each core.
//!
//! Rule: more threads than CPUs cost uneven queues and wasted turns ([`super::load`]), as many as CPUs cost neither. *More* threads are never advised: what
//! they gain (imbalance of the program's own that evens out) is at most the share of waiting, and published averages are within 2 % of nothing.

use super::known::Known;
use super::{Advice, Gain, Topic};
use crate::setting::{Knob, Setting};
use crate::words::plural;

const RULE: &str = "N threads on M CPUs take up to ceil(N/M)*M/N of the least, and who spins wastes turns of 4 ms (IPDPS 2010; docs/advise.md, \"Threads\")";
const NESTED: &str = "teams within teams multiply: NAS lu-mz.S takes 8.0 s with teams of 2 x 2 on 2 CPUs and 0.05 s with 2 x 1, measured (docs/advise.md, \"Threads\")";

pub(super) fn advise(known: &Known<'_>) -> Advice {
    let nested = known.situation.teams.len() > 1;
    let advice = Advice::about(Topic::Threads, if nested { NESTED } else { RULE });
    let missing = known.missing(true);
    let Some(way) = known.way.filter(|_| missing.is_empty()) else {
        if known.threads > 0 && known.cpus > 0 && known.threads <= known.cpus {
            return advice.no_change("every thread has a CPU");
        }
        return advice.lacking(missing);
    };
    let advice = advice.seen(known.evidence());
    let rivals = known.rivals.unwrap_or(0);
    if known.threads < known.cpus {
        return advice.unsure(format!(
            "{} worked on {} CPUs: whether more would help is not to be seen from one run",
            known.threads, known.cpus
        ));
    }
    if known.threads == known.cpus {
        let waiting = known.profile.waiting.unwrap_or(0.0);
        let mut advice = advice;
        let twice = known
            .gain(&known.now(way), &known.loads(known.threads.saturating_mul(2), known.cpus, rivals, way));
        advice.gain = twice.map(|gain| Gain { low: gain.low.min(1.0 - waiting / 2.0), ..gain });
        return advice
            .no_change("as many threads as CPUs; twice as many could gain at most half of what is waiting, and are not expected to");
    }
    let fewer = fewest(known);
    let gain = known.gain(&known.now(way), &known.loads(fewer, known.cpus, rivals, way));
    let setting = Setting::new().with(Knob::Threads, fewer.to_string()).unwrap_or_default();
    let words = format!(
        "start {} and not {}: the others only wait for CPUs, and are waited for",
        plural(fewer, "thread"),
        known.threads
    );
    // Beside strangers on every CPU more threads get more of the CPUs, which can be worth more than what meeting costs.
    if rivals > 0 && known.threads > known.cpus {
        let mut advice = advice;
        advice.gain = gain;
        return advice.unsure(format!(
            "{setting} costs no turns, but more threads have more of the CPUs beside others"
        ));
    }
    advice.weigh(setting, gain, words).but("it is taken that work divides evenly among any number of threads")
}

/// As many threads as CPUs; with nested teams, as many as fit.
fn fewest(known: &Known<'_>) -> u32 {
    if known.situation.teams.len() > 1 {
        fitting(&known.situation.teams, known.cpus).iter().product()
    } else {
        known.cpus
    }
}

/// Nested teams of at most those sizes, outermost first, that have no more threads together than there are CPUs: outer teams are kept before inner ones,
/// since each opening of an inner team costs.
pub fn fitting(teams: &[u32], cpus: u32) -> Vec<u32> {
    let mut left = cpus.max(1);
    let fits = teams.iter().map(|&size| {
        let size = size.clamp(1, left);
        left /= size;
        size
    });
    fits.collect()
}
