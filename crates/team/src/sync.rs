//! Atomics of the flags: the CPU's, or those of a model that tries all orders
//! (`--cfg trimtab_model`).

#[cfg(not(trimtab_model))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(trimtab_model)]
pub(crate) use model::{AtomicU32, AtomicU64, Ordering, full_fence, pause};

/// Orders all earlier accesses of this thread before all its later ones, for all threads.
#[cfg(not(trimtab_model))]
pub(crate) fn full_fence() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Lets other threads run.
#[cfg(not(trimtab_model))]
pub(crate) fn pause() {
    std::thread::yield_now();
}

/// Replacement for the CPU and the kernel while a model runs. Not part of any program.
#[cfg(trimtab_model)]
pub mod model {
    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;
    use std::cell::{Cell, RefCell};

    /// Parts of the protocol that can be left out, to show that a model detects their absence.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Broken {
        /// Nothing is left out.
        Nothing,
        /// Flags are raised without releasing earlier writes.
        RaisedRelaxed,
        /// A rank that raises a flag does not order the store before the load of the sleepers.
        RaisedWithoutFence,
        /// The kernel does not read the word again before it lets a thread sleep.
        NotReloaded,
        /// Slots are used again without waiting for their readers.
        NotVacant,
    }

    pub(crate) fn full_fence() {
        if !broken(Broken::RaisedWithoutFence) {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn pause() {
        loom::thread::yield_now();
    }

    thread_local! {
        // All threads of a model run in one thread of the system.
        static BROKEN: Cell<Broken> = const { Cell::new(Broken::Nothing) };
        static TRACKED: RefCell<Vec<(usize, usize, *const loom::cell::UnsafeCell<()>)>> = const { RefCell::new(Vec::new()) };
    }

    /// Leaves a part out from here on.
    pub fn set_broken(broken: Broken) {
        BROKEN.set(broken);
    }

    /// Returns whether this part is left out.
    pub fn broken(what: Broken) -> bool {
        BROKEN.get() == what
    }

    /// Drops the memory tracked in the previous run.
    pub fn forget() {
        TRACKED.with_borrow_mut(Vec::clear);
    }

    /// Makes the model see accesses to these bytes as accesses to a cell, which must outlive the
    /// run.
    pub fn track(from: *const u8, bytes: usize, cell: *const loom::cell::UnsafeCell<()>) {
        TRACKED.with_borrow_mut(|all| all.push((from as usize, bytes, cell)));
    }

    /// Records an access in the model, which fails if an access of another thread is not ordered
    /// with it.
    pub fn touch(at: *const u8, write: bool) {
        let at = at as usize;
        let found = TRACKED.with_borrow(|all| {
            all.iter().find(|(from, bytes, _)| (*from..from + bytes).contains(&at)).copied()
        });
        let Some((_, _, cell)) = found else { return };
        // SAFETY: the caller of `track` keeps the cell.
        let cell = unsafe { &*cell };
        if write { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
    }

    /// The model treats sequentially consistent accesses as weaker ones, but not fences. Therefore
    /// these types put fences where compilers put them for such accesses (after stores, before
    /// loads).
    macro_rules! atomic {
        ($name:ident, $number:ty) => {
            #[derive(Debug)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            #[allow(dead_code, reason = "as few as the flags need")]
            impl $name {
                pub(crate) fn new(value: $number) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }
                pub(crate) fn load(&self, order: Ordering) -> $number {
                    if order == Ordering::SeqCst {
                        if !broken(Broken::RaisedWithoutFence) {
                            fence(Ordering::SeqCst);
                        }
                        return self.0.load(Ordering::Acquire);
                    }
                    self.0.load(order)
                }
                pub(crate) fn store(&self, value: $number, order: Ordering) {
                    if broken(Broken::RaisedRelaxed) {
                        return self.0.store(value, Ordering::Relaxed);
                    }
                    if order == Ordering::SeqCst {
                        self.0.store(value, Ordering::Release);
                        if !broken(Broken::RaisedWithoutFence) {
                            fence(Ordering::SeqCst);
                        }
                        return;
                    }
                    self.0.store(value, order);
                }
                pub(crate) fn compare_exchange(
                    &self,
                    seen: $number,
                    value: $number,
                    _: Ordering,
                    _: Ordering,
                ) -> Result<$number, $number> {
                    let before = self.0.compare_exchange(seen, value, Ordering::AcqRel, Ordering::Acquire);
                    full_fence();
                    before
                }
                pub(crate) fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                    let before = self.0.fetch_add(value, Ordering::AcqRel);
                    if order == Ordering::SeqCst {
                        fence(Ordering::SeqCst);
                    }
                    before
                }
                pub(crate) fn fetch_sub(&self, value: $number, order: Ordering) -> $number {
                    let before = self.0.fetch_sub(value, Ordering::AcqRel);
                    if order == Ordering::SeqCst {
                        fence(Ordering::SeqCst);
                    }
                    before
                }
            }
        };
    }
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);

    /// The kernel's side of sleeping: it reads the word once more under a lock that waking takes,
    /// too.
    #[derive(Debug)]
    pub(crate) struct Futex {
        lock: loom::sync::Mutex<()>,
        bell: loom::sync::Condvar,
    }

    #[allow(clippy::unwrap_used, reason = "a model")]
    impl Futex {
        pub(crate) fn new() -> Self {
            Self { lock: loom::sync::Mutex::new(()), bell: loom::sync::Condvar::new() }
        }

        /// Sleeps if the word is still the one that was seen.
        pub(crate) fn wait(&self, still: impl Fn() -> bool) {
            let guard = self.lock.lock().unwrap();
            if still() {
                drop(self.bell.wait(guard).unwrap());
            }
        }

        /// Wakes all threads.
        pub(crate) fn wake(&self) {
            let _guard = self.lock.lock().unwrap();
            self.bell.notify_all();
        }
    }
}
