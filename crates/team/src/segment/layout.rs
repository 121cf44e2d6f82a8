//! Layout of a segment: a plain value, computed from the requested sizes, the same in every
//! process.
use crate::{Error, Result};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Alignment in bytes: no two areas share a line. Also the bytes of one seat.
pub const LINE_BYTES: usize = 128;
/// Most ranks of a team.
pub const RANKS_MAX: u32 = 1024;
/// A rank's control bytes, unless another number is given.
pub const CONTROL_BYTES: usize = 8192;

/// Offsets and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Ranks of the team.
    pub ranks: u32,
    /// Offset of the seats, one [`LINE_BYTES`] per rank.
    pub seats: usize,
    /// Offset of the control areas.
    pub control: usize,
    /// Control bytes of each rank.
    pub control_bytes: usize,
    /// Offset of the stages.
    pub stage: usize,
    /// Stage bytes of each rank.
    pub stage_bytes: usize,
    /// Offset of the heap, page-aligned.
    pub heap: usize,
    /// Bytes of the whole heap.
    pub heap_bytes: usize,
    /// Bytes of the segment.
    pub total: usize,
}

impl Geometry {
    /// Computes a layout with [`CONTROL_BYTES`] bytes of control per rank.
    ///
    /// # Errors
    /// `Argument` for no or too many ranks, or a size that no address can count.
    pub fn plan(ranks: u32, stage_bytes: usize, heap_bytes: usize) -> Result<Self> {
        Self::plan_with(ranks, CONTROL_BYTES, stage_bytes, heap_bytes)
    }

    /// Computes a layout. Sizes per rank are rounded up to lines, the heap to pages of 4096 bytes.
    ///
    /// # Errors
    /// As [`Geometry::plan`].
    pub fn plan_with(
        ranks: u32,
        control_bytes: usize,
        stage_bytes: usize,
        heap_bytes: usize,
    ) -> Result<Self> {
        if ranks == 0 || ranks > RANKS_MAX {
            return Err(Error::Argument(format!("a team has 1 to {RANKS_MAX} ranks, not {ranks}")));
        }
        let make = || {
            let n = ranks as usize;
            let control_bytes = control_bytes.checked_next_multiple_of(LINE_BYTES)?;
            let stage_bytes = stage_bytes.checked_next_multiple_of(LINE_BYTES)?;
            let heap_bytes = heap_bytes.checked_next_multiple_of(4096)?;
            let control = HEADER_BYTES + n * LINE_BYTES;
            let stage = control.checked_add(n.checked_mul(control_bytes)?)?;
            let heap = stage.checked_add(n.checked_mul(stage_bytes)?)?.checked_next_multiple_of(4096)?;
            let total = heap.checked_add(heap_bytes)?;
            (total <= super::memfd::BYTES_MAX).then_some(Self {
                ranks,
                seats: HEADER_BYTES,
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
