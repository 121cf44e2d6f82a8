//! Completions: the generator's, and what it does not know of options whose value stands behind an equals sign.
//!
//! `--balance` may stand alone, so its value needs the sign: `--balance speed` would be a run of a program named speed. The
//! generator offers values after a space there, and bash breaks words at the sign, where it then offers nothing.

use clap::Command;
use clap_complete::Shell;
use std::collections::BTreeSet;

/// Where bash knows the word and the one before it.
const BASH_WORDS: &str = "    prev=\"$3\"\n";
/// A sign as a word of its own belongs to the option before it.
const BASH_SIGN: &str = r#"    if [[ "${prev}" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}="
    elif [[ "${COMP_WORDS[COMP_CWORD]}" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-1]}="
        cur=""
    fi
"#;

/// The completions of a shell.
pub(super) fn script(shell: Shell, name: &str, command: &mut Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let signed = signed(command);
    match shell {
        Shell::Bash => bash(&text, &signed),
        Shell::Zsh => lines(&text, |line| zsh(line, &signed)),
        Shell::Fish => lines(&text, |line| fish(line, &signed)),
        _ => text,
    }
}

/// Options of `run` whose values need the sign. No other command has such.
fn signed(command: &Command) -> BTreeSet<String> {
    let run = command.find_subcommand("run").into_iter();
    let options = run.flat_map(Command::get_arguments).filter(|arg| arg.is_require_equals_set());
    options.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

fn lines(text: &str, mut change: impl FnMut(&str) -> String) -> String {
    text.lines().map(|line| change(line) + "\n").collect()
}

fn bash(text: &str, signed: &BTreeSet<String>) -> String {
    let mut in_run = false;
    let text = lines(text, |line| {
        let label = line.trim_start();
        if label.starts_with("trimtab__subcmd__") && label.ends_with(')') {
            in_run = label == "trimtab__subcmd__run)";
        }
        match label.strip_prefix("--").and_then(|rest| rest.strip_suffix(')')) {
            Some(name) if in_run && signed.contains(name) => line.replace(label, &format!("--{name}=)")),
            Some(name) => line.replace(label, &format!("--{name}|--{name}=)")),
            None => line.to_owned(),
        }
    });
    text.replacen(BASH_WORDS, &format!("{BASH_WORDS}{BASH_SIGN}"), 1)
}

/// `=-` is zsh's word for a value in the same word only; two colons are its word for one that may be missing.
fn zsh(line: &str, signed: &BTreeSet<String>) -> String {
    let name = line.strip_prefix("'--").and_then(|rest| rest.split_once("=[")).map(|(name, _)| name);
    match name {
        Some(name) if signed.contains(name) && line.contains("]::") => line.replacen("=[", "=-[", 1),
        _ => line.to_owned(),
    }
}

/// `-r` says that the next word is the value.
fn fish(line: &str, signed: &BTreeSet<String>) -> String {
    let long = |name: &String| line.contains(&format!("using_subcommand run\" -l {name} "));
    if signed.iter().any(long) { line.replacen("' -r", "'", 1) } else { line.to_owned() }
}
