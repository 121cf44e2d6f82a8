//! Collectives in place: one buffer is input and output.

use super::Calls;
use super::calls::short;
use crate::Result;
use crate::call::{CollectiveCall, Kind};
use crate::reduce::{Element, Kernel, Operator};

impl Calls<'_> {
    /// Returns the elements of a block, of a buffer with one for each rank.
    fn block_of(&self, kind: Kind, len: usize) -> Result<usize> {
        let ranks = self.rank.ranks() as usize;
        if len.is_multiple_of(ranks) {
            Ok(len / ranks)
        } else {
            Err(short(kind, "buffer", len, len.next_multiple_of(ranks)))
        }
    }

    /// Makes a call with an input and an output that begin `from` and `to` elements into the
    /// buffer, which is as long as the longer of both.
    #[expect(clippy::too_many_arguments, reason = "a call, in parts")]
    fn in_place<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        buffer: &mut [T],
        from: usize,
        to: usize,
        root: u32,
        operator: Option<Operator>,
    ) -> Result<()> {
        let start = buffer.as_mut_ptr();
        let call = CollectiveCall {
            kind,
            elements: T::TYPE,
            operator,
            kernel: operator.map(|operator| Kernel::of(T::TYPE, operator)).transpose()?,
            count,
            root,
            input: start.wrapping_add(from).cast_const().cast(),
            output: start.wrapping_add(to).cast(),
            sync: self.sync,
        };
        // SAFETY: both are within the buffer, which is borrowed for the call.
        unsafe { self.rank.call(&call) }
    }

    /// As [`Self::reduce`]: the root's buffer becomes the result, the others' are only read.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [rank.rank() + 1];
    /// rank.mine().reduce_in_place(&mut buffer, Operator::Sum, 0)?;
    /// assert_eq!(buffer, [if rank.rank() == 0 { 3 } else { 2 }]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator, root: u32) -> Result<()> {
        self.in_place(Kind::Reduce, buffer.len(), buffer, 0, 0, root, Some(operator))
    }

    /// As [`Self::reduce_scatter`], of a buffer with a block for each rank: its first block becomes
    /// this rank's block of the result, and the others keep data without meaning.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [10, 20];
    /// rank.mine().reduce_scatter_in_place(&mut buffer, Operator::Sum)?;
    /// assert_eq!(buffer[0], if rank.rank() == 0 { 20 } else { 40 });
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce_scatter_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        let count = self.block_of(Kind::ReduceScatter, buffer.len())?;
        self.in_place(Kind::ReduceScatter, count, buffer, 0, 0, 0, Some(operator))
    }

    /// As [`Self::scan`], in place.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [rank.rank() + 1];
    /// rank.mine().scan_in_place(&mut buffer, Operator::Sum)?;
    /// assert_eq!(buffer, [[1], [3]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scan_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        self.in_place(Kind::Scan, buffer.len(), buffer, 0, 0, 0, Some(operator))
    }

    /// As [`Self::exscan`], in place: rank 0 keeps its elements.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [rank.rank() + 5];
    /// rank.mine().exscan_in_place(&mut buffer, Operator::Sum)?;
    /// assert_eq!(buffer, [5]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn exscan_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        self.in_place(Kind::Exscan, buffer.len(), buffer, 0, 0, 0, Some(operator))
    }

    /// As [`Self::gather`]: the root's buffer has a block for each rank, of which its own is there
    /// already; the others' buffer is their block.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = if rank.rank() == 1 { vec![0, 6] } else { vec![5] };
    /// rank.mine().gather_in_place(&mut buffer, 1)?;
    /// assert_eq!(buffer, [vec![5], vec![5, 6]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn gather_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        if self.rank.rank() != root {
            return self.gather(buffer, &mut [], root);
        }
        let count = self.block_of(Kind::Gather, buffer.len())?;
        self.in_place(Kind::Gather, count, buffer, root as usize * count, 0, root, None)
    }

    /// As [`Self::allgather`], of a buffer with a block for each rank, of which this rank's own is
    /// there already.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [0; 2];
    /// buffer[rank.rank() as usize] = rank.rank() + 5;
    /// rank.mine().allgather_in_place(&mut buffer)?;
    /// assert_eq!(buffer, [5, 6]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn allgather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of(Kind::Allgather, buffer.len())?;
        let own = self.rank.rank() as usize * count;
        self.in_place(Kind::Allgather, count, buffer, own, 0, 0, None)
    }

    /// As [`Self::scatter`]: the root's buffer has a block for each rank, and keeps them; the
    /// others' buffer is their block.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = if rank.rank() == 0 { vec![5, 6] } else { vec![0] };
    /// rank.mine().scatter_in_place(&mut buffer, 0)?;
    /// assert_eq!(buffer, [vec![5, 6], vec![6]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scatter_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        if self.rank.rank() != root {
            return self.scatter(&[], buffer, root);
        }
        let count = self.block_of(Kind::Scatter, buffer.len())?;
        self.in_place(Kind::Scatter, count, buffer, 0, root as usize * count, root, None)
    }

    /// As [`Self::alltoall`], in place: block `j` is given to rank `j`, and replaced by its block.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of the threads.
    /// let mut buffer = [10 * rank.rank(), 10 * rank.rank() + 1];
    /// rank.mine().alltoall_in_place(&mut buffer)?;
    /// assert_eq!(buffer, [rank.rank(), 10 + rank.rank()]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn alltoall_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of(Kind::Alltoall, buffer.len())?;
        self.in_place(Kind::Alltoall, count, buffer, 0, 0, 0, None)
    }
}
