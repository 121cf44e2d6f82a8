//! Reasons why threads cannot be read all at once, with remedies.

use rustix::io::Errno;
use std::fmt;

/// Reason why threads are read one file after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAtOnce {
    /// This build has no such reader.
    NotBuilt,
    /// The kernel does not describe its types, or its description cannot be read.
    NoTypes(Errno),
    /// The description of the types cannot be read.
    BadTypes,
    /// The kernel lacks a type, field or function of this name.
    NoSuchName(&'static str),
    /// This process may not load programs into the kernel.
    NotPermitted,
    /// The kernel has no such call, or a filter hides it.
    NoCall,
    /// The kernel's iterator cannot be limited to one process.
    NoParameter,
    /// The kernel refused the program.
    Refused(Errno),
    /// Something that may pass: descriptors or memory ran out.
    NotNow(Errno),
    /// The records of this process differ from `/proc`: it has process numbers or a clock of its
    /// own.
    OtherNumbers,
}

impl NotAtOnce {
    /// Returns the reason for an error of the kernel that no step of opening explains.
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::NotNow(errno),
            errno => Self::Refused(errno),
        }
    }

    /// Returns whether a later try may succeed.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::NotNow(_))
    }

    /// Returns a word for it, the same in every version.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotBuilt => "not-built",
            Self::NoTypes(_) => "no-types",
            Self::BadTypes => "bad-types",
            Self::NoSuchName(_) => "no-such-name",
            Self::NotPermitted => "not-permitted",
            Self::NoCall => "no-call",
            Self::NoParameter => "no-parameter",
            Self::Refused(_) => "refused",
            Self::NotNow(_) => "not-now",
            Self::OtherNumbers => "other-numbers",
        }
    }
}

impl fmt::Display for NotAtOnce {
    /// Writes one line, with a remedy if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => f.write_str("this build has no reader for it (cargo feature bpf)"),
            Self::NoTypes(Errno::NOENT) => f.write_str(
                "there is no /sys/kernel/btf/vmlinux: the kernel was built without CONFIG_DEBUG_INFO_BTF, or /sys is not mounted",
            ),
            Self::NoTypes(errno) => write!(f, "/sys/kernel/btf/vmlinux cannot be read: {errno}"),
            Self::BadTypes => f.write_str("the kernel's description of its types cannot be understood"),
            Self::NoSuchName(name) => write!(f, "this kernel has no {name}"),
            Self::NotPermitted => f.write_str(
                "this process may not load programs into the kernel: it needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down",
            ),
            Self::NoCall => f.write_str(
                "the system call is not there: a container's filter hides bpf, or the kernel was built without it",
            ),
            Self::NoParameter => {
                f.write_str("this kernel's iterator cannot be limited to one process; Linux 6.1 or newer can")
            }
            Self::Refused(errno) => write!(f, "the kernel refused the program: {errno}"),
            Self::NotNow(errno) => write!(f, "{errno}; it is tried again"),
            Self::OtherNumbers => f.write_str(
                "process numbers or start times here differ from the kernel's own (a container with a PID or time namespace)",
            ),
        }
    }
}
