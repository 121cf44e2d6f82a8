//! Address of the metrics: `unix:PATH`, `127.0.0.1:PORT`, `[::1]:PORT`, or
//! `public:ADDRESS:PORT`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Address at which metrics are offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Socket in the file system, for its owner alone.
    Unix(PathBuf),
    /// Port: of this machine alone, unless the user requested a public one.
    Tcp(SocketAddr),
}

/// Reason why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadAddress {
    /// The text has another form.
    #[error("\"{0}\" is not an address: write unix:PATH or 127.0.0.1:PORT")]
    Unknown(String),
    /// Other machines could reach it.
    #[error(
        "{0} can be reached from other machines, and the metrics name your programs: use 127.0.0.1:{port}, or write public:{0} if you mean it",
        port = .0.port()
    )]
    Public(SocketAddr),
    /// A Unix socket without a path, or with a path that the kernel cannot hold.
    #[error("unix: needs a path of 1 to {most} bytes", most = PATH_MAX)]
    Path,
}

/// Longest path of a Unix socket: `sun_path` holds 108 bytes with the zero at the end.
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
