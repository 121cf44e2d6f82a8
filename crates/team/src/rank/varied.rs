//! Calls with blocks of different sizes and places.

use super::{Calls, Rank};
use crate::call::Kind;
use crate::endpoint::now;
use crate::reduce::Element;
use crate::varied::{Block, VariedCall};
use crate::{Error, Result};

impl Rank {
    /// Carries out a call with blocks of different sizes and places, with addresses as buffers. An
    /// allgather or alltoall waits for all ranks; it may be in place at some ranks alone.
    ///
    /// # Safety
    /// The buffers are valid for their blocks. During the call nothing else writes them.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{Block, Kind, Sync, Type, VariedCall};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads: rank 0 gives one number and rank 1 two, in the other order.
    /// let (input, mut output) = ([rank.rank() + 7; 2], [0; 4]);
    /// let call = VariedCall {
    ///     kind: Kind::Allgather,
    ///     elements: Type::U32,
    ///     root: 0,
    ///     input: input.as_ptr().cast(),
    ///     gives: &[Block { place: 0, count: rank.rank() as usize + 1 }],
    ///     output: output.as_mut_ptr().cast(),
    ///     gets: &[Block { place: 3, count: 1 }, Block { place: 0, count: 2 }],
    ///     sync: Sync::MINE,
    /// };
    /// // SAFETY: the blocks are within both arrays.
    /// unsafe { rank.call_varied(&call)? };
    /// assert_eq!(output, [8, 8, 0, 7]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [every call](Calls#errors). A block that its giver and its receiver expect to have
    /// different sizes is [`Error::Mismatch`] at all ranks: at those that wait in this call, and at
    /// the others at the next call in which ranks wait for each other, at the latest with the
    /// ninth.
    pub unsafe fn call_varied(&self, call: &VariedCall<'_>) -> Result<()> {
        self.ready()?;
        call.check(self.rank(), self.ranks())?;
        // SAFETY: the caller's promise.
        self.counted(|| now(unsafe { self.endpoint.carry_out_varied(call, self.endpoint.blocks_view()) }))
    }
}

impl Calls<'_> {
    /// Collects a block of each rank at the root, one behind the other; the blocks have `counts`
    /// elements. The other ranks give no counts and get nothing.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let input = vec![rank.rank(); rank.rank() as usize];
    /// if rank.rank() == 1 {
    ///     let mut output = [0; 3];
    ///     rank.mine().gather_varied(&input, &mut output, &[0, 1, 2], 1)?;
    ///     assert_eq!(output, [1, 2, 2]);
    /// } else {
    ///     rank.mine().gather_varied(&input, &mut [], &[], 1)?;
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [`Rank::call_varied`].
    pub fn gather_varied<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        self.varied(Kind::Gather, root, input, &[input.len()], output, counts)
    }

    /// Collects a block of each rank at all ranks, one behind the other; the blocks have `counts`
    /// elements.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0; 3];
    /// let input = vec![rank.rank(); rank.rank() as usize];
    /// rank.mine().allgather_varied(&input, &mut output, &[0, 1, 2])?;
    /// assert_eq!(output, [1, 2, 2]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [`Rank::call_varied`].
    pub fn allgather_varied<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.varied(Kind::Allgather, 0, input, &[input.len()], output, counts)
    }

    /// Sends a block of the root's to each rank: `counts` elements, one block behind the other. The
    /// other ranks give neither input nor counts.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = vec![0; rank.rank() as usize];
    /// if rank.rank() == 0 {
    ///     rank.mine().scatter_varied(&[5, 6, 7], &[0, 1, 2], &mut output, 0)?;
    /// } else {
    ///     rank.mine().scatter_varied(&[], &[], &mut output, 0)?;
    /// }
    /// assert_eq!(output, [vec![], vec![5], vec![6, 7]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [`Rank::call_varied`].
    pub fn scatter_varied<T: Element>(
        &self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
        root: u32,
    ) -> Result<()> {
        let gets = [output.len()];
        self.varied(Kind::Scatter, root, input, counts, output, &gets)
    }

    /// Sends a block of each rank to each rank: this rank gives `gives` elements to the ranks and
    /// gets `gets` elements of them, one block behind the other.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads: rank 0 gives nothing to itself and two numbers to rank 1.
    /// if rank.rank() == 0 {
    ///     let mut output = [0];
    ///     rank.mine().alltoall_varied(&[1, 2], &[0, 2], &mut output, &[0, 1])?;
    ///     assert_eq!(output, [3]);
    /// } else {
    ///     let mut output = [0; 3];
    ///     rank.mine().alltoall_varied(&[3, 4], &[1, 1], &mut output, &[2, 1])?;
    ///     assert_eq!(output, [1, 2, 4]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [`Rank::call_varied`].
    pub fn alltoall_varied<T: Element>(
        &self,
        input: &[T],
        gives: &[usize],
        output: &mut [T],
        gets: &[usize],
    ) -> Result<()> {
        self.varied(Kind::Alltoall, 0, input, gives, output, gets)
    }

    fn varied<T: Element>(
        &self,
        kind: Kind,
        root: u32,
        input: &[T],
        gives: &[usize],
        output: &mut [T],
        gets: &[usize],
    ) -> Result<()> {
        for (what, counts, len) in [("input", gives, input.len()), ("output", gets, output.len())] {
            let sum = counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count));
            if sum != Some(len) {
                let name = kind.name();
                return Err(Error::Argument(format!(
                    "the blocks of a {name}v's {what} do not have its {len} elements together"
                )));
            }
        }
        let (gives, gets): (Vec<_>, Vec<_>) = (Block::packed(gives).collect(), Block::packed(gets).collect());
        let call = VariedCall {
            kind,
            elements: T::TYPE,
            root,
            input: input.as_ptr().cast(),
            gives: &gives,
            output: output.as_mut_ptr().cast(),
            gets: &gets,
            sync: self.sync,
        };
        // SAFETY: the blocks are within the slices, which are borrowed for the call.
        unsafe { self.rank.call_varied(&call) }
    }
}
