//! Reservation of this machine's CPUs among the programs of all users, without a daemon and without
//! privilege.
//!
//! **Unit.** One CPU as the kernel numbers it, held at one [`Level`]: level 0 divides the machine,
//! level 1 divides the CPUs of a level-0 hold, and so on.
//!
//! **Problem.** Programs of different users must not run on the same CPUs. A program killed in any
//! way must not leave its CPUs marked as taken. A program is started by exec, so no process remains
//! that could clean up after it.
//!
//! **Idea.** A file of locks has one byte per CPU. The locks are of the family that belongs to the
//! *open file description* ([`crate::sys::lock`]): a run takes CPUs by locking their bytes, the
//! launched program and its children inherit the descriptor, and the kernel unlocks when the last
//! of them is closed. Nothing is ever written to the lock file. A second file has a [`Record`] per
//! CPU that names the holder. A record is valid only while its CPU is locked and the lock of the
//! *hold* that it names exists, so that the record of a killed holder is not mistaken for that of
//! the next holder.
//!
//! **Terms.** A *hold* is the result of one [`Ledger::take`]. *Exclusive* holds have write locks,
//! *shared* holds have read locks: deliberate overlap, or the processes of one job that hold the
//! same CPUs together (a *group*). The *planner* is the process with the right to read the map,
//! choose and take while no other process does. A *ticket* is a position in the queue of waiting
//! runs; [`trimtab_core::queue`] decides which of them may start.
//!
//! **Properties.**
//! - All or nothing: either all requested CPUs are taken, or none.
//! - No two exclusive holds of a level share a CPU, even if the planner fails: the right to plan
//!   makes collisions rare, the locks exclude them.
//! - A hold ends exactly when the last copy of its descriptor is closed and the last mapping of its
//!   file is gone, by SIGKILL too.
//! - No run waits for a run that has ended. A stopped run in the queue is passed over after a
//!   second, keeps its position and takes its turn when it is continued; a stopped planner is
//!   waited for as long as the caller chose.
//! - The files may be deleted under living holds (by a login manager that clears `/dev/shm` of a
//!   user who logs out, a cleaner of old files, their owner): the next ledger is marked as a
//!   successor, and the earlier holds are found in the kernel's list of locks ([`LockMap::lost`])
//!   and respected as long as they last. Known gap: a long list can only be read in pieces; a line
//!   is missed if other lines disappeared between the same pieces in every one of several readings.
//!
//! **Place.** All programs find the same directory: see [`Location`]. A package makes
//! `/run/trimtab` with
//! ```text
//! d /run/trimtab 0755 root root -
//! f /run/trimtab/trimtab-%b.locks 0666 root root -
//! f /run/trimtab/trimtab-%b.holders 0666 root root -
//! ```
//! in `tmpfiles.d` (`%b` is the boot id, without dashes as here). Without the package, the program
//! of the first user makes the files in a world-writable directory.
//!
//! **Remaining powers of a hostile user.** Locking: any CPU, the planner's byte (every launch then
//! waits until its patience ends), every ticket, or enough bytes to make queries slow. Giving the
//! lock file a second name, which later opens refuse. None of this is worse than locking
//! everything, and all of it applies to any scheme without a privileged arbiter. Writing anything
//! into the records: names are hints; [`ProcessTable::standing`] detects some false claims but not,
//! for instance, a record that names another process of its claimed user. The user who made the
//! files (no user, with the package) can delete them and make false ones, or change their mode,
//! which later launches refuse with an error. The remedy is always the package's directory, and for
//! the rest the machine's administrator. Nothing a hostile user writes crashes, hangs or misdirects
//! a write of this code.
//!
//! Source: one abstract socket per core in numaplace (2015). A file in a shared directory replaces
//! the sockets because sockets are scoped to network namespaces and cannot be inherited by range;
//! `fcntl(2)`, "Open file description locks".

mod borrow;
pub(crate) mod directory;
mod error;
mod file;
mod hold;
pub(crate) mod layout;
mod level;
mod listing;
mod load_samples;
mod map;
pub(crate) mod place;
mod planner;
mod process;
mod proven;
mod queue;
mod record;
mod ticket_record;
mod view;

pub use borrow::{BorrowError, Borrowed};
pub use error::{Fault, FoundFile, LedgerError, PassedOver, TakeError};
pub use hold::Held;
pub use layout::HoldId;
pub use level::Level;
pub use load_samples::LoadSamples;
pub use map::LockMap;
pub use place::{BootId, Location};
pub use planner::Planner;
pub use process::{ProcessTable, Standing};
pub use proven::ProvenHold;
pub use queue::{QueuedRun, Ticket};
pub use record::{Holder, LABEL_BYTES, RECORD_BYTES, Record};
pub use ticket_record::TicketClaim;
pub use view::{Group, Hold, Holders, LedgerView};

use crate::sys::lock::{LockKind, try_lock};

use file::{Access, LedgerFile, Opened};
use place::{LedgerDirectory, LedgerPart};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};

/// Whether the CPUs of a hold may be shared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Held by a single hold.
    Exclusive,
    /// Held together with other shared holds.
    Shared,
}

/// The ledger, open for taking CPUs. Dereferences to [`LedgerView`] for reading.
#[derive(Debug)]
pub struct Ledger {
    view: LedgerView,
}

impl Ledger {
    /// Opens the ledger of this boot, and makes it if it does not exist.
    ///
    /// # Errors
    /// [`LedgerError::NoPlace`], [`LedgerError::Directory`], [`LedgerError::Refused`],
    /// [`LedgerError::Unsettled`] or [`LedgerError::Io`]; each names the value found and the
    /// remedy. The caller can continue without a reservation.
    pub fn open(location: &Location) -> Result<Self, LedgerError> {
        let (place, locks) = Self::locks(location)?;
        // CPUs can be held without records; only the names of the holders are then missing.
        let holders = place.open_or_create(LedgerPart::Holders);
        Ok(Self { view: LedgerView::taking_part(place, locks, holders) })
    }

    /// Opens the lock file in its directory. A file that exists, as at nearly all starts, needs no
    /// look at the mount: it opens for writing only if that is not read-only.
    fn locks(location: &Location) -> Result<(LedgerDirectory, LedgerFile), LedgerError> {
        if let Ok(place) = location.find_writable()
            && let Ok(Opened::Yes(locks)) = place.open(LedgerPart::Locks, Access::Write)
        {
            return Ok((place, locks));
        }
        let place = location.find()?;
        let locks = place.open_or_create(LedgerPart::Locks)?;
        Ok((place, locks))
    }

    /// Opens the lock file once more. Locks need a description of their own: otherwise
    /// [`LedgerView::map`] would not see them, and they would not conflict with our own other
    /// holds.
    fn description(&self) -> Result<OwnedFd, LedgerError> {
        self.view.place.reopen(LedgerPart::Locks, self.view.identity)
    }

    fn lock(&self, file: &OwnedFd, bytes: Range<u64>, kind: LockKind) -> Result<bool, LedgerError> {
        try_lock(file.as_fd(), bytes, kind).map_err(|error| self.failed("locking", error))
    }

    fn failed(&self, attempt: &'static str, error: io::Error) -> LedgerError {
        self.view.place.failed(attempt, LedgerPart::Locks, error)
    }
}

impl Deref for Ledger {
    type Target = LedgerView;

    fn deref(&self) -> &LedgerView {
        &self.view
    }
}
