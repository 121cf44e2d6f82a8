//! Rule for the layout of threads and memory.
//!
//! Rule: with one memory node and one last-level cache there is no choice. With several nodes, far
//! memory costs its stalls times the relative distance; the stalls follow from the program's cache
//! misses. The best strategy is not predicted: published gains go both ways.

use super::{Advice, ERROR_LEAST, Gain, Situation, Topic};
use crate::ids::NodeId;
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const RULE: &str =
    "remote memory costs stalls in proportion to the relative distance (docs/advise.md, \"Placement\")";
/// Stall cycles per miss to the near node, if some misses overlap: 100 ns at 3 GHz, four at once.
/// Chosen.
const MISS_STALL_CYCLES: f64 = 75.0;
/// Cycles per instruction without misses. Chosen.
const BASE_CYCLES_PER_INSTRUCTION: f64 = 0.7;
/// Share of far memory below which no change is advised.
const REMOTE_SHARE_MIN: f64 = 0.2;

pub(super) fn advise(profile: &Profile, machine: &Machine, situation: &Situation) -> Advice {
    let advice = Advice::about(Topic::Placement, RULE);
    let nodes = machine.nodes().len();
    if nodes < 2 && machine.llcs().len() < 2 {
        return advice.no_change("all cores share a cache and a memory node: placement makes no difference");
    }
    if nodes < 2 {
        return advice.unsure("one run does not show whether threads run better with a shared or a separate cache: try -s compact and -s scatter");
    }
    let mut missing = Vec::new();
    if profile.remote_share.is_none() {
        missing.push("the remote share of its memory".to_owned());
    }
    if profile.misses_per_kilo.is_none() {
        missing.push("cache misses (trimtab counters gives the reason)".to_owned());
    }
    let (Some(remote), Some(misses)) = (profile.remote_share, profile.misses_per_kilo) else {
        return advice.lacking(missing);
    };
    let advice = advice.seen(vec![
        format!("{:.0} % of its memory is remote", 100.0 * remote),
        format!("{misses:.1} LLC misses per 1,000 instructions"),
        format!("{} CPUs on {nodes} nodes", situation.cpus),
    ]);
    if remote < REMOTE_SHARE_MIN {
        return advice.no_change("its memory is already local");
    }
    let stall = misses / 1000.0 * MISS_STALL_CYCLES;
    let far = farthest(machine).map_or(1.0, |distance| distance - 1.0);
    let now = BASE_CYCLES_PER_INSTRUCTION + stall * (1.0 + remote * far);
    let ratio = (BASE_CYCLES_PER_INSTRUCTION + stall) / now;
    let gain = Gain::around(&[ratio, 1.0 - (1.0 - ratio) / 2.0], ERROR_LEAST);
    let setting = Setting::new().with(Knob::Memory, "local").unwrap_or_default();
    advice
        .weigh(setting, gain, "keep memory on the nodes of the threads that touch it first")
        .but("threads touch their own memory first; if one thread fills it for all, interleave is better (tuning shows it)")
}

/// Returns the largest distance between nodes over that of a node to itself.
fn farthest(machine: &Machine) -> Option<f64> {
    let nodes = || (0..u32::try_from(machine.nodes().len()).unwrap_or(u32::MAX)).map(NodeId);
    let far = nodes().flat_map(|one| nodes().map(move |other| machine.distance(one, other))).max()?;
    let near = nodes().next().map(|first| machine.distance(first, first))?;
    (near > 0).then(|| f64::from(far) / f64::from(near))
}
