//! An area: the flags and stages of one team, as every rank sees them from its own mapping.
//!
//! **Unit.** For each rank [`CONTROL`] bytes of lines, and a stage of [`CELLS`] cells.
//!
//! **Idea.** All data move under *tickets*. A ticket is a number that all ranks of a team count alike: every round of every operation takes
//! the next one. Under a ticket each rank may put something into its own slot, raise the slot's flag, and wait for others' slots.
//! Slots are used in turn, so a rank may put something into one only when all have done with what lay there [`SLOTS`] tickets before;
//! each rank says in a flag of its own how far it has done with others' slots.
//!
//! **Properties.** Each line has one writer (the count of the central barrier has all, by addition). No address is in shared memory.

use crate::flag::{Flag, INLINE, LINE, Ticket};
use crate::sync;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of a rank, used in turn: in a model two, so that they come round soon, or five where more is under way at a time.
pub const SLOTS: usize = match (cfg!(trimtab_model), option_env!("TRIMTAB_MODEL_SLOTS")) {
    (true, None) => 2,
    (true, Some(_)) => 5,
    (false, _) => 8,
};
/// Rounds of a dissemination barrier of as many ranks as there may be.
pub const ROUNDS: usize = if cfg!(trimtab_model) { 2 } else { 10 };
/// Bytes of flags per rank.
pub const CONTROL: usize = if cfg!(trimtab_model) { size_of::<Lines>() } else { 32 * LINE };
/// Cells of a rank's stage: one for each slot.
pub const CELLS: usize = SLOTS;

const SPARE: usize = if cfg!(trimtab_model) { 0 } else { 3 };

/// The lines of a rank. The order is the segment's format.
#[repr(C)]
#[derive(Debug)]
pub struct Lines {
    /// What this rank does now.
    pub intent: Intent,
    /// Its slots.
    pub slots: [Flag; SLOTS],
    /// Up to which ticket it has done with others' slots.
    pub done: Flag,
    /// Its incoming signals of each round of a dissemination barrier.
    pub rounds: [Flag; ROUNDS],
    /// That it has come to a flat barrier; of rank 0, how many have come to a central one.
    pub arrived: Flag,
    /// Of rank 0: that all may go on.
    pub released: Flag,
    /// Of rank 0: whether the team is given up, and for what.
    pub alarm: Alarm,
    /// Which processors it may use, by number.
    pub mask: Mask,
    /// How many of them it may use at once.
    pub quota: Quota,
    /// What it found that others call, where it raised the alarm for that.
    pub finding: Finding,
    /// Whether it is at others' own memory just now: see [`crate::in_process`].
    pub touching: Touching,
    /// Where others may see whether it is the process that they take it for: see [`crate::cma`].
    pub mark: Mark,
    /// Whether a call of its has failed, so that what it shows is no more what it was.
    pub withdrawn: Touching,
    /// For what comes later.
    _spare: [Flag; SPARE],
}

#[cfg(not(trimtab_model))]
const _: () = assert!(size_of::<Lines>() == CONTROL && size_of::<Flag>() == LINE && INLINE == LINE - 16);

#[cfg(trimtab_model)]
impl Lines {
    /// Lines as they are before the first rank uses them, in a model.
    #[expect(clippy::new_without_default, reason = "lines of a program are zeroes in shared memory")]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            intent: Intent(Words::default()),
            slots: std::array::from_fn(|_| Flag::new()),
            done: Flag::new(),
            rounds: std::array::from_fn(|_| Flag::new()),
            arrived: Flag::new(),
            released: Flag::new(),
            alarm: Alarm(sync::AtomicU64::new(0)),
            mask: Mask(std::array::from_fn(|_| zero())),
            quota: Quota(zero()),
            finding: Finding { of: zero(), theirs: Words::default(), ours: Words::default() },
            touching: Touching(sync::AtomicU64::new(0)),
            mark: Mark { at: zero(), number: zero() },
            withdrawn: Touching(sync::AtomicU64::new(0)),
            _spare: [],
        }
    }
}

/// A set of up to 1,024 processors, as its rank told it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Mask([AtomicU64; Mask::WORDS]);

impl Mask {
    /// Words of a set.
    pub const WORDS: usize = 16;

    /// Tells.
    pub fn tell(&self, words: [u64; Self::WORDS]) {
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
    }

    /// What was told.
    pub fn told(&self) -> [u64; Self::WORDS] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Acquire))
    }
}

/// How many processors' time a rank may use, as it told it, after its mask: from here on both can be read.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Quota(AtomicU64);

impl Quota {
    /// Tells; `u32::MAX` where there is no bound.
    pub fn tell(&self, processors: u32) {
        self.0.store(u64::from(processors) + 1, Ordering::Release);
    }

    /// What was told; `None` before that.
    pub fn told(&self) -> Option<u32> {
        let told = self.0.load(Ordering::Acquire).checked_sub(1)?;
        Some(u32::try_from(told).unwrap_or(u32::MAX))
    }
}

/// Whether a rank is at others' own memory, or something else that it says of itself: one, else zero.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Touching(sync::AtomicU64);

impl Touching {
    /// Says so, before whatever this rank looks at next; or that it is over, after whatever it did.
    pub fn say(&self, so: bool) {
        self.0.store(u64::from(so), if so { sync::Ordering::SeqCst } else { sync::Ordering::Release });
    }

    /// What it says, after whatever this rank has seen before.
    pub fn heard(&self) -> bool {
        sync::full_fence();
        self.0.load(sync::Ordering::Acquire) != 0
    }
}

/// Where in a rank's own memory a number is, and which, told before its quota; zero where it shows nothing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Mark {
    at: AtomicU64,
    number: AtomicU64,
}

impl Mark {
    /// Tells.
    pub fn tell(&self, at: u64, number: u64) {
        self.at.store(at, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// What was told.
    pub fn told(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Acquire);
        (self.at.load(Ordering::Relaxed), number)
    }
}

/// Whether a team is given up: zero, or one more than who is the cause, with a cause's code above.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Alarm(sync::AtomicU64);

/// Why a team was given up.
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
    /// What was raised first, if anything.
    #[inline(always)]
    pub fn heard(&self) -> Option<(Cause, u32)> {
        let word = self.0.load(sync::Ordering::Relaxed);
        if word == 0 { None } else { Self::read(word) }
    }

    /// Whether anything was raised, after whatever this rank has said before.
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

    /// Raises the alarm, unless it is raised; what was first counts.
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

/// What a rank does now, for others that wait and wonder. It is written without a lock and may be read half old, half new, for long
/// where its writer has lost its processor: who wonders looks twice, some time apart, and believes only what has not changed and is of one call
/// ([`crate::call::is_whole`]).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Intent(Words);

/// What is said of an operation.
#[repr(C)]
#[derive(Debug, Default)]
struct Words {
    number: AtomicU64,
    signature: AtomicU32,
    root: AtomicU32,
    what: AtomicU64,
    count: AtomicU64,
}

/// A copy of an [`Intent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// Which operation of the team's, from 1.
    pub number: u64,
    /// The operation's signature.
    pub signature: u32,
    /// Its root, or 0.
    pub root: u32,
    /// Kind, type and operator.
    pub what: u64,
    /// Elements.
    pub count: u64,
}

impl Words {
    #[inline(always)]
    fn say(&self, said: Posted) {
        self.signature.store(said.signature, Ordering::Relaxed);
        self.root.store(said.root, Ordering::Relaxed);
        self.what.store(said.what, Ordering::Relaxed);
        self.count.store(said.count, Ordering::Relaxed);
        self.number.store(said.number, Ordering::Release);
    }

    fn heard(&self) -> Posted {
        Posted {
            number: self.number.load(Ordering::Acquire),
            signature: self.signature.load(Ordering::Relaxed),
            root: self.root.load(Ordering::Relaxed),
            what: self.what.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
        }
    }
}

impl Intent {
    /// Says what is begun.
    #[inline(always)]
    pub fn say(&self, said: Posted) {
        self.0.say(said);
    }

    /// What it says just now.
    pub fn heard(&self) -> Posted {
        self.0.heard()
    }
}

/// Two different calls, as the rank saw them that gave the team up for it: written once, before the alarm, so that all others can say too
/// what went wrong.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Finding {
    of: AtomicU64,
    theirs: Words,
    ours: Words,
}

impl Finding {
    /// Says what this rank does, and what another.
    pub fn say(&self, rank: u32, theirs: Posted, ours: Posted) {
        self.theirs.say(theirs);
        self.ours.say(ours);
        self.of.store(u64::from(rank) + 1, Ordering::Release);
    }

    /// Who was found to do what, and what the finder did; nothing if nothing was found.
    pub fn heard(&self) -> Option<(u32, Posted, Posted)> {
        let of = self.of.load(Ordering::Acquire).checked_sub(1)?;
        Some((u32::try_from(of).ok()?, self.theirs.heard(), self.ours.heard()))
    }
}

/// Where an area lies in this process.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    control: *mut u8,
    stage: *mut u8,
    ranks: u32,
    cell: usize,
}

impl Area {
    /// Bytes of an area's flags and stages.
    pub fn bytes(ranks: u32, cell: usize) -> usize {
        ranks as usize * (CONTROL + CELLS * cell)
    }

    /// # Safety
    /// Both must be mapped shared for as long as the area is used, aligned to [`LINE`], `ranks * CONTROL` and `ranks * CELLS * cell` bytes
    /// long, and zeroes before the first rank uses them.
    pub unsafe fn at(control: *mut u8, stage: *mut u8, ranks: u32, cell: usize) -> Self {
        Self { control, stage, ranks, cell }
    }

    /// How many ranks use it.
    #[inline(always)]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Bytes of a cell.
    #[inline(always)]
    pub fn cell_bytes(&self) -> usize {
        self.cell
    }

    /// A rank's lines.
    #[inline(always)]
    pub fn lines(&self, rank: u32) -> &Lines {
        debug_assert!(rank < self.ranks);
        // SAFETY: within the flags by the promise of `at`; all of it are atomics and payloads behind `UnsafeCell`.
        unsafe { &*self.control.add(rank as usize * CONTROL).cast::<Lines>() }
    }

    /// The slot of a ticket.
    #[inline(always)]
    pub fn slot(&self, rank: u32, ticket: Ticket) -> &Flag {
        &self.lines(rank).slots[ticket as usize % SLOTS]
    }

    /// The cell of a ticket.
    #[inline(always)]
    pub fn cell(&self, rank: u32, ticket: Ticket) -> *mut u8 {
        debug_assert!(rank < self.ranks);
        let at = (rank as usize * CELLS + ticket as usize % CELLS) * self.cell;
        // SAFETY: within the stage by the promise of `at`.
        unsafe { self.stage.add(at) }
    }

    /// All zeroes again: nobody may use it meanwhile.
    ///
    /// # Safety
    /// No rank is in an operation, and none begins one before it is told to.
    pub unsafe fn clear(&self) {
        // SAFETY: within the flags by the promise of `at`, and nobody else uses them by the caller's.
        unsafe { std::ptr::write_bytes(self.control, 0, self.ranks as usize * CONTROL) }
    }
}
