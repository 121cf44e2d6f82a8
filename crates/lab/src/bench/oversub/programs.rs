//! The programs of the study: which runtimes have them, by which words they are started, and what their reports say.

use super::super::harness;
use super::super::harness::programs::folder;
use super::super::team::peers::Peers;
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
use trimtab_core::study::{Arrangement, Cell, Company, Grip, Runtime};

/// Programs with barriers, and their like without: their work is told in steps.
const BARRIERS: &str = "balance_omp";
const PIPELINE: &str = "balance_pipeline";
const ZONES: &str = "nested_solver";
/// Work between two planes of the pipeline, in seconds: about that of LU, class W.
const PLANE: f64 = 0.000_2;
/// Milliseconds that ranks repeat a kernel for, at least: short ones would be lost in noise.
const LEAST: &str = "100";
/// Variables of the user that would make all ways alike.
const REMOVED: [&str; 14] = [
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
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_MAX_ACTIVE_LEVELS",
    "OMPI_MCA_mpi_yield_when_idle",
];

impl Program {
    /// The name of its file where OpenMP runs it.
    fn file(self) -> &'static str {
        match self {
            Self::Barriers1ms | Self::Barriers10ms | Self::Barriers100ms => BARRIERS,
            Self::Pipeline => PIPELINE,
            Self::Zones => ZONES,
            _ => self.word(),
        }
    }

    /// Whether its work is told in steps.
    pub(super) fn is_timed(self) -> bool {
        self.interval().is_some()
    }

    /// Seconds between two meetings of all threads with a thread for each core, where that is chosen.
    pub(super) fn interval(self) -> Option<f64> {
        match self {
            Self::Barriers1ms => Some(0.001),
            Self::Barriers10ms => Some(0.01),
            Self::Barriers100ms => Some(0.1),
            Self::Pipeline => Some(PLANE),
            _ => None,
        }
    }

    /// Zones of a multi-zone benchmark; `None` for other programs.
    fn zones(self, class: Class) -> Option<u32> {
        match (self, class) {
            (Self::LuMz, _) | (Self::BtMz | Self::SpMz, Class::W | Class::A) => Some(16),
            (Self::BtMz | Self::SpMz, Class::S) => Some(4),
            (Self::BtMz | Self::SpMz, Class::B) => Some(64),
            (Self::BtMz | Self::SpMz, Class::C) => Some(256),
            _ => None,
        }
    }

    /// The sizes of the outer team and of its threads' teams, for programs that have them. An outer thread has a core where there are zones
    /// enough, and otherwise as many as can be shared out evenly.
    fn teams(self, class: Class, cores: u32, per_core: u32) -> Option<(u32, u32)> {
        if self == Self::Zones {
            return Some((cores, per_core));
        }
        let zones = self.zones(class)?;
        let outer = (1..=cores.min(zones)).rev().find(|outer| cores.is_multiple_of(*outer))?;
        Some((outer, cores / outer * per_core))
    }

    /// How often all threads of a NAS kernel meet in a run: barriers and ends of parallel regions, counted in GCC's OpenMP. LU's threads wait
    /// for their neighbours besides, which is no meeting of all.
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

    /// Mean seconds between two meetings of all threads when the baseline takes so long; `None` where that is not known.
    pub(super) fn interval_of(self, class: Class, runtime: Runtime, baseline: Option<f64>) -> Option<f64> {
        let by_threads = peer(runtime).is_none();
        let counted = || Some(baseline? / self.meetings(class)?);
        self.interval().or_else(counted).filter(|_| by_threads)
    }

    /// Whether this runtime has it.
    pub(super) fn has(self, runtime: Runtime) -> bool {
        matches!(runtime, Runtime::Libgomp | Runtime::Libomp)
            || matches!(self, Self::Ep | Self::Ft | Self::Is)
    }
}

/// Seconds that a program whose work is chosen takes with a thread for each core.
fn seconds(class: Class) -> f64 {
    match class {
        Class::S => 0.2,
        Class::W => 0.5,
        Class::A => 2.0,
        Class::B => 8.0,
        Class::C => 30.0,
    }
}

/// Sides of the cubes of nested teams.
fn cells(class: Class) -> u32 {
    match class {
        Class::S => 16,
        Class::W => 32,
        Class::A => 48,
        Class::B => 64,
        Class::C => 96,
    }
}

/// How programs are started.
#[derive(Debug)]
pub(super) struct Tools {
    own: PathBuf,
    trimtab: PathBuf,
    /// What GCC built, and beside it what clang did.
    pub(super) folder: PathBuf,
    peers: Peers,
}

/// A start: the words, and what the environment has and lacks.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) words: Vec<OsString>,
    pub(super) variables: BTreeMap<String, Option<String>>,
}

impl Tools {
    /// Finds what there is; `trimtab` is the program that balances.
    ///
    /// # Errors
    /// There is no folder of programs, or what was named is not there.
    pub(super) fn find(args: &OversubArgs, trimtab: PathBuf) -> Result<Self> {
        let own = harness::own()?;
        let folder = match &args.programs {
            Some(named) if !named.is_dir() => {
                bail!("{} is no folder: --programs names one as make -C bench fills it", named.display())
            }
            Some(named) => std::path::absolute(named)?,
            // What is installed has no NAS kernels.
            None => folder(None, &own, &[BARRIERS, "cg"]).or_else(|_| folder(None, &own, &[BARRIERS]))?,
        };
        let peers = Peers::find(args.peer.as_deref(), Some(&folder), &own)?;
        Ok(Self { own, trimtab, folder, peers })
    }

    fn of_clang(&self) -> PathBuf {
        self.folder.parent().unwrap_or(Path::new("..")).join("clang")
    }

    /// The file of a program as OpenMP.
    fn compiled(&self, program: Program, runtime: Runtime) -> PathBuf {
        let folder = if runtime == Runtime::Libomp { self.of_clang() } else { self.folder.clone() };
        folder.join(program.file())
    }

    /// What measures steps a second.
    pub(super) fn calibrator(&self) -> PathBuf {
        self.folder.join(BARRIERS)
    }

    /// Why this cannot be run here, if it cannot.
    pub(super) fn lacks(&self, program: Program, runtime: Runtime) -> Option<String> {
        match (runtime, peer(runtime)) {
            (_, Some(name)) => self.peers.lacks(name, &["kernels"]),
            _ => {
                let file = self.compiled(program, runtime);
                let make =
                    if runtime == Runtime::Libomp { "make -C bench CC=clang" } else { "make -C bench" };
                let folder = file.parent().unwrap_or(Path::new("."));
                (!file.is_file()).then(|| format!("not in {} ({make})", folder.display()))
            }
        }
    }

    /// How a cell is started. `rate` is in steps a second, for programs whose work is told so.
    pub(super) fn start(
        &self,
        program: Program,
        class: Class,
        cell: &Cell,
        cpus: &CpuSet,
        rate: Option<u64>,
    ) -> Start {
        let Cell { runtime, threads, cores, per_core, grip, wait, .. } = *cell;
        let mut words: Vec<OsString> = vec![self.own.clone().into()];
        words.extend(["bench", "oversub-cell", "--cpus"].map(OsString::from));
        words.extend([cpus.to_string().into(), "--".into()]);
        if grip == Grip::Balanced {
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
        match peer(runtime) {
            Some(name) => words.extend(self.by_ranks(name, program, class, cell)),
            None => {
                words.push(self.compiled(program, runtime).into());
                words.extend(
                    by_threads(program, class, cores, per_core, rate).into_iter().map(OsString::from),
                );
            }
        }
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
        if grip == Grip::Pinned {
            let places: Vec<String> = cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect();
            set("OMP_PLACES", places.join(","));
            // Each outer thread has a core, and its team is there with it.
            set("OMP_PROC_BIND", if teams.is_some() { "spread,close" } else { "spread" }.to_owned());
        }
        for (name, value) in waits(runtime, wait, cell) {
            set(&name, value);
        }
        Start { words, variables }
    }

    fn by_ranks(&self, name: &str, program: Program, class: Class, cell: &Cell) -> Vec<OsString> {
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
        add(&["-B", "1", "-T", LEAST]);
        match cell.runtime {
            Runtime::TeamThread => add(&["-k", "thread"]),
            Runtime::TeamProcess => add(&["-k", "process"]),
            _ => {}
        }
        if cell.grip == Grip::Pinned {
            add(&["-p"]);
        }
        words
    }
}

/// What the script that starts ranks calls it; `None` for OpenMP.
fn peer(runtime: Runtime) -> Option<&'static str> {
    match runtime {
        Runtime::Libgomp | Runtime::Libomp => None,
        Runtime::OpenMpi => Some("openmpi"),
        Runtime::Mpich => Some("mpich"),
        Runtime::TeamThread | Runtime::TeamProcess => Some("team"),
    }
}

/// The arguments of a program of threads. The work of all threads together is the same however many there are, and so is the number of
/// times that they meet.
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

/// What tells a runtime how to wait: those of `trimtab run --wait-policy` that it reads.
pub(super) fn waits(runtime: Runtime, wait: WaitPolicy, cell: &Cell) -> Vec<(String, String)> {
    // Whoever starts a program where another runs sees that one, and that is all that matters of it here.
    let shares = |company: &&Company| company.arrangement == Arrangement::Shared;
    let shared = cell.company.iter().filter(shares).map(|_| OsCpu(0)).collect();
    let (threads, cpus) = (u64::from(cell.threads), u64::from(cell.cores));
    let occupancy = Occupancy { threads, cpus, shared, ..Occupancy::default() };
    variables(runtime, &decide(wait, &occupancy))
}

fn variables(runtime: Runtime, waiting: &Waiting) -> Vec<(String, String)> {
    let reads = runtime.runtime().row().wait_variables;
    let all = waiting.variables(Yield::Unknown, &|_| None).into_iter();
    let set = all.filter_map(|variable| match variable.action {
        Action::Set { value } if reads.contains(&variable.name.as_str()) => Some((variable.name, value)),
        _ => None,
    });
    set.collect()
}

/// Why this runtime cannot be told to wait so, if it cannot.
pub(super) fn deaf(runtime: Runtime, wait: WaitPolicy) -> Option<&'static str> {
    let how = match wait {
        WaitPolicy::Keep | WaitPolicy::Auto => return None,
        WaitPolicy::Spin => How::Spin,
        WaitPolicy::Yield => How::Yield,
        WaitPolicy::Sleep => How::Sleep,
    };
    match (runtime, how) {
        (Runtime::Mpich | Runtime::TeamThread | Runtime::TeamProcess, _) => {
            Some("it has no variable for how to wait")
        }
        (Runtime::Libgomp, How::Yield) => Some("it has no waiting that yields"),
        (Runtime::OpenMpi, How::Sleep) => Some("its ranks yield, but do not sleep"),
        _ => None,
    }
}

/// The seconds that a program reports, if it verified its result and is what was started.
pub(super) fn read(program: Program, cell: &Cell, said: &str) -> Result<f64, String> {
    let line = said.lines().rfind(|line| line.starts_with('{')).ok_or("it does not report")?;
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
        return Err("its report is of something else".to_owned());
    }
    // What runs by ranks says by its exit status whether its result is right.
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

    fn cell(runtime: Runtime, per_core: u32, wait: WaitPolicy) -> Cell {
        Cell {
            program: "cg".to_owned(),
            class: Some("S".to_owned()),
            family: Family::Nas,
            runtime,
            threads: 2 * per_core,
            cores: 2,
            per_core,
            grip: Grip::Floating,
            wait,
            company: None,
        }
    }

    #[test]
    fn each_runtime_is_told_in_its_own_words() {
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
            let company = Company {
                program: "ep".to_owned(),
                class: Some("S".to_owned()),
                runtime: Runtime::Libgomp,
                per_core: 1,
                arrangement,
                place: 1,
            };
            let cell = Cell { company: Some(company), ..cell(Runtime::Libgomp, 1, WaitPolicy::Auto) };
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
        assert_eq!(report(3, true, "0.5").unwrap_err(), "its report is of something else");
        assert_eq!(report(2, false, "0.5").unwrap_err(), "its result is not verified");
        assert_eq!(report(2, true, "null").unwrap_err(), "its report lacks seconds");
        assert_eq!(read(Program::Cg, &two, "hello\n").unwrap_err(), "it does not report");
        assert!(read(Program::Cg, &two, "{half\n").unwrap_err().contains("not JSON"));
        let ranks = cell(Runtime::Mpich, 2, WaitPolicy::Keep);
        let said = "note\n{\"peer\":\"mpich\",\"ranks\":4,\"kernel\":\"ft\",\"seconds\":0.25}\n";
        assert_eq!(read(Program::Ft, &ranks, said), Ok(0.25));
    }
}
