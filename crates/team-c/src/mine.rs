//! A rank as its handle keeps it.

use crate::handles::Handles;
use std::cell::{Cell, RefCell};
use trimtab_team::{PendingCall, Rank, Shared};

/// A rank with its started calls and allocated blocks.
pub(crate) struct Mine {
    pub(crate) rank: Rank,
    pub(crate) requests: RefCell<Handles<PendingCall>>,
    pub(crate) blocks: RefCell<Handles<Shared<u8>>>,
    /// Whether something panicked in a call of this rank: its progress is not known any more.
    pub(crate) poisoned: Cell<bool>,
    /// Whether it is the process's, and not a thread's.
    pub(crate) of_process: bool,
}

impl Mine {
    pub(crate) fn new(rank: Rank, of_process: bool) -> Self {
        Self {
            rank,
            requests: RefCell::new(Handles::new("request")),
            blocks: RefCell::new(Handles::new("block")),
            poisoned: Cell::new(false),
            of_process,
        }
    }
}
