//! Rule for the scheduler's time slice.
//!
//! Rule: a wait policy has no effect on threads that spin in a program's own code, and shorter
//! slices would waste less. But a slice ends at a tick (4 ms with HZ = 250) whatever its length,
//! unless the kernel has high-resolution ticks for it. So the rule never advises a change, only
//! that a shorter slice may be tried.

use super::known::ProgramFacts;
use super::{Advice, Topic};

const RULE: &str = "computing threads are preempted at ticks of 4 ms here, also with slices of 1.4 ms: measured on Linux 6.18 (docs/advise.md, \"Slice\")";

pub(super) fn advise(known: &ProgramFacts<'_>) -> Advice {
    let advice = Advice::about(Topic::Slice, RULE);
    let Some(rivals) = known.rivals else {
        return advice.lacking(vec!["the load of other programs on these CPUs".to_owned()]);
    };
    if known.threads == 0 || known.cpus == 0 {
        return advice.lacking(vec!["the number of working threads and of CPUs".to_owned()]);
    }
    if known.threads.saturating_add(rivals) <= known.cpus {
        return advice.no_change("every thread has a CPU, so slices have no effect");
    }
    advice.seen(known.evidence()).unsure("a shorter slice could help threads that spin in the program's own code, if this kernel preempts between ticks, which is unknown")
}
