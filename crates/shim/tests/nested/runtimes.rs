//! OpenMP's runtimes, and programs under the guest on each of them.

use crate::common::{Program, Run, library, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Two teams of two, crossed so that a right answer cannot be luck.
pub(crate) const CROSSED: Map = Map { nest: "2,scatter,2,scatter", shape: "2,2", masks: "B,A/B,A,A,B" };

/// Two teams of two, each on one CPU.
pub(crate) const STACKED: Map = Map { nest: "2,scatter,2,subcompact", shape: "2,2", masks: "B,A/B,B,A,A" };

/// Nobody is placed, as when there is no guest.
pub(crate) const NOWHERE: Map = Map { nest: "", shape: "2,2", masks: "all" };

/// What the guest is told of nested teams, and where their threads should then be.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    pub(crate) nest: &'static str,
    pub(crate) shape: &'static str,
    pub(crate) masks: &'static str,
}

impl Map {
    /// A run told of this map, and told what to expect.
    pub(crate) fn run(self) -> Run {
        let tree = "1 tree=[B,A] roots=alone report=no";
        self.expected(Run::guest().plan(PLAN).nest(&format!("{tree} nest={}", self.nest)))
    }

    /// A run with this map expected, whoever makes it.
    pub(crate) fn expected(self, run: Run) -> Run {
        let run = run.env("EXPECT", self.masks).env("SHAPE", self.shape);
        // As the launcher sets them. Waiting passively is for the sake of the tests: they share two CPUs.
        run.env("OMP_PROC_BIND", "false")
            .env("OMP_WAIT_POLICY", "passive")
            .env("KMP_HOT_TEAMS_MAX_LEVEL", "2")
            .env("KMP_WARNINGS", "false")
    }
}

/// What the launcher hands a program with an OpenMP runtime.
pub(crate) const PLAN: &str = "mask=A,B slots=B/A pin=float";

/// A compiler, and the runtime that its programs find when they start.
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    pub(crate) language: [&'static str; 3],
    /// Where the loader finds another runtime under the name of the compiler's own.
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

    /// The compiler's programs on the runtime in this file, which claims to be theirs.
    fn with(name: &'static str, language: [&'static str; 3], alias: &str, runtime: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(runtime, folder.path().join(alias)).unwrap();
        Self { name, language, instead: Some(folder) }
    }

    /// Every pair that this machine has.
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

    /// Those whose programs are compiled by GCC.
    pub(crate) fn all_gnu() -> Vec<Self> {
        Self::all().into_iter().filter(|runtime| runtime.language == GNU).collect()
    }

    pub(crate) fn is_llvm(&self) -> bool {
        self.language == LLVM
    }

    /// A program of these files in `tests/nested`; compiled by what the ending of the last asks for.
    pub(crate) fn program(&self, sources: &[&str]) -> Option<Program> {
        self.build(sources, &[])
    }

    pub(crate) fn build(&self, sources: &[&str], flags: &[&str]) -> Option<Program> {
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

    pub(crate) fn build_with(&self, compiler: &str, sources: &[&str], flags: &[&str]) -> Option<Program> {
        let sources: Vec<_> = sources.iter().map(|source| format!("nested/{source}")).collect();
        let sources: Vec<_> = sources.iter().map(String::as_str).collect();
        let include = format!("-I{}", include().display());
        let mut all = vec!["-O1", "-fopenmp", "-pthread", &include];
        all.extend_from_slice(flags);
        all.push("-ldl");
        Program::built_of(compiler, &sources, &all)
    }

    /// Lets the program find the runtime.
    pub(crate) fn provide(&self, run: Run) -> Run {
        match &self.instead {
            Some(folder) => run.env("LD_LIBRARY_PATH", folder.path().to_str().unwrap()),
            None => run,
        }
    }
}

/// The header's folder.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include").canonicalize().unwrap()
}

/// Runs a program that counts its checks. Nothing where it cannot run; otherwise how much it looked at, which was right.
#[track_caller]
pub(crate) fn checks(what: &str, run: Run, program: &Program) -> Option<u64> {
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

/// Runs one program on every runtime; `runs` makes the runs. At least so many things must be looked at in each.
#[track_caller]
pub(crate) fn on_all<R: IntoIterator<Item = Run>>(sources: &[&str], least: u64, runs: impl Fn() -> R) {
    on(&Runtime::all(), sources, least, runs);
}

#[track_caller]
pub(crate) fn on<R>(runtimes: &[Runtime], sources: &[&str], least: u64, runs: impl Fn() -> R)
where
    R: IntoIterator<Item = Run>,
{
    let mut built: Vec<([&str; 3], Option<Program>)> = Vec::new();
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

/// The file that clang's programs load.
fn llvm_runtime() -> Option<PathBuf> {
    ["libomp.so.5", "libomp.so"].into_iter().find_map(|name| {
        let output = Command::new("clang").arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        path.is_absolute().then(|| path.canonicalize().ok()).flatten()
    })
}

/// A wheel that `scripts/wheels` fetched.
pub(crate) fn wheel(name: &str) -> Option<PathBuf> {
    let target = library().parent()?.ancestors().find_map(|folder| {
        let wheel = folder.join("wheels").join(name);
        wheel.is_dir().then_some(wheel)
    })?;
    Some(target)
}

fn intel_runtime() -> Option<PathBuf> {
    let data = std::fs::read_dir(wheel("intel-openmp")?).ok()?.flatten();
    data.map(|entry| entry.path().join("data/lib/libiomp5.so")).find(|path| path.exists())
}
