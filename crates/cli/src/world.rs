//! What the program reads from its surroundings once, at its start: the environment, its own file, its user.

use crate::own_values::{OwnValues, SET_BY_US};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_agent::paths::Paths;
pub use trimtab_agent::paths::{LEDGER, SOCKET};

/// Where site and user files are, instead of `/etc/trimtab` and the user's configuration folder.
pub const CONFIG: &str = "TRIMTAB_CONFIG";
/// What this machine is like, instead of what is found: a file of hwloc's or a description, as for `--machine`.
pub const MACHINE: &str = "TRIMTAB_MACHINE";

/// The surroundings.
#[derive(Debug, Default)]
pub struct World {
    variables: BTreeMap<OsString, OsString>,
    /// The root of the file system.
    pub root: PathBuf,
}

impl World {
    /// This process's.
    pub fn current() -> Self {
        Self { variables: std::env::vars_os().collect(), root: PathBuf::from("/") }
    }

    /// A variable as it is.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable that is text; others count as unset.
    pub fn text(&self, name: &str) -> Option<String> {
        self.raw(name)?.to_str().map(str::to_owned)
    }

    /// The names of all variables that are text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().filter_map(|name| name.to_str())
    }

    /// A variable that the *user* set: one that an enclosing trimtab set, and nobody changed since, is not.
    pub fn of_user(&self, name: &str) -> Option<String> {
        let value = self.raw(name)?.to_string_lossy().into_owned();
        (!self.own_values().contain(name, &value)).then_some(value)
    }

    /// What an enclosing trimtab set.
    pub fn own_values(&self) -> OwnValues {
        self.text(SET_BY_US).map_or_else(OwnValues::default, |text| OwnValues::read(&text))
    }

    /// The whole environment as `NAME=VALUE`, with changes: a name set to what, or taken away.
    pub fn changed(&self, changes: &BTreeMap<String, Option<OsString>>) -> Vec<OsString> {
        let mut all: BTreeMap<&OsStr, &OsStr> =
            self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
        for (name, value) in changes {
            match value {
                Some(value) => all.insert(OsStr::new(name), value),
                None => all.remove(OsStr::new(name)),
            };
        }
        let entry = |(name, value): (&OsStr, &OsStr)| {
            [name, OsStr::new("="), value].into_iter().collect::<OsString>()
        };
        all.into_iter().map(entry).collect()
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
