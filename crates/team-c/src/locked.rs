//! Lock for a value that threads use one after the other, and that a forked child finds consistent.
//!
//! **Problem.** A mutex that another thread holds when a process forks is held without end in the
//! child, and the value it guards is half changed.
//!
//! **Idea.** The forking thread takes the lock first, by a handler (`pthread_atfork`), and both
//! processes release it. The lock's word is the process ID of the holder, so a child that was
//! forked before the handlers were installed sees that the holder is not in its process.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Value behind a lock. The lock is held for moments only, and never while code of the caller
/// runs, so a waiting thread yields its CPU instead of sleeping.
pub(crate) struct Locked<T> {
    holder: AtomicU32,
    what: UnsafeCell<(bool, T)>,
}

// SAFETY: only the thread that holds the lock accesses the value, and no thread-local data is in
// it.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(what: T) -> Self {
        Self { holder: AtomicU32::new(0), what: UnsafeCell::new((false, what)) }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) {
        let own = std::process::id();
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            // Another process ID: a copy of the word from before a fork; no thread of this process
            // holds the lock.
            let free = holder != own;
            if free && self.holder.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Releases the lock. A forked child also releases the lock that its parent took for it.
    pub(crate) fn unlock(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Runs `work` on the value; runs `first` before the first use.
    pub(crate) fn with<R>(&self, first: impl FnOnce(), work: impl FnOnce(&mut T) -> R) -> R {
        /// Releases the lock also after a panic.
        struct Held<'a, T>(&'a Locked<T>);
        impl<T> Drop for Held<'_, T> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock();
        let _held = Held(self);
        // SAFETY: this thread has the lock.
        let (begun, what) = unsafe { &mut *self.what.get() };
        if !std::mem::replace(begun, true) {
            first();
        }
        work(what)
    }
}
