//! What `trimtab advise` takes.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::place::Amount;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;

/// Say what would run a program better, from one run of it: in words, with the command to use.
///
/// The program is run once, as trimtab profile runs it, and rules that can be read in docs/advise.md judge what was seen: threads for each core, cores shared
/// with others or not, how threads wait, balancing, placement, huge pages, the scheduler's slice. A change is advised only where even the careful end of
/// what is expected is a gain; where that is not so, or where something was not seen, the advice is no change, and says why.
///
/// Nothing is tried and nothing is kept: trimtab tune does that. The program's standard output goes to standard error, because standard output is the advice's.
/// Exit status 0 when a change is advised, 1 when none is, 2 when it failed or the program did, 128 and the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// How many cores the program gets, as for trimtab run; without it: all that are free.
    #[arg(short, long, value_name = "EXPR", conflicts_with = "cpus", help_heading = "What")]
    pub cores: Option<Amount>,
    /// Exactly these CPUs.
    #[arg(long, value_name = "LIST", help_heading = "What")]
    pub cpus: Option<CpuSet>,
    /// Use cores that other runs hold, too.
    #[arg(long, help_heading = "What")]
    pub share: bool,
    /// Run it in this setting and advise what to change of it, as in 'threads=4 wait=sleep'.
    #[arg(long, value_name = "SETTING", help_heading = "What")]
    pub set: Option<Setting>,
    /// Run nothing: advise from a profile that trimtab profile --json wrote. COMMAND is then only for the command that is shown.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cores", "cpus", "share", "set"], help_heading = "What")]
    pub from: Option<PathBuf>,
    /// How many CPUs others keep busy of those that the program may use (0: none). Without it: as seen before and during the run; with
    /// --from: not known.
    #[arg(long, value_name = "N", value_parser = others, help_heading = "What")]
    pub others: Option<f64>,
    /// Print JSON (schema in docs/json.md).
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  trimtab advise ./app                         what would run it better here\n  \
    trimtab advise -c 8 ./app                    on 8 cores\n  \
    trimtab advise --others 1 ./app              as if others always kept one of its CPUs busy\n  \
    trimtab profile --json -o app.json ./app; trimtab advise --from app.json --others 0 ./app\n\n\
    What is advised can be tried at once; trimtab tune measures what cannot be told.";

/// CPUs that others keep busy.
fn others(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=65536.0).contains(&number) => Ok(number),
        _ => Err("a number of CPUs is expected, 0 or more".to_owned()),
    }
}
