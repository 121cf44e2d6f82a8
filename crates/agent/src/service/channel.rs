//! Channels between a guest and the service, as the host names them (`VM=CHANNEL`), and as the
//! guest does (`PORT`).

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use trimtab_linux::socket::GuestAddress;

/// Guest, and the address where the service reads from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// The machine.
    pub vm: String,
    /// The address.
    pub address: ChannelAddress,
}

/// Address where the service reads from a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelAddress {
    /// Unix socket at which its monitor listens, as QEMU does for a serial port.
    Unix(PathBuf),
    /// Address to which the guest connects, or its monitor for it.
    Calls(GuestAddress),
}

impl fmt::Display for ChannelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Calls(GuestAddress::Unix(path)) => write!(f, "listen:{}", path.display()),
            Self::Calls(GuestAddress::Vsock { cid, port }) => write!(f, "vsock:{cid}:{port}"),
        }
    }
}

/// Parses the machine and the port of `CID:PORT`.
fn vsock(text: &str) -> Option<(u32, u32)> {
    // `parse` would accept a sign, and the last number means any machine, or any port.
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number < u32::MAX)
    };
    let (cid, port) = text.split_once(':')?;
    Some((number(cid)?, number(port)?))
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{text}\" is none of VM=unix:PATH, VM=vsock:CID:PORT and VM=listen:PATH, as in web=unix:/run/web-port.sock"
            )
        };
        let (vm, named) = text.split_once('=').ok_or_else(bad)?;
        let (kind, rest) = named.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or_else(bad)?;
        let address = match kind {
            "unix" => ChannelAddress::Unix(rest.into()),
            "listen" => ChannelAddress::Calls(GuestAddress::Unix(rest.into())),
            "vsock" => vsock(rest)
                .map(|(cid, port)| ChannelAddress::Calls(GuestAddress::Vsock { cid, port }))
                .ok_or_else(bad)?,
            _ => return Err(bad()),
        };
        if vm.is_empty() { Err(bad()) } else { Ok(Self { vm: vm.to_owned(), address }) }
    }
}

/// Address at which a guest writes to its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestPort {
    /// Device: a port of virtio-serial, a serial port.
    Device(PathBuf),
    /// Port of a machine, which is the host.
    Vsock {
        /// The machine.
        cid: u32,
        /// Its port.
        port: u32,
    },
}

impl FromStr for GuestPort {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let numbers = text.strip_prefix("vsock:").and_then(vsock);
        Ok(numbers.map_or_else(|| Self::Device(text.into()), |(cid, port)| Self::Vsock { cid, port }))
    }
}

impl fmt::Display for GuestPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(path) => path.display().fmt(f),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_ports_are_read_or_refused() {
        let channel = |text: &str| text.parse::<Channel>();
        let web = |address| Ok(Channel { vm: "web".into(), address });
        for (text, address) in [
            ("unix:/a=b", ChannelAddress::Unix("/a=b".into())),
            ("listen:/run/v_7", ChannelAddress::Calls(GuestAddress::Unix("/run/v_7".into()))),
            ("vsock:3:7000", ChannelAddress::Calls(GuestAddress::Vsock { cid: 3, port: 7_000 })),
        ] {
            assert_eq!(
                (channel(&format!("web={text}")), address.to_string().as_str()),
                (web(address.clone()), text)
            );
        }
        for bad in [
            "",
            "web",
            "web=",
            "web=unix:",
            "=unix:/a",
            "web=/a",
            "web=vsock:3",
            "web=vsock:3:",
            "web=vsock:+3:7",
        ] {
            assert!(channel(bad).unwrap_err().contains("VM=unix:PATH"), "{bad}");
        }
        let port = |text: &str| text.parse::<GuestPort>().unwrap();
        assert_eq!(port("vsock:2:7000"), GuestPort::Vsock { cid: 2, port: 7_000 });
        for path in ["/dev/ttyS4", "vsock:2", "vsock:2:-1", "vsock:2:4294967295"] {
            assert_eq!((port(path), port(path).to_string().as_str()), (GuestPort::Device(path.into()), path));
        }
    }
}
