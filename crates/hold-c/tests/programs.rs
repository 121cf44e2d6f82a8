//! A program in C that reserves cores by the header, in processes of its own, on a ledger of its
//! own.
//!
//! Only one CPU may be used in these tests: two processes that want a core exclude each other on
//! any machine.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Same value as in build.rs and `scripts/install`.
const SONAME: &str = "libtrimtab.so.0";

/// The program, a ledger, and the name under which the library is loaded.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        Self::of("include", "crates/hold-c/tests/cores.c")
    }

    /// Builds a program with the headers of a folder.
    fn of(headers: &str, source: &str) -> Option<Self> {
        if !Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED (1): programs of libtrimtab: no gcc");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ledger")).unwrap();
        std::os::unix::fs::symlink(library(), folder.path().join(SONAME)).unwrap();
        let built = Command::new("gcc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(folder.path().join("program"))
            .arg("-I")
            .arg(top().join(headers))
            .arg(top().join(source))
            .arg(folder.path().join(SONAME))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self { folder })
    }

    fn command(&self, steps: &str) -> Command {
        // The allowed CPUs are the first of this process's.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let first = list.trim().split([',', '-']).next().unwrap().to_owned();
        let mut command = Command::new("taskset");
        command.args(["-c", &first]).arg(self.folder.path().join("program")).args(steps.split(' '));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRIMTAB_"))
        {
            command.env_remove(name);
        }
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("TRIMTAB_LEDGER", self.folder.path().join("ledger"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("TRIMTAB_CONFIG", self.folder.path().join("config"));
        command
    }

    fn run(&self, steps: &str) -> String {
        let output = self.command(steps).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "{steps}: {:?} {error}", output.status);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Starts the program and returns what it says up to the end of a line.
    fn start(&self, steps: &str) -> Running {
        let mut child = self.command(steps).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        Running { child, out, said }
    }
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    said: String,
}

impl Running {
    /// Lets the program go on to its end, and returns the rest of what it says.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest.trim().to_owned()
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn library() -> PathBuf {
    // A test lies in `deps`, next to the libraries.
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("libtrimtab_hold_c.so")
}

#[test]
fn cores_are_planned_reserved_bound_listed_and_released() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.run("plan list"), "1 0");
    let said = bench.run("reserve bind list release list");
    let words: Vec<&str> = said.split(' ').collect();
    assert_eq!((words[0], &words[2..]), ("held", &["1", "1", "released", "0"][..]), "{said}");
}

#[test]
fn processes_exclude_each_other_and_the_kernel_gives_back() {
    let Some(bench) = Bench::new() else { return };
    let mut holder = bench.start("reserve input release");
    assert!(holder.said.starts_with("held "), "{}", holder.said);
    let refused = bench.run("reserve");
    assert!(refused.starts_with("error 1: "), "{refused}");
    // A wait that its caller ends.
    assert!(bench.run("cancel").starts_with("error 3: "));
    assert!(bench.run("refuse").starts_with("error 3: "));
    // Another waits until the holder is killed.
    let mut waiter = bench.command("wait").stdout(Stdio::piped()).spawn().unwrap();
    let mut out = waiter.stdout.take().unwrap();
    let mut waiting = [0; 8];
    out.read_exact(&mut waiting).unwrap();
    assert_eq!(&waiting, b"waiting ");
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(waiter.wait().unwrap().success() && rest.starts_with("held "), "{rest}");
}

#[test]
fn a_forked_child_that_releases_leaves_its_parents_cores_held() {
    let Some(bench) = Bench::new() else { return };
    let holder = bench.start("reserve child input release");
    assert!(holder.said.starts_with("held "), "{}", holder.said);
    assert!(bench.run("reserve").starts_with("error 1: "));
    assert_eq!(holder.end(), "released");
    assert!(bench.run("reserve").starts_with("held "));
}

#[test]
fn threads_reserve_at_once() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.run("threads list"), "400 0");
}

#[test]
fn memcheck_finds_no_error_in_a_program_that_reserves_cores() {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED (1): memcheck_finds_no_error...: no valgrind");
        return;
    }
    let Some(bench) = Bench::new() else { return };
    let plain = bench.command("plan reserve bind list release bad");
    let words = plain.get_args().map(std::ffi::OsStr::to_owned);
    let mut command = Command::new("taskset");
    let mut words: Vec<_> = words.collect();
    let tool = ["valgrind", "--quiet", "--error-exitcode=9"].map(std::ffi::OsString::from);
    // After taskset's own words.
    words.splice(2..2, tool);
    command.args(words).envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("=="), "{:?}: {said}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("held "), "{said}");
}

#[test]
fn invalid_arguments_are_refused() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.run("bad list"), "15 0");
}

#[test]
fn a_run_inside_the_cores_is_known_and_one_outside_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let trimtab = library().with_file_name("trimtab");
    if !trimtab.is_file() {
        eprintln!("SKIPPED (1): a_run_inside_the_cores_is_known: trimtab is not built");
        return;
    }
    let holder = bench.start("reserve input");
    let mut run = bench.command("");
    let envs: Vec<_> =
        run.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    run = Command::new("taskset");
    let cpu = holder.said.split(' ').nth(1).unwrap();
    run.args(["-c", cpu]).arg(&trimtab).args(["run", "-c", "1", "true"]).envs(envs);
    let output = run.output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    holder.end();
    assert!(run.output().unwrap().status.success());
}

/// The program in the guide compiles without a warning, and does what its page says.
#[test]
fn the_example_of_the_guide_runs() {
    let Some(bench) = Bench::new() else { return };
    let page = std::fs::read_to_string(top().join("docs/cores.md")).unwrap();
    let begin = page.find("    #include <stdio.h>").unwrap();
    let lines = page[begin..].lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let source = bench.folder.path().join("example.c");
    std::fs::write(&source, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let built = Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-o"])
        .arg(bench.folder.path().join("program"))
        .arg("-I")
        .arg(top().join("include"))
        .arg(&source)
        .arg(bench.folder.path().join(SONAME))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(bench.run("-"), "on a core of its own");
}

/// The header declares exactly the entries that the library has.
#[test]
fn the_header_says_all_that_there_is() {
    let header = std::fs::read_to_string(top().join("include/trimtab/trimtab.h")).unwrap();
    let starts = ["int trimtab_", "void trimtab_", "const char *trimtab_"];
    let mut declared: Vec<String> = header
        .lines()
        .filter(|line| starts.iter().any(|start| line.starts_with(start)))
        .map(|line| line[line.find("trimtab_").unwrap()..line.find('(').unwrap()].to_owned())
        .collect();
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let mut exported: Vec<String> = String::from_utf8(symbols.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split(" T ").nth(1))
        .map(str::to_owned)
        .collect();
    declared.sort();
    exported.sort();
    assert_eq!(exported, declared);
    let installer = std::fs::read_to_string(top().join("scripts/install")).unwrap();
    let version = SONAME.rsplit('.').next().unwrap();
    assert!(installer.contains(&format!("\ncores_soversion={version}\n")));
}

/// Programs that were built with the header of 0.1 run with today's library. The header and the
/// program in `tests/abi/0.1` are those of that release, and never change.
#[test]
fn a_program_built_with_the_header_of_0_1_runs() {
    let Some(bench) = Bench::of("crates/hold-c/tests/abi/0.1", "crates/hold-c/tests/abi/0.1/cores.c") else {
        return;
    };
    assert_eq!(bench.run("plan list"), "1 0");
    let said = bench.run("reserve bind list release list");
    let words: Vec<&str> = said.split(' ').collect();
    assert_eq!((words[0], &words[2..]), ("held", &["1", "1", "released", "0"][..]), "{said}");
    let holder = bench.start("reserve child input release");
    assert!(bench.run("reserve").starts_with("error 1: "));
    assert_eq!(holder.end(), "released");
    assert!(bench.run("cancel").starts_with("held "), "the only core is free");
    assert_eq!((bench.run("bad list"), bench.run("threads list")), ("15 0".into(), "400 0".into()));
}

/// Everything that the header of 0.1 declares has the same number, size and place today.
#[test]
fn values_and_layouts_of_0_1_are_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let fields =
        ["cores", "cpus", "near", "settings", "label", "flags", "priority", "wait_ms", "look", "data"];
    let codes = [
        "OK",
        "BUSY",
        "NEVER",
        "CANCELLED",
        "ARGUMENT",
        "SYSTEM",
        "FAULT",
        "OR_FEWER",
        "SHARE",
        "NO_RULES",
        "STRICT",
    ];
    let values = codes.iter().map(|name| format!("TRIMTAB_CORES_{name}"));
    let places = fields.iter().map(|name| format!("(int)offsetof(struct trimtab_cores_wanted, {name})"));
    let shown: Vec<String> =
        values.chain(places).map(|value| format!("    printf(\"%d \", {value});\n")).collect();
    let source = folder.path().join("layout.c");
    let text = format!(
        "#include <stdio.h>\n#include <trimtab/trimtab.h>\nint main(void) {{\n{}    return 0;\n}}\n",
        shown.concat()
    );
    std::fs::write(&source, text).unwrap();
    let said = ["crates/hold-c/tests/abi/0.1", "include"].map(|headers| {
        let program = folder.path().join("layout");
        let mut build = Command::new("gcc");
        build
            .args(["-std=c11", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(top().join(headers))
            .arg(&source);
        match build.output() {
            Ok(built) if built.status.success() => Some(Command::new(program).output().unwrap().stdout),
            Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
            Err(_) => None,
        }
    });
    let [old, new] = said;
    if old.is_none() {
        eprintln!("SKIPPED (1): values_and_layouts_of_0_1_are_unchanged: no gcc");
        return;
    }
    assert_eq!(old, new);
}

/// A program built with today's header keeps its meaning: the size of the structure is part of it.
#[test]
fn the_structure_has_the_size_of_its_first_version() {
    assert_eq!(size_of::<trimtab_hold_c::WantedOf>(), 80);
}
