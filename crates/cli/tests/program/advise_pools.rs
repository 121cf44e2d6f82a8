//! `trimtab advise`: pools of threads inside Go, Java and TBB, recognised in real programs and
//! bounded by the means of each; and first runs that are slow although their threads sleep.

use crate::util::{Outcome, Sandbox, installed, need, two};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn read(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out()).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// Returns the library of this name that the answer names.
fn library<'v>(document: &'v Value, name: &str) -> &'v Value {
    let all = document["libraries"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {document}"))
}

/// Returns the command of the variant with this word in its way.
fn command(document: &Value, word: &str) -> String {
    let all = document["tested"]["variants"].as_array().unwrap_or_else(|| panic!("{document}"));
    let way = |one: &&Value| one["way"].as_str().unwrap().contains(word);
    let found = all.iter().find(way).unwrap_or_else(|| panic!("{word}: {document}"));
    found["command"].as_str().unwrap().to_owned()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/sources").join(name)
}

/// Runs a compiler; `None` if it fails here.
fn compiles(command: &mut Command) -> Option<()> {
    command.output().ok().filter(|built| built.status.success()).map(|_| ())
}

/// Returns the options of the measurements: one of the CPUs counts as taken by others.
fn options([one, two]: [u32; 2]) -> String {
    format!("advise --cpus {one},{two} --share --others 1 --budget 12s --complete --json --")
}

#[test]
fn go_is_named_with_its_version_and_bounded_by_its_variable() {
    let cpus = need!(two(), "two cores are needed");
    let go = need!(installed("go"), "Go is not installed");
    let sandbox = Sandbox::new();
    let program = sandbox.path("routines");
    let mut build = Command::new(&go);
    build.args(["build", "-o"]).arg(&program).arg(source("routines.go")).env("GOFLAGS", "-mod=mod");
    need!(compiles(&mut build), "Go does not build");
    let outcome = sandbox.trimtab(&options(cpus)).arg(&program).without("GOMAXPROCS").ends();
    let document = read(&outcome);
    let found = library(&document, "Go");
    let said = Command::new(&go).args(["env", "GOVERSION"]).output().unwrap();
    let version = String::from_utf8(said.stdout).unwrap().trim().trim_start_matches("go").to_owned();
    assert_eq!(found["version"].as_str(), Some(version.split(['-', ' ']).next().unwrap()), "{document}");
    assert_eq!((&found["variable"], &found["processes"]), (&json!("GOMAXPROCS"), &json!(1)), "{document}");
    // The program itself says how many threads it may run, under the command that was tried.
    let said = sandbox.shell(&command(&document, "GOMAXPROCS=1").replace("trimtab ", "$T ")).ends();
    assert!(said.out().contains("procs 1 "), "{said}");
}

#[test]
fn java_is_named_and_told_how_many_processors_there_are() {
    let cpus = need!(two(), "two cores are needed");
    let java = need!(installed("java"), "java is not installed");
    let javac = need!(installed("javac"), "javac is not installed");
    let sandbox = Sandbox::new();
    let folder = sandbox.path("classes");
    let mut build = Command::new(javac);
    need!(
        compiles(build.args(["--release", "11", "-d"]).arg(&folder).arg(source("Streams.java"))),
        "javac does not build"
    );
    let call = sandbox.trimtab(&options(cpus)).arg(&java).arg("-cp").arg(&folder).arg("Streams");
    let outcome = call.env("JAVA_TOOL_OPTIONS", "-Xmx200m").ends();
    let document = read(&outcome);
    let found = library(&document, "Java");
    assert_eq!(found["variable"], json!("JAVA_TOOL_OPTIONS"), "{document}");
    let count = |field: &str| found[field].as_u64().unwrap();
    assert!(count("threads") >= 2 && count("service") <= count("threads"), "{document}");
    assert!((1..=count("threads")).contains(&count("workers")), "{document}");
    let command = command(&document, "ActiveProcessorCount=1");
    assert!(
        command.contains("-Xmx200m -XX:ActiveProcessorCount=1"),
        "the user's own option stays: {command}"
    );
    let said = sandbox.shell(&command.replace("trimtab ", "$T ")).ends();
    assert!(said.out().contains("processors 1 "), "{said}");
}

#[test]
fn tbb_has_no_variable_and_gets_fewer_cores() {
    let cpus = need!(two(), "two cores are needed");
    let compiler = need!(installed("g++"), "g++ is not installed");
    let sandbox = Sandbox::new();
    let program = sandbox.path("reduce");
    let mut build = Command::new(compiler);
    build.args(["-O2", "-o"]).arg(&program).arg(source("reduce.cpp")).arg("-ltbb");
    need!(compiles(&mut build), "oneTBB is not installed");
    let outcome = sandbox.trimtab(&options(cpus)).arg(&program).ends();
    let document = read(&outcome);
    let found = library(&document, "TBB");
    assert_eq!((&found["variable"], &found["threads"]), (&json!(""), &json!(2)), "{document}");
    let said = sandbox.shell(&command(&document, "--cores=1").replace("trimtab ", "$T ")).ends();
    assert!(said.out().contains("concurrency 1 "), "{said}");
}

/// Four processes at a time on two CPUs, each for a tenth of a second, for N seconds; with a count
/// of at most two the program ends at once. The number of runs is in a file.
const COMES_AND_GOES: &str = "echo run >>\"$0\"; [ \"$OMP_NUM_THREADS\" -gt 2 ] || exit 0
end=$(($(date +%s) + $1))
while [ \"$(date +%s)\" -lt \"$end\" ]; do
    for job in 1 2 3 4; do timeout 0.1 sh -c 'while :; do :; done' & done; wait
done; echo whole >>\"$0\"";

#[test]
fn a_crowded_run_that_sleeps_is_ended_if_another_way_takes_less_time() {
    let [one, two] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let log = sandbox.path("log");
    let call = sandbox.trimtab(&format!("advise --cpus {one},{two} --share --others 0 --json --"));
    let call = call.args(["sh", "-c", COMES_AND_GOES]).arg(&log).arg("60").env("OMP_NUM_THREADS", "4");
    let outcome = call.ends();
    let document = read(&outcome);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(document["outrun"].as_u64().is_some_and(|threads| threads > 2), "{document}");
    assert_eq!((&document["ended_early"], &document["failed"]), (&Value::Null, &Value::Null));
    assert_eq!(document["tested"]["verdict"], "use", "{document}");
    assert!(!crate::util::text(&log).contains("whole"), "a run of a minute went to its end");
}

#[test]
fn a_crowded_run_to_which_no_other_way_is_faster_goes_to_its_end() {
    let [one, two] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let log = sandbox.path("log");
    let script = COMES_AND_GOES
        .replace("[ \"$OMP_NUM_THREADS\" -gt 2 ] || exit 0", "read -r word; echo \"$word\" >>\"$0\"");
    let input = sandbox.path("input");
    std::fs::write(&input, "first\nsecond\nthird\n").unwrap();
    let options = format!("advise --cpus {one},{two} --share --others 0 --budget 1s --json --");
    let call = sandbox.shell(&format!("exec $T {options} sh -c \"$SCRIPT\" \"$LOG\" 8 <\"$INPUT\""));
    let call = call.env("SCRIPT", &script).env("LOG", &log).env("INPUT", &input);
    let outcome = call.env("OMP_NUM_THREADS", "4").ends();
    let document = read(&outcome);
    assert_eq!((&document["outrun"], &document["failed"]), (&Value::Null, &Value::Null), "{outcome}");
    assert!(outcome.stderr.contains("--complete"), "{outcome}");
    let log = crate::util::text(&log);
    assert!(log.contains("whole"), "the run went to its end");
    // Also the run that was started again read the input from its beginning.
    assert!(log.matches("first").count() >= 2 && !log.contains("second"), "{log}");
    assert!(document["profile"]["wall"].as_u64().unwrap() >= 7_000_000_000, "{document}");
}
