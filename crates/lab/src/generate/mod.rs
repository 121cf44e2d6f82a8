//! `trimtab generate`: the man page and completions, from the definition of the options.

mod completions;

use crate::args::{Cli, Documented, GenerateArgs, Generated};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io::Write;
use trimtab_front::exit::{self, Exit};
use trimtab_front::sibling::{LAB, TRIMTAB};

/// Writes one of them to stdout.
///
/// # Errors
/// Stdout cannot be written.
pub fn run(args: &GenerateArgs) -> Result<u8, Exit> {
    let (name, mut command) = match args.program {
        Documented::Trimtab => (TRIMTAB, trimtab()),
        Documented::TrimtabLab => (LAB, Cli::command()),
    };
    let mut complete = |shell| completions::script(shell, name, &mut command).into_bytes();
    let text = match args.what {
        Generated::Bash => complete(Shell::Bash),
        Generated::Zsh => complete(Shell::Zsh),
        Generated::Fish => complete(Shell::Fish),
        Generated::Man => man(command).map_err(|error| Exit::new(exit::FAILED, error))?,
    };
    std::io::stdout().write_all(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(exit::DONE)
}

/// The definition of `trimtab`, in which the commands that it hands to the laboratory have their options.
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

/// One page: the program, then each command with its options.
fn man(mut command: Command) -> std::io::Result<Vec<u8>> {
    command.build();
    let mut out = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    writeln!(out, ".SH SYNOPSIS")?;
    let mut first = true;
    for sub in leaves(&command) {
        // One line each: filled, they would run together.
        writeln!(out, "{}{}", if first { "" } else { ".br\n" }, synopsis(sub))?;
        first = false;
    }
    page.render_description_section(&mut out)?;
    for sub in leaves(&command) {
        section(sub, &mut out)?;
    }
    out.write_all(FILES.as_bytes())?;
    Ok(out)
}

/// The commands that do something; `bench` only names others, `sim` does both.
fn leaves(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let with_others = |sub| {
        let own = Some(sub).filter(|sub: &&Command| !sub.is_subcommand_required_set());
        own.into_iter().chain(leaves(sub)).collect()
    };
    below.flat_map(|sub| if sub.has_subcommands() { with_others(sub) } else { vec![sub] }).collect()
}

/// How a command is called: `trimtab run [OPTIONS] COMMAND...`.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    // Commands below it have lines of their own.
    let usage = usage.trim_start_matches("Usage:").trim().lines().next().unwrap_or_default();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let rest = usage.strip_prefix(name).unwrap_or(usage);
    // What is to be replaced is set in italics, without the angles that stand for them elsewhere.
    let rest = rest.replace('-', "\\-").replace('<', "\\fI").replace('>', "\\fR");
    format!("\\fB{}\\fR{rest}", name.replace('-', "\\-"))
}

fn section(command: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    writeln!(out, ".SH \"{}\"", name.to_uppercase())?;
    let mut body = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_description_section(&mut body)?;
    page.render_options_section(&mut body)?;
    page.render_extra_section(&mut body)?;
    writeln!(out, "{}", synopsis(command))?;
    // Sections of a command are subsections of the page; what comes after its options says by itself what it is.
    let body = String::from_utf8_lossy(&body).replace(".SH EXTRA\n", ".PP\n").replace(".SH ", ".SS ");
    out.extend(body.into_bytes());
    Ok(())
}

const FILES: &str = r#".SH ENVIRONMENT
.TP
\fBTRIMTAB_LEDGER\fR
Folder of the ledger, instead of /run/trimtab, /dev/shm, /run/lock or /tmp.
.TP
\fBTRIMTAB_CONFIG\fR
Folder of site.toml and rules.toml, instead of /etc/trimtab and the user's own.
.TP
\fBTRIMTAB_PLAN\fR, \fBTRIMTAB_HOLD\fR, \fBTRIMTAB_SET\fR
Set for the program that is run: its plan, its hold, and which variables were set for it.
.SH FILES
.TP
/etc/trimtab/site.toml, ~/.config/trimtab/site.toml
Limits: auto\-cores, max\-cores, reserved\-cpus.
.TP
/etc/trimtab/rules.toml, ~/.config/trimtab/rules.toml
What suits which program: [[rule]] with program (a glob), thp, mem, strategy, smt, pin, why.
.SH "EXIT STATUS"
trimtab run becomes the program and has its exit status; 126 when the program cannot be executed, 127 when it is not
found, 125 when trimtab itself fails, 124 when there are not enough free cores. A run that is watched stays as a parent
and ends as its program did, by the same signal too. Other commands: 0 done, 1 the answer is no (a fault found, a plan that
cannot be met, decisions that differ, nothing to detach), 2 failed.
.SH "SEE ALSO"
taskset(1), numactl(8), hwloc-bind(1), sched_setaffinity(2), set_mempolicy(2)
"#;
