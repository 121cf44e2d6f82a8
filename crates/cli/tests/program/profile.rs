//! `trimtab profile`: programs that know how often their threads meet check the counts.

use crate::util::{Sandbox, built, eventually, installed, need};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use trimtab_core::setting::Setting;

/// Other programs may hold cores on the machine, and may keep them.
const OPTIONS: &str = "profile --json --share --survey none --output";

fn profile(sandbox: &Sandbox, words: &[&str]) -> (Value, String) {
    let file = sandbox.path("profile.json");
    let said = sandbox.trimtab(OPTIONS).arg(&file).arg("--").args(words).ends().ok();
    let text = std::fs::read_to_string(&file).unwrap();
    (serde_json::from_str(&text).unwrap(), said)
}

/// Asserts that the counts agree with the program's own.
#[track_caller]
pub(crate) fn agree(profile: &Value, said: &str, runtime: &str) {
    let numbers: Vec<f64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [count, least, most] = numbers[..] else { panic!("{said}") };
    assert_eq!(profile["intervals"]["count"], count as u64, "{profile}");
    // The time before the first synchronisation is only in the program's own measurement: on a busy
    // machine it may be long.
    let mean = profile["intervals"]["mean"].as_f64().unwrap();
    assert!(mean > 0.95 * least && mean < 1.05 * most, "{least} {mean} {most} {profile}");
    assert_eq!(profile["runtimes"], serde_json::json!([runtime]));
    let waiting = profile["waiting"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&waiting), "{profile}");
    let quantile = |name: &str| profile["intervals"][name].as_u64().unwrap();
    assert!(
        quantile("tenth") <= quantile("median") && quantile("median") <= quantile("ninetieth"),
        "{profile}"
    );
    assert!(profile["overhead"].as_f64().unwrap() > 0.0, "{profile}");
}

#[test]
fn barriers_and_regions_of_libgomp_are_counted() {
    let program = need!(built("gcc", "meets.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let (profile, said) = profile(&sandbox, &[program.to_str().unwrap(), "300", "200"]);
    agree(&profile, &said, "libgomp");
    assert!(profile["workers"].as_u64().unwrap() >= 2 && profile["wall"].as_u64().unwrap() > 0, "{profile}");
}

#[test]
fn barriers_and_regions_of_libomp_are_counted() {
    let program = need!(built("clang", "meets.c", &["-fopenmp"]), "clang with OpenMP is needed");
    let sandbox = Sandbox::new();
    let (profile, said) = profile(&sandbox, &[program.to_str().unwrap(), "300", "200"]);
    agree(&profile, &said, "libomp");
}

/// GNU's runtime starts the threads of an inner team again for each region: thousands, of which
/// four exist at once.
#[test]
fn threads_started_again_for_each_region_do_not_count_as_simultaneous() {
    for compiler in ["gcc", "clang"] {
        let program = need!(built(compiler, "zones.c", &["-fopenmp"]), "{compiler} with OpenMP is needed");
        let sandbox = Sandbox::new();
        let file = sandbox.path("profile.json");
        let call = sandbox.trimtab(OPTIONS).arg(&file).arg("--").arg(&program).args(["400", "100"]);
        call.env("OMP_NUM_THREADS", "2,2").ends().ok();
        let profile: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(profile["workers"], 4, "{compiler} {profile}");
        assert!(profile["intervals"]["count"].as_u64().unwrap() >= 800, "{compiler} {profile}");
        // All threads are in the region as long as the program runs, and each does its part of the
        // work in that time.
        let waiting = profile["waiting"].as_f64().unwrap();
        let wall = profile["wall"].as_f64().unwrap();
        assert!(
            waiting > 0.0 && waiting < 1.0 - 0.9 * 400.0 * 100e3 * 2.0 / (4.0 * wall),
            "{compiler} {profile}"
        );
    }
}

#[test]
fn barriers_of_posix_threads_are_counted() {
    let program = need!(built("gcc", "meets.c", &["-pthread"]), "gcc is needed");
    let sandbox = Sandbox::new();
    let (profile, said) = profile(&sandbox, &[program.to_str().unwrap(), "300", "200"]);
    agree(&profile, &said, "pthread");
}

#[test]
fn calls_of_teams_are_counted_those_that_were_started_by_the_wait_for_them() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let include = top.join("include");
    let library = crate::util::trimtab().with_file_name("libtrimtab_team_c.so");
    assert!(library.exists(), "cargo build --workspace makes {}", library.display());
    let flags = ["-DMEETS_TEAM", "-pthread", "-I", include.to_str().unwrap(), library.to_str().unwrap()];
    let program = need!(built("gcc", "meets.c", &flags), "gcc is needed");
    let sandbox = Sandbox::new();
    // Under the name of an installed library.
    std::os::unix::fs::symlink(&library, sandbox.path("libtrimtab_team.so.0")).unwrap();
    let file = sandbox.path("profile.json");
    let call = sandbox.trimtab(OPTIONS).arg(&file).arg("--").arg(&program).args(["300", "200"]);
    let said = call.env("LD_LIBRARY_PATH", sandbox.path("")).ends().ok();
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    agree(&profile, &said, "team");
    assert_eq!(profile["workers"], 2);
}

/// Profiles an MPI program with two ranks.
fn ranks(program: &Path, launcher: &Path, runtime: &str) {
    let sandbox = Sandbox::new();
    let file = sandbox.path("profile.json");
    let mut words: Vec<String> = vec![launcher.display().to_string(), "-n".to_owned(), "2".to_owned()];
    if runtime == "open-mpi" {
        words.push("--oversubscribe".to_owned());
    }
    words.extend([program.display().to_string(), "60".to_owned(), "500".to_owned()]);
    let call =
        sandbox.trimtab(&OPTIONS.replace("profile", "profile --quiet")).arg(&file).arg("--").args(&words);
    let call = call.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let said = call.ends().ok();
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    agree(&profile, &said, runtime);
}

#[test]
fn collective_calls_of_open_mpi_and_mpich_are_counted_once_for_all_ranks() {
    for (compiler, launcher, runtime) in
        [("mpicc.openmpi", "mpirun.openmpi", "open-mpi"), ("mpicc.mpich", "mpirun.mpich", "mpich")]
    {
        let launcher = need!(installed(launcher), "{launcher} is needed");
        let program = need!(built(compiler, "meets.c", &["-DMEETS_MPI"]), "{compiler} is needed");
        ranks(&program, &launcher, runtime);
    }
}

#[test]
fn calls_by_the_modern_module_of_fortran_are_counted_too() {
    for (compiler, launcher, runtime) in
        [("mpif90.openmpi", "mpirun.openmpi", "open-mpi"), ("mpif90.mpich", "mpirun.mpich", "mpich")]
    {
        let launcher = need!(installed(launcher), "{launcher} is needed");
        let program = need!(built(compiler, "meets.f90", &[]), "{compiler} is needed");
        ranks(&program, &launcher, runtime);
    }
}

#[test]
fn a_killed_program_has_a_profile_until_its_end_and_its_signal_is_passed_on() {
    let program = need!(built("gcc", "meets.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path("profile.json");
    let words = [program.to_str().unwrap(), "50", "100", "stay"];
    let mut run = sandbox.trimtab(OPTIONS).arg(&file).arg("--").args(words).begins();
    let said = run.line();
    run.signal(Signal::TERM);
    eventually("it ends", || !run.lives());
    let text = std::fs::read_to_string(&file).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    agree(&profile, &said, "libgomp");
}

#[test]
fn a_programs_status_is_passed_on_and_missing_measurements_are_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("profile.json");
    let call = sandbox.trimtab(OPTIONS).arg(&file).args(["--", "sh", "-c", "exit 7"]);
    let outcome = call.ends();
    assert!(outcome.code == Some(7) && outcome.stderr.is_empty(), "{outcome}");
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(profile["intervals"], Value::Null);
    let unseen = profile["unseen"].to_string();
    assert!(unseen.contains("barriers and collectives: none through"), "{unseen}");
    let lost = sandbox.path("none.json");
    let call = sandbox.trimtab(OPTIONS).arg(&lost).args(["--", "no-such-program-here"]);
    call.ends().fails(127, &["no-such-program-here"]);
    assert!(!lost.exists());
    // A file of another kind is not overwritten.
    let other = sandbox.write("app.c", "int main;");
    sandbox.trimtab(OPTIONS).arg(&other).args(["--", "true"]).ends().fails(125, &["would be lost"]);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "int main;");
}

#[test]
fn a_static_program_says_that_nothing_can_be_counted_inside() {
    let program =
        need!(built("gcc", "meets.c", &["-pthread", "-static"]), "gcc and a static C library are needed");
    let sandbox = Sandbox::new();
    let (profile, _) = profile(&sandbox, &[program.to_str().unwrap(), "20", "100"]);
    assert_eq!((&profile["intervals"], &profile["yields"]), (&Value::Null, &Value::Null));
    assert!(profile["unseen"].to_string().contains("statically linked"), "{profile}");
}

#[test]
fn a_profile_is_measured_in_the_requested_setting_and_read_as_a_value() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("profile.json");
    let call = sandbox.trimtab(OPTIONS).arg(&file).args(["--set", "threads=3 cores=1 wait=sleep", "--"]);
    let said = call.args(["sh", "-c", "echo $OMP_NUM_THREADS"]).ends().ok();
    assert_eq!(said.trim(), "3");
    let read = trimtab_cli::profile::read(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(read.setting, "threads=3 cores=1 wait=sleep".parse::<Setting>().unwrap());
    assert_eq!((read.program.as_str(), read.cores), ("sh", 1));
    let refused = sandbox.trimtab("profile --wait-policy spin --set wait=sleep true").ends();
    refused.fails(125, &["wait=sleep", "another option"]);
}

/// Every field name of the JSON is documented.
#[test]
fn every_field_of_a_profile_is_documented() {
    let sandbox = Sandbox::new();
    let (profile, _) = profile(&sandbox, &["true"]);
    let text = include_str!("../../../../docs/json-observing.md");
    let section = text.split("## `trimtab.profile/1`").nth(1).unwrap().split("\n## ").next().unwrap();
    for name in profile.as_object().unwrap().keys().filter(|name| *name != "schema") {
        assert!(section.contains(&format!("`{name}`")), "{name}");
    }
}

/// The variable names no file, or another one: the program is not affected.
#[test]
fn a_page_file_that_is_none_is_ignored() {
    let library = crate::util::trimtab().with_file_name("libtrimtab_shim.so");
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "something else").unwrap();
    for path in [Path::new("/none/such"), folder.path(), &other] {
        let mut run = Command::new("sh");
        run.args(["-c", "exit 3"])
            .env("LD_PRELOAD", &library)
            .env("TRIMTAB_MEETINGS", path)
            .stdin(Stdio::null());
        let done = run.output().unwrap();
        assert_eq!((done.status.code(), done.stderr.len()), (Some(3), 0));
    }
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "something else");
}
