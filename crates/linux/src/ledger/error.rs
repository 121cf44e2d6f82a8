//! Errors of the ledger. Every error names the value found and the remedy. None of them need stop a
//! launch, which can continue without a reservation and say so.

use super::level::Level;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;

/// Reason why the ledger cannot be used, or why an operation on it was not done.
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

    /// The directory that all users here would use is not fit.
    #[error("{} cannot hold the ledger: {found}; {remedy}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The defect of the directory.
        found: String,
        /// Advice to the user.
        remedy: &'static str,
    },

    /// The ledger's name belongs to a file that is not a ledger, or that is not shared.
    #[error("{} cannot be the ledger: it is {found}, {fault}; {}", .path.display(), .fault.remedy())]
    Refused {
        /// The path.
        path: PathBuf,
        /// The file at that path.
        found: FoundFile,
        /// The defect of that file.
        fault: Fault,
    },

    /// The file was deleted or replaced after it was opened; opening the ledger again finds the new
    /// one.
    #[error("{} was deleted or replaced while it was in use; open the ledger again", .path.display())]
    Replaced {
        /// The path.
        path: PathBuf,
    },

    /// The ledger's name kept appearing and vanishing.
    #[error("{} keeps appearing and vanishing; another process interferes, set TRIMTAB_LEDGER to another directory", .path.display())]
    Unsettled {
        /// The path.
        path: PathBuf,
    },

    /// A system call failed.
    #[error("{attempt} {}: {source}; set TRIMTAB_LEDGER to a directory all users can write if this persists", .path.display())]
    Io {
        /// The attempted action, as text before the path.
        attempt: &'static str,
        /// The path it was done on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },

    /// Another process was planning during the whole time that was given.
    #[error(
        "another launch has been planning at level {level} for {waited:?}, perhaps stopped; CPUs can be taken without waiting for it, a collision is noticed"
    )]
    PlannerBusy {
        /// The level.
        level: Level,
        /// Time spent waiting.
        waited: Duration,
    },

    /// A CPU number for which the ledger has no byte.
    #[error("CPU {cpu} is beyond what the ledger can hold; numbers up to 1048575 have a place")]
    CpuOutOfRange {
        /// The CPU.
        cpu: OsCpu,
    },

    /// No ticket is left: a process holds the last one, or far more than any honest use needs.
    #[error(
        "the queue at level {level} is blocked by another process's locks; try again without waiting in line"
    )]
    QueueBlocked {
        /// The level.
        level: Level,
    },

    /// The kernel's boot id file has unexpected content.
    #[error("{} should hold the boot id and holds {found:?}; is /proc mounted?", .path.display())]
    BootId {
        /// The file.
        path: PathBuf,
        /// Text of the file.
        found: String,
    },
}

/// Reason why CPUs were not taken. In every case none was taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// Other holds have some of them.
    #[error("CPUs {cpus} are held by others")]
    Busy {
        /// The conflicting CPUs.
        cpus: CpuSet,
    },
    /// The set of CPUs was empty.
    #[error("no CPU was asked for")]
    Nothing,
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A directory that was passed over, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The directory.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

/// The file that was found under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The kind, with its article: "a regular file".
    pub kind: &'static str,
    /// The owner.
    pub uid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
}

impl fmt::Display for FoundFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, uid, mode, links } = self;
        write!(f, "{kind} of uid {uid}, mode {mode:04o}")?;
        if *links > 1 { write!(f, ", with {links} names") } else { Ok(()) }
    }
}

/// Defect of a file that was found under the ledger's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not a regular file.
    Kind,
    /// It has several names: writing to it would write to another user's file.
    Linked,
    /// Its mode keeps other users out, so not all users can share it.
    Private,
    /// Its mode allows access but the kernel refuses it (access list, security module, read-only
    /// mount).
    Denied,
}

impl Fault {
    /// Returns advice to the user.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Kind | Self::Linked => "its owner or root should remove it",
            Self::Private => {
                "its owner or root should chmod it to 0666, or remove it while no program uses it"
            }
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
            Self::Denied => "which still may not be opened",
        })
    }
}
