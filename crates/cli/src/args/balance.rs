//! Options of balancing: of a new run, of programs that are already running, and of a recorded run.

use super::time;
use super::words::Words;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_agent::metrics::Address;
use trimtab_agent::monitored_host::CountingOptions;
use trimtab_agent::targets::vm_name;
use trimtab_core::balance::{Candidates, Kind, PenaltySettings, Settings};
use trimtab_core::counts::Rung;
use trimtab_core::observe::Metric;
use trimtab_core::penalty::{Index, Mean};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_front::args::numbers::cpu_share;
use trimtab_linux::perf::Choice;
use trimtab_linux::vcpus::VmName;

/// Heading of these options in help.
pub(super) const HEADING: &str = "While the program runs";

/// Parser of policies.
pub(super) fn policies() -> Words<Kind> {
    Words::of(Kind::ALL.map(Kind::word))
}

/// Parser of choices of hardware counters.
pub(super) fn choices() -> Words<Choice> {
    Words::of(["auto", "off"].into_iter().chain(Rung::ALL.map(Rung::word)))
}

/// Parser of indices of the uncore penalty.
fn indices() -> Words<Index> {
    Words::of(Index::ALL.map(Index::word))
}

/// Parser of means over threads.
fn means() -> Words<Mean> {
    Words::of(Mean::ALL.map(Mean::word))
}

/// Parser of choices of threads.
fn candidates() -> Words<Candidates> {
    Words::of(Candidates::ALL.map(Candidates::word))
}

const MOVE_MEMORY: &str = "--move-memory";
const BUDGET: &str = "--budget";
const FREE: &str = "--free";

/// Settings of a policy.
#[derive(Args, Debug, Default, Clone)]
pub struct PolicyArgs {
    /// Time between two samples: 100ms, 1s (default 100ms; 10ms for brm, brm-paper and serial).
    /// auto samples more often while it balances, and less often otherwise.
    ///
    /// Single policies sample once an interval. auto samples every 50 ms until it has decided, up
    /// to five intervals apart if there is nothing to do, and while threads take turns as often as
    /// its cost allows (1/250 of a core), between 10 ms and the interval. --report alone samples
    /// after a twentieth of the run so far, from 10 ms to 1 s.
    #[arg(long, value_name = "TIME", value_parser = time::interval, hide_short_help = true, help_heading = HEADING)]
    pub interval: Option<Span>,
    /// Seed of everything random in balancing; the trace records it (default 0).
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = HEADING)]
    pub seed: Option<u64>,
    /// Definition of a thread's speed: run-wait (its CPU time over the time it was runnable; the
    /// default) or cpu-share (its CPU time over the elapsed time).
    #[arg(long, value_name = "METRIC", hide_possible_values = true, hide_short_help = true, help_heading = HEADING)]
    pub speed_metric: Option<SpeedMetric>,
    /// Allow moves of threads to other NUMA nodes, away from their memory.
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub across_nodes: bool,
    /// With auto, let threads leave their own masks if these crowd them: bound by the program or
    /// its launcher, so that some CPUs have more threads than others. Without it, all policies
    /// respect these masks. When balancing ends, every thread gets its own mask back.
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub free: bool,
    /// Index that brm, brm-paper and serial compare: penalty (cycles for each request beyond the
    /// private caches), busy (such cycles for each instruction), cpi, share, miss-rate, far or
    /// estimate.
    ///
    /// By default, brm and serial use the index that this machine's counters support (see trimtab
    /// counters): busy, or penalty if threads spin at barriers. brm-paper uses penalty.
    #[arg(long, value_name = "INDEX", value_parser = indices(), hide_possible_values = true,
          hide_short_help = true, help_heading = HEADING)]
    pub index: Option<Index>,
    /// Mean of the index over threads: weighted (by requests; the default) or sum (the default of
    /// brm-paper).
    #[arg(long, value_name = "MEAN", value_parser = means(), hide_possible_values = true,
          hide_short_help = true, help_heading = HEADING)]
    pub mean: Option<Mean>,
    /// Threads that brm, brm-paper and serial may move: auto (tagged and stalling threads;
    /// brm-paper: tagged threads, or all threads if none is tagged; the default), tagged or all.
    #[arg(long, value_name = "WHICH", value_parser = candidates(), hide_possible_values = true,
          hide_short_help = true, help_heading = HEADING)]
    pub candidates: Option<Candidates>,
    /// With brm or serial, migrate a process's private memory to the node where all its threads
    /// stayed for a second after a move. Pages move in small steps; reserved huge pages, and pages
    /// that a memory policy or a device holds, stay. A message reports the amount of memory that
    /// was migrated, and the reason for the rest.
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub move_memory: bool,
    /// Share of one CPU that brm, serial or the service may use for sampling: 0.5%, 2% (default
    /// 1%). The time between samples grows until the share is kept.
    #[arg(long, value_name = "PERCENT", value_parser = cpu_share, hide_short_help = true, help_heading = HEADING)]
    pub budget: Option<f64>,
}

/// Choice of hardware counters.
#[derive(Args, Debug, Default, Clone)]
pub struct CountingArgs {
    /// Hardware counters of threads: auto (the best that work here; the default), off, a rung of
    /// the ladder (exact, proxy, generic, hint-faults, residency), or events as ROLE=EVENT,... (see
    /// trimtab counters).
    ///
    /// Without this option, counters are used only by policies that need them. With it, they are
    /// used by all policies and recorded in the trace.
    #[arg(long, value_name = "WHAT", value_parser = choices(), hide_possible_values = true,
          hide_short_help = true, help_heading = HEADING)]
    pub counters: Option<Choice>,
}

impl CountingArgs {
    /// The choice of counters.
    pub fn choice(&self) -> Choice {
        self.counters.clone().unwrap_or_default()
    }

    /// The choice, and whether counters are used even if the policy does not need them.
    pub fn options(&self) -> CountingOptions {
        let always = self.counters.as_ref().is_some_and(|choice| *choice != Choice::Off);
        CountingOptions { choice: self.choice(), always }
    }
}

impl PolicyArgs {
    /// Returns `settings`, in which the given options replace values.
    pub fn over(&self, settings: Settings) -> Settings {
        Settings {
            seed: self.seed.unwrap_or(settings.seed),
            interval: self.interval.unwrap_or(settings.interval),
            metric: self.speed_metric.map_or(settings.metric, Metric::from),
            across_nodes: self.across_nodes || settings.across_nodes,
            free: self.free || settings.free,
            penalty: PenaltySettings {
                index: self.index.or(settings.penalty.index),
                mean: self.mean.or(settings.penalty.mean),
                candidates: self.candidates.unwrap_or(settings.penalty.candidates),
                move_memory: self.move_memory || settings.penalty.move_memory,
                budget: self.budget.unwrap_or(settings.penalty.budget),
                ..settings.penalty
            },
            ..settings
        }
    }

    /// Name of the first of these options that was given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            (self.interval.is_some(), "--interval"),
            (self.seed.is_some(), "--seed"),
            (self.speed_metric.is_some(), "--speed-metric"),
            (self.across_nodes, "--across-nodes"),
            (self.free, FREE),
        ];
        options.into_iter().chain(self.penalties()).find_map(|(given, name)| given.then_some(name))
    }

    /// Names of the options of the uncore penalty, and whether each was given.
    fn penalties(&self) -> [(bool, &'static str); 5] {
        [
            (self.index.is_some(), "--index"),
            (self.mean.is_some(), "--mean"),
            (self.candidates.is_some(), "--candidates"),
            (self.move_memory, MOVE_MEMORY),
            (self.budget.is_some(), BUDGET),
        ]
    }

    /// Returns the reason why one of these options has no effect with a policy; `None` if all have
    /// one.
    pub fn unfit(&self, kind: Kind) -> Option<String> {
        if self.free && kind != Kind::Auto {
            return Some(format!(
                "{FREE} has no effect with {kind}, which keeps every thread within its own mask: it applies to auto"
            ));
        }
        let given = |fits: fn(&str) -> bool| {
            self.penalties().into_iter().find_map(|(given, name)| (given && !fits(name)).then_some(name))
        };
        if !kind.by_penalty() {
            return given(|_| false).map(|name| {
                format!("{name} has no effect with {kind}: it applies to brm, brm-paper and serial")
            });
        }
        let paper = |name: &str| name != MOVE_MEMORY && name != BUDGET;
        given(paper).filter(|_| kind == Kind::BrmPaper).map(|name| {
            format!(
                "{name} has no effect with {kind}, which follows the published rule exactly: use brm or serial"
            )
        })
    }
}

/// Options of a run that trimtab observes or balances.
#[derive(Args, Debug, Default, Clone)]
pub struct BalanceArgs {
    /// Keep the threads progressing at the same speed: auto (finds the cause of a delay and treats
    /// it, or does nothing; the default), speed, exchange, nudge, brm, brm-paper, serial, pinned or
    /// float.
    ///
    /// trimtab stays as the program's parent and passes on signals, job control, terminal and exit
    /// status. OpenMP threads are not bound at their start, unless you bind them by OMP_PROC_BIND.
    #[arg(long, value_name = "POLICY", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = policies(), hide_possible_values = true, help_heading = HEADING)]
    pub balance: Option<Kind>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Record samples, decisions and actions in FILE, one line of JSON for each sample
    /// (docs/json.md; `trimtab replay` and `trimtab report` read it).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true, help_heading = HEADING)]
    pub trace: Option<PathBuf>,
    /// Serve metrics to Prometheus at unix:PATH or 127.0.0.1:PORT. An address that other machines
    /// reach must be written as public:ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS", hide_short_help = true, help_heading = HEADING)]
    pub metrics: Option<Address>,
}

/// Balance programs that are already running.
///
/// Balances whole process trees until they end or you stop it. Threads move within their own masks,
/// with --free also to other CPUs. When balancing ends, also by Ctrl-C, every thread gets
/// its previous mask back. Your own programs need no privilege.
#[derive(Args, Debug)]
#[command(after_help = ATTACH_EXAMPLES)]
pub struct AttachArgs {
    /// Processes; all their descendants are balanced with them.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), required_unless_present_any = ["cgroup", "vm"])]
    pub pids: Vec<u32>,
    /// All processes of a cgroup and of the cgroups below it: a path such as /user.slice/... or a
    /// folder of /sys/fs/cgroup.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub cgroup: Option<PathBuf>,
    /// The vCPUs of a virtual machine: its name (QEMU's -name, which is libvirt's domain), its
    /// process, or its QMP socket. May be given several times.
    ///
    /// Only vCPU threads move; I/O threads stay where they are. The vCPUs are found by QMP, by
    /// KVM's debugfs, by the names of threads (QEMU: -name NAME,debug-threads=on) or by KVM's file
    /// descriptors. vCPUs that are plugged in later are found too. Masks that libvirt sets are
    /// respected.
    #[arg(long, value_name = "NAME|PID|QMP-SOCKET", value_parser = vm_name)]
    pub vm: Vec<VmName>,
    /// Policy: auto, speed, exchange, nudge, brm, brm-paper, serial, pinned or float (observes
    /// only).
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policies(), hide_possible_values = true)]
    pub balance: Kind,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// CPUs that threads may move to, instead of all CPUs that the programs' threads may use
    /// together (with --free: instead of all CPUs of the machine). Threads leave their own masks
    /// only with --free.
    #[arg(long, value_name = "LIST", help_heading = HEADING)]
    pub cpus: Option<CpuSet>,
    /// Do not move threads that are bound to fewer CPUs than the others.
    #[arg(long, help_heading = HEADING)]
    pub respect_masks: bool,
    /// Accept PID 1, the ancestor of all processes of the machine, without a question.
    #[arg(long, help_heading = HEADING)]
    pub yes: bool,
    /// Stop after this time: 30s, 10m, 2h.
    #[arg(long = "for", value_name = "TIME", value_parser = time::lasting, help_heading = HEADING)]
    pub time: Option<Span>,
    /// Record samples, decisions and actions in FILE, one line of JSON for each sample; - for
    /// standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    pub trace: Option<PathBuf>,
    /// Print each sample as a line of JSON, as in a trace (the same as --trace -).
    #[arg(long, conflicts_with = "trace")]
    pub json: bool,
    /// Serve metrics to Prometheus at unix:PATH or 127.0.0.1:PORT. An address that other machines
    /// reach must be written as public:ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS", hide_short_help = true, help_heading = HEADING)]
    pub metrics: Option<Address>,
    /// Print findings when they are made.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print errors only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

const DETACH_STATUS: &str = "Exit status: 0 if balancing has ended or masks were given back, 1 if there was nothing to end, 2 if\n\
    it could not be ended (no such process, another user's, a balancer that does not answer).";

const ATTACH_EXAMPLES: &str = "Examples:\n  trimtab attach 4711                    balance process 4711 and its children\n  \
    trimtab attach $(pgrep -d' ' solver)   several programs at once\n  \
    trimtab attach --vm web1               the vCPUs of the virtual machine web1\n  \
    trimtab attach --balance float --trace t.jsonl --for 10s 4711   observe and record only\n\n\
    Exit status: 0 if the programs ended or you stopped it, 2 if they cannot be balanced.";

/// Stop balancing, and give threads their own masks back.
///
/// A balancer of `trimtab attach` ends. A balancer of `trimtab run --balance` stops balancing, and
/// its program continues. The service (`trimtab serve`) continues: it stops balancing the process,
/// as after `trimtab untag`. Masks that a killed balancer left behind are restored.
#[derive(Args, Debug)]
#[command(after_help = DETACH_STATUS)]
pub struct DetachArgs {
    /// Processes that are or were balanced, or the balancer itself unless it is the service.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "all")]
    pub pids: Vec<u32>,
    /// All your processes that are or were balanced. The service stops balancing the programs that
    /// you may untag, and continues.
    #[arg(long, conflicts_with = "pids")]
    pub all: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Show what a policy decides on a recorded trace.
///
/// Feeds the samples of a trace to the recorded policy or to another one, and shows where the
/// decisions differ. Nothing is moved. A trace does not react: after the first decision that
/// differs, the samples still show the effects of the recorded policy. The recorded policy with its
/// recorded settings always decides as it did, and --check reports that by the exit status.
#[derive(Args, Debug)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// A trace of `trimtab run --trace` or `trimtab attach --trace`; - for standard input.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub trace: PathBuf,
    /// Policy, instead of the recorded one: auto, speed, exchange, nudge, brm, brm-paper,
    /// serial, pinned or float.
    #[arg(long, value_name = "POLICY", value_parser = policies(), hide_possible_values = true)]
    pub policy: Option<Kind>,
    #[command(flatten)]
    pub settings: PolicyArgs,
    /// Write the replay as a trace to FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub to: Option<PathBuf>,
    /// Exit with status 1 if any decision differs from the recorded one.
    #[arg(long)]
    pub check: bool,
    /// Print as JSON lines (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

const REPLAY_EXAMPLES: &str = "Examples:\n  trimtab replay run.jsonl --policy exchange   what exchange would have done\n  \
    trimtab replay run.jsonl --check             whether the decisions are the same again\n\n\
    Exit status: 0 if done, 1 with --check if decisions differ, 2 if the trace cannot be read.";

/// Definitions of a thread's speed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeedMetric {
    RunWait,
    CpuShare,
}

impl From<SpeedMetric> for Metric {
    fn from(metric: SpeedMetric) -> Self {
        match metric {
            SpeedMetric::RunWait => Self::RunWait,
            SpeedMetric::CpuShare => Self::CpuShare,
        }
    }
}

/// Destination and form of the report after a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportTo {
    /// File of the report; `None` for standard error.
    pub file: Option<PathBuf>,
    /// Whether the report is JSON.
    pub json: bool,
}

/// Reads the value of `--report`: `text`, `json`, a file, or a file whose name ends in `.json`.
pub fn report_to(word: &OsString) -> ReportTo {
    match word.to_str() {
        Some("stderr" | "text") => ReportTo { file: None, json: false },
        Some("json") => ReportTo { file: None, json: true },
        _ => {
            let file = PathBuf::from(word);
            let json = file.extension().is_some_and(|end| end == "json");
            ReportTo { file: Some(file), json }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_are_named() {
        let index = PolicyArgs { index: Some(Index::Cpi), ..PolicyArgs::default() };
        assert!(index.unfit(Kind::Auto).is_some_and(|why| why.contains("--index") && why.contains("auto")));
        assert_eq!(Kind::BY_PENALTY.map(|kind| index.unfit(kind)), [None, None, None]);
        for own in [
            PolicyArgs { budget: Some(0.1), ..PolicyArgs::default() },
            PolicyArgs { move_memory: true, ..PolicyArgs::default() },
        ] {
            assert!(own.unfit(Kind::BrmPaper).is_some_and(|why| why.contains("published")));
            assert_eq!((own.unfit(Kind::Brm), own.unfit(Kind::Serial)), (None, None));
        }
        let settings = index.over(Settings::of(Kind::Brm));
        assert_eq!((settings.penalty.index, settings.interval), (Some(Index::Cpi), Span::from_ms(10)));
    }

    #[test]
    fn a_report_is_written_to_its_destination() {
        let to = |word: &str| report_to(&word.into());
        assert_eq!(to("stderr"), to("text"));
        assert_eq!(to("json"), ReportTo { file: None, json: true });
        assert_eq!(to("a/b.txt"), ReportTo { file: Some("a/b.txt".into()), json: false });
        assert!(to("out.json").json && to("out.json").file.is_some());
    }
}
