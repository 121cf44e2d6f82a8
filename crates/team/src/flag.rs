//! Flag: one line of shared memory that one rank raises and others wait for.
//!
//! **Unit.** A [`Flag`] is [`LINE_BYTES`] bytes: a 64-bit word, a count of sleepers, and room for a
//! small payload beside them. A rank that sees the flag raised has the payload in the same transfer
//! of a cache line.
//!
//! **Idea.** The word is a *ticket* (low half: it only grows, and wraps) and a *signature* (high
//! half: it identifies the call). Tickets are compared by signed distance, so wrapping is harmless
//! as long as no rank is 2^31 operations ahead, which the protocols make impossible. The kernel's
//! futex sleeps on the low half.
//!
//! **Ordering.** Raising is a sequentially consistent store followed by a load of the sleepers.
//! Going to sleep is a sequentially consistent addition to the sleepers followed by a load of the
//! word. At least one of the two sees the other, so no wake-up is lost (Dekker). The store releases
//! all earlier writes, and the load that sees the store acquires them.
//!
//! **Properties.** Only one rank raises a flag at any time (which one may change, ordered by other
//! flags). A rank that dies leaves no lock held. Checked by models in `tests/models.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a flag: two cache lines, since CPUs fetch lines in pairs.
pub const LINE_BYTES: usize = 128;
/// Bytes of payload beside the flag.
pub const INLINE_BYTES: usize = LINE_BYTES - 16;

/// The low half of a flag's word.
pub type Ticket = u32;

/// One line of shared memory with a ticket, a signature, a count of sleepers and a payload.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Flag {
    word: AtomicU64,
    sleepers: AtomicU32,
    /// Reserved for the owner: the rank that it waits for, for diagrams of hangs.
    _spare: AtomicU32,
    #[cfg(trimtab_model)]
    kernel: crate::sync::model::Futex,
    #[cfg(trimtab_model)]
    tracked: loom::cell::UnsafeCell<()>,
    payload: std::cell::UnsafeCell<[u8; INLINE_BYTES]>,
}

// SAFETY: the atomics are `Sync`; the payload is only accessed through raw pointers under the
// protocol that the module states.
unsafe impl Sync for Flag {}

/// Returns whether `seen` is at or beyond `wanted`.
#[inline(always)]
pub fn reached(seen: Ticket, wanted: Ticket) -> bool {
    seen.wrapping_sub(wanted) as i32 >= 0
}

impl Flag {
    /// Returns the word as it is.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Returns whether the flag has reached the ticket.
    #[inline(always)]
    pub fn is(&self, wanted: Ticket) -> bool {
        reached(self.load() as Ticket, wanted)
    }

    /// Raises the flag to a ticket. Returns true if a thread sleeps on it and must be woken.
    #[inline(always)]
    #[must_use = "the sleepers must be woken"]
    pub fn raise(&self, ticket: Ticket, signature: u32) -> bool {
        self.word.store(u64::from(signature) << 32 | u64::from(ticket), Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Raises a flag on which no thread ever sleeps.
    #[inline(always)]
    pub fn raise_unslept(&self, ticket: Ticket, signature: u32) {
        self.word.store(u64::from(signature) << 32 | u64::from(ticket), Ordering::Release);
    }

    /// Adds one to the ticket and returns the previous value. For counts that several ranks raise.
    #[inline(always)]
    pub fn add(&self) -> Ticket {
        self.word.fetch_add(1, Ordering::SeqCst) as Ticket
    }

    /// Registers the caller as a sleeper: from now on a rank that raises the flag wakes it. The
    /// word must be read again before sleeping.
    pub fn add_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes [`Self::add_sleeper`].
    pub fn remove_sleeper(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Reads the word again, ordered after [`Self::add_sleeper`].
    pub fn reload(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    /// Returns the address of the half of the word that the kernel reads.
    #[cfg(not(trimtab_model))]
    pub fn futex(&self) -> *const u32 {
        let half = std::ptr::from_ref(&self.word).cast::<u32>();
        // The ticket is the low half: the second in memory on a big-endian machine.
        if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
    }

    /// Returns the address of the payload.
    #[inline(always)]
    pub fn payload(&self) -> *mut u8 {
        self.payload.get().cast()
    }
}

#[cfg(trimtab_model)]
impl Flag {
    /// Returns a flag that no rank has raised, in a model.
    #[expect(clippy::new_without_default, reason = "flags of a program are zeroes in shared memory")]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            _spare: AtomicU32::new(0),
            kernel: crate::sync::model::Futex::new(),
            tracked: loom::cell::UnsafeCell::new(()),
            payload: std::cell::UnsafeCell::new([0; INLINE_BYTES]),
        }
    }

    /// Lets the model see accesses to the payload. The flag must not move.
    pub fn track(&self) {
        crate::sync::model::track(self.payload(), INLINE_BYTES, &raw const self.tracked);
    }

    /// Sleeps like the kernel's futex: returns at once if the word differs from `seen`.
    pub(crate) fn sleep_while(&self, seen: Ticket) {
        use crate::sync::model::{Broken, broken};
        self.kernel.wait(|| broken(Broken::NotReloaded) || self.reload() as Ticket == seen);
    }

    /// Wakes like the kernel's futex.
    pub(crate) fn wake(&self) {
        self.kernel.wake();
    }
}
