//! Generated documents: man pages and completions, from the definition of the options.

use crate::util::{Sandbox, installed, need};
use std::process::Command;

const COMMANDS: [&str; 24] = [
    "run",
    "attach",
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
    "guest-agent",
    "tune-team",
    "tune",
    "profile",
    "advise",
    "bench",
    "detach",
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
    // The words up to the cursor, as bash breaks them: also at "=".
    for (words, wanted) in [
        ("run --or", "--or-fewer"),
        ("run --balance = e", "exchange"),
        ("run --balance =", "auto speed exchange nudge brm brm-paper serial pinned float"),
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
    let offered = |words: &str| {
        let all: Vec<&str> = ["trimtab"].into_iter().chain(words.split(' ')).collect();
        let (at, last) = (all.len() - 1, all.len() - 2);
        let script = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={at}; _trimtab trimtab '{}' '{}'; echo \"${{COMPREPLY[*]}}\"",
            sandbox.path("trimtab.bash").display(),
            words_of_bash(&all),
            all[at],
            all[last],
        );
        let completed = Command::new(&bash).args(["--norc", "-c", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&completed.stdout).into_owned();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // The value of --balance needs the equals sign: the program follows after a space.
    let programs = offered("run --balance ec");
    assert!(
        programs.contains(&"echo".to_owned()) && !programs.contains(&"exchange".to_owned()),
        "{programs:?}"
    );
    assert!(offered("run -c 2 ec").contains(&"echo".to_owned()));
    assert!(offered("doctor ec").contains(&"echo".to_owned()));
    let own = std::process::id().to_string();
    for command in ["attach", "detach", "top", "tag", "untag", "counters"] {
        assert!(offered(&format!("{command} {own}")).contains(&own), "{command}");
    }
    let commands = offered("");
    for hidden in ["generate", "profiles", "clear", "guest", "team-cell"] {
        assert!(!commands.contains(&hidden.to_owned()), "{commands:?}");
    }
    assert!(commands.contains(&"run".to_owned()) && commands.contains(&"untag".to_owned()), "{commands:?}");
}

/// Formats words as a bash array; an empty one is kept.
fn words_of_bash(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
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
    let offered = |typed: &str| {
        let script = format!("source {}; complete -C 'trimtab {typed}'", file.display());
        let done = Command::new(&fish)
            .args(["--no-config", "-c", &script])
            .env("HOME", sandbox.path("home"))
            .current_dir(sandbox.path("shared"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for (typed, wanted) in [
        ("run --balance=s", "--balance=serial --balance=speed"),
        ("run --wait-policy s", "sleep spin"),
        ("attach --balance n", "nudge"),
    ] {
        assert_eq!(offered(typed).join(" "), wanted, "{typed}");
    }
    // The value of --balance needs the equals sign: the program follows after a space.
    let programs = offered("run --balance s");
    assert!(
        programs.contains(&"sleep".to_owned()) && !programs.contains(&"speed".to_owned()),
        "{programs:?}"
    );
}

/// Writes the man pages into a folder of the sandbox.
fn pages(sandbox: &Sandbox) -> std::path::PathBuf {
    let folder = sandbox.path("man");
    for program in ["trimtab", "trimtab-lab"] {
        sandbox.lab(&format!("generate man {program} --to")).arg(&folder).ends().ok();
    }
    folder
}

fn page(folder: &std::path::Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(format!("{name}.1")))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_command_has_a_man_page_of_its_own() {
    let sandbox = Sandbox::new();
    let folder = pages(&sandbox);
    let overview = page(&folder, "trimtab");
    for command in COMMANDS {
        let text = page(&folder, &format!("trimtab-{command}"));
        assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH DESCRIPTION"), "{command}: {text}");
        assert!(!text.contains('`') && !text.contains("EXTRA"), "{command}: {text}");
        let reference = format!("\\fBtrimtab\\-{}\\fR(1)", command.replace('-', "\\-"));
        assert!(overview.contains(&reference), "{command}: {overview}");
    }
    for hidden in ["trimtab-generate", "trimtab-profiles", "trimtab-clear", "trimtab-guest"] {
        assert!(!folder.join(format!("{hidden}.1")).exists(), "{hidden}");
    }
    for (name, line) in [
        ("trimtab-run", "\\fBtrimtab run\\fR [OPTIONS] \\fICOMMAND\\fR..."),
        ("trimtab-bench", "\\fBtrimtab bench balance\\fR [OPTIONS]"),
        ("trimtab-sim", "\\fBtrimtab sim\\fR [OPTIONS] \\fISCENARIO.toml\\fR..."),
        ("trimtab-sim", "\\fBtrimtab sim machines\\fR [NAME]"),
        ("trimtab-tune", "\\fBtrimtab tune list\\fR [OPTIONS]"),
    ] {
        let text = page(&folder, name);
        assert!(text.contains(line), "{name}: {text}");
    }
}

#[test]
fn the_man_pages_render_without_warnings() {
    let sandbox = Sandbox::new();
    let folder = pages(&sandbox);
    let man = need!(installed("man"), "man is not installed");
    for name in ["trimtab", "trimtab-run", "trimtab-bench", "trimtab-tune", "trimtab-lab"] {
        let rendered = Command::new(&man)
            .args(["--warnings", "-l"])
            .arg(folder.join(format!("{name}.1")))
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8")
            .env("MANPAGER", "cat")
            .output()
            .unwrap();
        if String::from_utf8_lossy(&rendered.stderr).contains("minimized") || rendered.stdout.is_empty() {
            return crate::util::skip("this system's man renders no pages");
        }
        let text = String::from_utf8_lossy(&rendered.stdout).into_owned();
        assert!(rendered.status.success() && text.contains("SYNOPSIS"), "{name}: {text}");
        let warned = String::from_utf8_lossy(&rendered.stderr).into_owned();
        assert!(!warned.contains("warning"), "{name}: {warned}");
    }
}
