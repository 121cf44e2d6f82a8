//! Options of `trimtab tune` and `trimtab profiles`.

use super::time;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::Amount;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;

/// Find the setting that a program runs best in, by running it, and keep it for trimtab run.
///
/// The program is run many times: in single changes of its surroundings (threads, cores, waiting, huge pages, ...), in what helped joined, and at last in the best
/// setting and as it is, in turn. Only a gain that these last runs show beyond their noise is kept; from then on trimtab run
/// starts this program so, and says it. The program must do the same work each time and bear being run and stopped often: files that it
/// writes are written each time. Use a machine that is otherwise idle. Exit status 0 when a better setting was found, 1 when none was, 2 when it failed,
/// 128 and the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// How many cores the program gets, as for trimtab run; without it: all that are free at the beginning.
    #[arg(short, long, value_name = "EXPR", conflicts_with = "cpus", help_heading = "What")]
    pub cores: Option<Amount>,
    /// Exactly these CPUs.
    #[arg(long, value_name = "LIST", help_heading = "What")]
    pub cpus: Option<CpuSet>,
    /// Use cores that other runs hold, too.
    #[arg(long, help_heading = "What")]
    pub share: bool,
    /// Only these knobs: threads, cores, smt, strategy, memory, thp, wait, pin, balance, slice.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = knob, help_heading = "What")]
    pub knobs: Vec<Knob>,
    /// The setting to begin with and to be better than, as in 'threads=4 wait=spin', instead of what trimtab run does by itself.
    #[arg(
        long,
        value_name = "SETTING",
        default_value = "as it is",
        hide_default_value = true,
        help_heading = "What"
    )]
    pub from: Setting,
    /// What is to be improved: a number that the program prints, captured by this regular expression (its first group, or all of it; the
    /// last one that is printed counts). Without it: the time a run takes.
    #[arg(long, value_name = "REGEX", help_heading = "Metric")]
    pub metric: Option<String>,
    /// Higher numbers are better.
    #[arg(long, requires = "metric", conflicts_with = "lower", help_heading = "Metric")]
    pub higher: bool,
    /// Lower numbers are better (the default).
    #[arg(long, requires = "metric", help_heading = "Metric")]
    pub lower: bool,
    /// The least gain that is worth a change.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = gain, help_heading = "Metric")]
    pub gain: f64,
    /// Standard output must be that of the first run, but for lines that the metric is on.
    #[arg(long, help_heading = "Checks")]
    pub verify: bool,
    /// A shell command that gets the output of each run on standard input and says by exit status 0 that it is right.
    #[arg(long, value_name = "COMMAND", help_heading = "Checks")]
    pub verify_command: Option<String>,
    /// A run that takes longer has failed.
    #[arg(long, value_name = "TIME", value_parser = time::lasting, help_heading = "Time")]
    pub timeout: Option<Span>,
    /// Time for all runs together.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time::lasting, help_heading = "Time")]
    pub budget: Span,
    /// Go on with what was stopped by Ctrl-C or otherwise: its runs count.
    #[arg(long, conflicts_with = "dry_run", help_heading = "Time")]
    pub resume: bool,
    /// Orders of runs are drawn from this number.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Otherwise")]
    pub seed: u64,
    /// Say what would be tried, and run nothing.
    #[arg(long, help_heading = "Otherwise")]
    pub dry_run: bool,
    /// Keep no profile of what is found.
    #[arg(long, help_heading = "Otherwise")]
    pub no_store: bool,
    /// Print JSON lines on standard output, one a run (schema in docs/json.md).
    #[arg(long, help_heading = "Otherwise")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  trimtab tune ./app                           the time it takes, for ten minutes at most\n  \
    trimtab tune --dry-run ./app                 what would be tried\n  \
    trimtab tune --metric 'Mop/s total *= *([0-9.]+)' --higher ./cg.A.x\n  \
    trimtab tune --knobs threads,wait,thp --budget 2m ./app\n  \
    trimtab tune --verify ./app                  its output must stay the same\n  \
    trimtab tune --resume ./app                  go on after Ctrl-C\n\n\
    Afterwards: trimtab run ./app applies it; trimtab run --no-profile ./app does not; trimtab profiles shows it.";

/// Show, export, import and remove what trimtab tune found: settings that trimtab run applies.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfilesArgs {
    #[command(subcommand)]
    pub command: Option<ProfilesCommand>,
    /// Print JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug, Clone)]
pub enum ProfilesCommand {
    /// List them: program, setting, gain, and whether each applies now.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show one: setting, evidence, conditions.
    Show {
        /// Its name in the list, or the beginning of it.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write one to standard output or a file.
    Export {
        /// Its name in the list, or the beginning of it.
        name: String,
        /// Where to.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Take one that was exported; it applies under the conditions that are in it.
    Import {
        /// The file.
        file: PathBuf,
    },
    /// Remove one, or all.
    Remove {
        /// Its name in the list, or the beginning of it.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// All of them, damaged ones too.
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

/// A gain in per cent: what is below one is hardly ever measurable.
fn gain(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(percent) if (1.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a gain from 1% to 100% is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_and_gains_have_bounds() {
        assert_eq!(knob("wait"), Ok(Knob::Wait));
        assert!(knob("depth").unwrap_err().contains("threads"));
        assert_eq!((gain("3%"), gain("10")), (Ok(0.03), Ok(0.1)));
        assert!(gain("0.1%").is_err() && gain("nan").is_err());
    }
}
