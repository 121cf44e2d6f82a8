//! Call: the operation that a rank requests from its team, as a value. All ranks must request the
//! same one, which they check by its signature.

use crate::reduce::{Kernel, Operator, Type};
use crate::{Error, Result};

/// Kind of operation.
///
/// # Examples
/// ```
/// use trimtab_team::Kind;
///
/// let (ranks, count) = (4, 10);
/// // An allgather takes a block of each rank, and gives all blocks to each.
/// assert_eq!(Kind::Allgather.shape(ranks, count, false), (10, 40));
/// // Only the root of a scatter gives something.
/// assert!(Kind::Scatter.rooted() && !Kind::Scatter.combines());
/// assert_eq!(Kind::Scatter.shape(ranks, count, true), (40, 10));
/// assert_eq!(Kind::Scatter.shape(ranks, count, false), (0, 10));
/// assert_eq!(Kind::ReduceScatter.name(), "reduce_scatter");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// No rank continues before all ranks have arrived.
    Barrier = 1,
    /// The root's elements to all ranks.
    Broadcast,
    /// All ranks' elements, combined, to the root.
    Reduce,
    /// All ranks' elements, combined, to all ranks.
    Allreduce,
    /// All ranks' elements, combined, a block to each.
    ReduceScatter,
    /// A block of each rank to the root.
    Gather,
    /// A block of each rank to all ranks.
    Allgather,
    /// A block of the root's to each rank.
    Scatter,
    /// A block of each rank to each rank.
    Alltoall,
    /// The elements of ranks 0 to this one, combined.
    Scan,
    /// The elements of the ranks before this one, combined; nothing for rank 0.
    Exscan,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Gather,
        Self::Allgather,
        Self::Scatter,
        Self::Alltoall,
        Self::Scan,
        Self::Exscan,
    ];

    /// Returns its name in messages, tables and the C interface. [`Kind`] has an example.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Gather => "gather",
            Self::Allgather => "allgather",
            Self::Scatter => "scatter",
            Self::Alltoall => "alltoall",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// Returns whether it has a root. [`Kind`] has an example.
    pub fn rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Returns whether elements are combined. [`Kind`] has an example.
    pub fn combines(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter | Self::Scan | Self::Exscan)
    }

    /// Returns the number of elements that a rank gives and the number that it gets, for blocks of
    /// `count` elements. [`Kind`] has an example.
    pub fn shape(self, ranks: u32, count: usize, is_root: bool) -> (usize, usize) {
        let all = count * ranks as usize;
        let at_root = |elements| if is_root { elements } else { 0 };
        match self {
            Self::Barrier => (0, 0),
            // One buffer, which is both.
            Self::Broadcast => (at_root(count), count),
            Self::Reduce => (count, at_root(count)),
            Self::Allreduce | Self::Scan | Self::Exscan => (count, count),
            Self::ReduceScatter => (all, count),
            Self::Gather => (count, at_root(all)),
            Self::Allgather => (count, all),
            Self::Scatter => (at_root(all), count),
            Self::Alltoall => (all, all),
        }
    }

    fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == code)
    }
}

/// When data may move, and when a call may return, as in GASNet (`docs/collective_notes.txt`).
/// [`Rank::with`](crate::Rank::with) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum When {
    /// As soon as any rank has arrived, or any data may move.
    None = 0,
    /// As soon as this rank's own data permits it.
    Mine = 1,
    /// Only when all ranks have arrived, or all are done.
    All = 2,
}

/// Synchronisation of a call at its begin and at its end. [`Rank::with`](crate::Rank::with) has an
/// example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sync {
    /// When data may move.
    pub enter: When,
    /// When the call may return.
    pub leave: When,
}

impl Sync {
    /// All ranks wait for all others, before and after.
    pub const STRICT: Self = Self { enter: When::All, leave: When::All };
    /// When the call returns, the own data is there and own buffers may be used again, as in MPI.
    /// The default.
    pub const MINE: Self = Self { enter: When::Mine, leave: When::Mine };
    /// Ranks wait only for the data; buffers in the segment may be used again after a fence.
    pub const LOOSE: Self = Self { enter: When::None, leave: When::None };
}

impl Default for Sync {
    fn default() -> Self {
        Self::MINE
    }
}

/// An operation with its buffers. Addresses are those of this process.
/// [`Rank::call`](crate::Rank::call) and [`Rank::start`](crate::Rank::start) have examples.
#[derive(Debug, Clone, Copy)]
pub struct CollectiveCall {
    /// Kind of operation.
    pub kind: Kind,
    /// Type of the elements.
    pub elements: Type,
    /// The operator; `None` if nothing is combined, or for the caller's own operator.
    pub operator: Option<Operator>,
    /// The code that combines.
    pub kernel: Option<Kernel>,
    /// Elements of a block.
    pub count: usize,
    /// The root, or 0.
    pub root: u32,
    /// Data that this rank gives.
    pub input: *const u8,
    /// Buffer for the data that it gets.
    pub output: *mut u8,
    /// Mode of synchronisation.
    pub sync: Sync,
}

impl CollectiveCall {
    /// A barrier.
    pub const BARRIER: Self = Self {
        kind: Kind::Barrier,
        elements: Type::U8,
        operator: None,
        kernel: None,
        count: 0,
        root: 0,
        input: std::ptr::null(),
        output: std::ptr::null_mut(),
        sync: Sync::MINE,
    };

    /// Returns the bytes of a block.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.count * self.elements.size()
    }

    /// Returns kind, type, operator and modes in one number.
    #[inline(always)]
    pub fn what(&self) -> u64 {
        let operator = self.operator.map_or(15, |operator| u64::from(operator.code()));
        self.kind as u64
            | u64::from(self.elements.code()) << 8
            | operator << 16
            | (self.sync.enter as u64) << 24
            | (self.sync.leave as u64) << 28
    }

    /// Returns a 32-bit hash of everything that all ranks must agree on: different calls differ
    /// with near certainty.
    #[inline(always)]
    pub fn signature(&self) -> u32 {
        signature(self.what(), self.count as u64, self.root)
    }
}

/// Returns the signature of a call: see [`CollectiveCall::signature`].
#[inline(always)]
pub fn signature(what: u64, count: u64, root: u32) -> u32 {
    // Odd factors derived from the golden ratio and similar constants spread differences in few
    // bits over the high half.
    let mixed = (what ^ count.rotate_left(20) ^ u64::from(root) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ count.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed >> 32) as u32
}

/// Bit beside the kind in the description of a call with blocks of different sizes
/// ([`crate::varied`]). The count of such a description is zero, or one more than the elements of
/// the block in question.
pub const VARIED_FLAG: u64 = 0x80;

/// Kind in the description of an allocation of a block in the segment; its count is in bytes.
pub const ALLOC_WHAT: u64 = 0xf0;
/// Kind in the description of a freed block; its count is its place in the heap.
pub const FREE_WHAT: u64 = 0xf1;
/// Kind in the description of a split; its count is the bytes of each part's heap.
pub const SPLIT_WHAT: u64 = 0xf2;

/// A call as its rank posts it for the others: a copy of the words in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// Number of the operation in its team, from 1.
    pub number: u64,
    /// The operation's signature.
    pub signature: u32,
    /// Its root, or 0.
    pub root: u32,
    /// Kind, type and operator.
    pub what: u64,
    /// Number of elements.
    pub count: u64,
    /// Hash of all earlier calls.
    pub past: u32,
    /// Hash of all changes of the heap before the call was made.
    pub blocks: u32,
}

impl Posted {
    /// Returns whether both are the same call, regardless of earlier calls.
    pub fn is_same_call(&self, other: &Self) -> bool {
        (self.what, self.count, self.root) == (other.what, other.count, other.root)
    }
}

/// Returns whether a posted description is of one call: while a rank posts it, part of it may
/// already be of the next call.
pub fn is_whole(said: &Posted) -> bool {
    let expected = signature(said.what, said.count, said.root) ^ said.past ^ said.blocks;
    said.signature == expected ^ said.number as u32
}

/// Returns the description of a call.
pub fn describe(what: u64, count: u64, root: u32) -> String {
    match what {
        ALLOC_WHAT => return format!("allocation of {count} bytes for each rank"),
        FREE_WHAT => return format!("release of the block at {count} of the heap"),
        SPLIT_WHAT => return format!("split into parts with heaps of {count} bytes"),
        _ => {}
    }
    let Some(kind) = Kind::from_code(what & 0xff & !VARIED_FLAG) else { return "nothing known".to_owned() };
    if kind == Kind::Barrier {
        return "barrier".to_owned();
    }
    let elements = Type::from_code((what >> 8 & 0xff) as u32).map_or("elements", Type::name);
    let operator = Operator::from_code((what >> 16 & 0xff) as u32);
    let operator = match operator {
        Some(operator) => format!(" by {}", operator.name()),
        None => String::new(),
    };
    let root = if kind.rooted() { format!(" with root {root}") } else { String::new() };
    if what & VARIED_FLAG != 0 {
        let block = count.checked_sub(1).map(|count| format!(" with a block of {count}"));
        return format!("{}v of {elements}{}{root}", kind.name(), block.unwrap_or_default());
    }
    format!("{} of {count} {elements}{operator}{root}", kind.name())
}

/// Returns the error of two ranks that made different calls, from the view of `ours`.
#[cold]
pub fn mismatch(rank: u32, theirs: &Posted, ours: &Posted) -> Error {
    let words = |said: &Posted| describe(said.what, said.count, said.root);
    let (mut there, mut here) = (words(theirs), words(ours));
    if theirs.number != ours.number {
        // The rank has continued since, or left a call out.
        there = format!("something else there (it is at its call {}, {there})", theirs.number);
        here = format!("{here} as its call {}", ours.number);
    } else if there == here {
        there += &modes(theirs.what);
        here += &modes(ours.what);
    }
    Error::Mismatch { rank, theirs: there, ours: here }
}

/// Returns the error for a rank that made neither of the two calls.
#[cold]
pub fn mismatch_of_others(of: (u32, &Posted), finder: (u32, &Posted), ours: &Posted) -> Error {
    let words = |said: &Posted| describe(said.what, said.count, said.root);
    Error::Mismatch {
        rank: of.0,
        theirs: format!(
            "{} where rank {} called {} (as its call {})",
            words(of.1),
            finder.0,
            words(finder.1),
            finder.1.number
        ),
        ours: format!("{} as its call {}", words(ours), ours.number),
    }
}

/// Returns the modes of synchronisation of a call in words.
fn modes(what: u64) -> String {
    let when = |code: u64| match code & 0xf {
        0 => "no rank",
        1 => "its own data",
        _ => "all",
    };
    format!(" that waits for {} before and {} after", when(what >> 24), when(what >> 28))
}

/// Checks whether a call can be made at all, on any rank.
pub fn check(call: &CollectiveCall, ranks: u32) -> Result<()> {
    if call.root >= ranks {
        return Err(Error::Argument(format!("root {} is not one of the {ranks} ranks", call.root)));
    }
    let elements =
        call.count.checked_mul(ranks as usize).and_then(|all| all.checked_mul(call.elements.size()));
    if elements.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::Argument(format!(
            "{} elements for each of {ranks} ranks are too many",
            call.count
        )));
    }
    if call.kind.combines() && call.kernel.is_none() {
        return Err(Error::Argument(format!("{} needs an operator", call.kind.name())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_call_is_never_accepted() {
        let of = |number: u64, what: u64, count: u64, root: u32, blocks: u32| {
            let past = number as u32 * 0x1234_5677;
            let signature = signature(what, count, root) ^ past ^ blocks ^ number as u32;
            Posted { number, signature, root, what, count, past, blocks }
        };
        let all = [of(7, 0x0102, 300, 0, 5 << 20), of(8, 0x0103, 300, 2, 5 << 20), of(9, 0x0103, 8, 2, 0)];
        assert!(all.iter().all(is_whole));
        for pair in all.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            // In the order in which it is written.
            let mut said = Posted { signature: after.signature, ..before };
            assert!(!is_whole(&said));
            said.root = after.root;
            assert!(!is_whole(&said));
            said.what = after.what;
            assert!(!is_whole(&said));
            said.count = after.count;
            assert!(!is_whole(&said));
            said.past = after.past;
            said.blocks = after.blocks;
            assert!(!is_whole(&said), "its number is the last's still");
        }
        // The same call again differs only by its number.
        let again = Posted { number: 8, ..all[0] };
        assert!(!is_whole(&again));
    }
}
