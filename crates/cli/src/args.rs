//! Command-line options: one definition from which help, man pages, completions and the parser are
//! made.

pub mod advise;
pub mod balance;
pub mod counters;
pub mod foreign;
pub mod lab;
pub mod machine;
mod plain;
pub mod profile;
pub mod run;
pub mod serve;
pub mod tuning;
pub mod view;

pub use advise::AdviseArgs;
pub use balance::{
    AttachArgs, BalanceArgs, CountingArgs, DetachArgs, PolicyArgs, ReplayArgs, ReportTo, report_to,
};
pub use counters::CountersArgs;
pub use lab::LabArgs;
pub use machine::{CheckArgs, DoctorArgs, NprocArgs, PlanArgs, PlanFormat, PsArgs, TopoArgs};
pub use profile::ProfileArgs;
pub use run::{PlaceArgs, RunArgs, RunOnly};
pub use serve::{GuestAgentArgs, ReloadArgs, ServeArgs, StatusArgs, TagArgs, TargetArgs, Task, UntagArgs};
pub use time::Wait;
use trimtab_front::args::words;
pub use trimtab_front::args::{SurveyMode, time};
pub use tuning::{OwnSetting, TuneArgs, TuningCommand, TuningsArgs};
pub use view::TopArgs;

use clap::{Parser, Subcommand};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Run parallel programs on free, well-placed cores.
///
/// `trimtab run ./app` finds free cores, reserves them against every other trimtab run, places
/// threads and memory by the machine's topology, and becomes the program. It needs neither a daemon
/// nor a privilege.
#[derive(Parser, Debug)]
#[command(name = "trimtab", version, max_term_width = 100, override_help = OVERVIEW)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Heading of each group of commands, and the commands in it.
pub const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["run", "each", "hold", "resize", "release", "attach", "detach"]),
    ("Look", &["plan", "topo", "ps", "top", "report", "counters", "nproc", "doctor", "check"]),
    ("Improve", &["profile", "advise", "tune", "tune-team", "replay"]),
    ("Operate a service", &["serve", "tag", "untag", "status", "reload", "guest-agent", "nri", "hook"]),
    ("Laboratory", &["bench", "field", "sim"]),
];

/// Help of the whole program: the commands by task, on one screen. A test compares it with the
/// definition of the commands.
const OVERVIEW: &str = "\
Run parallel programs on free, well-placed cores of a shared machine.

Usage: trimtab COMMAND [OPTIONS]

Run:
  run          Run a program on free, well-placed cores
  each         Run a command for each of many values, each run on cores of its own
  hold         Hold cores for a program that is already running
  resize       Change the number of cores of a run or a hold
  release      End a hold of `trimtab hold`
  attach       Balance programs that are already running
  detach       Stop balancing, and give threads their own masks back

Look:
  plan         Show what a run would do, and why, without running anything
  topo         Draw the machine, and which parts of it are in use
  ps           List the programs that hold cores
  top          Show live how threads run
  report       Turn a trace, a profile or a study into a page
  counters     Show which hardware counters work here
  nproc        Print how many threads a program should use here
  doctor       Find faults of this machine, or of a program's launch
  check        Check a plan against its machine

Improve:
  profile      Measure one run: barriers, waiting, balance, memory
  advise       Say what makes a program faster here, and by how much, after a test
  tune         Find the best settings for a program, and keep them
  tune-team    Find the fastest algorithms for teams on this machine
  replay       Show what a policy decides on a recorded trace

Operate a service:
  serve        Run the service that balances tagged programs
  tag          Hand running programs to the service
  untag        Take programs back from the service
  status       Show what the service balances, and its cost
  reload       Have the service read its files of declared tags again
  guest-agent  Tell the host, from inside a VM, which vCPUs run bound tasks
  nri          Give containers of Kubernetes cores that nothing else has
  hook         Give virtual machines cores that nothing else has

Laboratory:
  bench        Measure placement and balancing on this machine
  field        Measure this machine for a while, and write one file to send
  sim          Simulate balancing on machines that you do not have

Start with `trimtab run ./app`. `trimtab COMMAND -h` shows the most used options of a command,
`trimtab COMMAND --help` shows all of them, `man trimtab-COMMAND` is its manual.

  -h, --help  Print this help      -V, --version  Print the version
";

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Box<RunArgs>),
    /// Run a command for each of many values, each run on cores of its own.
    Each(LabArgs),
    /// Hold cores for a program that is already running.
    Hold(LabArgs),
    /// Change the number of cores of a run or a hold.
    Resize(LabArgs),
    /// End a hold of `trimtab hold`.
    Release(LabArgs),
    Attach(AttachArgs),
    Detach(DetachArgs),
    Plan(Box<PlanArgs>),
    Topo(TopoArgs),
    Ps(PsArgs),
    /// Show live how threads run.
    Top(LabArgs),
    /// Turn a trace, a profile or a study into a page.
    Report(LabArgs),
    Counters(CountersArgs),
    Nproc(NprocArgs),
    Doctor(DoctorArgs),
    /// Check a plan against its machine.
    Check(LabArgs),
    Profile(ProfileArgs),
    /// Say what makes a program faster here, and by how much, after a test.
    Advise(LabArgs),
    Tune(TuneArgs),
    /// Find the fastest algorithms for teams on this machine.
    TuneTeam(LabArgs),
    /// Show what a policy decides on a recorded trace.
    Replay(LabArgs),
    /// Run the service that balances tagged programs.
    Serve(LabArgs),
    Tag(TagArgs),
    #[command(alias = "clear")]
    Untag(UntagArgs),
    Reload(ReloadArgs),
    Status(StatusArgs),
    #[command(alias = "guest")]
    GuestAgent(GuestAgentArgs),
    /// Give containers of Kubernetes cores that nothing else has.
    Nri(LabArgs),
    /// Give virtual machines cores that nothing else has.
    Hook(LabArgs),
    /// Measure placement and balancing on this machine.
    Bench(LabArgs),
    /// Measure this machine for a while, and write one file to send.
    Field(LabArgs),
    /// Simulate balancing on machines that you do not have.
    Sim(LabArgs),
    /// Deprecated name of `trimtab tune list` and its siblings.
    #[command(hide = true)]
    Profiles(TuningsArgs),
    #[command(hide = true)]
    Generate(LabArgs),
}

/// `trimtab run` alone. Building the options of all commands takes longer than parsing them, so a
/// command line that begins with `run`, and is not a plain one, is parsed by this definition. Help
/// and errors are the same.
#[derive(Parser, Debug)]
#[command(name = "trimtab", version, max_term_width = 100)]
struct RunCli {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Subcommand, Debug)]
enum RunCommand {
    Run(Box<RunArgs>),
}

impl Cli {
    /// Parses a command line, whose first word is the program's own name.
    ///
    /// # Errors
    /// The command line is not valid, or asks for help.
    pub fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        if words.get(1).is_some_and(|word| word == "run") {
            if let Some(run) = plain::run(&words[2..]) {
                return Ok(Self { command: Command::Run(Box::new(run)) });
            }
            let RunCommand::Run(run) = RunCli::try_parse_from(words)?.command;
            return Ok(Self { command: Command::Run(run) });
        }
        Self::try_parse_from(words)
    }
}

/// The PIDs without repetitions: `$(pgrep ...)` may print one twice.
pub fn distinct(pids: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    pids.iter().copied().filter(|pid| seen.insert(*pid)).collect()
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
    fn the_overview_names_every_command_once_with_its_own_line_of_help() {
        let command = Cli::command();
        let mut wanted = String::new();
        for (heading, names) in GROUPS {
            wanted += &format!("{heading}:\n");
            for name in names {
                let about = command.find_subcommand(name).unwrap().get_about().unwrap();
                wanted += &format!("  {name:<11}  {about}\n");
            }
            wanted += "\n";
        }
        let commands = OVERVIEW.split("[OPTIONS]\n\n").nth(1).unwrap();
        assert_eq!(commands.split("Start with").next().unwrap(), wanted);
        let grouped: BTreeSet<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let visible: BTreeSet<&str> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(clap::Command::get_name).collect();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn the_overview_fits_on_a_screen() {
        assert!(OVERVIEW.lines().count() <= 50);
        assert!(OVERVIEW.lines().all(|line| line.chars().count() <= 96));
    }

    #[test]
    fn run_alone_is_parsed_as_among_all_commands() {
        for line in [
            "run ./app -x",
            "run -c 4 --wait=2h --balance ./app",
            "run",
            "run --help",
            "run -h",
            "run --no-such ./app",
            "run --mem",
            "run --strategy scater ./app",
            "run -c 4 -c 5 ./app",
        ] {
            let words: Vec<OsString> =
                ["trimtab"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
            let told = |parsed: Result<Cli, clap::Error>| match parsed {
                Ok(cli) => format!("{:?}", cli.command),
                Err(error) => error.render().to_string(),
            };
            assert_eq!(told(Cli::read(&words)), told(Cli::try_parse_from(&words)), "{line}");
        }
    }

    #[test]
    fn no_two_commands_differ_by_a_plural() {
        let command = Cli::command();
        let names: BTreeSet<&str> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(clap::Command::get_name).collect();
        assert!(names.iter().all(|name| !names.contains(format!("{name}s").as_str())));
    }
}
