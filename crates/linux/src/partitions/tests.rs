//! Words of the kernel, and folders that only look like groups. The kernel's own groups are tested
//! in `crates/cli/tests/numa/enforce.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn the_state_of_a_partition_is_read_as_the_kernel_writes_it() {
    assert_eq!(seal_of("member"), Seal::Open);
    assert_eq!(seal_of("root"), Seal::Closed(PartitionKind::Root));
    assert_eq!(seal_of("isolated"), Seal::Closed(PartitionKind::Isolated));
    assert_eq!(seal_of(""), Seal::Open);
    let why = "Cpu list in cpuset.cpus not exclusive";
    assert_eq!(seal_of(&format!("root invalid ({why})")), Seal::Broken(why.to_owned()));
    assert_eq!(seal_of("isolated invalid"), Seal::Broken(String::new()));
}

#[test]
fn ancestors_begin_at_the_top() {
    assert_eq!(ancestors("/"), ["/"]);
    assert_eq!(ancestors("/a/b.slice"), ["/", "/a", "/a/b.slice"]);
}

#[test]
fn an_empty_list_is_a_line_end() {
    assert_eq!(listed(&CpuSet::new()), "\n");
    assert_eq!(listed(&"1-2,5".parse::<CpuSet>().unwrap()), "1-2,5");
}

#[test]
fn a_folder_that_is_no_hierarchy_is_refused_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let error = Partitions::open(folder.path()).unwrap_err();
    assert!(matches!(error, PartitionError::NotUnified { .. }));
    assert!(error.to_string().contains("systemd.unified_cgroup_hierarchy=1"), "{error}");
    assert!(Partitions::open(&folder.path().join("absent")).is_err());
}

#[test]
fn one_process_enforces_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let groups = Partitions { root: folder.path().to_owned(), lock: folder.path().join("lock") };
    let held = groups.lock().unwrap();
    assert!(matches!(groups.lock(), Err(PartitionError::InUse)));
    drop(held);
    groups.lock().unwrap();
}

#[test]
fn groups_of_other_users_and_files_and_links_are_no_groups_of_holds() {
    let folder = tempfile::tempdir().unwrap();
    let groups = Partitions { root: folder.path().to_owned(), lock: folder.path().join("lock") };
    fs::create_dir_all(folder.path().join("a/trimtab.1")).unwrap();
    fs::create_dir_all(folder.path().join("a/b/trimtab.2")).unwrap();
    fs::write(folder.path().join("trimtab.3"), "").unwrap();
    std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("trimtab.4")).unwrap();
    std::os::unix::fs::symlink("/", folder.path().join("a/c")).unwrap();
    let group = |home: &str, hold| HoldGroup { home: home.to_owned(), hold };
    let root = rustix::process::geteuid().is_root();
    // Groups of another user than root are not found; this test's folders are its own user's.
    let all = BTreeSet::from([group("/a", 1), group("/a/b", 2)]);
    assert_eq!(groups.find(), if root { all } else { BTreeSet::new() });
    if root {
        std::os::unix::fs::chown(folder.path().join("a/trimtab.1"), Some(1234), None).unwrap();
        assert_eq!(groups.find(), BTreeSet::from([group("/a/b", 2)]));
        assert_eq!(groups.read(&group("/a", 1)), None);
        // Groups of others are not touched by giving back.
        groups.give_back(&group("/a", 1)).unwrap();
        assert!(folder.path().join("a/trimtab.1").exists());
    }
    assert_eq!(groups.read(&group("/a/../a", 1)), None);
    let up = group("/a/..", 7);
    assert!(groups.establish(&up, &CpuSet::new(), &NodeSet::new()).is_err());
    assert!(!folder.path().join("trimtab.7").exists());
}

#[test]
fn a_process_is_the_one_that_began_then() {
    let own = process::stat(Path::new(PROC), Pid::own()).unwrap();
    assert!(opened(own.id, own.start.0).is_some_and(|process| lives(&process)));
    assert!(opened(own.id, own.start.0 + 1).is_none(), "another process with this number");
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let start = process::stat(Path::new(PROC), Pid(child.id())).unwrap().start.0;
    let process = opened(child.id(), start).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!lives(&process) && opened(child.id(), start).is_none());
}

proptest! {
    #[test]
    fn any_text_is_a_state(text in ".{0,40}") {
        let _ = seal_of(&text);
    }
}
