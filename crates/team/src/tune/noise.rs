//! Whether others used the machine while something was measured.
//!
//! **Idea.** What the machine's processors did, less what the ranks' threads did, is what others did. The kernel counts the machine's time in
//! ticks of up to 10 ms, so shares are told over `WINDOW` at least, which reaches back before a short measurement.

use super::Overseer;
use crate::Result;
use crate::rank::Rank;
use crate::reduce::Operator;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// More of the machine than this, used by others, makes what was measured noisy.
pub const NOISY: f64 = 0.05;
/// Seconds over which a share is told.
const WINDOW: f64 = 0.2;

/// The machine and the team at one moment, in seconds.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: f64,
    /// CPU time of the machine; `None` where nobody says.
    busy: Option<f64>,
    /// CPU time of all ranks.
    own: f64,
}

/// See the module.
pub(super) struct Noise<'a> {
    overseer: &'a dyn Overseer,
    began: Instant,
    moments: VecDeque<Moment>,
}

impl<'a> Noise<'a> {
    pub(super) fn new(rank: &Rank, overseer: &'a dyn Overseer) -> Result<Self> {
        let mut noise = Self { overseer, began: Instant::now(), moments: VecDeque::new() };
        noise.note(rank)?;
        Ok(noise)
    }

    /// Looks at the clocks. All ranks do so together.
    pub(super) fn note(&mut self, rank: &Rank) -> Result<()> {
        let (own, mut all) = ([thread_nanoseconds()], [0]);
        rank.mine().allreduce(&own, &mut all, Operator::Sum)?;
        let at = self.began.elapsed().as_secs_f64();
        self.moments.push_back(Moment { at, busy: self.overseer.busy(), own: all[0] as f64 / 1e9 });
        while self.moments.len() > 64 {
            self.moments.pop_front();
        }
        Ok(())
    }

    /// The share of the machine that others used since so many moments ago, or longer; the greatest that any rank says, `None` where none
    /// does. And whether more than a time has passed since the beginning, by any rank's clock.
    pub(super) fn share(&self, rank: &Rank, since: usize, time: Duration) -> Result<(Option<f64>, bool)> {
        let own = foreign(&self.moments, since, self.overseer.processors());
        // In millionths, and one more where it is known.
        let own = [own.map_or(0, |share| (share * 1e6) as u64 + 1), u64::from(self.began.elapsed() > time)];
        let mut all = [0_u64; 2];
        rank.mine().allreduce(&own, &mut all, Operator::Max)?;
        Ok((all[0].checked_sub(1).map(|share| share as f64 / 1e6), all[1] != 0))
    }
}

/// See [`Noise::share`].
fn foreign(moments: &VecDeque<Moment>, since: usize, processors: f64) -> Option<f64> {
    let last = moments.back()?;
    let mut from = moments.len().saturating_sub(1 + since);
    while from > 0 && last.at - moments[from].at < WINDOW {
        from -= 1;
    }
    let first = moments[from];
    let seconds = last.at - first.at;
    if seconds < WINDOW / 4.0 {
        return None;
    }
    let others = last.busy? - first.busy? - (last.own - first.own);
    Some((others / (seconds * processors.max(1.0))).clamp(0.0, 1.0))
}

/// CPU time of this thread.
fn thread_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_over_as_long_as_it_takes() {
        let moment = |at: f64, busy: f64, own: f64| Moment { at, busy: Some(busy), own };
        // Two processors: both ours until 1.0; then one of them another's.
        let moments: VecDeque<Moment> = (0..=20)
            .map(|step| f64::from(step) * 0.1)
            .map(|at| moment(at, 2.0 * at, if at > 1.0 { 2.0 + (at - 1.0) } else { 2.0 * at }))
            .collect();
        let until = |count: usize| moments.iter().copied().take(count).collect::<VecDeque<_>>();
        assert!(foreign(&until(11), 1, 2.0).unwrap().abs() < 1e-9);
        assert!((foreign(&until(21), 1, 2.0).unwrap() - 0.5).abs() < 1e-9);
        assert!((foreign(&until(13), 2, 2.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(foreign(&until(1), 1, 2.0), None);
        let blind: VecDeque<Moment> = moments.iter().map(|moment| Moment { busy: None, ..*moment }).collect();
        assert_eq!(foreign(&blind, 1, 2.0), None);
    }
}
