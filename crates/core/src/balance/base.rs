//! What every policy that moves threads begins a turn with.
//!
//! Problem: who sits where, what each seat gives, who sleeps, and what is not seen at all must be known before anything is decided,
//! and each of these is told by the same observation. Idea: one place keeps them, and takes the observation in once, in the one order
//! that is right: who is there, then what their seats give.
//!
//! Properties: after [`Base::look`] all of it is of the same moment; threads that stay unseen are told once, and again when
//! they have become twice as many.

use super::doze::Dozes;
use super::seating::Seating;
use super::shares::Shares;
use super::{Finding, Settings};
use crate::observe::{Notice, Observation};
use crate::time::{Moment, Span};
use crate::topology::Machine;

/// Threads that are not seen for longer than this are told. A storm of births is over sooner.
const GAP_LONG: Span = Span::from_ms(1_000);

/// What is known at the beginning of a turn.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) settings: Settings,
    pub(super) seating: Seating,
    pub(super) shares: Shares,
    pub(super) dozes: Dozes,
    gap: Gap,
}

impl Base {
    /// For a machine; nobody is known yet.
    pub(super) fn new(machine: &Machine, settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            seating: Seating::new(machine),
            shares: Shares::default(),
            dozes: Dozes::default(),
            gap: Gap::default(),
        }
    }

    /// Takes an observation in; says what every policy must say of it.
    pub(super) fn look(&mut self, seen: &Observation<'_>) -> Vec<Finding> {
        self.seating.update(seen);
        self.shares.look(&self.seating, seen);
        self.gap.look(seen).into_iter().collect()
    }
}

/// Threads that are there and not seen.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    since: Option<Moment>,
    said: u32,
}

impl Gap {
    fn look(&mut self, seen: &Observation<'_>) -> Option<Finding> {
        let unread = |notice: &Notice| match notice {
            Notice::Unread(threads) => *threads,
            _ => 0,
        };
        let threads = seen.notices.iter().map(unread).fold(0, u32::saturating_add);
        if threads == 0 {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert(seen.at);
        if seen.at.since(since) < GAP_LONG || threads / 2 < self.said {
            return None;
        }
        self.said = threads;
        Some(Finding::Unwatched { threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::topology::parse_synthetic;

    #[test]
    fn threads_that_stay_unseen_are_told_once() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut base = Base::new(&machine, &Settings::default());
        let mut observer = Observer::new(machine.cpus());
        let mut look = |ms: u64, unread: &[u32]| {
            let notices = unread.iter().map(|threads| Notice::Unread(*threads)).collect();
            let at = Moment(ms * 1_000_000);
            observer.take(&Sample { at, notices, ..Sample::default() }, &[]);
            base.look(&observer.observation())
        };
        assert_eq!(look(0, &[500]), [], "a storm of births");
        assert_eq!(look(900, &[]), []);
        assert_eq!(look(1_000, &[4, 3]), []);
        assert_eq!(look(2_000, &[4, 3]), [Finding::Unwatched { threads: 7 }]);
        assert_eq!(look(3_000, &[9]), []);
        assert_eq!(look(4_000, &[14]), [Finding::Unwatched { threads: 14 }]);
        assert_eq!(look(5_000, &[]), []);
        assert_eq!(look(6_000, &[14]), []);
    }
}
