//! Assignment of threads to slots.
//!
//! A *turn* is a position in the order in which slots are given out: slots 1, 2, .. and slot 0
//! last. The initial thread floats inside the mask. It leaves a slot that a new thread gets
//! ([`initial`](crate::initial)), and while the other threads run on their slots, the scheduler
//! moves it to the free slot. So slot 0 is taken only if no other is free. A thread takes the
//! lowest free turn and gives it back when it ends in any way: the destructor of a thread-specific
//! value runs on return, on `pthread_exit` and on cancellation.
//!
//! All state is static and atomic; nothing is allocated, nothing waits. The function that a new
//! thread will run is stored in its turn's entry, which belongs to that thread from before its
//! creation until its end.

use crate::holders::HOLDERS;
use crate::plan::SLOTS_MAX;
use libc::{c_void, pid_t, pthread_key_t};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

const WORD_BITS: usize = u64::BITS as usize;

/// Turns of this process.
pub(crate) static TURNS: Turns = Turns::new();

/// Returns the slot of a turn in a plan of `slots` slots.
pub(crate) fn slot_of(turn: usize, slots: usize) -> usize {
    (turn + 1) % slots.max(1)
}

/// Set of turns, with the function that runs on each. A taken turn is bit `turn % 64` of word
/// `turn / 64`.
pub(crate) struct Turns {
    taken: [AtomicU64; SLOTS_MAX / WORD_BITS],
    starts: [ThreadEntry; SLOTS_MAX],
}

/// Function and argument that a thread is to run.
struct ThreadEntry {
    routine: AtomicPtr<c_void>,
    argument: AtomicPtr<c_void>,
}

impl ThreadEntry {
    const fn new() -> Self {
        Self { routine: AtomicPtr::new(null_mut()), argument: AtomicPtr::new(null_mut()) }
    }
}

impl Turns {
    const fn new() -> Self {
        Self {
            taken: [const { AtomicU64::new(0) }; SLOTS_MAX / WORD_BITS],
            starts: [const { ThreadEntry::new() }; SLOTS_MAX],
        }
    }

    /// Takes the lowest free turn below `limit`. Returns `None` if all are taken.
    pub(crate) fn take(&self, limit: usize) -> Option<usize> {
        for (at, word) in self.taken.iter().enumerate() {
            let open = match limit.saturating_sub(at * WORD_BITS) {
                0 => return None,
                open if open < WORD_BITS => (1 << open) - 1,
                _ => u64::MAX,
            };
            loop {
                let free = !word.load(Relaxed) & open;
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                if word.fetch_or(bit, Acquire) & bit == 0 {
                    return Some(at * WORD_BITS + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    /// Returns whether a turn is taken.
    pub(crate) fn is_taken(&self, turn: usize) -> bool {
        self.taken.get(turn / WORD_BITS).is_some_and(|word| word.load(SeqCst) >> (turn % WORD_BITS) & 1 == 1)
    }

    /// Gives a turn back.
    pub(crate) fn give_back(&self, turn: usize) {
        if let Some(word) = self.taken.get(turn / WORD_BITS) {
            word.fetch_and(!(1 << (turn % WORD_BITS)), Release);
        }
    }

    /// Stores the function and argument for the thread of a taken turn. Thread creation publishes
    /// them.
    pub(crate) fn write(&self, turn: usize, routine: *const c_void, argument: *mut c_void) {
        if let Some(start) = self.starts.get(turn) {
            start.routine.store(routine.cast_mut(), Relaxed);
            start.argument.store(argument, Relaxed);
        }
    }

    /// Returns the function and argument for the thread of this turn.
    pub(crate) fn read(&self, turn: usize) -> Option<(*mut c_void, *mut c_void)> {
        self.starts.get(turn).map(|start| (start.routine.load(Relaxed), start.argument.load(Relaxed)))
    }
}

/// Key of the thread-specific value that holds a thread's turn plus one. The key itself is stored
/// plus one, 0 before it is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes sure that turns can be given back. A process can run out of keys; without a key no slot is
/// given out.
pub(crate) fn can_be_given_back() -> bool {
    if KEY.load(Acquire) != 0 {
        return true;
    }
    let mut key: pthread_key_t = 0;
    // SAFETY: `key` is ours to write; the destructor lives as long as the process, the library
    // being `nodelete`.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } != 0 {
        return false;
    }
    if KEY.compare_exchange(0, key.wrapping_add(1), AcqRel, Acquire).is_err() {
        // SAFETY: another thread was faster; no other code has seen this key.
        unsafe { libc::pthread_key_delete(key) };
    }
    true
}

/// Ties a turn to the calling thread, so that the turn is given back when the thread ends.
pub(crate) fn settle(turn: usize) {
    // SAFETY: neither call has preconditions.
    let (thread, task) = unsafe { (libc::pthread_self(), libc::syscall(libc::SYS_gettid)) };
    HOLDERS.enter(turn, thread, task as pid_t);
    set_value(turn + 1);
}

/// Unties the calling thread from its turn, for a process without turns.
pub(crate) fn unsettle() {
    set_value(0);
}

/// Returns the turn of the calling thread.
pub(crate) fn of_this_thread() -> Option<usize> {
    let key = KEY.load(Acquire).checked_sub(1)?;
    // SAFETY: the key was made and is never deleted.
    let value = unsafe { libc::pthread_getspecific(key) };
    value.addr().checked_sub(1)
}

fn set_value(value: usize) {
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        // A failure leaves the turn taken permanently, and a later thread floats. That is better
        // than two threads on one slot. SAFETY: the key was made and is never deleted; the value is
        // a number, never followed.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(value)) };
    }
}

/// Runs when a thread ends.
extern "C" fn ended(value: *mut c_void) {
    if let Some(turn) = value.addr().checked_sub(1) {
        HOLDERS.leave(turn);
        TURNS.give_back(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn slot_0_is_the_last_turn() {
        assert_eq!([0, 1, 2, 3].map(|turn| slot_of(turn, 4)), [1, 2, 3, 0]);
        assert_eq!(slot_of(0, 1), 0);
        assert_eq!(slot_of(0, 0), 0, "no slots, no division");
    }

    #[test]
    fn the_lowest_free_turn_is_taken() {
        static TURNS: Turns = Turns::new();
        assert_eq!(std::array::from_fn(|_| TURNS.take(3)), [Some(0), Some(1), Some(2), None]);
        TURNS.give_back(1);
        assert_eq!((TURNS.take(3), TURNS.take(3)), (Some(1), None));
        assert_eq!(TURNS.take(0), None);
    }

    #[test]
    fn the_last_turn_is_as_good_as_the_first() {
        static TURNS: Turns = Turns::new();
        assert!((0..SLOTS_MAX).all(|turn| TURNS.take(SLOTS_MAX) == Some(turn)));
        assert_eq!(TURNS.take(SLOTS_MAX), None);
        assert_eq!(TURNS.take(usize::MAX), None);
        TURNS.give_back(SLOTS_MAX - 1);
        TURNS.give_back(usize::MAX);
        assert_eq!(TURNS.take(SLOTS_MAX), Some(SLOTS_MAX - 1));
    }

    #[test]
    fn no_turn_is_given_to_two_threads() {
        static TURNS: Turns = Turns::new();
        static ON: [AtomicUsize; 70] = [const { AtomicUsize::new(0) }; 70];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(turn) = TURNS.take(ON.len()) else { continue };
                        assert_eq!(ON[turn].fetch_add(1, SeqCst), 0);
                        ON[turn].fetch_sub(1, SeqCst);
                        TURNS.give_back(turn);
                    }
                });
            }
        });
        assert_eq!(TURNS.take(ON.len()), Some(0));
    }

    #[test]
    fn a_thread_gives_its_turn_back_when_it_ends() {
        assert!(can_be_given_back());
        assert_eq!(of_this_thread(), None);
        let turn = TURNS.take(5).unwrap();
        std::thread::spawn(move || {
            settle(turn);
            assert_eq!(of_this_thread(), Some(turn));
        })
        .join()
        .unwrap();
        assert_eq!(TURNS.take(5), Some(turn));
        TURNS.give_back(turn);
    }
}
