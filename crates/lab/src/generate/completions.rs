//! Completion scripts: the generator's output, and completions that the generator does not support.
//!
//! `--balance` is valid without a value, so its value needs the equals sign: `--balance speed`
//! would run a program named speed. The generator offers values after a space there, and bash
//! breaks words at the sign, after which the generator's script offers nothing. The generator also
//! offers hidden commands. It offers neither process ids nor, in bash, the program after the
//! options.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Line of bash's script that sets the word before the cursor.
const BASH_WORDS: &str = "    prev=\"$3\"\n";
/// Lines that attach an equals sign, which is a word of its own in bash, to its option.
const BASH_SIGN: &str = r#"    if [[ "${prev}" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}="
    elif [[ "${COMP_WORDS[COMP_CWORD]}" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-1]}="
        cur=""
    fi
"#;
/// Function that completes the program after the options of a command. Its arguments are the list
/// of options that take a value, and the subcommands that are possible in the program's place. It
/// fails before the program. Keywords, functions and aliases of the shell are not programs.
const BASH_PROGRAM: &str = r#"
_trimtab_program() {
    local at=2
    while [[ ${at} -lt ${COMP_CWORD} ]]; do
        case "${COMP_WORDS[at]}" in
            --) at=$((at + 1)); break ;;
            =) at=$((at + 1)) ;;
            -*) [[ " $1 " == *" ${COMP_WORDS[at]} "* && "${COMP_WORDS[at + 1]}" != "=" ]] && at=$((at + 1)) ;;
            *) break ;;
        esac
        at=$((at + 1))
    done
    if [[ ${at} -gt ${COMP_CWORD} || "${COMP_WORDS[at]}" == -* || "${COMP_WORDS[at]}" == "=" ]]; then
        return 1
    fi
    if [[ ${at} -eq ${COMP_CWORD} ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=( $(compgen -W "$2" -- "${cur}")
            $(compgen -c -- "${cur}" | grep -vxFf <(compgen -k; compgen -A function; compgen -a) | sort -u)
            $(compgen -f -- "${cur}") )
    elif declare -F _command_offset >/dev/null; then
        _command_offset "${at}"
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=( $(compgen -f -- "${cur}") )
    fi
    return 0
}
"#;
/// Lines for a command that takes process ids.
const BASH_PIDS: &str = r#"            if [[ "${cur}" != -* && "${prev}" != -* ]]; then
                COMPREPLY=( $(compgen -W "$(ps -u "${EUID}" -o pid=)" -- "${cur}") )
                return 0
            fi
"#;

/// Action that offers the user's processes in zsh. zsh's own function offers those of the terminal.
const ZSH_PIDS: &str = r#":{local -a pids; pids=(${(f)"$(ps -u $EUID -o pid=,comm= | sed "s/^ *//; s/ /:/")"}); _describe process pids}'"#;

/// Returns the completion script for a shell.
pub(super) fn script(shell: Shell, name: &str, command: &Command) -> String {
    let mut command = visible(command);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let signed = signed(&command);
    match shell {
        Shell::Bash => bash(&text, &signed, &command),
        Shell::Zsh => zsh_either(lines(&text, |line| zsh(line, &signed)), &command),
        Shell::Fish => lines(&text, |line| fish(line, &signed)) + &fish_operands(name, &command),
        _ => text,
    }
}

/// Returns the command without its hidden subcommands and options.
fn visible(command: &Command) -> Command {
    // Names of commands have to be static. The process ends after writing its script.
    let name: &'static str = Box::leak(command.get_name().to_owned().into_boxed_str());
    let mut shown = Command::new(name)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown.subcommands(below.map(visible))
}

/// Returns the commands directly below `command` with an operand for which `is` holds.
fn with_operand(command: &Command, is: fn(&Arg) -> bool) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(move |sub| sub.get_positionals().any(is))
}

fn is_program(arg: &Arg) -> bool {
    arg.get_value_hint() == ValueHint::CommandWithArguments
}

fn is_process(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.starts_with("PID")))
}

/// Returns the first lines of a command's case in bash's script.
fn bash_operands(command: &Command) -> String {
    if command.get_positionals().any(is_program) {
        let below: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let (valued, below) = (valued(command), below.join(" "));
        return format!("            _trimtab_program \"{valued}\" \"{below}\" && return 0\n");
    }
    if command.get_positionals().any(is_process) { BASH_PIDS.to_owned() } else { String::new() }
}

/// Returns the options of a command whose value may be the next word.
fn valued(command: &Command) -> String {
    let mut words = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_require_equals_set()) {
        if arg.get_action().takes_values() {
            words.extend(arg.get_long().map(|long| format!("--{long}")));
            words.extend(arg.get_short().map(|short| format!("-{short}")));
        }
    }
    words.join(" ")
}

/// Returns the lines that complete operands in fish.
fn fish_operands(name: &str, command: &Command) -> String {
    let mut text = String::new();
    let using = |sub: &Command| {
        format!("complete -c {name} -n \"__fish_{name}_using_subcommand {}\"", sub.get_name())
    };
    for sub in with_operand(command, is_program) {
        // The function skips the listed options with their values. It takes words that begin with
        // two dashes for options of its own until another word comes.
        let (using, valued) = (using(sub), valued(sub));
        let _ = writeln!(text, "{using} -x -a \"(__fish_complete_subcommand --fcs-skip=2 - {valued})\"");
    }
    for sub in with_operand(command, is_process) {
        let _ = writeln!(text, "{} -f -a \"(__fish_complete_pids)\"", using(sub));
    }
    text
}

/// Returns the options of `run` whose values need the equals sign. Other commands do not have such
/// options.
fn signed(command: &Command) -> BTreeSet<String> {
    let run = command.find_subcommand("run").into_iter();
    let options = run.flat_map(Command::get_arguments).filter(|arg| arg.is_require_equals_set());
    options.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

fn lines(text: &str, mut change: impl FnMut(&str) -> String) -> String {
    text.lines().map(|line| change(line) + "\n").collect()
}

fn bash(text: &str, signed: &BTreeSet<String>, command: &Command) -> String {
    let mut in_run = false;
    let mut operands = String::new();
    let text = lines(text, |line| {
        let label = line.trim_start();
        if label.starts_with("trimtab__subcmd__") && label.ends_with(')') {
            in_run = label == "trimtab__subcmd__run)";
            let name = label.trim_start_matches("trimtab__subcmd__").trim_end_matches(')').replace("__", "-");
            operands = command.find_subcommand(&name).map(bash_operands).unwrap_or_default();
        }
        if label.starts_with("opts=") && !operands.is_empty() {
            return format!("{line}\n{}", std::mem::take(&mut operands).trim_end_matches('\n'));
        }
        match label.strip_prefix("--").and_then(|rest| rest.strip_suffix(')')) {
            Some(name) if in_run && signed.contains(name) => line.replace(label, &format!("--{name}=)")),
            Some(name) => line.replace(label, &format!("--{name}|--{name}=)")),
            None => line.to_owned(),
        }
    });
    text.replacen(BASH_WORDS, &format!("{BASH_WORDS}{BASH_SIGN}"), 1) + BASH_PROGRAM
}

/// Changes a line of zsh's script. `=-` marks a value in the same word only, and two colons mark a
/// value that may be missing.
fn zsh(line: &str, signed: &BTreeSet<String>) -> String {
    let name = line.strip_prefix("'--").and_then(|rest| rest.split_once("=[")).map(|(name, _)| name);
    match name {
        Some(name) if signed.contains(name) && line.contains("]::") => line.replacen("=[", "=-[", 1),
        None if line.starts_with("'*::pids ") || line.starts_with("'*::tasks ") => {
            line.replace(":_default'", ZSH_PIDS)
        }
        _ => line.to_owned(),
    }
}

/// Changes zsh's script for commands that take a program, or files, or a subcommand in the same
/// place. The generator makes two operands of them, and completes the first one alone.
fn zsh_either(text: String, command: &Command) -> String {
    let both = with_operand(command, |_| true).filter(|sub| sub.has_subcommands());
    both.fold(text, |text, sub| {
        let name = sub.get_name();
        let Some((before, rest)) = text.split_once(&format!("\n({name})\n")) else { return text };
        let Some((options, after)) = rest.split_once("\n    case $state in\n") else { return text };
        let Some((case, after)) = after.split_once("        esac\n") else { return text };
        let is_operand = |line: &str| line.starts_with("':") || line.starts_with("'*:");
        let options: Vec<&str> = options.lines().filter(|line| !is_operand(line)).collect();
        let program = sub.get_positionals().any(is_program);
        let (first, next) =
            if program { ("_command_names -e; _files", "_normal") } else { ("_files", "_files") };
        let under = name.replace('-', "__");
        let commands = format!("\":: :_trimtab__subcmd__{under}_commands\"");
        let options = options
            .join("\n")
            .replace(&commands, &format!("': :{{_trimtab__subcmd__{under}_commands; {first}}}'"));
        let case = case.replace("$line[2]", "$line[1]");
        let others = format!("            *)\n{next}\n;;\n");
        format!("{before}\n({name})\n{options}\n    case $state in\n{case}{others}        esac\n{after}")
    })
}

/// Changes a line of fish's script. `-r` takes the next word as the value.
fn fish(line: &str, signed: &BTreeSet<String>) -> String {
    let long = |name: &String| line.contains(&format!("using_subcommand run\" -l {name} "));
    if signed.iter().any(long) { line.replacen("' -r", "'", 1) } else { line.to_owned() }
}
