//! Whether the ranks of a team live: one descriptor per process, and one call that asks all of them.
//!
//! **Problem.** A process killed in any way tells nobody, and its number may be another's soon.
//!
//! **Idea.** A pidfd becomes readable when its process ends. The start time is compared after it was opened, so it cannot be
//! a later process of the same number. Where pidfds are refused, the start time alone is asked for again and again.
use std::os::fd::OwnedFd;

/// A process's start in clock ticks after boot; `None` if it is gone or hidden.
pub fn start_time(pid: u32) -> Option<u64> {
    parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field; the second, a name in parentheses, may hold anything, parentheses too.
fn parse(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after..]).ok()?.split_ascii_whitespace();
    // A zombie has ended, whatever its parent does.
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.nth(18)?.parse().ok() }
}

/// The number of this process's pid namespace; 0 where /proc does not say.
pub fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// Whether a process has ended, seen once and without a descriptor kept; false where that cannot be seen.
pub fn ended(pid: u32, start: Option<u64>) -> bool {
    let Some(raw) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(raw) {
        Err(rustix::io::Errno::SRCH) => true,
        _ => match std::fs::read(format!("/proc/{pid}/stat")) {
            // Hidden: it answers to its number, and more is not known.
            Err(_) => false,
            Ok(stat) => match parse(&stat) {
                None => true,
                Some(now) => start.is_some_and(|start| start != 0 && start != now),
            },
        },
    }
}

/// Whether a pidfd says that its process has ended.
fn over(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[derive(Debug)]
enum Eye {
    /// Readable when the process has ended.
    Fd(OwnedFd),
    /// Looked up in /proc.
    Start(u32, u64),
    /// Was over when the watch began.
    Gone,
}

/// Over the processes of a team's other ranks.
#[derive(Debug)]
pub struct Watch {
    eyes: Vec<(u32, Eye)>,
    blind: Option<String>,
}

impl Watch {
    /// `peers` are (rank, pid, start time); those of the process `own` are skipped. Number 0 is a process of another namespace.
    pub fn new(own: u32, peers: &[(u32, u32, u64)]) -> Self {
        let mut watch = Self { eyes: Vec::new(), blind: None };
        for &(rank, pid, start) in peers.iter().filter(|p| p.1 != own) {
            if pid == 0 {
                watch.blind.get_or_insert(format!("rank {rank} is in another pid namespace"));
                continue;
            }
            let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            let Some(raw) = raw else {
                watch.eyes.push((rank, Eye::Gone));
                continue;
            };
            let opened = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty());
            let now = start_time(pid);
            watch.eyes.push((
                rank,
                match opened {
                    Ok(fd) if now == Some(start) => Eye::Fd(fd),
                    // It lives, and /proc hides when it began: that it is the one who sat down is then believed.
                    Ok(fd) if (now.is_none() || start == 0) && !over(&fd) => {
                        watch.blind.get_or_insert(format!("/proc hides the start of process {pid}"));
                        Eye::Fd(fd)
                    }
                    Ok(_) | Err(rustix::io::Errno::SRCH) => Eye::Gone,
                    Err(e) => {
                        watch.blind.get_or_insert(format!("pidfd_open: {e}"));
                        if start == 0 || (now.is_none() && !ended(pid, None)) {
                            continue;
                        }
                        Eye::Start(pid, start)
                    }
                },
            ));
        }
        watch
    }

    /// The first rank found dead of those who have not `left`, by one poll for each 64 that does not wait. No allocation unless pidfds
    /// were refused.
    pub fn dead(&self, left: impl Fn(u32) -> bool) -> Option<u32> {
        for chunk in self.eyes.chunks(64) {
            let nobody = || libc::pollfd { fd: -1, events: 0, revents: 0 };
            let mut fds: [libc::pollfd; 64] = std::array::from_fn(|_| nobody());
            for (slot, (rank, eye)) in fds.iter_mut().zip(chunk) {
                match eye {
                    Eye::Gone if !left(*rank) => return Some(*rank),
                    Eye::Start(pid, start) if start_time(*pid) != Some(*start) && !left(*rank) => {
                        return Some(*rank);
                    }
                    Eye::Start(..) | Eye::Gone => {}
                    Eye::Fd(fd) => {
                        slot.fd = std::os::fd::AsRawFd::as_raw_fd(fd);
                        slot.events = libc::POLLIN;
                    }
                }
            }
            // SAFETY: an array of that many entries, ours alone; the descriptors live as long as `self`.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), chunk.len() as libc::nfds_t, 0) };
            let ended = |(slot, (rank, _)): &(&libc::pollfd, &(u32, Eye))| slot.revents != 0 && !left(*rank);
            if ready > 0
                && let Some((_, (rank, _))) = fds.iter().zip(chunk).find(ended)
            {
                return Some(*rank);
            }
        }
        None
    }

    /// Whether this rank's process has ended.
    pub fn ended(&self, rank: u32) -> bool {
        // Few ranks die: it is enough to look at one after the other.
        self.dead(|other| other != rank).is_some()
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
        assert_eq!(parse(stat), Some(777));
        assert_eq!(parse(b"7 (a"), None);
        assert!(start_time(std::process::id()).is_some());
    }

    #[test]
    fn a_killed_process_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = start_time(child.id()).unwrap();
        let own = std::process::id();
        let watch = Watch::new(own, &[(0, own, 0), (4, child.id(), start)]);
        assert_eq!(watch.dead(|_| false), None);
        // The same number with another start is another process.
        assert_eq!(Watch::new(own, &[(4, child.id(), start + 1)]).dead(|_| false), Some(4));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(watch.dead(|_| false), Some(4));
    }
}
