//! Options of `trimtab sim figures`.

use clap::Args;

/// Make the published tables and figures again that the simulator covers, beside the published values.
#[derive(Args, Debug)]
pub struct FiguresArgs {}
