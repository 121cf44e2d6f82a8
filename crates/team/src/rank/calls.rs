//! The collectives of a rank, with slices as buffers: each checks their lengths and makes a
//! [`CollectiveCall`] of them.

use super::Rank;
use crate::call::{CollectiveCall, Kind, Sync};
use crate::reduce::{Element, Kernel, Operator};
use crate::{Error, Result};

/// Collectives of a rank, in one mode of synchronisation. [`Rank::mine`], [`Rank::loose`],
/// [`Rank::strict`] and [`Rank::with`] return them, and each call has an example.
///
/// # Shapes
///
/// `n` is the number of ranks; lengths are in elements. All ranks must give the same `count`, type,
/// operator, root and mode. The result is in the order of ranks.
///
/// | call | input | output |
/// |---|---|---|
/// | [`broadcast`](Self::broadcast) | `count`, at the root | `count` (the same buffer) |
/// | [`reduce`](Self::reduce) | `count` | `count` at the root, else 0 |
/// | [`allreduce`](Self::allreduce) | `count` | `count` |
/// | [`scan`](Self::scan), [`exscan`](Self::exscan) | `count` | `count` |
/// | [`reduce_scatter`](Self::reduce_scatter) | `n * count` | `count` |
/// | [`gather`](Self::gather) | `count` | `n * count` at the root, else 0 |
/// | [`allgather`](Self::allgather) | `count` | `n * count` |
/// | [`scatter`](Self::scatter) | `n * count` at the root, else 0 | `count` |
/// | [`alltoall`](Self::alltoall) | `n * count` | `n * count` |
///
/// # Errors
/// A call that could not be the same at all ranks fails before any data moves, at this rank alone:
///
/// - [`Error::Argument`]: a buffer of another length than the table's, a root outside of the team,
///   an operator that the type does not have (`And`, `Or` and `Xor` are for integers), or a call
///   from within an operator of this team.
/// - [`Error::Forked`]: the handle was copied by fork.
///
/// Later failures give the team up. Every rank gets the same one, in the call in which it waits or
/// in its next: [`Error::PeerDied`], [`Error::PeerLeft`], [`Error::Mismatch`], [`Error::Timeout`],
/// [`Error::Interrupted`] or [`Error::Revoked`]. Remaining ranks can continue with
/// [`Rank::shrink`].
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    pub(super) rank: &'a Rank,
    pub(super) sync: Sync,
}

/// Returns the error for a buffer that is not as long as a call needs.
pub(super) fn short(kind: Kind, what: &str, has: usize, needs: usize) -> Error {
    Error::Argument(format!("{} needs {needs} elements of {what}, not {has}", kind.name()))
}

impl Calls<'_> {
    fn prepare<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        root: u32,
        operator: Option<Operator>,
        input: &[T],
        output: &mut [T],
    ) -> Result<CollectiveCall> {
        let (gives, gets) = kind.shape(self.rank.ranks(), count, root == self.rank.rank());
        if kind != Kind::Broadcast && input.len() != gives {
            return Err(short(kind, "input", input.len(), gives));
        }
        if output.len() != gets {
            return Err(short(kind, "output", output.len(), gets));
        }
        let kernel = operator.map(|operator| Kernel::of(T::TYPE, operator)).transpose()?;
        Ok(CollectiveCall {
            kind,
            elements: T::TYPE,
            operator,
            kernel,
            count,
            root,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            sync: self.sync,
        })
    }

    #[inline]
    fn go<T: Element>(
        &self,
        kind: Kind,
        count: usize,
        root: u32,
        operator: Option<Operator>,
        input: &[T],
        output: &mut [T],
    ) -> Result<()> {
        let call = self.prepare(kind, count, root, operator, input, output)?;
        // SAFETY: the lengths were checked, and the slices are borrowed for the call.
        unsafe { self.rank.call(&call) }
    }

    /// Copies the root's elements to all ranks. All buffers have the same length.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut buffer = if rank.rank() == 1 { [5, 6] } else { [0, 0_i32] };
    /// rank.mine().broadcast(&mut buffer, 1)?;
    /// assert_eq!(buffer, [5, 6]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        let mut call = self.prepare(Kind::Broadcast, buffer.len(), root, None, &[], buffer)?;
        call.input = call.output;
        // SAFETY: the buffer is borrowed for the call, as input or as output.
        unsafe { self.rank.call(&call) }
    }

    /// Combines all ranks' elements at the root. `output` is as long as `input` at the root, and
    /// empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let (input, root) = ([rank.rank(), 1], 2);
    /// let mut output = vec![0; if rank.rank() == root { input.len() } else { 0 }];
    /// rank.mine().reduce(&input, &mut output, Operator::Sum, root)?;
    /// if rank.rank() == root {
    ///     assert_eq!(output, [3, 3]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
        root: u32,
    ) -> Result<()> {
        self.go(Kind::Reduce, input.len(), root, Some(operator), input, output)
    }

    /// Combines all ranks' elements at all ranks. `output` is as long as `input`. All ranks get the
    /// same bits.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0; 2];
    /// rank.mine().allreduce(&[rank.rank(), 4], &mut output, Operator::Max)?;
    /// assert_eq!(output, [2, 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Allreduce, input.len(), 0, Some(operator), input, output)
    }

    /// Combines all ranks' elements at all ranks, in place.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut sums = [f64::from(rank.rank()), 1.0];
    /// rank.mine().allreduce_in_place(&mut sums, Operator::Sum)?;
    /// assert_eq!(sums, [3.0, 3.0]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    #[inline]
    pub fn allreduce_in_place<T: Element>(&self, buffer: &mut [T], operator: Operator) -> Result<()> {
        let call = CollectiveCall {
            kind: Kind::Allreduce,
            elements: T::TYPE,
            operator: Some(operator),
            kernel: Some(Kernel::of(T::TYPE, operator)?),
            count: buffer.len(),
            root: 0,
            input: buffer.as_ptr().cast(),
            output: buffer.as_mut_ptr().cast(),
            sync: self.sync,
        };
        // SAFETY: the buffer is borrowed for the call, and may be both.
        unsafe { self.rank.call(&call) }
    }

    /// Combines all ranks' blocks; each rank gets the block of its number of the result. `input` is
    /// as long as the outputs of all ranks together.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut output = [0];
    /// rank.mine().reduce_scatter(&[10, 20], &mut output, Operator::Sum)?;
    /// assert_eq!(output, [if rank.rank() == 0 { 20 } else { 40 }]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operator: Operator,
    ) -> Result<()> {
        self.go(Kind::ReduceScatter, output.len(), 0, Some(operator), input, output)
    }

    /// Collects a block of each rank at the root, in the order of ranks. `output` has a block for
    /// each rank at the root, and is empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = vec![0; if rank.rank() == 0 { 3 } else { 0 }];
    /// rank.mine().gather(&[rank.rank() * 2], &mut output, 0)?;
    /// if rank.rank() == 0 {
    ///     assert_eq!(output, [0, 2, 4]);
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Gather, input.len(), root, None, input, output)
    }

    /// Collects a block of each rank at all ranks, in the order of ranks.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0; 3];
    /// rank.mine().allgather(&[rank.rank() * 2], &mut output)?;
    /// assert_eq!(output, [0, 2, 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.go(Kind::Allgather, input.len(), 0, None, input, output)
    }

    /// Sends a block of the root's to each rank: block 0 to rank 0, and so on. `input` has a block
    /// for each rank at the root, and is empty elsewhere.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let input: &[u32] = if rank.rank() == 0 { &[7, 8, 9] } else { &[] };
    /// let mut output = [0];
    /// rank.mine().scatter(input, &mut output, 0)?;
    /// assert_eq!(output, [7 + rank.rank()]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.go(Kind::Scatter, output.len(), root, None, input, output)
    }

    /// Sends a block of each rank to each rank: block `j` of rank `i` becomes block `i` of rank
    /// `j`. Both buffers have a block for each rank.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let (i, mut output) = (rank.rank(), [0; 2]);
    /// rank.mine().alltoall(&[10 * i, 10 * i + 1], &mut output)?;
    /// assert_eq!(output, [i, 10 + i]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let ranks = self.rank.ranks() as usize;
        if !input.len().is_multiple_of(ranks) {
            return Err(short(Kind::Alltoall, "input", input.len(), input.len().next_multiple_of(ranks)));
        }
        self.go(Kind::Alltoall, input.len() / ranks, 0, None, input, output)
    }

    /// Combines the elements of ranks 0 to this one, this one included. `output` is as long as
    /// `input`.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0];
    /// rank.mine().scan(&[rank.rank() + 1], &mut output, Operator::Sum)?;
    /// assert_eq!(output, [[1], [3], [6]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn scan<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Scan, input.len(), 0, Some(operator), input, output)
    }

    /// Combines the elements of the ranks before this one. `output` is as long as `input`; rank 0,
    /// which has none before it, keeps its output as it is.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Operator;
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut output = [0];
    /// rank.mine().exscan(&[rank.rank() + 1], &mut output, Operator::Sum)?;
    /// assert_eq!(output, [[0], [1], [3]][rank.rank() as usize]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// See [errors of calls](Calls#errors).
    pub fn exscan<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<()> {
        self.go(Kind::Exscan, input.len(), 0, Some(operator), input, output)
    }
}
