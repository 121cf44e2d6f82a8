//! Sampler for reports: a policy that samples and moves nothing.

use crate::balance::{Kind, Policy, Turn, Wanted};
use crate::observe::Observation;
use crate::sampling_budget::REPORT_SAMPLES;
use crate::time::{Moment, Span};

/// A policy that samples everything and decides nothing, as `float` does. Its intervals grow with
/// the time since the first sample: a run of any length is seen to its last twentieth, and a long
/// run costs next to nothing. A short run is seen as often as [`REPORT_SAMPLES`] permits.
#[derive(Clone, Debug, Default)]
pub struct ReportSampler {
    began: Option<Moment>,
    /// Number of samples. The cost of the first, which opens all files, does not count.
    samples: u64,
}

/// Shortest time between two samples.
const INTERVAL_MIN: Span = Span::from_ms(10);
/// Longest time between two samples.
const INTERVAL_MAX: Span = Span::from_ms(1_000);
/// Time since the first sample over the time to the next one.
const AGE_PER_INTERVAL: u64 = 20;

impl Policy for ReportSampler {
    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn first(&self) -> Wanted {
        Wanted::all()
    }

    fn decide(&mut self, seen: &Observation<'_>) -> Turn {
        let began = *self.began.get_or_insert(seen.at);
        self.samples += 1;
        // The cost is that of the sample before.
        let cost = seen.cost.filter(|_| self.samples > 2).unwrap_or(Span::ZERO);
        let by_age = Span(seen.at.since(began).0 / AGE_PER_INTERVAL);
        let pause = by_age.max(REPORT_SAMPLES.payoff(cost)).clamp(INTERVAL_MIN, INTERVAL_MAX);
        Turn { next: seen.at + pause, wanted: Wanted::all(), ..Turn::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Observer, Sample};
    use crate::set::CpuSet;

    #[test]
    fn samples_are_frequent_at_first_and_one_a_second_in_the_end() {
        let mut observer = Observer::new(CpuSet::new());
        let mut sampler = ReportSampler::default();
        let mut next = |at: Moment| {
            observer.take(&Sample { at, ..Sample::default() }, &[]);
            sampler.decide(&observer.observation()).next.since(at)
        };
        assert_eq!(next(Moment(0)), INTERVAL_MIN);
        assert_eq!(next(Moment(2_000_000_000)), Span::from_ms(100));
        assert_eq!(next(Moment(3_600_000_000_000)), INTERVAL_MAX);
    }

    #[test]
    fn dear_samples_are_taken_less_often() {
        let mut observer = Observer::new(CpuSet::new());
        let mut sampler = ReportSampler::default();
        let mut next = |at: Moment, us: u64| {
            let cost = Some(Span::from_us(us));
            observer.take(&Sample { at, cost, ..Sample::default() }, &[]);
            sampler.decide(&observer.observation()).next.since(at)
        };
        assert_eq!(next(Moment(0), 0), INTERVAL_MIN);
        assert_eq!(next(Moment(10_000_000), 20_000), INTERVAL_MIN, "the first sample is dear in any case");
        // Half a percent of a CPU.
        assert_eq!(next(Moment(20_000_000), 200), Span::from_ms(40));
        assert_eq!(next(Moment(60_000_000), 10), INTERVAL_MIN);
        assert_eq!(next(Moment(70_000_000), 50_000), INTERVAL_MAX);
    }
}
