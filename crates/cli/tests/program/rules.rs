//! `site.toml` and `rules.toml`: limits, defaults by program, and their faults.

use crate::util::{MASK, Sandbox, cpus, installed, need, python, skip, two};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const THP: &str = "import ctypes; print(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))";

#[test]
fn auto_cores_bounds_auto_and_nothing_else() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("config/site.toml", "auto-cores = 1\n");
    assert_eq!(cpus(&sandbox.run("").sh(MASK).ends().ok()).len(), 1);
    assert_eq!(cpus(&sandbox.run("-c auto").sh(MASK).ends().ok()).len(), 1);
    assert_eq!(cpus(&sandbox.run("-c 2").sh(MASK).ends().ok()).len(), 2);
    assert_eq!(cpus(&sandbox.run("--no-rules").sh(MASK).ends().ok()).len(), 2);
    let why = sandbox.trimtab("plan --explain --survey none").ends().ok();
    assert!(why.contains("site"), "{why}");
}

#[test]
fn max_cores_bounds_a_number_of_cores() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("config/site.toml", "max-cores = 1\n");
    assert_eq!(cpus(&sandbox.run("").sh(MASK).ends().ok()).len(), 1);
    for options in ["-c 2", "-c 100%", "-c machine"] {
        sandbox.run(options).arg("true").ends().fails(125, &["site's rules give one run at most 1"]);
    }
    sandbox.run("-c 2 --no-rules").arg("true").ends().ok();
}

#[test]
fn max_cores_bounds_named_cores_and_fewer_are_accepted() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("config/site.toml", "max-cores = 1\n");
    let named = sandbox.run(&format!("--cpus {a},{b}")).arg("true").ends();
    named.fails(125, &["site's rules give one run at most 1"]);
    assert_eq!(cpus(&sandbox.run("-c 2 --or-fewer").sh(MASK).ends().ok()).len(), 1);
}

#[test]
fn reserved_cpus_are_for_the_system() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    sandbox.write("config/site.toml", format!("reserved-cpus = \"{a}\"\n"));
    assert_eq!(sandbox.run("").sh(MASK).ends().ok(), b.to_string());
    sandbox.run("-c 2").arg("true").ends().fails(125, &["only 1 core may be used"]);
    let outcome = sandbox.run(&format!("--cpus {a}")).arg("true").ends();
    outcome.fails(125, &[&format!("CPUs {a}")]);
    let why = sandbox.trimtab("plan --explain --survey none").ends().ok();
    assert!(why.contains(&format!("site rules reserve CPUs {a}")), "{why}");
    assert_eq!(cpus(&sandbox.run("--no-rules").sh(MASK).ends().ok()), BTreeSet::from([a, b]));
    // The whole machine cannot be reserved.
    sandbox.write("config/site.toml", format!("reserved-cpus = \"{a},{b}\"\n"));
    assert_eq!(sandbox.run("-c 2").arg("true").ends().code, Some(0));
}

#[test]
fn broken_files_are_named_with_the_place() {
    let sandbox = Sandbox::new();
    for (file, text, words) in [
        ("site.toml", "auto-cores = \"many\"\n", &["site.toml", "line 1, column 14"][..]),
        ("site.toml", "\n\nmax-coers = 3\n", &["line 3, column 1", "max-coers"]),
        ("site.toml", "max-cores = 0\n", &["line 1, column 1", "not allow any run"]),
        ("site.toml", "reserved-cpus = \"1-\"\n", &["line 1, column 17"]),
        ("site.toml", "max-cores = \n", &["line 1, column"]),
        (
            "rules.toml",
            "[[rule]]\nprogram = \"a\"\nthp = \"never\"\n",
            &["rules.toml", "line 3, column 7", "never"],
        ),
        ("rules.toml", "[[rule]]\nthp = \"off\"\n", &["line 1", "program"]),
        ("rules.toml", "[[rule]]\nprogram = \"a[\"\n", &["\"a[\" is not a valid pattern"]),
        (
            "rules.toml",
            "\n[[rule]]\nprogram = \"a\"\nmem = \"tape\"\n",
            &["line 2", "tape", "not a memory policy"],
        ),
        ("rules.toml", "[[rules]]\n", &["line 1", "rules"]),
    ] {
        let path = sandbox.write(&format!("config/{file}"), text);
        sandbox.run("-c 1").arg("true").ends().fails(125, words);
        sandbox.trimtab("plan -c 1 --survey none").ends().fails(2, words);
        sandbox.run("-c 1 --no-rules").arg("true").ends().ok();
        let doctor = sandbox.trimtab("doctor").ends();
        assert!(doctor.code == Some(1) && doctor.out().contains("FAULT site and rules"), "{doctor}");
        std::fs::remove_file(path).unwrap();
    }
    let odd = sandbox.write("config/site.toml", b"max-cores = 1 # \xff\n");
    sandbox.run("-c 1").arg("true").ends().fails(125, &["site.toml"]);
    std::fs::remove_file(&odd).unwrap();
    std::fs::create_dir(&odd).unwrap();
    sandbox.run("-c 1").arg("true").ends().fails(125, &["site.toml"]);
}

#[test]
fn a_rule_applies_by_name_and_by_path_and_flags_go_over_it() {
    let python = need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let file = python.file_name().unwrap().to_string_lossy();
    let ask = |options: &str| sandbox.run(options).python(THP).ends().ok();
    sandbox.write("config/rules.toml", "[[rule]]\nprogram = \"pyth?n*\"\nthp = \"off\"\n");
    assert_eq!(ask("-c 1"), "1", "by name, {file}");
    assert_eq!(ask("-c 1 --thp inherit"), "0", "a flag goes over a rule");
    assert_eq!(ask("-c 1 --no-rules"), "0");
    assert!(sandbox.run("-c 1 -v").python(THP).ends().stderr.contains("the rule for \"pyth?n*\" applies"));
    sandbox.write("config/rules.toml", "[[rule]]\nprogram = \"/*/python*\"\nthp = \"off\"\n");
    assert_eq!(ask("-c 1"), "1", "by path");
    sandbox.write(
        "config/rules.toml",
        "[[rule]]\nprogram = \"ruby\"\nthp = \"off\"\n[[rule]]\nprogram = \"/nowhere/*\"\nthp = \"off\"\n",
    );
    assert_eq!(ask("-c 1"), "0", "for others");
    // A link's own name counts, and a script is recognised by its own name.
    let link = sandbox.path("special");
    std::os::unix::fs::symlink(&python, &link).unwrap();
    sandbox.write("config/rules.toml", "[[rule]]\nprogram = \"special\"\nthp = \"off\"\n");
    assert_eq!(sandbox.run("-c 1").arg(&link).args(["-c", THP]).ends().ok(), "1");
}

#[test]
fn a_rule_sets_layout_and_hardware_threads_and_memory() {
    let sandbox = Sandbox::new();
    let rules = "[[rule]]\nprogram = \"cat\"\nmem = \"interleave\"\nstrategy = \"scatter\"\nsmt = \"all\"\npin = \"mask\"\nwhy = \"because\"\n";
    sandbox.write("config/rules.toml", rules);
    let plan = sandbox.trimtab("plan --survey none --json -c 1 cat").ends().ok();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["plan"]["strategy"], "scatter", "{plan}");
    assert_eq!(plan["request"]["smt"], "all", "{plan}");
    assert_eq!(plan["plan"]["memory"]["policy"], "interleave", "{plan}");
    let maps = sandbox.run("-c 1").args(["cat", "/proc/self/numa_maps"]).ends();
    if maps.code == Some(0) {
        assert!(maps.out().contains(" interleave:"), "{maps}");
    }
    let handed = sandbox.run("-c 1").args(["cat", "/proc/self/environ"]).ends().ok();
    assert!(handed.contains("pin=mask") || !handed.contains("TRIMTAB_PLAN"), "{handed}");
}

/// The site's rules, the user's, and the flag, as on a real machine: with /etc/trimtab, in a
/// private mount namespace.
#[test]
fn the_users_rules_take_precedence_over_the_sites_and_options_over_both() {
    let python = need!(python(), "Python is not installed");
    let unshare = need!(installed("unshare"), "unshare(1) is not installed");
    if !geteuid().is_root() {
        return skip("to have an /etc/trimtab of its own a test needs root");
    }
    let sandbox = Sandbox::new();
    let name = python.file_name().unwrap().to_string_lossy().into_owned();
    let rule = |thp: &str| format!("[[rule]]\nprogram = \"{name}\"\n{thp}\n");
    sandbox.write("etc/trimtab/rules.toml", rule("thp = \"off\""));
    sandbox.write("etc/trimtab/site.toml", "max-cores = 1\n");
    std::fs::create_dir(sandbox.path("work")).unwrap();
    let mount = format!(
        "mount -t overlay overlay -o lowerdir=/etc,upperdir={0}/etc,workdir={0}/work /etc && exec \"$@\"",
        sandbox.path("").display()
    );
    let in_it = |words: &[&str], options: &str| {
        let through = [unshare.to_str().unwrap(), "--mount", "sh", "-c", &mount, "sh"];
        sandbox
            .run(options)
            .args(words)
            .through(through)
            .without("TRIMTAB_CONFIG")
            .env("XDG_CONFIG_HOME", sandbox.path("user"))
            .ends()
    };
    if !Command::new(&unshare)
        .args(["--mount", "sh", "-c", &mount, "sh", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("overlays cannot be mounted here");
    }
    let thp = |options: &str| in_it(&[python.to_str().unwrap(), "-c", THP], options).ok();
    assert_eq!(thp("-c 1"), "1", "the site's rule");
    sandbox.write("user/trimtab/rules.toml", rule("strategy = \"scatter\""));
    assert_eq!(thp("-c 1"), "1", "the user's rule says nothing of it");
    sandbox.write("user/trimtab/rules.toml", rule("thp = \"inherit\""));
    assert_eq!(thp("-c 1"), "0", "the user's rule goes over the site's");
    assert_eq!(thp("-c 1 --thp off"), "1", "the flag goes over both");
    // Limits work the other way: the site's are not loosened.
    sandbox.write("user/trimtab/site.toml", "max-cores = 8\n");
    in_it(&["true"], "-c 2").fails(125, &["at most 1"]);
    assert!(Path::new("/etc").is_dir());
}
