//! What the program reads from its surroundings once, at its start: the environment, its own file, its user.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_agent::paths::Paths;
pub use trimtab_agent::paths::{LEDGER, SOCKET};
use trimtab_launch::Environment;

/// Where site and user files are, instead of `/etc/trimtab` and the user's configuration folder.
pub const CONFIG: &str = "TRIMTAB_CONFIG";
/// What this machine is like, instead of what is found: a file of hwloc's or a description, as for `--machine`.
pub const MACHINE: &str = "TRIMTAB_MACHINE";

/// The surroundings.
#[derive(Debug, Default)]
pub struct World {
    environment: Environment,
    /// The root of the file system.
    pub root: PathBuf,
}

impl World {
    /// This process's.
    pub fn current() -> Self {
        Self { environment: std::env::vars_os().collect(), root: PathBuf::from("/") }
    }

    /// This machine with another environment.
    pub fn of(environment: Environment) -> Self {
        Self { environment, root: PathBuf::from("/") }
    }

    /// The environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// A variable as it is.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.environment.raw(name)
    }

    /// A variable that is text; others count as unset.
    pub fn text(&self, name: &str) -> Option<String> {
        self.environment.text(name)
    }

    /// The names of all variables that are text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.environment.names()
    }

    /// A variable that the *user* set: one that an enclosing trimtab set, unchanged since, is not.
    pub fn of_user(&self, name: &str) -> Option<String> {
        self.environment.of_user(name)
    }

    /// Where files are, for what outlives a call.
    pub fn paths(&self) -> Paths {
        Paths::new(&self.root, &|name| self.raw(name).map(OsStr::to_owned))
    }

    /// `/proc`.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// `/sys`.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// The folders of site and user files, outermost first.
    pub fn config(&self) -> Vec<PathBuf> {
        if let Some(only) = self.raw(CONFIG).filter(|folder| !folder.is_empty()) {
            return vec![PathBuf::from(only)];
        }
        let user = self.folder("XDG_CONFIG_HOME", ".config");
        std::iter::once(PathBuf::from("/etc/trimtab")).chain(user).collect()
    }

    /// The folder for the cached machine.
    pub fn cache(&self) -> Option<PathBuf> {
        self.folder("XDG_CACHE_HOME", ".cache")
    }

    /// The folder for what is kept for good.
    pub fn data(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME", ".local/share")
    }

    fn folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let named = self.raw(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || {
            self.raw("HOME").map(|home| Path::new(home).join(below_home)).filter(|path| path.is_absolute())
        };
        named.or_else(home).map(|folder| folder.join("trimtab"))
    }

    /// Time since boot, suspend included.
    pub fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}
