//! Sockets between a virtual machine and its host (`AF_VSOCK`). An endpoint is the number of a
//! machine and a port. The library of safe system calls does not support such addresses, so the
//! three calls are made by hand.

use super::errno;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Number of the host, in all guests.
pub const CID_HOST: u32 = 2;
/// Number of this machine itself, if its kernel has a loopback (`vsock_loopback`).
pub const CID_LOCAL: u32 = 1;
/// Number of a listener's address that accepts any machine.
const CID_ANY: u32 = u32::MAX;

/// Returns a `struct sockaddr_vm` with the fields that are used.
fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
    // SAFETY: integers and bytes, for which zero is a valid value.
    let mut address: libc::sockaddr_vm = unsafe { MaybeUninit::zeroed().assume_init() };
    address.svm_family = libc::sa_family_t::try_from(libc::AF_VSOCK).unwrap_or_default();
    (address.svm_cid, address.svm_port) = (cid, port);
    address
}

fn size() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<libc::sockaddr_vm>()).unwrap_or_default()
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)
}

/// Begins to connect. The socket becomes writable once it is connected or has failed (`SO_ERROR`).
///
/// # Errors
/// `EAFNOSUPPORT` if the kernel has no such sockets, `ENODEV` if the machine has no such device;
/// the kernel's error otherwise.
pub fn connect(cid: u32, port: u32) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let address = address(cid, port);
    // SAFETY: the kernel reads `size` bytes, that of the live structure behind the pointer, and
    // keeps no reference; the descriptor is open.
    let answer = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size()) };
    match if answer < 0 { errno::last() } else { Errno::INPROGRESS } {
        Errno::INPROGRESS => Ok(socket),
        errno => Err(errno),
    }
}

/// Listens at a port, for connections of any machine.
///
/// # Errors
/// `EADDRINUSE` if the port already has a listener, `EACCES` for a port below 1024 without the
/// right to it; as [`connect`].
pub fn listen(port: u32) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let address = address(CID_ANY, port);
    // SAFETY: as in `connect`.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size()) } < 0 {
        return Err(errno::last());
    }
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

/// Accepts a pending connection without waiting. Returns its socket and the number of its machine.
///
/// # Errors
/// `EAGAIN` when no connection is pending; the kernel's error otherwise.
pub fn accept(listener: impl AsFd) -> Result<(OwnedFd, u32), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::accept_with(listener, flags)?;
    let mut found = address(CID_ANY, 0);
    let mut length = size();
    // SAFETY: the kernel writes at most `length` bytes to the live structure behind the pointer,
    // which has that size; the descriptor is open.
    let asked = unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut found).cast(), &raw mut length) };
    if asked < 0 {
        return Err(errno::last());
    }
    if length < size() || i32::from(found.svm_family) != libc::AF_VSOCK {
        return Err(Errno::INVAL);
    }
    Ok((socket, found.svm_cid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;

    #[test]
    fn a_port_has_one_listener_and_no_connection_before_one_is_made() {
        let port = 40_000 + std::process::id() % 10_000;
        let listener = match listen(port) {
            Ok(listener) => listener,
            Err(errno) => return skipped(format_args!("no sockets between machines here: {errno}")),
        };
        assert!(matches!(listen(port), Err(Errno::ADDRINUSE)));
        assert!(matches!(accept(&listener), Err(Errno::AGAIN)));
        drop(listener);
        assert!(listen(port).is_ok());
    }
}
