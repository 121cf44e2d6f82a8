//! Observer cost: the CPU time that sampling takes from the machine, and the noise of counters.
//!
//! Unit: nanoseconds of CPU time per sample, `each + thread x n + pair x n^2` for `n` threads that
//! are read. Problem: the program pays for a policy that samples a hundred times a second, and a
//! rule that fits four threads need not fit sixteen. Idea: a sample has a price, and some thread
//! pays it. A *daemon* is a thread of its own: it takes an idle CPU, or else the time of the
//! threads that run, CPU by CPU in turn. Sampling *inside* the scheduler is paid by every sampled
//! thread that runs, each the whole price: this is a tick in a hypervisor.
//!
//! Properties: samples are free by default. If a daemon pays, the policy gets the cost with the
//! next sample, as from a live host.
//!
//! Sources: [`BARE`] and [`TRAPPED`] come from the measurements of docs/performance-balancing.md
//! and from estimates for hardware without a hypervisor; [`TICK`] is calibrated on one of four
//! published overheads.

use trimtab_core::time::Span;

/// Price and noise of a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ObserverCost {
    /// Price of any sample.
    pub each: Span,
    /// Price for each thread that is read.
    pub thread: Span,
    /// Price for each pair of threads that are read.
    pub pair: Span,
    /// Whether each thread pays the whole price, instead of a daemon.
    pub inside: bool,
    /// Error of the busy cycles of a sample: relative standard deviation of the counts since the
    /// previous sample.
    pub noise: f64,
}

/// Relative error of counts over ten milliseconds on a quiet machine. Estimated: some ten thousand
/// misses scatter by a per cent of themselves; interrupts, refreshes of memory, prefetchers and
/// page walks, none of which the model has, add the same again.
pub const COUNTER_NOISE: f64 = 0.03;

/// A daemon on hardware with readable counters: about 3 us for a thread that runs (a system call,
/// an interrupt to its CPU, two counters; estimated), and 10 us to wake up, decide and sleep again
/// (estimated from samples without counters).
pub const BARE: ObserverCost = ObserverCost {
    each: Span::from_us(10),
    thread: Span::from_us(3),
    pair: Span::ZERO,
    inside: false,
    noise: COUNTER_NOISE,
};

/// A daemon in a guest with emulated counters: 20 us for two counters of a thread that runs,
/// as measured there.
pub const TRAPPED: ObserverCost = ObserverCost {
    each: Span::from_us(10),
    thread: Span::from_us(20),
    pair: Span::ZERO,
    inside: false,
    noise: COUNTER_NOISE,
};

/// The published rule inside Xen: at each tick, each virtual CPU adds up the penalties of all,
/// under one lock. It holds the lock for `n` times `h` and waits for half of the others on average,
/// so it pays `h n (n + 1) / 2`. Calibrated: `h` of 17.8 us makes the 6.4 % of a tick of 10 ms that
/// were published for eight threads.
pub const TICK: ObserverCost = ObserverCost {
    each: Span::ZERO,
    thread: Span(8_900),
    pair: Span(8_900),
    inside: true,
    noise: COUNTER_NOISE,
};

impl ObserverCost {
    /// Returns whether samples cost nothing.
    pub fn is_free(&self) -> bool {
        self.each.0 + self.thread.0 + self.pair.0 == 0
    }

    /// Returns the cost of a sample of this number of threads.
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
        assert!(ObserverCost::default().is_free() && !BARE.is_free());
        assert_eq!(BARE.cost(10), Span::from_us(40));
    }
}
