//! Sampling of parallel regions: which regions of a thread are counted.
//!
//! Unit: nanoseconds. Problem: members of a region learn its number and its end from words that the
//! opening thread writes, and that costs some cache misses for each region. Regions of a few
//! microseconds would become a tenth slower. Idea: a region that is counted stands for those that
//! were skipped since the last counted one. How many are skipped follows from the length of the
//! regions, so that counting costs about a fixed share of the parallel time, and more only if
//! regions are shorter than a microsecond.
//!
//! Terms. The *weight* of a counted region is the number of regions that it stands for, itself
//! included.
//!
//! Properties: the first regions of a thread are all counted, and so are long ones. The weights of
//! all counted regions add up to the number of regions, but for those since the last counted one.
//! The number of skipped regions is random, so that a program whose regions repeat in a pattern is
//! seen with all its kinds of regions.

/// Cost of counting a region, summed over its threads. Measured: a team of two threads on two cores
/// of a Zen 4 machine, 0.3 us.
const REGION_COST_NS: u64 = 300;
/// Share of the parallel time that counting may cost, as a divisor. Chosen: too small to be
/// measured.
const COST_DIVISOR: u64 = 200;
/// Largest average weight. Chosen: with regions of a microsecond, some ten thousand are still
/// counted each second.
const WEIGHT_MAX: u64 = 64;
/// Number of regions that are all counted at first, and after each other barrier.
/// Chosen: together they cost less than a millisecond.
const COUNTED_AT_FIRST: u32 = 1_000;
/// A region counts as at most this many times the typical length. Chosen: a region that waited for
/// a preempted thread says nothing about the next ones.
const OUTLIER_FACTOR: u64 = 4;

/// Chooses the regions of one thread that are counted.
#[derive(Clone, Debug)]
pub struct RegionSampler {
    /// Regions that are skipped before the next counted one.
    to_skip: u32,
    /// Regions that were skipped since the last counted one.
    skipped: u32,
    /// Regions that are all counted from now on.
    all: u32,
    /// Smoothed length of counted regions, in nanoseconds; 0 before the first.
    typical_ns: u64,
    /// State of the pseudo-random numbers, not 0.
    random: u64,
}

impl RegionSampler {
    /// Creates the sampler of a thread. Samplers of one seed skip the same numbers of regions.
    pub const fn new(seed: u64) -> Self {
        Self { to_skip: 0, skipped: 0, all: COUNTED_AT_FIRST, typical_ns: 0, random: seed | 1 }
    }

    /// Returns the weight of the region that begins; `None` if it is not counted.
    pub fn open(&mut self) -> Option<u32> {
        if self.to_skip > 0 {
            self.to_skip -= 1;
            self.skipped += 1;
            return None;
        }
        self.to_skip = self.draw();
        Some(std::mem::take(&mut self.skipped) + 1)
    }

    /// Takes the length of a counted region.
    pub fn close(&mut self, length_ns: u64) {
        self.typical_ns = match self.typical_ns {
            0 => length_ns.max(1),
            typical => {
                let length = length_ns.min(typical.saturating_mul(OUTLIER_FACTOR));
                (typical - typical / 8 + length / 8).max(1)
            }
        };
    }

    /// Takes note of a barrier of this thread that is not the end of a region. Its interval begins
    /// with the region, or at the end of the last one, so the next regions are all counted.
    pub fn note_barrier(&mut self) {
        self.all = COUNTED_AT_FIRST;
        self.to_skip = 0;
    }

    /// Returns how many regions are skipped now: between none and twice the number that keeps the
    /// cost within its share.
    fn draw(&mut self) -> u32 {
        if self.all > 0 {
            self.all -= 1;
            return 0;
        }
        let average = (REGION_COST_NS * COST_DIVISOR).div_ceil(self.typical_ns.max(1)).clamp(1, WEIGHT_MAX);
        // Marsaglia's generator.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) % (2 * average - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs regions of these lengths. Returns the sums of weights and of weighted lengths, and the
    /// number of counted regions.
    fn count(sampler: &mut RegionSampler, lengths: impl Iterator<Item = u64>) -> (u64, u64, u64) {
        let (mut regions, mut time, mut counted) = (0, 0, 0);
        for length in lengths {
            if let Some(weight) = sampler.open() {
                regions += u64::from(weight);
                time += u64::from(weight) * length;
                counted += 1;
                sampler.close(length);
            }
        }
        (regions, time, counted)
    }

    proptest! {
        #[test]
        fn weights_add_up_to_the_number_of_regions_and_the_time_to_that_of_all(
            seed: u64,
            pattern in prop::collection::vec(500u64..20_000, 1..40),
        ) {
            let lengths = || pattern.iter().copied().cycle().take(200_000);
            let (regions, time, counted) = count(&mut RegionSampler::new(seed), lengths());
            prop_assert!((200_000 - 2 * WEIGHT_MAX..=200_000).contains(&regions), "{}", regions);
            let all: u64 = lengths().sum();
            prop_assert!((time as f64 / all as f64 - 1.0).abs() < 0.1, "{} {}", time, all);
            // What counting costs, of all that there is to count but the first regions.
            let cost = (counted - u64::from(COUNTED_AT_FIRST)) * REGION_COST_NS;
            let shortest = pattern.iter().min().unwrap();
            let share = if shortest * WEIGHT_MAX < REGION_COST_NS * COST_DIVISOR { 0.02 } else { 0.008 };
            prop_assert!((cost as f64) < share * all as f64, "{} {}", cost, all);
        }
    }

    #[test]
    fn the_first_regions_and_long_ones_are_all_counted() {
        let mut sampler = RegionSampler::new(7);
        assert_eq!(count(&mut sampler, (0..1_000).map(|_| 2_000)), (1_000, 2_000_000, 1_000));
        let mut sampler = RegionSampler::new(7);
        assert_eq!(count(&mut sampler, (0..50_000).map(|_| 70_000)).2, 50_000);
    }

    #[test]
    fn a_region_that_waited_for_a_preempted_thread_changes_little() {
        let mut sampler = RegionSampler::new(7);
        count(&mut sampler, (0..2_000).map(|_| 2_000));
        let (_, _, counted) =
            count(&mut sampler, (0..20_000).map(|at| if at % 1_000 == 0 { 4_000_000 } else { 2_000 }));
        assert!(counted < 1_500, "{counted}");
    }

    #[test]
    fn after_a_barrier_inside_a_region_all_are_counted_for_a_while() {
        let mut sampler = RegionSampler::new(7);
        count(&mut sampler, (0..5_000).map(|_| 2_000));
        sampler.note_barrier();
        assert_eq!(count(&mut sampler, (0..1_000).map(|_| 2_000)).2, 1_000);
        assert!(count(&mut sampler, (0..10_000).map(|_| 2_000)).2 < 1_000);
    }
}
