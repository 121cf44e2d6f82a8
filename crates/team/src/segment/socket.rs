//! Joining over a Unix socket: ranks that were started without a descriptor get the segment's from
//! the process that made it.
//!
//! **Problem.** Programs started by others (MPI's launchers, batch systems, by hand) inherit
//! nothing. A path that several users can reach is an invitation to pass a wrong segment, to listen
//! in place of the host, or to keep the host busy.
//!
//! **Idea.** The host listens in a folder that only its user can enter. Both ends get the other's
//! user from the kernel, and communicate with their own user only. A greeting has a fixed size and
//! little time; the answer is a rank, and the descriptor beside it (SCM_RIGHTS). The host serves
//! all connected peers at once, each as far as its greeting is complete.
//!
//! **Properties.** A peer that sends nothing, too little or other data does not delay the others,
//! and takes no seat: it is served for [`PEER_TIMEOUT`]. A passed descriptor is checked as any
//! segment is: sealed, and of this version. Of several hosts that begin at once exactly one
//! listens, also if an old socket exists. The socket's file is removed with the host. No wait is
//! longer than its limit.
use super::memfd::Mapping;
use crate::{Error, Result};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix,
};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which the host serves one peer.
pub const PEER_TIMEOUT: Duration = Duration::from_millis(500);
/// Most peers served at a time; others wait in the socket's queue.
const PEERS_MAX: usize = 128;
/// Longest sleep of the host.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// First bytes of a greeting and of an answer: name and version.
const MAGIC: [u8; 8] = *b"TRTEAM\x00\x01";
/// Requests any rank.
const ANY_RANK: u32 = u32::MAX;

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |why| Error::System { what, why: why.to_string() }
}

/// Returns a socket's folder; refuses one that other users could have prepared.
pub(super) fn ours_alone(path: &Path) -> Result<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let about = std::fs::symlink_metadata(folder).map_err(failed("looking at the socket's folder"))?;
    let own = rustix::process::geteuid().as_raw();
    if !about.is_dir() || about.uid() != own || about.mode() & 0o077 != 0 {
        return Err(Error::Refused(format!(
            "{} must be a folder, not a link, that only this user can enter (mode 0700); jobs meet in XDG_RUNTIME_DIR if it is such a folder",
            folder.display()
        )));
    }
    Ok(folder.to_owned())
}

pub(super) fn same_user(stream: &UnixStream) -> Result<()> {
    let peer =
        rustix::net::sockopt::socket_peercred(stream).map_err(|e| Error::system("asking for the peer", e))?;
    if peer.uid != rustix::process::geteuid() {
        return Err(Error::Refused(format!("the peer is user {}, not this one", peer.uid.as_raw())));
    }
    Ok(())
}

/// Listens for the ranks of a team.
#[derive(Debug)]
pub struct Host {
    listeners: Vec<UnixListener>,
    /// The socket's path, and device and number of its file.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Host {
    /// Listens at a path. Removes a socket that a host left there and no longer serves.
    ///
    /// # Errors
    /// `Refused` if other users can enter the folder, or a host listens already.
    pub fn listen(path: &Path) -> Result<Self> {
        let _alone = alone(&ours_alone(path)?)?;
        match address(path).and_then(|at| connect(&at)) {
            // A host listens, and may be too busy to accept this connection.
            Ok(_) | Err(Errno::AGAIN) => {
                return Err(Error::Refused(format!("a host listens at {} already", path.display())));
            }
            Err(_) => {}
        }
        if std::fs::symlink_metadata(path)
            .is_ok_and(|about| std::os::unix::fs::FileTypeExt::is_socket(&about.file_type()))
        {
            std::fs::remove_file(path).map_err(failed("taking away an old socket"))?;
        }
        let listener = UnixListener::bind(path).map_err(failed("listening for ranks"))?;
        listener.set_nonblocking(true).map_err(failed("listening for ranks"))?;
        let about = std::fs::symlink_metadata(path).map_err(failed("looking at the socket"))?;
        Ok(Self { listeners: vec![listener], file: Some((path.to_owned(), (about.dev(), about.ino()))) })
    }

    /// Returns the host that listens at a socket without a file, which does not block.
    pub(super) fn of(listener: UnixListener) -> Self {
        Self { listeners: vec![listener], file: None }
    }

    /// Listens at another socket, too, which does not block.
    pub(super) fn also(&mut self, listener: UnixListener) {
        self.listeners.push(listener);
    }

    /// Passes the segment to peers until each rank of `free` (true if it is to be given) has one.
    ///
    /// # Errors
    /// `Refused` when the time is over, naming a rank that did not connect.
    pub fn serve(&self, segment: BorrowedFd<'_>, free: &mut [bool], limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let mut peers: Vec<Peer> = Vec::new();
        while let Some(missing) = free.iter().position(|free| *free) {
            let now = Instant::now();
            if now >= until {
                return Err(Error::Refused(format!("rank {missing} did not come within {limit:?}")));
            }
            // A peer that sent its greeting in time is served, even after the limit.
            peers.retain_mut(|peer| peer.receive(segment, free) == PeerState::Partial && peer.until > now);
            if !free.contains(&true) {
                // No rank is missing any more, so nothing would end the sleep below early.
                break;
            }
            for listener in &self.listeners {
                while peers.len() < PEERS_MAX {
                    match listener.accept() {
                        Ok((stream, _)) => peers.extend(Peer::new(stream)),
                        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                        // Also if all descriptors are in use: finished peers make room.
                        Err(_) => break,
                    }
                }
            }
            let next = peers.iter().map(|peer| peer.until).min().unwrap_or(until).min(until);
            let nap = next.saturating_duration_since(Instant::now()).min(SLEEP_MAX);
            self.listen_for(&peers, nap)?;
        }
        Ok(())
    }

    /// Sleeps until a peer connects or sends something, at most for `nap`.
    fn listen_for(&self, peers: &[Peer], nap: Duration) -> Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let mut fds: Vec<PollFd<'_>> =
            peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN)).collect();
        if peers.len() < PEERS_MAX {
            fds.extend(self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
        match rustix::event::poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(Error::system("listening for ranks", e)),
        }
    }
}

/// A connected peer that has not sent its whole greeting yet.
struct Peer {
    stream: UnixStream,
    hello: [u8; 12],
    got: usize,
    until: Instant,
}

/// State of a peer after reading from it.
#[derive(PartialEq, Eq)]
enum PeerState {
    /// It may send more.
    Partial,
    /// It is served, or is not a rank.
    Done,
}

impl Peer {
    /// Accepts a connection; `None` if it is another user's.
    fn new(stream: UnixStream) -> Option<Self> {
        same_user(&stream).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, hello: [0; 12], got: 0, until: Instant::now() + PEER_TIMEOUT })
    }

    /// Reads the peer's data, and answers when the greeting is complete.
    fn receive(&mut self, segment: BorrowedFd<'_>, free: &mut [bool]) -> PeerState {
        while self.got < self.hello.len() {
            match self.stream.read(&mut self.hello[self.got..]) {
                Ok(0) => return PeerState::Done,
                Ok(read) => self.got += read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return PeerState::Partial,
                Err(_) => return PeerState::Done,
            }
        }
        // The answer to a refused peer is a connection without data.
        let _ = answer(&self.stream, &self.hello, segment, free);
        PeerState::Done
    }
}

/// Locks the folder, so that no other host removes sockets in it meanwhile. A lock of the folder
/// itself leaves no file behind.
fn alone(folder: &Path) -> Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(folder, flags, Mode::empty())
        .map_err(|e| Error::system("opening the socket's folder", e))?;
    let until = Instant::now() + PEER_TIMEOUT;
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(fd),
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("locking the socket's folder", e)),
        }
    }
}

fn address(path: &Path) -> std::result::Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(path)
}

/// Connects to a socket without waiting; `AGAIN` if its queue is full.
pub(super) fn connect(at: &SocketAddrUnix) -> std::result::Result<UnixStream, Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, at)?;
    Ok(UnixStream::from(socket))
}

impl Drop for Host {
    fn drop(&mut self) {
        // Only the file that was made here, not that of a later host.
        let Some((path, file)) = &self.file else { return };
        if std::fs::symlink_metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == *file) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn answer(stream: &UnixStream, hello: &[u8; 12], segment: BorrowedFd<'_>, free: &mut [bool]) -> Result<()> {
    let (magic, wanted) = hello.split_at(8);
    let wanted = wanted.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    let given = if wanted == ANY_RANK { free.iter().position(|free| *free) } else { Some(wanted as usize) };
    let given = given.filter(|rank| free.get(*rank) == Some(&true));
    let Some(given) = given.filter(|_| magic == MAGIC) else {
        return Err(Error::Refused("a greeting that no rank sends, or a rank that is taken".to_owned()));
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let passed = [segment];
    beside.push(SendAncillaryMessage::ScmRights(&passed));
    let number = (given as u32).to_le_bytes();
    let words = [IoSlice::new(&MAGIC), IoSlice::new(&number)];
    rustix::net::sendmsg(stream, &words, &mut beside, SendFlags::NOSIGNAL)
        .map_err(|e| Error::system("passing a segment", e))?;
    free[given] = false;
    Ok(())
}

/// Gets a team's segment, and a rank in it, from the host that listens at a path; waits for the
/// host to begin.
///
/// # Errors
/// `Refused` if another user listens, no host does within the limit, or the rank is taken;
/// `NotATeam` if the descriptor is not a segment.
pub fn join(path: &Path, wanted: Option<u32>, limit: Duration) -> Result<(Mapping, u32)> {
    let at = address(path).map_err(|e| Error::system("making an address to meet at", e))?;
    join_any(&[at], &path.display().to_string(), wanted, limit)
}

/// As [`join`], from a host of this user's that listens at one of several addresses; `place` names
/// them.
pub(super) fn join_any(
    addresses: &[SocketAddrUnix],
    place: &str,
    wanted: Option<u32>,
    limit: Duration,
) -> Result<(Mapping, u32)> {
    let until = Instant::now() + limit;
    greet(connect_any(addresses, place, until)?, wanted, until)
}

/// Connects to a host of this user's; waits for it to begin.
fn connect_any(addresses: &[SocketAddrUnix], place: &str, until: Instant) -> Result<UnixStream> {
    loop {
        let mut refusal = None;
        let mut busy = false;
        for at in addresses {
            match connect(at) {
                Ok(stream) => match same_user(&stream) {
                    Ok(()) => return Ok(stream),
                    // It stays there.
                    Err(error) if addresses.len() == 1 => return Err(error),
                    Err(error) => refusal = Some(error),
                },
                Err(Errno::AGAIN) => busy = true,
                Err(e) => {
                    refusal.get_or_insert(Error::Refused(format!("no host listens at {place}: {e}")));
                }
            }
        }
        let over = Instant::now() >= until;
        match refusal {
            _ if busy && over => {
                return Err(Error::Refused(format!("the host at {place} accepts no connections")));
            }
            Some(refusal) if over => return Err(refusal),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Takes a rank and the segment from a host.
fn greet(mut stream: UnixStream, wanted: Option<u32>, until: Instant) -> Result<(Mapping, u32)> {
    // The socket always has room for these few bytes; the call then waits for the answer.
    stream.set_nonblocking(false).map_err(failed("setting a limit"))?;
    let mut hello = [0; 12];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(&wanted.unwrap_or(ANY_RANK).to_le_bytes());
    stream.write_all(&hello).map_err(failed("greeting a host"))?;
    let left = until.saturating_duration_since(Instant::now()).max(PEER_TIMEOUT);
    stream.set_read_timeout(Some(left)).map_err(failed("setting a limit"))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut words = [0; 12];
    let got = rustix::net::recvmsg(
        &stream,
        &mut [IoSliceMut::new(&mut words)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(|e| Error::system("waiting for a segment", e))?;
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    let (Some(fd), 12, true) = (fds.pop(), got.bytes, words.starts_with(&MAGIC)) else {
        return Err(Error::Refused(
            "the host gave no segment: the rank is taken, or the socket does not belong to a team".to_owned(),
        ));
    };
    let rank = words[8..].iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    Ok((Mapping::adopt(fd)?, rank))
}
