//! Blocks in the segment: memory that all ranks reach, one block for each, at the same place of the heap.
//!
//! Others may read and write a block at any time, so it is never lent as a slice. What goes in and out is copied, or used by collectives
//! where it lies (*resident*), without a copy.

use crate::call::{Call, Kind, Sync};
use crate::endpoint::Endpoint;
use crate::rank::Rank;
use crate::reduce::{Element, Kernel, Operator};
use crate::{Error, Result};
use std::marker::PhantomData;
use std::rc::Rc;

/// A block of `len` elements of each rank's.
pub struct Shared<T> {
    station: Rc<Endpoint>,
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
    pub(crate) fn new(station: Rc<Endpoint>, offset: usize, block: usize, count: usize) -> Self {
        Self { station, offset, block, count, elements: PhantomData }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Elements of a rank's block.
    #[expect(clippy::len_without_is_empty, reason = "a block is as long as was asked for")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Where a rank's block is in this process, aligned to 128 bytes. Who uses it orders that with others by collectives.
    pub fn of(&self, rank: u32) -> *mut T {
        assert!(rank < self.station.ranks(), "a rank outside of the team");
        self.station.heap().wrapping_add(self.offset + rank as usize * self.block).cast()
    }

    /// Where this rank's block is.
    pub fn own(&self) -> *mut T {
        self.of(self.station.rank)
    }

    fn within(&self, from: usize, count: usize) -> Result<()> {
        if from.checked_add(count).is_some_and(|end| end <= self.count) {
            return Ok(());
        }
        Err(Error::Argument(format!("elements {from} to {from}+{count} of {}", self.count)))
    }

    /// Copies into this rank's block, from its element `at` on.
    pub fn store(&self, at: usize, values: &[T]) -> Result<()> {
        self.within(at, values.len())?;
        // SAFETY: within the block, which is within the heap; plain data, whoever else may write them.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.own().add(at), values.len()) };
        Ok(())
    }

    /// Copies out of a rank's block, from its element `at` on.
    pub fn load(&self, rank: u32, at: usize, values: &mut [T]) -> Result<()> {
        self.within(at, values.len())?;
        if rank >= self.station.ranks() {
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
    /// All ranks' blocks, combined, into all ranks' blocks of another allocation or the same; nothing is copied in between.
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
        let call = Call {
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
        // SAFETY: blocks are as long, lie in the segment, and are the same or apart.
        unsafe { self.call(&call) }
    }

    /// Any collective whose buffers are blocks in the segment: a block of `count` elements of it goes from and to each rank as [`Kind::shape`]
    /// says, from this rank's block of `input` to that of `output`. Inputs are taken from where they lie, without a copy in between. A broadcast
    /// goes from and to `output`.
    ///
    /// # Errors
    /// `Argument` where the blocks are shorter than that, or an operator is missing or too much; and as every call.
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
        // What the root needs: all have blocks as long.
        let (gives, gets) = kind.shape(self.ranks(), count, true);
        if kind != Kind::Broadcast {
            input.within(0, gives)?;
        }
        output.within(0, gets)?;
        let from = if kind == Kind::Broadcast { output } else { input };
        let call = Call {
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
        // SAFETY: both are long enough, lie in the segment, and are the same or apart.
        unsafe { self.call(&call) }
    }

    /// The root's block into all ranks' blocks: one copy each, straight from there.
    pub fn broadcast_shared<T: Element>(&self, buffer: &Shared<T>, root: u32, sync: Sync) -> Result<()> {
        let call = Call {
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
