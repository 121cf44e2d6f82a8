//! Token bucket: a rate limit for requests.

use crate::time::{Moment, Span};

/// A token bucket that fills with time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Number of tokens in a full bucket.
    size: u32,
    /// Time in which one token is added.
    each: Span,
    /// Moment at which the bucket will be, or was, full.
    full: Moment,
}

impl Bucket {
    /// Creates a full bucket of this size, refilled at `a_second` tokens per second.
    pub fn new(size: u32, a_second: u32) -> Self {
        Self { size, each: Span(1_000_000_000 / u64::from(a_second.max(1))), full: Moment(0) }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; the span is the time until there is a token.
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

    /// Returns whether the bucket is full; a full bucket may be dropped.
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
        /// In any pattern of requests, at most the burst and the tokens added since are granted.
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
