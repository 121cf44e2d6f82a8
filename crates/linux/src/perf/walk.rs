//! Two test loads by which events are judged: a walk through memory that waits for each cache line,
//! and a loop that needs no memory.
//!
//! The walk follows links in an order that no prefetcher predicts, through more memory than private
//! caches hold. Each step waits for the one before. The order comes from a fixed seed, so it is the
//! same each time.

use std::hint::black_box;

/// Bytes to walk through, more than any private cache: 2 MB are the largest today, 4 MB were
/// announced. Chosen.
const WALK_BYTES: usize = 8 << 20;
/// Bytes of a cache line, on every processor here; Arm's are as long.
const LINE_BYTES: usize = 64;
const SLOTS_PER_LINE: usize = LINE_BYTES / size_of::<u32>();
/// Steps of a walk: some 2 ms if a line takes 100 ns.
const WALK_STEPS: u32 = 20_000;
/// Turns of the loop: roughly the same time.
const LOOP_TURNS: u32 = 2_000_000;

/// Memory to walk through.
#[derive(Debug)]
pub(super) struct Walk {
    links: Vec<u32>,
    at: u32,
}

impl Walk {
    /// Makes the links: some 5 ms.
    pub(super) fn new() -> Self {
        let lines = u32::try_from(WALK_BYTES / LINE_BYTES).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..lines).collect();
        // Sattolo's algorithm: one cycle through all of them.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for last in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = usize::try_from((state >> 33) % last as u64).unwrap_or(0);
            order.swap(last, other);
        }
        let mut links = vec![0; lines as usize * SLOTS_PER_LINE];
        for (from, to) in order.iter().enumerate() {
            links[from * SLOTS_PER_LINE] = *to;
        }
        Self { links, at: 0 }
    }

    /// Walks on for some milliseconds; returns the number of lines visited.
    pub(super) fn go(&mut self) -> u64 {
        let mut at = self.at;
        for _ in 0..WALK_STEPS {
            at = self.links[at as usize * SLOTS_PER_LINE];
        }
        self.at = black_box(at);
        u64::from(WALK_STEPS)
    }
}

/// Computes for some milliseconds without using memory.
pub(super) fn compute() {
    let mut value = black_box(1u64);
    for _ in 0..LOOP_TURNS {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_is_one_cycle_through_every_line() {
        let walk = Walk::new();
        let lines = WALK_BYTES / LINE_BYTES;
        let (mut at, mut seen) = (0, vec![false; lines]);
        for _ in 0..lines {
            assert!(!seen[at], "visited twice");
            seen[at] = true;
            at = walk.links[at * SLOTS_PER_LINE] as usize;
        }
        assert_eq!(at, 0);
    }
}
