//! Matrix of `bench balance` as data: scenarios, wait modes, variants, and the goals of each cell.
//!
//! Thread counts follow the number of cores M: M+1, 2M+1 and 3M+1 with one barrier at the end, M+1
//! with many barriers, 2M for an even load. On two cores these are 3, 5 and 7. All threads of a
//! case together have the same work whatever their number, so that every case takes about equally
//! long.

#[cfg(test)]
mod tests;

use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use trimtab_core::balance::Kind;
use trimtab_core::ideal_ratio::{Goal, Rivals};
use trimtab_core::ids::OsCpu;

/// Program whose waiting threads wait as its options say.
pub(super) const THREADS: &str = "balance_spmd";
/// Program whose waiting threads wait as an OpenMP runtime does.
pub(super) const OPENMP: &str = "balance_omp";
/// Competing program.
pub(super) const HOG: &str = "balance_hog";

/// Share of a core that the competitor takes to turn it into a slow core.
const DUTY_SHARE: f64 = 0.5;

/// Ideal run time, in seconds; a third of it with `--quick`. Chosen: nine intervals of 100 ms in a
/// full measurement, so that the effect of a balancer is visible, and a full measurement within
/// forty minutes.
const IDEAL_S: f64 = 0.9;

/// How threads wait at barriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WaitMode {
    Spin,
    Yield,
    Sleep,
    /// Spin briefly, then sleep.
    Hyb,
    /// As the OpenMP runtime does.
    Runtime,
}

impl WaitMode {
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

/// Variant in which a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BalanceVariant {
    /// Linux alone.
    Kernel,
    /// Linux alone, and the program binds its threads, as `OMP_PROC_BIND` and MPI launchers do.
    Pinned,
    /// `trimtab run --balance`.
    Balance(Kind),
    /// Linux alone, and a runtime that is asked to wait actively and not to yield. LLVM's runtime
    /// then spins without limit. GNU's runtime still gives up after 1,000 iterations if it has more
    /// threads than CPUs, but spins if another program takes the CPUs.
    Active,
    /// `trimtab run --wait-policy auto`.
    WaitPolicy,
}

impl BalanceVariant {
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

/// Competitor of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Competitor {
    /// Whether the competitor is bound to the last core.
    pinned: bool,
    /// Whether the competitor has a session of its own, which is a scheduling group of its own if
    /// Linux groups by session.
    session: bool,
    /// Whether the competitor computes only half of the time.
    duty: bool,
}

/// Work of the threads, and the competitor beside them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scenario {
    name: String,
    pub(super) threads: usize,
    /// Seconds of CPU time between two barriers; `None` for one barrier at the end.
    phase: Option<f64>,
    rival: Option<Competitor>,
    /// Whether the program binds its threads in every variant.
    binds: bool,
    /// Work of each thread, in CPU seconds.
    work: f64,
}

/// One variant of one scenario with one wait mode.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BalanceCell {
    pub(super) scenario: Scenario,
    pub(super) wait: WaitMode,
    pub(super) way: BalanceVariant,
    pub(super) goals: Vec<Goal>,
}

impl fmt::Display for BalanceCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario.name, self.wait.word(), self.way.word())
    }
}

/// Parameters of the matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct BalanceScope<'a> {
    /// Number of cores.
    pub(super) cores: usize,
    /// Whether only a few representative cells are wanted.
    pub(super) quick: bool,
    /// Patterns of cell names; empty for all cells.
    pub(super) only: &'a [String],
}

const AUTO: BalanceVariant = BalanceVariant::Balance(Kind::Auto);
const ALL_WAYS: [BalanceVariant; 6] = [
    BalanceVariant::Kernel,
    BalanceVariant::Pinned,
    BalanceVariant::Balance(Kind::Speed),
    BalanceVariant::Balance(Kind::Exchange),
    BalanceVariant::Balance(Kind::Nudge),
    AUTO,
];
const SOME_WAYS: [BalanceVariant; 4] =
    [BalanceVariant::Kernel, BalanceVariant::Pinned, BalanceVariant::Balance(Kind::Speed), AUTO];
/// Variants of a quick measurement.
const QUICK_WAYS: [BalanceVariant; 3] = [BalanceVariant::Kernel, BalanceVariant::Pinned, AUTO];

/// Returns all cells, in the order of the table.
pub(super) fn cells(scope: BalanceScope<'_>) -> Vec<BalanceCell> {
    let BalanceScope { cores, quick, .. } = scope;
    let mut matrix = CellBuilder { cores, quick, cells: Vec::new() };
    matrix.add_even_work();
    matrix.add_hogs();
    matrix.add_runtimes();
    matrix.cells.retain(|cell| {
        let name = cell.to_string();
        scope.only.is_empty() || scope.only.iter().any(|part| name.contains(part.as_str()))
    });
    matrix.cells
}

/// Names of the phases between two barriers, and their lengths in seconds.
const PHASES: [(&str, f64); 3] = [("1ms", 0.001), ("10ms", 0.01), ("100ms", 0.1)];

/// A process that computes all the time, unbound, in the session of the benchmark.
const FREE_HOG: Competitor = Competitor { pinned: false, session: false, duty: false };

/// Builder of the list of cells.
struct CellBuilder {
    cores: usize,
    /// Whether only the most representative cells are wanted, with less work.
    quick: bool,
    cells: Vec<BalanceCell>,
}

impl CellBuilder {
    /// Adds the cells of one scenario: every wait mode with every variant.
    fn add(
        &mut self,
        name: String,
        threads: usize,
        phase: Option<f64>,
        rival: Option<Competitor>,
        waits: &[WaitMode],
        ways: &[BalanceVariant],
    ) {
        let scenario = self.scenario(name, threads, phase, rival);
        self.add_scenario(&scenario, waits, ways);
    }

    fn scenario(
        &self,
        name: String,
        threads: usize,
        phase: Option<f64>,
        rival: Option<Competitor>,
    ) -> Scenario {
        // Beside a hog and with many barriers, the ideal itself takes longer.
        let ideal = IDEAL_S
            * if self.quick { 0.34 } else { 1.0 }
            * if phase.is_some_and(|phase| phase < 0.05) { 0.5 } else { 1.0 };
        let work = ideal * self.cores as f64 / threads as f64;
        Scenario { name, threads, phase, rival, binds: false, work }
    }

    fn add_scenario(&mut self, scenario: &Scenario, waits: &[WaitMode], ways: &[BalanceVariant]) {
        for &wait in waits {
            for &way in ways {
                let goals = goals(scenario, wait, way);
                self.cells.push(BalanceCell { goals, scenario: scenario.clone(), wait, way });
            }
        }
    }

    fn all_ways(&self) -> &'static [BalanceVariant] {
        if self.quick { &QUICK_WAYS } else { &ALL_WAYS }
    }

    fn some_ways(&self) -> &'static [BalanceVariant] {
        if self.quick { &QUICK_WAYS } else { &SOME_WAYS }
    }

    fn all_waits(&self) -> &'static [WaitMode] {
        if self.quick { &[WaitMode::Spin, WaitMode::Sleep] } else { &WaitMode::ALL }
    }

    /// Adds threads that do equal work and do not fit the cores evenly, with and without barriers.
    fn add_even_work(&mut self) {
        let cores = self.cores;
        for times in if self.quick { 1..=1 } else { 1..=3 } {
            let threads = times * cores + 1;
            self.add(format!("final-{threads}"), threads, None, None, self.all_waits(), self.all_ways());
        }
        let quick = self.quick;
        for (word, phase) in PHASES.into_iter().filter(|(word, _)| !quick || *word == "10ms") {
            let threads = cores + 1;
            self.add(
                format!("barrier-{word}-{threads}"),
                threads,
                Some(phase),
                None,
                self.all_waits(),
                self.some_ways(),
            );
        }
        if !quick {
            self.add(
                format!("even-{}", 2 * cores),
                2 * cores,
                None,
                None,
                self.all_waits(),
                self.some_ways(),
            );
        }
    }

    /// Adds one thread for each core beside a competitor, and threads that were bound to one core.
    fn add_hogs(&mut self) {
        let cores = self.cores;
        let hogs = [
            ("hog", FREE_HOG),
            ("hog-session", Competitor { session: true, ..FREE_HOG }),
            ("hog-pinned", Competitor { pinned: true, ..FREE_HOG }),
            ("hog-pinned-session", Competitor { pinned: true, session: true, ..FREE_HOG }),
        ];
        for (word, rival) in hogs.into_iter().take(if self.quick { 1 } else { 4 }) {
            let ways = if word.ends_with("session") { self.some_ways() } else { self.all_ways() };
            self.add(format!("{word}-{cores}"), cores, None, Some(rival), self.all_waits(), ways);
        }
        if !self.quick {
            let slow = Competitor { pinned: true, session: false, duty: true };
            self.add(
                format!("slow-core-{cores}"),
                cores,
                None,
                Some(slow),
                self.all_waits(),
                self.all_ways(),
            );
        }
        let unbound: Vec<BalanceVariant> =
            self.all_ways().iter().copied().filter(|way| *way != BalanceVariant::Pinned).collect();
        let freed = self.scenario(format!("freed-{}", cores + 1), cores + 1, None, None);
        self.add_scenario(&Scenario { binds: true, ..freed }, self.all_waits(), &unbound);
    }

    /// Adds programs of an OpenMP runtime, which waits as its variables say.
    fn add_runtimes(&mut self) {
        const RUNTIMES: [BalanceVariant; 3] =
            [BalanceVariant::Kernel, BalanceVariant::Active, BalanceVariant::WaitPolicy];
        let (cores, quick) = (self.cores, self.quick);
        for (word, phase) in PHASES.into_iter().filter(|(word, _)| !quick || *word != "100ms") {
            let threads = cores + 1;
            self.add(
                format!("omp-{word}-{threads}"),
                threads,
                Some(phase),
                None,
                &[WaitMode::Runtime],
                &RUNTIMES,
            );
        }
        // One thread for each core, and a competitor that the runtime does not see.
        for (word, phase) in PHASES.into_iter().filter(|(word, _)| !quick || *word == "10ms") {
            self.add(
                format!("omp-hog-{word}-{cores}"),
                cores,
                Some(phase),
                Some(FREE_HOG),
                &[WaitMode::Runtime],
                &RUNTIMES,
            );
        }
    }
}

/// Returns the goals that trimtab sets itself for a cell.
fn goals(scenario: &Scenario, wait: WaitMode, way: BalanceVariant) -> Vec<Goal> {
    let mut goals = Vec::new();
    let hog = scenario.rival.is_some_and(|rival| !rival.duty);
    match way {
        BalanceVariant::Balance(Kind::Auto) if scenario.binds => goals.push(Goal::AtMost(1.05)),
        BalanceVariant::Balance(Kind::Auto) if hog => goals.push(Goal::AtMost(0.92)),
        BalanceVariant::Balance(Kind::Auto) if scenario.name.starts_with("final") => {
            goals.push(Goal::AtMost(if wait == WaitMode::Spin { 1.04 } else { 1.02 }));
        }
        BalanceVariant::WaitPolicy if hog => {}
        BalanceVariant::WaitPolicy => match scenario.phase {
            Some(phase) if phase < 0.005 => goals.extend([Goal::AtMost(1.40), Goal::HalfOfSpinning]),
            Some(phase) if phase < 0.05 => goals.push(Goal::AtMost(1.15)),
            _ => goals.push(Goal::AtMost(1.07)),
        },
        _ => {}
    }
    // The named policies are for study. The defaults must not slow a program down.
    if way == AUTO || way == BalanceVariant::WaitPolicy {
        goals.extend([Goal::NoWorse, Goal::AsSteady]);
    }
    goals
}

impl BalanceCell {
    /// Returns whether this cell is the baseline of `other`: the same scenario under Linux alone.
    pub(super) fn is_baseline_of(&self, other: &Self) -> bool {
        self.way == BalanceVariant::Kernel && self.scenario == other.scenario && self.wait == other.wait
    }

    /// Returns whether this cell is `other` under Linux alone with spinning waiters: the same
    /// threads and barriers.
    pub(super) fn is_spinning_of(&self, other: &Self) -> bool {
        let alike = |of: &Scenario| (of.threads, of.phase, of.rival, of.binds);
        self.way == BalanceVariant::Kernel
            && self.wait == WaitMode::Spin
            && alike(&self.scenario) == alike(&other.scenario)
    }

    pub(super) fn scenario_name(&self) -> &str {
        &self.scenario.name
    }

    /// Returns the file name of the program.
    pub(super) fn program(&self) -> &'static str {
        if self.wait == WaitMode::Runtime { OPENMP } else { THREADS }
    }

    /// Returns the competitors as the ideal counts them.
    pub(super) fn rivals(&self) -> Rivals {
        match self.scenario.rival {
            None => Rivals::None,
            Some(Competitor { duty: true, .. }) => Rivals::Duty(DUTY_SHARE),
            Some(_) => Rivals::Hogs(1),
        }
    }

    /// Returns the command line of the competitor, if there is one; `last` is the last of the
    /// cores.
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
            words.extend(["--duty".into(), (DUTY_SHARE * 100.0).to_string().into()]);
        }
        Some(words)
    }

    /// Returns the command line of the run.
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
            // The number of cores is given because the benchmark does not test the choice of cores:
            // it is confined to these.
            let cores = cores.to_string();
            // Foreign load is surveyed only if the decision depends on it.
            let survey = if self.way == BalanceVariant::WaitPolicy && self.scenario.rival.is_some() {
                "full"
            } else {
                "none"
            };
            let plain = ["run", "--no-rules", "--fit", "keep", "--survey", survey, "--cores", &cores];
            words.extend(plain.map(OsString::from));
        }
        match self.way {
            BalanceVariant::Balance(kind) => {
                words.push(format!("--balance={kind}").into());
                // The only policy that treats masks which crowd threads, and only if it may.
                if self.scenario.binds && kind == Kind::Auto {
                    words.push("--free".into());
                }
                words.push("--".into());
            }
            // Threads float, as under Linux alone: this variant tests waiting only.
            BalanceVariant::WaitPolicy => {
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
        if self.wait != WaitMode::Runtime {
            option("--wait", self.wait.word().to_owned());
        }
        if self.way == BalanceVariant::Pinned || self.scenario.binds {
            words.push("--pin".into());
        }
        words
    }

    /// Returns the variables that are set or, with `None`, removed. The user's own settings would
    /// make all variants equal.
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
            variables.push((name, value.filter(|_| self.way == BalanceVariant::Active).map(str::to_owned)));
        }
        let threads = (self.wait == WaitMode::Runtime).then(|| self.scenario.threads.to_string());
        variables.push(("OMP_NUM_THREADS", threads));
        variables
    }

    /// Returns the fault of a report that should be of this cell, or `None`.
    pub(super) fn fault(&self, report: &serde_json::Value) -> Option<String> {
        let of_cell = report["kernel"] == self.program() && report["threads"] == self.scenario.threads;
        if !of_cell {
            return Some("its report is of another run".to_owned());
        }
        let missing =
            ["seconds", "compute_seconds", "machine_cpus"].into_iter().find(|name| report[*name].is_null());
        missing.filter(|_| report["verified"] == true).map(|name| format!("its report lacks {name}"))
    }
}
