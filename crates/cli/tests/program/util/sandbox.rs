//! Sandbox of one test, and the calls that are made in it.

use super::programs::{PARTS, cache, search_path};
use super::{Call, MASK, Running, chmod, cpus, eventually, lab, trimtab};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Calls that measure foreign load need the machine for themselves; all others share it.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held, not read")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A sandbox of one test: its own ledger, home and configuration. One per test: a second one would
/// wait for the first.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    _turn: Turn,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with(Turn::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns a sandbox while no other test of this program runs.
    pub(crate) fn alone() -> Self {
        Self::with(Turn::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with(turn: Turn) -> Self {
        let dir = tempfile::Builder::new().prefix("trimtab-test-").tempdir().unwrap();
        let sandbox = Self { dir, _turn: turn };
        chmod(&sandbox.path(""), 0o755);
        for (name, mode) in [("ledger", 0o1777), ("home", 0o777), ("config", 0o755), ("shared", 0o1777)] {
            fs::create_dir(sandbox.path(name)).unwrap();
            chmod(&sandbox.path(name), mode);
        }
        sandbox
    }

    /// Returns a file of the sandbox.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the sandbox, and makes its folders.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes an executable file.
    pub(crate) fn script(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        // A file that another thread's child has open for writing cannot be executed, so it is made
        // in another process.
        let draft = self.write(&format!("{name}.draft"), text);
        chmod(&draft, 0o755);
        self.copy(name, &draft)
    }

    /// Copies an executable file.
    pub(crate) fn copy(&self, name: &str, original: &Path) -> PathBuf {
        let status = Command::new("cp").arg(original).arg(self.path(name)).status().unwrap();
        assert!(status.success());
        self.path(name)
    }

    /// Returns the folder with the program under test, readable by every user. A copy if the
    /// original folder is not.
    pub(crate) fn public(&self) -> PathBuf {
        let folder = trimtab().parent().unwrap();
        let open = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o5 == 0o5);
        if folder.ancestors().all(open) {
            return folder.to_owned();
        }
        let copy = self.path("bin");
        if !copy.exists() {
            fs::create_dir(&copy).unwrap();
            let files = PARTS.map(|(name, _)| folder.join(name));
            assert!(Command::new("cp").args(files).arg(&copy).status().unwrap().success());
        }
        copy
    }

    /// Returns a call of `trimtab` with these words.
    pub(crate) fn trimtab(&self, words: &str) -> Call<'_> {
        let words = words.split_whitespace().map(OsString::from).collect();
        Call::of(self, trimtab(), words, self.variables())
    }

    /// Returns a call of `trimtab-lab` with these words.
    pub(crate) fn lab(&self, words: &str) -> Call<'_> {
        self.trimtab(words).copy(lab())
    }

    /// Returns a call of `trimtab run` with these options, without the program; foreign load is not
    /// measured, so that the answer does not depend on it.
    pub(crate) fn run(&self, options: &str) -> Call<'_> {
        self.trimtab(&format!("run --survey none {options} --"))
    }

    /// Returns a call of a shell, for longer scripts; `$T` is trimtab.
    pub(crate) fn shell(&self, script: &str) -> Call<'_> {
        self.trimtab("").copy(Path::new("sh")).args(["-c", script])
    }

    /// Returns a plan, as JSON.
    pub(crate) fn plan(&self, options: &str) -> serde_json::Value {
        let text = self.trimtab(&format!("plan --survey none --json {options}")).ends().ok();
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the output of `trimtab ps --json`.
    pub(crate) fn ps(&self) -> serde_json::Value {
        serde_json::from_str(&self.trimtab("ps --json").ends().ok()).unwrap()
    }

    /// Starts a run that holds the cores of these options until it is told to end.
    pub(crate) fn hold(&self, options: &str) -> Running<'_> {
        let mut running = self.run(options).sh(&format!("{MASK}; exec cat")).begins();
        running.line();
        running
    }

    /// Returns the CPUs that runs hold now at the level of the machine, not inside other holds.
    pub(crate) fn held(&self) -> BTreeSet<u32> {
        let ps = self.ps();
        let holds = ps["holds"].as_array().unwrap().iter().filter(|hold| hold["level"] == 0);
        let named = holds.flat_map(|hold| cpus(hold["cpus"].as_str().unwrap()));
        named.chain(cpus(ps["unknown"].as_str().unwrap())).collect()
    }

    /// Waits until nothing is held: the kernel releases a killed process's locks with some delay.
    pub(crate) fn until_free(&self) {
        eventually("nothing is held", || self.held().is_empty());
    }

    fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), search_path()),
            ("HOME".into(), self.path("home").into()),
            ("XDG_CACHE_HOME".into(), cache().into()),
            ("TRIMTAB_CONFIG".into(), self.path("config").into()),
            ("TRIMTAB_LEDGER".into(), self.path("ledger").into()),
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("T".into(), trimtab().into()),
        ];
        variables
            .extend(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE".into(), file)));
        variables
    }
}
