//! Rule for the number of threads per core.
//!
//! Rule: more threads than CPUs cost uneven queues and wasted slices ([`super::load`]), as many as
//! CPUs cost neither. *More* threads are never advised: their gain (the program's own imbalance
//! evens out) is at most the share of waiting, and published averages are within 2 % of nothing.

use super::known::ProgramFacts;
use super::{Advice, Gain, Topic};
use crate::setting::{Knob, Setting};
use crate::words::plural;

const RULE: &str = "N threads on M CPUs take up to ceil(N/M)*M/N times the minimum, and spinning threads waste time slices of 4 ms (IPDPS 2010; docs/advise.md, \"Threads\")";
const NESTED: &str = "nested teams multiply: NAS lu-mz.S takes 8.0 s with teams of 2 x 2 on 2 CPUs and 0.05 s with 2 x 1, measured (docs/advise.md, \"Threads\")";

pub(super) fn advise(known: &ProgramFacts<'_>) -> Advice {
    let nested = known.situation.teams.len() > 1;
    let advice = Advice::about(Topic::Threads, if nested { NESTED } else { RULE });
    let missing = known.missing(true);
    let Some(mode) = known.mode.filter(|_| missing.is_empty()) else {
        if known.threads > 0 && known.cpus > 0 && known.threads <= known.cpus {
            return advice.no_change("every thread has a CPU");
        }
        return advice.lacking(missing);
    };
    let advice = advice.seen(known.evidence());
    let rivals = known.rivals.unwrap_or(0);
    if known.threads < known.cpus {
        return advice.unsure(format!(
            "{} worked on {} CPUs: one run does not show whether more would help",
            known.threads, known.cpus
        ));
    }
    if known.threads == known.cpus {
        let waiting = known.profile.waiting.unwrap_or(0.0);
        let mut advice = advice;
        let twice = known
            .gain(&known.now(mode), &known.loads(known.threads.saturating_mul(2), known.cpus, rivals, mode));
        advice.gain = twice.map(|gain| Gain { low: gain.low.min(1.0 - waiting / 2.0), ..gain });
        return advice
            .no_change("there are as many threads as CPUs; twice as many could gain at most half of the waiting time, and are not expected to");
    }
    let fewer = fewest(known);
    let gain = known.gain(&known.now(mode), &known.loads(fewer, known.cpus, rivals, mode));
    let setting = Setting::new().with(Knob::Threads, fewer.to_string()).unwrap_or_default();
    let words = format!(
        "use {} instead of {}: the extra threads only compete for CPUs and delay every barrier",
        plural(fewer, "thread"),
        known.threads
    );
    // Beside foreign threads on every CPU, more threads get more of the CPUs, which can be worth
    // more than the cost of barriers.
    if rivals > 0 && known.threads > known.cpus {
        let mut advice = advice;
        advice.gain = gain;
        return advice.unsure(format!(
            "{setting} wastes no time slices, but more threads get a larger share of the CPUs next to other programs"
        ));
    }
    advice.weigh(setting, gain, words).but("the work divides evenly for any thread count")
}

/// Returns the number of CPUs; with nested teams, the number of threads that fit.
fn fewest(known: &ProgramFacts<'_>) -> u32 {
    if known.situation.teams.len() > 1 {
        fitting(&known.situation.teams, known.cpus).iter().product()
    } else {
        known.cpus
    }
}

/// Returns other values than this one of `OMP_NUM_THREADS` that fit the CPUs: counts, or for nested
/// teams shapes with outer or inner teams first.
///
/// # Examples
/// ```
/// use trimtab_core::advise::other_counts;
///
/// assert_eq!(other_counts("8", 4), ["4", "2", "1"]);
/// assert_eq!(other_counts("4,4", 4), ["4,1", "1,4", "2,2", "1,1"]);
/// assert!(other_counts("all", 4).is_empty());
/// ```
pub fn other_counts(value: &str, cpus: u32) -> Vec<String> {
    let sizes: Option<Vec<u32>> = value.split(',').map(|size| size.trim().parse().ok()).collect();
    let Some(sizes) = sizes.filter(|sizes| sizes.iter().all(|&size| size > 0)) else { return Vec::new() };
    let cpus = cpus.max(1);
    let half = cpus.div_ceil(2);
    let shapes = if let [_] = sizes[..] {
        vec![vec![cpus], vec![half], vec![1]]
    } else {
        let turned: Vec<u32> = sizes.iter().rev().copied().collect();
        let inner = fitting(&turned, cpus).into_iter().rev().collect();
        let halves = fitting(&sizes.iter().map(|&size| size.min(half)).collect::<Vec<_>>(), cpus);
        vec![fitting(&sizes, cpus), inner, halves, vec![1; sizes.len()]]
    };
    let mut all: Vec<String> = Vec::new();
    for shape in shapes.iter().filter(|shape| **shape != sizes) {
        let text = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Returns nested teams of at most those sizes, outermost first, that together have at most as many
/// threads as there are CPUs. Outer teams are kept before inner ones, since each opening of an
/// inner team costs time.
pub fn fitting(teams: &[u32], cpus: u32) -> Vec<u32> {
    let mut left = cpus.max(1);
    let fits = teams.iter().map(|&size| {
        let size = size.clamp(1, left);
        left /= size;
        size
    });
    fits.collect()
}
