//! Noise: the share of the machine that other programs used during a measurement.
//!
//! **Idea.** The CPU time of the machine, less that of the ranks' threads, is the CPU time of
//! others. The kernel counts the machine's time in ticks of up to 10 ms, so shares are computed
//! over `WINDOW_SECONDS` at least, which reaches back before a short measurement.

use super::Overseer;
use crate::Result;
use crate::rank::Rank;
use crate::reduce::Operator;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Share of the machine used by others above which a measurement is noisy.
pub const NOISY: f64 = 0.05;
/// Seconds over which a share is computed.
const WINDOW_SECONDS: f64 = 0.2;
/// Longest reading that counts as one moment, in seconds: an error of 1 % of the window.
const READING_SECONDS_MAX: f64 = WINDOW_SECONDS / 100.0;
/// Most readings of a moment; the last one counts in any case.
const READINGS_MAX: usize = 8;

/// The machine and the team at one moment, in seconds.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: f64,
    /// CPU time of the machine; `None` if it is not known.
    busy: Option<f64>,
    /// CPU time of all ranks.
    own: f64,
}

/// Recorder of the machine's and the team's CPU times.
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

    /// Reads the clocks. All ranks do so together.
    pub(super) fn note(&mut self, rank: &Rank) -> Result<()> {
        let (own, mut all) = ([thread_nanoseconds()], [0]);
        rank.mine().allreduce(&own, &mut all, Operator::Sum)?;
        let (at, busy) = self.machine();
        self.moments.push_back(Moment { at, busy, own: all[0] as f64 / 1e9 });
        while self.moments.len() > 64 {
            self.moments.pop_front();
        }
        Ok(())
    }

    /// Reads the CPU time of the machine and the time of this reading. A thread that loses its CPU
    /// in between would pair values of two moments, so such a reading is repeated.
    fn machine(&self) -> (f64, Option<f64>) {
        let mut reading = (0.0, None);
        for _ in 0..READINGS_MAX {
            let before = self.began.elapsed().as_secs_f64();
            let busy = self.overseer.busy();
            let after = self.began.elapsed().as_secs_f64();
            reading = (f64::midpoint(before, after), busy);
            if after - before <= READING_SECONDS_MAX {
                break;
            }
        }
        reading
    }

    /// Returns the share of the machine that others used since `since` moments ago, or longer: the
    /// greatest value of any rank, `None` if no rank has one. Also returns whether more than `time`
    /// has passed since the beginning, by any rank's clock.
    pub(super) fn share(&self, rank: &Rank, since: usize, time: Duration) -> Result<(Option<f64>, bool)> {
        let own = foreign(&self.moments, since, self.overseer.processors());
        // In millionths, plus one if it is known.
        let own = [own.map_or(0, |share| (share * 1e6) as u64 + 1), u64::from(self.began.elapsed() > time)];
        let mut all = [0_u64; 2];
        rank.mine().allreduce(&own, &mut all, Operator::Max)?;
        Ok((all[0].checked_sub(1).map(|share| share as f64 / 1e6), all[1] != 0))
    }
}

/// Returns the share of others: see [`Noise::share`].
fn foreign(moments: &VecDeque<Moment>, since: usize, processors: f64) -> Option<f64> {
    let last = moments.back()?;
    let mut from = moments.len().saturating_sub(1 + since);
    while from > 0 && last.at - moments[from].at < WINDOW_SECONDS {
        from -= 1;
    }
    let first = moments[from];
    let seconds = last.at - first.at;
    if seconds < WINDOW_SECONDS / 4.0 {
        return None;
    }
    let others = last.busy? - first.busy? - (last.own - first.own);
    Some((others / (seconds * processors.max(1.0))).clamp(0.0, 1.0))
}

/// Returns the CPU time of this thread.
fn thread_nanoseconds() -> u64 {
    crate::meter::nanoseconds_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_others_is_computed_over_a_sufficient_time() {
        let moment = |at: f64, busy: f64, own: f64| Moment { at, busy: Some(busy), own };
        // Two CPUs: the team uses both until 1.0, then another program uses one of them.
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
