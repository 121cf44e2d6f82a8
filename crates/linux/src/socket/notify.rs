//! Status messages of a service to systemd: a datagram to the socket in `NOTIFY_SOCKET`
//! (sd_notify(3)).

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Sends `state`, such as `READY=1`, to the socket that the variable names.
///
/// # Errors
/// The socket has no listener. A service runs on without it.
pub fn notify(socket: &OsStr, state: &str) -> io::Result<()> {
    let bytes = socket.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(bytes)?,
    };
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let from = socket_with(AddressFamily::UNIX, SocketType::DGRAM, kind, None)?;
    sendto(&from, state.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_notification_reaches_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        notify(path.as_os_str(), "READY=1").unwrap();
        let mut text = [0; 32];
        let read = listener.recv(&mut text).unwrap();
        assert_eq!(&text[..read], b"READY=1");
        drop(listener);
        assert!(notify(path.as_os_str(), "READY=1").is_err());
        assert!(notify(OsStr::new(""), "READY=1").is_err());
    }
}
