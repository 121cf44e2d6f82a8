//! OpenMP runtimes, and programs under the shim on each of them.

use crate::common::{HostProgram, HostRun, intel_runtime, llvm_runtime, skip};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Two teams of two, crossed so that a right answer cannot be luck.
pub(crate) const CROSSED: Map = Map { nest: "2,scatter,2,scatter", shape: "2,2", masks: "B,A/B,A,A,B" };

/// Two teams of two, each on one CPU.
pub(crate) const STACKED: Map = Map { nest: "2,scatter,2,subcompact", shape: "2,2", masks: "B,A/B,B,A,A" };

/// No thread is placed, as without the shim.
pub(crate) const NOWHERE: Map = Map { nest: "", shape: "2,2", masks: "all" };

/// Request for nested teams, and the expected places of their threads.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    pub(crate) nest: &'static str,
    pub(crate) shape: &'static str,
    pub(crate) masks: &'static str,
}

impl Map {
    /// Prepares a run with this map, told what to expect.
    pub(crate) fn run(self) -> HostRun {
        let tree = "1 tree=[B,A] roots=alone report=no";
        self.expected(HostRun::guest().plan(PLAN).nest(&format!("{tree} nest={}", self.nest)))
    }

    /// Sets this map as the expectation of a run, whatever makes it.
    pub(crate) fn expected(self, run: HostRun) -> HostRun {
        let run = run.env("EXPECT", self.masks).env("SHAPE", self.shape);
        // As the launcher sets them. Waiting passively is for the sake of the tests: they share two
        // CPUs.
        run.env("OMP_PROC_BIND", "false")
            .env("OMP_WAIT_POLICY", "passive")
            .env("KMP_HOT_TEAMS_MAX_LEVEL", "2")
            .env("KMP_WARNINGS", "false")
    }
}

/// Plan that the launcher gives a program with an OpenMP runtime.
pub(crate) const PLAN: &str = "mask=A,B slots=B/A pin=float";

/// Compiler, and the runtime that its programs find when they start.
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    pub(crate) language: [&'static str; 3],
    /// Folder in which the loader finds another runtime under the name of the compiler's own.
    instead: Option<TempDir>,
}

/// C, C++ and Fortran of each family.
const GNU: [&str; 3] = ["gcc", "g++", "gfortran"];
const LLVM: [&str; 3] = ["clang", "clang++", "flang-new"];

impl Runtime {
    pub(crate) fn gnu() -> Self {
        Self { name: "gcc on libgomp", language: GNU, instead: None }
    }

    pub(crate) fn llvm() -> Self {
        Self { name: "clang on libomp", language: LLVM, instead: None }
    }

    /// Returns the compiler's programs on the runtime in this file, under the alias.
    fn with(name: &'static str, language: [&'static str; 3], alias: &str, runtime: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(runtime, folder.path().join(alias)).unwrap();
        Self { name, language, instead: Some(folder) }
    }

    /// Returns every pair that this machine has.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::gnu(), Self::llvm()];
        match llvm_runtime() {
            Some(path) => all.push(Self::with("gcc on libomp", GNU, "libgomp.so.1", &path)),
            None => skip("clang's libomp.so is not installed"),
        }
        match intel_runtime() {
            Some(path) => {
                all.push(Self::with("gcc on libiomp5", GNU, "libgomp.so.1", &path));
                all.push(Self::with("clang on libiomp5", LLVM, "libomp.so.5", &path));
            }
            None => skip("Intel's libiomp5.so is not here (scripts/wheels fetches it)"),
        }
        all
    }

    /// Returns the pairs in which GCC compiles the programs.
    pub(crate) fn all_gnu() -> Vec<Self> {
        Self::all().into_iter().filter(|runtime| runtime.language == GNU).collect()
    }

    pub(crate) fn is_llvm(&self) -> bool {
        self.language == LLVM
    }

    /// Builds a program of these files in `tests/nested`, with the compiler for the ending of the
    /// last.
    pub(crate) fn program(&self, sources: &[&str]) -> Option<HostProgram> {
        self.build(sources, &[])
    }

    pub(crate) fn build(&self, sources: &[&str], flags: &[&str]) -> Option<HostProgram> {
        let last = sources.last().unwrap();
        let [c, cxx, fortran] = self.language;
        let compiler = if last.ends_with(".cpp") {
            cxx
        } else if sources.iter().any(|source| source.ends_with(".f90")) {
            fortran
        } else {
            c
        };
        self.build_with(compiler, sources, flags)
    }

    pub(crate) fn build_with(&self, compiler: &str, sources: &[&str], flags: &[&str]) -> Option<HostProgram> {
        let sources: Vec<_> = sources.iter().map(|source| format!("nested/{source}")).collect();
        let sources: Vec<_> = sources.iter().map(String::as_str).collect();
        let include = format!("-I{}", include().display());
        let mut all = vec!["-O1", "-fopenmp", "-pthread", &include];
        all.extend_from_slice(flags);
        all.push("-ldl");
        HostProgram::built_of(compiler, &sources, &all)
    }

    /// Lets the program find the runtime.
    pub(crate) fn provide(&self, run: HostRun) -> HostRun {
        match &self.instead {
            Some(folder) => run.env("LD_LIBRARY_PATH", folder.path().to_str().unwrap()),
            None => run,
        }
    }
}

/// Returns the header's folder.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include").canonicalize().unwrap()
}

/// Runs a program that counts its checks. Returns the number of checks, all passed; `None` if it
/// cannot run.
#[track_caller]
pub(crate) fn checks(what: &str, run: HostRun, program: &HostProgram) -> Option<u64> {
    let outcome = run.run(program)?;
    let last = outcome.stdout.lines().last().unwrap_or_default();
    let counted = last.strip_prefix("checks ").and_then(|rest| rest.strip_suffix(" wrong 0"));
    let checks = counted.and_then(|count| count.parse().ok());
    assert!(
        outcome.code == Some(0) && outcome.stderr.is_empty() && checks.is_some(),
        "{what}: exit status {:?}\n{}\n{}",
        outcome.code,
        outcome.stdout,
        outcome.stderr
    );
    checks
}

/// Runs one program on every runtime; `runs` makes the runs. Each must make at least this number of
/// checks.
#[track_caller]
pub(crate) fn on_all<R: IntoIterator<Item = HostRun>>(sources: &[&str], least: u64, runs: impl Fn() -> R) {
    on(&Runtime::all(), sources, least, runs);
}

#[track_caller]
pub(crate) fn on<R>(runtimes: &[Runtime], sources: &[&str], least: u64, runs: impl Fn() -> R)
where
    R: IntoIterator<Item = HostRun>,
{
    let mut built: Vec<([&str; 3], Option<HostProgram>)> = Vec::new();
    for runtime in runtimes {
        if built.iter().all(|(language, _)| *language != runtime.language) {
            built.push((runtime.language, runtime.program(sources)));
        }
        let program = built.iter().find(|(language, _)| *language == runtime.language);
        let Some((_, Some(program))) = program else { continue };
        for (number, run) in runs().into_iter().enumerate() {
            let what = format!("{}, run {number}", runtime.name);
            if let Some(count) = checks(&what, runtime.provide(run), program) {
                assert!(count >= least, "{what}: only {count} checks");
            }
        }
    }
}
