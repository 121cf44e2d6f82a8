//! How threads and memory are laid out.
//!
//! Rule: with one memory node and one last-level cache there is nothing to choose. With several nodes, memory far away costs its stalls times the relative
//! distance; how much a program stalls follows from its cache misses. Which strategy is best is not predicted: published gains go both ways.

use super::{Advice, ERROR_LEAST, Gain, Situation, Topic};
use crate::ids::NodeId;
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const RULE: &str = "memory far away costs stalls times relative distance (docs/advise.md, \"Placement\")";
/// Cycles of stall by a miss that goes to the near node, of misses of which some are under way at once: 100 ns at 3 GHz, four at once. Chosen.
const STALL: f64 = 75.0;
/// Cycles of an instruction that misses nothing. Chosen.
const CYCLES: f64 = 0.7;
/// Less far memory than this is left alone.
const REMOTE_LEAST: f64 = 0.2;

pub(super) fn advise(profile: &Profile, machine: &Machine, situation: &Situation) -> Advice {
    let advice = Advice::about(Topic::Placement, RULE);
    let nodes = machine.nodes().len();
    if nodes < 2 && machine.llcs().len() < 2 {
        return advice.no_change("all cores share a cache and a memory node: it makes no difference");
    }
    if nodes < 2 {
        return advice.unsure("whether threads want one cache together or one each is not to be seen from one run: -s compact and -s scatter can be tried");
    }
    let mut missing = Vec::new();
    if profile.remote_share.is_none() {
        missing.push("which part of its memory was remote".to_owned());
    }
    if profile.misses_per_kilo.is_none() {
        missing.push("cache misses (trimtab counters says why)".to_owned());
    }
    let (Some(remote), Some(misses)) = (profile.remote_share, profile.misses_per_kilo) else {
        return advice.lacking(missing);
    };
    let advice = advice.seen(vec![
        format!("{:.0} % of its memory remote", 100.0 * remote),
        format!("{misses:.1} misses for 1,000 instructions"),
        format!("{} CPUs of {nodes} nodes", situation.cpus),
    ]);
    if remote < REMOTE_LEAST {
        return advice.no_change("its memory is near already");
    }
    let stall = misses / 1000.0 * STALL;
    let far = farthest(machine).map_or(1.0, |distance| distance - 1.0);
    let now = CYCLES + stall * (1.0 + remote * far);
    let ratio = (CYCLES + stall) / now;
    let gain = Gain::around(&[ratio, 1.0 - (1.0 - ratio) / 2.0], ERROR_LEAST);
    let setting = Setting::new().with(Knob::Memory, "local").unwrap_or_default();
    advice
        .weigh(setting, gain, "keep memory on the nodes of the threads that touch it first")
        .but("memory that one thread fills for all stays on that thread's node: then interleave is better, and tuning tells")
}

/// The largest distance between nodes over that of a node to itself.
fn farthest(machine: &Machine) -> Option<f64> {
    let nodes = || (0..u32::try_from(machine.nodes().len()).unwrap_or(u32::MAX)).map(NodeId);
    let far = nodes().flat_map(|one| nodes().map(move |other| machine.distance(one, other))).max()?;
    let near = nodes().next().map(|first| machine.distance(first, first))?;
    (near > 0).then(|| f64::from(far) / f64::from(near))
}
