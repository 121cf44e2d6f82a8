//! `trimtab advise`: programs that clearly need a change, programs that need none, trials that are
//! stopped or rejected, and invalid profiles.

use crate::util::{Outcome, Sandbox, built, need, two};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The load of others is set to 0, whatever runs on this machine.
fn options([one, two]: [u32; 2]) -> String {
    format!("advise --cpus {one},{two} --share --others 0")
}

fn read(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out()).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

fn about<'v>(document: &'v Value, topic: &str) -> &'v Value {
    let all = document["advice"].as_array().unwrap();
    all.iter().find(|advice| advice["topic"] == topic).unwrap_or_else(|| panic!("{topic}: {document}"))
}

/// Returns a stored profile: four threads that spin on two CPUs and meet after each 0.2 ms of work.
fn crowded() -> Value {
    let interval = 8_000_000;
    json!({
        "schema": "trimtab.profile/1", "program": "app", "setting": {"wait": "spin", "threads": "4"}, "cpus": 2, "cores": 2,
        "wall": 800_000_000, "user": 1_500_000_000, "system": 10_000_000, "workers": 4, "runtimes": ["libgomp"],
        "intervals": {"count": 100, "mean": interval, "median": interval, "tenth": interval, "ninetieth": interval},
        "waiting": 0.97, "kept_waiting": null, "unseen": [],
    })
}

#[test]
fn nested_teams_beyond_the_cpus_get_advice_for_fewer_threads_with_the_right_command() {
    let cpus = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "zones.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let call =
        sandbox.trimtab(&format!("{} --once --json --", options(cpus))).arg(&program).args(["600", "100"]);
    let outcome = call.env("OMP_NUM_THREADS", "2,2").env("OMP_WAIT_POLICY", "active").ends();
    let document = read(&outcome);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(document["teams"], json!([2, 2]));
    let threads = about(&document, "threads");
    assert_eq!(
        (&threads["verdict"], &threads["setting"]["threads"]),
        (&json!("change"), &json!("2")),
        "{document}"
    );
    let [low, likely, high] = ["low", "likely", "high"].map(|end| threads["gain"][end].as_f64().unwrap());
    assert!(low <= likely && likely <= high && high < 1.0, "{threads}");
    let run = document["run"].as_str().unwrap();
    assert!(run.contains("OMP_NUM_THREADS=2,1 trimtab run"), "{run}");
    // The program's output is not mixed with the advice.
    assert!(outcome.stderr.contains("zones are done"), "{outcome}");
}

#[test]
fn a_program_with_a_cpu_for_each_thread_is_left_as_it_is() {
    let cpus = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "meets.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    let call = sandbox.trimtab(&format!("{} --once --", options(cpus)));
    let outcome = call.arg(&program).args(["100", "200"]).ends();
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let said = outcome.out();
    assert!(said.contains("No recommendation: no change is certain") && !said.contains("Use"), "{said}");
    assert!(said.contains("threads: there are as many threads as CPUs"), "{said}");
}

#[test]
fn missing_measurements_of_a_static_program_are_named_and_tuning_is_suggested() {
    let cpus = need!(two(), "two cores are needed");
    let program =
        need!(built("gcc", "meets.c", &["-pthread", "-static"]), "gcc and a static C library are needed");
    let sandbox = Sandbox::new();
    let call = sandbox.trimtab(&format!("{} --once --", options(cpus)));
    let outcome = call.arg(&program).args(["3000", "100"]).ends();
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let said = outcome.out();
    assert!(said.contains("statically linked"), "{said}");
    assert!(
        said.contains("waiting (uncertain): missing data: ")
            && said.contains("the synchronisation intervals"),
        "{said}"
    );
    assert!(said.contains("trimtab tune") && said.contains("--knobs"), "{said}");
}

/// Returns the variants that were tried, of a document in JSON.
fn variants(document: &Value) -> &Vec<Value> {
    document["tested"]["variants"].as_array().unwrap_or_else(|| panic!("nothing was tested: {document}"))
}

#[test]
fn threads_that_spin_on_flags_are_diagnosed_early_and_fewer_of_them_are_measured() {
    let cpus = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "flags.c", &["-pthread"]), "gcc is needed");
    let sandbox = Sandbox::new();
    // With four threads on two CPUs each of the meetings takes a time slice: minutes in all.
    let call = sandbox.trimtab(&format!("{} --json --", options(cpus))).arg(&program).arg("20000");
    let outcome = call.env("OMP_NUM_THREADS", "4").ends();
    let document = read(&outcome);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    // On a busy machine one of the threads may not have run while the others were counted.
    let counted = document["ended_early"].as_u64();
    assert!(counted.is_some_and(|threads| (3..=4).contains(&threads)), "{document}");
    assert_eq!(document["tested"]["verdict"], "use", "{document}");
    let all = variants(&document);
    let kinds: Vec<&str> = all.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["plain", "run"], "{document}");
    assert!((1..=4).contains(&(kinds.len() - 2)), "{document}");
    // The program as it is was stopped, so the gain has a lower end only.
    assert!(all[0]["stopped"].as_f64().is_some_and(|stopped| stopped > 0.0), "{document}");
    let chosen = &all[usize::try_from(document["tested"]["entrant"].as_u64().unwrap()).unwrap()];
    assert!(chosen["faster"]["low"].as_f64().unwrap() > 1.02, "{chosen}");
    assert_eq!(chosen["faster"]["high"], Value::Null, "{chosen}");
    assert_eq!(document["run"], chosen["command"]);
}

#[test]
fn a_way_in_which_the_program_fails_is_rejected_with_the_reason() {
    let cpus = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "flags.c", &["-pthread"]), "gcc is needed");
    let sandbox = Sandbox::new();
    let call = sandbox.trimtab(&format!("{} --budget 3s --json --", options(cpus))).arg(&program);
    // Four threads on two CPUs are diagnosed; the candidate with two threads fails.
    let call = call.args(["20000", "--break-below", "3"]).env("OMP_NUM_THREADS", "4");
    let outcome = call.ends();
    let document = read(&outcome);
    let fewer =
        variants(&document).iter().find(|one| one["way"].as_str().unwrap().contains("OMP_NUM_THREADS=2"));
    let fewer = fewer.unwrap_or_else(|| panic!("{document}"));
    let why = fewer["rejected"].as_str().unwrap();
    assert!(why.contains("status 3") && why.contains("too few threads"), "{why}");
    assert_ne!(document["run"], fewer["command"]);
}

#[test]
fn trials_leave_no_process_behind_and_the_text_begins_with_the_present_way() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let pids = sandbox.path("pids");
    // Each run leaves a process in a session of its own.
    let script = format!("setsid sleep 60 >/dev/null 2>&1 & echo $! >>{}", pids.display());
    let call = sandbox.trimtab(&format!("{} --budget 2s -- sh -c", options(cpus))).arg(script);
    let outcome = call.ends();
    let said = outcome.out();
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome}");
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}: {said}"));
    assert!(at("\n  now ") < at("\n  trimtab run "), "{said}");
    assert!(said.contains("Use: ") || said.contains("No change: ") || said.contains("No recommendation: "));
    let left: Vec<String> = crate::util::text(&pids).lines().skip(1).map(str::to_owned).collect();
    assert!(!left.is_empty(), "no trial ran: {outcome}");
    for pid in left {
        assert!(!std::path::Path::new("/proc").join(&pid).exists(), "{pid} lives");
    }
}

#[test]
fn a_failure_of_the_program_is_said_and_is_trimtabs() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let outcome =
        sandbox.trimtab(&format!("{} -- sh", options(cpus))).args(["-c", "echo mine; exit 7"]).ends();
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(
        outcome.stderr.contains("the program failed") && outcome.stderr.contains("status 7"),
        "{outcome}"
    );
    assert!(
        outcome.stderr.contains("mine") && !outcome.out().lines().any(|line| line == "mine"),
        "{outcome}"
    );
    sandbox
        .trimtab(&format!("{} -- no-such-program-here", options(cpus)))
        .ends()
        .fails_with(2, "no-such-program-here");
}

#[test]
fn a_kept_profile_gives_the_same_advice_twice_and_needs_the_load_of_others() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("app.json", crowded().to_string());
    let ask = |more: &str| {
        let call =
            sandbox.trimtab(&format!("advise --json {more} --from")).arg(&file).args(["./my app", "it's"]);
        call.without("OMP_NUM_THREADS").ends()
    };
    let (first, second) = (ask("--others 0"), ask("--others 0"));
    assert_eq!((first.code, first.out()), (Some(0), second.out()), "{first}");
    let document = read(&first);
    assert_eq!(document["setting"]["threads"], "2");
    let run = document["run"].as_str().unwrap();
    assert!(run.starts_with("trimtab run ") && run.contains("--threads=2"), "{run}");
    assert!(run.ends_with(r"-- './my app' 'it'\''s'"), "{run}");
    let unknown = ask("");
    assert_eq!(unknown.code, Some(1), "{unknown}");
    let unknown = read(&unknown);
    assert_eq!((&unknown["run"], &unknown["others"]), (&Value::Null, &Value::Null));
    assert!(
        about(&unknown, "threads")["missing"].to_string().contains("the load of other programs"),
        "{unknown}"
    );
}

#[test]
fn a_file_that_is_no_profile_is_refused_with_the_way_to_make_one() {
    let sandbox = Sandbox::new();
    let later = crowded().to_string().replace("trimtab.profile/1", "trimtab.profile/9");
    let wrong = crowded().to_string().replace("800000000", "\"long\"");
    let cases = [
        ("cut", r#"{"schema":"trimtab.prof"#, "not a profile"),
        ("foreign", r#"{"schema":"trimtab.plan/1"}"#, "trimtab.plan/1"),
        ("other", "[1, 2]", "not a profile"),
        ("later", &later, "trimtab.profile/9"),
        ("wrong", &wrong, "not a profile"),
        ("empty", "", "not a profile"),
    ];
    for (name, text, why) in cases {
        let file = sandbox.write(name, text);
        let outcome = sandbox.trimtab("advise --from").arg(&file).ends();
        outcome.fails(2, &[why, "trimtab profile --json -o FILE", name]);
    }
    let binary = sandbox.write("binary", [0xff_u8, 0xfe, 0]);
    sandbox.trimtab("advise --from").arg(&binary).ends().fails(2, &["not a profile"]);
    sandbox.trimtab("advise --from /nothing/here").ends().fails(2, &["/nothing/here", "cannot be read"]);
    let outcome = sandbox.trimtab("advise").ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("COMMAND"), "{outcome}");
}

#[test]
fn strange_numbers_in_a_kept_profile_bring_nothing_down() {
    let sandbox = Sandbox::new();
    for (field, value) in [
        ("wall", json!(0)),
        ("user", json!(u64::MAX)),
        ("workers", json!(u32::MAX)),
        ("cpus", json!(0)),
        ("waiting", json!(-1e308)),
        (
            "intervals",
            json!({"count": u64::MAX, "mean": u64::MAX, "median": 0, "tenth": u64::MAX, "ninetieth": 1}),
        ),
    ] {
        let mut profile = crowded();
        profile[field] = value;
        let file = sandbox.write("app.json", profile.to_string());
        let outcome = sandbox.trimtab("advise --others 65536 --json --from").arg(&file).ends();
        assert!(matches!(outcome.code, Some(0 | 1)), "{field}: {outcome}");
        read(&outcome);
    }
}

#[test]
fn a_signal_ends_the_program_too_and_nothing_is_left_behind() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let pid = sandbox.path("pid");
    let script = format!("echo $$ >{}.new; mv {0}.new {0}; exec sleep 60", pid.display());
    let mut run = sandbox.trimtab(&format!("{} -- sh -c", options(cpus))).arg(script).begins();
    crate::util::eventually("it runs", || pid.exists());
    run.signal(Signal::TERM);
    crate::util::eventually("it ends", || !run.lives());
    let pid = crate::util::text(&pid);
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
    assert_eq!(run.ends().code, Some(128 + 15));
}

#[test]
fn inside_a_run_nothing_is_measured() {
    let sandbox = Sandbox::new();
    let own = crate::util::trimtab();
    let outcome = sandbox.run("-c 1 --share").arg(own).args(["advise", "true"]).ends();
    outcome.fails(2, &["inside a trimtab run"]);
}
