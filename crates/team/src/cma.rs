//! Cross-memory attach: ranks that are processes read each other's buffers through the kernel,
//! which copies them once.
//!
//! **Problem.** Data that goes through a cell is copied twice, and if all ranks give and take at
//! once both copies compete for memory bandwidth.
//!
//! **Idea.** Each rank announces the address of its buffer in its own process. A rank that needs
//! the data copies it from there (`process_vm_readv`): directly into its own buffer, or into
//! scratch memory of the size of a cache, where it is combined.
//!
//! **Permission.** The kernel decides whether a process may read another's memory: Yama, a
//! container's filters, another user, another namespace may all forbid it. Therefore each rank
//! shows a *mark*, a random number in its own memory, and all ranks read all marks when they join.
//! Memory is read from then on only if every rank could read every mark. A rank gets the identity
//! of the process that it reads from the kernel ([`crate::segment::owner`]): a rank that posts
//! false addresses exposes only its own memory. The last read of a call reads the mark, too: a
//! process that has executed another program has no mark, and a new process with the same number
//! has none either.
//!
//! **When a call fails** its buffers belong to its caller again while other ranks may still read
//! them. No rank waits for those reads. A failing call withdraws its rank's buffers before it
//! returns. A rank that has read checks for this afterwards, and then discards the data.
//!
//! **Properties.** The memory of others is only read, and only by the kernel: if it changes
//! meanwhile, only the bytes can be wrong. Started calls, and those with an operator of the
//! caller's own, do not show their buffers, as in [`crate::in_process`].

use crate::call::Kind;
use crate::segment::memfd::Mapping;
use crate::segment::owner::RankClaim;
use crate::shared_layout::Area;
use crate::{Error, Result};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Environment variable with the value `off` (or `on`), for programs that leave
/// [`crate::Options::pull`] as it is.
pub const PULL_VARIABLE: &str = "TRIMTAB_TEAM_PULL";

/// Bytes read of all ranks together before they are combined: about half of a core's own cache.
pub(crate) const SCRATCH_BYTES: usize = 512 << 10;
/// Least and most bytes of one rank in that scratch memory. With less, the kernel's work for a read
/// dominates.
pub(crate) const PIECE_BYTES: (usize, usize) = (8 << 10, 32 << 10);
/// Least block, in bytes: a program copies less before the kernel has found where it is.
const READ_BYTES_MIN: usize = 32 << 10;
/// Most bytes of one system call, which has a limit.
const READ_BYTES_MAX: usize = 1 << 30;
/// Longest wait, after a failed read, for the end of the process that was read, before another
/// cause is reported.
pub(crate) const END_WAIT: Duration = Duration::from_secs(1);

/// Flag beside an address of a rank's own process; a posted value without it is an offset in the
/// segment.
pub(crate) const ELSEWHERE_FLAG: u64 = 1 << 63;

/// Location of a rank's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferLocation {
    /// It is not announced: its bytes go through cells.
    Nowhere,
    /// At an address in this process.
    Here(*mut u8),
    /// At an address of its own process.
    There(u64),
}

impl BufferLocation {
    /// Returns the location `bytes` further.
    pub(crate) fn add(self, bytes: usize) -> Self {
        match self {
            Self::Nowhere => self,
            Self::Here(at) => Self::Here(at.wrapping_add(bytes)),
            Self::There(at) => Self::There(at.wrapping_add(bytes as u64)),
        }
    }
}

/// A number in this process's memory by which others recognise it; zeroed when dropped.
#[derive(Debug)]
struct MemoryMark(Box<AtomicU64>);

impl MemoryMark {
    fn new() -> Self {
        // The keys of hashers are the system's random numbers.
        let number = std::hash::RandomState::new().build_hasher().finish().max(1);
        Self(Box::new(AtomicU64::new(number)))
    }

    fn publish(&self, area: &Area, rank: u32) {
        let at = std::ptr::from_ref(&*self.0).expose_provenance() as u64;
        area.lines(rank).mark.publish(at, self.0.load(Ordering::Relaxed));
    }
}

impl Drop for MemoryMark {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A rank's process, and its mark there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pid: u32,
    at: u64,
    number: u64,
}

impl Peer {
    /// Copies `bytes` bytes from an address of its process; if `proven`, only from the process that
    /// it was when ranks met.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    pub(crate) unsafe fn read(&self, from: u64, to: *mut u8, bytes: usize, proven: bool) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let read = unsafe { self.read_by(self.pid, from, to, bytes, proven) };
        match read {
            Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {
                // The process was addressed by its first thread, which may have ended while others
                // continue.
                let mut others = self.threads();
                // SAFETY: the caller's promise.
                let found =
                    others.any(|thread| unsafe { self.read_by(thread, from, to, bytes, true) }.is_ok());
                if found { Ok(()) } else { Err(why) }
            }
            read => read,
        }
    }

    fn threads(&self) -> impl Iterator<Item = u32> {
        let listed = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let named = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        listed.into_iter().flatten().flatten().filter_map(named)
    }

    /// # Safety
    /// As [`Self::read`].
    unsafe fn read_by(
        &self,
        thread: u32,
        from: u64,
        to: *mut u8,
        bytes: usize,
        proven: bool,
    ) -> io::Result<()> {
        let mut mark = 0_u64;
        let (mut from, mut to, mut left) = (from, to, bytes);
        loop {
            let now = left.min(READ_BYTES_MAX);
            let last = now == left;
            let proof = if proven && last { size_of_val(&mark) } else { 0 };
            let at = |address: u64| std::ptr::without_provenance_mut::<libc::c_void>(address as usize);
            let theirs = [(from, now), (self.at, proof)]
                .map(|(address, bytes)| libc::iovec { iov_base: at(address), iov_len: bytes });
            let ours = [(to, now), ((&raw mut mark).cast::<u8>(), proof)]
                .map(|(address, bytes)| libc::iovec { iov_base: address.cast(), iov_len: bytes });
            let parts = if proof == 0 { 1 } else { 2 };
            let thread = libc::pid_t::try_from(thread).unwrap_or(-1);
            // SAFETY: the kernel writes only to the two local places, as many bytes as they have;
            // the remote addresses are resolved in the other process. The kernel reads in this
            // order, so the mark is read after the bytes or together with them.
            let read =
                unsafe { libc::process_vm_readv(thread, ours.as_ptr(), parts, theirs.as_ptr(), parts, 0) };
            match usize::try_from(read) {
                Err(_) => return Err(io::Error::last_os_error()),
                Ok(read) if read != now + proof => return Err(io::Error::other("not all of it is there")),
                Ok(_) if proof != 0 && mark != self.number => {
                    return Err(io::Error::other("the process is another one by now"));
                }
                Ok(_) if last => return Ok(()),
                Ok(_) => {}
            }
            from = from.wrapping_add(now as u64);
            to = to.wrapping_add(now);
            left -= now;
        }
    }

    fn shows_its_mark(&self) -> bool {
        // SAFETY: nothing is written but the mark, which is the function's own.
        unsafe { self.read(self.at, std::ptr::null_mut(), 0, true) }.is_ok()
    }
}

/// The mark and the claim that a rank shows before all have arrived.
#[derive(Debug)]
pub(crate) struct Offer {
    mark: MemoryMark,
    claim: RankClaim,
}

impl Offer {
    /// Shows a mark and claims the rank for this process; `None` if that is not possible, which all
    /// ranks will see.
    pub(crate) fn make(mapping: &Arc<Mapping>, area: &Area, rank: u32) -> Option<Self> {
        let claim = RankClaim::stake(mapping, rank)?;
        let mark = MemoryMark::new();
        mark.publish(area, rank);
        Some(Self { mark, claim })
    }

    /// Reads all other ranks' marks; `None` unless all could be read.
    pub(crate) fn read_marks(self, mapping: &Mapping, area: &Area) -> (Option<Peers>, RankClaim) {
        let peer = |rank| {
            let (at, number) = area.lines(rank).mark.published();
            let peer = Peer { pid: RankClaim::owner(mapping, rank)?, at, number };
            (number != 0 && peer.shows_its_mark()).then_some(peer)
        };
        let all: Option<Vec<Peer>> = (0..area.ranks()).map(peer).collect();
        (all.map(|all| Peers { all, _mark: Rc::new(self.mark) }), self.claim)
    }
}

/// The ranks of a team as processes with readable memory.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) all: Vec<Peer>,
    /// The mark by which others recognise this process.
    _mark: Rc<MemoryMark>,
}

impl Peers {
    /// Returns some of them, for a team that is made of those.
    pub(crate) fn of(&self, members: &[u32]) -> Self {
        let all = members.iter().map(|rank| self.all[*rank as usize]).collect();
        Self { all, _mark: Rc::clone(&self._mark) }
    }
}

/// Applies the environment's value if the program left the option at its default.
pub(crate) fn wanted(option: bool, said: Option<&str>) -> Result<bool> {
    match said {
        None | Some("" | "on") => Ok(option),
        Some("off") => Ok(false),
        Some(other) => {
            Err(Error::Argument(format!("{PULL_VARIABLE} is \"{other}\", which is neither on nor off")))
        }
    }
}

/// Returns the block sizes, in bytes, at which ranks read each other's memory: those at which that
/// was quicker on two CPUs, by 15 to 60 %.
///
/// The kernel copies about a third slower than a program does. That is faster if every byte would
/// be copied into a cell for one reader. It is slower if one copy in a cell serves several readers,
/// or if the giving rank would be idle meanwhile and the others wait for the reader.
pub(crate) fn sizes(kind: Kind, ranks: u32, crowded: bool) -> Range<usize> {
    match kind {
        Kind::Alltoall | Kind::ReduceScatter | Kind::Scatter => READ_BYTES_MIN..usize::MAX,
        Kind::Allgather if ranks == 2 => READ_BYTES_MIN..usize::MAX,
        // Longer ones are evicted from the cache as they are read, and a root that stages them
        // works at the same time.
        Kind::Broadcast if ranks == 2 && !crowded => 2 * READ_BYTES_MIN..24 * READ_BYTES_MIN,
        // Ranks read slices of it, twice.
        Kind::Allreduce if !crowded => 2 * READ_BYTES_MIN * ranks as usize..usize::MAX,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Only of this process, which may always be read.
    #[test]
    #[cfg(not(any(miri, trimtab_model)))]
    fn a_read_counts_only_if_all_of_it_came_from_the_process_with_the_mark() {
        let mark = MemoryMark::new();
        let at = std::ptr::from_ref(&*mark.0).expose_provenance() as u64;
        let peer = Peer { pid: std::process::id(), at, number: mark.0.load(Ordering::Relaxed) };
        let shown: Vec<u8> = (0..100_000).map(|at| at as u8).collect();
        let mut got = vec![0; shown.len()];
        let mut read = |peer: &Peer, from: u64, proven| {
            // SAFETY: `got` has that length.
            unsafe { peer.read(from, got.as_mut_ptr(), got.len(), proven) }.map(|()| got.clone())
        };
        let from = shown.as_ptr().expose_provenance() as u64;
        assert_eq!(read(&peer, from, true).unwrap(), shown);
        let other = Peer { number: peer.number ^ 1, ..peer };
        assert!(read(&other, from, false).is_ok());
        assert!(read(&other, from, true).unwrap_err().to_string().contains("another one"));
        // Nothing is mapped there, or not all of it.
        assert!(read(&peer, 8, true).is_err());
        // SAFETY: new pages at an address of the kernel's choice; the second half may not be read.
        let half = unsafe {
            let (flags, size) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 128 << 10);
            let half = libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, flags, -1, 0);
            assert_ne!(half, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(half.byte_add(size / 2), size / 2, libc::PROT_NONE), 0);
            half.expose_provenance() as u64
        };
        assert!(read(&peer, half, true).is_err());
        assert!(peer.shows_its_mark());
        mark.0.store(0, Ordering::Relaxed);
        assert!(!peer.shows_its_mark());
    }

    #[test]
    #[cfg(not(any(miri, trimtab_model)))]
    fn a_process_is_readable_after_its_first_thread_has_ended() {
        let mark = MemoryMark::new();
        let at = std::ptr::from_ref(&*mark.0).expose_provenance() as u64;
        // SAFETY: the parts of the C library that the child uses are safe after fork; it is ended
        // below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; the first thread ends alone.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        let peer = Peer { pid: child as u32, at, number: mark.0.load(Ordering::Relaxed) };
        // SAFETY: nothing is written but the mark, which is the function's own.
        let by_first = || unsafe { peer.read_by(peer.pid, at, std::ptr::null_mut(), 0, true) };
        let begin = Instant::now();
        while by_first().is_ok() && begin.elapsed().as_secs() < 20 {}
        let (first, any) = (by_first(), peer.shows_its_mark());
        // SAFETY: a child of this process, which has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let forbidden = |why: &io::Error| why.raw_os_error() != Some(libc::ESRCH);
        assert!(any || first.as_ref().is_err_and(forbidden), "{first:?}");
        assert!(first.is_err() && !peer.shows_its_mark());
    }

    #[test]
    fn data_for_several_readers_is_staged() {
        let first = |kind, ranks, crowded| {
            (0..60).map(|log| 1_usize << log).find(|bytes| sizes(kind, ranks, crowded).contains(bytes))
        };
        let from = |kib: usize| Some(kib << 10);
        assert_eq!([first(Kind::Alltoall, 2, false), first(Kind::Alltoall, 8, true)], [from(32); 2]);
        assert_eq!([2, 3].map(|ranks| first(Kind::Allgather, ranks, false)), [from(32), None]);
        assert_eq!([false, true].map(|crowded| first(Kind::Allreduce, 4, crowded)), [from(256), None]);
        assert_eq!([2, 3].map(|ranks| first(Kind::Broadcast, ranks, false)), [from(64), None]);
        assert!(!sizes(Kind::Broadcast, 2, false).contains(&(1 << 20)));
        assert_eq!([Kind::Gather, Kind::Barrier].map(|kind| first(kind, 2, true)), [None; 2]);
    }

    #[test]
    fn the_environment_switches_it_off_and_never_on() {
        assert_eq!(
            [None, Some("on"), Some("off")].map(|said| wanted(true, said)),
            [Ok(true), Ok(true), Ok(false)]
        );
        assert_eq!(wanted(false, Some("on")), Ok(false));
        assert!(wanted(true, Some("of")).unwrap_err().to_string().contains("neither on nor off"));
    }
}
