//! Options of `trimtab sim figures`.

use clap::Args;
use std::path::PathBuf;

/// Reproduce published tables and figures in the simulator.
///
/// Runs the cells of each figure, shows published and simulated values with the error, and judges
/// the published orders of contestants. Values on which a machine file is calibrated are marked;
/// all others are predictions. Equal versions print equal bytes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FiguresArgs {
    /// Figures to reproduce (see --list). Default: all published ones; live stands for those of
    /// measured programs.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List the figures with their sources and numbers of runs.
    #[arg(long, conflicts_with_all = ["json", "out", "scenario"])]
    pub list: bool,
    /// Print the scenario of one cell for trimtab sim -, given its name or a part that only its
    /// name contains. With --out, write the scenarios of all matching cells into DIR, one file
    /// each.
    #[arg(long, value_name = "CELL", conflicts_with = "json")]
    pub scenario: Option<String>,
    /// Print JSON lines (schema in docs/json.md) instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Write tables, JSON lines, charts and scenarios into a subfolder of DIR for each figure.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Number of parallel runs (default: the number of cores).
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim figures                       all of them, a minute or two\n  \
    trimtab sim figures stream factors        two of them\n  \
    trimtab sim figures live                  programs measured on real machines, and simulated\n  \
    trimtab sim figures --out experiments/simulator   tables, JSON lines, charts, scenarios\n  \
    trimtab sim figures stream --scenario 'tigerton-x7350 bound 4x4' | trimtab sim -   a single cell\n  \
    trimtab sim figures stream --scenario tigerton --out cells && trimtab sim cells/*.toml   several\n\n\
    Exit status: 0 done, 2 if a figure is unknown or a file cannot be written. Ctrl-C ends the command with 130.";
