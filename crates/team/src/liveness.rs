//! Whether the ranks of a team live: each is a thread, and one call asks after those of all other processes.
//!
//! **Problem.** A thread or process that ends in any way but leaving tells nobody, and its number may be another's soon. A process that
//! becomes another program keeps its number and its start time, though nothing of the rank is left.
//!
//! **Idea.** What ends is asked of the kernel, in three ways:
//! - A pidfd of the thread (`PIDFD_THREAD`, Linux 6.9) becomes readable when it ends, and when another thread of its process becomes another
//!   program. The thread's start time is compared after it was opened, so it cannot be a later thread of the same number. Older kernels
//!   have pidfds of processes alone: beside them the thread's number is asked for.
//! - Threads of this process have no descriptors, which are few: `tgkill` without a signal says at each look whether the number is a
//!   thread of this process. That it is the same one, its start time says, of a few at each look.
//! - So it is with the first thread of a process, which keeps its number, and of which pidfds are silent, while other threads go on.
//! - A program that is replaced takes its descriptors along, but for those that close then: see [`crate::segment::hold`].
//!
//! **Why not otherwise.** A robust mutex in the segment would tell of all this too, but its list is made of addresses that lie in the
//! mutexes: whoever can write to the segment could let the C library of every other rank write anywhere. The word that the kernel
//! clears for a thread that ends (`set_tid_address`) is the C library's own, as is the robust list. What a thread does itself as it
//! ends (destructors) does not happen when it is killed, or ends by a system call.
use std::cell::Cell;
use std::os::fd::{FromRawFd, OwnedFd};

/// The thread that has a seat, as the seat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sitter {
    /// Its process; 0 if that is of another namespace.
    pub pid: u32,
    /// Itself.
    pub tid: u32,
    /// When it began, in clock ticks after boot; 0 if it could not know.
    pub start: u64,
    /// Whether it has a hold of its seat ([`crate::segment::hold`]).
    pub holds: bool,
}

impl Sitter {
    /// The calling thread.
    pub fn own(holds: bool) -> Self {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
        let tid = u32::try_from(tid).unwrap_or(pid);
        Self { pid, tid, start: start_time(pid, tid).unwrap_or(0), holds }
    }
}

/// What /proc says of a thread: state, how many threads its process has, and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    over: bool,
    threads: u64,
    start: u64,
}

/// `None` if it is gone or hidden.
fn stat(pid: u32, tid: u32) -> Option<Stat> {
    parse(&std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// The 3rd, 20th and 22nd field; the second, a name in parentheses, may hold anything, parentheses too.
fn parse(stat: &[u8]) -> Option<Stat> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after..]).ok()?.split_ascii_whitespace();
    // A zombie has ended, whatever its parent does.
    let state = fields.next()?;
    let threads = fields.nth(16)?.parse().ok()?;
    Some(Stat { over: state == "Z" || state == "X", threads, start: fields.nth(1)?.parse().ok()? })
}

/// A thread's start in clock ticks after boot; `None` if it is over or hidden.
pub fn start_time(pid: u32, tid: u32) -> Option<u64> {
    stat(pid, tid).filter(|stat| !stat.over).map(|stat| stat.start)
}

/// The number of this process's pid namespace; 0 where /proc does not say.
pub fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// Whether no thread of that process has this number.
fn is_nobody(pid: u32, tid: u32) -> bool {
    let (Ok(pid), Ok(tid)) = (i32::try_from(pid), i32::try_from(tid)) else { return true };
    // SAFETY: no signal is sent: the kernel only sees whether one could be.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    asked < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
}

/// Whether a thread has ended, seen once and without a descriptor kept; false where that cannot be seen.
pub fn ended(sitter: &Sitter) -> bool {
    // Of another namespace nothing can be seen.
    sitter.pid != 0
        && (is_nobody(sitter.pid, sitter.tid)
            // Hidden: it answers to its number, and more is not known.
            || stat(sitter.pid, sitter.tid).is_some_and(|stat| stat.over || differs(sitter, stat.start)))
}

/// Whether a process has ended with all its threads; false where that cannot be seen.
pub fn process_ended(pid: u32) -> bool {
    // The first thread may be over, and the others go on.
    is_nobody(pid, pid) || stat(pid, pid).is_some_and(|stat| stat.over && stat.threads < 2)
}

/// Whether what began then is another thread than that.
fn differs(sitter: &Sitter, start: u64) -> bool {
    sitter.start != 0 && sitter.start != start
}

/// A descriptor that is readable when a thread has ended; of its process where the kernel knows no other, which is said.
fn open(sitter: &Sitter) -> std::io::Result<(OwnedFd, bool)> {
    /// `PIDFD_THREAD`.
    const THREAD: libc::c_int = libc::O_EXCL;
    let ask = |number: u32, flags: libc::c_int| {
        // SAFETY: a number and flags; a descriptor comes back, or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    match ask(sitter.tid, THREAD) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => ask(sitter.pid, 0).map(|fd| (fd, false)),
        opened => opened.map(|fd| (fd, true)),
    }
}

/// Whether a pidfd says that it is over.
fn over(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// How a thread is watched.
#[derive(Debug)]
enum Eye {
    /// Readable when the thread has ended, unless it is the first of a process whose other threads have not.
    Fd(Sitter, OwnedFd),
    /// Asked for by its numbers; beside that, a descriptor of its process.
    Asked(Sitter, Option<OwnedFd>),
    /// Was over when the watch began.
    Gone,
}

/// So many are looked up in /proc at each look, in turn.
const AT_ONCE: usize = 4;

/// Over the threads of a team's other ranks.
#[derive(Debug)]
pub struct Watch {
    eyes: Vec<(u32, Eye)>,
    blind: Option<String>,
    /// Whose start time is to be compared at the next look.
    turn: Cell<usize>,
}

impl Watch {
    /// `ranks` are all that have seats; `own` is skipped, and those of the process `pid` need no descriptors.
    pub fn new(own: u32, pid: u32, ranks: &[(u32, Sitter)]) -> Self {
        let mut watch = Self { eyes: Vec::new(), blind: None, turn: Cell::new(0) };
        for (rank, sitter) in ranks.iter().filter(|(rank, _)| *rank != own) {
            if sitter.pid == 0 {
                watch.blind.get_or_insert(format!("rank {rank} is in another pid namespace"));
                continue;
            }
            let eye = if sitter.pid == pid { Eye::Asked(*sitter, None) } else { watch.eye(sitter) };
            watch.eyes.push((*rank, eye));
        }
        watch
    }

    /// On a thread of another process.
    fn eye(&mut self, sitter: &Sitter) -> Eye {
        let opened = open(sitter);
        let now = start_time(sitter.pid, sitter.tid);
        let eye =
            |fd, of_thread| if of_thread { Eye::Fd(*sitter, fd) } else { Eye::Asked(*sitter, Some(fd)) };
        match opened {
            Ok((fd, of_thread)) if now == Some(sitter.start) => eye(fd, of_thread),
            // It lives, and /proc hides when it began: that it is the one who sat down is then believed.
            Ok((fd, of_thread)) if (now.is_none() || sitter.start == 0) && !over(&fd) => {
                self.blind.get_or_insert(format!("/proc hides the start of process {}", sitter.pid));
                eye(fd, of_thread)
            }
            Ok(_) => Eye::Gone,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => Eye::Gone,
            Err(e) => {
                self.blind.get_or_insert(format!("pidfd_open: {e}"));
                Eye::Asked(*sitter, None)
            }
        }
    }

    /// The first rank found dead of those who have not `left`: by one poll for each 64 that does not wait, a question for each that
    /// has no descriptor, and a look into /proc for `AT_ONCE` whose numbers may outlive them.
    pub fn dead(&self, left: impl Fn(u32) -> bool) -> Option<u32> {
        let turn = self.turn.get();
        self.turn.set(if turn + AT_ONCE < self.eyes.len() { turn + AT_ONCE } else { 0 });
        for (number, chunk) in self.eyes.chunks(64).enumerate() {
            let nobody = || libc::pollfd { fd: -1, events: 0, revents: 0 };
            let mut fds: [libc::pollfd; 64] = std::array::from_fn(|_| nobody());
            let mut any = false;
            for (slot, (_, eye)) in fds.iter_mut().zip(chunk) {
                if let Eye::Fd(_, fd) | Eye::Asked(_, Some(fd)) = eye {
                    slot.fd = std::os::fd::AsRawFd::as_raw_fd(fd);
                    slot.events = libc::POLLIN;
                    any = true;
                }
            }
            if any {
                // SAFETY: an array of that many entries, ours alone; the descriptors live as long as `self`.
                unsafe { libc::poll(fds.as_mut_ptr(), chunk.len() as libc::nfds_t, 0) };
            }
            for (at, (slot, (rank, eye))) in fds.iter().zip(chunk).enumerate() {
                let closely = (turn..turn + AT_ONCE).contains(&(number * 64 + at));
                let over = slot.revents != 0
                    || match eye {
                        Eye::Fd(sitter, _) => closely && sitter.tid == sitter.pid && ended(sitter),
                        Eye::Asked(sitter, _) if closely => ended(sitter),
                        Eye::Asked(sitter, _) => is_nobody(sitter.pid, sitter.tid),
                        Eye::Gone => true,
                    };
                // Looked at in this order: who left and then ended has left.
                if over && !left(*rank) {
                    return Some(*rank);
                }
            }
        }
        None
    }

    /// Whether this rank's thread has ended.
    pub fn ended(&self, rank: u32) -> bool {
        self.eyes.iter().any(|(other, eye)| {
            *other == rank
                && match eye {
                    Eye::Fd(sitter, fd) | Eye::Asked(sitter, Some(fd)) => over(fd) || ended(sitter),
                    Eye::Asked(sitter, None) => ended(sitter),
                    Eye::Gone => true,
                }
        })
    }

    /// Why deaths may be noticed late or never, if so.
    pub fn blind(&self) -> Option<String> {
        self.blind.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses() {
        let stat = b"7 (a) R (b)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse(stat), Some(Stat { over: false, threads: 17, start: 777 }));
        assert_eq!(parse(b"7 (a"), None);
        let own = Sitter::own(false);
        assert!(own.start > 0 && !ended(&own) && !process_ended(own.pid));
    }

    fn main_of(pid: u32) -> Sitter {
        Sitter { pid, tid: pid, start: start_time(pid, pid).unwrap(), holds: false }
    }

    #[test]
    fn a_killed_process_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = Sitter::own(false);
        let other = main_of(child.id());
        let watch = Watch::new(0, own.pid, &[(0, own), (4, other)]);
        assert_eq!(watch.dead(|_| false), None);
        // The same number with another start is another process.
        let later = Sitter { start: other.start + 1, ..other };
        assert_eq!(Watch::new(0, own.pid, &[(4, later)]).dead(|_| false), Some(4));
        assert!(ended(&later) && !ended(&other));
        child.kill().unwrap();
        // Before its parent has asked how it ended, and after.
        while !ended(&other) {}
        assert!(process_ended(other.pid));
        assert_eq!(watch.dead(|_| false), Some(4));
        child.wait().unwrap();
        assert!(ended(&other) && process_ended(other.pid));
        assert_eq!(watch.dead(|_| false), Some(4));
        assert_eq!(watch.dead(|rank| rank == 4), None);
    }

    #[test]
    fn a_thread_that_has_ended_is_found_also_where_its_number_is_used_again() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ending) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(Sitter::own(false)).unwrap();
            let _ = ending.recv();
        });
        let (own, other) = (Sitter::own(false), told.recv().unwrap());
        let ranks = [(0, own), (1, other), (2, Sitter { start: other.start + 1, ..other })];
        let watch = Watch::new(0, own.pid, &ranks[..2]);
        for _ in 0..5 {
            assert_eq!(watch.dead(|_| false), None);
        }
        let reused = Watch::new(0, own.pid, &[ranks[0], ranks[2]]);
        assert!((0..2).any(|_| reused.dead(|_| false) == Some(2)));
        drop(end);
        thread.join().unwrap();
        while watch.dead(|_| false).is_none() {}
        assert!(watch.ended(1) && !watch.ended(0));
    }
}
