//! Options of `trimtab run`, which `trimtab plan` takes too.

use super::SurveyMode;
use super::balance::BalanceArgs;
use super::time::{self, Wait};
use super::words;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use trimtab_core::handoff::Roots;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{Amount, Fit, MemoryRequest, MemorySize, Smt, Strategy};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::setting::{SLICES, Setting};
use trimtab_core::topology::{CpuNames, DeviceName};
use trimtab_launch::options::{GrowMost, JobserverForm, SpinMode};
use trimtab_launch::preempt::PreemptPeriod;
use trimtab_launch::{EnvMode, PinMode, Thp};

/// Options that choose cores, threads and memory.
const PLACEMENT: &str = "Cores, threads and memory";
/// Options for a machine that other programs use too.
const SHARING: &str = "Sharing the machine";
/// Options of ranks.
const RANKS: &str = "Ranks";
/// Options that only experiments and special programs need.
const CONTROL: &str = "Control";

/// Run a program on free, well-placed cores.
///
/// Chooses cores, reserves them in the machine-wide ledger, sets the affinity mask, the memory
/// policy and huge pages, lowers thread counts that exceed the CPUs, and becomes the program:
/// signals, exit status and terminal are the program's own. The kernel releases the cores when the
/// program ends in any way. With --balance, --trace, --report, --jobserver or --ranks, trimtab
/// stays as the parent process and passes all of this on.
#[derive(Args, Debug, Clone)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = LONG_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub run: RunOnly,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const SHORT_EXAMPLES: &str = "Examples:\n  trimtab run ./app                    all free cores\n  \
    trimtab run -c 16 ./app              16 free cores, close together\n  \
    trimtab run -c 64 --wait=2h ./app    wait up to two hours for 64 free cores\n  \
    trimtab run --balance ./app          keep its threads progressing at the same speed\n\n\
    --help shows all options: thread counts, waiting, huge pages, ranks, traces.";

const LONG_EXAMPLES: &str = "Examples:\n  trimtab run ./app                        all free cores\n  \
    trimtab run -c 16 ./app                  16 free cores, close together\n  \
    trimtab run -c 2xl3 ./app                two whole L3 domains\n  \
    trimtab run -c 8/node -s scatter ./app   8 cores on every NUMA node\n  \
    trimtab run -c 64 --wait=2h ./app        wait up to two hours for 64 free cores\n  \
    trimtab run --nest 4,scatter,2,subcompact ./app\n                                           \
    nested OpenMP: 4 teams far apart, 2 threads each, close\n  \
    trimtab run --balance ./app              keep its threads progressing at the same speed\n  \
    trimtab run --ranks 4 -c 16 ./app        4 processes as one team, 4 cores each, without MPI\n  \
    mpirun -n 4 --bind-to none trimtab run -c 16 ./app\n                                           \
    4 MPI ranks share 16 cores, 4 each\n\n\
    Exit status: the program's own; 126 or 127 if it cannot be started; 125 if trimtab itself fails;\n\
    124 if there are not enough free cores (also after --wait=TIME).";

/// Options that decide the placement.
#[derive(Args, Debug, Default, Clone)]
pub struct PlaceArgs {
    /// Number of cores: auto, a count (64), a share (50%), whole units (node, 2xl3), or cores per
    /// unit (8/node, 2x8/node).
    ///
    /// Units are core, l2, l3, die, node, package, group and machine. auto takes every core that is
    /// free or less than half busy, up to the site's default and to what a workload manager such as
    /// Slurm granted the job on this machine. Under an MPI launcher the count is for all ranks on
    /// this machine together.
    #[arg(short, long, value_name = "EXPR", value_parser = amounts(), hide_possible_values = true,
          help_heading = PLACEMENT)]
    pub cores: Option<Amount>,
    /// Use exactly these CPUs; with --cores, choose cores among these. Kernel numbers: 0-7,16-23;
    /// or parts of the machine: S0:0-3@S1:0-3, node:1.core:even.
    ///
    /// S0:0-3 are the first four CPUs of package 0, first hardware threads before second ones. N or
    /// M is a node, C a last-level cache, D a die; N:0-3 counts over the whole machine. A path
    /// names units inside units, with all their CPUs: a level (package, die, node, l3, l2, core,
    /// pu) and all, even, odd or a list. Units are counted from 0 in the order of trimtab topo,
    /// nodes at the beginning by the kernel's numbers. @ joins several of these.
    #[arg(long, value_name = "LIST", help_heading = PLACEMENT)]
    pub cpus: Option<CpuNames>,
    /// Choose cores near a device: gpu:0, nic:mlx5_0, disk:nvme0n1, pci:0000:3b:00.0, or the disk
    /// with a file, file:/data; gpu:each for ranks, each near its own.
    ///
    /// If the cores near it do not suffice, the nearest others are added. trimtab topo lists the
    /// devices of the machine. gpu:each (or nic:each) deals the devices to the ranks on this
    /// machine in order: with as many ranks as devices, rank 2 gets cores near device 2. Fewer
    /// ranks get several devices each, more ranks share them.
    #[arg(long, value_name = "DEVICE", hide_short_help = true, help_heading = PLACEMENT)]
    pub near: Option<DeviceName>,
    /// With --near gpu:each, let each rank see only its own devices: sets CUDA_VISIBLE_DEVICES,
    /// ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK.
    ///
    /// For programs that use the first device that they see. A program that numbers its device by
    /// its rank needs all of them. A variable that is set already stays, and a message says so.
    #[arg(long, requires = "near", hide_short_help = true, help_heading = PLACEMENT)]
    pub visible_devices: bool,
    /// Layout of the threads: compact (close together), scatter (far apart), balanced (far apart,
    /// neighbours together), stride:N (every N-th core), stride:l2, stride:fpu or stride:core (one
    /// per unit).
    #[arg(short, long, value_name = "NAME", value_parser = strategies(), hide_possible_values = true,
          help_heading = PLACEMENT)]
    pub strategy: Option<Strategy>,
    /// Hardware threads to use on each core: 1, 2, ... or all. The others of the core stay idle.
    #[arg(long, value_name = "N", value_parser = words::Words::<Smt>::among(["1", "2", "all"]),
          hide_possible_values = true, hide_short_help = true, help_heading = PLACEMENT)]
    pub smt: Option<Smt>,
    /// Kind of cores on a hybrid machine: one (the fastest kind with enough cores), any, or a name
    /// such as P, E or LP-E; largest-l3 for the cores with the largest last-level cache (X3D).
    #[arg(long, value_name = "KIND", hide_short_help = true, help_heading = PLACEMENT)]
    pub kind: Option<String>,
    /// Memory policy: auto, local, bind, preferred, interleave, weighted or none, on the nodes of
    /// the plan; or on given nodes: bind:0,2 or preferred:hbm, for which hbm is enough.
    #[arg(long, value_name = "POLICY", value_parser = memory_policies(), hide_possible_values = true,
          help_heading = PLACEMENT)]
    pub mem: Option<MemoryRequest>,
    /// Memory that must be available on the nodes of the run, and that it holds: 512M, 64G, 1.5T.
    ///
    /// Free memory and the caches of files count, without memory that other runs hold and do not
    /// use yet. Among equally good cores, those on nodes with this much memory are chosen. If the
    /// nodes of the cores have less, the nearest other nodes are added to the memory policy; if
    /// these do not suffice either, the run is refused, or waits with --wait if others hold the
    /// rest.
    #[arg(long, value_name = "SIZE", hide_short_help = true, help_heading = PLACEMENT)]
    pub mem_size: Option<MemorySize>,
    /// Transparent huge pages: inherit, off, advised (only if the program requests them; Linux
    /// 6.18), or on (the allocator requests them by GLIBC_TUNABLES; glibc 2.35).
    #[arg(long, value_name = "MODE", value_parser = words::Words::<Thp>::of(Thp::words()),
          hide_possible_values = true, hide_short_help = true, help_heading = PLACEMENT)]
    pub thp: Option<Thp>,
    /// Nested OpenMP teams, outermost first: team size and strategy in turn, as in
    /// 4,scatter,2,subcompact.
    ///
    /// Strategies: compact (close together), scatter (far apart over all cores), subcompact and
    /// subscatter (the same within the master's own part of the machine). A size of * means as many
    /// threads as fit. Without --cores, the run takes exactly the cores that the teams use. The
    /// variables TRIMTAB_NESTING and OMP_NESTING_TEAM_SIZE have the same effect. If no thread was
    /// placed when the program ends, a message reports it; with --strict the run fails.
    #[arg(long, value_name = "TEAMS", help_heading = PLACEMENT)]
    pub nest: Option<String>,
    /// Overlap other runs: use held cores too, after all free ones.
    #[arg(long, help_heading = SHARING)]
    pub share: bool,
    /// Accept fewer cores than requested.
    #[arg(long, hide_short_help = true, help_heading = SHARING)]
    pub or_fewer: bool,
    /// How to measure the load and the pinned threads of other programs: auto (only if anything
    /// else is running), full, or none.
    #[arg(long, value_name = "HOW", default_value = "auto", hide_possible_values = true, hide_short_help = true,
          help_heading = SHARING)]
    pub survey: SurveyMode,
    /// Ignore site and rules files.
    #[arg(long, hide_short_help = true, help_heading = CONTROL)]
    pub no_rules: bool,
    /// Fail if a requested item is not available (memory policy, ledger, huge pages), instead of
    /// running without it.
    #[arg(long, hide_short_help = true, help_heading = CONTROL)]
    pub strict: bool,
}

/// Options of a launch beyond its placement.
#[derive(Args, Debug, Default, Clone)]
pub struct RunOnly {
    /// Start N processes of the program as ranks of one team, placed by topology: they share the
    /// cores, as under an MPI launcher.
    ///
    /// Without --cores each rank gets at least one core of its own, if necessary a busy one. If
    /// there are fewer cores than ranks, the run fails; --wait waits for cores, and --share also
    /// takes held ones. With --or-fewer or a count of cores the ranks share cores, and a warning
    /// says so.
    ///
    /// Each process finds its rank in RANK and LOCAL_RANK, N in WORLD_SIZE and LOCAL_WORLD_SIZE,
    /// and its team in TRIMTAB_TEAM. trimtab stays as the parent: it passes signals on, names the
    /// first rank that fails, and ends with the status of that rank.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512),
          hide_short_help = true, help_heading = RANKS)]
    pub ranks: Option<u32>,
    /// Begin each line of output with the number of its rank.
    #[arg(long, requires = "ranks", hide_short_help = true, help_heading = RANKS)]
    pub prefix: bool,
    /// Memory of the team for blocks that ranks allocate in it: 16M (the default), 1.5G. It is
    /// reserved before the ranks start.
    #[arg(long, value_name = "SIZE", requires = "ranks", hide_short_help = true, help_heading = RANKS)]
    pub heap: Option<MemorySize>,
    /// Let teams carry out the collectives of an MPI program between its ranks on this machine.
    ///
    /// The command is a launcher and its program (mpirun ./app), or such a program. A library for
    /// the MPI of the program is compiled with its mpicc, once, and preloaded into the ranks; one
    /// line says so, or why not, and then the program runs without it. With --strict it does not.
    #[arg(long, conflicts_with_all = ["ranks", "grow"], hide_short_help = true, help_heading = RANKS)]
    pub teams: bool,
    /// Seconds from the failure of a rank to SIGTERM for the others, and from there to SIGKILL
    /// (default 5).
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=86400),
          requires = "ranks", hide_short_help = true, help_heading = RANKS)]
    pub grace: Option<u32>,
    /// Wait for enough free cores, first come first served; give up after TIME (30s, 10m, 2h) if
    /// it is given.
    ///
    /// A later run starts before an earlier one only on cores whose loss does not delay the earlier
    /// one. trimtab ps shows the queue.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "forever",
          value_parser = time::wait, help_heading = SHARING)]
    pub wait: Option<Wait>,
    /// Position among the runs that wait: one level counts as ten minutes of waiting, negative
    /// numbers let others pass. Users other than root get at most the max-priority of site.toml
    /// (0).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(-100..=100),
          allow_negative_numbers = true, requires = "wait", hide_short_help = true, help_heading = SHARING)]
    pub priority: Option<i32>,
    /// Pin threads: auto (by the kind of program; the default) or mask (the threads float inside
    /// the cores).
    #[arg(long, value_name = "HOW", value_parser = words::Words::<PinMode>::of(PinMode::words()),
          hide_possible_values = true, hide_short_help = true, help_heading = CONTROL)]
    pub pin: Option<PinMode>,
    /// Number of threads that runtimes start, set by OMP_NUM_THREADS and similar variables. Without
    /// this option no variable is set, and most runtimes count the CPUs of the run themselves.
    /// Variables that you set are kept.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(super::plain::THREADS),
          hide_short_help = true, help_heading = PLACEMENT)]
    pub threads: Option<u32>,
    /// Thread counts that exceed the CPUs of the run: auto (lower those in your environment, outer
    /// levels of OMP_NUM_THREADS first; the default), keep (change nothing), budget (also make
    /// teams smaller that start while all processes of the run together compute with more threads
    /// than it has CPUs) or limit (also make teams smaller whose size the program demands).
    ///
    /// Counts that fit are never changed, nor is a count that the program's command line states.
    /// With budget and limit, OpenMP teams and calls of OpenBLAS, MKL and BLIS in all processes of
    /// the run share its CPUs while they run. A program that relies on its number of threads may
    /// fail then, or with limit compute wrong results; libraries known for it (XGBoost) keep their
    /// numbers.
    #[arg(long, value_name = "HOW", value_parser = words::Words::<Fit>::of(Fit::ALL.map(Fit::word)),
          hide_possible_values = true, hide_short_help = true, help_heading = PLACEMENT)]
    pub fit: Option<Fit>,
    /// Let make, cargo and ninja 1.13 share the cores of the run: each job beyond the first of a
    /// tool needs a token, and there are as many tokens as cores, less one. Nested builds and
    /// several builds in one run then start no more jobs together than a single one.
    ///
    /// Use it for make -j without a number, for cargo and ninja, and for scripts that start them;
    /// make finds it in MAKEFLAGS, so a make without -j in a script becomes parallel. A number of
    /// jobs that you give takes precedence. trimtab stays as the parent: it replaces tokens of
    /// tools that were killed, and withholds some while more tasks compute than the run has cores.
    /// FORM is auto (by the tools that are installed; the default), fifo (GNU make 4.4 and ninja
    /// read no other; older make stops at it) or pipe.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = words::Words::<JobserverForm>::of(JobserverForm::words()),
          hide_possible_values = true, hide_short_help = true, help_heading = PLACEMENT)]
    pub jobserver: Option<JobserverForm>,
    /// Scheduler slice of each thread in milliseconds, 0.1 to 100 (Linux 6.12). With short slices,
    /// threads that spin for each other take turns sooner; long slices keep caches warm.
    #[arg(long, value_name = "MS", value_parser = slice, hide_short_help = true, help_heading = CONTROL)]
    pub slice: Option<f64>,
    /// Let the program's threads take turns of US microseconds (20 to 4000; 100 if not given) while
    /// more threads are runnable than the run has CPUs: for programs whose threads spin on flags in
    /// their own code, on which a wait policy has no effect.
    ///
    /// trimtab stays as the parent, and one of its threads wakes on each CPU once per turn. The
    /// program receives no signal. Preempting needs the right to real-time scheduling
    /// (CAP_SYS_NICE, or ulimit -r 1); without it a short slice is used (Linux 6.12), which
    /// preempts less often. Preempting can make other programs slower: measure with and without it.
    #[arg(long, value_name = "US", num_args = 0..=1, require_equals = true, default_missing_value = "100",
          hide_short_help = true, help_heading = CONTROL)]
    pub preempt: Option<PreemptPeriod>,
    /// Treatment of loops in the program's own code that only wait for a flag, on which a wait
    /// policy has no effect: keep (they spin; the default) or yield (they yield while the program
    /// has more threads than CPUs).
    ///
    /// With yield, the preload library looks for such loops while threads are more than CPUs, and
    /// leads their backward jump, in memory, through instructions that yield. The program's threads
    /// receive no signal. It needs x86-64, Linux 5.9 and the permission to sample
    /// (kernel.perf_event_paranoid at most 2); without these the program runs as with keep.
    /// --report names the loops and counts their yields.
    #[arg(long, value_name = "HOW", value_parser = words::Words::<SpinMode>::of(SpinMode::words()),
          hide_possible_values = true, hide_short_help = true, help_heading = CONTROL)]
    pub spin: Option<SpinMode>,
    /// Take more cores while the program runs, when some become free and it has more threads that
    /// compute than cores: up to MOST cores, or as many as are free.
    ///
    /// A helper process looks about once a second. A core is taken after it was free for a second.
    /// Cores beyond those of the start are given back when a run waits for them, and when the
    /// program has not used them for five seconds; a later run that would be refused waits two
    /// seconds for that. Threads float inside the cores (as with --pin mask). Runtimes fix their
    /// number of threads at the start: with --grow=8 they are told 8 (--threads 8), and OpenMP
    /// teams and BLAS calls use as many of them as there are cores (--fit budget). With --grow
    /// alone, thread counts are those of the start.
    #[arg(long, value_name = "MOST", num_args = 0..=1, require_equals = true, default_missing_value = "free",
          conflicts_with_all = ["nest", "share", "ranks", "balance"],
          hide_short_help = true, help_heading = PLACEMENT)]
    pub grow: Option<GrowMost>,
    /// With --grow: give cores beyond those of the start back to programs that trimtab did not
    /// start, too: to those of these users, by name or number (ann,www-data), of all users (all),
    /// or to none (runs).
    ///
    /// Runs that wait always get cores back. Other programs do not ask: they share the CPUs of the
    /// run. With this option the run gives back the cores that threads of such programs have lacked
    /// for a second: cores that they may use, beyond those outside of holds, whether or not other
    /// users compute there. Without it, yield-to in site.toml counts, or else runs. A run inside
    /// another hold yields to no such program. Of no use where holds are enforced, since the kernel
    /// keeps other programs off held cores there.
    #[arg(long, value_name = "USERS", hide_short_help = true, help_heading = PLACEMENT)]
    pub yield_to: Option<YieldTo>,
    /// Be one of the ranks that --ranks starts.
    #[arg(long, hide = true, requires = "ranks")]
    pub as_rank: bool,
    /// End by SIGKILL when the process that started this one ends.
    #[arg(long, hide = true)]
    pub with_parent: bool,
    /// Ignore the settings that `trimtab tune` kept for this program.
    #[arg(long, alias = "no-profile", hide_short_help = true, help_heading = CONTROL)]
    pub no_tuning: bool,
    #[command(flatten)]
    pub watch: BalanceArgs,
    /// How threads wait for each other, if their runtime has a setting for it: auto (spin briefly,
    /// then sleep, if the program has more threads than CPUs; otherwise as the runtime does; the
    /// default), spin, yield, sleep, or keep (nothing is set).
    ///
    /// OpenMP's words active and passive mean spin and sleep. Your own variables always stay
    /// (OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME, ...).
    #[arg(long, value_name = "HOW", value_parser = wait_policies(), hide_possible_values = true,
          hide_short_help = true, help_heading = CONTROL)]
    pub wait_policy: Option<WaitPolicy>,
    /// Report at the end where the threads ran and moved, how long they waited and for what, how
    /// often they synchronised at barriers, and how much of their CPUs other programs used; with
    /// nested teams, also where each thread was. As text or json on stderr, or in FILE or
    /// FILE.json.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "stderr",
          value_hint = ValueHint::FilePath, help_heading = super::balance::HEADING)]
    pub report: Option<OsString>,
    /// Placement of threads that open parallel regions on their own, after the first such thread:
    /// alone (not placed), share (the same places), or part:N (one of N parts of the machine each).
    #[arg(long, value_name = "HOW", default_value = "alone", hide_possible_values = true,
          value_parser = words::Words::<Roots>::among(["alone", "share"]), hide_short_help = true,
          help_heading = CONTROL)]
    pub nest_roots: Roots,
    /// The program's environment: set (the plan's variables), print (show the variables and stop),
    /// or keep (unchanged).
    #[arg(long, value_name = "WHAT", default_value = "set", hide_short_help = true,
          value_parser = words::Words::<EnvMode>::of(EnvMode::words()), hide_possible_values = true,
          help_heading = CONTROL)]
    pub env: EnvMode,
    /// Print the choices and their reasons on stderr.
    #[arg(short, long, help_heading = CONTROL)]
    pub verbose: bool,
    /// Print errors only.
    #[arg(short, long, conflicts_with = "verbose", hide_short_help = true, help_heading = CONTROL)]
    pub quiet: bool,
    /// A setting; each knob in it has the effect of its option.
    #[arg(skip)]
    pub set: Setting,
    /// Data that `trimtab profile` requests from a run. Not an option.
    #[arg(skip)]
    pub profile: Option<crate::profile::Ask>,
}

/// Parser of counts of cores: the words for units are offered and suggested.
pub(super) fn amounts() -> words::Words<Amount> {
    words::Words::among(["auto", "core", "l2", "l3", "die", "node", "package", "machine"])
}

/// Parser of strategies.
fn strategies() -> words::Words<Strategy> {
    words::Words::among(["compact", "scatter", "balanced", "stride:l2", "stride:fpu", "stride:core"])
}

/// Parser of memory policies.
fn memory_policies() -> words::Words<MemoryRequest> {
    words::Words::among(["auto", "local", "bind", "preferred", "interleave", "weighted", "none"])
}

/// Parser of wait policies, which also accepts OpenMP's two words.
pub(super) fn wait_policies() -> words::Words<WaitPolicy> {
    words::Words::of(WaitPolicy::ALL.map(WaitPolicy::word)).and(&[("active", "spin"), ("passive", "sleep")])
}

/// Parses a scheduler slice in milliseconds; an error states the range that the kernel accepts.
fn slice(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if SLICES.contains(&ms) => Ok(ms),
        _ => Err("expected milliseconds from 0.1 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::{CommandFactory, Parser};
    use std::time::Duration;

    fn parsed(line: &[&str]) -> Box<RunArgs> {
        let Command::Run(run) = Cli::parse_from(["trimtab", "run"].iter().chain(line)).command else {
            panic!()
        };
        run
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let run = parsed(&["-c", "4", "./app", "-c", "9", "--", "-v"]);
        assert_eq!(run.place.cores, Some(Amount::Cores(4)));
        assert_eq!(run.command, ["./app", "-c", "9", "--", "-v"]);
    }

    #[test]
    fn waiting_takes_a_time_only_after_an_equals_sign() {
        let run = parsed(&["--wait", "30", "x"]);
        assert_eq!((run.run.wait, run.command.len()), (Some(Wait(None)), 2));
        let run = parsed(&["--wait=90m", "x"]);
        assert_eq!(run.run.wait, Some(Wait(Some(Duration::from_secs(5_400)))));
    }

    #[test]
    fn openmps_words_for_waiting_are_understood() {
        assert_eq!(parsed(&["--wait-policy", "passive", "x"]).run.wait_policy, Some(WaitPolicy::Sleep));
        assert_eq!(parsed(&["--wait-policy", "active", "x"]).run.wait_policy, Some(WaitPolicy::Spin));
    }

    #[test]
    fn short_help_shows_the_ten_options_that_most_people_need() {
        let mut cli = Cli::command();
        let run = cli.find_subcommand_mut("run").unwrap();
        let shown: Vec<String> = run
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && !arg.is_hide_short_help_set() && !arg.is_positional())
            .map(|arg| arg.get_id().to_string())
            .collect();
        let wanted = "cores cpus strategy mem nest share wait balance report verbose";
        let mut wanted: Vec<&str> = wanted.split(' ').collect();
        let mut shown: Vec<&str> = shown.iter().map(String::as_str).filter(|id| *id != "help").collect();
        wanted.sort_unstable();
        shown.sort_unstable();
        assert_eq!(shown, wanted);
        assert!(run.render_help().to_string().lines().count() <= 50);
    }
}
