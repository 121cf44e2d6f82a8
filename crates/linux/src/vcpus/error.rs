//! Why a virtual machine, or its CPUs, cannot be found.

use super::qmp::QmpError;
use super::{Listed, Method, Monitor};
use crate::process::Pid;
use crate::text::{self, ReadError};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// So many machines are listed in a message.
const LISTED_MAX: usize = 12;

/// One way to find CPUs that did not help.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// The way.
    pub method: Method,
    /// What came of it.
    pub why: String,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.method, self.why)
    }
}

/// Why a virtual machine, or its CPUs, cannot be found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VmError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// The kernel's own.
    #[error("process {0} is a thread of the kernel and no virtual machine")]
    Kernel(Pid),
    /// No machine has this name.
    #[error("no virtual machine here is named {}: {}", text::printable(name.as_bytes()), here(machines))]
    Unknown {
        /// The name.
        name: String,
        /// Those that are here.
        machines: Vec<Listed>,
    },
    /// Several have it.
    #[error(
        "{} virtual machines are named {}: {}; name the one by its process",
        machines.len(), text::printable(name.as_bytes()), list(machines)
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// Those that have it.
        machines: Vec<Listed>,
    },
    /// The socket does not tell.
    #[error("QMP socket {}: {source}", text::printable(path.as_os_str().as_encoded_bytes()))]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        source: QmpError,
    },
    /// It is there, and none of its threads is known to be a CPU.
    #[error(
        "no thread of process {pid} ({monitor}) is known to be a virtual CPU: {}; {}",
        join(tried), remedy(*monitor)
    )]
    NoVcpus {
        /// The process.
        pid: Pid,
        /// What runs there.
        monitor: Monitor,
        /// What was tried.
        tried: Vec<Tried>,
    },
    /// Files of the kernel cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn join(tried: &[Tried]) -> String {
    tried.iter().map(Tried::to_string).collect::<Vec<_>>().join("; ")
}

fn remedy(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Qemu => {
            "start it with -name NAME,debug-threads=on, or with -qmp unix:PATH,server=on,wait=off and name that socket"
        }
        Monitor::Other => {
            "is it a virtual machine? Others are attached to by their process alone, without --vm"
        }
        _ => "perhaps it has not started its CPUs yet; as root more can be seen",
    }
}

fn list(machines: &[Listed]) -> String {
    let mut shown: Vec<String> = machines.iter().take(LISTED_MAX).map(Listed::to_string).collect();
    if machines.len() > LISTED_MAX {
        shown.push(format!("{} more", machines.len() - LISTED_MAX));
    }
    shown.join(", ")
}

fn here(machines: &[Listed]) -> String {
    match machines {
        [] => "none runs here that can be seen; one that is hidden can be named by its process or its QMP socket".to_owned(),
        some => format!("here are {}", list(some)),
    }
}
