//! Blocks in the segment: memory that all ranks reach, one block for each rank, at the same place
//! of the heap.
//!
//! Other ranks may read and write a block at any time, so no slice of it is ever made. Data is
//! copied in and out, or used by collectives in place (*resident*), without a copy.

use crate::call::{CollectiveCall, Kind, Sync};
use crate::endpoint::Endpoint;
use crate::rank::Rank;
use crate::reduce::{Element, Kernel, Operator};
use crate::{Error, Result};
use std::marker::PhantomData;
use std::rc::Rc;

/// Block of `len` elements for each rank, made by [`Rank::alloc`].
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let block = rank.alloc::<f64>(3)?;
/// assert_eq!(block.len(), 3);
/// block.store(1, &[0.5, 1.5])?; // Elements 1 and 2 of this rank's own block.
/// rank.barrier()?;
///
/// // A copy of the other rank's last element, and the element in place.
/// let (other, mut copy) = (1 - rank.rank(), [0.0]);
/// block.load(other, 2, &mut copy)?;
/// // SAFETY: no rank writes before the next barrier.
/// let in_place = unsafe { *block.of(other).add(2) };
/// assert_eq!((copy, in_place), ([1.5], 1.5));
/// rank.barrier()?;
///
/// // SAFETY: the block is this rank's own, and no other rank reads it any more.
/// unsafe { *block.own() = 2.5 };
/// assert!(block.store(2, &[0.0, 0.0]).is_err()); // Beyond the end.
/// # Ok(())
/// # });
/// ```
pub struct Shared<T> {
    endpoint: Rc<Endpoint>,
    offset: usize,
    block: usize,
    count: usize,
    elements: PhantomData<T>,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} elements at {} of the heap", self.count, self.offset)
    }
}

impl<T: Element> Shared<T> {
    pub(crate) fn new(endpoint: Rc<Endpoint>, offset: usize, block: usize, count: usize) -> Self {
        Self { endpoint, offset, block, count, elements: PhantomData }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of elements of a rank's block. [`Shared`] has an example.
    #[expect(clippy::len_without_is_empty, reason = "a block is as long as was asked for")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the address of a rank's block in this process, aligned to 128 bytes. The caller
    /// orders its accesses with those of other ranks by collectives. [`Shared`] has an example.
    ///
    /// # Panics
    /// If the team has no such rank.
    pub fn of(&self, rank: u32) -> *mut T {
        assert!(rank < self.endpoint.ranks(), "a rank outside of the team");
        self.endpoint.heap().wrapping_add(self.offset + rank as usize * self.block).cast()
    }

    /// Returns the address of this rank's block. [`Shared`] has an example.
    pub fn own(&self) -> *mut T {
        self.of(self.endpoint.rank)
    }

    fn within(&self, from: usize, count: usize) -> Result<()> {
        if from.checked_add(count).is_some_and(|end| end <= self.count) {
            return Ok(());
        }
        Err(Error::Argument(format!("elements {from} to {from}+{count} of {}", self.count)))
    }

    /// Copies into this rank's block, from its element `at` on. [`Rank::alloc`] has an example.
    ///
    /// # Errors
    /// `Argument` beyond the block's end.
    pub fn store(&self, at: usize, values: &[T]) -> Result<()> {
        self.within(at, values.len())?;
        // SAFETY: within the block, which is within the heap; plain data, whichever rank may write
        // it.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.own().add(at), values.len()) };
        Ok(())
    }

    /// Copies out of a rank's block, from its element `at` on. [`Shared`] has an example.
    ///
    /// # Errors
    /// `Argument` beyond the block's end, or for a rank outside of the team.
    pub fn load(&self, rank: u32, at: usize, values: &mut [T]) -> Result<()> {
        self.within(at, values.len())?;
        if rank >= self.endpoint.ranks() {
            return Err(Error::Argument(format!("there is no rank {rank}")));
        }
        // SAFETY: as above; every bit pattern is an element.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.of(rank).cast_const().add(at),
                values.as_mut_ptr(),
                values.len(),
            )
        };
        Ok(())
    }
}

impl Rank {
    /// Combines all ranks' blocks into all ranks' blocks of another allocation or the same, without
    /// a copy in between.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{Operator, Sync};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let block = rank.alloc::<u64>(3)?;
    /// block.store(0, &[1, 2, 3])?;
    /// rank.allreduce_shared(&block, &block, Operator::Sum, Sync::MINE)?;
    /// let mut sums = [0; 3];
    /// block.load(rank.rank(), 0, &mut sums)?;
    /// assert_eq!(sums, [2, 4, 6]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Argument` if the blocks differ in length; otherwise as [every call](crate::Calls#errors).
    pub fn allreduce_shared<T: Element>(
        &self,
        input: &Shared<T>,
        output: &Shared<T>,
        operator: Operator,
        sync: Sync,
    ) -> Result<()> {
        if input.len() != output.len() {
            return Err(Error::Argument(format!("{} elements into {}", input.len(), output.len())));
        }
        let call = CollectiveCall {
            kind: Kind::Allreduce,
            elements: T::TYPE,
            operator: Some(operator),
            kernel: Some(Kernel::of(T::TYPE, operator)?),
            count: input.len(),
            root: 0,
            input: input.own().cast_const().cast(),
            output: output.own().cast(),
            sync,
        };
        // SAFETY: the blocks have the same length, are in the segment, and are the same or do not
        // overlap.
        unsafe { self.call(&call) }
    }

    /// Carries out any collective with blocks in the segment as buffers: blocks of `count` elements
    /// go from and to each rank by [`Kind::shape`], from this rank's block of `input` to that of
    /// `output`. Inputs are read in place, without a copy in between. A broadcast goes from and to
    /// `output`.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{Kind, Sync};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let (input, output) = (rank.alloc::<u32>(1)?, rank.alloc::<u32>(2)?);
    /// input.store(0, &[rank.rank() + 5])?;
    /// rank.call_shared(Kind::Allgather, 1, &input, &output, 0, None, Sync::MINE)?;
    /// let mut all = [0; 2];
    /// output.load(rank.rank(), 0, &mut all)?;
    /// assert_eq!(all, [5, 6]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Argument` if the blocks are shorter than that, or an operator is missing or superfluous;
    /// otherwise as [every call](crate::Calls#errors).
    #[expect(clippy::too_many_arguments, reason = "a call, in parts")]
    pub fn call_shared<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        input: &Shared<T>,
        output: &Shared<T>,
        root: u32,
        operator: Option<Operator>,
        sync: Sync,
    ) -> Result<()> {
        if kind.combines() != operator.is_some() {
            let what = if operator.is_some() { "combines nothing" } else { "combines by an operator" };
            return Err(Error::Argument(format!("{} {what}", kind.name())));
        }
        // The root's length: all ranks have blocks of the same length.
        let (gives, gets) = kind.shape(self.ranks(), count, true);
        if kind != Kind::Broadcast {
            input.within(0, gives)?;
        }
        output.within(0, gets)?;
        let from = if kind == Kind::Broadcast { output } else { input };
        let call = CollectiveCall {
            kind,
            elements: T::TYPE,
            operator,
            kernel: operator.map(|operator| Kernel::of(T::TYPE, operator)).transpose()?,
            count,
            root,
            input: from.own().cast_const().cast(),
            output: output.own().cast(),
            sync,
        };
        // SAFETY: both are long enough, are in the segment, and are the same or do not overlap.
        unsafe { self.call(&call) }
    }

    /// Copies the root's block into all ranks' blocks: one direct copy for each.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Sync;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let block = rank.alloc::<u8>(1)?;
    /// if rank.rank() == 0 {
    ///     block.store(0, &[9])?;
    /// }
    /// rank.broadcast_shared(&block, 0, Sync::MINE)?;
    /// let mut value = [0];
    /// block.load(rank.rank(), 0, &mut value)?;
    /// assert_eq!(value, [9]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [every call](crate::Calls#errors).
    pub fn broadcast_shared<T: Element>(&self, buffer: &Shared<T>, root: u32, sync: Sync) -> Result<()> {
        let call = CollectiveCall {
            kind: Kind::Broadcast,
            elements: T::TYPE,
            operator: None,
            kernel: None,
            count: buffer.len(),
            root,
            input: buffer.own().cast_const().cast(),
            output: buffer.own().cast(),
            sync,
        };
        // SAFETY: as above.
        unsafe { self.call(&call) }
    }
}
