//! Paths of the kernel's files and of trimtab's shared files on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trimtab_linux::ledger::{BootId, LedgerError, Location};

/// Variable that names the ledger's folder, instead of the usual places.
pub const LEDGER: &str = "TRIMTAB_LEDGER";
/// Variable that names the service's socket, instead of the usual places.
pub const SOCKET: &str = "TRIMTAB_SOCKET";

/// Paths of files. Made once by the front end, which alone reads the environment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paths {
    /// The root of the file system; `/` outside of tests.
    pub root: PathBuf,
    /// The ledger's folder, if [`LEDGER`] names one.
    pub ledger: Option<PathBuf>,
    /// The service's socket, if [`SOCKET`] names one.
    pub socket: Option<PathBuf>,
    /// The user's folder for sockets (`XDG_RUNTIME_DIR`).
    pub runtime: Option<PathBuf>,
    /// The socket of the service manager that started this process (`NOTIFY_SOCKET`).
    pub manager: Option<OsString>,
}

impl Paths {
    /// Makes paths from the root of the file system and the process's variables. An empty value
    /// counts as unset.
    pub fn new(root: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        Self {
            root: root.to_owned(),
            ledger: set(LEDGER).map(PathBuf::from),
            socket: set(SOCKET).map(PathBuf::from),
            runtime: variable("XDG_RUNTIME_DIR").map(PathBuf::from),
            manager: set("NOTIFY_SOCKET"),
        }
    }

    /// Returns `/proc`.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Returns `/sys`.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Returns the folder where control groups are mounted.
    pub fn cgroups(&self) -> PathBuf {
        self.sys().join("fs/cgroup")
    }

    /// Returns the places where the ledger may be.
    ///
    /// # Errors
    /// The boot id cannot be read.
    pub fn location(&self) -> Result<Location, LedgerError> {
        let boot = BootId::read(&self.proc())?;
        Ok(match &self.ledger {
            Some(folder) => Location::named(folder, boot),
            None => Location::usual(&self.root, boot),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_name_no_place() {
        let paths = Paths::new(Path::new("/"), &|name| (name != SOCKET).then(OsString::new));
        assert_eq!((paths.ledger, paths.socket, paths.manager), (None, None, None));
        let named = Paths::new(Path::new("/r"), &|name| Some(format!("/named/{name}").into()));
        assert_eq!(named.ledger, Some("/named/TRIMTAB_LEDGER".into()));
        assert_eq!((named.proc(), named.cgroups()), ("/r/proc".into(), "/r/sys/fs/cgroup".into()));
    }
}
