//! Commands of `trimtab-lab`, which `trimtab` starts: here they have a name and a line of help each, and the laboratory reads
//! their options.

use clap::Args;
use std::ffi::OsString;

/// The words after the command, as they are.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<OsString>,
}
