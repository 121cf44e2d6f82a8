//! Row of a varied call: the sizes of the blocks that a rank gives, as its first ticket carries
//! them, and the places of row and data there.
//!
//! **Layout.** The payload of the slot begins with a word: the most bytes of a block that goes
//! through cells, and the flag [`BESIDE`]. With that flag all blocks are there: if there is one for
//! each rank, a byte for the size of each follows, and then the blocks, one behind the other.
//! Without it, an entry for each block follows, in the payload or, if all do not fit, in the cell:
//! its bytes and, if ranks read each other's memory, its location. The first piece of each block is
//! in the cell, behind the entries that are there.
//!
//! **Properties.** The bytes of pieces depend on the kind, the number of ranks and the team's cells
//! alone. Two ranks that exchange blocks of one size therefore stage the same piece of them before
//! they take it, so that an alltoall in place never overwrites data that is not staged.

use crate::flag::INLINE_BYTES;
use crate::rounds::copy;

/// Flag beside the most bytes of a block: all blocks are in the payload.
pub(super) const BESIDE: u64 = 1 << 63;
/// Bytes of the word at the begin of the payload.
const WORD_BYTES: usize = 8;

/// Places of the rows and the data of a call: the same at all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Whether a rank gives a block for each rank, and not one block.
    shares_out: bool,
    /// Blocks of a row: one, or one for each rank.
    blocks: usize,
    /// Words of an entry: bytes, and the location if ranks read each other's memory.
    words: usize,
    /// Whether the entries are in the cell.
    in_cell: bool,
    /// Bytes of the cell before the first pieces.
    head: usize,
    /// The most bytes of the first piece of a block.
    pub(super) first: usize,
    /// The most bytes of each other piece.
    pub(super) stride: usize,
}

impl Layout {
    /// Returns the layout of a call in which ranks give one block or, if it `shares_out`, one for
    /// each rank. `pull`: whether ranks read each other's memory.
    pub(super) fn new(shares_out: bool, ranks: u32, cell: usize, pull: bool) -> Self {
        let blocks = if shares_out { ranks as usize } else { 1 };
        // A cell has room for a word for each rank.
        let words = if pull && blocks * 16 <= cell { 2 } else { 1 };
        let entries = blocks * words * 8;
        let in_cell = WORD_BYTES + entries > INLINE_BYTES;
        let head = if in_cell { entries.next_multiple_of(64) } else { 0 };
        let share = |room: usize| match room / blocks {
            few @ 0..64 => few,
            many => many / 64 * 64,
        };
        let (first, stride) = (share(cell - head), share(cell));
        Self { shares_out, blocks, words, in_cell, head, first, stride }
    }

    /// Returns whether a row has the locations of blocks.
    pub(super) fn has_locations(&self) -> bool {
        self.words == 2
    }

    /// Returns the number of a block in its giver's row.
    pub(super) fn index(&self, to: u32) -> usize {
        if self.shares_out { to as usize } else { 0 }
    }

    /// Returns the place of the first block in a payload.
    fn data_at(&self) -> usize {
        WORD_BYTES + if self.shares_out { self.blocks.next_multiple_of(8) } else { 0 }
    }

    /// Returns whether blocks of these sizes fit into the payload.
    pub(super) fn are_beside(&self, mut sizes: impl Iterator<Item = usize>) -> bool {
        // No block is longer than a first piece: see the module's properties.
        let most = self.first.min(INLINE_BYTES);
        let mut end = self.data_at();
        sizes.all(|bytes| {
            end += bytes.min(INLINE_BYTES);
            bytes <= most && end <= INLINE_BYTES
        })
    }

    /// Returns the number of rounds after the first ticket.
    pub(super) fn rounds(&self, most: usize) -> usize {
        most.saturating_sub(self.first).div_ceil(self.stride)
    }

    /// Returns the address of a block's entry.
    pub(super) fn entry(&self, payload: *mut u8, cell: *mut u8, to: u32) -> *mut u8 {
        let entries = if self.in_cell { cell } else { payload.wrapping_add(WORD_BYTES) };
        entries.wrapping_add(self.index(to) * self.words * 8)
    }

    /// Returns the address of the first piece of a block in a cell.
    pub(super) fn piece(&self, cell: *mut u8, to: u32) -> *mut u8 {
        cell.wrapping_add(self.head + self.index(to) * self.first)
    }

    /// Writes the blocks and their sizes into a payload that has room for them. Returns the most
    /// bytes of a block.
    ///
    /// # Safety
    /// The blocks are valid for reading. No other rank reads the payload.
    pub(super) unsafe fn write_beside(
        &self,
        payload: *mut u8,
        blocks: impl Iterator<Item = (u32, (*const u8, usize))>,
    ) -> usize {
        let (mut at, mut most) = (self.data_at(), 0);
        for (to, (from, bytes)) in blocks {
            let size = bytes as u8;
            // SAFETY: the caller's promise; `are_beside` was asked.
            unsafe {
                if self.shares_out {
                    copy(&raw const size, payload.wrapping_add(WORD_BYTES + self.index(to)), 1);
                }
                copy(from, payload.wrapping_add(at), bytes);
            }
            at += bytes;
            most = most.max(bytes);
        }
        most
    }

    /// Returns the size and the place of rank `me`'s block in the payload of rank `giver`, whose
    /// word is `word`. The block may seem to be beyond the payload: other ranks write it.
    ///
    /// # Safety
    /// The payload is another rank's, whose flag was seen.
    pub(super) unsafe fn read_beside(
        &self,
        payload: *const u8,
        word: u64,
        giver: u32,
        me: u32,
    ) -> (u64, usize) {
        if !self.shares_out {
            return (word & !BESIDE, self.data_at());
        }
        // A row of that kind has a byte for each rank. Rows of more ranks do not fit.
        let size = |to: u32| {
            let at = WORD_BYTES + to as usize;
            // SAFETY: within the payload.
            if at < INLINE_BYTES { usize::from(unsafe { read_byte(payload.wrapping_add(at)) }) } else { 0 }
        };
        let before: usize = (0..me).filter(|to| *to != giver).map(size).sum();
        (size(me) as u64, self.data_at() + before)
    }
}

/// Writes a word of a row.
///
/// # Safety
/// The place is within the payload or the cell, and no other rank reads it.
pub(super) unsafe fn write_word(at: *mut u8, word: u64) {
    // SAFETY: the caller's promise.
    unsafe { copy((&raw const word).cast(), at, 8) }
}

/// Reads a word of a row.
///
/// # Safety
/// The place is within a payload or a cell, which its owner leaves as it is.
pub(super) unsafe fn read_word(at: *const u8) -> u64 {
    let mut word = 0;
    // SAFETY: the caller's promise.
    unsafe { copy(at, (&raw mut word).cast(), 8) };
    word
}

/// As [`read_word`].
unsafe fn read_byte(at: *const u8) -> u8 {
    let mut byte = 0;
    // SAFETY: the caller's promise.
    unsafe { copy(at, &raw mut byte, 1) };
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_pieces_are_within_payloads_and_cells_for_all_teams() {
        for ranks in 1..=1024_u32 {
            let least = (ranks as usize * 8).next_power_of_two().max(1024);
            for (cell, pull, shares_out) in [(least, false), (least, true), (32 << 10, true)]
                .into_iter()
                .flat_map(|(cell, pull)| [(cell, pull, false), (cell, pull, true)])
            {
                let layout = Layout::new(shares_out, ranks, cell, pull);
                let last = if shares_out { ranks - 1 } else { 0 };
                let (payload, base) = (std::ptr::null_mut(), std::ptr::null_mut::<u8>());
                let end = layout.entry(payload, base, last) as usize + layout.words * 8;
                assert!(end <= if layout.in_cell { layout.head } else { INLINE_BYTES }, "{layout:?}");
                assert!(layout.piece(base, last) as usize + layout.first <= cell, "{layout:?}");
                assert!(layout.stride > 0 && layout.blocks * layout.stride <= cell, "{layout:?}");
                for most in [0, 1, layout.first, layout.first + 1, layout.first + layout.stride + 1] {
                    let rounds = layout.rounds(most);
                    assert!(layout.first + rounds * layout.stride >= most, "{layout:?}");
                    assert!(rounds == 0 || layout.first + (rounds - 1) * layout.stride < most, "{layout:?}");
                }
            }
        }
    }

    /// Payloads are written by one function and read by another; the expected bytes are from here.
    #[test]
    fn blocks_beside_the_flag_are_found_by_each_receiver() {
        for (ranks, giver, sizes) in [
            (2_u32, 0_u32, vec![0_usize, 88]),
            (4, 1, vec![8, 0, 8, 8]),
            (4, 3, vec![0, 60, 36, 0]),
            (8, 0, vec![0, 1, 0, 30, 7, 20, 0, 38]),
        ] {
            let layout = Layout::new(true, ranks, 32 << 10, true);
            let receivers = || (0..ranks).filter(|to| *to != giver);
            let fits = |sizes: &[usize]| layout.are_beside(receivers().map(|to| sizes[to as usize]));
            assert!(fits(&sizes), "{sizes:?}");
            let mut more = sizes.clone();
            *more.iter_mut().enumerate().find(|(to, _)| *to as u32 != giver).unwrap().1 += 120;
            assert!(!fits(&more), "{more:?}");
            let blocks: Vec<Vec<u8>> = (0..ranks).map(|to| vec![to as u8 + 1; sizes[to as usize]]).collect();
            let mut payload = [0xee_u8; INLINE_BYTES];
            let at = payload.as_mut_ptr();
            let given = receivers().map(|to| (to, (blocks[to as usize].as_ptr(), sizes[to as usize])));
            // SAFETY: the blocks are slices, and fit.
            let most = unsafe { layout.write_beside(at, given) };
            assert_eq!(Some(most), receivers().map(|to| sizes[to as usize]).max());
            for me in receivers() {
                // SAFETY: the payload is an array here.
                let (bytes, place) = unsafe { layout.read_beside(payload.as_ptr(), BESIDE, giver, me) };
                assert_eq!(bytes as usize, sizes[me as usize]);
                assert_eq!(payload[place..][..bytes as usize], blocks[me as usize]);
            }
        }
    }

    #[test]
    fn one_block_beside_the_flag_has_its_size_in_the_word() {
        let layout = Layout::new(false, 5, 1024, false);
        assert!(layout.are_beside([104].into_iter()) && !layout.are_beside([105].into_iter()));
        assert!(layout.are_beside([].into_iter()) && !layout.are_beside([usize::MAX].into_iter()));
        // SAFETY: no byte of the payload is read for one block.
        let found = unsafe { layout.read_beside(std::ptr::null(), BESIDE | 77, 3, 1) };
        assert_eq!(found, (77, 8));
    }
}
