//! Programs of the study: their runtimes, command lines and reports.

use super::super::harness;
use super::super::harness::programs::folder;
use super::super::team::peers::Peers;
use super::reference::{self, References};
use crate::args::{Class, OversubArgs, Program};
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::Action;
use trimtab_core::place::waiting::{How, Occupancy, WaitPolicy, Waiting, Yield, decide};
use trimtab_core::set::CpuSet;
use trimtab_core::study::{Arrangement, PairedProgram, Runtime, StudyCell, ThreadBinding};

/// Programs whose work is given in steps (with barriers, and a pipeline without), and a program
/// with nested teams.
const BARRIERS: &str = "balance_omp";
const PIPELINE: &str = "balance_pipeline";
const ZONES: &str = "nested_solver";
/// Work between two planes of the pipeline, in seconds: about that of LU, class W.
const PLANE_WORK_S: f64 = 0.000_2;
/// Shortest time for which ranks repeat a kernel, in milliseconds: shorter times would be lost in
/// noise.
const KERNEL_MS_MIN: &str = "100";
/// Variable that sets how ranks of UPC++ wait. The table of runtimes has the runtimes that the
/// launcher places.
const UPCXX_WAITS: &str = "UPCXX_OVERSUBSCRIBED";
/// Variables of the user that would make all variants equal.
const REMOVED: [&str; 16] = [
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_USE_YIELD",
    "KMP_LIBRARY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "OMP_DYNAMIC",
    "OMP_SCHEDULE",
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_MAX_ACTIVE_LEVELS",
    "OMPI_MCA_mpi_yield_when_idle",
    UPCXX_WAITS,
];

impl Program {
    /// Returns the file name of the program's OpenMP version.
    fn file(self) -> &'static str {
        match self {
            Self::Barriers1ms | Self::Barriers10ms | Self::Barriers100ms => BARRIERS,
            Self::Pipeline => PIPELINE,
            Self::Zones => ZONES,
            _ => self.word(),
        }
    }

    /// Returns whether the work of the program is given in steps.
    pub(super) fn is_timed(self) -> bool {
        self.interval().is_some()
    }

    /// Returns the seconds between two barriers of all threads at one thread per core, if the study
    /// chooses them.
    pub(super) fn interval(self) -> Option<f64> {
        match self {
            Self::Barriers1ms => Some(0.001),
            Self::Barriers10ms => Some(0.01),
            Self::Barriers100ms => Some(0.1),
            Self::Pipeline => Some(PLANE_WORK_S),
            _ => None,
        }
    }

    /// Returns the zones of a multi-zone benchmark; `None` for other programs.
    fn zones(self, class: Class) -> Option<u32> {
        match (self, class) {
            (Self::LuMz, _) | (Self::BtMz | Self::SpMz, Class::W | Class::A) => Some(16),
            (Self::BtMz | Self::SpMz, Class::S) => Some(4),
            (Self::BtMz | Self::SpMz, Class::B) => Some(64),
            (Self::BtMz | Self::SpMz, Class::C) => Some(256),
            _ => None,
        }
    }

    /// Returns the sizes of the outer team and of its threads' teams, for programs with nested
    /// teams. Each outer thread has a core if there are enough zones; otherwise the outer team is
    /// the largest that divides the cores evenly.
    fn teams(self, class: Class, cores: u32, per_core: u32) -> Option<(u32, u32)> {
        if self == Self::Zones {
            return Some((cores, per_core));
        }
        let zones = self.zones(class)?;
        let outer = (1..=cores.min(zones)).rev().find(|outer| cores.is_multiple_of(*outer))?;
        Some((outer, cores / outer * per_core))
    }

    /// Returns the number of barriers of all threads in a run of a NAS kernel: barriers and ends of
    /// parallel regions, counted in GCC's OpenMP. LU's threads also wait for their neighbours,
    /// which is not a barrier.
    fn meetings(self, class: Class) -> Option<f64> {
        match (self, class) {
            (Self::Bt, Class::S) => Some(383.0),
            (Self::Bt, _) => Some(1_223.0),
            (Self::Cg, Class::S | Class::W | Class::A) => Some(2_087.0),
            (Self::Ep, _) => Some(4.0),
            (Self::Ft, Class::S | Class::W | Class::A) => Some(47.0),
            (Self::Is, _) => Some(60.0),
            (Self::Mg, Class::S) => Some(136.0),
            (Self::Mg, Class::W) => Some(184.0),
            (Self::Sp, Class::S) => Some(623.0),
            (Self::Sp, _) => Some(2_423.0),
            _ => None,
        }
    }

    /// Returns the mean seconds between two barriers of all threads for this baseline time; `None`
    /// if unknown.
    pub(super) fn interval_of(self, class: Class, runtime: Runtime, baseline: Option<f64>) -> Option<f64> {
        let by_threads = peer(runtime).is_none();
        let counted = || Some(baseline? / self.meetings(class)?);
        self.interval().or_else(counted).filter(|_| by_threads)
    }

    /// Returns whether the program reports its time; that of other commands is from start to end.
    pub(super) fn reports(self) -> bool {
        !matches!(self, Self::Own(_))
    }

    /// Returns the problem class of a run; `None` for commands, which have none.
    pub(super) fn class(self, class: Class) -> Option<String> {
        self.reports().then(|| class.word().to_owned())
    }

    /// Returns whether the program is also built to take its schedule from `OMP_SCHEDULE`.
    pub(super) fn takes_schedule(self) -> bool {
        matches!(self, Self::Bt | Self::Cg | Self::Ep | Self::Ft | Self::Mg | Self::Sp)
    }
}

/// Returns the run time, in seconds, of a program whose work is chosen, at one thread per core.
fn seconds(class: Class) -> f64 {
    match class {
        Class::S => 0.2,
        Class::W => 0.5,
        Class::A => 2.0,
        Class::B => 8.0,
        Class::C => 30.0,
    }
}

/// Returns the side length of the cubes of nested teams, in cells.
fn cells(class: Class) -> u32 {
    match class {
        Class::S => 16,
        Class::W => 32,
        Class::A => 48,
        Class::B => 64,
        Class::C => 96,
    }
}

/// Tools that start the programs.
#[derive(Debug)]
pub(super) struct OversubTools {
    own: PathBuf,
    trimtab: PathBuf,
    /// Programs built by GCC; those built by clang are in `clang` beside this folder.
    pub(super) folder: PathBuf,
    peers: Peers,
    /// Reference programs of the user.
    pub(super) references: References,
}

/// Command line, and variables to set or, with `None`, to remove.
#[derive(Clone, Debug)]
pub(super) struct ProgramStart {
    pub(super) words: Vec<OsString>,
    pub(super) variables: BTreeMap<String, Option<String>>,
    /// Whether the program's output is a report.
    pub(super) reports: bool,
}

impl OversubTools {
    /// Finds the tools; `trimtab` is the program that balances.
    ///
    /// # Errors
    /// There is no folder of programs, or a path that was given does not exist.
    pub(super) fn find(
        args: &OversubArgs,
        class: Class,
        kernels: &[Program],
        trimtab: PathBuf,
    ) -> Result<Self> {
        let own = harness::own()?;
        let folder = match &args.programs {
            Some(named) if !named.is_dir() => {
                bail!(
                    "{} is not a folder: --programs needs one that make -C bench has filled",
                    named.display()
                )
            }
            Some(named) => std::path::absolute(named)?,
            // An older installed folder has no NAS kernels.
            None => folder(None, &own, &[BARRIERS, "cg"]).or_else(|_| folder(None, &own, &[BARRIERS]))?,
        };
        let peers = Peers::find(args.peer.as_deref(), Some(&folder), &own)?;
        let references = References::find(args, class, kernels)?;
        Ok(Self { own, trimtab, folder, peers, references })
    }

    /// Returns the folder of the programs built by clang: within an installed folder, beside one of
    /// the source tree.
    fn of_clang(&self) -> PathBuf {
        let within = self.folder.join("clang");
        if within.is_dir() { within } else { self.folder.parent().unwrap_or(Path::new("..")).join("clang") }
    }

    /// Returns the file of a program's OpenMP version; with a schedule, of the one that reads
    /// `OMP_SCHEDULE`.
    fn compiled(&self, program: Program, runtime: Runtime, scheduled: bool) -> PathBuf {
        if let Program::Npb(kernel) = program {
            return self.references.path(kernel, runtime).unwrap_or(Path::new("")).to_owned();
        }
        let folder = if runtime == Runtime::Libomp { self.of_clang() } else { self.folder.clone() };
        if scheduled { folder.join("scheduled").join(program.file()) } else { folder.join(program.file()) }
    }

    /// Returns whether this runtime has the program.
    pub(super) fn has(&self, program: Program, runtime: Runtime) -> bool {
        match program {
            Program::Npb(kernel) => self.references.path(kernel, runtime).is_some(),
            Program::Cg | Program::Ep | Program::Ft | Program::Is | Program::Mg => true,
            _ => matches!(runtime, Runtime::Libgomp | Runtime::Libomp | Runtime::Any),
        }
    }

    /// Returns the program that measures steps per second.
    pub(super) fn calibrator(&self) -> PathBuf {
        self.folder.join(BARRIERS)
    }

    /// Returns why this program cannot run here, or `None`.
    pub(super) fn lacks(&self, program: Program, runtime: Runtime, scheduled: bool) -> Option<String> {
        match (runtime, peer(runtime), program) {
            (Runtime::Any, ..) => None,
            (_, Some(name), Program::Npb(_)) => self.peers.lacks(name, &["start"]),
            (_, Some(name), _) => self.peers.lacks(name, &["kernels"]),
            _ => {
                let file = self.compiled(program, runtime, scheduled);
                let make =
                    if runtime == Runtime::Libomp { "make -C bench CC=clang" } else { "make -C bench" };
                let folder = file.parent().unwrap_or(Path::new("."));
                (!file.is_file()).then(|| format!("not in {} ({make})", folder.display()))
            }
        }
    }

    /// Returns the start of a cell. `rate` is in steps per second, for programs whose work is given
    /// in steps.
    pub(super) fn start(
        &self,
        program: Program,
        class: Class,
        cell: &StudyCell,
        cpus: &CpuSet,
        rate: Option<u64>,
    ) -> ProgramStart {
        let StudyCell { runtime, threads, cores, per_core, grip, wait, .. } = *cell;
        let mut words: Vec<OsString> = vec![self.own.clone().into()];
        words.extend(["bench", "oversub-cell", "--cpus"].map(OsString::from));
        words.extend([cpus.to_string().into(), "--".into()]);
        if grip == ThreadBinding::Balanced {
            words.push(self.trimtab.clone().into());
            words.extend(
                ["run", "--no-rules", "--survey", "none", "--fit", "keep", "--share", "--cores"]
                    .map(OsString::from),
            );
            words.push(cores.to_string().into());
            words.extend(
                ["--pin", "mask", "--wait-policy", "keep", "--balance=speed", "--"].map(OsString::from),
            );
        }
        words.extend(self.command(program, class, cell, rate));
        let mut variables: BTreeMap<String, Option<String>> =
            REMOVED.iter().map(|name| ((*name).to_owned(), None)).collect();
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), Some(value));
        set("TEAM_PROGRAMS", self.folder.display().to_string());
        let teams = program.teams(class, cores, per_core);
        // Zones takes its teams from its command line.
        if program != Program::Zones {
            let number =
                teams.map_or_else(|| threads.to_string(), |(outer, inner)| format!("{outer},{inner}"));
            set("OMP_NUM_THREADS", number);
        }
        set("OMP_DYNAMIC", "false".to_owned());
        if let Some(schedule) = cell.schedule {
            set("OMP_SCHEDULE", schedule.to_string());
        }
        if grip == ThreadBinding::Pinned {
            let places: Vec<String> = cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect();
            set("OMP_PLACES", places.join(","));
            // Each outer thread has a core, and its team runs there with it.
            set("OMP_PROC_BIND", if teams.is_some() { "spread,close" } else { "spread" }.to_owned());
        }
        for (name, value) in waits(runtime, wait, cell) {
            set(&name, value);
        }
        ProgramStart { words, variables, reports: program.reports() }
    }

    /// Returns the words that start the program itself, or the launcher of its ranks.
    fn command(&self, program: Program, class: Class, cell: &StudyCell, rate: Option<u64>) -> Vec<OsString> {
        let StudyCell { runtime, threads, cores, per_core, schedule, .. } = *cell;
        let file = || self.compiled(program, runtime, schedule.is_some());
        match (peer(runtime), program) {
            (Some(name), Program::Npb(_)) => reference::words(self.peers.words(name), threads, &file()),
            (Some(name), _) => self.by_ranks(name, program, class, cell),
            (None, Program::Own(command)) => command.split(' ').map(OsString::from).collect(),
            (None, Program::Npb(_)) => vec![file().into()],
            (None, _) => {
                let arguments = by_threads(program, class, cores, per_core, rate).into_iter();
                [file().into()].into_iter().chain(arguments.map(OsString::from)).collect()
            }
        }
    }

    fn by_ranks(&self, name: &str, program: Program, class: Class, cell: &StudyCell) -> Vec<OsString> {
        let mut words = self.peers.words(name);
        let mut add = |all: &[&str]| words.extend(all.iter().map(OsString::from));
        add(&[
            "kernels",
            "-n",
            &cell.threads.to_string(),
            "-K",
            program.word(),
            "-c",
            class.word(),
            "-m",
            "stream",
        ]);
        add(&["-B", "1", "-T", KERNEL_MS_MIN]);
        match cell.runtime {
            Runtime::TeamThread => add(&["-k", "thread"]),
            Runtime::TeamProcess => add(&["-k", "process"]),
            _ => {}
        }
        if cell.grip == ThreadBinding::Pinned {
            add(&["-p"]);
        }
        words
    }
}

/// Returns the runtime's name in the script that starts ranks; `None` for OpenMP.
pub(super) fn peer(runtime: Runtime) -> Option<&'static str> {
    match runtime {
        Runtime::Libgomp | Runtime::Libomp | Runtime::Any => None,
        Runtime::OpenMpi => Some("openmpi"),
        Runtime::Mpich => Some("mpich"),
        Runtime::TeamThread | Runtime::TeamProcess => Some("team"),
        Runtime::Upcxx => Some("upcxx"),
    }
}

/// Returns the arguments of a program of threads. The total work of all threads and the number of
/// barriers do not depend on the number of threads.
fn by_threads(program: Program, class: Class, cores: u32, per_core: u32, rate: Option<u64>) -> Vec<String> {
    let each = f64::from(per_core);
    match (program, program.interval()) {
        (_, Some(interval)) => {
            let (work, phase) = (seconds(class) / each, interval / each);
            let mut words =
                vec!["--work".to_owned(), format!("{work:.7}"), "--phase".to_owned(), format!("{phase:.7}")];
            if let Some(rate) = rate {
                words.extend(["--rate".to_owned(), rate.to_string()]);
            }
            words
        }
        (Program::Zones, _) => {
            let words = ["--json", "--repetitions", "1", "--cells"].map(str::to_owned);
            words.into_iter().chain([cells(class).to_string(), format!("{cores}x{per_core}")]).collect()
        }
        _ => vec![class.word().to_owned(), "--json".to_owned()],
    }
}

/// Returns the variables that set a runtime's wait policy: those of `trimtab run --wait-policy`
/// that it reads.
pub(super) fn waits(runtime: Runtime, wait: WaitPolicy, cell: &StudyCell) -> Vec<(String, String)> {
    // Two programs that share cores see each other at their start; nothing else of the other
    // program matters here.
    let shares = |company: &&PairedProgram| company.arrangement == Arrangement::Shared;
    let shared = cell.company.iter().filter(shares).map(|_| OsCpu(0)).collect();
    let (threads, cpus) = (u64::from(cell.threads), u64::from(cell.cores));
    let occupancy = Occupancy { threads, cpus, shared, ..Occupancy::default() };
    variables(runtime, &decide(wait, &occupancy))
}

fn variables(runtime: Runtime, waiting: &Waiting) -> Vec<(String, String)> {
    let reads = match runtime {
        Runtime::Upcxx => &[UPCXX_WAITS][..],
        _ => runtime.runtime().row().wait_variables,
    };
    let all = waiting.variables(Yield::Unknown, &|_| None).into_iter();
    let set = all.filter_map(|variable| match variable.action {
        Action::Set { value } if reads.contains(&variable.name.as_str()) => Some((variable.name, value)),
        _ => None,
    });
    set.collect()
}

/// Returns why this runtime does not support the wait policy, or `None`.
pub(super) fn deaf(runtime: Runtime, wait: WaitPolicy) -> Option<&'static str> {
    let how = match wait {
        WaitPolicy::Keep | WaitPolicy::Auto => return None,
        WaitPolicy::Spin => How::Spin,
        WaitPolicy::Yield => How::Yield,
        WaitPolicy::Sleep => How::Sleep,
    };
    match (runtime, how) {
        (Runtime::Mpich | Runtime::TeamThread | Runtime::TeamProcess, _) => {
            Some("it has no variable for its wait policy")
        }
        (Runtime::Libgomp, How::Yield) => Some("it cannot yield while waiting"),
        (Runtime::Any, How::Yield) => Some("only some OpenMP runtimes yield while waiting"),
        (Runtime::OpenMpi | Runtime::Upcxx, How::Sleep) => Some("its ranks yield, but do not sleep"),
        _ => None,
    }
}

/// Returns the seconds that a program reports, if its result is verified and the report is of this
/// cell.
pub(super) fn read(program: Program, cell: &StudyCell, said: &str) -> Result<f64, String> {
    if let Program::Npb(kernel) = program {
        return reference::read(kernel, cell.class.as_deref().unwrap_or_default(), cell.threads, said);
    }
    let line = said.lines().rfind(|line| line.starts_with('{')).ok_or("its report is missing")?;
    let report: Value =
        serde_json::from_str(line).map_err(|error| format!("its report is not JSON: {error}"))?;
    let number = |name: &str| report[name].as_u64();
    let same = match (peer(cell.runtime), program) {
        (Some(_), _) => {
            report["kernel"] == program.word() && number("ranks") == Some(u64::from(cell.threads))
        }
        (None, Program::Zones) => {
            let shape = (number("outer"), number("inner"));
            report["kernel"] == ZONES
                && shape == (Some(u64::from(cell.cores)), Some(u64::from(cell.per_core)))
        }
        _ => report["kernel"] == program.file() && number("threads") == Some(u64::from(cell.threads)),
    };
    if !same {
        return Err("its report is of another run".to_owned());
    }
    // Programs of ranks report a wrong result by their exit status.
    if peer(cell.runtime).is_none() && report["verified"] != true {
        return Err("its result is not verified".to_owned());
    }
    let seconds = if program == Program::Zones { &report["seconds"]["median"] } else { &report["seconds"] };
    seconds.as_f64().filter(|seconds| *seconds > 0.0).ok_or_else(|| "its report lacks seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::study::Family;

    fn cell(runtime: Runtime, per_core: u32, wait: WaitPolicy) -> StudyCell {
        StudyCell {
            program: "cg".to_owned(),
            class: Some("S".to_owned()),
            family: Family::Nas,
            runtime,
            threads: 2 * per_core,
            cores: 2,
            per_core,
            grip: ThreadBinding::Floating,
            wait,
            schedule: None,
            company: None,
        }
    }

    #[test]
    fn each_runtime_gets_its_own_variables() {
        let said = |runtime, per_core, wait| -> Vec<String> {
            let all = waits(runtime, wait, &cell(runtime, per_core, wait)).into_iter();
            all.map(|(name, value)| format!("{name}={value}")).collect()
        };
        assert_eq!(said(Runtime::Libgomp, 2, WaitPolicy::Sleep), ["OMP_WAIT_POLICY=passive"]);
        assert_eq!(
            said(Runtime::Libomp, 1, WaitPolicy::Yield),
            ["KMP_BLOCKTIME=infinite", "KMP_USE_YIELD=1"]
        );
        assert_eq!(said(Runtime::OpenMpi, 4, WaitPolicy::Spin), ["OMPI_MCA_mpi_yield_when_idle=0"]);
        assert_eq!(said(Runtime::Upcxx, 4, WaitPolicy::Yield), ["UPCXX_OVERSUBSCRIBED=yes"]);
        for runtime in Runtime::ALL {
            assert_eq!(said(runtime, 4, WaitPolicy::Keep), [""; 0]);
            assert_eq!(said(runtime, 1, WaitPolicy::Auto), [""; 0], "as it is where every thread has a core");
            for wait in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Sleep] {
                assert!(
                    deaf(runtime, wait).is_some() || !said(runtime, 2, wait).is_empty(),
                    "{runtime} {wait}"
                );
            }
        }
    }

    #[test]
    fn a_program_that_shares_its_cores_waits_as_its_runtime_does() {
        let beside = |arrangement| {
            let company = PairedProgram {
                program: "ep".to_owned(),
                class: Some("S".to_owned()),
                runtime: Runtime::Libgomp,
                per_core: 1,
                arrangement,
                place: 1,
            };
            let cell = StudyCell { company: Some(company), ..cell(Runtime::Libgomp, 1, WaitPolicy::Auto) };
            waits(Runtime::Libgomp, WaitPolicy::Auto, &cell)
        };
        assert_eq!(beside(Arrangement::Shared), []);
        assert_eq!(beside(Arrangement::Partitioned), []);
    }

    #[test]
    fn all_threads_together_have_the_same_work() {
        for program in [Program::Barriers1ms, Program::Barriers100ms, Program::Pipeline] {
            let number = |per_core: u32, at: usize| -> f64 {
                by_threads(program, Class::W, 2, per_core, Some(7))[at].parse().unwrap()
            };
            for per_core in [1, 2, 4, 8] {
                assert!((number(per_core, 1) * f64::from(per_core) - 0.5).abs() < 1e-5);
                let phases = number(per_core, 1) / number(per_core, 3);
                assert!((phases / (0.5 / program.interval().unwrap()) - 1.0).abs() < 1e-2, "{phases}");
            }
        }
        assert_eq!(by_threads(Program::Zones, Class::S, 2, 4, None).last().unwrap(), "2x4");
        assert_eq!(by_threads(Program::Cg, Class::A, 2, 4, None), ["A", "--json"]);
    }

    #[test]
    fn outer_threads_have_a_core_or_share_cores_out_evenly() {
        let teams = |program: Program, class, cores| program.teams(class, cores, 2);
        assert_eq!(teams(Program::Zones, Class::S, 48), Some((48, 2)));
        assert_eq!(teams(Program::LuMz, Class::S, 2), Some((2, 2)));
        assert_eq!(teams(Program::BtMz, Class::S, 6), Some((3, 4)), "4 zones");
        assert_eq!(teams(Program::SpMz, Class::W, 48), Some((16, 6)));
        assert_eq!(teams(Program::SpMz, Class::W, 17), Some((1, 34)));
        assert_eq!(teams(Program::SpMz, Class::B, 48), Some((48, 2)));
        assert_eq!(teams(Program::LuFlags, Class::B, 48), None);
    }

    #[test]
    fn reports_of_something_else_are_refused() {
        let two = cell(Runtime::Libgomp, 1, WaitPolicy::Keep);
        let report = |threads: u32, verified: bool, seconds: &str| {
            read(
                Program::Cg,
                &two,
                &format!(
                    "{{\"kernel\":\"cg\",\"threads\":{threads},\"seconds\":{seconds},\"verified\":{verified}}}\n"
                ),
            )
        };
        assert_eq!(report(2, true, "0.5"), Ok(0.5));
        assert_eq!(report(3, true, "0.5").unwrap_err(), "its report is of another run");
        assert_eq!(report(2, false, "0.5").unwrap_err(), "its result is not verified");
        assert_eq!(report(2, true, "null").unwrap_err(), "its report lacks seconds");
        assert_eq!(read(Program::Cg, &two, "hello\n").unwrap_err(), "its report is missing");
        assert!(read(Program::Cg, &two, "{half\n").unwrap_err().contains("not JSON"));
        let ranks = cell(Runtime::Mpich, 2, WaitPolicy::Keep);
        let said = "note\n{\"peer\":\"mpich\",\"ranks\":4,\"kernel\":\"ft\",\"seconds\":0.25}\n";
        assert_eq!(read(Program::Ft, &ranks, said), Ok(0.25));
    }
}
