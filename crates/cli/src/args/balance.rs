//! What can be typed about balancing: while a program runs, for one that runs already, and for one that is over.

use super::time;
use super::words::Words;
use clap::{Args, ValueEnum};
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

/// The heading under which help shows these options.
const HEADING: &str = "While it runs";

/// The policies, for parser and completions.
pub(super) fn policies() -> Words<Kind> {
    Words::of(Kind::ALL.map(Kind::word))
}

/// What can be counted, for parser and completions.
pub(super) fn choices() -> Words<Choice> {
    Words::of(["auto", "off"].into_iter().chain(Rung::ALL.map(Rung::word)))
}

/// The indices of what threads suffer.
fn indices() -> Words<Index> {
    Words::of(Index::ALL.map(Index::word))
}

/// The means over threads.
fn means() -> Words<Mean> {
    Words::of(Mean::ALL.map(Mean::word))
}

/// The choices of threads.
fn candidates() -> Words<Candidates> {
    Words::of(Candidates::ALL.map(Candidates::word))
}

const MOVE_MEMORY: &str = "--move-memory";
const BUDGET: &str = "--budget";

/// How a policy is set up.
#[derive(Args, Debug, Default, Clone)]
pub struct PolicyArgs {
    /// The time between two looks: 100ms, 1s (default 100ms; 10ms for brm, brm-paper and serial). auto looks more often while it has something to do, and less often
    /// where it has not.
    ///
    /// Single policies look once an interval. auto looks every 50 ms while it makes up its mind, up to five intervals apart
    /// where nothing is to be done, and while threads take turns as often as is worth its cost (one part in 250 of a core),
    /// between 10 ms and the interval. --report alone looks after a twentieth of the run so far, from 10 ms to 1 s.
    #[arg(long, value_name = "TIME", value_parser = time::interval, help_heading = HEADING)]
    pub interval: Option<Span>,
    /// All that is random in balancing is drawn from this number; recorded in the trace (default 0).
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub seed: Option<u64>,
    /// How fast a thread is: run-wait (time on a CPU over time it wanted one; the default) or cpu-share (over elapsed time).
    #[arg(long, value_name = "METRIC", help_heading = HEADING)]
    pub speed_metric: Option<SpeedMetric>,
    /// Let threads be moved to other NUMA nodes, away from their memory.
    #[arg(long, help_heading = HEADING)]
    pub across_nodes: bool,
    /// By what brm, brm-paper and serial compare: penalty (cycles a request beyond the private caches), busy (such cycles an
    /// instruction), cpi, share, miss-rate, far or estimate.
    ///
    /// Without it brm and serial take what the evidence supports on this machine (trimtab counters): busy, or penalty when
    /// threads spin at barriers; brm-paper takes penalty.
    #[arg(long, value_name = "INDEX", value_parser = indices(), hide_possible_values = true, help_heading = HEADING)]
    pub index: Option<Index>,
    /// How one number is made of many threads': weighted (by requests; the default) or sum (brm-paper's default).
    #[arg(long, value_name = "MEAN", value_parser = means(), hide_possible_values = true, help_heading = HEADING)]
    pub mean: Option<Mean>,
    /// Whom brm, brm-paper and serial may move: auto (tagged threads and those that stall; brm-paper: tagged ones, or all where none
    /// is; the default), tagged or all.
    #[arg(long, value_name = "WHICH", value_parser = candidates(), hide_possible_values = true, help_heading = HEADING)]
    pub candidates: Option<Candidates>,
    /// With brm or serial, bring a process's own memory to the node where all its threads stayed for a second after a move: in small steps,
    /// never huge pages that were set aside, and nothing where a memory policy or devices hold it. What came, and why not more, is said.
    #[arg(long, help_heading = HEADING)]
    pub move_memory: bool,
    /// The share of one CPU that brm, serial or the service may take for itself: 0.5%, 2% (default 1%). It looks more seldom to keep it.
    #[arg(long, value_name = "PERCENT", value_parser = cpu_share, help_heading = HEADING)]
    pub budget: Option<f64>,
}

/// What hardware counts for policies that ask for it.
#[derive(Args, Debug, Default, Clone)]
pub struct CountingArgs {
    /// What hardware is to count of threads: auto (the best that works here; the default), off, a rung of the ladder (exact, proxy,
    /// generic, hint-faults, residency), or events as ROLE=EVENT,... (see trimtab counters).
    ///
    /// Counted is only for policies that ask for it; with this option for the others, too, so that it is in the trace.
    #[arg(long, value_name = "WHAT", value_parser = choices(), hide_possible_values = true, help_heading = HEADING)]
    pub counters: Option<Choice>,
}

impl CountingArgs {
    /// What is to be counted.
    pub fn choice(&self) -> Choice {
        self.counters.clone().unwrap_or_default()
    }

    /// The same, and whether it is wanted also where no policy asks for it.
    pub fn options(&self) -> CountingOptions {
        let always = self.counters.as_ref().is_some_and(|choice| *choice != Choice::Off);
        CountingOptions { choice: self.choice(), always }
    }
}

impl PolicyArgs {
    /// These options over what is set otherwise.
    pub fn over(&self, settings: Settings) -> Settings {
        Settings {
            seed: self.seed.unwrap_or(settings.seed),
            interval: self.interval.unwrap_or(settings.interval),
            metric: self.speed_metric.map_or(settings.metric, Metric::from),
            across_nodes: self.across_nodes || settings.across_nodes,
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

    /// The first of these options that was given, by name.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            (self.interval.is_some(), "--interval"),
            (self.seed.is_some(), "--seed"),
            (self.speed_metric.is_some(), "--speed-metric"),
            (self.across_nodes, "--across-nodes"),
        ];
        options.into_iter().chain(self.penalties()).find_map(|(given, name)| given.then_some(name))
    }

    /// Which of the options of the uncore penalty were given.
    fn penalties(&self) -> [(bool, &'static str); 5] {
        [
            (self.index.is_some(), "--index"),
            (self.mean.is_some(), "--mean"),
            (self.candidates.is_some(), "--candidates"),
            (self.move_memory, MOVE_MEMORY),
            (self.budget.is_some(), BUDGET),
        ]
    }

    /// Why one of these options would do nothing with a policy.
    pub fn unfit(&self, kind: Kind) -> Option<String> {
        let given = |fits: fn(&str) -> bool| {
            self.penalties().into_iter().find_map(|(given, name)| (given && !fits(name)).then_some(name))
        };
        if !kind.by_penalty() {
            return given(|_| false).map(|name| {
                format!("{name} does nothing with {kind}: it is about brm, brm-paper and serial")
            });
        }
        let paper = |name: &str| name != MOVE_MEMORY && name != BUDGET;
        given(paper).filter(|_| kind == Kind::BrmPaper).map(|name| {
            format!(
                "{name} does nothing with {kind}, which is the published rule as it is: use brm or serial"
            )
        })
    }
}

/// What `run` can do while the program runs.
#[derive(Args, Debug, Default, Clone)]
pub struct BalanceArgs {
    /// Keep the threads progressing alike while the program runs: auto (the default: finds out what holds them back and does
    /// what helps, or nothing), speed, exchange, nudge, brm, brm-paper, serial, pinned or float.
    ///
    /// trimtab then stays as the program's parent: signals, job control, terminal and exit status are handed on. OpenMP threads
    /// are not bound at their start, unless you bind them by OMP_PROC_BIND.
    #[arg(long, value_name = "POLICY", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = policies(), hide_possible_values = true, help_heading = HEADING)]
    pub balance: Option<Kind>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Record what is seen, decided and done in FILE, one line of JSON a look (docs/json.md; `trimtab replay` reads it).
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub trace: Option<PathBuf>,
    /// Offer figures to Prometheus: unix:PATH or 127.0.0.1:PORT; an address that others reach only as public:ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    pub metrics: Option<Address>,
}

/// Balance programs that run already: whole trees of processes, until they end or you stop it.
///
/// Threads are moved within the CPUs that the programs' threads may use together; when balancing ends, by Ctrl-C too, every
/// thread has the mask again that it had before. Works for your own programs without privilege.
#[derive(Args, Debug)]
#[command(after_help = ATTACH_EXAMPLES)]
pub struct AttachArgs {
    /// The processes; all that they started is balanced with them.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), required_unless_present_any = ["cgroup", "vm"])]
    pub pids: Vec<u32>,
    /// All processes of a control group, and of those below it: a path such as /user.slice/… or a folder of /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// The CPUs of a virtual machine: its name (of QEMU's -name, which is libvirt's domain), its process, or its QMP socket. May be given
    /// several times.
    ///
    /// Only the threads that run its CPUs are moved; those that do its input and output stay where they are. They are found by QMP,
    /// by KVM's debugfs, by their names (QEMU: -name NAME,debug-threads=on) or by their descriptors of KVM; CPUs that are plugged in
    /// later are found too. Masks that libvirt sets are kept to.
    #[arg(long, value_name = "NAME|PID|QMP-SOCKET", value_parser = vm_name)]
    pub vm: Vec<VmName>,
    /// The policy: auto, speed, exchange, nudge, brm, brm-paper, serial, pinned or float (only watches).
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policies(), hide_possible_values = true)]
    pub balance: Kind,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// The CPUs that threads may be moved to, instead of all that the programs' threads may use together.
    #[arg(long, value_name = "LIST", help_heading = HEADING)]
    pub cpus: Option<CpuSet>,
    /// Leave threads alone that are bound to fewer CPUs than the others.
    #[arg(long, help_heading = HEADING)]
    pub respect_masks: bool,
    /// Move threads also where PID is the machine's first process, from which all others come.
    #[arg(long, help_heading = HEADING)]
    pub yes: bool,
    /// Stop after this time: 30s, 10m, 2h.
    #[arg(long = "for", value_name = "TIME", value_parser = time::lasting, help_heading = HEADING)]
    pub time: Option<Span>,
    /// Record what is seen, decided and done in FILE, one line of JSON a look; - for standard output.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub trace: Option<PathBuf>,
    /// Print every look as a line of JSON, as in a trace (the same as --trace -).
    #[arg(long, conflicts_with = "trace")]
    pub json: bool,
    /// Offer figures to Prometheus: unix:PATH or 127.0.0.1:PORT; an address that others reach only as public:ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    pub metrics: Option<Address>,
    /// Say what is found, as it is found.
    #[arg(short, long)]
    pub verbose: bool,
    /// Say nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

const DETACH_STATUS: &str = "Exit status: 0 when balancing has ended or masks were given back, 1 when there was nothing to end,\n\
    2 when it could not be ended (no such process, another user's, a balancer that does not answer).";

const ATTACH_EXAMPLES: &str = "Examples:\n  trimtab attach 4711                    balance process 4711 and all it started\n  \
    trimtab attach $(pgrep -d' ' solver)   several programs at once\n  \
    trimtab attach --vm web1               the CPUs of the virtual machine web1\n  \
    trimtab attach --balance float --trace t.jsonl --for 10s 4711   only watch and record\n\n\
    Exit status: 0 when the programs ended or you stopped it, 2 when they cannot be balanced.";

/// End balancing from outside: stop a balancer that runs, take a process out of the service, or give threads back the masks that a killed
/// balancer left behind.
///
/// A balancer of `trimtab attach` ends, one of `trimtab run --balance` stops balancing while its program goes on. The service (`trimtab serve`) is
/// never ended: what it balances is taken out, as by `trimtab clear`.
#[derive(Args, Debug)]
#[command(after_help = DETACH_STATUS)]
pub struct DetachArgs {
    /// Processes that are or were balanced, or the balancer itself if it is not the service.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "all")]
    pub pids: Vec<u32>,
    /// Everything of yours that is or was balanced; the service clears what you may clear and goes on.
    #[arg(long, conflicts_with = "pids")]
    pub all: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Feed a recorded run to a policy, the same or another, and show where its decisions differ. Nothing is moved.
///
/// The recorded world does not react: after the first decision that differs, what follows is still what the recorded policy
/// brought about. The recorded policy with its own settings decides as it did, and --check says so by the exit status.
#[derive(Args, Debug)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// A trace of `trimtab run --trace` or `trimtab attach --trace`; - for standard input.
    pub trace: PathBuf,
    /// The policy, instead of the recorded one: auto, speed, exchange, nudge, brm, brm-paper, serial, pinned or float.
    #[arg(long, value_name = "POLICY", value_parser = policies(), hide_possible_values = true)]
    pub policy: Option<Kind>,
    #[command(flatten)]
    pub settings: PolicyArgs,
    /// Write the replay as a trace of its own.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Exit with 1 if anything was decided differently than recorded.
    #[arg(long)]
    pub check: bool,
    /// Print as JSON lines (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

const REPLAY_EXAMPLES: &str = "Examples:\n  trimtab replay run.jsonl --policy exchange   what would exchange have done?\n  \
    trimtab replay run.jsonl --check             does it decide the same again?\n\n\
    Exit status: 0 done, 1 with --check when decisions differ, 2 when the trace cannot be read.";

/// The metrics, as typed.
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

/// What was asked for as a report after the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportTo {
    /// Where; `None` is standard error.
    pub file: Option<PathBuf>,
    /// As JSON.
    pub json: bool,
}

/// `text`, `json`, a file, or a file whose name ends in `.json`.
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
    fn options_that_would_do_nothing_are_told() {
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
    fn a_report_goes_where_its_word_says() {
        let to = |word: &str| report_to(&word.into());
        assert_eq!(to("stderr"), to("text"));
        assert_eq!(to("json"), ReportTo { file: None, json: true });
        assert_eq!(to("a/b.txt"), ReportTo { file: Some("a/b.txt".into()), json: false });
        assert!(to("out.json").json && to("out.json").file.is_some());
    }
}
