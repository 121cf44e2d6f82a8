//! The symmetric heap's allocator: pure arithmetic on offsets. Every rank makes the same calls in
//! the same order, so every rank's private state is the same, and nothing in shared memory has to
//! be locked or trusted.
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Bytes from the heap's start.
pub type Offset = usize;

/// Free and used ranges, each by its offset; first fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arena {
    free: BTreeMap<Offset, usize>,
    used: BTreeMap<Offset, usize>,
}

impl Arena {
    /// Makes an arena of `len` free bytes.
    pub fn new(len: usize) -> Self {
        let free = if len == 0 { BTreeMap::new() } else { BTreeMap::from([(0, len)]) };
        Self { free, used: BTreeMap::new() }
    }

    /// Allocates the first free range that fits; `bytes` of 0 count as 1.
    ///
    /// # Errors
    /// `Argument` unless `align` is a power of two up to a page; `NoMemory` if nothing fits.
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Result<Offset> {
        if !align.is_power_of_two() || align > 4096 {
            return Err(Error::Argument(format!(
                "an alignment of {align} bytes; powers of two up to 4096 work"
            )));
        }
        let want = bytes.max(1);
        let fit = self.free.iter().find_map(|(&at, &len)| {
            let start = at.checked_next_multiple_of(align)?;
            let end = start.checked_add(want)?;
            (end <= at + len).then_some((at, len, start, end))
        });
        let (at, len, start, end) = fit.ok_or_else(|| Error::NoMemory {
            bytes,
            why: "no free range of the heap is that long".to_owned(),
        })?;
        self.free.remove(&at);
        if start > at {
            self.free.insert(at, start - at);
        }
        if at + len > end {
            self.free.insert(end, at + len - end);
        }
        self.used.insert(start, want);
        Ok(start)
    }

    /// Frees a range, and joins it with its free neighbours.
    ///
    /// # Errors
    /// `Argument` for an offset that was not allocated.
    pub fn free(&mut self, offset: Offset) -> Result<()> {
        let gone = self.used.remove(&offset);
        let mut len = gone.ok_or_else(|| Error::Argument(format!("nothing was allocated at {offset}")))?;
        let mut at = offset;
        if let Some(next) = self.free.remove(&(at + len)) {
            len += next;
        }
        if let Some((&before, &size)) = self.free.range(..at).next_back()
            && before + size == at
        {
            at = before;
            len += size;
        }
        self.free.insert(at, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_the_naive_one(steps in prop::collection::vec((any::<bool>(), 0usize..300, 0u32..8), 1..80)) {
            let (mut a, mut b) = (Arena::new(4096), Arena::new(4096));
            let mut bytes = vec![false; 4096];
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (give, n, align) in steps {
                if give && !live.is_empty() {
                    let (at, len) = live.swap_remove(n % live.len());
                    a.free(at).unwrap();
                    b.free(at).unwrap();
                    bytes[at..at + len].fill(false);
                } else {
                    let (want, align) = (n.max(1), 1 << align);
                    let naive = (0..4096).step_by(align)
                        .find(|&s| s + want <= 4096 && !bytes[s..s + want].contains(&true));
                    prop_assert_eq!(a.alloc(n, align).ok(), naive);
                    prop_assert_eq!(b.alloc(n, align).ok(), naive);
                    if let Some(s) = naive { bytes[s..s + want].fill(true); live.push((s, want)); }
                }
            }
            for (at, _) in live { a.free(at).unwrap(); }
            prop_assert_eq!(a, Arena::new(4096));
        }
    }
}
