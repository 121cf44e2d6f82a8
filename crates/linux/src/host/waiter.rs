//! Wait of a host: until its next sample is due, all roots have ended, or it is stopped.

use super::clock::Clock;
use super::discovery::{Discovery, RootId};
use super::error::LiveError;
use super::stop::Stopper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trimtab_core::drive::Awake;
use trimtab_core::time::{Moment, Span};

/// Time between two checks for the end of roots without a signal of the kernel. Chosen.
const BLIND_PERIOD: Span = Span::from_ms(100);
/// Number of intervals after its due time from which a sample counts as late.
const LATE_INTERVALS: u64 = 10;

/// Timer of the host. Records how late it woke.
#[derive(Debug)]
pub(super) struct Waiter {
    stopper: Stopper,
    latest: Span,
    late: u64,
}

impl Waiter {
    pub(super) fn new() -> Result<Self, LiveError> {
        let attempt = "making an event to be woken by";
        let stopper = Stopper::new().map_err(|errno| LiveError::System { attempt, source: errno.into() })?;
        Ok(Self { stopper, latest: Span::ZERO, late: 0 })
    }

    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the longest delay of a wake-up after its due time.
    pub(super) fn latest(&self) -> Span {
        self.latest
    }

    /// Returns the number of waits that ended more than [`LATE_INTERVALS`] intervals late.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Sleeps until a moment, or until all roots have ended, or until the host is stopped.
    pub(super) fn wait_until(
        &mut self,
        until: Moment,
        clock: &Clock,
        discovery: &mut Discovery,
    ) -> Result<Awake, LiveError> {
        let begin = clock.now();
        loop {
            if discovery.is_over(clock.now()) {
                return Ok(Awake::Over);
            }
            let left = until.since(clock.now());
            let nap = if discovery.is_blind() { left.min(BLIND_PERIOD) } else { left };
            if self.nap(nap, discovery)? {
                return Ok(Awake::Over);
            }
            let now = clock.now();
            if now >= until {
                if discovery.is_over(now) {
                    return Ok(Awake::Over);
                }
                let late = now.since(until);
                self.latest = self.latest.max(late);
                let interval = until.since(begin);
                let too_late = late.0 > interval.0.saturating_mul(LATE_INTERVALS);
                self.late += u64::from(interval > Span::ZERO && too_late);
                return Ok(Awake::Due);
            }
        }
    }

    /// Sleeps for this time, or until a root ends. Returns whether the host was stopped.
    fn nap(&self, nap: Span, discovery: &mut Discovery) -> Result<bool, LiveError> {
        let ends = discovery.ends();
        let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(&self.stopper, PollFlags::IN)];
        waited.extend(ends.iter().map(|(_, end)| PollFd::from_borrowed_fd(*end, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: i64::try_from(nap.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nap.0 % 1_000_000_000).unwrap_or(0),
        };
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(LiveError::System { attempt: "waiting", source: errno.into() }),
        }
        let ready: Vec<bool> = waited.iter().map(|waited| !waited.revents().is_empty()).collect();
        drop(waited);
        let ended = ends.iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
        let ended: Vec<RootId> = ended.map(|((id, _), _)| *id).collect();
        for id in ended {
            discovery.root_ended(id);
        }
        Ok(ready[0])
    }
}
