//! Stubs of the commands that `trimtab-lab` carries out. `trimtab` only has their names and
//! one-line help; the laboratory parses their options.

use clap::Args;
use std::ffi::OsString;

/// Unparsed arguments of a laboratory command.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<OsString>,
}
