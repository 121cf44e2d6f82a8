//! Checker of counters: counters and time never decrease. It covers counters of threads and CPUs,
//! of the run, and those that the host reports.
//!
//! Bounds: none. The host's values are checked only in runs whose readings are not falsified on
//! purpose, because a repeated old reading is older than the last one.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use trimtab_core::drive::Step;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::ThreadSample;

/// Checker of counters.
#[derive(Debug, Default)]
pub(crate) struct CountersChecker {
    told: std::collections::BTreeMap<ThreadId, ThreadSample>,
}

impl Checker for CountersChecker {
    fn inspect(&mut self, _terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        if now.at < before.at {
            found.add(Invariant::Counters, None, format!("it was {} before", before.at.0));
        }
        for (then, now) in now.since(before) {
            let grown = now.run >= then.run
                && now.wait >= then.wait
                && now.slices >= then.slices
                && now.sleeps >= then.sleeps
                && now.moves >= then.moves
                && now.asked >= then.asked
                // At a segment's end, at most the excess from rounding up to a nanosecond may be
                // subtracted.
                && now.done >= then.done - 1.0;
            if !grown {
                let text = format!("counts backwards: {then:?}, then {now:?}");
                found.add(Invariant::Counters, Some(ThreadKey::of(now)), text);
            }
        }
        let (then, now) = (&before.counters, &now.counters);
        let grown = now.events >= then.events
            && now.switches >= then.switches
            && now.moves >= then.moves
            && now.barriers >= then.barriers
            && now.wakes >= then.wakes
            && now.ran >= then.ran;
        if !grown {
            found.add(Invariant::Counters, None, format!("the run counts backwards: {then:?}, then {now:?}"));
        }
    }

    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut ViolationLog) {
        for gone in &step.sample.gone {
            self.told.remove(gone);
        }
        for read in &step.sample.threads {
            let before = self.told.insert(read.id, read.clone());
            let grown = before.is_none_or(|then| {
                read.run >= then.run
                    && read.wait >= then.wait
                    && read.slices >= then.slices
                    && (read.voluntary.is_none() || read.voluntary >= then.voluntary)
            });
            if !grown && !terms.faults {
                found.add(Invariant::Counters, None, format!("a counter of thread {} decreases", read.id));
            }
        }
    }
}
