//! Counters of the kernel's `perf` interface: opened for one task, in groups that count together or
//! not at all.
//!
//! The counts belong to the descriptor: counting ends when it is closed, and a task that has ended
//! keeps its last counts.

use super::errno;
use crate::process::Tid;
use rustix::io::Errno;
use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `PERF_ATTR_SIZE_VER1`. Kernels accept the structure in all its published sizes, and this version
/// has all fields that are used here.
const ATTR_BYTES: u32 = 72;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `PERF_FORMAT_TOTAL_TIME_RUNNING` and `PERF_FORMAT_GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 8;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_DISABLE` and `PERF_EVENT_IOC_RESET`: request numbers
/// without data, equal on x86 and Arm.
const ENABLE: c_ulong = 0x2400;
const DISABLE: c_ulong = 0x2401;
const RESET: c_ulong = 0x2403;
/// `PERF_IOC_FLAG_GROUP`.
const WHOLE_GROUP: c_ulong = 1;
/// Bits of the structure's flags.
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const EXCLUDE_GUEST: u64 = 1 << 20;

/// Largest number of counters that are read at once.
pub const GROUP_MAX: usize = 16;

/// The event to count, as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// The kind of counter: a number of `/sys/bus/event_source/devices/*/type`.
    pub kind: u32,
    /// The event of that kind, in three words.
    pub config: [u64; 3],
    /// Begins switched off. In a group the leader's setting decides.
    pub off: bool,
    /// Does not count while the thread is in the kernel.
    pub user_only: bool,
    /// Does not count while the thread runs a virtual machine.
    pub no_guests: bool,
}

/// `struct perf_event_attr`, up to the last field that is used.
#[repr(C)]
struct RawAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
}

const _: () = assert!(size_of::<RawAttr>() == ATTR_BYTES as usize, "as the kernel lays it out");

/// Opens a counter of a task on whatever CPU the task runs; `None` is the calling thread. With a
/// leader the counter joins the leader's group.
///
/// # Errors
/// `ENOENT` when the machine has no counter for the event, `EACCES` or `EPERM` when the event may
/// not be counted or the task not be observed, `ESRCH` when the task does not exist, `EINVAL` when
/// the hardware cannot count the event (together with the rest of the group), `EOPNOTSUPP` when it
/// cannot count the event that way, `EMFILE`; any error of a system-call filter.
pub fn open(attr: &Attr, task: Option<Tid>, leader: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let raw = RawAttr {
        kind: attr.kind,
        size: ATTR_BYTES,
        config: attr.config[0],
        sample_period: 0,
        sample_type: 0,
        read_format: READ_FORMAT,
        flags: EXCLUDE_HYPERVISOR
            | flag(attr.off, DISABLED)
            | flag(attr.user_only, EXCLUDE_KERNEL)
            | flag(attr.no_guests, EXCLUDE_GUEST),
        wakeup: 0,
        breakpoint: 0,
        config1: attr.config[1],
        config2: attr.config[2],
    };
    // A number that no task can have must not become 0, which is the calling thread.
    let pid = match task {
        None => 0,
        Some(tid) => libc::pid_t::try_from(tid.0).ok().filter(|&id| id > 0).ok_or(Errno::SRCH)?,
    };
    let any_cpu: c_int = -1;
    let group: c_int = leader.map_or(-1, |leader| leader.as_raw_fd());
    // SAFETY: the kernel reads `size` bytes from the pointer, which is the size of the live
    // structure behind it, laid out as `perf_event_attr` and without padding; it keeps no reference
    // after the call. The leader is borrowed, so open.
    let answer =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const raw, pid, any_cpu, group, CLOEXEC) };
    match c_int::try_from(answer) {
        // SAFETY: the kernel made this descriptor just now, and nothing else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(errno::last()),
    }
}

/// Switches all counters of a group on.
///
/// # Errors
/// The kernel's error.
pub fn enable(leader: impl AsFd) -> Result<(), Errno> {
    control(leader.as_fd(), ENABLE)
}

/// Switches all counters of a group off. They keep their counts.
///
/// # Errors
/// The kernel's error.
pub fn disable(leader: impl AsFd) -> Result<(), Errno> {
    control(leader.as_fd(), DISABLE)
}

/// Sets all counters of a group to zero, but not the times.
///
/// # Errors
/// The kernel's error.
pub fn reset(leader: impl AsFd) -> Result<(), Errno> {
    control(leader.as_fd(), RESET)
}

fn control(leader: BorrowedFd<'_>, request: c_ulong) -> Result<(), Errno> {
    // SAFETY: the descriptor is borrowed, so open; these requests take a number and no pointer, and
    // touch no memory of ours. The kernel refuses them on a descriptor that is not a counter.
    let answer = unsafe { libc::ioctl(leader.as_raw_fd(), request as _, WHOLE_GROUP) };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Counts of a group so far, in nanoseconds and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupReading {
    /// Time that its task ran while the group was switched on.
    pub enabled: u64,
    /// Part of that time in which the group counted.
    pub running: u64,
    counts: [u64; GROUP_MAX],
    many: usize,
}

impl GroupReading {
    /// Returns the counts, leader first.
    pub fn counts(&self) -> &[u64] {
        &self.counts[..self.many]
    }
}

/// Reads all counters of a group at once.
///
/// # Errors
/// The kernel's error; `EINVAL` when the bytes read are not a group.
pub fn read(leader: impl AsFd) -> Result<GroupReading, Errno> {
    const WORD_BYTES: usize = size_of::<u64>();
    let mut bytes = [0; (3 + GROUP_MAX) * WORD_BYTES];
    let filled = loop {
        match rustix::io::read(&leader, &mut bytes) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(filled) => break filled,
        }
    };
    let word = |at: usize| {
        let bytes = bytes[..filled].get(at * WORD_BYTES..(at + 1) * WORD_BYTES)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    let many = word(0).and_then(|many| usize::try_from(many).ok()).filter(|many| *many <= GROUP_MAX);
    let read = || {
        let many = many?;
        let mut counts = [0; GROUP_MAX];
        for (at, count) in counts.iter_mut().enumerate().take(many) {
            *count = word(3 + at)?;
        }
        Some(GroupReading { enabled: word(1)?, running: word(2)?, counts, many })
    };
    read().ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;

    /// `PERF_TYPE_SOFTWARE`: counted by the kernel itself, on any machine.
    const TYPE_SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;
    const PAGE_FAULTS: u64 = 2;

    fn software(config: u64, off: bool) -> Attr {
        Attr { kind: TYPE_SOFTWARE, config: [config, 0, 0], off, user_only: true, no_guests: false }
    }

    #[test]
    fn a_group_counts_while_it_is_on_and_is_read_at_once() {
        let leader = match open(&software(TASK_CLOCK, true), None, None) {
            Ok(leader) => leader,
            Err(errno) => return skipped(format_args!("nothing may be counted here: {errno}")),
        };
        let member = open(&software(PAGE_FAULTS, false), None, Some(leader.as_fd())).unwrap();
        let work = || std::hint::black_box((0..100_000u64).fold(0, |sum: u64, at| sum ^ (at * 7)));
        work();
        let before = read(&leader).unwrap();
        assert_eq!((before.running, before.counts()), (0, &[0, 0][..]), "switched off");
        enable(&leader).unwrap();
        let touched = vec![1u8; 1 << 20];
        work();
        disable(&leader).unwrap();
        let counted = read(&leader).unwrap();
        assert!(counted.running > 0 && counted.counts()[0] > 0 && counted.counts().len() == 2);
        work();
        assert_eq!(read(&leader).unwrap(), counted, "off again");
        reset(&leader).unwrap();
        assert_eq!(read(&leader).unwrap().counts(), &[0, 0]);
        drop((touched, member));
    }

    #[test]
    fn an_unknown_task_and_an_unknown_counter_are_refused() {
        let attr = software(TASK_CLOCK, true);
        for none in [0, 4_000_000, u32::MAX] {
            let refused = open(&attr, Some(Tid(none)), None).unwrap_err();
            assert!(matches!(refused, Errno::SRCH | Errno::ACCESS | Errno::PERM), "{none}: {refused}");
        }
        let unknown = Attr { kind: 0xdead_beef, ..attr };
        assert!(open(&unknown, None, None).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(enable(&file).is_err());
        assert_eq!(read(&file), Err(Errno::INVAL));
    }

    #[test]
    fn a_task_that_has_ended_keeps_its_counts() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            ended.recv().unwrap();
        });
        let tid = Tid(told.recv().unwrap().as_raw_nonzero().get().unsigned_abs());
        let Ok(counter) = open(&software(TASK_CLOCK, false), Some(tid), None) else {
            end.send(()).unwrap();
            return skipped("nothing may be counted here");
        };
        end.send(()).unwrap();
        thread.join().unwrap();
        let last = read(&counter);
        assert!(last.is_ok(), "{last:?}");
    }
}
