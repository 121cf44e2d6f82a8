//! What looking costs and how well it sees: the CPU time that whoever watches threads takes from the machine, and the noise of counters.
//!
//! Unit: nanoseconds of CPU time a look, `each + thread x n + pair x n^2` for `n` threads that are read. Problem: a policy that looks a hundred
//! times a second is paid for by the program, and a rule that fits four threads need not fit sixteen. Idea: a look has a price, and somebody pays
//! it. A *daemon* is a thread of its own: it takes a CPU that rests, or else the time of whoever runs on one, CPU by CPU in turn. What looks
//! *inside* the scheduler is paid by every thread that is looked at and runs, each the whole price: that is a tick in a hypervisor.
//!
//! Properties: free unless said otherwise; what was paid is told to the policy with the next sample, as a live host does, if a daemon pays.
//!
//! Sources: [`BARE`] and [`TRAPPED`] from the measurements of docs/performance.md and estimates for hardware without a hypervisor; [`TICK`]
//! is calibrated on one of four published overheads.

use trimtab_core::time::Span;

/// The price of a look, and its noise.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Looking {
    /// Of any look.
    pub each: Span,
    /// For each thread that is read.
    pub thread: Span,
    /// For each pair of them.
    pub pair: Span,
    /// Whether each thread pays the whole of it, and not a daemon.
    pub inside: bool,
    /// By how much the busy cycles of a look are off: relative standard deviation of what was counted since the look before.
    pub noise: f64,
}

/// By how much counts of ten milliseconds are off on a quiet machine. Estimated: some ten thousand misses scatter by a per cent of
/// themselves; interrupts, refreshes of memory, prefetchers and page walks, none of which the model has, add as much again.
pub const NOISE: f64 = 0.03;

/// A daemon on hardware whose counters can be read: about 3 us for a thread that runs (a system call, an interrupt to its CPU, two counters;
/// estimated), and 10 us to wake up, decide and sleep again (estimated from looks without counters).
pub const BARE: Looking = Looking {
    each: Span::from_us(10),
    thread: Span::from_us(3),
    pair: Span::ZERO,
    inside: false,
    noise: NOISE,
};

/// A daemon in a guest whose counters are emulated: 20 us for two counters of a thread that runs, as measured there.
pub const TRAPPED: Looking = Looking {
    each: Span::from_us(10),
    thread: Span::from_us(20),
    pair: Span::ZERO,
    inside: false,
    noise: NOISE,
};

/// The published rule inside Xen: each virtual CPU adds up the penalties of all at each tick, under one lock. It holds the lock for `n` times
/// `h` and waits for half of the others on average, so it pays `h n (n + 1) / 2`. Calibrated: `h` of 17.8 us makes the 6.4 % of a tick of 10 ms
/// that were published for eight threads.
pub const TICK: Looking =
    Looking { each: Span::ZERO, thread: Span(8_900), pair: Span(8_900), inside: true, noise: NOISE };

impl Looking {
    /// Whether it costs anything.
    pub fn is_free(&self) -> bool {
        self.each.0 + self.thread.0 + self.pair.0 == 0
    }

    /// What a look at so many threads costs.
    pub fn cost(&self, threads: usize) -> Span {
        let count = threads as u64;
        let pairs = count.saturating_mul(count);
        let times = |price: Span, count: u64| price.0.saturating_mul(count);
        Span(self.each.0.saturating_add(times(self.thread, count)).saturating_add(times(self.pair, pairs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_inside_xen_is_the_one_published_for_eight_and_less_for_fewer() {
        let part = |threads| TICK.cost(threads).seconds() / 0.01;
        assert!((part(8) - 0.064).abs() < 1e-3, "{}", part(8));
        assert!(part(2) < 0.02 && part(4) < 0.02, "{} {}", part(2), part(4));
        assert!(part(16) > 0.2, "{}", part(16));
        assert!(Looking::default().is_free() && !BARE.is_free());
        assert_eq!(BARE.cost(10), Span::from_us(40));
    }
}
