//! The documents that are made from the definition of the options: man pages and completions.

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
fn completions_are_made_and_bash_accepts_its_own() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = sandbox.lab(&format!("generate {shell}")).ends().ok();
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
    let zsh = sandbox.lab("generate zsh").ends().ok();
    let line = |start: &str| zsh.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(
        line("'--balance=-[")
            .contains("]::POLICY:(auto speed exchange nudge brm brm-paper serial pinned float)'"),
        "{zsh}"
    );
    assert!(line("'--wait-policy=[").contains("]:HOW:(auto spin yield sleep keep)'"), "{zsh}");
    let file = sandbox.write("trimtab.fish", sandbox.lab("generate fish").ends().ok());
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
fn the_manuals_synopsis_has_a_line_for_each_command() {
    let sandbox = Sandbox::new();
    let page = sandbox.lab("generate man").ends().ok();
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
}

#[test]
fn the_man_page_renders() {
    let sandbox = Sandbox::new();
    let page = sandbox.lab("generate man").ends().ok();
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
