//! `trimtab-lab generate`: man pages and completions, derived from the definition of the options.

mod completions;
mod manual;

use crate::args::{Cli, Documented, GenerateArgs, Generated};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io::Write;
use std::path::Path;
use trimtab_front::exit::{self, Exit};
use trimtab_front::sibling::{LAB, TRIMTAB};

/// Writes completions to stdout, or man pages to a folder.
///
/// # Errors
/// Stdout or a page cannot be written.
pub fn run(args: &GenerateArgs) -> Result<u8, Exit> {
    let (name, command) = match args.program {
        Documented::Trimtab => (TRIMTAB, trimtab()),
        Documented::TrimtabLab => (LAB, Cli::command()),
    };
    let complete = |shell| completions::script(shell, name, &command).into_bytes();
    let text = match args.what {
        Generated::Bash => complete(Shell::Bash),
        Generated::Zsh => complete(Shell::Zsh),
        Generated::Fish => complete(Shell::Fish),
        Generated::Man => {
            let folder = args.to.as_deref().unwrap_or(Path::new("."));
            return write_pages(command, folder).map_err(|error| Exit::new(exit::FAILED, error));
        }
    };
    std::io::stdout().write_all(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(exit::DONE)
}

/// Writes one page for the program and one for each of its commands into `folder`.
fn write_pages(command: Command, folder: &Path) -> std::io::Result<u8> {
    fs::create_dir_all(folder)?;
    for (name, page) in manual::pages(command)? {
        fs::write(folder.join(format!("{name}.1")), page)?;
    }
    Ok(exit::DONE)
}

/// Returns the definition of `trimtab`, with the options of the commands that the laboratory
/// carries out.
fn trimtab() -> Command {
    let mut command = trimtab_cli::args::Cli::command();
    let own = Cli::command();
    for stub in command.get_subcommands_mut() {
        if let Some(whole) = own.find_subcommand(stub.get_name()) {
            *stub = whole.clone();
        }
    }
    command
}
