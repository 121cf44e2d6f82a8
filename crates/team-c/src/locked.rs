//! Something that threads look at one after the other, and that a forked child finds in order.
//!
//! **Problem.** A mutex that another thread holds when a process forks is held for ever in the child, and what it guards is half changed.
//!
//! **Idea.** Who forks takes the lock first, by a handler (`pthread_atfork`), and both processes give it back. The lock's word is the number of
//! the process that has it, so a child that was forked before there were handlers sees that its holder is not here.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Held for moments only, so who waits gives its processor away. Nothing of the caller's runs meanwhile.
pub(crate) struct Locked<T> {
    holder: AtomicU32,
    what: UnsafeCell<(bool, T)>,
}

// SAFETY: only who holds the lock has it, and no thread's own things are in it.
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
            // Another process's: a copy of a lock that nobody here has.
            let free = holder != own;
            if free && self.holder.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Gives it back; also what was taken for a child, before it was one.
    pub(crate) fn unlock(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Does something with it; `first`, before that, once.
    pub(crate) fn with<R>(&self, first: impl FnOnce(), work: impl FnOnce(&mut T) -> R) -> R {
        /// Gives it back also where something panics.
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
