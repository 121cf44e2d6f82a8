//! Rule for transparent huge pages.
//!
//! Rule: each page of 4 KiB costs a fault at its first touch, a huge page costs one fault for 512
//! of them. This is kernel time, so the gain is at most the kernel's share. The effect of huge
//! pages on misses of address translation, or on several nodes, cannot be seen in one run: the sign
//! goes both ways (NAS CG with 64 threads on a large shared-memory machine ran 3.6 times as fast
//! without them).

use super::{Advice, Gain, Topic};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const RULE: &str = "a first touch of 4 KiB costs a page fault of about half a microsecond, and huge pages need one fault per 512 of them (docs/advise.md, \"Huge pages\")";
/// CPU seconds of a fault: least, usual and most. Chosen: the kernel clears 4 KiB in a fault; the
/// kernel's own time bounds them.
const FAULT_COST_S: [f64; 3] = [0.25e-6, 0.5e-6, 1e-6];
/// Share of memory in huge pages above which more huge pages gain little.
const HUGE_SHARE_MAX: f64 = 0.5;
/// Bytes of memory below which huge pages gain nothing: the second level of address translation
/// (1,536 entries of 4 KiB) covers this much.
const TLB_REACH_BYTES: u64 = 1536 * 4096;

pub(super) fn advise(profile: &Profile, machine: &Machine) -> Advice {
    let advice = Advice::about(Topic::HugePages, RULE);
    let mut missing = Vec::new();
    let mut lacks = |is: bool, what: &str| {
        if is {
            missing.push(what.to_owned());
        }
    };
    lacks(profile.huge_share.is_none(), "the share of its memory in huge pages");
    lacks(profile.faults.is_none(), "the number of page faults");
    lacks(profile.resident.is_none(), "its memory size");
    let (Some(huge), Some(faults), Some(resident)) = (profile.huge_share, profile.faults, profile.resident)
    else {
        return advice.lacking(missing);
    };
    let used = (profile.user + profile.system).seconds();
    if used <= 0.0 {
        return advice.lacking(vec!["its CPU time".to_owned()]);
    }
    let advice = advice.seen(vec![
        format!("{} MiB of memory, {:.0} % of it in huge pages", resident >> 20, 100.0 * huge),
        format!("{faults} page faults"),
        format!("{:.1} % of its CPU time was in the kernel", 100.0 * profile.system.seconds() / used),
    ]);
    if huge > HUGE_SHARE_MAX
        && machine.nodes().len() > 1
        && profile.remote_share.is_some_and(|remote| remote > 0.3)
    {
        let mut advice = advice;
        advice.gain = Some(Gain { low: 1.0 / 3.6, likely: 1.0, high: 1.3 });
        return advice.unsure("a huge page lies on one node, whichever threads touch its parts: thp=off can make the program several times faster or slower; try it");
    }
    if huge > HUGE_SHARE_MAX {
        return advice.no_change("most of its memory is already in huge pages");
    }
    if resident < TLB_REACH_BYTES {
        return advice.no_change("it uses too little memory for the page size to matter");
    }
    let most = profile.system.seconds() / used;
    // One fault in 512 remains.
    let saved = |cost: f64| (faults as f64 * cost / used).min(most) * (1.0 - huge) * (511.0 / 512.0);
    let [least, usual, all] = FAULT_COST_S.map(saved);
    let gain = Gain { low: 1.0 - all, likely: 1.0 - usual, high: 1.0 - least };
    let setting = Setting::new().with(Knob::Thp, "on").unwrap_or_default();
    advice
        .weigh(setting, Some(gain), "let the allocator request huge pages: page faults of small pages take time in the kernel")
        .but("the memory comes from the C library's allocator; the cost of address translation is not in the profile")
}
