//! Holds: taking CPUs, and keeping them for a program.

use super::error::{LedgerError, TakeError};
use super::layout::{HoldId, set_bytes};
use super::level::Level;
use super::map::LockTable;
use super::place::LedgerPart;
use super::planner::Planner;
use super::record::{Holder, RECORD_BYTES, Record};
use super::view::record_bytes;
use super::{Ledger, Mode};
use crate::sys::inherited;
use crate::sys::lock::{END, LockKind, unlock};
use rustix::io::{Errno, FdFlags, fcntl_setfd, pwrite};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use trimtab_core::hold_claim::{HoldClaim, NO_DESCRIPTOR};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;

/// CPUs that this process holds. Given back when this is dropped, or, if the hold was lent or kept,
/// when the last process that has it has ended.
#[derive(Debug)]
pub struct Held {
    /// Description of this hold alone: locks of one description do not conflict, so two holds must
    /// not share it.
    pub(super) file: Arc<OwnedFd>,
    path: PathBuf,
    level: Level,
    mode: Mode,
    cpus: CpuSet,
    id: Option<HoldId>,
    unnamed: Option<LedgerError>,
    lent: bool,
}

/// Lowest number of a kept descriptor: above all numbers that scripts use (3 to 9 explicitly, 10
/// and 255 by shells) and below the 1,024 that `select` can watch. Chosen.
const KEPT_FROM: RawFd = 700;

/// Number of ids that are tried until one is free. Chosen; a second try is needed once in 2^40
/// holds.
const ID_ATTEMPTS: u32 = 16;

impl Ledger {
    /// Takes all of `cpus` at a level, or none. Never waits. Safe without the planner's byte: CPUs
    /// that other holds have are refused whatever was planned, and of takers that collide at least
    /// one succeeds, since all lock in ascending order.
    ///
    /// The record names the holder in [`holders`](super::LedgerView::holders); when the record
    /// cannot be written, the CPUs are held nevertheless and [`Held::unnamed`] has the reason.
    ///
    /// # Errors
    /// [`TakeError::Busy`] with the conflicting CPUs; [`TakeError::Ledger`] with
    /// [`LedgerError::Replaced`] when the ledger has to be opened again, or another fault of it.
    pub fn take(&self, level: Level, cpus: &CpuSet, mode: Mode, holder: &Holder) -> Result<Held, TakeError> {
        self.take_through(None, level, cpus, mode, holder)
    }

    /// Takes CPUs with the right to plan, and gives the right back. The hold gets the description
    /// of the right, so that a launch opens the file once less.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_planned(
        &self,
        planner: Planner,
        cpus: &CpuSet,
        mode: Mode,
        holder: &Holder,
    ) -> Result<Held, TakeError> {
        self.take_through(Some(&planner.file), planner.level(), cpus, mode, holder)
    }

    /// Takes CPUs through this description, or through a new one.
    fn take_through(
        &self,
        file: Option<&Arc<OwnedFd>>,
        level: Level,
        cpus: &CpuSet,
        mode: Mode,
        holder: &Holder,
    ) -> Result<Held, TakeError> {
        if cpus.is_empty() {
            return Err(TakeError::Nothing);
        }
        let bytes = set_bytes(level, cpus)?;
        let lost = self.view.lost(level, cpus)?;
        if !lost.is_empty() {
            return Err(TakeError::Busy { cpus: lost });
        }
        let file = match file {
            Some(file) => Arc::clone(file),
            None => Arc::new(self.description()?),
        };
        let locked = self.lock_all(&file, &bytes, level, cpus, mode).and_then(|()| {
            let id = self.vouch(&file, mode, holder)?;
            // Not earlier: from here on, a process that makes a file under our name can see these
            // locks.
            self.view.place.confirm(LedgerPart::Locks, self.view.identity)?;
            Ok(id)
        });
        let id = locked.inspect_err(|_| {
            // Closing the file would do that too, but it may stay open.
            let _ = unlock(file.as_fd(), 0..END);
        })?;
        let unnamed = self.write_records(&bytes, id, holder).err();
        Ok(Held { file, path: self.path(), level, mode, cpus: cpus.clone(), id, unnamed, lent: false })
    }

    /// Locks the bytes of all CPUs, or none.
    fn lock_all(
        &self,
        file: &OwnedFd,
        bytes: &[Range<u64>],
        level: Level,
        cpus: &CpuSet,
        mode: Mode,
    ) -> Result<(), TakeError> {
        for (range, piece) in bytes.iter().zip(cpus.ranges()) {
            if !self.lock(file, range.clone(), mode.lock())? {
                let piece = (piece.0.0..=piece.1.0).map(OsCpu).collect();
                return Err(TakeError::Busy {
                    cpus: self.in_the_way(file, level, cpus, mode)?.unwrap_or(piece),
                });
            }
        }
        Ok(())
    }

    /// Returns the CPUs of `cpus` that others hold, after giving back the CPUs already taken;
    /// `None` when the other holds are gone again.
    fn in_the_way(
        &self,
        file: &OwnedFd,
        level: Level,
        cpus: &CpuSet,
        mode: Mode,
    ) -> Result<Option<CpuSet>, LedgerError> {
        unlock(file.as_fd(), 0..END).map_err(|error| self.failed("unlocking", error))?;
        let map = self.view.place.map(LockTable::Queried(file.as_fd()), level, cpus)?;
        let busy = match mode {
            Mode::Exclusive => map.held(),
            Mode::Shared => map.exclusive,
        };
        Ok((!busy.is_empty()).then_some(busy))
    }

    /// Locks the byte of an id, which distinguishes our records from those that earlier holds left
    /// behind.
    fn vouch(&self, file: &OwnedFd, mode: Mode, holder: &Holder) -> Result<Option<HoldId>, LedgerError> {
        let tag = self.view.place.tag;
        if mode == Mode::Shared && holder.job != 0 {
            let id = HoldId::of_job(holder.job, holder.uid);
            if self.lock(file, id.byte(tag), LockKind::Read)? {
                return Ok(Some(id));
            }
        }
        let since_ns = u64::try_from(holder.since.as_nanos()).unwrap_or(u64::MAX);
        let mut id = HoldId::of_process(holder.pid, holder.start_ticks, since_ns);
        for _ in 0..ID_ATTEMPTS {
            if self.lock(file, id.byte(tag), LockKind::Write)? {
                return Ok(Some(id));
            }
            id = id.next();
        }
        Ok(None) // only by a user's malice, and only a name is lost
    }

    pub(super) fn write_records(
        &self,
        cpus: &[Range<u64>],
        id: Option<HoldId>,
        holder: &Holder,
    ) -> Result<(), LedgerError> {
        let failed =
            |error| self.view.place.failed("writing the holders of CPUs to", LedgerPart::Holders, error);
        let Some(hold) = id else { return Err(failed(io::Error::other("no id is free"))) };
        let Some(file) = self.view.records() else {
            return Err(failed(io::Error::other("the file cannot be used")));
        };
        let record = Record { hold, holder: holder.clone() };
        let whole = record.has_all_memory();
        let record = record.encode();
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        for range in cpus {
            let bytes = record_bytes(range);
            if bytes.end > limit {
                return Err(failed(io::Error::other("the limit on file sizes (ulimit -f) is too low")));
            }
            let text = record.repeat(usize::try_from(bytes.end - bytes.start).unwrap_or(0) / RECORD_BYTES);
            write_at(file, &text, bytes.start).map_err(failed)?;
        }
        if !whole {
            let text = "the memory of the hold is on more nodes than a record can name; others see a part";
            return Err(failed(io::Error::other(text)));
        }
        Ok(())
    }
}

impl Held {
    /// Returns the nesting level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns whether the hold is exclusive or shared.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Returns the id that distinguishes this hold from others in [`Holders`](super::Holders).
    pub fn id(&self) -> Option<HoldId> {
        self.id
    }

    /// Returns the claim of processes that are part of this hold and have no descriptor of it.
    pub fn claim(&self) -> HoldClaim {
        let hold = self.id.map(HoldId::number);
        HoldClaim { depth: self.level.depth(), descriptor: NO_DESCRIPTOR, hold }
    }

    /// Returns the reason why other processes cannot see the holder of these CPUs; `None` if they
    /// can.
    pub fn unnamed(&self) -> Option<&LedgerError> {
        self.unnamed.as_ref()
    }

    /// Makes the hold outlive this process's exec. The descriptor stays open, at a high number that
    /// scripts do not use, and is inherited by children; the CPUs are held until the last process
    /// that has it ends. Must be called right before exec, since nothing in this process gives the
    /// CPUs back any more. Returns the number, which an enclosed run can pass to
    /// [`held_through`](super::LedgerView::held_through).
    ///
    /// A program that closes all descriptors that it did not open (daemons do, `sudo` does) gives
    /// up its hold, unless it has loaded the preload library, which keeps a mapping of the file. A
    /// helper that it leaves running in the background keeps the hold.
    ///
    /// # Errors
    /// [`LedgerError::Io`] when the process has no descriptor left; the hold is then given back.
    pub fn keep(mut self) -> Result<RawFd, LedgerError> {
        match self.lend() {
            Ok(copy) => Ok(copy.into_raw_fd()),
            Err(error) if self.file.as_raw_fd() <= 2 => Err(error),
            // No descriptor is left. The current number is more likely to be closed by a script,
            // but keeping the hold is more important.
            Err(_) => {
                fcntl_setfd(&*self.file, FdFlags::empty()).map_err(|error| self.failed(error))?;
                Ok(ManuallyDrop::new(self).file.as_raw_fd())
            }
        }
    }

    /// Returns a copy of the descriptor that children inherit, at a high number. For a parent that
    /// stays: lend, start the child, drop the copy. The CPUs are then held until this value is
    /// dropped and the child and its descendants have ended. Children that other threads start in
    /// between inherit the copy too.
    ///
    /// # Errors
    /// [`LedgerError::Io`] when the process has no descriptor left.
    pub fn lend(&mut self) -> Result<OwnedFd, LedgerError> {
        let copy_from = |lowest: RawFd| inherited::copy_from(&*self.file, lowest).ok();
        let copy = copy_from(KEPT_FROM).or_else(|| {
            // With a low limit, the highest numbers there are; at least 3, since 0 to 2 are the
            // program's own.
            let limit = getrlimit(Resource::Nofile).current.and_then(|limit| RawFd::try_from(limit).ok());
            let limit = limit.unwrap_or(RawFd::MAX);
            [limit.saturating_sub(16), limit / 2, 3].into_iter().find_map(|lowest| copy_from(lowest.max(3)))
        });
        let copy = copy.ok_or_else(|| self.failed(Errno::MFILE))?;
        self.lent = true;
        Ok(copy)
    }

    /// Ends this process's part in the hold, without giving the CPUs back for other processes that
    /// have the description: for a forked child.
    pub fn close(mut self) {
        self.lent = true;
    }

    pub(super) fn failed(&self, error: Errno) -> LedgerError {
        LedgerError::Io {
            attempt: "copying the descriptor of",
            path: self.path.clone(),
            source: error.into(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.lent {
            // Closing alone would leave the CPUs held while a child that another thread is just
            // starting still has a copy. Closing follows in any case.
            let _ = unlock(self.file.as_fd(), 0..END);
        }
    }
}

impl Mode {
    fn lock(self) -> LockKind {
        match self {
            Self::Exclusive => LockKind::Write,
            Self::Shared => LockKind::Read,
        }
    }
}

fn write_at(file: &OwnedFd, text: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < text.len() {
        match pwrite(file, &text[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
