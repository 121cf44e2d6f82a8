//! Who holds which CPUs of this machine: a reservation for everybody's programs, without a daemon and without privilege.
//!
//! **Unit.** One CPU as the kernel numbers it, held at one [`Level`]: level 0 divides the machine, level 1 divides what
//! a level-0 hold has, and so on.
//!
//! **Problem.** Programs of different users must not land on the same CPUs; a program killed in any way must not leave
//! its CPUs marked as taken; a program is started by exec, so nobody remains to clean up after it.
//!
//! **Idea.** A file of locks, one byte per CPU, of the family that belongs to the *open file description*
//! ([`crate::sys::lock`]): taking CPUs is locking their bytes, the launched program and its children inherit the
//! descriptor, and the kernel unlocks when the last of them is gone. Nothing is ever written to that file. A second file
//! has a [`Record`] per CPU that says who. A record is believed only while its CPU is locked and while the lock of the
//! *hold* it names is there, so what a killed holder left behind is not taken for the next one's.
//!
//! **Terms.** A *hold* is what one [`Ledger::take`] got. *Exclusive* holds have write locks, *shared* ones read locks:
//! deliberate overlap, or the processes of one job that hold the same CPUs together (a *group*). The *planner* is whoever
//! has the right to look, choose and take without others doing so meanwhile. A *ticket* is a place among those who wait.
//!
//! **Properties.**
//! - All or nothing: of the CPUs asked for, all are taken or none.
//! - No two exclusive holds of a level share a CPU, whatever happens to the planner: the right to plan spares
//!   collisions, the locks exclude them.
//! - A hold ends exactly when the last copy of its descriptor is closed, by SIGKILL too.
//! - No run waits for one that has ended. A stopped run that stands in line is passed over after a second, keeps its
//!   place and takes its turn when it is continued; a stopped planner is waited for as long as the caller chose.
//! - The files may be deleted under living holds (by a login manager that clears `/dev/shm` of a user who logs out, a
//!   cleaner of old files, their owner): the next ledger is marked as a successor, and the earlier holds are found in
//!   the kernel's list of locks ([`LockMap::lost`]) and respected as long as they last. Known gap: a long list can only
//!   be read in pieces; a line is missed if others went away between the same pieces in every one of several readings.
//!
//! **Place.** One directory that everybody arrives at: see [`Location`]. A package makes `/run/trimtab` with
//! ```text
//! d /run/trimtab 0755 root root -
//! f /run/trimtab/trimtab-%b.locks 0666 root root -
//! f /run/trimtab/trimtab-%b.holders 0666 root root -
//! ```
//! in `tmpfiles.d` (`%b` is the boot id, without dashes as here). Without it the first user's program makes the files
//! in a world-writable directory.
//!
//! **What a hostile user can still do.** Lock any CPU, the planner's byte (every launch then waits out its patience),
//! every ticket, or so many bytes that questions become slow; give the lock file a second name, which is refused from
//! then on: none of it worse than locking everything, and true of any scheme without a privileged arbiter. Write
//! anything into the records: names are hints, [`ProcessTable::standing`] catches some lies and not, for instance, a
//! record that names another process of its claimed user. Who made the files (none, with the package) can delete them
//! and make false ones, or change their mode, which later launches refuse with an error. Everywhere the remedy is the
//! package's directory, and for what remains the machine's administrator. Nothing a hostile user writes crashes, hangs
//! or misdirects a write of this code.
//!
//! Where it comes from: one abstract socket per core in numaplace (2015), which a file in a shared directory replaces
//! because sockets are scoped to network namespaces and cannot be inherited by range; `fcntl(2)`, "Open file
//! description locks".

mod error;
mod file;
mod hold;
pub(crate) mod layout;
mod level;
mod listing;
mod map;
pub(crate) mod place;
mod planner;
mod process;
mod queue;
mod record;
mod view;

pub use error::{Fault, Found, LedgerError, PassedOver, TakeError};
pub use hold::Held;
pub use layout::HoldId;
pub use level::Level;
pub use map::LockMap;
pub use place::{BootId, Location};
pub use planner::Planner;
pub use process::{ProcessTable, Standing};
pub use queue::Ticket;
pub use record::{Holder, LABEL_BYTES, RECORD_BYTES, Record};
pub use view::{Hold, Holders, LedgerView};

use crate::sys::lock::{LockKind, try_lock};

use place::Part;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};

/// How CPUs are held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// By one hold alone.
    Exclusive,
    /// Together with others who share.
    Shared,
}

/// The ledger, for taking part. All there is to see ([`LedgerView`]) is seen through it too.
#[derive(Debug)]
pub struct Ledger {
    view: LedgerView,
}

impl Ledger {
    /// Opens the ledger of this boot, and makes it if nobody has.
    ///
    /// # Errors
    /// [`LedgerError::NoPlace`], [`LedgerError::Directory`], [`LedgerError::Refused`], [`LedgerError::Unsettled`] or
    /// [`LedgerError::Io`]; each says what was found and what would help. The caller can go on without reservation.
    pub fn open(location: &Location) -> Result<Self, LedgerError> {
        let place = location.find()?;
        let locks = place.open_or_create(Part::Locks)?;
        // Without records CPUs can be held all the same; only nobody sees by whom.
        let holders = place.open_or_create(Part::Holders);
        Ok(Self { view: LedgerView::taking_part(place, locks, holders) })
    }

    /// The same file once more: whatever is to be locked needs a description of its own, or its locks would neither be
    /// seen by [`LedgerView::map`] nor be in the way of our own other holds.
    fn description(&self) -> Result<OwnedFd, LedgerError> {
        self.view.place.reopen(Part::Locks, self.view.identity)
    }

    fn lock(&self, file: &OwnedFd, bytes: Range<u64>, kind: LockKind) -> Result<bool, LedgerError> {
        try_lock(file.as_fd(), bytes, kind).map_err(|error| self.failed("locking", error))
    }

    fn failed(&self, attempt: &'static str, error: io::Error) -> LedgerError {
        self.view.place.failed(attempt, Part::Locks, error)
    }
}

impl Deref for Ledger {
    type Target = LedgerView;

    fn deref(&self) -> &LedgerView {
        &self.view
    }
}
