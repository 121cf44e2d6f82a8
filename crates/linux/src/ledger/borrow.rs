//! The hold of another process, changed through a copy of that process's descriptor.
//!
//! The locks of a hold belong to its open file description. A copy of the descriptor
//! (`pidfd_getfd(2)`) gives this process the same description: it can lock more CPUs and unlock
//! some, and the hold keeps its id and lasts as long as its own processes. The kernel permits a
//! copy to processes that may debug the other one: of the same user, or root.

use super::error::{LedgerError, TakeError};
use super::layout::set_bytes;
use super::listing::Listing;
use super::place::LedgerPart;
use super::view::Hold;
use super::{Held, Holder, Ledger, Mode};
use crate::sys::lock::{LockKind, unlock};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use thiserror::Error;
use trimtab_core::set::CpuSet;

/// Why the hold of another process cannot be changed.
#[derive(Debug, Error)]
pub enum BorrowError {
    /// No process has a descriptor of the hold that this user may see.
    #[error(
        "no process of yours has the descriptor of this hold: it belongs to another user, or its programs closed all descriptors that they did not open"
    )]
    NoDescriptor,
    /// The kernel does not give the descriptor away.
    #[error(
        "the kernel does not let this process change the hold of PID {pid} ({cause}): it must be of the same user, and not protected from debugging (kernel.yama.ptrace_scope 1 protects all but descendants; root is exempt)"
    )]
    Refused {
        /// The process.
        pid: u32,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The hold of another process.
#[derive(Debug)]
pub struct Borrowed {
    file: OwnedFd,
    hold: Hold,
    /// The process that had the descriptor.
    lender: u32,
}

impl Ledger {
    /// Borrows a hold from one of these processes.
    ///
    /// # Errors
    /// None of them has its descriptor, or the kernel does not give it away.
    pub fn borrow_from(&self, pids: &[u32], hold: &Hold) -> Result<Borrowed, BorrowError> {
        let mut refused = None;
        for &pid in pids {
            match self.copy_from(pid, hold) {
                Ok(Some(file)) => return Ok(Borrowed { file, hold: hold.clone(), lender: pid }),
                Ok(None) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or(BorrowError::NoDescriptor))
    }

    /// Copies the descriptor of a hold; `None` if the process has none.
    fn copy_from(&self, pid: u32, hold: &Hold) -> Result<Option<OwnedFd>, BorrowError> {
        let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return Ok(None);
        };
        // A later process with this number is another one: all that follows goes through this.
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return Ok(None) };
        let folder = self.view.place.proc_root.join(format!("{pid}/fdinfo"));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for number in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let listing = Listing::of_other_descriptor(&self.view.place.proc_root, pid, number);
            if !self.is_of(&listing, hold)? {
                continue;
            }
            match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
                // What was copied may not be what was listed: it is examined again.
                Ok(file) => {
                    let own = Listing::of_descriptor(&self.view.place.proc_root, file.as_raw_fd());
                    if self.is_of(&own, hold)? {
                        return Ok(Some(file));
                    }
                }
                Err(Errno::BADF | Errno::SRCH) => {}
                Err(error) => return Err(BorrowError::Refused { pid, cause: error.into() }),
            }
        }
        Ok(None)
    }

    /// Returns whether a descriptor with these locks is that of the hold: it has the lock of the
    /// hold's id, and all of its CPUs.
    fn is_of(&self, listing: &Listing, hold: &Hold) -> Result<bool, LedgerError> {
        let id = hold.id.byte(self.view.place.tag);
        if !listing.has(self.view.identity, std::slice::from_ref(&id)) {
            return Ok(false);
        }
        let bytes = set_bytes(hold.level, &hold.cpus)?;
        Ok(bytes.iter().all(|range| listing.has(self.view.identity, std::slice::from_ref(range))))
    }
}

impl Borrowed {
    /// Returns the hold as it was when it was borrowed, with all changes since.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the process that had the descriptor.
    pub fn lender(&self) -> u32 {
        self.lender
    }

    /// Returns the hold of this process as one that can be changed.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of_own(held: &Held, hold: &Hold) -> Result<Self, LedgerError> {
        Ok(Self { file: held.copy()?, hold: hold.clone(), lender: std::process::id() })
    }

    /// Returns the CPUs that the hold has locked now, also by changes of others.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn locked(&self, ledger: &Ledger, within: &CpuSet) -> Result<CpuSet, LedgerError> {
        ledger.view.held_through(self.file.as_raw_fd(), self.hold.level, within)
    }

    /// Adds CPUs to the hold, all or none.
    ///
    /// # Errors
    /// [`TakeError::Busy`] with CPUs that other holds have; a fault of the ledger.
    pub fn add(&mut self, ledger: &Ledger, more: &CpuSet) -> Result<(), TakeError> {
        let more = more.difference(&self.hold.cpus);
        if more.is_empty() {
            return Err(TakeError::Nothing);
        }
        let lost = ledger.view.lost(self.hold.level, &more)?;
        if !lost.is_empty() {
            return Err(TakeError::Busy { cpus: lost });
        }
        let bytes = set_bytes(self.hold.level, &more)?;
        for (done, range) in bytes.iter().enumerate() {
            let locked = ledger.lock(&self.file, range.clone(), self.kind());
            if !matches!(locked, Ok(true)) {
                for range in &bytes[..done] {
                    let _ = unlock(self.file.as_fd(), range.clone());
                }
                return match locked {
                    Err(error) => Err(error.into()),
                    _ => Err(TakeError::Busy { cpus: more }),
                };
            }
        }
        let confirmed = ledger.view.place.confirm(LedgerPart::Locks, ledger.view.identity);
        if let Err(error) = confirmed {
            for range in &bytes {
                let _ = unlock(self.file.as_fd(), range.clone());
            }
            return Err(error.into());
        }
        // Only names are lost if this fails.
        let _ = ledger.write_records(&bytes, Some(self.hold.id), &self.hold.holder);
        self.hold.cpus = self.hold.cpus.union(&more);
        Ok(())
    }

    /// Gives CPUs of the hold back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give_back(&mut self, ledger: &Ledger, some: &CpuSet) -> Result<(), LedgerError> {
        let some = some.intersection(&self.hold.cpus);
        for range in set_bytes(self.hold.level, &some)? {
            unlock(self.file.as_fd(), range).map_err(|error| ledger.failed("unlocking", error))?;
        }
        self.hold.cpus = self.hold.cpus.difference(&some);
        Ok(())
    }

    /// Writes another holder of the hold: the process for which it is from now on.
    ///
    /// # Errors
    /// The records cannot be written. The CPUs are held nevertheless, under the name before.
    pub fn rename(&mut self, ledger: &Ledger, holder: Holder) -> Result<(), LedgerError> {
        let bytes = set_bytes(self.hold.level, &self.hold.cpus)?;
        ledger.write_records(&bytes, Some(self.hold.id), &holder)?;
        self.hold.holder = holder;
        Ok(())
    }

    /// Returns the descriptor, for another process that keeps the hold.
    pub fn into_file(self) -> OwnedFd {
        self.file
    }

    fn kind(&self) -> LockKind {
        match self.hold.mode {
            Mode::Exclusive => LockKind::Write,
            Mode::Shared => LockKind::Read,
        }
    }
}

impl Held {
    /// Returns a copy of the descriptor that no program inherits: for a process that keeps the
    /// hold for another one.
    ///
    /// # Errors
    /// [`LedgerError::Io`] when the process has no descriptor left.
    pub fn copy(&self) -> Result<OwnedFd, LedgerError> {
        fcntl_dupfd_cloexec(&*self.file, 3).map_err(|error| self.failed(error))
    }
}
