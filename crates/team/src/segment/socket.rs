//! Meeting over a Unix socket: ranks that nobody started with a descriptor get the segment's from whoever made it.
//!
//! **Problem.** Programs started by others (MPI's launchers, batch systems, hand) inherit nothing. A path that several users can reach is
//! an invitation to pass a wrong segment, to listen in somebody's place, or to keep the host busy.
//!
//! **Idea.** The host listens in a folder that is its user's alone. Both ends ask the kernel who the other is, and speak to their own user
//! only. A greeting has a fixed size and little time; the answer is a rank, and the descriptor beside it (SCM_RIGHTS).
//!
//! **Properties.** Whoever sends nothing, too little or something else costs the host [`PATIENCE`] and no seat. What is passed is checked
//! as any segment is: sealed, and of this version. The socket's file goes when the host does.
use super::memfd::Mapping;
use crate::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the host listens to one peer.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// What a greeting and an answer begin with: name and version.
const MAGIC: [u8; 8] = *b"TRTEAM\x00\x01";
/// Any rank.
const ANY: u32 = u32::MAX;

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |why| Error::System { what, why: why.to_string() }
}

/// Refuses folders that others could have prepared.
fn ours_alone(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let about = std::fs::symlink_metadata(folder).map_err(failed("looking at the socket's folder"))?;
    let own = rustix::process::geteuid().as_raw();
    if !about.is_dir() || about.uid() != own || about.mode() & 0o077 != 0 {
        return Err(Error::Refused(format!(
            "{} must be a folder of this user's, for nobody else (mode 0700), and no link",
            folder.display()
        )));
    }
    Ok(())
}

fn same_user(stream: &UnixStream) -> Result<()> {
    let peer =
        rustix::net::sockopt::socket_peercred(stream).map_err(|e| Error::system("asking for the peer", e))?;
    if peer.uid != rustix::process::geteuid() {
        return Err(Error::Refused(format!("the peer is user {}, not this one", peer.uid.as_raw())));
    }
    Ok(())
}

/// Reads all of a buffer before a moment, however slowly it comes.
fn fill(stream: &mut UnixStream, buffer: &mut [u8], until: Instant) -> Result<()> {
    let mut at = 0;
    while at < buffer.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Refused("the peer said too little in its time".to_owned()));
        }
        stream.set_read_timeout(Some(left)).map_err(failed("setting a limit"))?;
        match stream.read(&mut buffer[at..]) {
            Ok(0) => return Err(Error::Refused("the peer hung up".to_owned())),
            Ok(read) => at += read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("reading from a peer")(e)),
        }
    }
    Ok(())
}

/// Where the ranks of a job of this name meet: in this user's own folder, made if it is not there.
///
/// # Errors
/// `Refused` where somebody else made that folder.
pub fn place(key: &str) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let own = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("trimtab-team-{own}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed("making a folder to meet in")(e));
        }
        _ => {}
    }
    // Names may hold anything and be long; paths of sockets may not. FNV-1a, which is the same in every process.
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = folder.join(format!("{hash:016x}"));
    ours_alone(&path)?;
    Ok(path)
}

/// Listens for the ranks of a team.
#[derive(Debug)]
pub struct Host {
    listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl Host {
    /// Listens at a path. A socket left there by a host that is gone is taken away.
    ///
    /// # Errors
    /// `Refused` where the folder is not this user's alone, or somebody listens already.
    pub fn listen(path: &Path) -> Result<Self> {
        ours_alone(path)?;
        if UnixStream::connect(path).is_ok() {
            return Err(Error::Refused(format!("somebody listens at {} already", path.display())));
        }
        if std::fs::symlink_metadata(path)
            .is_ok_and(|about| std::os::unix::fs::FileTypeExt::is_socket(&about.file_type()))
        {
            std::fs::remove_file(path).map_err(failed("taking away an old socket"))?;
        }
        let listener = UnixListener::bind(path).map_err(failed("listening for ranks"))?;
        listener.set_nonblocking(true).map_err(failed("listening for ranks"))?;
        let about = std::fs::symlink_metadata(path).map_err(failed("looking at the socket"))?;
        Ok(Self { listener, path: path.to_owned(), file: (about.dev(), about.ino()) })
    }

    /// Passes the segment to peers until each rank of `free` (true where it is to be given) has one.
    ///
    /// # Errors
    /// `Refused` when the time is over, naming a rank that did not come.
    pub fn serve(&self, segment: BorrowedFd<'_>, free: &mut [bool], limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        while let Some(missing) = free.iter().position(|free| *free) {
            match self.listener.accept() {
                // Whoever does not behave is let go; the others are waited for.
                Ok((stream, _)) => _ = answer(stream, segment, free),
                Err(_) if Instant::now() >= until => {
                    return Err(Error::Refused(format!("rank {missing} did not come within {limit:?}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            if Instant::now() >= until && free.iter().any(|free| *free) {
                return Err(Error::Refused(format!("not all ranks came within {limit:?}")));
            }
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Only the file that was made here, not that of who came after.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|about| (about.dev(), about.ino()) == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn answer(mut stream: UnixStream, segment: BorrowedFd<'_>, free: &mut [bool]) -> Result<()> {
    same_user(&stream)?;
    stream.set_nonblocking(false).map_err(failed("setting a limit"))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed("setting a limit"))?;
    let mut hello = [0; 12];
    fill(&mut stream, &mut hello, Instant::now() + PATIENCE)?;
    let (magic, wanted) = hello.split_at(8);
    let wanted = wanted.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    let given = if wanted == ANY { free.iter().position(|free| *free) } else { Some(wanted as usize) };
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
    rustix::net::sendmsg(&stream, &words, &mut beside, SendFlags::NOSIGNAL)
        .map_err(|e| Error::system("passing a segment", e))?;
    free[given] = false;
    Ok(())
}

/// Gets a team's segment, and a rank in it, from who listens at a path; waits for that to begin.
///
/// # Errors
/// `Refused` where another user listens, nobody does within the limit, or the rank is taken; `NotATeam` for what is no segment.
pub fn join(path: &Path, wanted: Option<u32>, limit: Duration) -> Result<(Mapping, u32)> {
    let until = Instant::now() + limit;
    let mut stream = loop {
        match UnixStream::connect(path) {
            Ok(stream) => break stream,
            Err(e) if Instant::now() >= until => {
                return Err(Error::Refused(format!("nobody listens at {}: {e}", path.display())));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    same_user(&stream)?;
    let mut hello = [0; 12];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(&wanted.unwrap_or(ANY).to_le_bytes());
    stream.write_all(&hello).map_err(failed("greeting a host"))?;
    let left = until.saturating_duration_since(Instant::now()).max(PATIENCE);
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
            "the host gave no segment: the rank is taken, or it is no team's".to_owned(),
        ));
    };
    let rank = words[8..].iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    Ok((Mapping::adopt(fd)?, rank))
}
