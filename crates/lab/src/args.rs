//! Command-line definitions of `trimtab-lab`. Help, man page, completions and parser are all
//! derived from them.

pub mod bench;
pub mod each;
pub mod field;
pub mod hold;
pub mod hook;
pub mod misses;
pub mod nodes;
pub mod nri;
pub mod oversub;
pub mod report;
pub mod sim;
pub mod sim_figures;
pub mod sim_swarm;
pub mod team;
pub mod tune_team;

pub use bench::{BenchArgs, BenchBalanceArgs, BenchCommand, CostArgs, Experiment, NestedArgs, UncoreArgs};
pub use each::EachArgs;
pub use field::{FieldArgs, FieldPart};
pub use hold::{HoldArgs, ReleaseArgs, ResizeArgs};
pub use hook::HookArgs;
pub use misses::{CountSource, MissesArgs};
pub use nodes::NodesArgs;
pub use nri::NriArgs;
pub use oversub::{Mix, NpbKernel, OversubArgs, OversubCellArgs, PairMember, Program, ProgramPair};
pub use report::ReportArgs;
pub use sim::{MachinesArgs, ScenarioArgs, SimArgs, SimCommand};
pub use sim_figures::FiguresArgs;
pub use sim_swarm::SwarmArgs;
pub use team::{BenchTeamArgs, Class, Mode, NasKernel, Operation, TeamCellArgs};
pub use tune_team::{Pace, TuneTeamArgs, Weight};

use clap::{Args, Parser, Subcommand, ValueEnum};
use trimtab_cli::args::{AdviseArgs, CheckArgs, ReplayArgs, ServeArgs, TopArgs, TuneArgs};

/// Measure and simulate trimtab's placement and balancing.
///
/// `trimtab advise`, `bench`, `check`, `each`, `field`, `hold`, `hook`, `nri`, `release`, `replay`,
/// `report`, `resize`, `serve`, `sim`, `top`, `tune` and `tune-team` start this program. It holds
/// the benchmarks of the live machine, the field kit, the simulator of other machines, the service,
/// the live view, the pages made of records, replays, advice, the checker of plans, jobs for many
/// values, the tuning of programs and teams, the commands that hold cores for others, the plug-in
/// for container runtimes, and the hooks of engines of virtual machines.
#[derive(Parser, Debug)]
#[command(name = "trimtab-lab", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Hold(Box<HoldArgs>),
    Resize(ResizeArgs),
    Release(ReleaseArgs),
    Nri(NriArgs),
    Hook(HookArgs),
    Bench(BenchArgs),
    Sim(SimArgs),
    Report(ReportArgs),
    Advise(AdviseArgs),
    Check(CheckArgs),
    Each(EachArgs),
    Field(FieldArgs),
    Top(TopArgs),
    Replay(ReplayArgs),
    Serve(Box<ServeArgs>),
    Tune(TuneArgs),
    TuneTeam(TuneTeamArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Write completions to standard output, or man pages to a folder.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Document to write.
    pub what: Generated,
    /// Program that the document describes.
    #[arg(value_name = "PROGRAM", default_value = "trimtab")]
    pub program: Documented,
    /// Folder for man pages: one page for the program and one for each command.
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<std::path::PathBuf>,
}

/// A generated document.
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
    /// `trimtab`, with the laboratory's commands included.
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
        for name in trimtab_cli::commands::lab::COMMANDS {
            let about = |command: &clap::Command| {
                command.find_subcommand(name).unwrap().get_about().unwrap().to_string()
            };
            assert_eq!(about(&users), about(&own), "{name}");
        }
    }
}
