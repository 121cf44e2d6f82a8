//! Liveness of a team's ranks: each rank is a thread, and one call checks those of all other
//! processes.
//!
//! **Problem.** A thread or process that ends without leaving sends no message, and its number may
//! soon belong to another thread. A process that executes another program keeps its number and its
//! start time, though nothing of the rank is left.
//!
//! **Idea.** Several interfaces of the kernel are combined:
//! - A pidfd of the thread (`PIDFD_THREAD`, Linux 6.9) becomes readable when the thread ends, and
//!   when another thread of its process executes another program. The thread's start time is
//!   compared after the pidfd was opened, so it cannot be a later thread of the same number. Older
//!   kernels have pidfds only of processes: there the thread's number is checked as well.
//! - Threads of this process need no descriptors, which are scarce: at each check `tgkill` without
//!   a signal shows whether the number is a thread of this process. The start time, compared for a
//!   few threads at each check, shows whether it is the same thread.
//! - The first thread of a process is treated in the same way: it keeps its number, and its pidfd
//!   does not become readable while other threads continue.
//! - A program that is replaced takes its descriptors along, except those that close on exec: see
//!   [`crate::segment::hold`].
//!
//! **Large teams.** Watches are opened by the first checks, a few at a time, and not when the ranks
//! join, which would cost all ranks together the square of their number. In a team of more than
//! [`RANKS_PER_CHECK`] ranks there are no descriptors, a check examines some of the ranks, and each
//! rank begins with another one: the ranks that wait share the work.
//!
//! **Rejected.** A robust mutex in the segment would report all of this too, but its list consists
//! of addresses in the mutexes: any process that can write to the segment could make the C library
//! of every other rank write anywhere. The word that the kernel clears for a thread that ends
//! (`set_tid_address`) belongs to the C library, as does the robust list. Destructors of a thread
//! do not run when it is killed, or ends by a system call.
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{FromRawFd, OwnedFd};

/// The thread that has a seat, as the seat records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatHolder {
    /// Its process; 0 if that is of another pid namespace.
    pub pid: u32,
    /// Its thread number.
    pub tid: u32,
    /// Its start time, in clock ticks after boot; 0 if it could not be read.
    pub start: u64,
    /// Whether it has a hold of its seat ([`crate::segment::hold`]).
    pub holds: bool,
}

impl SeatHolder {
    /// Describes the calling thread.
    pub fn own(holds: bool) -> Self {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
        let tid = u32::try_from(tid).unwrap_or(pid);
        Self { pid, tid, start: start_time(pid, tid).unwrap_or(0), holds }
    }

    /// Describes the first thread of the calling process, whose rank any of its threads may use.
    pub fn own_process(holds: bool) -> Self {
        let pid = std::process::id();
        Self { pid, tid: pid, start: start_time(pid, pid).unwrap_or(0), holds }
    }
}

/// A thread in /proc: whether it is over, the number of threads of its process, and its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    over: bool,
    threads: u64,
    start: u64,
}

/// Reads a thread's stat file; `None` if the thread is gone or hidden.
fn stat(pid: u32, tid: u32) -> Option<Stat> {
    parse(&std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// Parses the 3rd, 20th and 22nd field. The second field, a name in parentheses, may contain
/// anything, parentheses too.
fn parse(stat: &[u8]) -> Option<Stat> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after..]).ok()?.split_ascii_whitespace();
    // A zombie has ended, even if its parent does not wait for it.
    let state = fields.next()?;
    let threads = fields.nth(16)?.parse().ok()?;
    Some(Stat { over: state == "Z" || state == "X", threads, start: fields.nth(1)?.parse().ok()? })
}

/// Returns a thread's start in clock ticks after boot; `None` if it is over or hidden.
pub fn start_time(pid: u32, tid: u32) -> Option<u64> {
    stat(pid, tid).filter(|stat| !stat.over).map(|stat| stat.start)
}

/// Returns the number of this process's pid namespace; 0 if /proc does not show it.
pub fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// Returns whether no thread of that process has this number.
fn is_no_thread(pid: u32, tid: u32) -> bool {
    let (Ok(pid), Ok(tid)) = (i32::try_from(pid), i32::try_from(tid)) else { return true };
    // SAFETY: no signal is sent: the kernel only checks whether one could be.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    asked < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
}

/// Returns whether a thread has ended, checked once and without keeping a descriptor; false if that
/// cannot be seen.
pub fn ended(holder: &SeatHolder) -> bool {
    // Threads of another pid namespace cannot be seen.
    holder.pid != 0
        && (is_no_thread(holder.pid, holder.tid)
            // Hidden: only the existence of the number is known.
            || stat(holder.pid, holder.tid).is_some_and(|stat| stat.over || differs(holder, stat.start)))
}

/// Returns whether a process has ended with all its threads; false if that cannot be seen.
pub fn process_ended(pid: u32) -> bool {
    // The first thread may have ended while the others continue.
    is_no_thread(pid, pid) || stat(pid, pid).is_some_and(|stat| stat.over && stat.threads < 2)
}

/// Returns whether a thread with this start time is another thread than the holder.
fn differs(holder: &SeatHolder, start: u64) -> bool {
    holder.start != 0 && holder.start != start
}

/// Opens a descriptor that becomes readable when a thread has ended. The second value is false if
/// the kernel only supports descriptors of processes and this one is of the thread's process.
fn open(holder: &SeatHolder) -> std::io::Result<(OwnedFd, bool)> {
    /// `PIDFD_THREAD`.
    const THREAD: libc::c_int = libc::O_EXCL;
    let ask = |number: u32, flags: libc::c_int| {
        // SAFETY: a number and flags; a descriptor comes back, or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just made, and not owned elsewhere.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    match ask(holder.tid, THREAD) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => ask(holder.pid, 0).map(|fd| (fd, false)),
        opened => opened.map(|fd| (fd, true)),
    }
}

/// Returns whether a pidfd reports the end.
fn over(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Returns for each watch whether its descriptor reports the end.
fn polled(window: &[&WatchedThread]) -> Vec<bool> {
    let fd = |watched: &WatchedThread| match watched.watch.get() {
        Some(ThreadWatch::Fd(_, fd) | ThreadWatch::Asked(_, Some(fd))) => std::os::fd::AsRawFd::as_raw_fd(fd),
        // The kernel ignores it.
        _ => -1,
    };
    let entry = |watched: &&WatchedThread| libc::pollfd { fd: fd(watched), events: libc::POLLIN, revents: 0 };
    let mut fds: Vec<libc::pollfd> = window.iter().map(entry).collect();
    if fds.iter().any(|entry| entry.fd >= 0) {
        // SAFETY: an array of that many entries, owned by this function; the descriptors live as
        // long as their watches.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 0) };
    }
    fds.iter().map(|entry| entry.revents != 0).collect()
}

/// Method by which a thread is watched.
#[derive(Debug)]
enum ThreadWatch {
    /// By a descriptor that is readable when the thread has ended, unless it is the first thread of
    /// a process and other threads continue.
    Fd(SeatHolder, OwnedFd),
    /// By its numbers; in addition by a descriptor of its process.
    Asked(SeatHolder, Option<OwnedFd>),
    /// The thread was over when the watch began.
    Gone,
}

/// Threads looked up in /proc at each check, in turn.
const LOOKUPS_PER_CHECK: usize = 4;
/// Watches opened at each check.
const OPENED_PER_CHECK: usize = 8;
/// Ranks of the largest team in which each check examines all ranks.
pub const RANKS_PER_CHECK: usize = 64;

/// Returns the number of ranks that a check examines, of `ranks`: in large teams so many that the
/// checks of all ranks together take as much time as in a team of [`RANKS_PER_CHECK`].
pub(crate) fn ranks_per_check(ranks: usize) -> usize {
    let share = RANKS_PER_CHECK * RANKS_PER_CHECK / ranks.max(1);
    if ranks <= RANKS_PER_CHECK { ranks } else { share.max(LOOKUPS_PER_CHECK) }
}

/// A thread that is watched, or will be when it is first examined.
#[derive(Debug)]
struct WatchedThread {
    rank: u32,
    holder: SeatHolder,
    watch: OnceCell<ThreadWatch>,
}

/// Watch over the threads of a team's other ranks.
#[derive(Debug)]
pub struct LivenessWatch {
    all: Vec<WatchedThread>,
    blind: RefCell<Option<String>>,
    /// Index of the watch with which the first check begins.
    first: usize,
    /// Number of checks.
    checks: Cell<usize>,
}

impl LivenessWatch {
    /// Watches all ranks that have seats. `own` is skipped; ranks of the process `pid` need no
    /// descriptors.
    pub fn new(own: u32, pid: u32, ranks: &[(u32, SeatHolder)]) -> Self {
        let others = || ranks.iter().filter(|(rank, _)| *rank != own);
        let hidden = others().find(|(_, holder)| holder.pid == 0);
        let blind = hidden.map(|(rank, _)| format!("rank {rank} is in another pid namespace"));
        let large = others().count() > RANKS_PER_CHECK;
        let watched = |(rank, holder): &(u32, SeatHolder)| {
            let by_number = || OnceCell::from(ThreadWatch::Asked(*holder, None));
            let watch = if large || holder.pid == pid { by_number() } else { OnceCell::new() };
            WatchedThread { rank: *rank, holder: *holder, watch }
        };
        let all: Vec<WatchedThread> = others().filter(|(_, holder)| holder.pid != 0).map(watched).collect();
        let first = own as usize % all.len().max(1);
        Self { all, blind: RefCell::new(blind), first, checks: Cell::new(0) }
    }

    /// Starts to watch a thread of another process.
    fn watch_of(&self, holder: &SeatHolder) -> ThreadWatch {
        let opened = open(holder);
        let now = start_time(holder.pid, holder.tid);
        let entry = |fd, of_thread| {
            if of_thread { ThreadWatch::Fd(*holder, fd) } else { ThreadWatch::Asked(*holder, Some(fd)) }
        };
        match opened {
            Ok((fd, of_thread)) if now == Some(holder.start) => entry(fd, of_thread),
            // The thread lives, and /proc hides its start time: it is then assumed to be the one
            // that took the seat.
            Ok((fd, of_thread)) if (now.is_none() || holder.start == 0) && !over(&fd) => {
                self.note_blind(format!("/proc hides the start of process {}", holder.pid));
                entry(fd, of_thread)
            }
            Ok(_) => ThreadWatch::Gone,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => ThreadWatch::Gone,
            Err(e) => {
                self.note_blind(format!("pidfd_open: {e}"));
                ThreadWatch::Asked(*holder, None)
            }
        }
    }

    fn note_blind(&self, why: String) {
        self.blind.borrow_mut().get_or_insert(why);
    }

    /// Returns a rank found dead that has not `left`. A check examines all ranks, or some of a
    /// large team in turn. It takes one poll without waiting, one `tgkill` for each of these ranks
    /// without a descriptor, and a read of /proc for `LOOKUPS_PER_CHECK` ranks with numbers that
    /// may outlive them.
    pub fn dead(&self, left: impl Fn(u32) -> bool) -> Option<u32> {
        let (count, checks) = (self.all.len(), self.checks.get());
        if count == 0 {
            return None;
        }
        self.checks.set(checks.wrapping_add(1));
        let many = ranks_per_check(count);
        let (begin, turns) = (self.first.wrapping_add(checks.wrapping_mul(many)), checks * many / count);
        let window: Vec<&WatchedThread> =
            (0..many).map(|at| &self.all[begin.wrapping_add(at) % count]).collect();
        let unopened = window.iter().filter(|watched| watched.watch.get().is_none());
        for watched in unopened.take(OPENED_PER_CHECK) {
            let _ = watched.watch.set(self.watch_of(&watched.holder));
        }
        let ready = polled(&window);
        let lookups = turns.wrapping_mul(LOOKUPS_PER_CHECK) % many;
        for (at, (watched, ready)) in window.iter().zip(ready).enumerate() {
            let closely = (at + many - lookups) % many < LOOKUPS_PER_CHECK;
            let over = ready
                || match watched.watch.get() {
                    Some(ThreadWatch::Fd(holder, _)) => closely && holder.tid == holder.pid && ended(holder),
                    Some(ThreadWatch::Asked(holder, _)) if closely => ended(holder),
                    Some(ThreadWatch::Asked(holder, _)) => is_no_thread(holder.pid, holder.tid),
                    Some(ThreadWatch::Gone) => true,
                    None => is_no_thread(watched.holder.pid, watched.holder.tid),
                };
            // In this order: a rank that left and then ended counts as left.
            if over && !left(watched.rank) {
                return Some(watched.rank);
            }
        }
        None
    }

    /// Returns whether this rank's thread has ended.
    pub fn ended(&self, rank: u32) -> bool {
        let watched = self.all.iter().find(|watched| watched.rank == rank);
        watched.is_some_and(|watched| match watched.watch.get() {
            Some(ThreadWatch::Fd(holder, fd) | ThreadWatch::Asked(holder, Some(fd))) => {
                over(fd) || ended(holder)
            }
            Some(ThreadWatch::Asked(holder, None)) => ended(holder),
            Some(ThreadWatch::Gone) => true,
            None => ended(&watched.holder),
        })
    }

    /// Returns the reason why deaths may be noticed late or never, if there is one.
    pub fn blind(&self) -> Option<String> {
        self.blind.borrow().clone()
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
        let own = SeatHolder::own(false);
        assert!(own.start > 0 && !ended(&own) && !process_ended(own.pid));
    }

    fn main_of(pid: u32) -> SeatHolder {
        SeatHolder { pid, tid: pid, start: start_time(pid, pid).unwrap(), holds: false }
    }

    #[test]
    fn a_killed_process_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = SeatHolder::own(false);
        let other = main_of(child.id());
        let watch = LivenessWatch::new(0, own.pid, &[(0, own), (4, other)]);
        assert_eq!(watch.dead(|_| false), None);
        // The same number with another start time is another process.
        let later = SeatHolder { start: other.start + 1, ..other };
        assert_eq!(LivenessWatch::new(0, own.pid, &[(4, later)]).dead(|_| false), Some(4));
        assert!(ended(&later) && !ended(&other));
        child.kill().unwrap();
        // Before its parent has waited for it, and after.
        while !ended(&other) {}
        assert!(process_ended(other.pid));
        assert_eq!(watch.dead(|_| false), Some(4));
        child.wait().unwrap();
        assert!(ended(&other) && process_ended(other.pid));
        assert_eq!(watch.dead(|_| false), Some(4));
        assert_eq!(watch.dead(|rank| rank == 4), None);
    }

    #[test]
    fn the_ranks_of_a_large_team_share_its_checks() {
        for ranks in 1..=1024 {
            let each = ranks_per_check(ranks);
            assert!((1..=ranks).contains(&each), "{ranks}");
            // All together examine each rank, and hardly more than in the largest small team.
            assert!(each * ranks >= ranks && each * ranks <= 4096, "{ranks}");
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = SeatHolder::own(false);
        let other = main_of(child.id());
        let all: Vec<_> =
            (0..300).map(|rank| (rank, if rank == 290 { other } else { main_of(own.pid) })).collect();
        let watches = [0, 100, 289].map(|own| LivenessWatch::new(own, other.pid + 1, &all));
        let rotation = 300_usize.div_ceil(ranks_per_check(299));
        let found = |watch: &LivenessWatch| (0..rotation * 4).find_map(|_| watch.dead(|_| false));
        assert_eq!(watches.each_ref().map(found), [None; 3]);
        child.kill().unwrap();
        while !ended(&other) {}
        // Its parent has not waited for it: its number exists.
        assert_eq!(watches.each_ref().map(found), [Some(290); 3]);
        child.wait().unwrap();
        assert_eq!(watches.each_ref().map(found), [Some(290); 3]);
        assert!(watches[0].ended(290) && !watches[0].ended(4));
    }

    #[test]
    fn a_thread_that_has_ended_is_found_also_where_its_number_is_used_again() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ending) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(SeatHolder::own(false)).unwrap();
            let _ = ending.recv();
        });
        let (own, other) = (SeatHolder::own(false), told.recv().unwrap());
        let ranks = [(0, own), (1, other), (2, SeatHolder { start: other.start + 1, ..other })];
        let watch = LivenessWatch::new(0, own.pid, &ranks[..2]);
        for _ in 0..5 {
            assert_eq!(watch.dead(|_| false), None);
        }
        let reused = LivenessWatch::new(0, own.pid, &[ranks[0], ranks[2]]);
        assert!((0..2).any(|_| reused.dead(|_| false) == Some(2)));
        drop(end);
        thread.join().unwrap();
        while watch.dead(|_| false).is_none() {}
        assert!(watch.ended(1) && !watch.ended(0));
    }
}
