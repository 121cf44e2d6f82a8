//! How often somebody may ask: a bucket of tokens that fills with time.

use crate::time::{Moment, Span};

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// How many it holds at most.
    size: u32,
    /// The time in which one more comes.
    each: Span,
    /// The moment at which it will be, or was, full.
    full: Moment,
}

impl Bucket {
    /// A full one of this size, into which so many come a second.
    pub fn new(size: u32, a_second: u32) -> Self {
        Self { size, each: Span(1_000_000_000 / u64::from(a_second.max(1))), full: Moment(0) }
    }

    /// Takes one.
    ///
    /// # Errors
    /// It is empty: how long until there is one.
    pub fn take(&mut self, now: Moment) -> Result<(), Span> {
        let full = self.full.max(now) + self.each;
        let missing = full.since(now);
        let most = Span(self.each.0.saturating_mul(u64::from(self.size)));
        if missing > most {
            return Err(missing.less(most));
        }
        self.full = full;
        Ok(())
    }

    /// Whether nothing was taken that has not come back: it may be forgotten.
    pub fn is_full(&self, now: Moment) -> bool {
        self.full <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_and_then_one_at_a_time() {
        let mut bucket = Bucket::new(3, 10);
        let now = Moment(5_000_000_000);
        assert_eq!([bucket.take(now), bucket.take(now), bucket.take(now)], [Ok(()); 3]);
        assert_eq!(bucket.take(now), Err(Span::from_ms(100)));
        assert!(!bucket.is_full(now));
        assert_eq!(bucket.take(now + Span::from_ms(100)), Ok(()));
        assert_eq!(bucket.take(now + Span::from_ms(150)), Err(Span::from_ms(50)));
        assert!(bucket.is_full(now + Span::from_ms(500)));
    }

    proptest! {
        /// However it is asked, never more than the burst and what has come since.
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            size in 1u32..20,
            rate in 1u32..100,
            steps in prop::collection::vec(0u64..200_000_000, 1..300),
        ) {
            let mut bucket = Bucket::new(size, rate);
            let (mut now, mut taken) = (Moment(0), 0u64);
            for step in steps {
                now = now + Span(step);
                taken += u64::from(bucket.take(now).is_ok());
                let each = 1_000_000_000 / u64::from(rate);
                prop_assert!(taken <= u64::from(size) + now.0 / each);
            }
        }
    }
}
