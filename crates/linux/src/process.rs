//! One process or thread as `/proc` shows it: bytes in, typed values out.
//!
//! The kernel reuses process numbers: a process is *the same one* when its id and its [`StartTime`]
//! are. The user of a program chooses its name and arguments, so they are made printable here,
//! once.

use crate::text::{self, ReadError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::{CpuSet, NodeSet};

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// `PF_NO_SETAFFINITY`, from the same header.
const NO_SETAFFINITY: u32 = 0x0400_0000;
/// Clock ticks in a second, in which /proc gives times (`USER_HZ`): the kernel's interface has the
/// same number on all architectures but Alpha and Itanium. A test compares it with the kernel's.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

macro_rules! task_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

task_ids! {
    /// A process.
    Pid;
    /// A thread. The first thread of a process has the number of the process.
    Tid;
}

impl Pid {
    /// The calling process.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// The first thread of the process.
    pub fn main_thread(self) -> Tid {
        Tid(self.0)
    }
}

/// Start of a process, in clock ticks since boot. With its [`Pid`] it identifies the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartTime(pub u64);

impl StartTime {
    /// Returns the time since the start, when the boot-time clock (`CLOCK_BOOTTIME`) shows `now`.
    /// Exact to a clock tick, 10 ms.
    pub fn age(self, now: Duration) -> Duration {
        now.saturating_sub(from_ticks(self.0))
    }
}

/// State of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// On a CPU or waiting for one.
    Running,
    /// Asleep until something happens.
    Sleeping,
    /// Asleep in the kernel and not woken by signals, usually for a disk.
    Waiting,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a debugger.
    Traced,
    /// Ended, not yet collected by its parent.
    Zombie,
    /// A kernel thread without work.
    Idle,
    /// Another state, as the kernel's letter.
    Other(char),
}

impl State {
    fn from_letter(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' => Self::Sleeping,
            b'D' => Self::Waiting,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' => Self::Zombie,
            b'I' => Self::Idle,
            other => Self::Other(char::from(other)),
        }
    }
}

/// A line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Stat {
    /// The process, or the thread if a thread's file was read.
    pub id: u32,
    /// The short name, made printable; the kernel keeps at most 15 bytes.
    pub comm: String,
    /// The state.
    pub state: State,
    /// The parent; 0 for the first process and for parents outside the process-id namespace.
    pub parent: Pid,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    /// Whether the kernel refuses any change of its mask.
    pub fixed: bool,
    /// CPU time in user mode. A process's own file sums its threads, ended ones included.
    pub user: Duration,
    /// CPU time in the kernel, summed in the same way.
    pub system: Duration,
    /// Number of threads of its process.
    pub threads: u32,
    /// Its start.
    pub start: StartTime,
    /// The CPU it last ran on.
    pub last_cpu: Option<OsCpu>,
}

impl Stat {
    /// Parses one line of the kernel. The name may hold spaces, parentheses and line ends, so the
    /// last `)` ends it.
    ///
    /// # Errors
    /// The field that is missing.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let open = line.iter().position(|&byte| byte == b'(').ok_or("no '(' before the name")?;
        let close = line.iter().rposition(|&byte| byte == b')').filter(|&at| at > open);
        let close = close.ok_or("no ')' after the name")?;
        let rest: Vec<&[u8]> = text::words(&line[close + 1..]).take(37).collect();
        // Fields are numbered as in proc(5), where the state is field 3.
        let field = |number: usize| rest.get(number - 3).copied();
        let ticks = |number: usize| field(number).and_then(text::number).map(from_ticks);
        let flags: Option<u32> = field(9).and_then(text::number);
        Ok(Self {
            id: text::number(&line[..open]).ok_or("no process id")?,
            comm: text::printable(&line[open + 1..close]),
            state: field(3).and_then(<[u8]>::first).copied().map(State::from_letter).ok_or("no state")?,
            parent: field(4).and_then(text::number).map(Pid).ok_or("no parent")?,
            kernel_thread: flags.ok_or("no flags")? & KERNEL_THREAD != 0,
            fixed: flags.is_some_and(|flags| flags & NO_SETAFFINITY != 0),
            user: ticks(14).ok_or("no user time")?,
            system: ticks(15).ok_or("no system time")?,
            threads: field(20).and_then(text::number).ok_or("no number of threads")?,
            start: field(22).and_then(text::number).map(StartTime).ok_or("no start time")?,
            last_cpu: field(39).and_then(text::number).map(OsCpu),
        })
    }

    /// Returns the CPU time so far, in steps of a clock tick, 10 ms.
    pub fn cpu_time(&self) -> Duration {
        self.user.saturating_add(self.system)
    }
}

/// The parts of `/proc/PID/status` that give the user and the allowed CPUs and nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// The real user id.
    pub uid: u32,
    /// The allowed CPUs, offline ones included.
    pub cpus: CpuSet,
    /// The nodes it may allocate from; `None` on a kernel without cpusets.
    pub mems: Option<NodeSet>,
}

impl Status {
    /// Parses the kernel's text.
    ///
    /// # Errors
    /// The line that is missing.
    pub fn parse(status: &[u8]) -> Result<Self, &'static str> {
        let uid = text::field(status, b"Uid:").and_then(|ids| text::words(ids).next()).and_then(text::number);
        Ok(Self {
            uid: uid.ok_or("no Uid line")?,
            cpus: text::field(status, b"Cpus_allowed_list:")
                .and_then(text::list)
                .ok_or("no Cpus_allowed_list")?,
            mems: text::field(status, b"Mems_allowed_list:").and_then(text::list),
        })
    }
}

/// Owner of a process or thread, as the kernel checks it before it lets the mask be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The process, or the process of the thread.
    pub process: Pid,
    /// The real user id.
    pub real: u32,
    /// The effective user id.
    pub effective: u32,
}

impl Identity {
    /// Parses the kernel's text.
    ///
    /// # Errors
    /// The line that is missing.
    pub fn parse(status: &[u8]) -> Result<Self, &'static str> {
        let process = text::field(status, b"Tgid:").and_then(text::number).map(Pid).ok_or("no Tgid line")?;
        let mut ids = text::field(status, b"Uid:").into_iter().flat_map(text::words).map_while(text::number);
        let mut id = || ids.next().ok_or("no Uid line");
        Ok(Self { process, real: id()?, effective: id()? })
    }

    /// Returns whether this user may set its mask without privilege.
    pub fn is(&self, uid: u32) -> bool {
        uid == self.real || uid == self.effective
    }
}

/// Reads the owner of a process, or of a thread if its id is passed as `pid`.
///
/// # Errors
/// As [`stat`].
pub fn identity(proc: &Path, pid: Pid) -> Result<Identity, ReadError> {
    parse_file(proc.join(format!("{pid}/status")), Identity::parse)
}

/// Reads the owner of a thread.
///
/// # Errors
/// As [`stat`].
pub fn thread_identity(proc: &Path, pid: Pid, tid: Tid) -> Result<Identity, ReadError> {
    parse_file(proc.join(format!("{pid}/task/{tid}/status")), Identity::parse)
}

/// `CAP_SYS_NICE`: the right to set the masks of others.
const SYS_NICE: u32 = 23;

/// Returns whether this process may set the masks of other users' threads.
pub fn may_move_others(proc: &Path) -> bool {
    let status = text::read(&proc.join("self/status")).unwrap_or_default();
    let effective = text::field(&status, b"CapEff:").and_then(|hex| std::str::from_utf8(hex).ok());
    effective.and_then(|hex| u64::from_str_radix(hex, 16).ok()).is_some_and(|set| set >> SYS_NICE & 1 == 1)
}

/// Returns whether `/proc` is mounted with an option that hides the processes of other users
/// (`hidepid`). It hides none from root.
pub fn has_hidepid(proc: &Path) -> bool {
    let mounts = text::read(&proc.join("self/mounts")).unwrap_or_default();
    // A later mount covers an earlier one.
    mounts.split(|&byte| byte == b'\n').rev().find_map(hidepid).unwrap_or(false)
}

/// Returns whether a line of `mounts` mounts `/proc` with `hidepid`; `None` if it mounts another
/// folder.
fn hidepid(line: &[u8]) -> Option<bool> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [_, b"/proc", _, options, ..] = words[..] else { return None };
    let mut options = options.split(|&byte| byte == b',');
    let value = options.find_map(|option| option.strip_prefix(b"hidepid="));
    Some(!matches!(value, None | Some(b"0" | b"off")))
}

/// Returns whether the processes of other users are hidden from this process.
pub fn hides_others(proc: &Path) -> bool {
    let sees = || status(proc, Pid(1)).is_ok_and(|first| first.uid != rustix::process::getuid().as_raw());
    has_hidepid(proc) && !rustix::process::geteuid().is_root() && !sees()
}

/// Reads the stat line of a process.
///
/// # Errors
/// [`ReadError::is_gone`] when the process does not exist; otherwise unreadable or not a stat line.
pub fn stat(proc: &Path, pid: Pid) -> Result<Stat, ReadError> {
    parse_file(proc.join(format!("{pid}/stat")), Stat::parse)
}

/// Reads the stat line of one thread.
///
/// # Errors
/// As [`stat`].
pub fn thread_stat(proc: &Path, pid: Pid, tid: Tid) -> Result<Stat, ReadError> {
    parse_file(proc.join(format!("{pid}/task/{tid}/stat")), Stat::parse)
}

/// Reads the user of a process and its allowed CPUs and nodes.
///
/// # Errors
/// As [`stat`].
pub fn status(proc: &Path, pid: Pid) -> Result<Status, ReadError> {
    parse_file(proc.join(format!("{pid}/status")), Status::parse)
}

/// Memory of a process that is no longer free, in bytes. Pages of files are left out: the kernel
/// takes them back when a program needs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResidentMemory {
    /// Its own pages.
    pub anonymous: u64,
    /// Pages of shared memory, which other processes may share.
    pub shared: u64,
}

/// Reads the memory of a process.
///
/// # Errors
/// As [`stat`].
pub fn resident(proc: &Path, pid: Pid) -> Result<ResidentMemory, ReadError> {
    let path = proc.join(format!("{pid}/status"));
    let text = text::read_piece(&path)?;
    let line = |name: &[u8]| {
        let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 =
            std::str::from_utf8(line).ok()?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1 << 10)
    };
    // A process that has ended has no such lines.
    let of = |name| line(name).unwrap_or(0);
    Ok(ResidentMemory { anonymous: of(b"RssAnon:"), shared: of(b"RssShmem:") })
}

/// Reads the user of a thread and its allowed CPUs and nodes.
///
/// # Errors
/// As [`stat`].
pub fn thread_status(proc: &Path, pid: Pid, tid: Tid) -> Result<Status, ReadError> {
    parse_file(proc.join(format!("{pid}/task/{tid}/status")), Status::parse)
}

/// Lists the processes.
///
/// # Errors
/// The folder cannot be listed.
pub fn all(proc: &Path) -> Result<Vec<Pid>, ReadError> {
    let entries =
        std::fs::read_dir(proc).map_err(|source| ReadError::Io { path: proc.to_owned(), source })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid)).collect())
}

/// Lists the threads of a process, ascending.
///
/// # Errors
/// [`ReadError::is_gone`] when the process does not exist; otherwise unreadable.
pub fn threads(proc: &Path, pid: Pid) -> Result<Vec<Tid>, ReadError> {
    let path = proc.join(format!("{pid}/task"));
    let entries = std::fs::read_dir(&path).map_err(|source| ReadError::Io { path, source })?;
    let mut threads: Vec<Tid> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tid)).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// Returns the command line of a process as one printable line, arguments separated by blanks, from
/// at most `longest` of its bytes. Empty for kernel threads and for zombies.
///
/// # Errors
/// As [`stat`].
pub fn command_line(proc: &Path, pid: Pid, longest: usize) -> Result<String, ReadError> {
    let text = text::read(&proc.join(format!("{pid}/cmdline")))?;
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words: Vec<u8> =
        text[..end.min(longest)].iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
    Ok(text::printable(&words))
}

/// Reads and parses one file; both kinds of error name it.
fn parse_file<T>(path: PathBuf, parse: fn(&[u8]) -> Result<T, &'static str>) -> Result<T, ReadError> {
    let text = text::read_piece(&path)?;
    parse(&text).map_err(|problem| ReadError::Malformed { path, problem })
}

/// Converts clock ticks of the kernel's interface.
pub(crate) fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks / TICKS_PER_SECOND)
        + Duration::from_nanos((ticks % TICKS_PER_SECOND) * 1_000_000_000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A stat line of a kernel thread with 1.2 s in user mode and 0.3 s in the kernel.
    fn line(name: &str) -> String {
        let zeros = "0 ".repeat(16);
        format!("77 ({name}) D 5 1 1 0 -1 2097152 0 0 0 0 120 30 0 0 20 0 2 0 4242 {zeros}63 0 0\n")
    }

    #[test]
    fn procfs_hides_processes_if_its_last_mount_says_so() {
        for (options, hides) in [
            ("rw,relatime", false),
            ("rw,hidepid=0", false),
            ("rw,hidepid=off,gid=4", false),
            ("rw,hidepid=2", true),
            ("rw,hidepid=invisible", true),
            ("rw,hidepid=ptraceable,subset=pid", true),
        ] {
            let proc = tempfile::tempdir().unwrap();
            std::fs::create_dir(proc.path().join("self")).unwrap();
            let mounts = format!(
                "proc /proc proc rw,hidepid=1 0 0\nproc /proc proc {options} 0 0\nproc /a/proc proc rw,hidepid=2 0 0\n"
            );
            std::fs::write(proc.path().join("self/mounts"), mounts).unwrap();
            assert_eq!(has_hidepid(proc.path()), hides, "{options}");
        }
        assert!(!has_hidepid(Path::new("/nowhere")));
    }

    #[test]
    fn a_stat_line_is_read_with_any_name() {
        for name in ["sh", "a b", ")", "(((", "x) R 1 (y", "", "tab\there"] {
            let seen = Stat::parse(line(name).as_bytes()).unwrap();
            assert_eq!(
                (seen.id, seen.state, seen.parent, seen.threads),
                (77, State::Waiting, Pid(5), 2),
                "{name:?}"
            );
            assert!(seen.kernel_thread);
            assert_eq!((seen.user, seen.system), (Duration::from_millis(1200), Duration::from_millis(300)));
            assert_eq!(seen.cpu_time(), Duration::from_millis(1500));
            assert_eq!((seen.start, seen.last_cpu), (StartTime(4242), Some(OsCpu(63))));
        }
        for (bad, problem) in [
            ("", "no '(' before the name"),
            ("77 (sh", "no ')' after the name"),
            (")77 (sh", "no ')' after the name"),
            ("x (sh) R 1", "no process id"),
            ("77 (sh)", "no state"),
            ("77 (sh) R", "no parent"),
            ("77 (sh) R 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 2", "no start time"),
        ] {
            assert_eq!(Stat::parse(bad.as_bytes()), Err(problem), "{bad:?}");
        }
    }

    #[test]
    fn age_is_the_time_since_the_start_and_never_negative() {
        assert_eq!(StartTime(4242).age(Duration::from_secs(100)), Duration::from_millis(57_580));
        assert_eq!(StartTime(4242).age(Duration::from_secs(1)), Duration::ZERO);
        assert!(StartTime(u64::MAX).age(Duration::MAX) > Duration::ZERO);
    }

    #[test]
    fn a_status_has_the_user_and_the_masks() {
        let text = "Name:\tx\nUid:\t1000\t0\t0\t0\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n";
        let seen = Status::parse(text.as_bytes()).unwrap();
        assert_eq!((seen.uid, seen.cpus), (1000, "0-3".parse().unwrap()));
        assert_eq!(seen.mems, Some("0".parse().unwrap()));
        assert_eq!(Status::parse(b"Uid:\t\nCpus_allowed_list:\t0\n"), Err("no Uid line"));
        assert_eq!(Status::parse(b"Uid:\t1\n"), Err("no Cpus_allowed_list"));
    }

    #[test]
    fn this_process_is_read() {
        let (proc, own) = (Path::new("/proc"), Pid::own());
        let seen = stat(proc, own).unwrap();
        assert_eq!((Pid(seen.id), seen.kernel_thread), (own, false));
        assert_eq!(status(proc, own).unwrap().uid, rustix::process::getuid().as_raw());
        assert!(threads(proc, own).unwrap().contains(&own.main_thread()));
        let thread = thread_stat(proc, own, own.main_thread()).unwrap();
        assert!(thread.cpu_time() <= stat(proc, own).unwrap().cpu_time());
        assert_eq!(thread_status(proc, own, own.main_thread()).unwrap(), status(proc, own).unwrap());
        assert!(command_line(proc, own, 4096).unwrap().contains("trimtab"));
        assert!(stat(proc, Pid(u32::MAX)).unwrap_err().is_gone());
        assert!(threads(proc, Pid(u32::MAX)).unwrap_err().is_gone());
    }

    #[test]
    fn command_lines_are_one_printable_line() {
        let root = tempfile::tempdir().unwrap();
        for (pid, text) in [("7", "sh\0-c\0echo \x1b[2J\n\0"), ("8", "")] {
            std::fs::create_dir(root.path().join(pid)).unwrap();
            std::fs::write(root.path().join(pid).join("cmdline"), text).unwrap();
        }
        assert_eq!(command_line(root.path(), Pid(7), 80).unwrap(), "sh -c echo \\x1b[2J\\n");
        assert_eq!(command_line(root.path(), Pid(7), 5).unwrap(), "sh -c");
        assert_eq!(command_line(root.path(), Pid(8), 80).unwrap(), "");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "[0-9]{0,3} ?\\(.{0,4}\\)( [-0-9A-Z]{1,21}){0,40}".prop_map(String::into_bytes),
                "((Uid|Cpus_allowed_list):[\t ]?[-0-9,:]{0,20}\n){0,3}".prop_map(String::into_bytes),
            ],
            now in any::<u64>(),
        ) {
            let _ = Status::parse(&bytes);
            if let Ok(stat) = Stat::parse(&bytes) {
                let _ = (stat.cpu_time(), stat.start.age(Duration::from_secs(now)));
            }
        }
    }
}
