//! A flag: one line of shared memory that one rank raises and others wait for.
//!
//! **Unit.** A [`Flag`] is [`LINE`] bytes: a 64-bit word, a count of sleepers, and room for a small payload beside them, so that a
//! rank that sees the flag has the payload in the same transfer of a line.
//!
//! **Idea.** The word is a *ticket* (low half: it only grows, and wraps) and a *signature* (high half: what is being done). Tickets
//! are compared by signed distance, so wrapping is harmless as long as nobody is two thousand million operations ahead, which the
//! protocols make impossible. The low half is what the kernel's futex sleeps on.
//!
//! **Ordering.** Raising is a sequentially consistent store followed by a load of the sleepers; going to sleep is a sequentially consistent
//! addition to the sleepers followed by a load of the word. One of the two sees the other, so no wake-up is lost (Dekker). The store
//! releases what was written before it, the load that sees it acquires it.
//!
//! **Properties.** Only one rank raises a flag at any time (which one may change, ordered by other flags); a rank that dies holds nothing.
//! Checked by models in `tests/models.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a flag: two cache lines, since processors fetch lines in pairs.
pub const LINE: usize = 128;
/// Bytes of payload beside the flag.
pub const INLINE: usize = LINE - 16;

/// The low half of a flag's word.
pub type Ticket = u32;

/// See the module.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Flag {
    word: AtomicU64,
    sleepers: AtomicU32,
    /// For the owner's use: by whom it waits, for pictures of what hangs.
    _spare: AtomicU32,
    #[cfg(trimtab_model)]
    kernel: crate::sync::model::Futex,
    #[cfg(trimtab_model)]
    tracked: loom::cell::UnsafeCell<()>,
    payload: std::cell::UnsafeCell<[u8; INLINE]>,
}

// SAFETY: the atomics are; the payload is only touched through raw pointers under the protocol that the module states.
unsafe impl Sync for Flag {}

/// Whether `seen` is at or beyond `wanted`.
#[inline(always)]
pub fn reached(seen: Ticket, wanted: Ticket) -> bool {
    seen.wrapping_sub(wanted) as i32 >= 0
}

impl Flag {
    /// The word as it is.
    #[inline(always)]
    pub fn look(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Whether the ticket has come.
    #[inline(always)]
    pub fn is(&self, wanted: Ticket) -> bool {
        reached(self.look() as Ticket, wanted)
    }

    /// Raises the flag to a ticket; true if somebody sleeps and must be woken.
    #[inline(always)]
    #[must_use = "who sleeps must be woken"]
    pub fn raise(&self, ticket: Ticket, signature: u32) -> bool {
        self.word.store(u64::from(signature) << 32 | u64::from(ticket), Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Raises where nobody ever sleeps.
    #[inline(always)]
    pub fn raise_unslept(&self, ticket: Ticket, signature: u32) {
        self.word.store(u64::from(signature) << 32 | u64::from(ticket), Ordering::Release);
    }

    /// Adds one to the ticket and returns what it was: for counts that several ranks raise.
    #[inline(always)]
    pub fn add(&self) -> Ticket {
        self.word.fetch_add(1, Ordering::SeqCst) as Ticket
    }

    /// From here on whoever raises the flag wakes us. The word must be looked at again before sleeping.
    pub fn lie_down(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// The opposite of [`Self::lie_down`].
    pub fn get_up(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The word again, ordered after [`Self::lie_down`].
    pub fn look_again(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    /// The half of the word that the kernel looks at.
    #[cfg(not(trimtab_model))]
    pub fn futex(&self) -> *const u32 {
        let half = std::ptr::from_ref(&self.word).cast::<u32>();
        // The ticket is the low half: the second in memory where the most significant byte is first.
        if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
    }

    /// Where the payload is.
    #[inline(always)]
    pub fn payload(&self) -> *mut u8 {
        self.payload.get().cast()
    }
}

#[cfg(trimtab_model)]
impl Flag {
    /// A flag that nobody has raised, in a model.
    #[expect(clippy::new_without_default, reason = "flags of a program are zeroes in shared memory")]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            _spare: AtomicU32::new(0),
            kernel: crate::sync::model::Futex::new(),
            tracked: loom::cell::UnsafeCell::new(()),
            payload: std::cell::UnsafeCell::new([0; INLINE]),
        }
    }

    /// Lets the model see accesses to the payload. The flag must stay where it is.
    pub fn track(&self) {
        crate::sync::model::track(self.payload(), INLINE, &raw const self.tracked);
    }

    /// The kernel's sleep, which ends at once if the word is no more what was seen.
    pub(crate) fn sleep_while(&self, seen: Ticket) {
        use crate::sync::model::{Broken, broken};
        self.kernel.wait(|| broken(Broken::NotLookedAgain) || self.look_again() as Ticket == seen);
    }

    /// The kernel's waking.
    pub(crate) fn wake(&self) {
        self.kernel.wake();
    }
}
