//! Shared LLC: how much of it each thread holds.
//!
//! Unit: bytes. Problem: the threads that share a cache change at each context switch, and the data
//! of a thread that has left stay until others need the space. Idea: with random replacement, a
//! line that enters a full cache replaces any line with equal probability, so all holdings fall by
//! the same factor. The factor is one running number for the cache, and threads on other CPUs cost
//! nothing until they return. A thread on a CPU gains its misses and loses its share of the lines
//! that all of them replace.

use trimtab_core::time::Moment;

/// Size of a cache line, bytes.
pub(super) const LINE_BYTES: f64 = 64.0;

/// Data of a thread that remain in a cache after the thread has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheRemnant {
    /// Number of the cache.
    pub(super) llc: usize,
    /// Bytes left, then.
    pub(super) bytes: f64,
    /// The cache's [`Llc::age`], then.
    pub(super) age: f64,
}

impl CacheRemnant {
    /// Returns the bytes that are still there.
    pub(super) fn now(&self, age: f64) -> f64 {
        self.bytes * (self.age - age).exp()
    }
}

/// Shared cache.
#[derive(Clone, Debug)]
pub(super) struct Llc {
    size: f64,
    /// Threads that run on its cores and use memory, in the order of their arrival.
    pub(super) running: Vec<usize>,
    /// Bytes held by threads that do not run here now.
    pub(super) parked: f64,
    /// Logarithm of the number of times that the whole cache was replaced.
    age: f64,
    /// Share of the cache replaced per nanosecond.
    pub(super) replaced: f64,
    at: Moment,
}

impl Llc {
    pub(super) fn new(size: f64) -> Self {
        Self { size, running: Vec::new(), parked: 0.0, age: 0.0, replaced: 0.0, at: Moment(0) }
    }

    /// Returns the replacement clock at a moment.
    pub(super) fn age(&self, now: Moment) -> f64 {
        self.age + self.replaced * now.since(self.at).0 as f64
    }

    /// Advances the parked bytes to a moment.
    pub(super) fn advance(&mut self, now: Moment) {
        let age = self.age(now);
        self.parked *= (self.age - age).exp();
        (self.age, self.at) = (age, now);
    }

    /// Makes room for `held` bytes of running threads and the parked bytes. Returns the factor by
    /// which all shrank. Call after [`advance`](Self::advance).
    pub(super) fn fit(&mut self, held: f64) -> f64 {
        let total = held + self.parked;
        if total <= self.size {
            return 1.0;
        }
        let factor = self.size / total;
        self.parked *= factor;
        self.age -= factor.ln();
        factor
    }

    /// Sets the rate of replacement: from now on, lines of `bytes` a nanosecond come in, while
    /// running threads hold `held`; free room is used up within `span` nanoseconds.
    pub(super) fn fill(&mut self, bytes: f64, held: f64, span: f64) {
        let free = (self.size - held - self.parked).max(0.0);
        self.replaced = if self.size > 0.0 { (bytes - free / span).max(0.0) / self.size } else { 0.0 };
    }
}

/// Returns the bytes that a thread holds after `span` nanoseconds. The thread held `held`, uses
/// `set` bytes repeatedly, and requests `asked` bytes a nanosecond, of which the share `missed`
/// misses, in a cache that replaces the share `replaced` of itself each nanosecond.
///
/// Exact for random accesses; for others the misses as a function of the holding are taken as
/// linear during the span.
pub(super) fn held_after(held: f64, set: f64, asked: f64, missed: f64, replaced: f64, span: f64) -> f64 {
    let absent = if set.is_finite() { (1.0 - held / set).max(0.0) } else { 1.0 };
    // If all data are there already, new misses come from the lines that others replace.
    let steep = if absent > 1e-9 { missed / absent } else { 1.0 };
    let gain = asked * steep;
    let loss = replaced + if set.is_finite() { gain / set } else { 0.0 };
    if loss <= 0.0 {
        return held + gain * span;
    }
    let end = gain / loss;
    (end + (held - end) * (-loss * span).exp()).min(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_fills_the_cache_with_its_set_and_no_more() {
        let mut held = 0.0;
        for _ in 0..10_000 {
            let missed = 1.0 - held / 1e6;
            held = held_after(held, 1e6, 10.0, missed, 0.0, 1000.0);
        }
        assert!((held - 1e6).abs() < 1.0, "{held}");
        // One step and ten steps give the same.
        let one = held_after(0.0, 1e6, 10.0, 1.0, 1e-6, 50_000.0);
        let mut ten = 0.0;
        for _ in 0..10 {
            ten = held_after(ten, 1e6, 10.0, 1.0 - ten / 1e6, 1e-6, 5_000.0);
        }
        assert!((one - ten).abs() < 1.0, "{one} {ten}");
    }

    #[test]
    fn cached_data_of_an_absent_thread_is_evicted_as_others_fill_the_cache() {
        let mut llc = Llc::new(1000.0);
        llc.parked = 1000.0;
        let left = CacheRemnant { llc: 0, bytes: 1000.0, age: llc.age(Moment(0)) };
        llc.fill(1.0, 0.0, 1e6);
        llc.advance(Moment(1000));
        let expected = 1000.0 * (-1.0_f64).exp();
        assert!((left.now(llc.age(Moment(1000))) - expected).abs() < 1e-6);
        assert!((llc.parked - expected).abs() < 1e-6);
        assert_eq!(llc.fit(100.0), 1.0);
        let factor = llc.fit(1000.0);
        assert!((1000.0 * factor + llc.parked - 1000.0).abs() < 1e-6);
    }
}
