//! Errors of the search for a virtual machine and its CPUs.

use super::qmp::QmpError;
use super::{Listed, Method, Monitor};
use crate::process::Pid;
use crate::text::{self, ReadError};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Maximal number of machines listed in a message.
const LISTED_MAX: usize = 12;

/// A method of finding CPUs that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// The method.
    pub method: Method,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.method, self.why)
    }
}

/// Reason why a virtual machine, or its CPUs, cannot be found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VmError {
    /// The process does not exist.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// The process is a kernel thread.
    #[error("process {0} is a thread of the kernel and not a virtual machine")]
    Kernel(Pid),
    /// No machine has this name.
    #[error("no virtual machine here is named {}: {}", text::printable(name.as_bytes()), here(machines))]
    Unknown {
        /// The name.
        name: String,
        /// The machines on this host.
        machines: Vec<Listed>,
    },
    /// Several machines have this name.
    #[error(
        "{} virtual machines are named {}: {}; name one by its process",
        machines.len(), text::printable(name.as_bytes()), list(machines)
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The machines with this name.
        machines: Vec<Listed>,
    },
    /// The socket gives no CPUs.
    #[error("QMP socket {}: {source}", text::printable(path.as_os_str().as_encoded_bytes()))]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: QmpError,
    },
    /// The process exists, and none of its threads is known to be a vCPU.
    #[error(
        "no thread of process {pid} ({monitor}) is known to be a virtual CPU: {}; {}",
        join(tried), remedy(*monitor)
    )]
    NoVcpus {
        /// The process.
        pid: Pid,
        /// The program that runs there.
        monitor: Monitor,
        /// The methods that were tried.
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
        [] => "none runs here visibly; a hidden one can be named by its process or its QMP socket".to_owned(),
        some => format!("here are {}", list(some)),
    }
}
