//! A policy that balances while the program runs.
//!
//! Rule: N threads on M CPUs have T = floor(N/M) or T + 1 to a queue, SQ = N mod M queues are slow and FQ = M - SQ fast; every thread has been on a fast one
//! after 2·ceil(SQ/FQ) exchanges at most, so moving threads pays if (T + 1)·S > 2·ceil(SQ/FQ)·B, for steps S and a period B. It gains
//! ceil(N/M)·M/N at most.

use super::known::Known;
use super::load::Way;
use super::{Advice, Topic};
use crate::setting::{Knob, Setting};

const RULE: &str = "moving threads pays for steps longer than 2*ceil(SQ/FQ)*B/(T+1), and gains ceil(N/M)*M/N at most (Load Balancing on Speed, PPoPP 2010; docs/advise.md, \"Balancing\")";
/// The period of the published balancer, with which it is asked whether moving can pay.
const PERIOD: f64 = 0.1;

pub(super) fn advise(known: &Known<'_>) -> Advice {
    let advice = Advice::about(Topic::Balance, RULE);
    if known.auto {
        return advice.no_change("a policy balances already");
    }
    if known.threads > 0 && known.threads <= known.cpus && known.rivals == Some(0) {
        return advice.no_change("every thread has a CPU: there is nothing to balance");
    }
    let missing = known.missing(true);
    let Some(way) = known.way.filter(|_| missing.is_empty()) else { return advice.lacking(missing) };
    let advice = advice.seen(known.evidence());
    if known.rivals != Some(0) {
        return advice.unsure("others compute on these CPUs: what moving threads among them brings depends on what they do, and goes both ways");
    }
    if known.threads.is_multiple_of(known.cpus) {
        return advice.no_change("queues are equally long");
    }
    let (least, slow) = (known.threads / known.cpus, known.threads % known.cpus);
    let exchanges = 2 * slow.div_ceil(known.cpus - slow);
    let worth = f64::from(exchanges) * PERIOD / f64::from(least + 1);
    let before = known.now(way);
    let step = before.first().map_or(0.0, |load| load.step);
    if step < worth {
        return advice.no_change(format!(
            "threads meet too often: moving them pays for steps from {:.0} ms on",
            1e3 * worth
        ));
    }
    let after: Vec<_> = before.iter().map(|load| super::load::Load { auto: true, ..*load }).collect();
    let gain = known.gain(&before, &after);
    let setting = Setting::new().with(Knob::Balance, "auto").unwrap_or_default();
    let why = if way == Way::Spin {
        "Linux takes spinning for work and leaves it so"
    } else {
        "some queues are longer"
    };
    advice.weigh(setting, gain, format!("let --balance take turns among them: {why}")).but(
        "Linux has moved threads by itself since 5.10, so only bound threads and large machines gain much; whether threads are bound may not be known",
    )
}
