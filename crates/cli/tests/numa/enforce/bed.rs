//! Bed of the tests of enforcement: sessions of two users, a ledger of root's, a program that
//! computes, and the service with its state.

use crate::shape::{Cpus, Shape, testbed};
use crate::util::{Call, MASK, Running, Sandbox, cpus, eventually, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

pub(super) const ROOT: &str = "/sys/fs/cgroup";
pub(super) const ANN: u32 = 1001;
pub(super) const BOB: u32 = 1002;

/// Control groups of two users, as a session manager makes them; removed when dropped.
pub(super) struct Homes(pub(super) PathBuf);

impl Homes {
    pub(super) fn new() -> Option<Self> {
        testbed()?;
        let controllers = fs::read_to_string(format!("{ROOT}/cgroup.controllers")).unwrap_or_default();
        if !controllers.contains("cpuset") {
            skip("no cpusets of cgroup v2 here");
            return None;
        }
        let this = Self(PathBuf::from(format!("{ROOT}/users.slice")));
        for name in ["ann/session", "bob/session"] {
            fs::create_dir_all(this.0.join(name)).unwrap();
        }
        Some(this)
    }

    pub(super) fn of(&self, user: &str) -> PathBuf {
        self.0.join(user).join("session")
    }

    /// Moves a process into a user's session.
    pub(super) fn take(&self, user: &str, pid: u32) {
        fs::write(self.of(user).join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Ends the service, and waits until nothing is left of enforcement.
    pub(super) fn end(&self, service: Running<'_>, shape: &Shape) {
        service.signal(Signal::TERM);
        service.ends();
        until_given_back(self, &[], &shape.cpus());
    }

    /// Returns the folders with names of holds.
    pub(super) fn groups(&self) -> Vec<PathBuf> {
        ["ann", "bob"].iter().flat_map(|user| holds_in(&self.of(user))).collect()
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        for name in ["ann/session", "ann", "bob/session", "bob", ""] {
            // A group disappears some time after its last process.
            for _ in 0..100 {
                if fs::remove_dir(self.0.join(name)).is_ok() || !self.0.join(name).exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// Returns a sandbox whose ledger root made, as the package's folder is root's.
pub(super) fn with_roots_ledger() -> Sandbox {
    let sandbox = Sandbox::alone();
    sandbox.run("-c 1").arg("true").ends().ok();
    sandbox
}

/// Returns sessions of two users, the machine's shape, and a sandbox with a ledger of root's;
/// `None` where no holds can be enforced, of which the reason was printed.
pub(super) fn bed() -> Option<(Homes, Shape, Sandbox)> {
    Some((Homes::new()?, Shape::here()?, with_roots_ledger()))
}

/// Returns a Python; if there is none, prints so.
pub(super) fn python() -> Option<PathBuf> {
    crate::util::python().or_else(|| {
        skip("no Python");
        None
    })
}

pub(super) fn holds_in(folder: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("trimtab.");
    below.filter(named).collect()
}

/// A program of another user that computes all the time and was not started by trimtab.
pub(super) struct Hog(pub(super) Child);

impl Hog {
    pub(super) fn new() -> Self {
        let script = "while :; do :; done";
        Self(Command::new("sh").args(["-c", script]).uid(BOB).gid(BOB).spawn().unwrap())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns where a process may run.
pub(super) fn allowed(pid: u32) -> Cpus {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cpus(line.unwrap())
}

pub(super) fn group_of(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

pub(super) fn word(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_owned()
}

/// Starts a run of a user in the user's session, which prints its mask and waits.
pub(super) fn run<'s>(sandbox: &'s Sandbox, homes: &Homes, uid: u32, options: &str) -> (Running<'s>, Cpus) {
    let mut running = sandbox.run(options).sh(&format!("{MASK}; exec cat")).user(uid).begins();
    let mask = cpus(&running.line());
    homes.take(if uid == ANN { "ann" } else { "bob" }, running.pid());
    (running, mask)
}

pub(super) fn call<'s>(sandbox: &'s Sandbox, words: &str) -> Call<'s> {
    sandbox.trimtab(words).arg("--socket").arg(sandbox.path("socket"))
}

/// Starts the service, and waits until it answers.
pub(super) fn serve<'s>(sandbox: &'s Sandbox, options: &str) -> Running<'s> {
    let service = call(sandbox, &format!("serve -v {options}")).begins();
    eventually("the service answers", || UnixStream::connect(sandbox.path("socket")).is_ok());
    service
}

/// Returns the service's state of each hold, by its first CPU.
pub(super) fn state(sandbox: &Sandbox, mask: &Cpus) -> Value {
    let status: Value = serde_json::from_str(&call(sandbox, "status --json").ends().ok()).unwrap();
    let holds = status["enforcement"]["holds"].as_array().cloned().unwrap_or_default();
    let its = |hold: &Value| cpus(hold["cpus"].as_str().unwrap()).is_superset(mask);
    holds.into_iter().find(its).unwrap_or_default()
}

/// Waits until the hold with these CPUs is enforced.
pub(super) fn until_enforced(sandbox: &Sandbox, mask: &Cpus) {
    eventually("it is enforced", || state(sandbox, mask)["enforced"] == true);
}

/// Returns the guardian of holds, found by its name in `ps`.
pub(super) fn guardian() -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"trimtab: guardian of holds\0"))
    })
}

/// Waits until nothing is left of enforcement.
pub(super) fn until_given_back(homes: &Homes, strangers: &[u32], all: &Cpus) {
    eventually("no group of a hold is left", || homes.groups().is_empty());
    eventually("strangers may run everywhere", || strangers.iter().all(|pid| allowed(*pid) == *all));
    for path in [homes.of("ann"), homes.of("bob"), homes.0.join("ann"), homes.0.join("bob"), homes.0.clone()]
    {
        eventually("the controller is off", || !word(&path, "cgroup.subtree_control").contains("cpuset"));
        assert_eq!(word(&path, "cpuset.cpus.exclusive"), "", "{}", path.display());
        assert_eq!(word(&path, "cgroup.type"), "domain", "{}", path.display());
    }
}
