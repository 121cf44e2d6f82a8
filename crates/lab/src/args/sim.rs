//! Options of `trimtab sim`.

use super::{FiguresArgs, SwarmArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trimtab_front::args::words::Words;
use trimtab_sim::outcome::Value;

/// Simulate programs on machines that nobody here owns: what a scenario file says, under the policies of `trimtab run --balance`.
///
/// A scenario names a machine, a kernel, programs, and the policy that looks after them; its sweep section gives keys lists of values, and
/// every combination is run, on all cores. Nothing here is measured: equal scenario and seed give equal results, to the byte,
/// on any machine and with any number of jobs.
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

/// Which scenarios, and what is shown of them.
#[derive(Args, Debug)]
pub struct ScenarioArgs {
    /// The scenarios (docs/simulator.md); - for standard input.
    #[arg(value_name = "SCENARIO.toml", required = true)]
    pub files: Vec<PathBuf>,
    /// Set a key of the scenarios, as in program.app.threads=5 or policy=speed; a list in brackets sweeps it, as in policy='["none", "auto"]'.
    /// Takes the place of a sweep of that key; refused where a variant sets it (variant=NAME keeps one). Can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// All that is random is drawn from this number, instead of the scenario's own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// So many runs at a time, instead of one a core.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print a line of JSON a run (schema in docs/json.md) instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Draw a picture into FILE (- for standard output): a value over the first swept key, a line for each value of the others.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// What the picture shows: makespan, ratio, balance, busy, throughput, migrations or moves.
    #[arg(long, value_name = "VALUE", default_value = "makespan", value_parser = Words::<Value>::of(Value::ALL.map(Value::word)),
          hide_possible_values = true, requires = "svg")]
    pub value: Value,
    /// Run under all checkers (docs/simulator.md, "What is checked") and say which laws are broken; nothing else is shown.
    #[arg(long, conflicts_with_all = ["svg", "value", "trace"])]
    pub check: bool,
    /// Record each run in a folder, or a single run in a file (- for standard output): traces that top --replay, report and replay open.
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab sim three-on-two.toml                     one scenario, with its sweep\n  \
    trimtab sim three-on-two.toml --set policy=exchange   another policy\n  \
    trimtab sim hog.toml --json | jq .outcome.ended    lines of JSON\n  \
    trimtab sim speed.toml --svg speed.svg --value ratio   a picture\n  \
    trimtab sim hog.toml --set policy=auto --trace hog.trace && trimtab report hog.trace   a run, look by look\n  \
    trimtab sim machines                               the machines that come with trimtab\n\n\
    Exit status: 0 done, 1 when --check finds a law broken, 2 when a scenario cannot be read or something\n\
    cannot be written; Ctrl-C ends it early with 130, and what was simulated until then is shown.";

/// List the machines that come with trimtab, or print the file of one.
#[derive(Args, Debug)]
pub struct MachinesArgs {
    /// The machine whose file is printed.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}
