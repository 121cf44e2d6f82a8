//! Credentials of the peer of a Unix socket.

use super::errno;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Credentials that the kernel recorded when the peer connected, or began to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerCredentials {
    /// The user id.
    pub uid: u32,
    /// The process id; `None` if the process is in a process-id namespace that is not visible from
    /// here.
    pub pid: Option<u32>,
}

/// Asks the kernel. Written by hand, since libraries have a type for the process id that cannot
/// hold the kernel's zero.
///
/// # Errors
/// It is not a socket, or it has no peer.
pub fn credentials(socket: impl AsFd) -> Result<PeerCredentials, Errno> {
    let mut found = MaybeUninit::<libc::ucred>::zeroed();
    let size = size_of::<libc::ucred>();
    let mut length = libc::socklen_t::try_from(size).map_err(|_| Errno::INVAL)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open as long as it is borrowed; the kernel writes at most `length`
    // bytes to valid memory of that size.
    let asked = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            found.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if asked < 0 {
        return Err(errno::last());
    }
    // SAFETY: three integers, zeroed at first and written by the call that succeeded.
    let found = unsafe { found.assume_init() };
    // For a socket without a peer the kernel returns the invalid user id.
    if usize::try_from(length) != Ok(size) || found.uid == u32::MAX {
        return Err(Errno::NOTCONN);
    }
    Ok(PeerCredentials { uid: found.uid, pid: u32::try_from(found.pid).ok().filter(|pid| *pid > 0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn both_ends_know_each_other_and_without_a_peer_there_is_none() {
        let own = PeerCredentials { uid: rustix::process::geteuid().as_raw(), pid: Some(std::process::id()) };
        let (one, other) = UnixStream::pair().unwrap();
        assert_eq!((credentials(&one), credentials(&other)), (Ok(own), Ok(own)));
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let client = UnixStream::connect(folder.path().join("s")).unwrap();
        assert_eq!(credentials(&client), Ok(own));
        assert_eq!(credentials(listener.accept().unwrap().0), Ok(own));
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(credentials(&datagrams).is_err());
        assert!(credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
