//! Options of `trimtab sim figures`.

use clap::Args;
use std::path::PathBuf;

/// Make the published tables and figures again that the simulator covers, beside the published values.
///
/// Each figure runs its cells, shows what was published beside what the simulator says, with the error, and judges the published orders of
/// contestants. Values on which a machine file is calibrated are marked; all others are predictions. Equal versions print equal bytes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FiguresArgs {
    /// Only these figures, instead of all that are of something published (see --list); `live` for those of what was measured.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List the figures, with what they are of and how many runs they take.
    #[arg(long, conflicts_with_all = ["json", "out", "scenario"])]
    pub list: bool,
    /// Print the scenario of the cell of this name, or of the only one whose name contains it, for `trimtab sim -`; with --out, write those
    /// of all such cells into DIR, a file each.
    #[arg(long, value_name = "CELL", conflicts_with = "json")]
    pub scenario: Option<String>,
    /// Print lines of JSON (schema in docs/json.md) instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Write tables, lines of JSON, pictures and scenarios into a folder for each figure in this one.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// So many runs at a time, instead of one a core.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim figures                       all of them, a minute or two\n  \
    trimtab sim figures stream factors        two of them\n  \
    trimtab sim figures live                  what was measured on real machines, beside the simulator\n  \
    trimtab sim figures --out experiments/simulator   tables, lines, pictures, scenarios\n  \
    trimtab sim figures stream --scenario 'tigerton-x7350 bound 4x4' | trimtab sim -   one cell by itself\n  \
    trimtab sim figures stream --scenario tigerton --out cells && trimtab sim cells/*.toml   several\n\n\
    Exit status: 0 done, 2 when there is no such figure or something cannot be written; Ctrl-C ends it with 130.";
