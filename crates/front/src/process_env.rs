//! Process environment, read once at the start: variables, the program's own file, and its user.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_agent::paths::Paths;
pub use trimtab_agent::paths::{LEDGER, SOCKET};
use trimtab_launch::Environment;
use trimtab_linux::survey::since_boot;

/// Variable that names the folder of site and user files, instead of `/etc/trimtab` and the user's
/// configuration folder.
pub const CONFIG: &str = "TRIMTAB_CONFIG";
/// Variable that gives the machine model instead of the discovered one: an hwloc file or a
/// description, as for `--machine`.
pub const MACHINE: &str = "TRIMTAB_MACHINE";

/// Environment of the process.
#[derive(Debug, Default)]
pub struct World {
    environment: Environment,
    /// The root of the file system.
    pub root: PathBuf,
    /// The helper that discovers machines; `None`: the one that belongs to the running program.
    pub helper: Option<PathBuf>,
}

impl World {
    /// Reads the environment of this process.
    pub fn current() -> Self {
        Self { environment: std::env::vars_os().collect(), root: PathBuf::from("/"), helper: None }
    }

    /// Makes an environment of this machine with other variables.
    pub fn of(environment: Environment) -> Self {
        Self { environment, root: PathBuf::from("/"), helper: None }
    }

    /// Returns this environment with another value of a variable.
    #[must_use]
    pub fn with_variable(&self, name: &str, value: &str) -> Self {
        let environment = self.environment.with(name, value);
        Self { environment, root: self.root.clone(), helper: self.helper.clone() }
    }

    /// Uses this helper, for code that is loaded into other programs.
    #[must_use]
    pub fn with_helper(mut self, helper: Option<PathBuf>) -> Self {
        self.helper = helper;
        self
    }

    /// Returns the variables.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns a variable as it is.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.environment.raw(name)
    }

    /// Returns a variable that is text; others count as unset.
    pub fn text(&self, name: &str) -> Option<String> {
        self.environment.text(name)
    }

    /// Yields the names of all variables that are text.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.environment.names()
    }

    /// Returns a variable that the *user* set. A value that an enclosing trimtab set, and that is
    /// unchanged since, does not count.
    pub fn of_user(&self, name: &str) -> Option<String> {
        self.environment.of_user(name)
    }

    /// Returns the paths for long-lived work.
    pub fn paths(&self) -> Paths {
        Paths::new(&self.root, &|name| self.raw(name).map(OsStr::to_owned))
    }

    /// Returns `/proc`.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Returns `/sys`.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Returns the folders of site and user files, outermost first.
    pub fn config(&self) -> Vec<PathBuf> {
        if let Some(only) = self.raw(CONFIG).filter(|folder| !folder.is_empty()) {
            return vec![PathBuf::from(only)];
        }
        let user = self.folder("XDG_CONFIG_HOME", ".config");
        std::iter::once(PathBuf::from("/etc/trimtab")).chain(user).collect()
    }

    /// Returns the folder for the cached machine.
    pub fn cache(&self) -> Option<PathBuf> {
        self.folder("XDG_CACHE_HOME", ".cache")
    }

    /// Returns the folder for permanent data.
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

    /// Returns the time since boot, suspend included.
    pub fn now(&self) -> Duration {
        since_boot()
    }
}
