//! Where figures are offered: `unix:PATH`, `127.0.0.1:PORT`, `[::1]:PORT`, or
//! `public:ADDRESS:PORT`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket in the file system, for its owner alone.
    Unix(PathBuf),
    /// A port: of this machine alone unless others were asked for.
    Tcp(SocketAddr),
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadAddress {
    /// It is something else.
    #[error("\"{0}\" is no address: write unix:PATH or 127.0.0.1:PORT")]
    Unknown(String),
    /// Others could reach it.
    #[error(
        "{0} can be reached from other machines, and the figures name your programs: use 127.0.0.1:{port}, or write public:{0} if you mean it",
        port = .0.port()
    )]
    Public(SocketAddr),
    /// A Unix socket without a path, or with one that the kernel cannot hold.
    #[error("unix: needs a path of 1 to {most} bytes", most = PATH_MAX)]
    Path,
}

/// The longest path of a Unix socket: `sun_path` holds 108 bytes with the zero at the end.
const PATH_MAX: usize = 107;

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let bad = path.is_empty() || path.len() > PATH_MAX || path.contains('\0');
            return if bad { Err(BadAddress::Path) } else { Ok(Self::Unix(PathBuf::from(path))) };
        }
        let (asked, rest) = text.strip_prefix("public:").map_or((false, text), |rest| (true, rest));
        let address: SocketAddr = rest.parse().map_err(|_| BadAddress::Unknown(text.to_owned()))?;
        if asked || address.ip().is_loopback() {
            Ok(Self::Tcp(address))
        } else {
            Err(BadAddress::Public(address))
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
        }
    }
}
