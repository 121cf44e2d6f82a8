//! What is run: scenarios, ways to wait, ways to run; as data, with the goals of each.
//!
//! Counts of threads follow the cores M: M+1, 2M+1 and 3M+1 with one barrier at the end, M+1 with many, 2M for an even load. On
//! two cores these are 3, 5 and 7. All threads of a case together have the same work whatever their number, so that each takes
//! about as long.

#[cfg(test)]
mod tests;

use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::balance::Kind;
use trimtab_core::ideal_ratio::{Goal, Rivals};
use trimtab_core::ids::OsCpu;

/// The program whose waiters do as told.
pub(super) const THREADS: &str = "balance_spmd";
/// The program whose waiters do as an OpenMP runtime does.
pub(super) const OPENMP: &str = "balance_omp";
/// The competitor.
pub(super) const HOG: &str = "balance_hog";

/// The share of a core that the competitor takes which makes a slow core of it.
const DUTY: f64 = 0.5;

/// How long the ideal takes, in seconds; a third of it with `--quick`. Chosen: nine intervals of 100 ms in a full measurement, so
/// that a balancer can be seen, and all of it within forty minutes.
const IDEAL: f64 = 0.9;

/// How waiters wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wait {
    Spin,
    Yield,
    Sleep,
    /// Spin for a moment, then sleep.
    Hyb,
    /// As the OpenMP runtime does.
    Runtime,
}

impl Wait {
    const ALL: [Self; 4] = [Self::Spin, Self::Yield, Self::Sleep, Self::Hyb];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Sleep => "sleep",
            Self::Hyb => "hyb",
            Self::Runtime => "runtime",
        }
    }
}

/// The way a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By Linux alone.
    Kernel,
    /// Linux alone, and the program binds its threads, as `OMP_PROC_BIND` and MPI launchers do.
    Pinned,
    /// `trimtab run --balance`.
    Balance(Kind),
    /// Linux alone, and a runtime that is asked to wait actively and not to yield. LLVM's then spins for good; GNU's gives up after 1,000
    /// turns all the same when it has more threads than CPUs, and spins when somebody else takes them.
    Active,
    /// `trimtab run --wait-policy auto`.
    WaitPolicy,
}

impl Way {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Pinned => "pinned",
            Self::Balance(kind) => kind.word(),
            Self::Active => "omp-active",
            Self::WaitPolicy => "wait-policy",
        }
    }

    fn is_trimtabs(self) -> bool {
        matches!(self, Self::Balance(_) | Self::WaitPolicy)
    }
}

/// A competitor of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rival {
    /// Whether it is bound to the last core.
    pinned: bool,
    /// Whether it is in a session of its own, which is a scheduling group of its own where Linux groups by session.
    session: bool,
    /// Whether it computes half of the time only.
    duty: bool,
}

/// What the threads have to do, beside whom.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scenario {
    name: String,
    pub(super) threads: usize,
    /// Seconds of CPU time between two barriers; `None` for one barrier at the end.
    phase: Option<f64>,
    rival: Option<Rival>,
    /// Whether the program binds its threads in every way of running.
    binds: bool,
    /// CPU seconds of work of each thread.
    work: f64,
}

/// One way of running one scenario with one way to wait.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) scenario: Scenario,
    pub(super) wait: Wait,
    pub(super) way: Way,
    pub(super) goals: Vec<Goal>,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario.name, self.wait.word(), self.way.word())
    }
}

/// What the cells depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    /// Cores.
    pub(super) cores: usize,
    /// The few telling ones.
    pub(super) quick: bool,
    /// Patterns of names; none for all.
    pub(super) only: &'a [String],
    /// Whether `trimtab run` can balance.
    pub(super) balances: bool,
}

const AUTO: Way = Way::Balance(Kind::Auto);
const ALL_WAYS: [Way; 6] = [
    Way::Kernel,
    Way::Pinned,
    Way::Balance(Kind::Speed),
    Way::Balance(Kind::Exchange),
    Way::Balance(Kind::Nudge),
    AUTO,
];
const SOME_WAYS: [Way; 4] = [Way::Kernel, Way::Pinned, Way::Balance(Kind::Speed), AUTO];

/// All cells, in the order of the table.
pub(super) fn cells(scope: Scope<'_>) -> Vec<Cell> {
    let Scope { cores, quick, .. } = scope;
    let mut cells = Vec::new();
    let mut add = |name: String,
                   threads: usize,
                   phase: Option<f64>,
                   rival,
                   binds: bool,
                   waits: &[Wait],
                   ways: &[Way]| {
        // Beside a hog and with many barriers the ideal takes longer of itself.
        let ideal = IDEAL
            * if quick { 0.34 } else { 1.0 }
            * if phase.is_some_and(|phase| phase < 0.05) { 0.5 } else { 1.0 };
        let work = ideal * cores as f64 / threads as f64;
        let scenario = Scenario { name, threads, phase, rival, binds, work };
        for &wait in waits {
            for &way in ways {
                cells.push(Cell {
                    goals: goals(&scenario, wait, way),
                    scenario: scenario.clone(),
                    wait,
                    way,
                });
            }
        }
    };
    let quick_ways = [Way::Kernel, Way::Pinned, AUTO];
    let (all_ways, some_ways) =
        if quick { (&quick_ways[..], &quick_ways[..]) } else { (&ALL_WAYS[..], &SOME_WAYS[..]) };
    let all_waits = if quick { &[Wait::Spin, Wait::Sleep][..] } else { &Wait::ALL };
    for times in if quick { 1..=1 } else { 1..=3 } {
        let threads = times * cores + 1;
        add(format!("final-{threads}"), threads, None, None, false, all_waits, all_ways);
    }
    let phases = [("1ms", 0.001), ("10ms", 0.01), ("100ms", 0.1)];
    for (word, phase) in phases.into_iter().filter(|(word, _)| !quick || *word == "10ms") {
        let threads = cores + 1;
        add(format!("barrier-{word}-{threads}"), threads, Some(phase), None, false, all_waits, some_ways);
    }
    let hog = Rival { pinned: false, session: false, duty: false };
    if !quick {
        add(format!("even-{}", 2 * cores), 2 * cores, None, None, false, all_waits, some_ways);
    }
    let hogs = [
        ("hog", hog),
        ("hog-session", Rival { session: true, ..hog }),
        ("hog-pinned", Rival { pinned: true, ..hog }),
        ("hog-pinned-session", Rival { pinned: true, session: true, ..hog }),
    ];
    for (word, rival) in hogs.into_iter().take(if quick { 1 } else { 4 }) {
        let ways = if word.ends_with("session") { some_ways } else { all_ways };
        add(format!("{word}-{cores}"), cores, None, Some(rival), false, all_waits, ways);
    }
    let unbound: Vec<Way> = all_ways.iter().copied().filter(|way| *way != Way::Pinned).collect();
    if !quick {
        let slow = Rival { pinned: true, session: false, duty: true };
        add(format!("slow-core-{cores}"), cores, None, Some(slow), false, all_waits, all_ways);
    }
    add(format!("freed-{}", cores + 1), cores + 1, None, None, true, all_waits, &unbound);
    let runtimes = [Way::Kernel, Way::Active, Way::WaitPolicy];
    for (word, phase) in phases.into_iter().filter(|(word, _)| !quick || *word != "100ms") {
        let threads = cores + 1;
        add(format!("omp-{word}-{threads}"), threads, Some(phase), None, false, &[Wait::Runtime], &runtimes);
    }
    // A thread for each core, and somebody else whom the runtime does not see.
    for (word, phase) in phases.into_iter().filter(|(word, _)| !quick || *word == "10ms") {
        add(
            format!("omp-hog-{word}-{cores}"),
            cores,
            Some(phase),
            Some(hog),
            false,
            &[Wait::Runtime],
            &runtimes,
        );
    }
    cells.retain(|cell| {
        let name = cell.to_string();
        let wanted = scope.only.is_empty() || scope.only.iter().any(|part| name.contains(part.as_str()));
        wanted && (scope.balances || !matches!(cell.way, Way::Balance(_)))
    });
    cells
}

/// What trimtab is to reach there.
fn goals(scenario: &Scenario, wait: Wait, way: Way) -> Vec<Goal> {
    let mut goals = Vec::new();
    let hog = scenario.rival.is_some_and(|rival| !rival.duty);
    match way {
        Way::Balance(Kind::Auto) if scenario.binds => goals.push(Goal::AtMost(1.05)),
        Way::Balance(Kind::Auto) if hog => goals.push(Goal::AtMost(0.92)),
        Way::Balance(Kind::Auto) if scenario.name.starts_with("final") => {
            goals.push(Goal::AtMost(if wait == Wait::Spin { 1.04 } else { 1.02 }));
        }
        Way::WaitPolicy if hog => {}
        Way::WaitPolicy => match scenario.phase {
            Some(phase) if phase < 0.005 => goals.extend([Goal::AtMost(1.40), Goal::HalfOfSpinning]),
            Some(phase) if phase < 0.05 => goals.push(Goal::AtMost(1.15)),
            _ => goals.push(Goal::AtMost(1.07)),
        },
        _ => {}
    }
    // The policies by name are for study; what is switched on by default must not hurt.
    if way == AUTO || way == Way::WaitPolicy {
        goals.extend([Goal::NoWorse, Goal::AsSteady]);
    }
    goals
}

impl Cell {
    /// What it is compared with: the same by Linux alone.
    pub(super) fn is_baseline_of(&self, other: &Self) -> bool {
        self.way == Way::Kernel && self.scenario == other.scenario && self.wait == other.wait
    }

    /// The same threads and barriers by Linux alone, with waiters that spin for good.
    pub(super) fn is_spinning_of(&self, other: &Self) -> bool {
        let alike = |of: &Scenario| (of.threads, of.phase, of.rival, of.binds);
        self.way == Way::Kernel && self.wait == Wait::Spin && alike(&self.scenario) == alike(&other.scenario)
    }

    pub(super) fn scenario_name(&self) -> &str {
        &self.scenario.name
    }

    /// The program's file.
    pub(super) fn program(&self) -> &'static str {
        if self.wait == Wait::Runtime { OPENMP } else { THREADS }
    }

    /// Who competes, as the ideal counts it.
    pub(super) fn rivals(&self) -> Rivals {
        match self.scenario.rival {
            None => Rivals::None,
            Some(Rival { duty: true, .. }) => Rivals::Duty(DUTY),
            Some(_) => Rivals::Hogs(1),
        }
    }

    /// The words of the competitor, if there is one; `last` is the last of the cores.
    pub(super) fn rival(&self, folder: &Path, last: OsCpu) -> Option<Vec<OsString>> {
        let rival = self.scenario.rival?;
        let mut words: Vec<OsString> = vec![folder.join(HOG).into(), "--limit".into(), "120".into()];
        if rival.pinned {
            words.extend(["--cpu".into(), last.to_string().into()]);
        }
        if rival.session {
            words.push("--setsid".into());
        }
        if rival.duty {
            words.extend(["--duty".into(), (DUTY * 100.0).to_string().into()]);
        }
        Some(words)
    }

    /// The words of the run.
    pub(super) fn command(
        &self,
        trimtab: &Path,
        folder: &Path,
        cores: usize,
        rate: u64,
        rival: Option<u32>,
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if self.way.is_trimtabs() {
            words.push(trimtab.into());
            // Told how much, since the point is not to choose cores: the ones that bench runs on are all there is.
            let cores = cores.to_string();
            // Who competes is looked for where something hangs on it.
            let survey =
                if self.way == Way::WaitPolicy && self.scenario.rival.is_some() { "full" } else { "none" };
            let plain = ["run", "--no-rules", "--fit", "keep", "--survey", survey, "--cores", &cores];
            words.extend(plain.map(OsString::from));
        }
        match self.way {
            Way::Balance(kind) => words.extend([format!("--balance={kind}").into(), "--".into()]),
            // Threads float, as by Linux alone: the question is what waiting does.
            Way::WaitPolicy => {
                words.extend(["--pin", "mask", "--wait-policy", "auto", "--"].map(OsString::from))
            }
            _ => {}
        }
        words.push(folder.join(self.program()).into());
        let Scenario { threads, phase, work, .. } = self.scenario;
        let mut option = |name: &str, value: String| words.extend([name.into(), value.into()]);
        option("--threads", threads.to_string());
        option("--work", format!("{work:.6}"));
        option("--rate", rate.to_string());
        if let Some(phase) = phase {
            option("--phase", phase.to_string());
        }
        if let Some(rival) = rival {
            option("--hog", rival.to_string());
        }
        if self.wait != Wait::Runtime {
            option("--wait", self.wait.word().to_owned());
        }
        if self.way == Way::Pinned || self.scenario.binds {
            words.push("--pin".into());
        }
        words
    }

    /// What its environment has and lacks. The user's own settings would make all ways alike.
    pub(super) fn variables(&self) -> Vec<(&'static str, Option<String>)> {
        let mut variables: Vec<(&str, Option<String>)> = Vec::new();
        for name in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_USE_YIELD", "KMP_LIBRARY"]
            .into_iter()
            .chain(["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_DYNAMIC"])
        {
            let value = match name {
                "OMP_WAIT_POLICY" => Some("active"),
                "GOMP_SPINCOUNT" => Some("infinity"),
                "KMP_BLOCKTIME" => Some("infinite"),
                "KMP_USE_YIELD" => Some("0"),
                _ => None,
            };
            variables.push((name, value.filter(|_| self.way == Way::Active).map(str::to_owned)));
        }
        let threads = (self.wait == Wait::Runtime).then(|| self.scenario.threads.to_string());
        variables.push(("OMP_NUM_THREADS", threads));
        variables
    }

    /// What is wrong with a report that should be of this cell.
    pub(super) fn fault(&self, report: &serde_json::Value) -> Option<String> {
        let of_cell = report["kernel"] == self.program() && report["threads"] == self.scenario.threads;
        if !of_cell {
            return Some("its report is of something else".to_owned());
        }
        let missing =
            ["seconds", "compute_seconds", "machine_cpus"].into_iter().find(|name| report[*name].is_null());
        missing.filter(|_| report["verified"] == true).map(|name| format!("its report lacks {name}"))
    }
}
