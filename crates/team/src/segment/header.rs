//! Header of a segment, in its first page: magic number, version and layout. It is read as
//! untrusted data.
use super::layout::Geometry;
use super::memfd::Mapping;
use crate::{Error, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"trimteam");
const FORMAT_VERSION: u64 = 4;
const WORD_COUNT: usize = 11;
/// Index of the number of ranks that have arrived.
const ARRIVALS: usize = 10;

/// The ranks are still joining; seats can be taken.
pub const STATE_GATHERING: u64 = 0;
/// The team works.
pub const STATE_BEGUN: u64 = 1;
/// The team was given up.
pub const STATE_OVER: u64 = 2;

/// Access to the header's words: magic, version, ranks, control, stage, heap, id (two words),
/// generation, state, arrivals.
#[derive(Debug, Clone, Copy)]
pub struct Header;

/// Returns a word of the first page.
fn word(m: &Mapping, index: usize) -> &AtomicU64 {
    debug_assert!(index < WORD_COUNT);
    // SAFETY: every mapping has a whole page, which is aligned and lives as long as `m`; it is only
    // accessed atomically.
    unsafe { AtomicU64::from_ptr(m.base().cast::<u64>().add(index)) }
}

impl Header {
    /// Writes the header of a new segment; the magic number last. `id` is the creator's random
    /// number.
    ///
    /// # Errors
    /// `Argument` if the mapping is smaller than the geometry.
    pub fn write(m: &Mapping, g: &Geometry, id: u128, generation: u64) -> Result<()> {
        if g.total > m.len() {
            return Err(Error::Argument("the segment is smaller than its layout".to_owned()));
        }
        let values = [
            FORMAT_VERSION,
            u64::from(g.ranks),
            g.control_bytes as u64,
            g.stage_bytes as u64,
            g.heap_bytes as u64,
            id as u64,
            (id >> 64) as u64,
            generation,
            STATE_GATHERING,
        ];
        for (i, v) in values.into_iter().enumerate() {
            word(m, i + 1).store(v, Ordering::Relaxed);
        }
        Self::arrivals(m).store(0, Ordering::Relaxed);
        word(m, 0).store(MAGIC, Ordering::Release);
        Ok(())
    }

    /// Reads and checks the layout, each number read once.
    ///
    /// # Errors
    /// `NotATeam` for any number that does not fit the mapping.
    pub fn check(m: &Mapping) -> Result<Geometry> {
        let mut words = [0; 6];
        for (i, w) in words.iter_mut().enumerate() {
            *w = word(m, i).load(Ordering::Acquire);
        }
        Self::parse(words, m.len())
    }

    /// Returns the layout that these words describe, in a mapping of `len` bytes.
    ///
    /// # Errors
    /// As [`Header::check`].
    pub fn parse([magic, version, ranks, control, stage, heap]: [u64; 6], len: usize) -> Result<Geometry> {
        let no = |why: String| Error::NotATeam(why);
        if magic != MAGIC || version != FORMAT_VERSION {
            return Err(no(format!("magic {magic:#x}, version {version}")));
        }
        let size = |v: u64| usize::try_from(v).map_err(|_| no(format!("a size of {v}")));
        let ranks = u32::try_from(ranks).map_err(|_| no(format!("{ranks} ranks")))?;
        let g = Geometry::plan_with(ranks, size(control)?, size(stage)?, size(heap)?)
            .map_err(|e| no(e.to_string()))?;
        if g.total > len { Err(no(format!("{} bytes in {len}", g.total))) } else { Ok(g) }
    }

    /// Returns the team's random number.
    pub fn id(m: &Mapping) -> u128 {
        u128::from(word(m, 6).load(Ordering::Relaxed)) | u128::from(word(m, 7).load(Ordering::Relaxed)) << 64
    }

    /// Returns the number of the present team of this segment, which counts up with each new team.
    pub fn generation(m: &Mapping) -> &AtomicU64 {
        word(m, 8)
    }

    /// Returns the number of ranks that have arrived, on which those that wait for the others
    /// sleep.
    pub fn arrivals(m: &Mapping) -> &AtomicU32 {
        const { assert!(ARRIVALS < WORD_COUNT) };
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(m.base().cast::<u64>().add(ARRIVALS).cast()) }
    }

    /// Returns the state: [`STATE_GATHERING`], [`STATE_BEGUN`] or [`STATE_OVER`].
    pub fn state(m: &Mapping) -> &AtomicU64 {
        word(m, 9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn written_data_is_read_back() {
        let g = Geometry::plan(3, 1000, 5000).unwrap();
        let m = Mapping::create(g.total).unwrap();
        assert!(Header::check(&m).is_err());
        Header::write(&m, &g, 5 << 70, 1).unwrap();
        assert_eq!(Header::check(&m).unwrap(), g);
        assert_eq!(Header::id(&m), 5 << 70);
    }

    proptest! {
        #[test]
        fn hostile_numbers(ranks in any::<u64>(), small in 0u64..2000, s in any::<[u64; 3]>(), cut in 0u32..64, len in any::<usize>()) {
            for r in [ranks, small] {
                let w = [MAGIC, FORMAT_VERSION, r, s[0] >> cut, s[1] >> cut, s[2] >> cut];
                if let Ok(g) = Header::parse(w, len) {
                    prop_assert!(g.total <= len && g.heap + g.heap_bytes <= g.total);
                    prop_assert!(g.stage + g.ranks as usize * g.stage_bytes <= g.heap);
                }
            }
        }
    }
}
