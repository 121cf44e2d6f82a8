//! Options of `trimtab tune`, and of the settings that it keeps.

use super::time;
use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::Amount;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;

/// Find the best settings for a program, and keep them.
///
/// Runs the program many times: with single settings changed (threads, cores, waiting, huge pages,
/// ...), with the helpful changes combined, and finally with the best setting and the default in
/// turn. A gain is kept only if these last runs show it beyond their noise. From then on, trimtab
/// run starts this program with the kept setting, and a message reports it. The program must do the
/// same work in each run, and must tolerate many runs and stops: it writes its files each time. Use
/// a machine that is otherwise idle. `trimtab tune list` shows the kept settings; to tune a program
/// that is called list, show, export, import or remove, write ./list. The algorithms of teams of
/// ranks have a separate command: `trimtab tune-team`.
///
/// Exit status 0 if a better setting was found, 1 if none was found, 2 if tuning failed, 128 plus
/// the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          disable_help_subcommand = true, subcommand_help_heading = "Kept settings")]
pub struct TuneArgs {
    #[command(subcommand)]
    pub kept: Option<TuningCommand>,
    /// Number of cores, as for trimtab run; by default, all cores that are free at the beginning.
    #[arg(short, long, value_name = "EXPR", conflicts_with = "cpus", help_heading = "Settings")]
    pub cores: Option<Amount>,
    /// Use exactly these CPUs.
    #[arg(long, value_name = "LIST", help_heading = "Settings")]
    pub cpus: Option<CpuSet>,
    /// Use cores that other runs hold, too.
    #[arg(long, help_heading = "Settings")]
    pub share: bool,
    /// Change only these knobs: threads, cores, smt, strategy, memory, thp, wait, pin, balance,
    /// slice.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = knob, help_heading = "Settings")]
    pub knobs: Vec<Knob>,
    /// Setting to start from and to compare with, as in 'threads=4 wait=spin', instead of the
    /// defaults of trimtab run.
    #[arg(
        long,
        value_name = "SETTING",
        default_value = "as it is",
        hide_default_value = true,
        help_heading = "Settings"
    )]
    pub from: Setting,
    /// Compare a setting of your own before the search, and show its gain: variables that the
    /// search does not change, as in 'OMP_NUM_THREADS=2 OMP_PROC_BIND=true'. May be given several
    /// times; takes at most a quarter of the budget.
    #[arg(long = "try", value_name = "VARIABLES", value_parser = own, conflicts_with = "metric",
          help_heading = "Settings")]
    pub own: Vec<OwnSetting>,
    /// Quantity to improve: a number that the program prints, captured by this regular expression
    /// (its first group, or the whole match; the last match counts). By default, the elapsed time.
    #[arg(long, value_name = "REGEX", help_heading = "Metric")]
    pub metric: Option<String>,
    /// Higher numbers are better.
    #[arg(long, requires = "metric", conflicts_with = "lower", help_heading = "Metric")]
    pub higher: bool,
    /// Lower numbers are better (the default).
    #[arg(long, requires = "metric", help_heading = "Metric")]
    pub lower: bool,
    /// Smallest gain that justifies a change.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = gain, help_heading = "Metric")]
    pub gain: f64,
    /// Require the same standard output as in the first run, except for lines with the metric.
    #[arg(long, help_heading = "Checks")]
    pub verify: bool,
    /// Shell command that reads the output of each run on standard input, and exits with 0 if it is
    /// correct.
    #[arg(long, value_name = "COMMAND", help_heading = "Checks")]
    pub verify_command: Option<String>,
    /// Longest time of a run; a longer run counts as failed.
    #[arg(long, value_name = "TIME", value_parser = time::lasting, help_heading = "Time")]
    pub timeout: Option<Span>,
    /// Longest time of all runs together.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time::lasting, help_heading = "Time")]
    pub budget: Span,
    /// Continue an interrupted tuning: its runs count.
    #[arg(long, conflicts_with = "dry_run", help_heading = "Time")]
    pub resume: bool,
    /// Seed of the order of runs.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Control")]
    pub seed: u64,
    /// List the settings that would be tried, and run nothing.
    #[arg(long, help_heading = "Control")]
    pub dry_run: bool,
    /// Do not keep the setting that is found.
    #[arg(long, help_heading = "Control")]
    pub no_store: bool,
    /// Print JSON on standard output, one line for each run (schema in docs/json.md).
    #[arg(long, help_heading = "Control")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Variables that the user wants to compare: names with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSetting(pub Vec<(String, String)>);

const EXAMPLES: &str = "Examples:\n  trimtab tune ./app                           improve its elapsed time, for at most ten minutes\n  \
    trimtab tune --dry-run ./app                 list the settings that would be tried\n  \
    trimtab tune --metric 'Mop/s total *= *([0-9.]+)' --higher ./cg.A.x\n  \
    trimtab tune --knobs threads,wait,thp --budget 2m ./app\n  \
    trimtab tune --try OMP_NUM_THREADS=2 ./app   compare your own setting, too\n  \
    trimtab tune --verify ./app                  require the same output in each run\n  \
    trimtab tune --resume ./app                  continue after Ctrl-C\n  \
    trimtab tune list                            the settings that are kept\n\n\
    Afterwards, trimtab run ./app applies the setting; trimtab run --no-tuning ./app does not.";

/// Show, export, import and remove the settings that `trimtab tune` kept.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TuningsArgs {
    #[command(subcommand)]
    pub command: Option<TuningCommand>,
    /// Print JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug, Clone)]
pub enum TuningCommand {
    /// List the kept settings: program, setting, gain, and whether each applies now.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show one kept setting: evidence and conditions.
    Show {
        /// Its name in the list, or the beginning of it.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write one kept setting to standard output or to a file.
    Export {
        /// Its name in the list, or the beginning of it.
        name: String,
        /// File to write.
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Keep a setting that was exported; it applies under its own conditions.
    Import {
        /// File to read.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Remove one kept setting, or all.
    Remove {
        /// Its name in the list, or the beginning of it.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Remove all, damaged ones too.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
}

fn knob(text: &str) -> Result<Knob, String> {
    Knob::ALL.into_iter().find(|knob| knob.word() == text).ok_or_else(|| {
        let known: Vec<&str> = Knob::ALL.into_iter().map(Knob::word).collect();
        format!("known: {}", known.join(", "))
    })
}

/// Parses variables with values.
fn own(text: &str) -> Result<OwnSetting, String> {
    let one = |word: &str| match word.split_once('=') {
        Some((name, value)) if is_name(name) && !value.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("\"{word}\" is not NAME=VALUE, as in OMP_NUM_THREADS=2")),
    };
    let all: Vec<(String, String)> = text.split_whitespace().map(one).collect::<Result<_, _>>()?;
    if all.is_empty() {
        Err("expected NAME=VALUE, as in OMP_NUM_THREADS=2".to_owned())
    } else {
        Ok(OwnSetting(all))
    }
}

/// Returns whether a shell accepts this name of a variable.
fn is_name(name: &str) -> bool {
    let letter = |at: char| at.is_ascii_alphanumeric() || at == '_';
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && name.chars().all(letter)
}

/// Parses a gain in per cent. A gain below 1 % can hardly ever be measured.
fn gain(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(percent) if (1.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("expected a gain from 1% to 100%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_settings_are_variables_with_values() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(own("A=1 B_2=x=y"), Ok(OwnSetting(vec![pair("A", "1"), pair("B_2", "x=y")])));
        assert_eq!(own("A="), Ok(OwnSetting(vec![pair("A", "")])));
        for wrong in ["", " ", "A", "=1", "1A=2", "A-B=1", "A=1 B"] {
            assert!(own(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn knobs_and_gains_have_bounds() {
        assert_eq!(knob("wait"), Ok(Knob::Wait));
        assert!(knob("depth").unwrap_err().contains("threads"));
        assert_eq!((gain("3%"), gain("10")), (Ok(0.03), Ok(0.1)));
        assert!(gain("0.1%").is_err() && gain("nan").is_err());
    }
}
