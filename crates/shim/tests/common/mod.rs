//! Harness that runs real programs under the shim.
//!
//! Plans are written for two CPUs called A and B, the first two this process may use, whatever
//! their numbers; programs report masks in the same letters (`c/seen.h`). Plans are crossed, so
//! that a right answer cannot be luck.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Prints visibly what was not tested and why.
pub(crate) fn skip(reason: &str) {
    #[expect(clippy::print_stderr, reason = "a skipped test is reported")]
    {
        eprintln!("SKIPPED: {reason}");
    }
}

/// Returns the library under test, which Cargo built beside this test.
pub(crate) fn library() -> PathBuf {
    beside_this_test("libtrimtab_shim.so")
}

/// Returns the library that launches with a budget load.
pub(crate) fn library_with_blas() -> PathBuf {
    beside_this_test("libtrimtab_shim_blas.so")
}

fn beside_this_test(name: &str) -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name(name);
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Program to run, and the directory it was built in.
pub(crate) struct HostProgram {
    pub(crate) path: PathBuf,
    _directory: Option<TempDir>,
}

impl HostProgram {
    /// Returns a program that is installed, if it is.
    pub(crate) fn installed(name: &str) -> Option<Self> {
        let found = std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|dir| dir.join(name))
            .find(|path| path.exists());
        if found.is_none() {
            skip(&format!("{name} is not installed"));
        }
        Some(Self { path: found?, _directory: None })
    }

    /// Builds a program of `tests/c` with `compiler` and these flags; `None` if an empty program
    /// cannot be built with them.
    pub(crate) fn built(compiler: &str, source: &str, flags: &[&str]) -> Option<Self> {
        Self::built_of(compiler, &[&format!("c/{source}")], flags)
    }

    /// Builds a program of several files below `tests`, in an order that suits the compiler, named
    /// like the last.
    pub(crate) fn built_of(compiler: &str, sources: &[&str], flags: &[&str]) -> Option<Self> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let sources: Vec<_> = sources.iter().map(|source| tests.join(source)).collect();
        let source = sources.last().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(source.file_stem().unwrap());
        let build = |sources: &[PathBuf]| {
            let mut command = Command::new(compiler);
            command.current_dir(directory.path()); // Fortran's modules go there
            command.arg("-o").arg(&path).args(sources).args(flags).output()
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match build(&sources) {
            Err(error) => {
                skip(&format!("{compiler}: {error}"));
                return None;
            }
            Ok(output) if !output.status.success() => {
                let empty = directory.path().join("empty").with_extension(source.extension().unwrap());
                let program = match source.extension().unwrap().to_str() {
                    Some("rs") => "fn main() {}",
                    Some("f90") => "end",
                    _ => "int main() { return 0; }",
                };
                std::fs::write(&empty, program).unwrap();
                let probe = build(&[empty]).unwrap();
                assert!(!probe.status.success(), "{}", text(&output.stderr));
                skip(&format!("{compiler} {flags:?} does not work here: {}", text(&probe.stderr).trim()));
                return None;
            }
            Ok(_) => {}
        }
        Some(Self { path, _directory: Some(directory) })
    }

    /// Builds a C program with threads.
    pub(crate) fn c(source: &str) -> Option<Self> {
        Self::built("cc", source, &["-O1", "-pthread", "-rdynamic"])
    }

    /// Builds a C shared library with threads.
    pub(crate) fn c_library(source: &str) -> Option<Self> {
        Self::built("cc", source, &["-O1", "-pthread", "-shared", "-fPIC"])
    }
}

/// Run of a program.
pub(crate) struct HostRun {
    plan: Option<String>,
    preload: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    nest: Option<String>,
}

/// Output and status of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Returns the output of a run that succeeded and wrote nothing to standard error.
    pub(crate) fn text(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }
}

/// Prepares a run under a plan that pins: mask A and B, and these slots in letters.
pub(crate) fn pinned(slots: &str) -> HostRun {
    HostRun::guest().plan(&format!("mask=A,B slots={slots} pin=born"))
}

impl HostRun {
    /// Prepares a run without a plan and without the shim.
    pub(crate) fn native() -> Self {
        Self { plan: None, preload: Vec::new(), environment: Vec::new(), arguments: Vec::new(), nest: None }
    }

    /// Prepares a run with the shim loaded, and no plan.
    pub(crate) fn guest() -> Self {
        Self::native().preload(&library())
    }

    /// Sets the plan, CPUs in letters; the process is the planned one.
    pub(crate) fn plan(self, plan: &str) -> Self {
        self.text(&format!("1 pid=PID {plan}"))
    }

    /// Sets the text of the plan, CPUs in letters, `PID` for the number of the process.
    pub(crate) fn text(self, text: &str) -> Self {
        Self { plan: Some(text.to_owned()), ..self }
    }

    /// Sets the request for nested teams, the tree's CPUs in letters.
    pub(crate) fn nest(self, text: &str) -> Self {
        Self { nest: Some(text.to_owned()), ..self }
    }

    pub(crate) fn preload(mut self, library: &Path) -> Self {
        self.preload.push(library.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Runs the program confined to A and B, as the launcher would: by a chain of execs, which keep
    /// the process id. `None` if this machine has fewer than two CPUs for the test.
    pub(crate) fn run(self, program: &HostProgram) -> Option<Outcome> {
        const LAUNCH: &str = r#"mask=$1 plan=$2; shift 2
            case $plan in *PID*) plan="${plan%%PID*}$$${plan#*PID}";; esac
            exec taskset -c "$mask" env ${plan:+"TRIMTAB_PLAN=$plan"} "$@""#;
        let [a, b] = two_cpus()?;
        let numbers = |text: &str| text.replace('A', &a.to_string()).replace('B', &b.to_string());
        let mut command = Command::new("timeout");
        command.args(["120", "sh", "-c", LAUNCH, "sh", &format!("{a},{b}")]);
        command.arg(self.plan.as_deref().map(numbers).unwrap_or_default());
        command.args([format!("CPU_A={a}"), format!("CPU_B={b}")]);
        let nest = self.nest.as_deref().map(|text| match text.split_once(" roots=") {
            Some((tree, rest)) => format!("TRIMTAB_NEST={} roots={rest}", numbers(tree)),
            None => format!("TRIMTAB_NEST={}", numbers(text)),
        });
        command.args(nest);
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        let preload: Vec<_> = self.preload.iter().map(|path| path.to_str().unwrap()).collect();
        command.args((!preload.is_empty()).then(|| format!("LD_PRELOAD={}", preload.join(":"))));
        command.arg(&program.path).args(&self.arguments);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["TRIMTAB_", "LD_PRELOAD", "OMP_", "GOMP_", "KMP_"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let mut stderr = text(&output.stderr);
        if let Some(signal) = output.status.signal() {
            stderr += &format!("[ended by signal {signal}]");
        }
        Some(Outcome { code: output.status.code(), stdout: text(&output.stdout), stderr })
    }
}

/// Returns the numbers of A and B.
pub(crate) fn two_cpus() -> Option<[u32; 2]> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let set: trimtab_core::set::CpuSet = list.trim().parse().unwrap();
    let mut cpus = set.iter();
    match (cpus.next(), cpus.next()) {
        (Some(a), Some(b)) => Some([a.0, b.0]),
        _ => {
            skip("two CPUs are needed");
            None
        }
    }
}

/// Returns the file that clang's programs load.
pub(crate) fn llvm_runtime() -> Option<PathBuf> {
    ["libomp.so.5", "libomp.so"].into_iter().find_map(|name| {
        let output = Command::new("clang").arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        path.is_absolute().then(|| path.canonicalize().ok()).flatten()
    })
}

/// Returns a wheel that `scripts/wheels` fetched.
pub(crate) fn wheel(name: &str) -> Option<PathBuf> {
    let target = library().parent()?.ancestors().find_map(|folder| {
        let wheel = folder.join("wheels").join(name);
        wheel.is_dir().then_some(wheel)
    })?;
    Some(target)
}

/// Returns Intel's runtime, if it was fetched.
pub(crate) fn intel_runtime() -> Option<PathBuf> {
    let data = std::fs::read_dir(wheel("intel-openmp")?).ok()?.flatten();
    data.map(|entry| entry.path().join("data/lib/libiomp5.so")).find(|path| path.exists())
}
