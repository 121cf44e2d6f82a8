//! Files that are written for the user: other files are never overwritten, and a file that cannot
//! be written is reported before anything runs.

use crate::runs::Run;
use crate::util::{Sandbox, chmod, text};
use std::fs;

#[test]
fn a_file_that_is_something_else_is_not_written_over() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run { steps: 3, ..Run::default() }.text());
    let file = sandbox.write("app", "#!/bin/sh\necho a day's work\n");
    chmod(&file, 0o755);
    let (file, trace) = (file.display(), trace.display());
    let own = std::process::id();
    for (status, words) in [
        (125, format!("run -c 1 --trace {file} true")),
        (125, format!("run -c 1 --report={file} true")),
        (2, format!("attach --for 10ms --trace {file} {own}")),
        (2, format!("replay {trace} --to {file}")),
        (2, format!("report {trace} -o {file}")),
        (2, format!("report {trace} --chrome {file}")),
    ] {
        let refused = sandbox.trimtab(&words).ends();
        refused.fails(status, &["app: the file exists", "would be lost", "name another, or remove it"]);
        assert_eq!(text(&sandbox.path("app")), "#!/bin/sh\necho a day's work\n", "{words}");
    }
    // The page is written beside its trace by default.
    let notes = sandbox.write("run.html", "<!doctype html><p>notes");
    sandbox.trimtab(&format!("report {trace}")).ends().fails(2, &["run.html: the file exists"]);
    assert_eq!(text(&notes), "<!doctype html><p>notes");
}

#[test]
fn an_earlier_one_of_its_kind_is_written_over() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run { steps: 3, ..Run::default() }.text());
    let trace = trace.display();
    for words in [
        "run --survey none -c 1 --trace t --report=r.txt true".to_owned(),
        "run --survey none -c 1 --trace t --report=r.json true".to_owned(),
        format!("replay {trace} --to again"),
        format!("report {trace} -o page --chrome events"),
        // An empty file may be overwritten.
        format!("report {trace} -o empty"),
    ] {
        sandbox.write("empty", "");
        for _ in 0..2 {
            assert_eq!(sandbox.trimtab(&words).ends().code, Some(0), "{words}");
        }
    }
    assert_eq!(text(&sandbox.path("r.txt")).matches("on CPUs").count(), 1);
    let left: Vec<_> =
        fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.as_encoded_bytes().starts_with(b".")), "no drafts stay: {left:?}");
}

#[test]
fn a_run_that_does_not_begin_leaves_no_files() {
    let sandbox = Sandbox::new();
    for (status, words) in [
        (125, "-c 99999 true"),
        (127, "-c 1 no-such-program"),
        (125, "-c 1 --metrics unix:/no/such/folder/m.sock true"),
        (0, "-c 1 --env print true"),
    ] {
        let ended = sandbox.trimtab(&format!("run --trace t --report=r --balance {words}")).ends();
        assert_eq!(ended.code, Some(status), "{ended}");
        assert!(!sandbox.path("t").exists() && !sandbox.path("r").exists(), "{words}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_program_begins() {
    let sandbox = Sandbox::new();
    for (report, words) in [
        ("", "no file is named"),
        ("/nowhere/r", "no folder /nowhere"),
        ("/dev/full", "No space left"),
        ("/", "a folder"),
    ] {
        let refused = sandbox.run(&format!("-c 1 --report={report}")).sh("echo ran").ends();
        refused.fails(125, &["--report=", words]);
    }
}

#[test]
fn a_report_that_is_lost_at_the_end_is_no_success() {
    let sandbox = Sandbox::new();
    for (script, status) in [("rm -r gone", 125), ("rm -r gone; exit 3", 3)] {
        fs::create_dir(sandbox.path("gone")).unwrap();
        let ended = sandbox.run("-c 1 --quiet --report=gone/r.txt").sh(script).ends();
        assert_eq!(ended.code, Some(status), "{ended}");
        assert!(ended.stderr.contains("cannot write the report: gone/r.txt"), "{ended}");
    }
}
