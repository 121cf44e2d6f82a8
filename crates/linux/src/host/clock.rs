//! Clock of the host: nanoseconds since the watch began, and detection of suspends.
//!
//! `CLOCK_MONOTONIC` is never set and stops while the machine is suspended; `CLOCK_BOOTTIME` goes
//! on. Growth of the difference between the two is time that the machine was suspended. A sample
//! that comes late for another reason (the machine is loaded, its hypervisor gave it no time) is
//! not a jump: the time passed for all threads, and rates over it are correct.

use crate::sys::clock;
use std::time::Duration;
use trimtab_core::time::{Moment, Span};

/// Smallest jump that is reported. A smaller difference comes from reading the clocks one after the
/// other, or from a suspend too short to distort a rate. Chosen.
const JUMP_MIN: Span = Span::from_ms(10);

/// Clock of the time since its creation.
#[derive(Debug)]
pub(super) struct Clock {
    begin: u64,
    asleep: u64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let (begin, boot) = (monotonic(), nanoseconds(clock::since_boot()));
        Self { begin, asleep: boot.saturating_sub(begin) }
    }

    /// Returns the CPU time of the calling thread.
    pub(super) fn worked() -> Span {
        Span(nanoseconds(clock::of_this_thread()))
    }

    pub(super) fn now(&self) -> Moment {
        Moment(monotonic().saturating_sub(self.begin))
    }

    /// Returns the time for which the machine was suspended since the last call; `None` if it was
    /// not.
    pub(super) fn slept(&mut self) -> Option<Span> {
        let awake = monotonic();
        let boot = nanoseconds(clock::since_boot());
        self.compare(awake, boot)
    }

    fn compare(&mut self, awake: u64, boot: u64) -> Option<Span> {
        let asleep = boot.saturating_sub(awake);
        let more = Span(asleep.saturating_sub(self.asleep));
        // The smallest difference is the most accurate: the second clock is read later than the
        // first.
        self.asleep = if more >= JUMP_MIN { asleep } else { self.asleep.min(asleep) };
        (more >= JUMP_MIN).then_some(more)
    }
}

fn monotonic() -> u64 {
    nanoseconds(clock::monotonic())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_machine_is_noticed_once_and_a_late_sample_is_not() {
        let second = 1_000_000_000;
        let mut clock = Clock { begin: 0, asleep: 5 * second };
        assert_eq!(clock.compare(second, 6 * second), None);
        assert_eq!(clock.compare(100 * second, 105 * second + 1_000), None, "late, for both clocks");
        assert_eq!(clock.compare(101 * second, 136 * second), Some(Span(30 * second)));
        assert_eq!(clock.compare(102 * second, 137 * second), None, "said once");
        assert_eq!(
            clock.compare(103 * second, 137 * second),
            None,
            "a clock that goes backwards says nothing"
        );
        assert!(Clock::new().now() < Moment(60 * second));
    }
}
