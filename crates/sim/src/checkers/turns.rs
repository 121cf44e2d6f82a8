//! Checker of turns: a policy's decisions are allowed, by `core`'s own independent account of every
//! thread.
//!
//! Bounds: those of [`trimtab_core::check::decisions`]. Each turn concerns living threads that may
//! be moved, each once; puts them on CPUs of their masks; leaves no thread on a lost CPU; contains
//! both halves of an exchange; and requests a later sample.

use super::{Checker, Invariant, Terms, ViolationLog};
use trimtab_core::check::decisions::Account;
use trimtab_core::drive::Step;

/// Checker of turns.
#[derive(Debug, Default)]
pub(crate) struct TurnsChecker {
    account: Account,
}

impl Checker for TurnsChecker {
    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut ViolationLog) {
        let across = terms.policy.as_ref().is_some_and(|(_, settings)| settings.across_nodes);
        for fault in self.account.check_turn(&terms.machine, across, step.seen, step.turn) {
            found.add(Invariant::Turns, None, format!("{fault:?}"));
        }
    }
}
