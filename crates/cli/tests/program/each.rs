//! `trimtab each`: many jobs, each on cores of its own.

use crate::util::{Sandbox, eventually, need, text, two};
use rustix::process::Signal;
use std::fs;

/// A job that fails if another job has the same CPUs at the same time: `mkdir` is atomic.
const ALONE: &str = "while read -r key list; do case $key in Cpus_allowed_list:) mask=$list;; esac; done \
    </proc/self/status; mkdir \"$2/$mask\" || exit 9; sleep 0.05; rmdir \"$2/$mask\"; echo \"$1\"";

#[test]
fn jobs_that_run_at_once_have_cores_of_their_own() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("masks")).unwrap();
    let call = sandbox.trimtab("each -k --run --survey=none sh -c").arg(ALONE).args(["sh", "{}"]);
    let outcome = call.arg(sandbox.path("masks")).args([":::", "1", "2", "3", "4", "5", "6"]).ends();
    assert_eq!(outcome.ok(), "1\n2\n3\n4\n5\n6");
    // A message that is the same for all jobs is printed once.
    let call = sandbox.trimtab("each -c 1 --run=-v true ::: 1 2 3");
    let said = call.ends();
    let lines: std::collections::BTreeSet<&str> = said.stderr.lines().collect();
    assert_eq!((said.code, lines.len()), (Some(0), said.stderr.lines().count()), "{said}");
    assert!(!lines.is_empty());
    // Inside a run, its cores are divided.
    let inside =
        sandbox.run("-c 1").arg(crate::util::trimtab()).args("each -k nproc --ignore={} ::: 0 0".split(' '));
    assert_eq!(inside.ends().ok(), "1\n1");
}

#[test]
fn failures_are_counted_and_named_and_the_rest_goes_on() {
    let sandbox = Sandbox::new();
    let each = |options: &str, script: &str| {
        let call = sandbox.trimtab(&format!("each {options} --run --survey=none sh -c")).arg(script);
        call.args(["sh", "{}", ":::", "a", "b", "c"]).ends()
    };
    let outcome = each("-j 1", "[ $1 = b ] && exit 3; echo $1; echo to $1 >&2");
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(1), "a\nc"), "{outcome}");
    for words in ["to a\n", "to c\n", "job 2 (b) ended with status 3", "3 of 3 jobs ended, 1 failed"] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome}");
    }
    let outcome = each("-j 1 --fail-fast", "[ $1 = a ] && kill -9 $$; echo $1");
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(1), ""), "{outcome}");
    for words in ["job 1 (a) was ended by signal 9", "1 of 3 jobs ended, 1 failed, 2 not run"] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome}");
    }
    assert_eq!(
        each("-j 1 -q", "exit $(($1 = 0))")
            .stderr
            .lines()
            .filter(|line| line.starts_with("trimtab:"))
            .count(),
        0
    );
}

#[test]
fn a_log_is_resumed_and_values_come_from_files_and_input() {
    let sandbox = Sandbox::new();
    let log = sandbox.path("log");
    let marks = sandbox.path("marks");
    let script = format!(
        "echo \"$1\" >>'{}'; [ -e '{}' ] || [ \"$1\" != two ]",
        marks.display(),
        sandbox.path("ok").display()
    );
    let each = |options: &str| {
        let call = sandbox.trimtab(&format!("each -j 1 --run --survey=none {options} --log")).arg(&log);
        call.args(["sh", "-c", &script, "sh", "{}"]).input("one\ntwo\n\nthree x\n").ends()
    };
    assert_eq!(each("").code, Some(1));
    assert_eq!(text(&marks), "one\ntwo\nthree x\n");
    each("").fails(2, &["has contents", "--resume"]);
    sandbox.write("ok", "");
    assert_eq!(each("--resume").code, Some(0));
    assert_eq!(text(&marks), "one\ntwo\nthree x\ntwo\n", "only the failed one");
    assert_eq!(each("--resume").code, Some(0));
    let lines: Vec<serde_json::Value> =
        text(&log).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["schema"], "trimtab.each/1");
    assert_eq!(
        (&lines[2]["value"], &lines[2]["status"], &lines[4]["status"]),
        (&"two".into(), &1.into(), &0.into())
    );
    assert_eq!(lines.len(), 5);

    let values = sandbox.write("values", "d/x.c\0y z.h\0");
    let dry =
        sandbox.trimtab("each --dry-run -0 -c 3 -a").arg(&values).args(["cc", "{}", "{/.}.o"]).ends().ok();
    assert_eq!(
        dry,
        "trimtab run --wait --cores=3 -- cc d/x.c x.o\ntrimtab run --wait --cores=3 -- cc 'y z.h' 'y z.o'"
    );
}

#[test]
fn a_signal_ends_the_jobs() {
    let sandbox = Sandbox::new();
    let pids = sandbox.path("pids");
    let script = format!("echo $$ >>'{}'; trap 'exit 7' TERM; sleep 60 & wait", pids.display());
    let call = sandbox.trimtab("each -j 2 --run --share sh -c").arg(&script);
    let running = call.args([":::", "1", "2", "3"]).begins();
    eventually("two jobs run", || fs::read_to_string(&pids).is_ok_and(|text| text.lines().count() == 2));
    running.signal(Signal::TERM);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(143), "{outcome}");
    assert!(outcome.stderr.contains("2 of 3 jobs ended, 2 failed, 1 not run"), "{outcome}");
    for pid in text(&pids).lines() {
        assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} was left");
    }
}

#[test]
fn bad_requests_are_refused() {
    let sandbox = Sandbox::new();
    for (words, said) in [
        ("each ::: 1", "no command is given before :::"),
        ("each -a values true ::: 1", "given twice"),
        ("each -a missing true", "cannot read missing"),
        ("each --resume true ::: 1", "--log"),
        ("each -c 0 true ::: 1", "0"),
        ("each -j 0 true ::: 1", "0"),
        ("each", "COMMAND"),
    ] {
        let outcome = sandbox.trimtab(words).ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(said), "{words}: {outcome}");
    }
    // No values, no jobs.
    assert_eq!(sandbox.trimtab("each false").input("").ends().ok(), "");
    // A job that cannot start has failed.
    let outcome = sandbox.trimtab("each --run --survey=none missing-program ::: 1").ends();
    assert!(outcome.code == Some(1) && outcome.stderr.contains("status 127"), "{outcome}");
}
