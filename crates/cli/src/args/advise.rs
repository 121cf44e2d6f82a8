//! Options of `trimtab advise`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::Amount;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::time::Span;

/// Say what makes a program faster here, and by how much, after a test.
///
/// Runs the program once, as trimtab profile does. Its profile suggests at most four other ways to
/// start it: fewer threads, another wait policy, other numbers for libraries, ranks or nested
/// teams, huge pages. Then the program runs as you start it now, under trimtab run, and in these
/// ways, in turn. A run is stopped as soon as it takes much longer than the best. Only a way with a
/// certain measured gain is advised.
///
/// The program must do the same work in each run; it writes its files each time. Its input is your
/// input file, or empty. Use --once for a program that cannot be repeated. Nothing is kept.
/// The program's output goes to standard error in the first run and is dropped in the others,
/// since standard output carries the advice. Exit status 0 if a change is advised, 1 if none is
/// advised, 2 if advising or the program failed, 128 plus the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// Number of cores, as for trimtab run; by default, all that are free.
    #[arg(short, long, value_name = "EXPR", value_parser = super::run::amounts(), hide_possible_values = true,
          conflicts_with = "cpus", help_heading = "Settings")]
    pub cores: Option<Amount>,
    /// Use exactly these CPUs.
    #[arg(long, value_name = "LIST", help_heading = "Settings")]
    pub cpus: Option<CpuSet>,
    /// Use cores that other runs hold, too.
    #[arg(long, help_heading = "Settings")]
    pub share: bool,
    /// Run the program with this setting and advise changes of it, as in 'threads=4 wait=sleep'.
    #[arg(long, value_name = "SETTING", help_heading = "Settings")]
    pub set: Option<Setting>,
    /// Longest time of all trials together. By default, three times that of the first run, and at
    /// least 5 seconds, or 20 if the first run was ended early; up to twice that, by 10 seconds at
    /// most, while a gain of 5 % is likely and not certain.
    #[arg(long, value_name = "TIME", value_parser = super::time::lasting, help_heading = "Time")]
    pub budget: Option<Span>,
    /// Let the first run go on to its end, also if its threads compete for CPUs and hardly ever
    /// sleep.
    #[arg(long, help_heading = "Time")]
    pub complete: bool,
    /// Run the program only once and test nothing: the advice is a prediction, and is called so.
    #[arg(long, conflicts_with_all = ["budget", "complete"], help_heading = "Time")]
    pub once: bool,
    /// Run nothing: advise from a profile that trimtab profile --json wrote. COMMAND then only
    /// completes the command line that is shown.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["cores", "cpus", "share", "set", "budget", "complete", "once"], help_heading = "Settings")]
    pub from: Option<PathBuf>,
    /// Number of the program's CPUs that other programs keep busy (0: none). By default, as
    /// measured before and during the run; with --from, unknown.
    #[arg(long, value_name = "N", value_parser = others, help_heading = "Settings")]
    pub others: Option<f64>,
    /// Two programs, with -- between them, or one twice: test how to run both on this machine. At
    /// once, one after the other, or each on a part of the cores.
    #[arg(long, conflicts_with_all = ["cores", "cpus", "share", "set", "complete", "once", "from", "others"], help_heading = "Settings")]
    pub pair: bool,
    /// Print JSON (schema in docs/json.md).
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str =
    "Examples:\n  trimtab advise ./app                         the fastest way to start it here, tested\n  \
    trimtab advise -c 8 ./app                    on 8 cores\n  \
    trimtab advise --budget 30s ./app            trials of half a minute in all\n  \
    trimtab advise --once ./app                  a prediction from one run\n  \
    trimtab advise --pair ./a 1 -- ./b 2         how to run two programs on this machine, tested
  \
    trimtab profile --json -o app.json ./app; trimtab advise --from app.json --others 0 ./app\n\n\
    trimtab tune searches more settings, for longer, and keeps the best one.";

/// Parses the number of CPUs that other programs keep busy.
fn others(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=65536.0).contains(&number) => Ok(number),
        _ => Err("expected a number of CPUs, 0 or more".to_owned()),
    }
}
