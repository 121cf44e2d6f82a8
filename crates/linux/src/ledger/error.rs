//! What can go wrong with the ledger. Every value says what was found and what would help; none of them need stop a
//! launch, which can go on without reservation and say so.

use super::level::Level;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;

/// Why the ledger cannot be used, or an operation on it was not done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Every usual directory was passed over.
    #[error(
        "no directory here can hold the ledger ({}); set TRIMTAB_LEDGER to a directory all users share",
        .tried.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoPlace {
        /// The directories, in order, with the reason against each.
        tried: Vec<PassedOver>,
    },

    /// The directory that everybody here would use is not fit.
    #[error("{} cannot hold the ledger: {found}; {remedy}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What it is instead.
        found: String,
        /// What would help.
        remedy: &'static str,
    },

    /// Something that is no ledger, or one that is not shared, stands under the ledger's name.
    #[error("{} cannot be the ledger: it is {found}, {fault}; {}", .path.display(), .fault.remedy())]
    Refused {
        /// The name.
        path: PathBuf,
        /// What stands there.
        found: Found,
        /// What is wrong with it.
        fault: Fault,
    },

    /// The file was deleted or replaced after it was opened; opening the ledger again finds the new one.
    #[error("{} was deleted or replaced while it was in use; open the ledger again", .path.display())]
    Replaced {
        /// The name.
        path: PathBuf,
    },

    /// The ledger's name kept appearing and vanishing.
    #[error("{} keeps appearing and vanishing; somebody interferes, set TRIMTAB_LEDGER to another directory", .path.display())]
    Unsettled {
        /// The name.
        path: PathBuf,
    },

    /// A system call failed.
    #[error("{attempt} {}: {source}; set TRIMTAB_LEDGER to a directory all users can write if this persists", .path.display())]
    Io {
        /// What was attempted, to be read before the path.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },

    /// Somebody else was planning all the time that was given.
    #[error(
        "another launch has been planning at level {level} for {waited:?}, perhaps stopped; CPUs can be taken without waiting for it, a collision is noticed"
    )]
    PlannerBusy {
        /// The level.
        level: Level,
        /// How long was waited.
        waited: Duration,
    },

    /// A CPU number that the ledger has no byte for.
    #[error("CPU {cpu} is beyond what the ledger can hold; numbers up to 1048575 have a place")]
    CpuOutOfRange {
        /// The CPU.
        cpu: OsCpu,
    },

    /// There is no ticket left: somebody holds the last one, or far more than anybody could need.
    #[error("the queue at level {level} is blocked by somebody's locks; try again without waiting in line")]
    QueueBlocked {
        /// The level.
        level: Level,
    },

    /// What should be the kernel's boot id is something else.
    #[error("{} should hold the boot id and holds {found:?}; is /proc mounted?", .path.display())]
    BootId {
        /// The file.
        path: PathBuf,
        /// Its text.
        found: String,
    },
}

/// Why CPUs were not taken. None of them was, in every case.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// Others hold some of them.
    #[error("CPUs {cpus} are held by others")]
    Busy {
        /// Those that were in the way.
        cpus: CpuSet,
    },
    /// There was nothing to take.
    #[error("no CPU was asked for")]
    Nothing,
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A directory that is not used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The directory.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

/// What stands under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The kind, with its article: "a regular file".
    pub kind: &'static str,
    /// The owner.
    pub uid: u32,
    /// Permission bits.
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, uid, mode, links } = self;
        write!(f, "{kind} of uid {uid}, mode {mode:04o}")?;
        if *links > 1 { write!(f, ", with {links} names") } else { Ok(()) }
    }
}

/// What is wrong with what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not a regular file.
    Kind,
    /// It has several names: writing to it would write to somebody's other file.
    Linked,
    /// Its mode keeps other users out, so it cannot be where all of them meet.
    Private,
    /// Its mode lets us in and the kernel still does not (access list, security module, read-only mount).
    Denied,
}

impl Fault {
    /// What would help.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Kind | Self::Linked => "its owner or root should remove it",
            Self::Private => "its owner or root should chmod it to 0666, or remove it while nobody uses it",
            Self::Denied => "root should look at its access list, security labels and mount options",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "not a regular file",
            Self::Linked => "which is known under other names too",
            Self::Private => "which other users cannot read and write",
            Self::Denied => "which may not be opened all the same",
        })
    }
}
