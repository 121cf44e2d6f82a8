//! Options of `trimtab sim`.

use super::{FiguresArgs, SwarmArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trimtab_front::args::words::Words;
use trimtab_sim::outcome::Value;

/// Simulate balancing on machines that you do not have.
///
/// A scenario names a machine, a kernel, programs, and a balancing policy. Its sweep section gives
/// keys lists of values; every combination is run, on all cores. Nothing is measured: equal
/// scenario and seed give equal results, to the byte, on any machine and with any number of jobs.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct SimArgs {
    #[command(subcommand)]
    pub what: Option<SimCommand>,
    #[command(flatten)]
    pub scenarios: ScenarioArgs,
}

#[derive(Subcommand, Debug)]
pub enum SimCommand {
    Figures(FiguresArgs),
    Swarm(SwarmArgs),
    Machines(MachinesArgs),
}

/// Scenarios to run, and results to show.
#[derive(Args, Debug)]
pub struct ScenarioArgs {
    /// Scenario files (docs/simulator.md); - for standard input.
    #[arg(value_name = "SCENARIO.toml", required_unless_present = "from")]
    pub files: Vec<PathBuf>,
    /// Print the scenario of a recorded run instead: a trace (run --trace), a profile (profile
    /// --json), or one of each of the same program. Comments in it say what was assumed.
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["files", "set", "seed", "jobs", "json", "svg", "check", "trace"])]
    pub from: Vec<PathBuf>,
    /// Kernel of that scenario; records do not name theirs.
    #[arg(
        long,
        value_name = "KERNEL",
        default_value = "linux-6.18",
        requires = "from",
        hide_short_help = true
    )]
    pub kernel: String,
    /// Set a key of the scenarios, as in program.app.threads=5 or policy=speed; a list in brackets
    /// sweeps it, as in policy='["none", "auto"]'. Can be repeated.
    ///
    /// It replaces a sweep of that key. A key that a variant sets cannot be set here (variant=NAME
    /// keeps one variant).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Seed of all random numbers, instead of the scenario's own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Number of parallel runs (default: the number of cores).
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print one JSON line per run (schema in docs/json.md) instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Draw a chart into FILE (- for standard output): a value over the first swept key, with a
    /// line for each combination of the others.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Value that the chart shows: makespan, ratio, balance, busy, throughput, migrations or moves.
    #[arg(long, value_name = "VALUE", default_value = "makespan", value_parser = Words::<Value>::of(Value::ALL.map(Value::word)),
          hide_possible_values = true, requires = "svg")]
    #[arg(hide_short_help = true)]
    pub value: Value,
    /// Run under all checkers (docs/simulator.md, "What is checked") and print only the invariants
    /// that were broken.
    #[arg(long, conflicts_with_all = ["svg", "value", "trace"])]
    pub check: bool,
    /// Record each run in a folder, or a single run in a file (- for standard output). The commands
    /// top --replay, report and replay read these traces.
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim three-on-two.toml                     one scenario, with its sweep\n  \
    trimtab sim three-on-two.toml --set policy=exchange   another policy\n  \
    trimtab sim hog.toml --json | jq .outcome.ended    JSON lines\n  \
    trimtab sim speed.toml --svg speed.svg --value ratio   a chart\n  \
    trimtab sim hog.toml --set policy=auto --trace hog.trace && trimtab report hog.trace   a run, sample by sample\n  \
    trimtab sim --from run.trace > mine.toml           the scenario of a recorded run\n  \
    trimtab sim machines                               the machines that come with trimtab\n\n\
    Exit status: 0 done, 1 if --check finds a broken invariant, 2 if a scenario cannot be read or a file\n\
    cannot be written. Ctrl-C ends the command with 130; the results so far are shown.";

/// List the machines that come with trimtab, or print the file of one.
#[derive(Args, Debug)]
pub struct MachinesArgs {
    /// Machine whose file is printed.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}
