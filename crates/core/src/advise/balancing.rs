//! Rule for balancing policies: when moving threads while the program runs pays.
//!
//! Rule: N threads on M CPUs have T = floor(N/M) or T + 1 threads per queue; SQ = N mod M queues
//! are slow and FQ = M - SQ fast. Every thread has been on a fast queue after 2·ceil(SQ/FQ)
//! exchanges at most, so moving threads pays if (T + 1)·S > 2·ceil(SQ/FQ)·B, for steps S and a
//! period B. It gains ceil(N/M)·M/N at most.

use super::known::ProgramFacts;
use super::load::WaitMode;
use super::{Advice, Topic};
use crate::setting::{Knob, Setting};

const RULE: &str = "moving threads pays off for intervals longer than 2*ceil(SQ/FQ)*B/(T+1), and gains at most a factor of ceil(N/M)*M/N (Load Balancing on Speed, PPoPP 2010; docs/advise.md, \"Balancing\")";
/// Period of the published balancer in seconds, used in the question whether moving can pay.
const BALANCE_PERIOD_S: f64 = 0.1;

pub(super) fn advise(known: &ProgramFacts<'_>) -> Advice {
    let advice = Advice::about(Topic::Balance, RULE);
    if known.auto {
        return advice.no_change("a policy already balances the threads");
    }
    if known.threads > 0 && known.threads <= known.cpus && known.rivals == Some(0) {
        return advice.no_change("every thread has a CPU: there is nothing to balance");
    }
    let missing = known.missing(true);
    let Some(mode) = known.mode.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    let advice = advice.seen(known.evidence());
    if known.rivals != Some(0) {
        return advice.unsure("other programs compute on these CPUs: whether moving threads helps or harms depends on their load");
    }
    if known.threads.is_multiple_of(known.cpus) {
        return advice.no_change("all run queues have the same length");
    }
    let (least, slow) = (known.threads / known.cpus, known.threads % known.cpus);
    let exchanges = 2 * slow.div_ceil(known.cpus - slow);
    let worth = f64::from(exchanges) * BALANCE_PERIOD_S / f64::from(least + 1);
    let before = known.now(mode);
    let step = before.first().map_or(0.0, |load| load.step);
    if step < worth {
        return advice.no_change(format!(
            "threads synchronise too often: moving them pays off from intervals of {:.0} ms",
            1e3 * worth
        ));
    }
    let after: Vec<_> = before.iter().map(|load| super::load::PhaseLoad { auto: true, ..*load }).collect();
    let gain = known.gain(&before, &after);
    let setting = Setting::new().with(Knob::Balance, "auto").unwrap_or_default();
    let why = if mode == WaitMode::Spin {
        "Linux counts spinning as work and does not rebalance"
    } else {
        "some run queues are longer"
    };
    advice.weigh(setting, gain, format!("let --balance rotate the threads among the CPUs: {why}")).but(
        "since 5.10 Linux moves threads itself, so only bound threads and large machines gain much; the binding of the threads may be unknown",
    )
}
