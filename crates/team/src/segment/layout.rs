//! Where things lie in a segment: a plain value, computed from what was asked for, the same in every process.
use crate::{Error, Result};

/// The header's bytes.
pub const HEADER: usize = 4096;
/// Bytes that no two areas share, and one seat's.
pub const LINE: usize = 128;
/// Ranks at most.
pub const MOST_RANKS: u32 = 1024;
/// A rank's control bytes unless said otherwise.
pub const CONTROL: usize = 8192;

/// Offsets and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Of the team.
    pub ranks: u32,
    /// Offset of the seats, one [`LINE`] per rank.
    pub seats: usize,
    /// Offset of the control areas.
    pub control: usize,
    /// Of each rank.
    pub control_bytes: usize,
    /// Offset of the stages.
    pub stage: usize,
    /// Of each rank.
    pub stage_bytes: usize,
    /// Offset of the heap, page-aligned.
    pub heap: usize,
    /// Of the whole heap.
    pub heap_bytes: usize,
    /// Of the segment.
    pub total: usize,
}

impl Geometry {
    /// With [`CONTROL`] bytes of control per rank.
    ///
    /// # Errors
    /// `Argument` for no or too many ranks, or a size that no address can count.
    pub fn plan(ranks: u32, stage_bytes: usize, heap_bytes: usize) -> Result<Self> {
        Self::plan_with(ranks, CONTROL, stage_bytes, heap_bytes)
    }

    /// Sizes per rank are rounded up to lines, the heap to pages of 4096 bytes.
    ///
    /// # Errors
    /// As [`Geometry::plan`].
    pub fn plan_with(
        ranks: u32,
        control_bytes: usize,
        stage_bytes: usize,
        heap_bytes: usize,
    ) -> Result<Self> {
        if ranks == 0 || ranks > MOST_RANKS {
            return Err(Error::Argument(format!("a team has 1 to {MOST_RANKS} ranks, not {ranks}")));
        }
        let make = || {
            let n = ranks as usize;
            let control_bytes = control_bytes.checked_next_multiple_of(LINE)?;
            let stage_bytes = stage_bytes.checked_next_multiple_of(LINE)?;
            let heap_bytes = heap_bytes.checked_next_multiple_of(4096)?;
            let control = HEADER + n * LINE;
            let stage = control.checked_add(n.checked_mul(control_bytes)?)?;
            let heap = stage.checked_add(n.checked_mul(stage_bytes)?)?.checked_next_multiple_of(4096)?;
            let total = heap.checked_add(heap_bytes)?;
            (total <= super::memfd::MOST).then_some(Self {
                ranks,
                seats: HEADER,
                control,
                control_bytes,
                stage,
                stage_bytes,
                heap,
                heap_bytes,
                total,
            })
        };
        make().ok_or_else(|| Error::Argument("a segment of more bytes than can be mapped".to_owned()))
    }
}
