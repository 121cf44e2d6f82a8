//! What can be typed: one definition from which help, the man page, completions and the parser are made.

pub mod bench;
pub mod oversub;
pub mod sim;
pub mod sim_figures;
pub mod sim_swarm;
pub mod team;

pub use bench::{BenchArgs, BenchBalanceArgs, BenchCommand, CostArgs, Experiment, NestedArgs, UncoreArgs};
pub use oversub::{Couple, Mix, OversubArgs, OversubCellArgs, Program};
pub use sim::{MachinesArgs, ScenarioArgs, SimArgs, SimCommand};
pub use sim_figures::FiguresArgs;
pub use sim_swarm::SwarmArgs;
pub use team::{BenchTeamArgs, Class, Mode, NasKernel, Operation, TeamCellArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measure and simulate what trimtab does.
///
/// `trimtab bench` and `trimtab sim` start this program: benchmarks of the live machine, and the simulator of machines that are
/// not here.
#[derive(Parser, Debug)]
#[command(name = "trimtab-lab", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Bench(BenchArgs),
    Sim(SimArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Write a man page or completions to standard output.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// What to write.
    pub what: Generated,
    /// The program that it is of.
    #[arg(value_name = "PROGRAM", default_value = "trimtab")]
    pub program: Documented,
}

/// A document.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generated {
    Man,
    Bash,
    Zsh,
    Fish,
}

/// A program with a man page and completions.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Documented {
    /// With the laboratory's commands in their places.
    Trimtab,
    TrimtabLab,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn trimtab_lists_the_commands_with_the_same_line_of_help() {
        let (users, own) = (trimtab_cli::args::Cli::command(), Cli::command());
        for name in ["bench", "sim"] {
            let about = |command: &clap::Command| {
                command.find_subcommand(name).unwrap().get_about().unwrap().to_string()
            };
            assert_eq!(about(&users), about(&own), "{name}");
        }
    }
}
