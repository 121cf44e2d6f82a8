//! Words of the command line that help does not show: old words of commands and options, and words
//! that trimtab itself uses.

use clap::{Command, CommandFactory};
use std::collections::BTreeSet;

/// A hidden word, and the commands before it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Hidden {
    pub(crate) before: Vec<String>,
    pub(crate) word: String,
    /// Whether another word has taken its place.
    pub(crate) is_old: bool,
}

/// Returns all hidden words of `trimtab` and of the laboratory's commands.
pub(crate) fn words() -> BTreeSet<Hidden> {
    let mut found = BTreeSet::new();
    for command in [trimtab_cli::args::Cli::command(), trimtab_lab::args::Cli::command()] {
        below(&command, &[], &mut found);
    }
    assert!(found.iter().any(|hidden| hidden.is_old) && found.iter().any(|hidden| !hidden.is_old));
    found
}

fn below(command: &Command, before: &[String], found: &mut BTreeSet<Hidden>) {
    let mut add = |word: &str, is_old| {
        found.insert(Hidden { before: before.to_vec(), word: word.to_owned(), is_old });
    };
    for arg in command.get_arguments() {
        if let Some(long) = arg.get_long().filter(|_| arg.is_hide_set()) {
            add(&format!("--{long}"), false);
        }
        for old in arg.get_aliases().unwrap_or_default() {
            add(&format!("--{old}"), true);
        }
    }
    for sub in command.get_subcommands() {
        if sub.is_hide_set() {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            add(sub.get_name(), about.starts_with("Deprecated name"));
        }
        sub.get_aliases().for_each(|old| add(old, true));
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let within: Vec<String> = before.iter().cloned().chain([sub.get_name().to_owned()]).collect();
        below(sub, &within, found);
    }
}
