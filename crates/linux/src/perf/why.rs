//! Why a rung cannot be stood on, and what would help.

use super::cpu::Cpu;
use super::event::{EventError, Role};
use rustix::io::Errno;
use std::fmt;
use trimtab_core::counts::Rung;

/// A rung that is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Which.
    pub rung: Rung,
    /// Why.
    pub why: Why,
}

/// Why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was not asked for.
    NotAsked,
    /// Nothing is known about this processor.
    UnknownCpu(Option<Cpu>),
    /// The machine shows no counters at all.
    NoHardware,
    /// The kernel's settings, or what this process may do, forbid it.
    NotPermitted {
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i64>,
    },
    /// A filter of system calls hides the call.
    Filtered,
    /// The hardware does not take these events.
    NoSuchEvents,
    /// What was named is no event.
    Event(EventError),
    /// The counters never ran: others have them.
    Taken,
    /// An event stands still when it should count.
    Silent(Role),
    /// An event counts when it should stand still.
    Noisy(Role),
    /// Too much was tried already.
    NotTried,
    /// This process may open no more files.
    NoDescriptors,
    /// Counting slowed the programs down, or kept us busy, more than it may.
    TooDear,
    /// Most threads may not be counted, although our own may.
    ThreadsRefused,
    /// Only CPUs of virtual machines are there to be counted, and these own the counters while they run.
    GuestsHidden,
    /// The machine has one node: all memory is near.
    OneNode,
    /// The kernel could look where memory is used, and does not.
    BalancingOff,
    /// The kernel cannot.
    NoBalancing,
    /// Pages cannot be asked for their nodes.
    NoResidency(Errno),
    /// Anything else.
    Kernel(Errno),
}

impl Why {
    /// A word for it, the same in every version.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotAsked => "not-asked",
            Self::UnknownCpu(_) => "unknown-processor",
            Self::NoHardware => "no-hardware",
            Self::NotPermitted { .. } => "not-permitted",
            Self::Filtered => "filtered",
            Self::NoSuchEvents => "no-such-events",
            Self::Event(_) => "bad-event",
            Self::Taken => "taken",
            Self::Silent(_) => "silent",
            Self::Noisy(_) => "noisy",
            Self::NotTried => "not-tried",
            Self::NoDescriptors => "no-descriptors",
            Self::TooDear => "too-dear",
            Self::ThreadsRefused => "threads-refused",
            Self::GuestsHidden => "guests-hidden",
            Self::OneNode => "one-node",
            Self::BalancingOff => "balancing-off",
            Self::NoBalancing => "no-balancing",
            Self::NoResidency(_) => "no-residency",
            Self::Kernel(_) => "kernel",
        }
    }

    /// What the kernel's answer to opening counters means, where it is not about rights or guests.
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Self::NoHardware,
            Errno::NOSYS => Self::Filtered,
            Errno::BUSY => Self::Taken,
            Errno::MFILE | Errno::NFILE => Self::NoDescriptors,
            Errno::INVAL | Errno::OPNOTSUPP => Self::NoSuchEvents,
            errno => Self::Kernel(errno),
        }
    }

    /// Whether other events may do where these did not.
    pub(super) fn is_about_events(&self) -> bool {
        matches!(self, Self::NoSuchEvents | Self::Silent(_) | Self::Noisy(_))
    }
}

impl fmt::Display for Why {
    /// One line with a remedy, where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked for"),
            Self::UnknownCpu(Some(cpu)) => write!(
                f,
                "no events are known for {cpu}: name them, --counters busy=cpu/event=0x60,umask=1,cmask=1/,requests=..."
            ),
            Self::UnknownCpu(None) => f.write_str("the kernel does not say which processor this is"),
            Self::NoHardware => f.write_str(
                "this machine shows no hardware counters; in a virtual machine, its host must pass them on (QEMU: -cpu host,pmu=on)",
            ),
            Self::NotPermitted { paranoid: Some(level) } if *level > 2 => write!(
                f,
                "kernel.perf_event_paranoid is {level}, so only CAP_PERFMON may count: sudo sysctl kernel.perf_event_paranoid=2"
            ),
            Self::NotPermitted { paranoid: Some(level) } => write!(
                f,
                "refused although kernel.perf_event_paranoid is {level}: a container or security module forbids it (docker: --cap-add PERFMON)"
            ),
            Self::NotPermitted { paranoid: None } => {
                f.write_str("this process may not count: it needs CAP_PERFMON, or kernel.perf_event_paranoid at 2 or less")
            }
            Self::Filtered => f.write_str(
                "the system call is not there: a container's filter hides perf_event_open, or the kernel was built without it",
            ),
            Self::NoSuchEvents => f.write_str("the hardware, or its virtual machine, does not count these events"),
            Self::Event(error) => error.fmt(f),
            Self::Taken => f.write_str(
                "the counters never ran: others hold them (perf, a profiler, a guest that counts; sudo sysctl kernel.nmi_watchdog=0 frees one)",
            ),
            Self::Silent(role) => write!(f, "{role} does not count here, although it should (a virtual machine?)"),
            Self::Noisy(role) => write!(f, "{role} counts also where nothing waits for memory, so it means something else here"),
            Self::NotTried => f.write_str("not tried any more after so many failures"),
            Self::NoDescriptors => f.write_str("too many open files: raise the soft limit (ulimit -n)"),
            Self::TooDear => f.write_str("counting cost more than it may (0.5 % of a core, or 1 % of the programs' time)"),
            Self::ThreadsRefused => f.write_str(
                "most threads may not be counted: they are another user's, or their program forbids being looked at; CAP_PERFMON helps",
            ),
            Self::GuestsHidden => f.write_str(
                "what these virtual machines do cannot be counted from their host: KVM lends them its counters while they run (kvm.enable_mediated_pmu=0, or machines with pmu=off)",
            ),
            Self::OneNode => f.write_str("the machine has one memory node: everything is near"),
            Self::BalancingOff => f.write_str("NUMA balancing is off: sudo sysctl kernel.numa_balancing=1"),
            Self::NoBalancing => f.write_str("the kernel was built without NUMA balancing"),
            Self::NoResidency(errno) => write!(f, "pages cannot be asked for their nodes: {errno}"),
            Self::Kernel(errno) => write!(f, "the kernel refuses: {errno}"),
        }
    }
}
