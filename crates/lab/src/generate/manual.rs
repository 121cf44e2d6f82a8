//! Man pages: one for the program, and one for each command.

use clap::Command;
use std::io::{Result, Write};
use trimtab_cli::args::GROUPS;

/// Returns names and texts of all pages: `trimtab`, `trimtab-run`, ...
///
/// # Errors
/// Those of writing to memory.
pub(super) fn pages(command: Command) -> Result<Vec<(String, String)>> {
    let mut command = with_all_help(command);
    command.build();
    let program = command.get_name().to_owned();
    let mut pages = vec![(program.clone(), overview(&command)?)];
    for sub in visible(&command) {
        let name = format!("{program}-{}", sub.get_name());
        pages.push((name.clone(), page(sub, &name, &related(&program, sub.get_name()))?));
    }
    Ok(pages)
}

/// Returns the command without the marks that hide options in short help. The generator takes
/// them as marks of its own, and prints such an option without its text.
fn with_all_help(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(with_all_help)
}

/// Returns the subcommands that help shows.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Formats the page of the program: commands by task, environment, files, exit status.
fn overview(command: &Command) -> Result<String> {
    let mut out = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    let name = command.get_name();
    writeln!(out, ".SH SYNOPSIS\n\\fB{}\\fR \\fICOMMAND\\fR [OPTIONS]", escaped(name))?;
    page.render_description_section(&mut out)?;
    writeln!(out, ".SH COMMANDS")?;
    let groups: Vec<(&str, Vec<&Command>)> = if name == trimtab_front::sibling::TRIMTAB {
        let found = |names: &[&str]| names.iter().filter_map(|sub| command.find_subcommand(sub)).collect();
        GROUPS.iter().map(|(heading, names)| (*heading, found(names))).collect()
    } else {
        vec![("", visible(command).collect())]
    };
    for (heading, subs) in groups {
        if !heading.is_empty() {
            writeln!(out, ".SS {heading}")?;
        }
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let page = escaped(&format!("{name}-{}", sub.get_name()));
            writeln!(out, ".TP\n\\fB{page}\\fR(1)\n{}", escaped(&about))?;
        }
    }
    out.write_all(FILES.as_bytes())?;
    Ok(without_markdown(&String::from_utf8_lossy(&out)))
}

/// Returns the pages to which the page of a command refers: that of the program, and those of the
/// commands for the same task.
fn related(program: &str, name: &str) -> Vec<String> {
    let group = GROUPS.iter().map(|(_, names)| *names).find(|names| names.contains(&name));
    let others = group.unwrap_or_default().iter().filter(|other| **other != name);
    // Commands of the laboratory have their pages under the name of `trimtab` too.
    let others = others.map(|other| format!("{}-{other}", trimtab_front::sibling::TRIMTAB));
    std::iter::once(program.to_owned()).chain(others).collect()
}

/// Formats the page of one command, with its subcommands as sections.
fn page(command: &Command, name: &str, related: &[String]) -> Result<String> {
    let mut out = Vec::new();
    let page = clap_mangen::Man::new(command.clone()).title(name);
    page.render_title(&mut out)?;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(out, ".SH NAME\n{} \\- {}", escaped(name), escaped(&about))?;
    writeln!(out, ".SH SYNOPSIS")?;
    let own = Some(command).filter(|command| !command.is_subcommand_required_set());
    let below = leaves(command);
    for (index, sub) in own.into_iter().chain(below.iter().copied()).enumerate() {
        // Each synopsis needs a line of its own; filled text would join them.
        writeln!(out, "{}{}", if index == 0 { "" } else { ".br\n" }, synopsis(sub))?;
    }
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    for sub in below {
        section(sub, &mut out)?;
    }
    let mut extra = Vec::new();
    page.render_extra_section(&mut extra)?;
    out.extend(examples(&String::from_utf8_lossy(&extra)).into_bytes());
    let pages: Vec<String> = related.iter().map(|page| format!("\\fB{}\\fR(1)", escaped(page))).collect();
    writeln!(out, ".SH \"SEE ALSO\"\n{}", pages.join(", "))?;
    Ok(without_markdown(&String::from_utf8_lossy(&out)))
}

/// Returns the commands that do something, at any depth: `bench` only names others, `sim` does
/// both.
fn leaves(command: &Command) -> Vec<&Command> {
    let with_others = |sub| {
        let own = Some(sub).filter(|sub: &&Command| !sub.is_subcommand_required_set());
        own.into_iter().chain(leaves(sub)).collect()
    };
    visible(command)
        .flat_map(|sub| if sub.has_subcommands() { with_others(sub) } else { vec![sub] })
        .collect()
}

/// Formats the synopsis of one command: `trimtab run [OPTIONS] COMMAND...`.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    // Subcommands have lines of their own.
    let usage = usage.trim_start_matches("Usage:").trim().lines().next().unwrap_or_default();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let rest = usage.strip_prefix(name).unwrap_or(usage);
    // Placeholders are in italics, without the angle brackets that mark them elsewhere.
    let rest = escaped(rest).replace('<', "\\fI").replace('>', "\\fR");
    format!("\\fB{}\\fR{rest}", escaped(name))
}

/// Writes the section of a subcommand: synopsis, description, options.
fn section(command: &Command, out: &mut Vec<u8>) -> Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    writeln!(out, ".SH \"{}\"", name.to_uppercase())?;
    let mut body = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_description_section(&mut body)?;
    page.render_options_section(&mut body)?;
    page.render_extra_section(&mut body)?;
    writeln!(out, "{}", synopsis(command))?;
    let body = String::from_utf8_lossy(&body).replace(".SH EXTRA\n", ".PP\n").replace(".SH ", ".SS ");
    out.extend(body.into_bytes());
    Ok(())
}

/// Formats the text after a command's options: examples as sections of their own, unfilled.
fn examples(extra: &str) -> String {
    // The generator puts its macro definitions before the heading.
    let text = extra.split_once(".SH EXTRA\n").map_or("", |(_, text)| text);
    if text.trim().is_empty() {
        return String::new();
    }
    format!(".SH EXAMPLES AND EXIT STATUS\n.nf\n{}\n.fi\n", text.replace("Examples:\n", "").trim_end())
}

/// Escapes the characters that roff interprets.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-")
}

/// Sets words between backticks in bold, and removes the backticks.
fn without_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        // An odd backtick is a literal character.
        let marks = line.matches('`').count() / 2 * 2;
        for (index, part) in line.splitn(marks + 1, '`').enumerate() {
            if index > 0 {
                out.push_str(if index % 2 == 1 { "\\fB" } else { "\\fR" });
            }
            out.push_str(part);
        }
    }
    out
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
Set for the program that is run: its plan, its hold, and the names of the variables that were set for it.
.TP
\fBTRIMTAB_TASK\fR
Set for a run inside a task of HyperQueue: that task, whose grant does not bound runs inside this one.
.SH FILES
.TP
/etc/trimtab/site.toml, ~/.config/trimtab/site.toml
Limits: auto\-cores, max\-cores, reserved\-cpus.
.TP
/etc/trimtab/rules.toml, ~/.config/trimtab/rules.toml
Options for known programs: [[rule]] with program (a glob), thp, mem, strategy, smt, pin, why.
.SH "EXIT STATUS"
trimtab run becomes the program and has its exit status: 126 if the program cannot be executed, 127 if it is not
found, 125 if trimtab itself fails, 124 if there are not enough free cores. A run that is observed or balanced stays as
the parent process and ends as its program does, by the same signal too. Other commands: 0 done; 1 the answer is no (a fault
was found, a plan cannot be met, decisions differ, nothing to detach); 2 failed.
.SH "SEE ALSO"
\fBtaskset\fR(1), \fBnumactl\fR(8), \fBhwloc\-bind\fR(1), \fBsched_setaffinity\fR(2), \fBset_mempolicy\fR(2)
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_become_bold_in_pairs() {
        assert_eq!(without_markdown("see `a b` and `c`\n"), "see \\fBa b\\fR and \\fBc\\fR\n");
        assert_eq!(without_markdown("one ` alone"), "one ` alone");
    }

    #[test]
    fn a_page_refers_to_the_commands_for_the_same_task() {
        let related = related("trimtab", "run");
        assert_eq!(related[0], "trimtab");
        assert!(related.contains(&"trimtab-hold".into()) && related.contains(&"trimtab-attach".into()));
        assert!(!related.contains(&"trimtab-run".into()) && !related.contains(&"trimtab-tune".into()));
        let pages = pages(super::super::trimtab()).unwrap();
        for (name, other) in [("trimtab-tune", "tune\\-team"), ("trimtab-tune-team", "tune")] {
            let (_, text) = pages.iter().find(|(page, _)| page == name).unwrap();
            let (_, see) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
            assert!(see.contains(&format!("\\fBtrimtab\\-{other}\\fR(1)")), "{name}: {see}");
        }
    }

    #[test]
    fn the_page_of_run_has_the_text_of_every_option() {
        let pages = pages(super::super::trimtab()).unwrap();
        for (name, text) in &pages {
            assert!(!text.contains('`'), "{name}");
        }
        let (_, run) = pages.iter().find(|(name, _)| name == "trimtab-run").unwrap();
        // Options that short help hides, without a longer text.
        for words in ["Hardware threads to use on each core", "Kind of cores on a hybrid machine"] {
            assert!(run.contains(words), "{words}: {run}");
        }
    }
}
