//! A ledger of its own for each test, in a directory like the shared ones of a real machine.

use crate::actor::Actor;
use rustix::process::{geteuid, getuid};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trimtab_core::queue::Demand;
use trimtab_core::set::CpuSet;
use trimtab_linux::ledger::{
    BootId, Held, Holder, Ledger, Level, Location, Mode, ProcessTable, TakeError, Ticket, TicketClaim,
};

pub(crate) const MACHINE: Level = Level::MACHINE;
pub(crate) const BOOT: &str = "00000000-1111-2222-3333-444444444444";
/// Time after which a test counts as hung. No test asserts that anything is faster.
pub(crate) const HANG: Duration = Duration::from_secs(180);

pub(crate) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// The pretend machine.
pub(crate) fn cpus() -> CpuSet {
    set("0-63")
}

pub(crate) struct Scene {
    root: tempfile::TempDir,
}

impl Scene {
    /// Makes a scene with an empty sticky directory, in memory if possible.
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let root = tempfile::Builder::new().prefix("ledger-test-").tempdir_in(parent).unwrap();
        let scene = Self { root };
        scene.chmod(scene.root.path(), 0o755);
        fs::create_dir(scene.directory()).unwrap();
        scene.chmod(&scene.directory(), 0o1777);
        scene
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("sticky")
    }

    pub(crate) fn chmod(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn location(&self) -> Location {
        location(&self.directory())
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::open(&self.location()).unwrap()
    }

    pub(crate) fn file(&self, suffix: &str) -> PathBuf {
        self.directory().join(format!("trimtab-{}.{suffix}", BootId::parse(BOOT).unwrap()))
    }

    /// Starts another process of this user, with the ledger open.
    pub(crate) fn actor(&self) -> Actor {
        let mut actor = Actor::start(&self.directory(), None);
        actor.ask("open");
        actor
    }

    /// Starts a process of another user, with nothing open.
    pub(crate) fn actor_of(&self, user: u32) -> Actor {
        Actor::start(&self.directory(), Some(user))
    }
}

pub(crate) fn location(directory: &Path) -> Location {
    Location::named(directory, BootId::parse(BOOT).unwrap())
}

pub(crate) fn processes() -> ProcessTable {
    ProcessTable::at(Path::new("/proc"))
}

/// Returns this process as a holder.
pub(crate) fn us(label: &str, job: u64) -> Holder {
    processes().this_process(job, Duration::from_secs(1), label).unwrap()
}

/// Returns the claim of a waiter for one of the machine's cores.
pub(crate) fn claim() -> TicketClaim {
    let demand = Demand { cpus: cpus(), cores: Some(1) };
    TicketClaim { holder: us("waiter", 0), demand: Some(demand), cores: Some(1), priority: 0 }
}

/// Returns the number of tickets before this one, without those that are passed over.
pub(crate) fn ahead(ticket: &mut Ticket) -> u64 {
    let runs = ticket.queue(&processes()).unwrap();
    runs.iter().filter(|run| run.ticket < ticket.number() && !run.stopped).count() as u64
}

pub(crate) fn take(ledger: &Ledger, cpus: &str, mode: Mode) -> Result<Held, TakeError> {
    ledger.take(MACHINE, &set(cpus), mode, &us("test", 0))
}

pub(crate) fn busy(result: Result<Held, TakeError>) -> CpuSet {
    match result {
        Err(TakeError::Busy { cpus }) => cpus,
        other => panic!("{other:?} should have been busy"),
    }
}

/// Waits for a condition that a dying process fulfils in its own time.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns two ordinary users, if this process may act as them.
pub(crate) fn users(test: &str) -> Option<[u32; 2]> {
    if geteuid().is_root() && getuid().is_root() {
        return Some([61_001, 61_002]);
    }
    eprintln!("SKIPPED: {test} needs root, to act as two users");
    None
}

/// Random numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64, Steele, Lea and Flood 2014
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
