//! Turns: what a policy decides may be decided, by `core`'s own independent account of every thread.
//!
//! Bounds: those of [`trimtab_core::check::decisions`]: each turn concerns living threads that may be moved, each once, puts them where they may
//! be, leaves nobody on a lost CPU, takes both halves of an exchange, and looks again later.

use super::{Checker, Found, Invariant, Terms};
use trimtab_core::check::decisions::Account;
use trimtab_core::drive::Step;

/// The checker.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    account: Account,
}

impl Checker for Turns {
    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut Found) {
        let across = terms.policy.as_ref().is_some_and(|(_, settings)| settings.across_nodes);
        for fault in self.account.check_turn(&terms.machine, across, step.seen, step.turn) {
            found.add(Invariant::Turns, None, format!("{fault:?}"));
        }
    }
}
