//! Read-only view of the ledger: held CPUs, their holders, and the waiting runs.

use super::Mode;
use super::error::LedgerError;
use super::file::{Access, LedgerFile, Opened};
use super::layout::{HoldId, cpu_bytes, queue_bytes, set_bytes};
use super::level::Level;
use super::listing::{Identity, Listing};
use super::map::{LockMap, LockTable};
use super::place::{LedgerDirectory, LedgerPart, Location, Scratch};
use super::process::{ProcessTable, Standing};
use super::record::{Holder, RECORD_BYTES, Record};
use crate::sys::lock::ByteLock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use trimtab_core::ids::{Id, OsCpu, OsNode};
use trimtab_core::set::CpuSet;

/// CPUs of one hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Distinguishes the hold from other living holds.
    pub id: HoldId,
    /// Nesting level.
    pub level: Level,
    /// Exclusive or shared.
    pub mode: Mode,
    /// CPUs of the hold that are locked now.
    pub cpus: CpuSet,
    /// Claimed holder; of a job's processes, the last that joined. Not verified: see
    /// [`ProcessTable::standing`].
    pub holder: Holder,
}

/// CPUs and memory that the processes of a job hold together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Bytes on each node.
    pub memory: BTreeMap<OsNode, u64>,
}

/// All holds of CPUs at a level.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holders {
    /// The holds, ordered by their lowest CPU.
    pub known: Vec<Hold>,
    /// CPUs that are held, without a record that a living hold vouches for.
    pub unknown: CpuSet,
}

/// The ledger, open for reading. Needs only read access to its files, and creates nothing.
#[derive(Debug)]
pub struct LedgerView {
    pub(super) place: LedgerDirectory,
    pub(super) identity: Identity,
    locks: Locks,
    /// File of records. `None` when it does not exist or may not be read.
    records: Option<Arc<OwnedFd>>,
    names_missing: Option<LedgerError>,
    has_predecessors: bool,
}

/// Source of the locks.
#[derive(Debug)]
enum Locks {
    /// An open file description. It does not see its own locks, so it holds none, except that of
    /// the planner and the hold that ends the use of this view ([`super::Ledger::last_planner`]).
    File(Arc<OwnedFd>),
    /// The kernel's list at the time of opening, because this process may not open the file.
    Listed(Vec<ByteLock>),
}

impl LedgerView {
    /// Opens the ledger for reading; `None` when it does not exist. When the lock file may not be
    /// read, the locks come from `/proc/locks`, as they were at this moment: open again for a later
    /// state.
    ///
    /// # Errors
    /// [`LedgerError::NoPlace`], [`LedgerError::Directory`] when there is no place for a ledger,
    /// [`LedgerError::Refused`] when something else has its name, [`LedgerError::Io`].
    pub fn open(location: &Location) -> Result<Option<Self>, LedgerError> {
        let place = location.find()?;
        let (locks, identity, has_predecessors) = match place.open(LedgerPart::Locks, Access::Read)? {
            Opened::Yes(file) => {
                (Locks::File(Arc::new(file.descriptor)), file.identity, file.has_predecessors)
            }
            Opened::Closed(identity, _) => {
                (Locks::Listed(Listing::of_system(&place.proc_root).of_file(identity)), identity, false)
            }
            Opened::Absent => return Ok(None),
        };
        let (records, names_missing) = match place.open(LedgerPart::Holders, Access::Read) {
            Ok(Opened::Yes(file)) => (Some(Arc::new(file.descriptor)), None),
            Ok(Opened::Closed(_, error)) | Err(error) => (None, Some(error)),
            Ok(Opened::Absent) => (None, None),
        };
        Ok(Some(Self { place, identity, locks, records, names_missing, has_predecessors }))
    }

    /// Makes the view of a process that takes CPUs.
    pub(super) fn taking_part(
        place: LedgerDirectory,
        locks: LedgerFile,
        holders: Result<LedgerFile, LedgerError>,
    ) -> Self {
        let LedgerFile { descriptor, identity, has_predecessors } = locks;
        let (records, names_missing) = match holders {
            Ok(file) => (Some(Arc::new(file.descriptor)), None),
            Err(error) => (None, Some(error)),
        };
        let locks = Locks::File(Arc::new(descriptor));
        Self { place, identity, locks, records, names_missing, has_predecessors }
    }

    /// Returns the path of the lock file.
    pub fn path(&self) -> PathBuf {
        self.place.path(LedgerPart::Locks)
    }

    /// Returns the reason why no holder can be named, when the file of records cannot be used. CPUs
    /// can be held regardless.
    pub fn names_missing(&self) -> Option<&LedgerError> {
        self.names_missing.as_ref()
    }

    /// Returns the lock file as this view opened it.
    pub(super) fn lock_file(&self) -> Option<&Arc<OwnedFd>> {
        match &self.locks {
            Locks::File(file) => Some(file),
            Locks::Listed(_) => None,
        }
    }

    pub(super) fn records(&self) -> Option<&Arc<OwnedFd>> {
        self.records.as_ref()
    }

    /// Returns the directory for files of single users, if it is that of the ledger.
    pub(crate) fn scratch(&self) -> Option<Scratch> {
        self.place.scratch()
    }

    /// Returns the CPUs of `within` that are held at a level by any process, this one included.
    /// Takes about two system calls per contiguous range of held CPUs.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`], [`LedgerError::Io`].
    pub fn map(&self, level: Level, within: &CpuSet) -> Result<LockMap, LedgerError> {
        let mut map = self.place.map(self.table(), level, within)?;
        map.lost = self.lost(level, within)?;
        Ok(map)
    }

    /// Returns the CPUs of `within` that are held through deleted files.
    pub(super) fn lost(&self, level: Level, within: &CpuSet) -> Result<CpuSet, LedgerError> {
        if !self.has_predecessors {
            return Ok(CpuSet::new());
        }
        let locks = Listing::of_system(&self.place.proc_root).lost(self.place.tag, self.identity);
        Ok(self.place.map(LockTable::Listed(&locks), level, within)?.held())
    }

    /// Returns the holders of CPUs of `within` at a level.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn holders(&self, level: Level, within: &CpuSet) -> Result<Holders, LedgerError> {
        let map = self.map(level, within)?;
        let mut alive: BTreeMap<HoldId, bool> = BTreeMap::new();
        let mut holds: BTreeMap<(HoldId, u32, Mode), Hold> = BTreeMap::new();
        let mut unknown = map.lost.clone();
        for (mode, cpus) in [(Mode::Exclusive, &map.exclusive), (Mode::Shared, &map.shared)] {
            for (cpu, record) in self.read_records(level, cpus)? {
                let Some(Record { hold: id, holder }) = record else {
                    unknown.insert(cpu);
                    continue;
                };
                let lives = match alive.get(&id) {
                    Some(&lives) => lives,
                    None => *alive.entry(id).or_insert(self.is_alive(id)?),
                };
                if !lives {
                    unknown.insert(cpu); // left behind by an earlier hold
                    continue;
                }
                let fresh = |holder| Hold { id, level, mode, cpus: CpuSet::new(), holder };
                let memory = holder.memory.clone();
                let hold = holds.entry((id, holder.uid, mode)).or_insert_with(|| fresh(holder));
                hold.cpus.insert(cpu);
                // All records of a hold name its whole memory, unless an older version wrote one.
                for (node, bytes) in memory {
                    let known = hold.holder.memory.entry(node).or_default();
                    *known = bytes.max(*known);
                }
            }
        }
        let mut known: Vec<Hold> = holds.into_values().collect();
        known.sort_by_key(|hold| (hold.cpus.first(), hold.id));
        Ok(Holders { known, unknown })
    }

    /// Returns what processes of user `uid` hold for `job` on shared CPUs of `within`; `None` if
    /// they hold nothing. A further process of the job joins these CPUs. Records of processes that
    /// verifiably belong to another user do not count.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn find_group(
        &self,
        level: Level,
        within: &CpuSet,
        job: u64,
        uid: u32,
        processes: &ProcessTable,
    ) -> Result<Option<Group>, LedgerError> {
        if job == 0 {
            return Ok(None);
        }
        let ours = |hold: &Hold| {
            hold.mode == Mode::Shared
                && hold.holder.job == job
                && hold.holder.uid == uid
                && !matches!(processes.standing(&hold.holder), Standing::Impostor { .. })
        };
        let holds = self.holders(level, within)?.known;
        let mut group = Group::default();
        for hold in holds.iter().filter(|hold| ours(hold)) {
            group.cpus = group.cpus.union(&hold.cpus);
            group.memory.extend(&hold.holder.memory);
        }
        Ok((!group.cpus.is_empty()).then_some(group))
    }

    /// Returns the number of runs that wait for CPUs of the set that `confines` names (see
    /// [`Ledger::enqueue`](super::Ledger::enqueue)).
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn waiting(&self, level: Level, confines: &CpuSet) -> Result<u64, LedgerError> {
        let lane = queue_bytes(level, confines.first().unwrap_or_default())?;
        let locks = self
            .table()
            .all(lane)
            .map_err(|error| self.place.failed("asking for the queue of", LedgerPart::Locks, error))?;
        Ok(total(&locks))
    }

    /// Returns the CPUs of a level that one of *this process's* open descriptors holds, as an
    /// enclosing run handed them down. The set is empty when the descriptor is closed or by now
    /// belongs to another file, whatever the environment says. Holds on a deleted ledger count.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`].
    pub fn held_through(
        &self,
        descriptor: i32,
        level: Level,
        within: &CpuSet,
    ) -> Result<CpuSet, LedgerError> {
        let locks = Listing::of_descriptor(&self.place.proc_root, descriptor)
            .present_or_lost(self.place.tag, self.identity);
        Ok(self.place.map(LockTable::Listed(&locks), level, within)?.held())
    }

    /// Returns the CPUs of a level that open descriptors of another process hold: the part of a
    /// run's hold that the process inherited. The set is empty when this process may not see those
    /// descriptors.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`].
    pub fn held_by(&self, pid: u32, level: Level, within: &CpuSet) -> Result<CpuSet, LedgerError> {
        let locks =
            Listing::of_process(&self.place.proc_root, pid).present_or_lost(self.place.tag, self.identity);
        Ok(self.place.map(LockTable::Listed(&locks), level, within)?.held())
    }

    /// Returns the processes that lock some of `cpus` at a level, as far as the kernel shows them
    /// to this user: to root all of them, to others their own and those with classic locks. Reads
    /// the descriptors of all processes, so it is for messages about locks without a record.
    ///
    /// # Errors
    /// [`LedgerError::CpuOutOfRange`].
    pub fn lockers(&self, level: Level, cpus: &CpuSet) -> Result<BTreeSet<u32>, LedgerError> {
        let bytes = set_bytes(level, cpus)?;
        let proc_root = &self.place.proc_root;
        let classic = Listing::of_system(proc_root).owners(self.identity, &bytes);
        let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let holding = pids.filter(|&pid| Listing::of_process(proc_root, pid).has(self.identity, &bytes));
        Ok(holding.chain(classic).collect())
    }

    pub(super) fn table(&self) -> LockTable<'_> {
        match &self.locks {
            Locks::File(file) => LockTable::Queried(file.as_fd()),
            Locks::Listed(locks) => LockTable::Listed(locks),
        }
    }

    /// Returns whether any process vouches for the hold's records.
    pub(super) fn is_alive(&self, id: HoldId) -> Result<bool, LedgerError> {
        let lock = self.table().any(&id.byte(self.place.tag));
        Ok(lock
            .map_err(|error| self.place.failed("asking for a hold in", LedgerPart::Locks, error))?
            .is_some())
    }

    /// Reads the records of CPUs, one contiguous range at a time.
    fn read_records(&self, level: Level, cpus: &CpuSet) -> Result<Vec<(OsCpu, Option<Record>)>, LedgerError> {
        let mut records = Vec::new();
        for (first, last) in cpus.ranges() {
            let bytes = cpu_bytes(level, first, last)?;
            let text =
                self.records.as_ref().map_or_else(Vec::new, |file| read_at(file, &record_bytes(&bytes)));
            for (at, cpu) in (first.index()..=last.index()).map(OsCpu::from_index).enumerate() {
                let record = text.get(at * RECORD_BYTES..(at + 1) * RECORD_BYTES);
                records.push((cpu, record.and_then(Record::decode)));
            }
        }
        Ok(records)
    }
}

impl LedgerDirectory {
    /// Returns the locks that a table has on CPUs, as sets.
    pub(super) fn map(
        &self,
        table: LockTable<'_>,
        level: Level,
        within: &CpuSet,
    ) -> Result<LockMap, LedgerError> {
        let (Some(first), Some(last)) = (within.first(), within.last()) else {
            return Ok(LockMap::default());
        };
        let locks = table.all(cpu_bytes(level, first, last)?);
        let locks =
            locks.map_err(|error| self.failed("asking for the locks of", LedgerPart::Locks, error))?;
        Ok(LockMap::of(&locks, within))
    }
}

/// Returns the number of locked bytes.
pub(super) fn total(locks: &[ByteLock]) -> u64 {
    locks.iter().map(|lock| lock.bytes.end - lock.bytes.start).sum()
}

/// Returns the position of the records of the CPUs with these lock bytes.
pub(super) fn record_bytes(cpus: &Range<u64>) -> Range<u64> {
    let size = RECORD_BYTES as u64;
    cpus.start * size..cpus.end * size
}

/// Reads the bytes that are present. Any process may truncate the file at any time, so it is read
/// and never mapped. Missing and unreadable bytes are not a record.
fn read_at(file: &OwnedFd, bytes: &Range<u64>) -> Vec<u8> {
    let mut text = vec![0; usize::try_from(bytes.end - bytes.start).unwrap_or(0)];
    let mut done = 0;
    while done < text.len() {
        match rustix::io::pread(file, &mut text[done..], bytes.start + done as u64).map_err(io::Error::from) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    text.truncate(done);
    text
}
