//! Transparent huge pages.
//!
//! Rule: each page of 4 KiB costs a fault when it is touched first, a huge page one for 512. That is the kernel's time, so no more can be gained than the share
//! that the kernel had. What huge pages gain by fewer misses of address translation, or lose on several nodes, cannot be seen in one run: the
//! sign goes both ways (NAS CG with 64 threads on a large shared-memory machine ran 3.6 times as fast without them).

use super::{Advice, Gain, Topic};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::topology::Machine;

const RULE: &str = "a first touch of 4 KiB costs a fault of about half a microsecond, and huge pages need one for 512 of them (docs/advise.md, \"Huge pages\")";
/// CPU seconds of a fault, least, usual and most. Chosen: the kernel clears 4 KiB meanwhile; the kernel's own time bounds them.
const FAULT: [f64; 3] = [0.25e-6, 0.5e-6, 1e-6];
/// Programs that already have this much of their memory in huge pages gain little by more.
const HUGE_MOST: f64 = 0.5;
/// A program of this much memory has so much to gain: what fits the second level of translation (1,536 entries of 4 KiB) has nothing.
const REACH: u64 = 1536 * 4096;

pub(super) fn advise(profile: &Profile, machine: &Machine) -> Advice {
    let advice = Advice::about(Topic::HugePages, RULE);
    let mut missing = Vec::new();
    let mut lacks = |is: bool, what: &str| {
        if is {
            missing.push(what.to_owned());
        }
    };
    lacks(profile.huge_share.is_none(), "which part of its memory lay in huge pages");
    lacks(profile.faults.is_none(), "how many pages it touched first");
    lacks(profile.resident.is_none(), "how much memory it had");
    let (Some(huge), Some(faults), Some(resident)) = (profile.huge_share, profile.faults, profile.resident)
    else {
        return advice.lacking(missing);
    };
    let used = (profile.user + profile.system).seconds();
    if used <= 0.0 {
        return advice.lacking(vec!["how much CPU time it had".to_owned()]);
    }
    let advice = advice.seen(vec![
        format!("{} MiB of memory, {:.0} % of it in huge pages", resident >> 20, 100.0 * huge),
        format!("{faults} page faults"),
        format!("{:.1} % of its CPU time was the kernel's", 100.0 * profile.system.seconds() / used),
    ]);
    if huge > HUGE_MOST
        && machine.nodes().len() > 1
        && profile.remote_share.is_some_and(|remote| remote > 0.3)
    {
        let mut advice = advice;
        advice.gain = Some(Gain { low: 1.0 / 3.6, likely: 1.0, high: 1.3 });
        return advice.unsure("a huge page lies on one node, whoever touches its parts: thp=off can be worth a factor here, or cost one, and should be tried");
    }
    if huge > HUGE_MOST {
        return advice.no_change("most of its memory lies in huge pages already");
    }
    if resident < REACH {
        return advice.no_change("it has too little memory for pages to matter");
    }
    let most = profile.system.seconds() / used;
    // One fault in 512 stays.
    let saved = |cost: f64| (faults as f64 * cost / used).min(most) * (1.0 - huge) * (511.0 / 512.0);
    let [least, usual, all] = FAULT.map(saved);
    let gain = Gain { low: 1.0 - all, likely: 1.0 - usual, high: 1.0 - least };
    let setting = Setting::new().with(Knob::Thp, "on").unwrap_or_default();
    advice
        .weigh(setting, Some(gain), "let the allocator ask for huge pages: first touches of small ones take the kernel's time")
        .but("only memory of the C library's allocator is reached; what address translation costs is not in the profile")
}
