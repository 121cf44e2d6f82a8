//! Handle that ends a watch from outside, at once.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Ends the watch: a waiting host wakes up and reports the end, now and at every later wait.
///
/// Copies may be sent to other threads; a stop is one system call that never waits.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    pub(super) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(|event| Self(Arc::new(event)))
    }

    /// Ends the watch.
    pub fn stop(&self) {
        // The write can only fail when the counter is full; then the event is readable, and only
        // readability matters.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stopper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
