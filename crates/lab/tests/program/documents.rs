//! Man pages, made from the definition of the options, and the list of old words in CHANGELOG.md.

use crate::hidden;
use crate::util::{Sandbox, installed, need};
use clap::Parser;
use std::collections::BTreeSet;
use std::process::Command;
use trimtab_cli::args::{Cli, Command as Parsed, TuneArgs, TuningsArgs};

const COMMANDS: [&str; 28] = [
    "hold",
    "resize",
    "release",
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
    "reload",
    "guest-agent",
    "tune-team",
    "tune",
    "profile",
    "advise",
    "bench",
    "detach",
];

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
        ("trimtab-sim", "\\fBtrimtab sim\\fR [OPTIONS] [SCENARIO.toml]..."),
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

/// Returns the rows of the table of old words in CHANGELOG.md: an old line, and the line of today.
fn old_lines() -> Vec<(Vec<String>, Vec<String>)> {
    let text = include_str!("../../../../CHANGELOG.md");
    let table = text.split_once("| old | now |\n").expect("a table of old words").1;
    let rows = table.lines().skip(1).map(str::trim).take_while(|line| line.starts_with('|'));
    // Of each cell, the first words between backticks.
    let words = |cell: &str| -> Vec<String> {
        let line = cell.split('`').nth(1).unwrap_or_else(|| panic!("no command line: {cell}"));
        let line = line.replace(" PID", " 1").replace(" N", " 1").replace("./app", "true");
        line.split(' ').map(str::to_owned).collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 2, "{line}");
        (words(cells[0]), words(cells[1]))
    };
    rows.map(row).collect()
}

/// Returns what a command line means.
fn meaning(words: &[String]) -> String {
    let parsed = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    match parsed.command {
        // Carried out by the same code.
        Parsed::Profiles(TuningsArgs { command: Some(command), .. })
        | Parsed::Tune(TuneArgs { kept: Some(command), .. }) => format!("{command:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn the_changelog_lists_every_old_word_and_each_still_works() {
    let mut listed = BTreeSet::new();
    for (old, now) in old_lines() {
        let gone: Vec<&String> = old.iter().filter(|word| !now.contains(word)).collect();
        assert_eq!(gone.len(), 1, "{old:?} and {now:?} differ in {gone:?}");
        listed.insert(gone[0].clone());
        assert_eq!(meaning(&old), meaning(&now), "{old:?}");
    }
    let old: BTreeSet<String> =
        hidden::words().into_iter().filter(|hidden| hidden.is_old).map(|hidden| hidden.word).collect();
    assert_eq!(listed, old, "the table in CHANGELOG.md, and the words that the parser hides");
}

#[test]
fn an_old_command_does_what_its_new_name_does() {
    let sandbox = Sandbox::new();
    for (old, now) in old_lines().into_iter().filter(|(old, _)| !old.contains(&"run".to_owned())) {
        let [old, now] = [old, now].map(|words| sandbox.trimtab(&words[1..].join(" ")).ends());
        assert_eq!((old.code, &old.stdout, &old.stderr), (now.code, &now.stdout, &now.stderr), "{old}");
        assert!(!old.stderr.contains("unrecognized") && !old.stderr.contains("unexpected"), "{old}");
    }
    sandbox.run("--no-profile").arg("true").ends().ok();
}
