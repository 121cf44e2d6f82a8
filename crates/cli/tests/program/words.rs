//! Help, version, man page, completions.

use crate::util::{Sandbox, installed, need};
use std::process::Command;

const COMMANDS: [&str; 19] = [
    "run",
    "attach",
    "detach",
    "replay",
    "plan",
    "topo",
    "ps",
    "top",
    "report",
    "doctor",
    "counters",
    "check",
    "sim",
    "serve",
    "tag",
    "clear",
    "status",
    "guest",
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
fn completions_are_made_and_bash_accepts_its_own() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = sandbox.trimtab(&format!("generate {shell}")).ends().ok();
        for word in ["trimtab", "doctor", "or-fewer", "survey"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        let file = sandbox.write(&format!("trimtab.{shell}"), &text);
        match installed(shell) {
            Some(program) => {
                let flag = if shell == "fish" { "--no-execute" } else { "-n" };
                let checked = Command::new(program).arg(flag).arg(&file).output().unwrap();
                assert!(checked.status.success() && checked.stderr.is_empty(), "{shell}: {checked:?}");
            }
            None => crate::util::skip(&format!("{shell} is not installed: its completion is not checked")),
        }
    }
    let bash = need!(installed("bash"), "bash is not installed");
    // The words up to the cursor, as bash breaks them: at "=" too.
    for (words, wanted) in [
        ("run --or", "--or-fewer"),
        ("run --balance = e", "exchange"),
        ("run --balance =", "auto speed exchange nudge brm brm-paper serial pinned float"),
        // The value needs the sign: after a space comes the program.
        ("run --balance e", ""),
        ("run --wait-policy s", "spin sleep"),
        ("run --wait-policy = y", "yield"),
        ("attach --balance e", "exchange"),
        ("attach --balance = e", "exchange"),
        ("replay --policy nu", "nudge"),
        ("sim --value b", "balance busy"),
        ("sim sw", "swarm"),
    ] {
        let words: Vec<&str> = ["trimtab"].into_iter().chain(words.split(' ')).collect();
        let (at, last) = (words.len() - 1, words.len() - 2);
        let script = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={at}; _trimtab trimtab '{}' '{}'; echo \"${{COMPREPLY[*]}}\"",
            sandbox.path("trimtab.bash").display(),
            words.join(" "),
            if words[at] == "=" { "" } else { words[at] },
            words[last],
        );
        let completed = Command::new(&bash).args(["--norc", "-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), wanted, "{words:?}: {completed:?}");
    }
}

#[test]
fn zsh_and_fish_know_the_words_too() {
    let sandbox = Sandbox::new();
    let zsh = sandbox.trimtab("generate zsh").ends().ok();
    let line = |start: &str| zsh.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(
        line("'--balance=-[")
            .contains("]::POLICY:(auto speed exchange nudge brm brm-paper serial pinned float)'"),
        "{zsh}"
    );
    assert!(line("'--wait-policy=[").contains("]:HOW:(auto spin yield sleep keep)'"), "{zsh}");
    let file = sandbox.write("trimtab.fish", sandbox.trimtab("generate fish").ends().ok());
    let fish = need!(installed("fish"), "fish is not installed");
    for (typed, wanted) in [
        ("run --balance=s", "--balance=serial --balance=speed"),
        ("run --balance s", ""),
        ("run --wait-policy s", "sleep spin"),
        ("attach --balance n", "nudge"),
    ] {
        let script = format!("source {}; complete -C 'trimtab {typed}'", file.display());
        let done = Command::new(&fish)
            .args(["--no-config", "-c", &script])
            .env("HOME", sandbox.path("home"))
            .current_dir(sandbox.path("shared"))
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&done.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words, wanted, "{typed}: {done:?}");
    }
}

#[test]
fn help_and_manual_name_the_exit_statuses_and_what_intervals_mean() {
    let sandbox = Sandbox::new();
    let page = sandbox.trimtab("generate man").ends().ok();
    for command in
        ["run", "attach", "detach", "replay", "doctor", "check", "top", "report", "sim", "tune-team"]
    {
        let help = sandbox.trimtab(&format!("{command} --help")).ends().ok();
        let said = help.to_lowercase();
        assert!(said.contains("exit status"), "{help}");
    }
    let synopsis = page.split(".SH SYNOPSIS").nth(1).unwrap().split(".SH").next().unwrap();
    for line in [
        "\\fBtrimtab run\\fR [OPTIONS] \\fICOMMAND\\fR...",
        "\\fBtrimtab bench balance\\fR [OPTIONS]",
        "\\fBtrimtab sim\\fR [OPTIONS] \\fISCENARIO.toml\\fR...",
        "\\fBtrimtab sim machines\\fR [NAME]",
    ] {
        assert!(synopsis.contains(line), "{synopsis}");
    }
    assert!(!page.contains("subcommands>") && !page.contains("EXTRA"), "{synopsis}");
    for command in ["run", "attach", "replay"] {
        let help = sandbox.trimtab(&format!("{command} --help")).ends().ok();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("auto looks every 50 ms while it makes up its mind"), "{help}");
    }
}

#[test]
fn the_man_page_renders() {
    let sandbox = Sandbox::new();
    let page = sandbox.trimtab("generate man").ends().ok();
    assert!(page.starts_with(".ie") || page.starts_with(".TH"), "{page}");
    for command in COMMANDS {
        assert!(page.contains(&format!("TRIMTAB {}", command.to_uppercase())), "{command}");
    }
    let file = sandbox.write("trimtab.1", &page);
    let man = need!(installed("man"), "man is not installed");
    let rendered = Command::new(man)
        .arg("-l")
        .arg(&file)
        .env("MANWIDTH", "80")
        .env("LC_ALL", "C.UTF-8")
        .env("MANPAGER", "cat")
        .output();
    let rendered = rendered.unwrap();
    if String::from_utf8_lossy(&rendered.stderr).contains("minimized") || rendered.stdout.is_empty() {
        return crate::util::skip("this system's man renders no pages");
    }
    let text = String::from_utf8_lossy(&rendered.stdout).into_owned();
    assert!(
        rendered.status.success() && text.contains("--or-fewer") && text.contains("EXIT")
            || text.contains("Exit status"),
        "{text}"
    );
    let warned = String::from_utf8_lossy(&rendered.stderr).into_owned();
    assert!(!warned.contains("warning"), "{warned}");
}
