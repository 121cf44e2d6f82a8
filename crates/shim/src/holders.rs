//! Threads that have turns ([`slots`](crate::slots)), and whether the program has set the mask of
//! each.
//!
//! A thread on its slot that reads its mask gets the plan's mask ([`narrowed`](crate::narrowed)),
//! until the program sets a mask for it. The kernel does not store which code set a mask, and a
//! program may set exactly the slot: a pool that binds its worker 1 to CPU 1. So the calls of the C
//! library that set masks are recorded here. They name a thread by its `pthread_t` or its kernel
//! id, and any thread may make them for any other.
//!
//! A thread enters its names as its first action. Its creator may set its mask before that, and
//! cannot enter the names instead: the memory into which `pthread_create` wrote the `pthread_t` may
//! be freed by the time the call returns. Such a call is kept in a short list, in which the new
//! thread searches for itself.
//!
//! All state is static and atomic; nothing is allocated, nothing waits.

use crate::plan::SLOTS_MAX;
use libc::{pid_t, pthread_t};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

/// Holders of this process's turns.
pub(crate) static HOLDERS: Holders = Holders::new();

/// Bound of the stored threads whose mask was set before they ran. A thread beyond the bound gets
/// the plan's mask as the answer although the program has bound it to its slot.
const EARLY_MAX: usize = 64;

/// Mark in a name: the program has set this thread's mask. The bit is free, since a `pthread_t` is
/// an aligned address.
const SET_MARK: usize = 1;
const NO_THREAD: usize = 0;

/// Threads on turns, one entry for each turn.
pub(crate) struct Holders {
    /// The `pthread_t`, with [`SET_MARK`]; [`NO_THREAD`] while no thread on the turn runs.
    names: [AtomicUsize; SLOTS_MAX],
    /// The kernel's id, 0 while no thread on the turn runs.
    tasks: [AtomicI32; SLOTS_MAX],
    /// Threads that had no entry when their mask was set.
    early: [AtomicUsize; EARLY_MAX],
}

impl Holders {
    const fn new() -> Self {
        Self {
            names: [const { AtomicUsize::new(NO_THREAD) }; SLOTS_MAX],
            tasks: [const { AtomicI32::new(0) }; SLOTS_MAX],
            early: [const { AtomicUsize::new(NO_THREAD) }; EARLY_MAX],
        }
    }

    /// Enters the calling thread as the holder of a turn.
    pub(crate) fn enter(&self, turn: usize, thread: pthread_t, task: pid_t) {
        let (Some(name), Some(id)) = (self.names.get(turn), self.tasks.get(turn)) else { return };
        let thread = thread as usize;
        name.store(thread, SeqCst);
        id.store(task, Release);
        // After the entry, since `note_thread` writes the early list before it reads the entries
        // again: one of the two sees the other.
        if self.forget_early(thread) {
            name.store(thread | SET_MARK, Release);
        }
    }

    /// Clears the entry of a turn whose holder ends.
    pub(crate) fn leave(&self, turn: usize) {
        if let (Some(name), Some(id)) = (self.names.get(turn), self.tasks.get(turn)) {
            id.store(0, Release);
            name.store(NO_THREAD, Release);
        }
    }

    /// Returns whether the program has set the mask of a turn's holder.
    pub(crate) fn is_set(&self, turn: usize) -> bool {
        self.names.get(turn).is_some_and(|name| name.load(Acquire) & SET_MARK != 0)
    }

    /// Records that the program has set the mask of a turn's holder.
    pub(crate) fn note_turn(&self, turn: usize) {
        if let Some(name) = self.names.get(turn) {
            mark(name, |_| true);
        }
    }

    /// Records that the program has set a thread's mask, by the kernel's id. `turns`: number of
    /// turns.
    pub(crate) fn note_task(&self, task: pid_t, turns: usize) {
        let mut entries = self.names.iter().zip(&self.tasks).take(turns);
        if let Some((name, _)) = entries.find(|(_, id)| id.load(Acquire) == task) {
            mark(name, |_| true);
        }
    }

    /// Records that the program has set a thread's mask. `turns`: number of turns; `is_taken`:
    /// whether a turn is taken.
    pub(crate) fn note_thread(&self, thread: pthread_t, turns: usize, is_taken: impl Fn(usize) -> bool) {
        let thread = thread as usize;
        let names = self.names.get(..turns).unwrap_or(&self.names);
        // Whether a thread has a turn and has not entered itself: it may be this one.
        let is_bearing =
            || names.iter().enumerate().any(|(turn, name)| name.load(SeqCst) == NO_THREAD && is_taken(turn));
        if mark_holder(names, thread) {
            return;
        }
        self.forget_early_but(is_bearing);
        if is_bearing() {
            let free =
                |place: &AtomicUsize| place.compare_exchange(NO_THREAD, thread, SeqCst, Relaxed).is_ok();
            self.early.iter().any(free);
        }
        // The thread may have entered itself meanwhile.
        if mark_holder(names, thread) {
            self.forget_early(thread);
        }
    }

    /// Removes from the early list the threads that can no longer enter themselves: those listed
    /// before a moment at which no thread was between its creation and its entry.
    fn forget_early_but(&self, is_bearing: impl Fn() -> bool) {
        for place in &self.early {
            let thread = place.load(SeqCst);
            if thread != NO_THREAD && !is_bearing() {
                let _ = place.compare_exchange(thread, NO_THREAD, SeqCst, Relaxed);
            }
        }
    }

    /// Removes a thread from the early list. Returns whether it was listed.
    fn forget_early(&self, thread: usize) -> bool {
        self.early.iter().fold(false, |found, place| {
            let same = place.load(SeqCst) == thread;
            found | (same && place.compare_exchange(thread, NO_THREAD, SeqCst, Relaxed).is_ok())
        })
    }
}

/// Marks the entry of a thread; false if it has none.
fn mark_holder(names: &[AtomicUsize], thread: usize) -> bool {
    let entry = names.iter().find(|name| name.load(SeqCst) & !SET_MARK == thread);
    entry.inspect(|name| mark(name, |now| now & !SET_MARK == thread)).is_some()
}

/// Marks a name if there is one and `is_wanted` accepts it.
fn mark(name: &AtomicUsize, is_wanted: impl Fn(usize) -> bool) {
    let marked = |now: usize| (now != NO_THREAD && is_wanted(now)).then_some(now | SET_MARK);
    let _ = name.fetch_update(AcqRel, Acquire, marked);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNS: usize = 4;
    const ONE: pthread_t = 0x7000;
    const OTHER: pthread_t = 0x8000;

    fn no_birth(_: usize) -> bool {
        false
    }

    #[test]
    fn a_set_mask_is_known_until_the_holder_ends() {
        static HOLDERS: Holders = Holders::new();
        HOLDERS.enter(2, ONE, 11);
        HOLDERS.enter(3, OTHER, 12);
        HOLDERS.note_thread(ONE, TURNS, |turn| turn >= 2);
        assert_eq!([0, 1, 2, 3].map(|turn| HOLDERS.is_set(turn)), [false, false, true, false]);
        HOLDERS.note_task(12, TURNS);
        assert!(HOLDERS.is_set(3));
        HOLDERS.leave(2);
        HOLDERS.enter(2, ONE, 13);
        assert!(!HOLDERS.is_set(2), "the next thread on the turn");
        HOLDERS.note_turn(2);
        assert!(HOLDERS.is_set(2));
    }

    #[test]
    fn threads_without_a_turn_mark_none() {
        static HOLDERS: Holders = Holders::new();
        HOLDERS.enter(0, ONE, 11);
        HOLDERS.note_thread(OTHER, TURNS, no_birth);
        HOLDERS.note_task(99, TURNS);
        HOLDERS.note_task(0, TURNS);
        HOLDERS.note_turn(1);
        HOLDERS.note_turn(SLOTS_MAX);
        assert!((0..TURNS).all(|turn| !HOLDERS.is_set(turn)));
    }

    #[test]
    fn a_mask_set_before_the_thread_runs_is_known_when_it_does() {
        static HOLDERS: Holders = Holders::new();
        HOLDERS.note_thread(ONE, TURNS, |turn| turn == 1);
        HOLDERS.enter(1, ONE, 11);
        assert!(HOLDERS.is_set(1));
        HOLDERS.leave(1);
        HOLDERS.enter(1, ONE, 12);
        assert!(!HOLDERS.is_set(1), "once");
    }

    #[test]
    fn early_threads_that_never_start_are_dropped() {
        static HOLDERS: Holders = Holders::new();
        for thread in 1..=EARLY_MAX {
            HOLDERS.note_thread(thread as pthread_t * 64, TURNS, |turn| turn == 1);
        }
        HOLDERS.note_thread(OTHER, TURNS, no_birth);
        HOLDERS.enter(1, 64, 11);
        assert!(!HOLDERS.is_set(1));
        HOLDERS.leave(1);
        HOLDERS.note_thread(ONE, TURNS, |turn| turn == 1);
        HOLDERS.enter(1, ONE, 12);
        assert!(HOLDERS.is_set(1), "there is room again");
    }

    #[test]
    fn a_thread_that_enters_while_its_mask_is_set_is_marked() {
        static HOLDERS: Holders = Holders::new();
        for round in 0..20_000 {
            let thread = (round + 1) * 64;
            std::thread::scope(|scope| {
                scope.spawn(move || HOLDERS.enter(0, thread, 11));
                HOLDERS.note_thread(thread, TURNS, |turn| turn == 0);
            });
            assert!(HOLDERS.is_set(0), "round {round}");
            HOLDERS.leave(0);
        }
    }
}
