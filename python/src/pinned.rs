//! A value that belongs to the thread that made it, inside an object that Python may hand to any
//! thread.

use crate::errors;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::thread::{ThreadId, current};

/// A value for one thread only. If another thread drops it, the value is leaked: that is better
/// than a rank used by two threads.
pub(crate) struct Pinned<T> {
    value: ManuallyDrop<T>,
    thread: ThreadId,
}

// SAFETY: only the thread that made the value accesses and drops it, as every access and the drop
// check.
unsafe impl<T> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pinned<T> {}

impl<T> Pinned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), thread: current().id() }
    }

    /// Returns the value in the thread to which it belongs.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        if current().id() == self.thread {
            Ok(&self.value)
        } else {
            Err(errors::raise(
                "ArgumentError",
                "a rank belongs to the thread that joined: other threads join with a rank of their own",
            ))
        }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if current().id() == self.thread {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Carries a value to a closure that runs without the interpreter's lock in this same thread.
pub(crate) struct Here<T>(pub(crate) T);

// SAFETY: `Python::detach` runs its closure in the thread that calls it; it asks for `Send` only to
// keep Python's own objects out.
unsafe impl<T> Send for Here<T> {}

impl<T> Here<T> {
    pub(crate) fn get(self) -> T {
        self.0
    }
}
