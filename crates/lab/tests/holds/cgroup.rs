//! Holds for the processes of a control group.

use crate::delegate::{hold, waiting};
use crate::ledger::{held, keepers, used};
use crate::util::{Sandbox, eventually, need, two};
use std::fs;
use std::path::{Path, PathBuf};

/// A control group of this test, removed with it.
struct TestGroup(PathBuf);

impl TestGroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let place = words.nth(1)?;
            (words.next() == Some("cgroup2")).then(|| PathBuf::from(place))
        })?;
        let folder = root.join(format!("trimtab-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn all_processes_of_a_group_are_bound_until_it_is_empty() {
    let [_, b] = need!(two(), "two cores are needed");
    let group = need!(TestGroup::new("all"), "no control group of version 2 can be made here");
    let sandbox = Sandbox::new();
    let folder = group.0.display().to_string();
    let options = format!("-c 1 --cpus {b} --cgroup {folder}");
    hold(&sandbox, &options).ends().fails(2, &["has no processes"]);
    let members = [waiting(&sandbox), waiting(&sandbox)];
    members.iter().for_each(|process| group.add(process.pid()));
    let done = hold(&sandbox, &options).ends();
    assert_eq!((done.code, done.out()), (Some(0), b.to_string()), "{done}");
    for process in &members {
        assert_eq!(used(process.pid()).into_iter().collect::<Vec<_>>(), [b]);
    }
    let ps = sandbox.ps();
    assert_eq!(ps["holds"][0]["command"], format!("cgroup {folder}"), "{ps}");
    let pid = ps["holds"][0]["pid"].as_u64().unwrap();
    assert_eq!(sandbox.trimtab(&format!("resize --survey none {pid} -c 2")).ends().code, Some(0));
    assert!(members.iter().all(|process| used(process.pid()).len() == 2));
    let [first, second] = members;
    first.ends();
    assert_eq!(held(&sandbox).len(), 2, "one process is left");
    second.ends();
    eventually("the hold ends", || held(&sandbox).is_empty() && keepers(&folder).is_empty());
}

#[test]
fn a_folder_that_looks_like_a_group_is_none() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("group");
    let refused = |folder: &Path, words: &[&str]| {
        hold(&sandbox, &format!("-c 1 --cgroup {}", folder.display())).ends().fails(2, words);
    };
    refused(&folder, &["not a control group"]);
    sandbox.write("group/cgroup.events", "no such line\n");
    refused(&folder, &["not a control group", "populated"]);
    assert!(held(&sandbox).is_empty());
}
