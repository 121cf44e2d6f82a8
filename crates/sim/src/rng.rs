//! Pseudo-random numbers: one generator, forked by name.
//!
//! Problem: if one draw is added to the code, all later draws change, and a failing seed no longer
//! fails. Idea: each purpose has its own generator, made of the seed and the purpose's name. Draws
//! for other purposes have no effect on it.
//!
//! Source: xoshiro256++ of Blackman and Vigna (2018), filled by SplitMix64 of Steele, Lea and Flood
//! (2014).

/// Pseudo-random number generator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng {
    seed: u64,
    state: [u64; 4],
}

fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut fill = seed;
        Self { seed, state: std::array::from_fn(|_| mix(&mut fill)) }
    }

    /// Returns the generator for a purpose: the same for the same seed and name, independent of
    /// earlier draws.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        let mut seed = self.seed ^ hash;
        Self::new(mix(&mut seed))
    }

    /// Returns the generator for one of many objects of a kind: a thread, a run.
    #[must_use]
    pub fn nth(&self, number: u64) -> Self {
        let mut seed = self.seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Self::new(mix(&mut seed))
    }

    /// Draws 64 bits.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Draws evenly from `0..end`; returns 0 if the range is empty. The bias is below `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// Draws evenly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws from the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Draws from the normal distribution with mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_does_not_depend_on_numbers_drawn_before() {
        let mut used = Rng::new(7);
        used.draw();
        assert_eq!(used.fork("jitter"), Rng::new(7).fork("jitter"));
        assert_ne!(Rng::new(7).fork("jitter"), Rng::new(7).fork("ticks"));
        assert_ne!(Rng::new(7).nth(1), Rng::new(7).nth(2));
    }

    #[test]
    fn the_first_numbers_are_those_of_the_published_generator() {
        // The authors' reference code gives these numbers for the state 1, 2, 3, 4.
        let mut rng = Rng { seed: 0, state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| rng.draw()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn distributions_have_their_means() {
        let mut rng = Rng::new(1);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || rng.unit()) - 0.5).abs() < 0.02);
        assert!((mean(&mut || rng.exponential()) - 1.0).abs() < 0.04);
        assert!(mean(&mut || rng.normal()).abs() < 0.04);
        assert!((mean(&mut || rng.below(10) as f64) - 4.5).abs() < 0.1);
    }
}
