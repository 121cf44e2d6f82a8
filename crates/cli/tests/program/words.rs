//! Tests of help and version.

use crate::util::Sandbox;

const COMMANDS: [&str; 25] = [
    "run",
    "hold",
    "resize",
    "release",
    "attach",
    "detach",
    "replay",
    "plan",
    "topo",
    "ps",
    "nproc",
    "top",
    "report",
    "doctor",
    "counters",
    "check",
    "sim",
    "serve",
    "tag",
    "untag",
    "status",
    "reload",
    "guest-agent",
    "hook",
    "tune-team",
];

#[test]
fn every_command_has_help() {
    let sandbox = Sandbox::new();
    let top = sandbox.trimtab("--help").ends().ok();
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let (long, short) =
            (sandbox.trimtab(&format!("{command} --help")), sandbox.trimtab(&format!("{command} -h")));
        let (long, short) = (long.ends().ok(), short.ends().ok());
        assert!(long.contains(&format!("Usage: trimtab {command}")) && short.contains("Usage: "), "{long}");
        assert!(short.lines().count() <= long.lines().count());
        assert!(long.lines().all(|line| line.chars().count() <= 120), "{long}");
    }
    assert_eq!(sandbox.trimtab("-h").ends().code, Some(0));
}

#[test]
fn the_help_of_run_names_the_statuses_and_every_option() {
    let sandbox = Sandbox::new();
    let help = sandbox.trimtab("run --help").ends().ok();
    for word in [
        "124",
        "125",
        "126",
        "127",
        "--cores",
        "--cpus",
        "--strategy",
        "--smt",
        "--kind",
        "--mem",
        "--thp",
        "--share",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for word in [
        "--or-fewer",
        "--wait",
        "--survey",
        "--no-rules",
        "--strict",
        "--pin",
        "--env",
        "--verbose",
        "--quiet",
        "--balance",
        "--interval",
        "--seed",
        "--speed-metric",
        "--across-nodes",
        "--free",
        "--trace",
        "--report",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.trimtab("--version").ends().ok(), concat!("trimtab ", env!("CARGO_PKG_VERSION")));
    assert_eq!(sandbox.trimtab("-V").ends().ok(), concat!("trimtab ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_is_help_and_a_failure() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.trimtab("").ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(outcome.stderr.contains("Usage: trimtab") && outcome.stdout.is_empty(), "{outcome}");
}

#[test]
fn help_names_the_exit_statuses_and_what_intervals_mean() {
    let sandbox = Sandbox::new();
    for command in [
        "run",
        "hold",
        "attach",
        "detach",
        "replay",
        "doctor",
        "check",
        "top",
        "report",
        "sim",
        "hook",
        "tune-team",
    ] {
        let help = sandbox.trimtab(&format!("{command} --help")).ends().ok();
        let said = help.to_lowercase();
        assert!(said.contains("exit status"), "{help}");
    }
    for command in ["run", "attach", "replay"] {
        let help = sandbox.trimtab(&format!("{command} --help")).ends().ok();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("auto samples every 50 ms until it has decided"), "{help}");
    }
}
