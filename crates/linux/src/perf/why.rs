//! Reasons why a rung does not work, with remedies.

use super::cpu::Cpu;
use super::event::{EventError, Role};
use rustix::io::Errno;
use std::fmt;
use trimtab_core::counts::Rung;

/// A rung that does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The rung.
    pub rung: Rung,
    /// The reason.
    pub why: Why,
}

/// Reason why a rung does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The user did not request it.
    NotAsked,
    /// The table has no events for this processor.
    UnknownCpu(Option<Cpu>),
    /// The machine shows no counters at all.
    NoHardware,
    /// The kernel's settings, or the rights of this process, forbid it.
    NotPermitted {
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i64>,
    },
    /// A filter of system calls hides the call.
    Filtered,
    /// The hardware does not accept these events.
    NoSuchEvents,
    /// The named event is invalid.
    Event(EventError),
    /// The counters never ran: other users hold them.
    Taken,
    /// An event does not change when it should count.
    Silent(Role),
    /// An event counts when it should not.
    Noisy(Role),
    /// Too many tries were made already.
    NotTried,
    /// This process may open no more files.
    NoDescriptors,
    /// Counting slowed the programs down, or cost CPU time, beyond the limits.
    TooDear,
    /// Most threads may not be counted, although our own may.
    ThreadsRefused,
    /// Only vCPUs of virtual machines could be counted, and the machines own the counters while
    /// they run.
    GuestsHidden,
    /// The machine has one node: all memory is near.
    OneNode,
    /// The kernel could observe on which nodes memory is used, and does not.
    BalancingOff,
    /// The kernel cannot observe that.
    NoBalancing,
    /// Pages cannot be queried for their nodes.
    NoResidency(Errno),
    /// Anything else.
    Kernel(Errno),
}

impl Why {
    /// Returns a word for it, the same in every version.
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

    /// Returns the meaning of the kernel's error at opening counters, for errors that are not about
    /// rights or guests.
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

    /// Returns whether other events may work although these did not.
    pub(super) fn is_about_events(&self) -> bool {
        matches!(self, Self::NoSuchEvents | Self::Silent(_) | Self::Noisy(_))
    }
}

impl fmt::Display for Why {
    /// Writes one line, with a remedy if there is one.
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
            Self::NotTried => f.write_str("not tried, after too many failed tries"),
            Self::NoDescriptors => f.write_str("too many open files: raise the soft limit (ulimit -n)"),
            Self::TooDear => f.write_str("counting cost more than allowed (0.5 % of a core, or 1 % of the programs' time)"),
            Self::ThreadsRefused => f.write_str(
                "most threads may not be counted: they are another user's, or their program forbids it; CAP_PERFMON helps",
            ),
            Self::GuestsHidden => f.write_str(
                "the vCPUs of these virtual machines cannot be counted from their host: KVM lends the machines its counters while they run (kvm.enable_mediated_pmu=0, or machines with pmu=off)",
            ),
            Self::OneNode => f.write_str("the machine has one memory node: everything is near"),
            Self::BalancingOff => f.write_str("NUMA balancing is off: sudo sysctl kernel.numa_balancing=1"),
            Self::NoBalancing => f.write_str("the kernel was built without NUMA balancing"),
            Self::NoResidency(errno) => write!(f, "pages cannot be queried for their nodes: {errno}"),
            Self::Kernel(errno) => write!(f, "the kernel refuses: {errno}"),
        }
    }
}
