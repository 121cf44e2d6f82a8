//! `trimtab generate`: the man page and completions, from the definition of the options.

use crate::args::{Cli, GenerateArgs, Generated};
use crate::exit::{self, Exit};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Writes one of them to stdout.
///
/// # Errors
/// Stdout cannot be written.
pub fn run(args: &GenerateArgs) -> Result<u8, Exit> {
    let mut command = Cli::command();
    let mut text = Vec::new();
    let mut complete = |shell| clap_complete::generate(shell, &mut command, "trimtab", &mut text);
    match args.what {
        Generated::Bash => complete(Shell::Bash),
        Generated::Zsh => complete(Shell::Zsh),
        Generated::Fish => complete(Shell::Fish),
        Generated::Man => man(&mut text).map_err(|error| Exit::new(exit::FAILED, error))?,
    }
    std::io::stdout().write_all(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(exit::DONE)
}

/// One page: the program, then each command with its options.
fn man(out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut command = Cli::command();
    command.build();
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    for sub in shown(&command) {
        section("TRIMTAB", sub, out)?;
    }
    out.write_all(FILES.as_bytes())
}

fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// A command, or what stands below one that only names others.
fn section(above: &str, command: &clap::Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let title = format!("{above} {}", command.get_name().to_uppercase());
    let mut below = shown(command).peekable();
    if below.peek().is_some() {
        return below.try_for_each(|sub| section(&title, sub, out));
    }
    writeln!(out, ".SH \"{title}\"")?;
    let mut body = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_synopsis_section(&mut body)?;
    page.render_description_section(&mut body)?;
    page.render_options_section(&mut body)?;
    page.render_extra_section(&mut body)?;
    // Sections of a command are subsections of the page.
    out.extend(String::from_utf8_lossy(&body).replace(".SH ", ".SS ").into_bytes());
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
and ends as its program did, by the same signal too. Other commands: 0 done, 1 the answer is no, 2 failed.
.SH "SEE ALSO"
taskset(1), numactl(8), hwloc-bind(1), sched_setaffinity(2), set_mempolicy(2)
"#;
