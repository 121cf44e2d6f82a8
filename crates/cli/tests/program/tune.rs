//! `trimtab tune` and `trimtab tune list`: programs that clearly prefer one setting, and all faults
//! of others.

use crate::util::{Call, Sandbox, eventually, need, text, two, two_users};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// A program that sleeps, so that other load has little effect: slow in the start setting, faster
/// with one thread, faster still with sleeping waiters. It counts threads as runtimes do: by the
/// variable, or else by the CPUs of the mask.
const APP: &str = "#!/bin/sh\nt=0.6\nn=$(nproc)\n[ \"$n\" = 1 ] && t=0.3\n\
    [ \"$OMP_WAIT_POLICY\" = passive ] && [ $t = 0.3 ] && t=0.1\nsleep $t\necho \"$n ${OMP_WAIT_POLICY:-none}\"\n";
/// The same without delay, for tests that are not about time: one thread is twice as good as any
/// other count.
const RATE: &str = "#!/bin/sh\nrate=1\nn=$(nproc)\n[ \"$n\" = 1 ] && rate=2\necho \"rate: $rate.0$#\"\necho \"threads: $n\" >&2\n";

/// Returns a tuning that finds its result at once.
fn quick<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    sandbox.trimtab(&format!("tune -c 2 --knobs threads --metric rate:.([0-9.]+) --higher {options} --"))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the files of the user's data folder.
fn kept(sandbox: &Sandbox, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(sandbox.path("home/.local/share/trimtab").join(folder));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn pid_is_there(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_bad_switch_is_found_kept_and_applied_from_then_on() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", APP);
    let before = sandbox.run("-c 2").arg(&app).arg("5").ends().ok();
    assert_eq!(before, "2 none");
    let tuned = sandbox.trimtab("tune -c 2 --knobs threads,wait,pin --").arg(&app).arg("5").ends();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    let said = tuned.out();
    assert!(said.contains("threads=1 wait=sleep is better than as it is"), "{said}");
    // Applied for other numbers, too, and reported in one line.
    let run = sandbox.run("-c 2").arg(&app).arg("77").ends();
    assert_eq!(run.warns(&["as tuned on", "threads=1 wait=sleep", "--no-tuning"]), "1 passive");
    assert_eq!(sandbox.run("-c 2 --quiet").arg(&app).arg("5").ends().ok(), "1 passive");
    assert_eq!(sandbox.run("-c 2 --no-tuning").arg(&app).arg("5").ends().ok(), "2 none");
    // Options and variables of the user take precedence.
    let run = sandbox.run("-c 2 --threads 2 -q").arg(&app).arg("5").ends();
    assert_eq!(run.ok(), "2 passive");
    let run = sandbox.run("-c 2 -q --fit keep").arg(&app).arg("5").env("OMP_NUM_THREADS", "3").ends();
    assert_eq!(run.ok(), "3 passive");
    // A tuning is not valid for other arguments, cores or environments.
    assert_eq!(sandbox.run("-c 2").arg(&app).arg("x").ends().ok(), "2 none");
    assert_eq!(sandbox.run("-c 1").arg(&app).arg("5").ends().ok(), "1 none");
    assert!(kept(&sandbox, "tunings").is_empty());
    assert_eq!(kept(&sandbox, "profiles").len(), 1);
    // A rebuilt program counts as another program.
    sandbox.script("app", APP.replace("0.3", "0.31"));
    let run = sandbox.run("-c 2").arg(&app).arg("5").ends();
    assert_eq!(run.warns(&["not applied", "the program has changed since"]), "2 none");
}

#[test]
fn a_number_that_is_printed_can_be_the_metric_and_every_run_is_a_line() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", RATE);
    let tuned = quick(&sandbox, "--json").arg(&app).ends();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    let lines = lines(&tuned.out());
    let (start, end) = (&lines[0], lines.last().unwrap());
    assert_eq!((&start["record"], &start["schema"]), (&"start".into(), &"trimtab.tune/1".into()));
    assert_eq!(end["winner"]["setting"]["threads"], "1");
    assert_eq!(end["profile"]["gain"], 2.0);
    let runs = lines.iter().filter(|line| line["record"] == "run");
    assert_eq!(runs.count() as u64, end["runs"].as_u64().unwrap());
    // The same program by another expression, where less is better: the start setting is best.
    let other =
        sandbox.trimtab("tune -c 2 --knobs threads --no-store --metric rate:.([0-9.]+) --").arg(&app).ends();
    assert!(other.code == Some(1) && other.out().contains("no change"), "{other}");
}

#[test]
fn nothing_is_kept_without_a_gain_and_a_dry_run_starts_no_program() {
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", "#!/bin/sh\necho rate: 5\n");
    let mark = sandbox.path("mark");
    let touch = sandbox.script("touch", format!("#!/bin/sh\ntouch {}\n", mark.display()));
    let planned = sandbox.trimtab("tune --dry-run --share --").arg(&touch).ends().ok();
    assert!(planned.contains("threads") && planned.contains("About") && !mark.exists(), "{planned}");
    let tuned = sandbox.trimtab("tune --share --knobs wait --metric rate:.([0-9]+) --").arg(&app).ends();
    assert!(tuned.code == Some(1) && tuned.out().contains("no change"), "{tuned}");
    assert!(kept(&sandbox, "profiles").is_empty() && kept(&sandbox, "tunings").is_empty());
    let mine =
        sandbox.trimtab("tune --share --knobs wait --").arg(&app).env("OMP_WAIT_POLICY", "active").ends();
    mine.fails(2, &["nothing to try", "you set OMP_WAIT_POLICY"]);
}

#[test]
fn an_own_setting_is_compared_before_the_search_and_untried_knobs_are_named() {
    let sandbox = Sandbox::new();
    // Variables that the user sets are not searched, and one of them makes this program fast.
    let app = sandbox.script("app", "#!/bin/sh\n[ \"$OMP_NUM_THREADS\" = 1 ] || sleep 0.4\n");
    let call = sandbox.trimtab("tune --share --budget 20s --knobs threads,wait --try OMP_NUM_THREADS=1 --");
    let tuned = call.arg(&app).env("OMP_NUM_THREADS", "7").ends();
    let said = tuned.out();
    let own = said.lines().find(|line| line.contains("OMP_NUM_THREADS=1")).unwrap_or_default();
    assert!(own.contains("times faster"), "{tuned}");
    assert!(said.contains("Not tried: threads (you set OMP_NUM_THREADS"), "{tuned}");
    sandbox.trimtab("tune --try OMP_NUM_THREADS --").arg(&app).ends().fails(2, &["is not NAME=VALUE"]);
}

#[test]
fn other_counts_than_the_users_are_compared_without_being_asked_for() {
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", "#!/bin/sh\n[ \"$OMP_NUM_THREADS\" = 1 ] || sleep 0.4\n");
    let call = sandbox.trimtab("tune --share --budget 20s --knobs threads,wait --").arg(&app);
    let tuned = call.env("OMP_NUM_THREADS", "7").ends();
    let said = tuned.out();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    assert!(!said.contains("no change"), "a faster count was found: {tuned}");
    let call = sandbox.trimtab("tune --json --share --budget 20s --knobs wait,threads --").arg(&app);
    let json = call.env("OMP_NUM_THREADS", "7").ends();
    let end = lines(&json.out()).pop().unwrap();
    assert_eq!((json.code, &end["record"]), (Some(0), &"end".into()), "{json}");
    assert!(end["winner"].is_null(), "the search keeps the variable: {json}");
    assert!(end["own"].as_str().is_some_and(|own| own.contains("OMP_NUM_THREADS=1 ")), "{json}");
    let at = said.find("Faster than your variables: ").unwrap_or_else(|| panic!("{tuned}"));
    assert!(said[at..].lines().nth(1).is_some_and(|line| line.contains("OMP_NUM_THREADS=1 ")), "{tuned}");
}

#[test]
fn a_budget_that_ends_before_anything_was_tried_gives_no_verdict() {
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", "#!/bin/sh\nsleep 0.5\n");
    let tuned = sandbox.trimtab("tune --share --budget 1s --knobs wait --").arg(&app).ends();
    assert_eq!(tuned.code, Some(1), "{tuned}");
    let said = tuned.out();
    assert!(said.contains("0 of 3 single changes were tried") && !said.contains("no change"), "{said}");
}

#[test]
fn a_setting_in_which_the_program_fails_is_out_and_a_program_that_fails_is_not_tuned() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let picky = sandbox.script(
        "picky",
        format!("{RATE}[ \"$OMP_NUM_THREADS\" = 4 ] && {{ echo too many >&2; exit 3; }}\nexit 0\n"),
    );
    let tuned = quick(&sandbox, "").arg(&picky).ends();
    assert!(tuned.code == Some(0) && tuned.out().contains("out: it ended with status 3"), "{tuned}");
    assert!(tuned.out().contains("too many"), "{tuned}");
    for (script, words) in [
        ("#!/bin/sh\necho no such input >&2\nexit 7\n", ["status 7", "no such input"]),
        ("#!/bin/sh\nkill -SEGV $$\n", ["signal 11", "fails in its start setting"]),
        ("#!/bin/sh\necho hello\n", ["metric", "fails in its start setting"]),
        ("#!/bin/sh\necho rate: 0\n", ["not a number above 0", "fails in its start setting"]),
        ("#!/bin/sh\nsleep 30\n", ["--timeout", "fails in its start setting"]),
        ("#!/bin/sh\nkill -STOP $$\nsleep 30\n", ["terminal", "fails in its start setting"]),
    ] {
        let bad = sandbox.script("bad", script);
        let outcome = quick(&sandbox, "--timeout 5s").arg(&bad).ends();
        assert_eq!(outcome.code, Some(2), "{outcome}");
        let last = outcome.stderr.lines().last().unwrap_or_default();
        assert!(words.iter().all(|word| last.contains(word)), "{script}: {outcome}");
    }
    assert!(kept(&sandbox, "tunings").is_empty() && kept(&sandbox, "profiles").len() == 1);
}

#[test]
fn outputs_are_checked_where_that_is_asked_for() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // The output depends on threads, besides the metric's line.
    let app = sandbox.script("app", RATE.replace(" >&2", ""));
    let tuned = quick(&sandbox, "--verify").arg(&app).ends();
    assert!(
        tuned.code == Some(1) && tuned.out().contains("out: its output differs from that of the first run"),
        "{tuned}"
    );
    let tuned = quick(&sandbox, "--no-store").arg(&app).ends();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    let random = sandbox.script("random", "#!/bin/sh\necho rate: 1\necho $$\n");
    let outcome = quick(&sandbox, "--verify").arg(&random).ends();
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains("differs from that of the first run"),
        "{outcome}"
    );
    let check =
        sandbox.trimtab("tune -c 2 --knobs threads --metric rate:.([0-9.]+) --higher --verify-command");
    let outcome = check.arg("grep -q 'rate: 1'").arg("--").arg(&app).ends();
    assert!(outcome.code == Some(1) && outcome.out().contains("out: --verify-command rejects"), "{outcome}");
}

#[test]
fn ctrl_c_keeps_the_measurements_and_resume_continues() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", format!("{RATE}sleep 0.1\n"));
    let running = quick(&sandbox, "--json").arg(&app).begins();
    eventually("some runs are made", || running.said().matches("\"run\"").count() >= 4);
    running.signal(Signal::INT);
    let stopped = running.ends();
    assert_eq!(stopped.code, Some(130), "{stopped}");
    let before = lines(&stopped.out());
    assert_eq!(before.last().unwrap()["end"], "stopped");
    assert_eq!(kept(&sandbox, "tunings").len(), 1);
    // Another tuning is not continued.
    let other = quick(&sandbox, "--resume --seed 5").arg(&app).ends();
    other.fails(2, &["another tuning", "without --resume"]);
    let done = quick(&sandbox, "--json --resume").arg(&app).ends();
    assert_eq!(done.code, Some(0), "{done}");
    let after = lines(&done.out());
    let runs =
        |lines: &[Value]| lines.iter().filter(|line| line["record"] == "run").cloned().collect::<Vec<_>>();
    assert_eq!(runs(&after)[..runs(&before).len()], runs(&before)[..]);
    assert!(kept(&sandbox, "tunings").is_empty());
    quick(&sandbox, "--resume").arg(&app).ends().fails(2, &["no tuning", "without --resume"]);
}

#[test]
fn a_tuner_that_is_killed_leaves_no_program_behind_and_its_runs_are_kept() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let note = sandbox.path("pids");
    let app = sandbox.script(
        "app",
        format!(
            "#!/bin/sh\necho $$ >>{0}\nn=$(wc -l <{0})\n[ $n -lt 4 ] || exec sleep 60\necho rate: 1\n",
            note.display()
        ),
    );
    let running = quick(&sandbox, "").arg(&app).begins();
    eventually("the fourth run is under way", || text(&note).lines().count() >= 4);
    let last = text(&note).lines().last().unwrap().to_owned();
    running.signal(Signal::KILL);
    eventually("the program ended with the tuner", || !pid_is_there(&last));
    drop(running);
    let journal = text(&kept(&sandbox, "tunings")[0]);
    assert_eq!(lines(&journal).len(), 4, "{journal}");
    sandbox.until_free();
}

#[test]
fn processes_left_running_by_a_program_end_with_its_run() {
    let sandbox = Sandbox::new();
    let note = sandbox.path("pids");
    let app =
        sandbox.script("app", format!("#!/bin/sh\nsleep 60 &\necho $! >>{}\necho rate: 1\n", note.display()));
    let tuned = sandbox.trimtab("tune --share --knobs pin --metric rate:.([0-9]+) --").arg(&app).ends();
    assert_eq!(tuned.code, Some(1), "{tuned}");
    eventually("all of them ended", || text(&note).lines().all(|pid| !pid_is_there(pid)));
}

#[test]
fn damaged_and_foreign_profiles_are_ignored_with_a_line() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", RATE);
    assert_eq!(quick(&sandbox, "").arg(&app).ends().code, Some(0));
    let file = kept(&sandbox, "profiles").remove(0);
    let good = text(&file);
    let run = || sandbox.run("-c 2").arg(&app).ends();
    assert!(run().stderr.contains("as tuned on"));
    for (bad, why) in [
        (String::new(), "not a tuning"),
        ("\0\u{1}".to_owned(), "not a tuning"),
        (good[..good.len() / 2].to_owned(), "not a tuning"),
        (good.replace("\"threads\": \"1\"", "\"threads\": \"2\""), "checksum"),
        (good.replace("kept/1", "kept/7"), "kept/7"),
        (" ".repeat(2 << 20), "not a file of trimtab tune"),
    ] {
        fs::write(&file, bad).unwrap();
        let said = run();
        assert!(said.stderr.lines().filter(|line| line.contains("not applied")).count() == 1, "{said}");
        assert!(
            said.code == Some(0) && said.stderr.contains(why) && said.stderr.contains("threads: 2"),
            "{said}"
        );
        let listed = sandbox.trimtab("tune list").ends();
        assert!(listed.stderr.contains("is ignored") && listed.code == Some(0), "{listed}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(run().stderr.contains("not a file of trimtab tune"));
    fs::remove_dir(&file).unwrap();
    assert!(!run().stderr.contains("not applied"));
}

#[test]
fn profiles_are_listed_shown_handed_on_and_removed() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", RATE);
    let kept_settings = |words: &str| sandbox.trimtab(&format!("tune {words}")).ends();
    assert!(kept_settings("list").ok().contains("No tunings"));
    kept_settings("show x").fails(2, &["no tuning", "see trimtab tune list"]);
    assert_eq!(quick(&sandbox, "").arg(&app).ends().code, Some(0));
    let list: Value = serde_json::from_str(&kept_settings("list --json").ok()).unwrap();
    let name = list["profiles"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(list["profiles"][0]["idle"], Value::Null);
    assert!(kept_settings("list").ok().contains(&name));
    let shown = kept_settings(&format!("show {}", &name[..4])).ok();
    assert!(shown.contains("--threads=1") && shown.contains("evidence"), "{shown}");
    let out = sandbox.path("out.json");
    kept_settings(&format!("export {name} -o {}", out.display())).ok();
    assert_eq!(kept_settings(&format!("remove {name}")).ok(), format!("removed {name}"));
    assert!(!sandbox.run("-c 2").arg(&app).ends().stderr.contains("as tuned"));
    assert_eq!(kept_settings(&format!("import {}", out.display())).ok(), format!("{name}: applies here"));
    assert!(sandbox.run("-c 2").arg(&app).ends().stderr.contains("as tuned on"));
    let bad = sandbox.write("bad.json", text(&out).replace("\"threads\": \"1\"", "\"threads\": \"9\""));
    kept_settings(&format!("import {}", bad.display())).fails(2, &["is not imported", "checksum"]);
    kept_settings("remove --all").ok();
    assert!(kept(&sandbox, "profiles").is_empty());
}

#[test]
fn a_profile_of_one_user_is_none_of_anothers() {
    let [one, other] = need!(two_users(), "two other users are needed, and the right to become them");
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", RATE);
    let tuned = quick(&sandbox, "").arg(&app).user(one).ends();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    let run = |user| sandbox.run("-c 2").arg(&app).user(user).ends();
    assert!(run(one).stderr.contains("as tuned on"));
    // The users share this home, which is unusual: the file belongs to the other one, and cannot
    // even be read.
    let said = run(other);
    assert!(said.code == Some(0) && said.stderr.contains("another user"), "{said}");
    assert!(said.stderr.contains("threads: 2"), "{said}");
}

#[test]
fn options_of_run_reach_the_program() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let ask = "echo ${OMP_NUM_THREADS-none} $GLIBC_TUNABLES";
    assert_eq!(sandbox.run("-c 2 --threads 5 --thp on").sh(ask).ends().ok(), "5 glibc.malloc.hugetlb=1");
    let mine = sandbox.run("-c 2 --thp on").sh(ask).env("GLIBC_TUNABLES", "glibc.malloc.check=0").ends();
    assert_eq!(mine.warns(&["--thp on has no effect"]), "none glibc.malloc.check=0");
    sandbox.run("-c 1 --slice 0.05").sh(":").ends().fails_with(125, "milliseconds from 0.1 to 100");
    let slice = sandbox.run("-c 1 --slice 7").sh("grep -i slice /proc/self/sched || true").ends();
    let said = slice.out();
    // Only kernels built for it show the value in /proc.
    assert!(
        slice.code == Some(0) && (said.is_empty() || said.contains("7000000") || !slice.stderr.is_empty()),
        "{slice}"
    );
}

/// Collects the names of all fields of a document, except those inside settings.
fn fields(value: &Value, found: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(fields_) => {
            for (name, value) in fields_ {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_tuning_and_of_profiles_is_documented() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let app = sandbox.script("app", RATE);
    let tuned = quick(&sandbox, "--json --verify").arg(&app).ends();
    let mut found = std::collections::BTreeSet::new();
    for line in lines(&tuned.out()) {
        found.insert(line["record"].as_str().unwrap().to_owned());
        fields(&line, &mut found);
    }
    let tuned = quick(&sandbox, "").arg(&app).ends();
    assert_eq!(tuned.code, Some(0), "{tuned}");
    let list: Value = serde_json::from_str(&sandbox.trimtab("tune list --json").ends().ok()).unwrap();
    fields(&list, &mut found);
    fields(&serde_json::from_str(&text(&kept(&sandbox, "profiles")[0])).unwrap(), &mut found);
    let described = include_str!("../../../../docs/json-studies.md");
    let words: std::collections::BTreeSet<&str> =
        described.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-".contains(letter))).collect();
    let missing: Vec<_> = found.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(found.contains("adds") && found.contains("conditions"), "{found:?}");
    assert!(missing.is_empty(), "{missing:?} are not described in docs/json-studies.md");
}

#[test]
fn a_program_called_team_that_is_missing_is_answered_with_the_command_for_teams() {
    let sandbox = Sandbox::new();
    sandbox.trimtab("tune team").ends().fails(2, &["team", "to tune teams of ranks: trimtab tune-team"]);
    let missing = sandbox.trimtab("tune no-such-program").ends();
    assert!(missing.code == Some(2) && !missing.stderr.contains("tune-team"), "{missing}");
}
