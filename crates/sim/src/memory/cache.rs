//! A last-level cache that threads share: how much of it each of them holds.
//!
//! Unit: bytes. Problem: who shares a cache with whom changes at each switch, and what a thread left behind stays until others need the
//! room. Idea: with random replacement, a line that enters a full cache takes the place of any line with equal right, so everybody's
//! holding falls by the same factor. The factor is one running number for the cache, and threads that are elsewhere cost nothing until
//! they are back. A thread on a CPU gains what it misses and loses its part of what all of them push out.

use trimtab_core::time::Moment;

/// Bytes of a line.
pub(super) const LINE: f64 = 64.0;

/// What a thread left in a cache when it went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Which cache.
    pub(super) llc: usize,
    /// How many bytes, then.
    pub(super) bytes: f64,
    /// The cache's [`Llc::age`], then.
    pub(super) age: f64,
}

impl Left {
    /// What is still there.
    pub(super) fn now(&self, age: f64) -> f64 {
        self.bytes * (self.age - age).exp()
    }
}

/// One shared cache.
#[derive(Clone, Debug)]
pub(super) struct Llc {
    size: f64,
    /// Threads that run on its cores and use memory, in the order in which they came.
    pub(super) running: Vec<usize>,
    /// Bytes held by threads that do not run here now.
    pub(super) parked: f64,
    /// The logarithm of how often the cache was replaced altogether.
    age: f64,
    /// How much of itself it replaces each nanosecond.
    pub(super) replaced: f64,
    at: Moment,
}

impl Llc {
    pub(super) fn new(size: f64) -> Self {
        Self { size, running: Vec::new(), parked: 0.0, age: 0.0, replaced: 0.0, at: Moment(0) }
    }

    /// Its clock of replacements at a moment.
    pub(super) fn age(&self, now: Moment) -> f64 {
        self.age + self.replaced * now.since(self.at).0 as f64
    }

    /// Brings what is parked up to a moment.
    pub(super) fn advance(&mut self, now: Moment) {
        let age = self.age(now);
        self.parked *= (self.age - age).exp();
        (self.age, self.at) = (age, now);
    }

    /// Makes room: `held` bytes of running threads and what is parked shall fit. Answers by which factor everything shrank. Call after
    /// [`advance`](Self::advance).
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

    /// From now on, lines of `bytes` a nanosecond come in, while running threads hold `held`; free room is used up within `span`
    /// nanoseconds.
    pub(super) fn fill(&mut self, bytes: f64, held: f64, span: f64) {
        let free = (self.size - held - self.parked).max(0.0);
        self.replaced = if self.size > 0.0 { (bytes - free / span).max(0.0) / self.size } else { 0.0 };
    }
}

/// What a thread holds after `span` nanoseconds, that held `held`, goes over `set` bytes again and again, asks for `asked` bytes a
/// nanosecond, of which `missed` (a part) are not there, in a cache that replaces `replaced` of itself each nanosecond.
///
/// Exact for random accesses; for others the shape of misses over holding is taken as straight during the span.
pub(super) fn held_after(held: f64, set: f64, asked: f64, missed: f64, replaced: f64, span: f64) -> f64 {
    let absent = if set.is_finite() { (1.0 - held / set).max(0.0) } else { 1.0 };
    // Where everything is there already, new misses come from what others push out.
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
        // In one step or in ten: the same.
        let one = held_after(0.0, 1e6, 10.0, 1.0, 1e-6, 50_000.0);
        let mut ten = 0.0;
        for _ in 0..10 {
            ten = held_after(ten, 1e6, 10.0, 1.0 - ten / 1e6, 1e-6, 5_000.0);
        }
        assert!((one - ten).abs() < 1.0, "{one} {ten}");
    }

    #[test]
    fn what_is_left_behind_goes_as_others_fill() {
        let mut llc = Llc::new(1000.0);
        llc.parked = 1000.0;
        let left = Left { llc: 0, bytes: 1000.0, age: llc.age(Moment(0)) };
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
