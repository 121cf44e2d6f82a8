//! `trimtab advise`, `bench`, `check`, `each`, `field`, `hold`, `hook`, `nri`, `release`, `replay`,
//! `report`, `resize`, `serve`, `sim`, `top`, `tune`, `tune-team` and `generate`: commands of
//! `trimtab-lab`, which replaces this process.

use crate::exit::{self, Exit};
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use trimtab_front::sibling::{LAB, TRIMTAB, find};

/// Commands that `trimtab-lab` has help for. The options of `tune` are parsed here too, since `tune
/// list` and its siblings need no laboratory.
pub const COMMANDS: [&str; 16] = [
    "advise",
    "bench",
    "check",
    "each",
    "field",
    "hold",
    "hook",
    "nri",
    "release",
    "replay",
    "report",
    "resize",
    "serve",
    "sim",
    "top",
    "tune-team",
];

/// Replaces this process by `trimtab-lab` with the same command line. Its help and errors name the
/// commands as they were typed, below `trimtab`.
pub fn start() -> Exit {
    let words = std::env::args_os().skip(1);
    let failed = |cause| Exit::new(exit::FAILED, cause);
    match find(LAB).context("this command is carried out by a program of its own") {
        Err(missing) => failed(missing),
        Ok(lab) => {
            let error = Command::new(&lab).arg0(TRIMTAB).args(words).exec();
            failed(anyhow::Error::new(error).context(format!("cannot start {}", lab.display())))
        }
    }
}

/// Whether a command line requests help in the form `trimtab help bench`.
pub fn help_is_asked(words: impl IntoIterator<Item = OsString>) -> bool {
    let mut words = words.into_iter().skip(1);
    words.next().is_some_and(|word| word == "help")
        && words.next().is_some_and(|word| COMMANDS.iter().any(|command| word == *command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_its_commands_is_the_laboratorys() {
        let asked = |line: &str| help_is_asked(line.split(' ').map(OsString::from));
        assert!(asked("trimtab help bench") && asked("trimtab help sim figures"));
        for other in
            ["trimtab", "trimtab help", "trimtab help run", "trimtab bench help", "trimtab run help sim"]
        {
            assert!(!asked(other), "{other}");
        }
    }
}
