//! What can be typed: one definition from which help, the man page, completions and the parser are made.

pub mod advise;
pub mod balance;
pub mod counters;
pub mod lab;
pub mod profile;
pub mod serve;
pub mod tune;
pub mod tuning;
pub mod view;

pub use advise::AdviseArgs;
pub use balance::{
    AttachArgs, BalanceArgs, CountingArgs, DetachArgs, PolicyArgs, ReplayArgs, ReportTo, report_to,
};
pub use counters::CountersArgs;
pub use lab::LabArgs;
pub use profile::ProfileArgs;
pub use serve::{ClearArgs, GuestArgs, ServeArgs, StatusArgs, TagArgs, Task, WhatArgs};
pub use time::Wait;
pub use tune::{Pace, TuneTeamArgs, Weight};
pub use tuning::{ProfilesArgs, ProfilesCommand, TuneArgs};
pub use view::{ReportArgs, TopArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::handoff::Roots;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{Amount, Fit, Format, MemoryRequest, Smt, Strategy};
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{SLICES, Setting};
pub use trimtab_front::args::time;
use trimtab_front::args::words;
use trimtab_launch::{EnvMode, PinMode, Thp};

/// Run parallel programs on free, well-placed cores.
///
/// `trimtab run ./app` finds cores that nobody uses, keeps other trimtab runs off them, puts threads and memory where
/// the machine's topology serves them best, and becomes the program. No daemon is needed, and no privilege.
#[derive(Parser, Debug)]
#[command(name = "trimtab", version, max_term_width = 100)]
#[command(
    after_help = "Start with:\n  trimtab topo                 what this machine is made of, and what is taken\n  \
    trimtab run ./app            run on all free cores\n  trimtab run -c 8 ./app       run on 8 of them\n  \
    trimtab plan -c 8 --explain  what a run would get, and why\n  trimtab ps                   who holds what\n  \
    trimtab top                  how threads run now\n  \
    trimtab profile ./app        what a program wants of its surroundings\n  \
    trimtab advise ./app         what would run it better, and why\n  \
    trimtab attach PID           balance what runs already\n  \
    trimtab serve                balance what is tagged, for everybody\n\n\
    Files: /etc/trimtab/{site,rules}.toml, ~/.config/trimtab/{site,rules}.toml. Manual: man trimtab"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Box<RunArgs>),
    Attach(AttachArgs),
    Detach(DetachArgs),
    Serve(ServeArgs),
    Tag(TagArgs),
    Clear(ClearArgs),
    Status(StatusArgs),
    Guest(GuestArgs),
    Replay(ReplayArgs),
    Plan(Box<PlanArgs>),
    Topo(TopoArgs),
    Ps(PsArgs),
    Top(TopArgs),
    Report(ReportArgs),
    Profile(ProfileArgs),
    Advise(AdviseArgs),
    Counters(CountersArgs),
    Doctor(DoctorArgs),
    Check(CheckArgs),
    /// Measure what placement does to benchmark programs on this machine.
    Bench(LabArgs),
    TuneTeam(TuneTeamArgs),
    Tune(TuneArgs),
    Profiles(ProfilesArgs),
    /// Simulate programs on machines that nobody here owns: what a scenario file says, under the policies of `trimtab run --balance`.
    Sim(LabArgs),
    #[command(hide = true)]
    Generate(LabArgs),
}

/// Run a program on free, well-placed cores.
///
/// Chooses cores, reserves them in the machine-wide ledger, sets CPU affinity, memory policy and huge pages, lowers
/// thread counts that exceed the CPUs, and then becomes the program: signals, exit status and terminal are the program's own.
/// The kernel gives the cores back when the program ends, however it ends. With --balance, --trace, --report or --ranks trimtab stays
/// as a parent that hands all of this on.
#[derive(Args, Debug, Clone)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub run: RunOnly,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "Examples:\n  trimtab run ./app                      all free cores\n  \
    trimtab run -c 16 ./app                16 free cores, close together\n  \
    trimtab run -c 2xl3 ./app              two whole L3 domains\n  \
    trimtab run -c 8/node -s scatter ./app 8 cores on every NUMA node\n  \
    trimtab run -c 64 --wait=2h ./app      wait up to two hours for 64 free cores\n  \
    trimtab run --nest 4,scatter,2,subcompact ./app   nested OpenMP: 4 teams far apart, 2 threads each, close\n  \
    trimtab run --balance ./app            keep its threads progressing alike while it runs\n  \
    trimtab run --ranks 4 -c 16 ./app      4 processes as one team, 4 cores each, without MPI\n  \
    mpirun -n 4 --bind-to none trimtab run -c 16 ./app   4 ranks share 16 cores, 4 each\n\n\
    Exit status: the program's own; 126 or 127 when it cannot be started; 125 when trimtab itself fails;\n\
    124 when there are not enough free cores (also after --wait=TIME).";

/// What a run gets.
#[derive(Args, Debug, Default, Clone)]
pub struct PlaceArgs {
    /// How many cores: auto, a count (64), a share (50%), whole units (node, 2xl3) or cores per unit (8/node, 2x8/node).
    ///
    /// Units are core, l2, l3, die, node, package, group and machine. auto takes every core that is free or less
    /// than half busy, up to the site's default. Under an MPI launcher the count is for all ranks of this machine together.
    #[arg(short, long, value_name = "EXPR", help_heading = "What")]
    pub cores: Option<Amount>,
    /// Exactly these CPUs, or with --cores only cores among these: kernel numbers, as in 0-7,16-23.
    #[arg(long, value_name = "LIST", help_heading = "What")]
    pub cpus: Option<CpuSet>,
    /// How threads are laid out: compact (close together), scatter (far apart), balanced (far apart, neighbours
    /// together), stride:N (every N-th core), stride:l2, stride:fpu, stride:core (one per unit).
    #[arg(short, long, value_name = "NAME", help_heading = "What")]
    pub strategy: Option<Strategy>,
    /// Hardware threads used per core: 1, 2, … or all. The core's others stay idle, not free.
    #[arg(long, value_name = "N", help_heading = "What")]
    pub smt: Option<Smt>,
    /// Core kinds of a hybrid machine: one (the fastest that has enough), any, or a name such as P or E.
    #[arg(long, value_name = "KIND", help_heading = "What")]
    pub kind: Option<String>,
    /// Memory: auto, local, bind, preferred, interleave, weighted or none, over all nodes of the plan; also with nodes
    /// of its own, as in bind:0,2 or preferred:hbm.
    #[arg(long, value_name = "POLICY", help_heading = "What")]
    pub mem: Option<MemoryRequest>,
    /// Transparent huge pages: inherit, off, advised (only where the program asks; Linux 6.18), or on (its allocator asks, by
    /// GLIBC_TUNABLES; glibc 2.35).
    #[arg(long, value_name = "MODE", value_parser = words::Words::<Thp>::of(Thp::words()), help_heading = "What")]
    pub thp: Option<Thp>,
    /// Nested OpenMP teams, outermost first: team size and strategy in turn, as in 4,scatter,2,subcompact.
    ///
    /// Strategies: compact (close together), scatter (far apart over everything), subcompact and subscatter (the same
    /// within the master's own part of the machine). A size of * is as many as fit. Without --cores, exactly the cores that
    /// the teams use are taken. Also by the variables TRIMTAB_NESTING and OMP_NESTING_TEAM_SIZE. Where no thread was placed
    /// when the program ends, one line says so; with --strict it fails.
    #[arg(long, value_name = "TEAMS", help_heading = "What")]
    pub nest: Option<String>,
    /// Overlap other runs on purpose: held cores may be used too, last.
    #[arg(long, help_heading = "When others are there")]
    pub share: bool,
    /// Accept fewer cores than asked for.
    #[arg(long, help_heading = "When others are there")]
    pub or_fewer: bool,
    /// How to look for foreign load and pins: auto (only when anything else is running), full, or none.
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "When others are there")]
    pub survey: SurveyMode,
    /// Ignore site and rules files.
    #[arg(long, help_heading = "Otherwise")]
    pub no_rules: bool,
    /// Fail instead of going on when something asked for cannot be had (memory policy, ledger, huge pages).
    #[arg(long, help_heading = "Otherwise")]
    pub strict: bool,
}

/// What only a real run has.
#[derive(Args, Debug, Default, Clone)]
pub struct RunOnly {
    /// Start N processes of the program as ranks of one team, placed by topology: they share the cores, as under an MPI launcher.
    ///
    /// Each finds its rank in RANK and LOCAL_RANK, N in WORLD_SIZE and LOCAL_WORLD_SIZE, and its team in TRIMTAB_TEAM. trimtab
    /// stays: it hands signals on, names the first rank that fails and ends with its status.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512), help_heading = "Ranks")]
    pub ranks: Option<u32>,
    /// Begin each line of output with the number of its rank.
    #[arg(long, requires = "ranks", help_heading = "Ranks")]
    pub prefix: bool,
    /// So many seconds after a rank failed the others get SIGTERM, and after as many again SIGKILL (default 5).
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=86400),
          requires = "ranks", help_heading = "Ranks")]
    pub grace: Option<u32>,
    /// Wait for enough free cores, first come first served; give up after TIME (30s, 10m, 2h) if given.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "forever",
          value_parser = time::wait, help_heading = "When others are there")]
    pub wait: Option<Wait>,
    /// Pin threads: auto (as the program's kind suggests; the default) or mask (leave them free inside the cores).
    #[arg(long, value_name = "HOW", value_parser = words::Words::<PinMode>::of(PinMode::words()),
          help_heading = "Otherwise")]
    pub pin: Option<PinMode>,
    /// Threads that runtimes are told to start (OMP_NUM_THREADS and its like). Without it, most count the CPUs of the run
    /// themselves and nothing is set. What you set yourself stays.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "What")]
    pub threads: Option<u32>,
    /// Thread counts that you set in the environment and that exceed the CPUs of the run: auto (they are lowered, outer
    /// levels of OMP_NUM_THREADS first; the default) or keep (they stay).
    ///
    /// Counts that fit are never changed, nor is a count that the program's command line states.
    #[arg(long, value_name = "HOW", value_parser = words::Words::<Fit>::of(Fit::ALL.map(Fit::word)),
          hide_possible_values = true, help_heading = "What")]
    pub fit: Option<Fit>,
    /// The scheduler's slice of each thread in milliseconds, 0.1 to 100 (Linux 6.12): short ones let threads that spin for each
    /// other take turns sooner, long ones keep caches warm.
    #[arg(long, value_name = "MS", value_parser = slice, help_heading = "Otherwise")]
    pub slice: Option<f64>,
    /// Be one of the ranks that --ranks starts.
    #[arg(long, hide = true, requires = "ranks")]
    pub as_rank: bool,
    /// End by SIGKILL when the process that started this ends.
    #[arg(long, hide = true)]
    pub with_parent: bool,
    /// Do not use what trimtab tune found for this program (trimtab profiles).
    #[arg(long, help_heading = "Otherwise")]
    pub no_profile: bool,
    #[command(flatten)]
    pub watch: BalanceArgs,
    /// How threads wait for each other, as far as their runtimes can be told: auto (a moment of spinning and then sleep where
    /// CPUs are short, else as the runtimes do; the default), spin, yield, sleep, or keep (nothing is set).
    ///
    /// CPUs are short where the program runs more threads than it has CPUs, or than its quota has. What you set yourself (OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME, ...) always stays.
    #[arg(long, value_name = "HOW", value_parser = words::Words::<WaitPolicy>::of(WaitPolicy::ALL.map(WaitPolicy::word)),
          hide_possible_values = true, help_heading = "Otherwise")]
    pub wait_policy: Option<WaitPolicy>,
    /// Report at the end what became of the threads: where they ran and moved, what they waited for, how often they met, what others
    /// took of their CPUs; with nested teams also where each of their threads was. As text or json on stderr, or in FILE or FILE.json.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "stderr",
          help_heading = "While it runs")]
    pub report: Option<OsString>,
    /// Threads that open regions by themselves after another one did: alone (left where they are), share (the same
    /// places), or part:N (the machine in N parts, one each).
    #[arg(long, value_name = "HOW", default_value = "alone", help_heading = "Otherwise")]
    pub nest_roots: Roots,
    /// set the environment, print what would be set and stop, or keep the environment as it is.
    #[arg(long, value_name = "WHAT", default_value = "set",
          value_parser = words::Words::<EnvMode>::of(EnvMode::words()), help_heading = "Otherwise")]
    pub env: EnvMode,
    /// Say on stderr what was chosen and why.
    #[arg(short, long, help_heading = "Otherwise")]
    pub verbose: bool,
    /// Say nothing but errors.
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Otherwise")]
    pub quiet: bool,
    /// A setting, each knob in the place of its option.
    #[arg(skip)]
    pub set: Setting,
    /// What `trimtab profile` asks for; nobody types it.
    #[arg(skip)]
    pub profile: Option<crate::profile::Ask>,
}

/// Show what a run would do, and why, without running or reserving anything.
///
/// Takes the options of trimtab run, and decides as it would now: cores, threads, variables, wait policy, what is preloaded. A
/// kept tuning applies, and so do rules, quotas and the variables of an MPI launcher.
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub run: RunOnly,
    /// Plan for another machine: an hwloc XML file (FILE.xml) or a description such as 'pack:2 numa:2 l3:2 core:4 pu:2'.
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Say why each choice was made.
    #[arg(long)]
    pub explain: bool,
    /// Draw the machine with the plan in it.
    #[arg(long)]
    pub map: bool,
    /// Print the plan as JSON (schema in docs/json.md).
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Print the plan for another tool: omp, taskset, numactl, likwid, slurm or cpuset.
    #[arg(long, value_name = "TOOL")]
    pub format: Option<Format>,
    /// The program the plan is for: decides what its environment needs.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Draw the machine: nodes, caches, cores, and what of it is allowed, held, pinned and busy.
#[derive(Args, Debug)]
pub struct TopoArgs {
    /// Draw another machine: an hwloc XML file (FILE.xml) or a description such as 'pack:2 numa:2 l3:2 core:4 pu:2'.
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Write an SVG picture to FILE (- for standard output).
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub svg: Option<PathBuf>,
    /// Print the machine and its state as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// How to look for foreign load and pins.
    #[arg(long, value_name = "HOW", default_value = "full")]
    pub survey: SurveyMode,
}

/// Show who holds which cores: user, process, command, age, load; and who runs on cores that others hold.
#[derive(Args, Debug)]
pub struct PsArgs {
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Draw the map of the machine too.
    #[arg(long)]
    pub map: bool,
}

/// Find the classic faults of machine and environment, and name remedies.
///
/// With a program, it is run plain and under trimtab run; where they end differently, each change that a run makes is left
/// out in turn, and the one that the program does not bear is named. The program gets no input, and its output is dropped.
///
/// Exit status 0 when all is well, 1 when something should be changed.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The longest time that one try of the program may take (30s, 10m).
    #[arg(long, value_name = "TIME", value_parser = time::lasting, requires = "command")]
    pub timeout: Option<trimtab_core::time::Span>,
    /// The program to try, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Check a plan (JSON of `trimtab plan --json`) against its machine: exit status 0 when it is good, 1 when it is not.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The plan; - for standard input.
    #[arg(value_name = "PLAN.json")]
    pub plan: PathBuf,
}

/// A slice that the kernel takes.
fn slice(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if SLICES.contains(&ms) => Ok(ms),
        _ => Err("milliseconds from 0.1 to 100 are needed".to_owned()),
    }
}

/// The same processes, each once: as they come out of `$(pgrep ...)` twice over.
pub fn distinct(pids: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    pids.iter().copied().filter(|pid| seen.insert(*pid)).collect()
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SurveyMode {
    #[default]
    Auto,
    Full,
    None,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::time::Duration;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let cli = Cli::parse_from(["trimtab", "run", "-c", "4", "./app", "-c", "9", "--", "-v"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.place.cores, Some(Amount::Cores(4)));
        assert_eq!(run.command, ["./app", "-c", "9", "--", "-v"]);
    }

    #[test]
    fn waiting_takes_a_time_only_after_an_equals_sign() {
        let cli = Cli::parse_from(["trimtab", "run", "--wait", "30", "x"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!((run.run.wait, run.command.len()), (Some(Wait(None)), 2));
        let cli = Cli::parse_from(["trimtab", "run", "--wait=90m", "x"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.run.wait, Some(Wait(Some(Duration::from_secs(5_400)))));
    }
}
