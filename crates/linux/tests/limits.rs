//! Limits of a program: on captured trees of machines and containers, and on this machine.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "what this machine cannot show is said aloud")]

use proptest::prelude::*;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::path::Path;
use tempfile::TempDir;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::{CpuSet, NodeSet};
use trimtab_linux::limits::{Hierarchy, Limiter, Limits, Quota, parent_mask};
use trimtab_linux::process::{Pid, Tid};
use trimtab_linux::sys::affinity;

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const ROOT: &str = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn status(cpus: &str, mems: &str) -> String {
    format!(
        "Name:\ta b\nUid:\t7\t7\t7\t7\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n"
    )
}

fn limits(files: &[(&str, &str)]) -> Limits {
    Limits::read(tree(files).path(), None).unwrap()
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn a_machine_without_limits_allows_everything() {
    let seen = limits(&[
        ("proc/self/status", &status("0-15", "0-1")),
        ("proc/self/cgroup", "0::/user.slice/user-7.slice/session-3.scope\n"),
        ("proc/self/mountinfo", &format!("{ROOT}{V2}")),
        ("sys/devices/system/cpu/online", "0-15\n"),
        ("sys/devices/system/cpu/present", "0-15\n"),
        ("sys/devices/system/cpu/isolated", "\n"),
        ("sys/devices/system/cpu/nohz_full", "  (null)\n"),
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/fs/cgroup/user.slice/user-7.slice/session-3.scope/cpu.max", "max 100000\n"),
    ]);
    assert_eq!(seen.allowed, cpus("0-15"));
    assert_eq!(seen.mems, Some("0-1".parse().unwrap()));
    assert_eq!((seen.quota, seen.limiters), (None, vec![]));
    assert_eq!((seen.isolated, seen.nohz_full), (Some(CpuSet::new()), None));
}

#[test]
fn the_cpuset_of_version_2_is_the_nearest_that_has_files_and_the_tightest_quota_wins() {
    let seen = limits(&[
        ("proc/self/status", &status("4-7", "1")),
        ("proc/self/cgroup", "0::/batch/job 9/step\n"),
        ("proc/self/mountinfo", &format!("{ROOT}{V2}")),
        ("sys/devices/system/cpu/online", "0-15\n"),
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "0-15\n"),
        ("sys/fs/cgroup/batch/cpu.max", "125000 50000\n"),
        ("sys/fs/cgroup/batch/cpuset.cpus.effective", "0-11\n"),
        ("sys/fs/cgroup/batch/job 9/cpu.max", "600000 100000\n"),
        ("sys/fs/cgroup/batch/job 9/cpuset.cpus.effective", "4-7\n"),
        ("sys/fs/cgroup/batch/job 9/cpuset.mems.effective", "1\n"),
        ("sys/fs/cgroup/batch/job 9/step/cpu.max", "max 100000\n"),
    ]);
    assert_eq!(seen.allowed, cpus("4-7"));
    let group = "/batch/job 9".to_owned();
    assert_eq!(
        seen.quota,
        Some(Quota { milli_cpus: 2500, group: "/batch".into(), hierarchy: Hierarchy::V2 })
    );
    assert_eq!(
        seen.limiters,
        [
            Limiter::Cpuset { group: group.clone(), hierarchy: Hierarchy::V2, cpus: cpus("0-3,8-15") },
            Limiter::CpusetMems { group: Some(group), nodes: "0".parse().unwrap() },
        ]
    );
    assert_eq!(
        seen.limiters[0].to_string(),
        "the cpuset of cgroup v2 group /batch/job 9 leaves out CPUs 0-3,8-15"
    );
}

#[test]
fn version_1_has_a_hierarchy_for_each_controller() {
    let mountinfo = "\
        31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        34 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let seen = limits(&[
        ("proc/self/status", &status("2-3", "0")),
        ("proc/self/cgroup", "4:cpuset:/slurm/job:7\n3:cpu,cpuacct:/slurm/job\n1:name=systemd:/x\n0::/x\n"),
        ("proc/self/mountinfo", mountinfo),
        ("sys/devices/system/cpu/online", "0-7\n"),
        ("sys/fs/cgroup/cpuset/slurm/job:7/cpuset.effective_cpus", "\n"),
        ("sys/fs/cgroup/cpuset/slurm/job:7/cpuset.cpus", "2-5\n"),
        ("sys/fs/cgroup/cpu,cpuacct/slurm/job/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/slurm/job/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "150001\n"),
        ("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n"),
    ]);
    assert_eq!(
        seen.quota,
        Some(Quota { milli_cpus: 1500, group: "/slurm".into(), hierarchy: Hierarchy::V1 })
    );
    assert_eq!(seen.allowed, cpus("2-3"));
    assert_eq!(
        seen.limiters,
        [
            Limiter::Cpuset { group: "/slurm/job:7".into(), hierarchy: Hierarchy::V1, cpus: cpus("0-1,6-7") },
            Limiter::Mask { cpus: cpus("4-5") },
        ]
    );
}

/// A container's own group is at the mount point of the hierarchy, whatever its path is inside or
/// outside.
#[test]
fn containers_see_their_own_group_at_the_mount_point() {
    for (why, path, mounted) in [
        ("with a namespace of its own", "/", "/"),
        ("without, mounted from its group on", "/docker/4f17", "/docker/4f17"),
        ("entered from outside its namespace", "/../../host.slice", "/"),
        ("with a mount that begins above its namespace", "/", "/../.."),
        ("with a path only the host can follow", "/kubepods/pod1/4f17", "/"),
    ] {
        let seen = limits(&[
            ("proc/self/status", &status("8-11", "0")),
            ("proc/self/cgroup", &format!("0::{path}\n")),
            ("proc/self/mountinfo", &V2.replace("0:26 /", &format!("0:26 {mounted}"))),
            ("sys/devices/system/cpu/online", "0-63\n"),
            ("sys/fs/cgroup/cpu.max", "350000 100000\n"),
            ("sys/host.slice/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "8-11\n"),
        ]);
        assert_eq!(seen.quota.unwrap().milli_cpus, 3500, "{why}");
        let [Limiter::Cpuset { cpus: taken, .. }] = &seen.limiters[..] else {
            panic!("{why}: {:?}", seen.limiters)
        };
        assert_eq!(*taken, cpus("0-7,12-63"), "{why}");
    }
}

#[test]
fn the_mount_closest_to_the_group_is_used_and_its_name_may_hold_blanks() {
    let mountinfo = "\
        40 1 0:26 / /all\\040groups rw - cgroup2 cgroup2 rw\n\
        41 1 0:26 /a /just/a rw - cgroup2 cgroup2 rw\n\
        42 1 0:26 /b /just/b rw - cgroup2 cgroup2 rw\n";
    let files = [
        ("proc/self/status", &*status("0", "0")),
        ("proc/self/mountinfo", mountinfo),
        ("all groups/c/cpu.max", "300 100"),
        ("just/a/c/cpu.max", "200 100"),
    ];
    let quota = |group: &str| {
        let files = [&files[..], &[("proc/self/cgroup", group)]].concat();
        limits(&files).quota.map(|quota| (quota.milli_cpus, quota.group))
    };
    assert_eq!(quota("0::/a/c"), Some((2000, "/a/c".into())));
    assert_eq!(quota("0::/c"), Some((3000, "/c".into())));
}

#[test]
fn isolated_and_offline_cpus_are_distinguished_from_the_mask() {
    let seen = limits(&[
        ("proc/self/status", &status("0-3,7", "0")),
        ("sys/devices/system/cpu/online", "0-6,8-11\n"),
        ("sys/devices/system/cpu/present", "0-11\n"),
        ("sys/devices/system/cpu/isolated", "3,8-9\n"),
        ("sys/devices/system/cpu/nohz_full", "8-9\n"),
    ]);
    assert_eq!(seen.allowed, cpus("0-3"), "an isolated CPU in the mask was put there on purpose");
    assert_eq!(
        seen.limiters,
        [
            Limiter::Offline { cpus: cpus("7") },
            Limiter::Isolated { cpus: cpus("8-9") },
            Limiter::Mask { cpus: cpus("4-6,10-11") },
        ]
    );
    assert_eq!((seen.isolated, seen.nohz_full), (Some(cpus("3,8-9")), Some(cpus("8-9"))));
    let words: Vec<String> = seen.limiters.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        ["offline: CPUs 7", "isolated at boot: CPUs 8-9", "the inherited CPU mask leaves out CPUs 4-6,10-11"]
    );
}

#[test]
fn the_mask_of_the_system_call_takes_precedence_over_the_status() {
    let root = tree(&[
        ("proc/self/status", &status("0-4095", "0-7")),
        ("sys/devices/system/cpu/online", "0-4095\n"),
    ]);
    let seen = Limits::read(root.path(), Some(&cpus("1000-1999"))).unwrap();
    assert_eq!(seen.allowed, cpus("1000-1999"));
    assert_eq!(seen.limiters, [Limiter::Mask { cpus: cpus("0-999,2000-4095") }]);
    let seen = Limits::read(root.path(), Some(&cpus("0-8191"))).unwrap();
    assert_eq!(
        (seen.allowed, seen.limiters),
        (cpus("0-4095"), vec![]),
        "a mask may name CPUs that are offline"
    );
}

#[test]
fn missing_files_are_missing_limits_and_the_mask_alone_is_enough() {
    let seen = limits(&[("proc/self/status", "Uid:\t0\nCpus_allowed_list:\t0,2\n")]);
    assert_eq!(seen.allowed, cpus("0,2"));
    assert_eq!(
        (seen.online, seen.mems, seen.quota, seen.isolated, seen.nohz_full),
        (None, None, None, None, None)
    );
    assert!(seen.limiters.is_empty());

    let empty = tempfile::tempdir().unwrap();
    let error = Limits::read(empty.path(), None).unwrap_err();
    assert!(error.is_gone() && error.to_string().contains("proc/self/status"), "{error}");
    let bad = tree(&[("proc/self/status", "Uid:\t0\nCpus_allowed_list:\t0-\n")]);
    let error = Limits::read(bad.path(), None).unwrap_err();
    assert!(error.to_string().ends_with("proc/self/status: no Cpus_allowed_list"), "{error}");
}

#[test]
fn quotas_are_read_strictly_and_never_round_to_nothing() {
    for (text, milli_cpus) in [
        ("50000 100000", Some(500)),
        ("1000 1000000", Some(1)),
        ("1 1000000", Some(1)),
        ("18446744073709551615 1", Some(u32::MAX)),
        ("max 100000", None),
        ("100000 0", None),
        ("100000", None),
        ("", None),
        ("-5 100000", None),
        ("1e5 100000", None),
    ] {
        let seen = limits(&[
            ("proc/self/status", &status("0", "0")),
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/cpu.max", text),
        ]);
        assert_eq!(seen.quota.map(|quota| quota.milli_cpus), milli_cpus, "{text:?}");
    }
}

#[test]
fn the_parents_mask_is_its_own() {
    let stat =
        |pid, parent| format!("{pid} (a) b) S {parent} 1 1 0 -1 4194560 0 0 0 0 1 2 0 0 20 0 1 0 4242 0 0\n");
    let root = tree(&[
        ("90/stat", &stat(90, 80)),
        ("80/stat", &stat(80, 0)),
        ("80/status", &status("0-31", "0")),
        ("70/stat", &stat(70, 60)),
        ("50/stat", "50 (x) S"),
    ]);
    assert_eq!(parent_mask(root.path(), Pid(90)).unwrap(), Some(cpus("0-31")));
    assert_eq!(parent_mask(root.path(), Pid(80)).unwrap(), None);
    assert!(parent_mask(root.path(), Pid(70)).unwrap_err().is_gone());
    assert!(parent_mask(root.path(), Pid(50)).unwrap_err().to_string().ends_with("50/stat: no parent"));
}

#[test]
fn this_machine_is_read() {
    let mask = affinity::get(None).unwrap();
    let seen = Limits::read(Path::new("/"), Some(&mask)).unwrap();
    assert!(!seen.allowed.is_empty() && seen.allowed.is_subset(&mask), "{seen:?}");
    assert!(seen.online.is_none_or(|online| seen.allowed.is_subset(&online)));
    assert!(seen.mems.is_none_or(|mems: NodeSet| !mems.is_empty()));
    parent_mask(Path::new("/proc"), Pid::own()).unwrap();
}

#[test]
fn a_mask_set_is_the_mask_read() {
    let one: CpuSet = affinity::get(None).unwrap().last().into_iter().collect();
    let set = one.clone();
    let (mask, seen) = std::thread::spawn(move || {
        affinity::set(None, &set).unwrap();
        let mask = affinity::get(None).unwrap();
        let seen = Limits::read(Path::new("/"), Some(&mask)).unwrap();
        (mask, seen)
    })
    .join()
    .unwrap();
    assert_eq!((mask, seen.allowed), (one.clone(), one));
}

#[test]
fn masks_may_be_wider_than_the_kernels_and_wider_than_the_first_buffer() {
    let all = affinity::get(None).unwrap();
    std::thread::spawn(move || {
        // CPUs that the kernel does not have are dropped as long as one remains, and refused alone.
        let wide: CpuSet = all.iter().chain([OsCpu(9000)]).collect();
        affinity::set(None, &wide).unwrap();
        assert_eq!(affinity::get(None).unwrap(), all);
        assert_eq!(affinity::set(None, &cpus("9000")), Err(Errno::INVAL));
        assert_eq!(affinity::set(None, &CpuSet::new()), Err(Errno::INVAL));

        // A kernel for more CPUs refuses the first buffer of 128 bytes, and the second.
        for bytes in [128, 256] {
            let small = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, bytes).unwrap();
            let rules = [(libc::SYS_sched_getaffinity, vec![SeccompRule::new(vec![small]).unwrap()])].into();
            let answer = SeccompAction::Errno(Errno::INVAL.raw_os_error().unsigned_abs());
            let here = std::env::consts::ARCH.try_into().unwrap();
            let filter: BpfProgram =
                SeccompFilter::new(rules, SeccompAction::Allow, answer, here).unwrap().try_into().unwrap();
            seccompiler::apply_filter(&filter).unwrap();
        }
        assert_eq!(affinity::get(None).unwrap(), all);
    })
    .join()
    .unwrap();
}

#[test]
fn tasks_that_cannot_be_are_not_taken_for_the_caller() {
    for tid in [Tid(0), Tid(u32::MAX), Tid(i32::MAX.unsigned_abs())] {
        assert_eq!(affinity::get(Some(tid)), Err(Errno::SRCH), "{tid}");
        assert_eq!(affinity::set(Some(tid), &cpus("0")), Err(Errno::SRCH), "{tid}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_files_are_read_without_harm(
        status in prop::collection::vec(any::<u8>(), 0..80),
        list in "[0-9,-]{0,12}",
        cgroup in prop_oneof!["[0-9]?:(|cpu|cpuset|cpu,cpuset):/[a-z./]{0,8}\n", ".{0,40}"],
        mountinfo in prop_oneof!["1 2 3 /[a-z./]{0,6} /(sys)?[a-z\\\\0-9]{0,6} - cgroup2? x rw,cpu", ".{0,60}"],
        quota in "(max|[0-9]{0,22}) ?[0-9]{0,6}",
        good in any::<bool>(),
    ) {
        let known = format!("Uid: 1\nCpus_allowed_list: {list}\nMems_allowed_list: {list}\n");
        let root = tree(&[
            ("proc/self/cgroup", &cgroup), ("proc/self/mountinfo", &mountinfo), ("sys/cpu.max", &quota),
            ("sys/devices/system/cpu/online", &list), ("sys/devices/system/node/online", "0-3"),
        ]);
        std::fs::write(root.path().join("proc/self/status"), if good { known.as_bytes() } else { &status }).unwrap();
        if let Ok(seen) = Limits::read(root.path(), None) {
            prop_assert!(seen.online.is_none_or(|online| seen.allowed.is_subset(&online)));
        }
    }
}
