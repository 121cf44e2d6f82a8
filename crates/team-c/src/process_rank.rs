//! Ranks of the process: any of its threads may use them, one at a time.
//!
//! **Problem.** A rank belongs to the thread that joined. A library whose functions any thread may
//! call, as those of MPI, has no such thread.
//!
//! **Idea.** Such a rank joins for its process (`Team::join_process`), so that it depends on no
//! thread, and is kept behind a word that the using thread sets. A second thread gets an error and
//! does not wait: calls of two threads at a time would have no order. The word is the number of
//! forks before this process began: a child sees that its parent's thread is not here.

use crate::locked::Locked;
use crate::mine::Mine;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use trimtab_team::{Error, Result};

/// One more than the number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// All ranks of the process by handle.
static ALL: Locked<BTreeMap<u64, Arc<ProcessRank>>> = Locked::new(BTreeMap::new());

extern "C" fn before_fork() {
    ALL.lock();
}

extern "C" fn after_fork() {
    ALL.unlock();
}

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    ALL.unlock();
}

/// Runs `work` on the table of ranks.
fn all<T>(work: impl FnOnce(&mut BTreeMap<u64, Arc<ProcessRank>>) -> T) -> T {
    ALL.with(
        || {
            // SAFETY: the handlers take and release a lock and count, by atomics alone.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(forked));
            }
        },
        work,
    )
}

/// Rank that threads use one after the other.
pub(crate) struct ProcessRank {
    /// The generation of the thread that uses it; 0 if none does.
    user: AtomicU32,
    /// `None` when it has left.
    mine: UnsafeCell<Option<Mine>>,
}

// SAFETY: only the thread that has set `user` accesses `mine`. All that refers to the rank, such as
// its started calls and blocks, is in `mine` too; `trimtab_split`, which would make another rank
// that shares parts with it, is refused.
unsafe impl Send for ProcessRank {}
// SAFETY: as above.
unsafe impl Sync for ProcessRank {}

/// A thread's use of a rank, until dropped.
pub(crate) struct Used<'a>(&'a ProcessRank);

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.user.store(0, Ordering::Release);
    }
}

impl Used<'_> {
    /// Returns the rank; `None` if it has left.
    pub(crate) fn mine(&self) -> Option<&Mine> {
        // SAFETY: this thread alone uses it.
        unsafe { &*self.0.mine.get() }.as_ref()
    }

    /// Takes the rank, which leaves when it is dropped.
    fn take(self) -> Option<Mine> {
        // SAFETY: this thread alone uses it, and has no reference to it.
        unsafe { &mut *self.0.mine.get() }.take()
    }
}

impl ProcessRank {
    /// Begins to use the rank.
    pub(crate) fn enter(&self) -> Result<Used<'_>> {
        let own = GENERATION.load(Ordering::Relaxed);
        let set = |from| self.user.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed);
        // A user of another generation is a thread of the parent, at the time of a fork.
        match set(0).or_else(|user| if user == own { Err(user) } else { set(user) }) {
            Ok(_) => Ok(Used(self)),
            Err(_) => Err(Error::Refused(
                "the rank is in a call of another thread, or in the call that called this function: a rank of a process serves one thread at a time"
                    .to_owned(),
            )),
        }
    }
}

/// Keeps a rank under a handle.
pub(crate) fn keep(handle: u64, mine: Mine) {
    let rank = ProcessRank { user: AtomicU32::new(0), mine: UnsafeCell::new(Some(mine)) };
    all(|all| all.insert(handle, Arc::new(rank)));
}

/// Returns the rank of a handle.
pub(crate) fn find(handle: u64) -> Option<Arc<ProcessRank>> {
    all(|all| all.get(&handle).cloned())
}

/// Leaves the team, if the handle is that of a rank of the process.
pub(crate) fn leave(handle: u64) -> Option<Result<()>> {
    let rank = find(handle)?;
    let used = match rank.enter() {
        Ok(used) => used,
        Err(error) => return Some(Err(error)),
    };
    all(|all| all.remove(&handle));
    // Outside of the lock.
    drop(used.take());
    Some(Ok(()))
}
