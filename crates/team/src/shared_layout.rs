//! Shared layout: the flags and stages of one team, as every rank sees them in its own mapping.
//!
//! **Unit.** For each rank [`CONTROL_BYTES`] bytes of flag lines, and a stage of [`CELL_COUNT`]
//! cells.
//!
//! **Idea.** Each round of data movement has a *ticket*. A ticket is a number that all ranks of a
//! team count in the same way: every round of every operation takes the next one. For a ticket each
//! rank may put data into its own slot, raise the slot's flag, and wait for the slots of others.
//! Slots are used in turn. A rank may therefore reuse a slot only when all ranks have finished with
//! its data of [`SLOT_COUNT`] tickets before. Each rank announces in its own flag the ticket up to
//! which it has finished with the slots of others.
//!
//! **Properties.** Each line has one writer (only the count of the central barrier is written by
//! all ranks, by atomic addition). No address is in shared memory.

use crate::call::Posted;
use crate::call_log::{BLOCKS_KEPT, CALLS_KEPT, CallLog};
use crate::flag::{Flag, INLINE_BYTES, LINE_BYTES, Ticket};
use crate::sync;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of a rank, used in turn. A model has two, so that they are reused soon, or five if more is
/// under way at a time.
pub const SLOT_COUNT: usize = match (cfg!(trimtab_model), option_env!("TRIMTAB_MODEL_SLOTS")) {
    (true, None) => 2,
    (true, Some(_)) => 5,
    (false, _) => 8,
};
/// Rounds of a dissemination barrier of the largest possible team.
pub const ROUNDS_MAX: usize = if cfg!(trimtab_model) { 2 } else { 10 };
/// Bytes of flags per rank.
pub const CONTROL_BYTES: usize = if cfg!(trimtab_model) { size_of::<Lines>() } else { 32 * LINE_BYTES };
/// Cells of a rank's stage: one for each slot.
pub const CELL_COUNT: usize = SLOT_COUNT;

/// The lines of a rank. The order is the segment's format.
#[repr(C)]
#[derive(Debug)]
pub struct Lines {
    /// The call that this rank makes now.
    pub intent: Intent,
    /// Its slots.
    pub slots: [Flag; SLOT_COUNT],
    /// Ticket up to which it has finished with the slots of others.
    pub done: Flag,
    /// Its incoming signals of each round of a dissemination barrier.
    pub rounds: [Flag; ROUNDS_MAX],
    /// Its arrival at a flat barrier. Of rank 0: the count of arrivals at a central barrier.
    pub arrived: Flag,
    /// Of rank 0: all ranks may continue.
    pub released: Flag,
    /// Of rank 0: whether the team is given up, and why.
    pub alarm: Alarm,
    /// CPUs that it may use, by number.
    pub mask: Mask,
    /// Number of these CPUs that its quota permits at a time.
    pub quota: Quota,
    /// The difference between calls that it found, if it raised the alarm for that.
    pub finding: CallMismatch,
    /// Whether it accesses other ranks' own memory just now: see [`crate::in_process`].
    pub touching: Touching,
    /// Address and number by which other ranks verify that its process is the expected one: see
    /// [`crate::cma`].
    pub mark: PublishedMark,
    /// Whether one of its calls has failed, so that its shown buffers may have changed.
    pub withdrawn: Touching,
    /// The calls that it began last.
    pub calls: CallLog<CALLS_KEPT>,
    /// Its last changes of the heap.
    pub blocks: CallLog<BLOCKS_KEPT>,
}

#[cfg(not(trimtab_model))]
const _: () = assert!(
    size_of::<Lines>() == CONTROL_BYTES && size_of::<Flag>() == LINE_BYTES && INLINE_BYTES == LINE_BYTES - 16
);

#[cfg(trimtab_model)]
impl Lines {
    /// Returns lines as they are before the first rank uses them, in a model.
    #[expect(clippy::new_without_default, reason = "lines of a program are zeroes in shared memory")]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            intent: Intent { words: Words::default(), waits: zero() },
            slots: std::array::from_fn(|_| Flag::new()),
            done: Flag::new(),
            rounds: std::array::from_fn(|_| Flag::new()),
            arrived: Flag::new(),
            released: Flag::new(),
            alarm: Alarm(sync::AtomicU64::new(0)),
            mask: Mask(std::array::from_fn(|_| zero())),
            quota: Quota { quota: zero(), cpu: zero() },
            finding: CallMismatch { of: zero(), theirs: Words::default(), ours: Words::default() },
            touching: Touching(sync::AtomicU64::new(0)),
            mark: PublishedMark { at: zero(), number: zero() },
            withdrawn: Touching(sync::AtomicU64::new(0)),
            calls: CallLog::default(),
            blocks: CallLog::default(),
        }
    }
}

/// A set of up to 1,024 CPUs, as its rank published it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Mask([AtomicU64; Mask::WORD_COUNT]);

impl Mask {
    /// Words of a set.
    pub const WORD_COUNT: usize = 16;

    /// Publishes the set.
    pub fn publish(&self, words: [u64; Self::WORD_COUNT]) {
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
    }

    /// Returns the published set.
    pub fn published(&self) -> [u64; Self::WORD_COUNT] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Acquire))
    }
}

/// CPU quota of a rank, in CPUs, and the CPU on which it runs. A rank publishes the quota after its
/// mask: from then on both can be read.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Quota {
    quota: AtomicU64,
    /// The CPU plus one; zero if it is not known.
    cpu: AtomicU64,
}

impl Quota {
    /// Publishes the quota; `u32::MAX` without a bound.
    pub fn publish(&self, processors: u32) {
        self.quota.store(u64::from(processors) + 1, Ordering::Release);
    }

    /// Returns the published quota; `None` before it is published.
    pub fn published(&self) -> Option<u32> {
        let told = self.quota.load(Ordering::Acquire).checked_sub(1)?;
        Some(u32::try_from(told).unwrap_or(u32::MAX))
    }

    /// Publishes the CPU on which the rank runs.
    pub fn publish_cpu(&self, cpu: Option<u32>) {
        self.cpu.store(cpu.map_or(0, |cpu| u64::from(cpu) + 1), Ordering::Relaxed);
    }

    /// Returns the CPU that was published last.
    #[inline(always)]
    pub fn cpu(&self) -> Option<u32> {
        u32::try_from(self.cpu.load(Ordering::Relaxed).checked_sub(1)?).ok()
    }
}

/// A boolean that a rank publishes of itself, for instance that it accesses other ranks' own
/// memory: one for true, else zero.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Touching(sync::AtomicU64);

impl Touching {
    /// Publishes the value: `true` before any later read of this rank, `false` after all its
    /// earlier accesses.
    pub fn post(&self, so: bool) {
        self.0.store(u64::from(so), if so { sync::Ordering::SeqCst } else { sync::Ordering::Release });
    }

    /// Returns the published value, read after all earlier reads of this rank.
    pub fn current(&self) -> bool {
        sync::full_fence();
        self.0.load(sync::Ordering::Acquire) != 0
    }
}

/// Address of a number in a rank's own memory, and the number. Published before the quota; zero if
/// the rank has none.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct PublishedMark {
    at: AtomicU64,
    number: AtomicU64,
}

impl PublishedMark {
    /// Publishes the address and the number.
    pub fn publish(&self, at: u64, number: u64) {
        self.at.store(at, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// Returns the published address and number.
    pub fn published(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Acquire);
        (self.at.load(Ordering::Relaxed), number)
    }
}

/// Whether a team is given up: zero, or the number of the rank that is the cause plus one, with the
/// cause's code in the upper half.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Alarm(sync::AtomicU64);

/// Reason for which a team was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A rank has died.
    Died,
    /// A rank has left while others waited for it.
    Left,
    /// A rank found that calls differ.
    Mismatch,
    /// A rank waited too long.
    Timeout,
}

impl Alarm {
    /// Returns the alarm that was raised first, if any.
    #[inline(always)]
    pub fn current(&self) -> Option<(Cause, u32)> {
        let word = self.0.load(sync::Ordering::Relaxed);
        if word == 0 { None } else { Self::read(word) }
    }

    /// Returns whether an alarm was raised, read after everything that this rank published before.
    pub fn is_raised(&self) -> bool {
        self.0.load(sync::Ordering::SeqCst) != 0
    }

    #[cold]
    fn read(word: u64) -> Option<(Cause, u32)> {
        let cause = match word >> 32 {
            1 => Cause::Died,
            2 => Cause::Left,
            4 => Cause::Timeout,
            _ => Cause::Mismatch,
        };
        Some((cause, (word as u32).wrapping_sub(1)))
    }

    /// Raises the alarm, unless one is raised already. Returns the alarm that was first.
    pub fn raise(&self, cause: Cause, rank: u32) -> (Cause, u32) {
        let code = match cause {
            Cause::Died => 1,
            Cause::Left => 2,
            Cause::Mismatch => 3,
            Cause::Timeout => 4,
        };
        let word = code << 32 | u64::from(rank.wrapping_add(1));
        match self.0.compare_exchange(0, word, sync::Ordering::SeqCst, sync::Ordering::SeqCst) {
            Ok(_) => (cause, rank),
            Err(first) => Self::read(first).unwrap_or((cause, rank)),
        }
    }
}

/// The call that a rank makes now, for others that wait for it. It is written without a lock. A
/// reader may see half of an old and half of a new description, for a long time if the writer has
/// lost its CPU. Therefore a reader reads twice, some time apart, and trusts only a description
/// that has not changed and is of one call ([`crate::call::is_whole`]).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Intent {
    words: Words,
    /// The rank for which this rank waits, plus one; zero if it does not wait.
    waits: AtomicU64,
}

/// The description of an operation, in shared memory.
#[repr(C)]
#[derive(Debug, Default)]
struct Words {
    number: AtomicU64,
    signature: AtomicU32,
    root: AtomicU32,
    what: AtomicU64,
    count: AtomicU64,
    past: AtomicU32,
    blocks: AtomicU32,
}

impl Words {
    #[inline(always)]
    fn post(&self, said: Posted) {
        self.signature.store(said.signature, Ordering::Relaxed);
        self.root.store(said.root, Ordering::Relaxed);
        self.what.store(said.what, Ordering::Relaxed);
        self.count.store(said.count, Ordering::Relaxed);
        self.past.store(said.past, Ordering::Relaxed);
        self.blocks.store(said.blocks, Ordering::Relaxed);
        self.number.store(said.number, Ordering::Release);
    }

    fn current(&self) -> Posted {
        Posted {
            number: self.number.load(Ordering::Acquire),
            signature: self.signature.load(Ordering::Relaxed),
            root: self.root.load(Ordering::Relaxed),
            what: self.what.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
            past: self.past.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }
}

impl Intent {
    /// Publishes the operation that begins.
    #[inline(always)]
    pub fn post(&self, said: Posted) {
        self.words.post(said);
    }

    /// Returns the description as it is now.
    pub fn current(&self) -> Posted {
        self.words.current()
    }

    /// Publishes the rank for which this rank waits, for reports; `None` if it no longer waits.
    pub fn post_wait(&self, of: Option<u32>) {
        self.waits.store(of.map_or(0, |of| u64::from(of) + 1), Ordering::Relaxed);
    }

    /// Returns the rank for which this rank waits, or [`crate::endpoint::ALL_RANKS`]; `None` if it
    /// does not wait, or for a started call.
    pub fn waits_for(&self) -> Option<u32> {
        u32::try_from(self.waits.load(Ordering::Relaxed).checked_sub(1)?).ok()
    }
}

/// Two different calls, as seen by the rank that gave the team up for them. Written once, before
/// the alarm, so that all other ranks can report the same difference.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CallMismatch {
    of: AtomicU64,
    theirs: Words,
    ours: Words,
}

impl CallMismatch {
    /// Publishes this rank's call and the other rank's.
    pub fn post(&self, rank: u32, theirs: Posted, ours: Posted) {
        self.theirs.post(theirs);
        self.ours.post(ours);
        self.of.store(u64::from(rank) + 1, Ordering::Release);
    }

    /// Returns the rank with the differing call, its call and the finder's call; `None` if no
    /// difference was found.
    pub fn current(&self) -> Option<(u32, Posted, Posted)> {
        let of = self.of.load(Ordering::Acquire).checked_sub(1)?;
        Some((u32::try_from(of).ok()?, self.theirs.current(), self.ours.current()))
    }
}

/// Location of the shared layout in this process.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    control: *mut u8,
    stage: *mut u8,
    ranks: u32,
    cell: usize,
}

impl Area {
    /// Returns the bytes of flags and stages together.
    pub fn bytes(ranks: u32, cell: usize) -> usize {
        ranks as usize * (CONTROL_BYTES + CELL_COUNT * cell)
    }

    /// # Safety
    /// Both must be mapped shared for as long as the area is used, aligned to [`LINE_BYTES`],
    /// `ranks * CONTROL_BYTES` and `ranks * CELL_COUNT * cell` bytes long, and zeroes before the
    /// first rank uses them.
    pub unsafe fn at(control: *mut u8, stage: *mut u8, ranks: u32, cell: usize) -> Self {
        Self { control, stage, ranks, cell }
    }

    /// Returns the number of ranks that use it.
    #[inline(always)]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the address of the flags in this process.
    pub fn address(&self) -> *const u8 {
        self.control
    }

    /// Returns the bytes of a cell.
    #[inline(always)]
    pub fn cell_bytes(&self) -> usize {
        self.cell
    }

    /// Returns a rank's lines.
    #[inline(always)]
    pub fn lines(&self, rank: u32) -> &Lines {
        debug_assert!(rank < self.ranks);
        // SAFETY: within the flags by the promise of `at`; all fields are atomics, or payloads
        // behind `UnsafeCell`.
        unsafe { &*self.control.add(rank as usize * CONTROL_BYTES).cast::<Lines>() }
    }

    /// Returns a rank's slot of a ticket.
    #[inline(always)]
    pub fn slot(&self, rank: u32, ticket: Ticket) -> &Flag {
        &self.lines(rank).slots[ticket as usize % SLOT_COUNT]
    }

    /// Returns a rank's cell of a ticket.
    #[inline(always)]
    pub fn cell(&self, rank: u32, ticket: Ticket) -> *mut u8 {
        debug_assert!(rank < self.ranks);
        let at = (rank as usize * CELL_COUNT + ticket as usize % CELL_COUNT) * self.cell;
        // SAFETY: within the stage by the promise of `at`.
        unsafe { self.stage.add(at) }
    }

    /// Sets all flags to zero again.
    ///
    /// # Safety
    /// No rank is in an operation, and none begins one before the caller allows it.
    pub unsafe fn clear(&self) {
        // SAFETY: within the flags by the promise of `at`; no other rank uses them, by the caller's
        // promise.
        unsafe { std::ptr::write_bytes(self.control, 0, self.ranks as usize * CONTROL_BYTES) }
    }
}
