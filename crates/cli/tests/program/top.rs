//! `trimtab top`: one sample, a recorded run, and the screen on a pseudo-terminal.

use crate::runs::Run;
use crate::util::{Sandbox, eventually, installed, need, two_users};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn without_a_terminal_it_names_the_way_out() {
    let sandbox = Sandbox::new();
    sandbox.trimtab("top").ends().fails(2, &["is not a terminal", "--once"]);
}

#[test]
fn a_recorded_run_is_shown_as_text_and_as_data() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run { suffix: "\u{1b}[31m".to_owned(), ..Run::default() }.text());
    let text = sandbox.trimtab("top --once --replay").arg(&trace).ends().ok();
    assert!(text.contains("11 threads") && text.contains("worker-11") && text.contains("l3 1"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let data = sandbox.trimtab("top --once --json --replay").arg(&trace).ends().ok();
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&data["schema"], &data["steps"]), (&"trimtab.top/1".into(), &120.into()));
    assert_eq!(data["threads"].as_array().unwrap().len(), 11);
    assert_eq!(data["findings"].as_array().unwrap().len(), 1);
}

#[test]
fn bad_words_are_refused() {
    let sandbox = Sandbox::new();
    for words in ["top 12 --replay x", "top --interval 1y", "top --interval 0", "top x"] {
        assert_eq!(sandbox.trimtab(words).ends().code, Some(2), "{words}");
    }
    sandbox.trimtab("top --once 4194304").ends().fails(2, &["there is no process 4194304 to watch"]);
    assert!(!sandbox.trimtab("top --once 4194304").ends().stderr.contains("/proc"), "said once");
    sandbox.trimtab("top --once --replay /no/such/file").ends().fails(2, &["cannot read /no/such/file"]);
}

#[test]
fn a_living_program_is_shown() {
    let sandbox = Sandbox::new();
    let mut child =
        Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let data = sandbox.trimtab(&format!("top --json -i 200ms {pid}")).ends().ok();
    let text = sandbox.trimtab(&format!("top --once -i 200ms {pid}")).ends().ok();
    child.kill().unwrap();
    child.wait().unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&data["steps"], &data["programs"][0]["pid"]), (&2.into(), &pid.into()));
    let thread = &data["threads"][0];
    assert_eq!((&thread["tid"], &thread["name"]), (&pid.into(), &"sh".into()), "{data}");
    assert!(thread["run_share"].as_f64().unwrap() > 0.0 && thread["cpu"].is_u64(), "{data}");
    assert!(text.contains(&pid.to_string()) && text.contains("SPEED"), "{text}");
}

#[test]
fn without_processes_named_holders_of_cores_are_watched() {
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 1");
    let data = sandbox.trimtab("top --json -i 100ms").ends().ok();
    let data: Value = serde_json::from_str(&data).unwrap();
    let pids: Vec<u64> =
        data["programs"].as_array().unwrap().iter().filter_map(|program| program["pid"].as_u64()).collect();
    assert!(pids.contains(&u64::from(held.pid())), "{data}");
    assert_eq!(data["holds"][0]["pid"], held.pid(), "{data}");
}

#[test]
fn a_trace_that_ends_before_its_first_sample_is_reported() {
    let sandbox = Sandbox::new();
    let whole = Run::default().text();
    let trace = sandbox.write("run.trace", whole.lines().next().unwrap().to_owned() + "\n");
    for words in ["top --once --replay", "top --json --replay"] {
        sandbox.trimtab(words).arg(&trace).ends().fails(2, &["run.trace", "contains no sample"]);
    }
    let report = sandbox.trimtab("report --json").arg(&trace).ends().ok();
    assert!(report.contains("\"steps\": 0"), "{report}");
    assert!(sandbox.trimtab("replay").arg(&trace).ends().ok().contains("0 steps"));
}

#[test]
fn cores_that_others_hold_do_not_hide_ones_own_programs() {
    let [user, _] = need!(two_users(), "only root can act as others");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 1");
    let mut own = Command::new("sh").args(["-c", "while :; do :; done"]).uid(user).spawn().unwrap();
    let seen = |words: &str| sandbox.trimtab(words).user(user).ends();
    // Its load depends on the machine: it is seen at some time.
    let mut said = String::new();
    eventually("one's own program is seen", || {
        let looked = seen("top --json -i 100ms");
        assert_eq!(looked.code, Some(0), "{looked}");
        said = looked.out();
        let data: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(data["holds"][0]["pid"], held.pid(), "{data}");
        data["programs"].as_array().unwrap().iter().any(|program| program["pid"] == own.id())
    });
    own.kill().unwrap();
    own.wait().unwrap();
    // The holder is watched, too, or there is a note why not.
    let data: Value = serde_json::from_str(&said).unwrap();
    let watched = data["programs"].as_array().unwrap().iter().any(|program| program["pid"] == held.pid());
    assert!(watched || data["notes"].to_string().contains("not watched"), "{data}");
}

/// The screen needs a terminal: `script` makes one.
#[test]
fn the_screen_opens_and_closes_and_the_terminal_is_as_before() {
    let sandbox = Sandbox::new();
    need!(installed("script"), "script (of bsdutils) is not installed: there is no terminal to test on");
    let trace = sandbox.write("run.trace", Run::default().text());
    let trimtab = crate::util::trimtab().display().to_string();
    for (how, status) in [("printf q", 0), ("kill -TERM $(cat pid)", 143)] {
        for name in ["before", "after", "status", "pid", "typescript"] {
            let _ = std::fs::remove_file(sandbox.path(name));
        }
        let inner = format!(
            "stty rows 24 cols 80; stty -g >before; sh -c 'echo $$ >pid; exec {trimtab} top --replay {}'; \
             echo $? >status; stty -g >after",
            trace.display()
        );
        // Once the last row is drawn, a key is pressed or a signal sent.
        let shell = format!(
            "(until grep -aq worker-11 typescript 2>/dev/null; do sleep 0.1; done; {how}; \
             until [ -s after ]; do sleep 0.1; done) | script -qfec \"$INNER\" typescript"
        );
        let mut child = Command::new("bash")
            .args(["-c", &shell])
            .env("INNER", &inner)
            .env("TERM", "xterm")
            .current_dir(sandbox.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        eventually("it ends", || sandbox.path("after").exists() && sandbox.path("status").exists());
        let read = |name: &str| crate::util::text(&sandbox.path(name)).trim().to_owned();
        assert_eq!(read("status"), status.to_string());
        assert_eq!(read("before"), read("after"), "the terminal's settings");
        let typescript = std::fs::read(sandbox.path("typescript")).unwrap();
        let screen = String::from_utf8_lossy(&typescript).into_owned();
        assert!(screen.contains("worker-11") && screen.contains("\u{1b}[?1049h"), "{screen:?}");
        let last = screen.rfind("\u{1b}[?1049l").expect("the alternate screen is left");
        assert!(screen.rfind("\u{1b}[?1049h").unwrap() < last);
    }
}
