//! Options of `trimtab advise`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::Amount;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;

/// Say what would make a program faster, and by how much.
///
/// Runs the program once, as trimtab profile does, and judges the profile by the rules of
/// docs/advise.md: threads for each core, sharing of cores, wait policy, balancing, placement, huge
/// pages, scheduler slice. A change is advised only if even the lower end of the expected gain is a
/// gain. Otherwise, or if a quantity was not measured, the advice is to change nothing, with the
/// reason.
///
/// No change is tried or kept; trimtab tune does that. The program's standard output goes to
/// standard error, since standard output carries the advice. Exit status 0 if a change is advised,
/// 1 if none is advised, 2 if advising or the program failed, 128 plus the signal's number after
/// Ctrl-C.
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
    /// Run nothing: advise from a profile that trimtab profile --json wrote. COMMAND then only
    /// completes the command line that is shown.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["cores", "cpus", "share", "set"], help_heading = "Settings")]
    pub from: Option<PathBuf>,
    /// Number of the program's CPUs that other programs keep busy (0: none). By default, as
    /// measured before and during the run; with --from, unknown.
    #[arg(long, value_name = "N", value_parser = others, help_heading = "Settings")]
    pub others: Option<f64>,
    /// Print JSON (schema in docs/json.md).
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  trimtab advise ./app                         what would make it faster here\n  \
    trimtab advise -c 8 ./app                    on 8 cores\n  \
    trimtab advise --others 1 ./app              as if other programs always kept one of its CPUs busy\n  \
    trimtab profile --json -o app.json ./app; trimtab advise --from app.json --others 0 ./app\n\n\
    The advised command can be tried at once; trimtab tune measures what a profile cannot predict.";

/// Parses the number of CPUs that other programs keep busy.
fn others(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=65536.0).contains(&number) => Ok(number),
        _ => Err("expected a number of CPUs, 0 or more".to_owned()),
    }
}
