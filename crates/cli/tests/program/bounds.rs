//! Limits of a run from outside: cpusets and quotas.

use crate::util::{MASK, Sandbox, need, two};
use rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// A new control group, removed when dropped.
pub(crate) struct Group(pub(crate) PathBuf);

impl Group {
    /// Makes a group under the root of this controller, with these settings; `None` if that is
    /// impossible.
    pub(crate) fn new(controller: &str, settings: &[(&str, String)]) -> Option<Self> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("trimtab-test-{}-{number}", std::process::id());
        let old = Path::new("/sys/fs/cgroup").join(controller);
        let root = if old.is_dir() { old } else { "/sys/fs/cgroup".into() };
        if !geteuid().is_root() {
            return None;
        }
        let group = Self(root.join(name));
        fs::create_dir(&group.0).ok()?;
        let set = settings.iter().all(|(file, value)| fs::write(group.0.join(file), value).is_ok());
        set.then_some(group)
    }

    /// Makes a group with a quota of this share of a CPU, in percent; `None` if that is impossible.
    pub(crate) fn with_quota(percent: u32) -> Option<Self> {
        let quota = percent * 1_000;
        let old = [("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", quota.to_string())];
        let new = [("cpu.max", format!("{quota} 100000"))];
        Self::new("cpu", if Path::new("/sys/fs/cgroup/cpu").is_dir() { &old[..] } else { &new })
    }

    /// Returns a shell that joins the group and execs the words that follow.
    pub(crate) fn join(&self) -> [String; 4] {
        let procs = self.0.join("cgroup.procs");
        ["sh", "-c", &format!("echo $$ > {} && exec \"$@\"", procs.display()), "sh"].map(str::to_owned)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may still be ending.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            crate::util::nap();
        }
    }
}

#[test]
fn a_cpuset_of_one_cpu() {
    let [a, b] = need!(two(), "two cores are needed");
    let settings = [("cpuset.cpus", b.to_string()), ("cpuset.mems", "0".to_owned())];
    let group = need!(Group::new("cpuset", &settings), "no cpuset can be made here");
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("").sh(MASK).through(group.join()).ends().ok(), b.to_string());
    let refused = sandbox.run("-c 2").arg("true").through(group.join()).ends();
    refused.fails(125, &["2 cores asked for", "only 1 core may be used here"]);
    let refused = sandbox.run(&format!("--cpus {a}")).arg("true").through(group.join()).ends();
    refused.fails(125, &[&format!("CPUs {a} may not be used")]);
    let refused = sandbox.run("--mem bind:99").arg("true").through(group.join()).ends();
    refused.fails(125, &["memory nodes 99"]);
    let doctor = sandbox.trimtab("doctor").through(group.join()).ends().out();
    assert!(doctor.contains("limits: "), "{doctor}");
}

#[test]
fn a_quota_bounds_the_thread_counts_and_not_the_cores() {
    need!(two(), "two cores are needed");
    let group = need!(Group::with_quota(100), "no quota can be set here");
    let sandbox = Sandbox::new();
    let said =
        sandbox.run("-c 2").sh(&format!("{MASK}; echo $OMP_NUM_THREADS")).through(group.join()).ends().ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(crate::util::cpus(lines[0]).len(), 2, "{said}");
    assert_eq!(lines[1], "1", "a quota of one CPU: {said}");
    // Libraries that size themselves by the C library's count, and runtimes that count the mask and
    // spin.
    if let Some(program) = crate::util::c("seen.c") {
        let said = sandbox.run("-c 2").arg(&program).through(group.join()).ends().ok();
        assert!(said.contains("online 1\nnprocs 1\n"), "{said}");
    }
    // The runtime is told the quota's count, so that its threads do not exceed it.
    let said = sandbox.run("-c 2 -v").sh("echo $GOMP_SPINCOUNT").through(group.join()).ends();
    assert_eq!(said.out(), "", "{said}");
    // A count of the user's that fits the CPUs stays, and exceeds the quota.
    let call = sandbox.run("-c 2 -v").sh("echo $GOMP_SPINCOUNT $OMP_NUM_THREADS");
    let said = call.env("OMP_NUM_THREADS", "2").through(group.join()).ends();
    assert_eq!(said.out(), "100 2", "{said}");
    assert!(
        said.stderr.contains("spin for a moment and then sleep: 2 threads on a quota of 1.00 CPUs"),
        "{said}"
    );
    let doctor = sandbox.trimtab("doctor").through(group.join()).ends();
    assert!(doctor.code == Some(1) && doctor.out().contains("FAULT quota"), "{doctor}");
    let why = sandbox.trimtab("plan --survey none -c 2 --explain").through(group.join()).ends().ok();
    assert!(why.contains("cgroup grants 1.00 CPUs"), "{why}");
}
