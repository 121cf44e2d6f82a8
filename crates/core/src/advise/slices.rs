//! The scheduler's slice.
//!
//! Rule: where threads spin in a program's own code no wait policy reaches them, and short turns would waste less. But a turn ends at a tick (4 ms with HZ = 250)
//! whatever the slice, unless the kernel has high-resolution ticks for it: so a change is never advised, only that it may be tried.

use super::known::Known;
use super::{Advice, Topic};

const RULE: &str = "threads that compute are put off at ticks of 4 ms here, also with slices of 1.4 ms: measured on Linux 6.18 (docs/advise.md, \"Slice\")";

pub(super) fn advise(known: &Known<'_>) -> Advice {
    let advice = Advice::about(Topic::Slice, RULE);
    let Some(rivals) = known.rivals else {
        return advice.lacking(vec!["what others do on these CPUs".to_owned()]);
    };
    if known.threads == 0 || known.cpus == 0 {
        return advice.lacking(vec!["how many threads worked, on how many CPUs".to_owned()]);
    }
    if known.threads.saturating_add(rivals) <= known.cpus {
        return advice.no_change("every thread has a CPU: turns do not end");
    }
    advice.seen(known.evidence()).unsure("a shorter slice could help threads that spin in the program's own code, if this kernel ends turns between ticks: not known")
}
