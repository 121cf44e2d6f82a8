//! `trimtab run --ranks N`: several processes of a program as one team.

use crate::util::{MASK, Sandbox, cpus, eventually, need, text, two};
use rustix::process::Signal;
use std::time::{Duration, Instant};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_share_out_the_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 2 --ranks 2").sh(MASK).ends().out();
    let (one, other) = (cpus(sorted(&said)[0]), cpus(sorted(&said)[1]));
    assert!(one.is_disjoint(&other), "{said}");
    assert_eq!(one.union(&other).copied().collect::<Vec<_>>(), [a, b], "{said}");
    sandbox.until_free();
}

#[test]
fn each_rank_gets_its_number_and_the_number_of_ranks() {
    let sandbox = Sandbox::new();
    let script =
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE ${TRIMTAB_TEAM%%:*} ${TRIMTAB_TEAM#*:*:}";
    let said = sandbox.run("--ranks 3 --or-fewer").env("TORCHELASTIC_RUN_ID", "x").sh(script).ends().out();
    assert_eq!(sorted(&said), ["0 3 0 3 v1 0:3", "1 3 1 3 v1 1:3", "2 3 2 3 v1 2:3"]);
    // The segment is inherited, and the program's words are unchanged.
    let script = "fd=${TRIMTAB_TEAM#v1:}; readlink /proc/self/fd/${fd%%:*}; echo $0";
    let said = sandbox.run("--ranks=1").args(["sh", "-c", script, "--ranks"]).ends().out();
    assert!(said.contains("memfd:") && said.contains("--ranks"), "{said}");
}

#[test]
fn the_team_has_the_requested_memory() {
    let sandbox = Sandbox::new();
    let script = "fd=${TRIMTAB_TEAM#v1:}; stat -L -c %s /proc/self/fd/${fd%%:*}";
    let bytes = |options: &str| {
        let said = sandbox.run(options).sh(script).ends().out();
        said.trim().parse::<u64>().unwrap()
    };
    assert_eq!(bytes("--ranks 1 --heap 40M") - bytes("--ranks 1 --heap 16M"), 24 << 20);
    assert_eq!(bytes("--ranks 1"), bytes("--ranks 1 --heap 16M"));
    let refused = sandbox.run("--ranks 1 --heap 900T").sh(script).ends();
    assert!(refused.code == Some(125) && refused.stderr.contains("the team's memory"), "{refused}");
}

#[test]
fn ranks_are_a_team() {
    let sandbox = Sandbox::new();
    let program = crate::util::trimtab();
    let words = "bench team-cell -n 2 -k process -o allreduce -z 64 -B 2 -T 0.1".split(' ');
    let said = sandbox.run("--ranks 2").arg(program).args(words).ends().out();
    assert_eq!(said.lines().filter(|line| line.contains(r#""op":"allreduce""#)).count(), 2, "{said}");
}

#[test]
fn the_first_rank_that_fails_is_named_and_the_others_are_ended() {
    let sandbox = Sandbox::new();
    let script = "[ $RANK = 1 ] && exit 7; exec sleep 600";
    let begin = Instant::now();
    let outcome = sandbox.run("--ranks 3 --or-fewer --grace 0").sh(script).ends();
    assert_eq!(outcome.code, Some(7), "{outcome}");
    assert!(outcome.stderr.contains("rank 1 ended with status 7"), "{outcome}");
    assert!(begin.elapsed() < Duration::from_secs(300), "the others were ended");
    // A rank that ignores the first signal gets the second one.
    let script = "trap '' TERM; [ $RANK = 0 ] && kill -9 $$; while :; do sleep 0.05; done";
    let outcome = sandbox.run("--ranks 2 --grace 0").sh(script).ends();
    assert_eq!(outcome.code, Some(137), "{outcome}");
    assert!(outcome.stderr.contains("rank 0 was killed by signal 9"), "{outcome}");
    sandbox.run("--ranks 2").sh("exit 0").ends().out();
    sandbox.until_free();
}

#[test]
fn signals_are_handed_on() {
    let sandbox = Sandbox::new();
    let script = r#"trap 'echo $RANK >>heard; exit 0' USR1; : >ready$RANK; while :; do sleep 0.05; done"#;
    let running = sandbox.run("--ranks 2").sh(script).begins();
    eventually("both ranks run", || sandbox.path("ready0").exists() && sandbox.path("ready1").exists());
    running.signal(Signal::USR1);
    let outcome = running.ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(sorted(&text(&sandbox.path("heard"))), ["0", "1"]);
    let running = sandbox.run("--ranks 2").sh(": >on$RANK; exec sleep 600").begins();
    eventually("both ranks run", || sandbox.path("on0").exists() && sandbox.path("on1").exists());
    running.signal(Signal::TERM);
    assert_eq!(running.ends().code, Some(143));
    sandbox.until_free();
}

#[test]
fn output_is_the_ranks_own_or_begins_with_the_rank() {
    let sandbox = Sandbox::new();
    let said = sandbox.run("--ranks 2 --prefix").sh("echo one; printf two; echo err >&2").ends();
    assert_eq!(sorted(&said.out()), ["[0] one", "[0] two", "[1] one", "[1] two"]);
    assert!(said.stderr.contains("[0] err") && said.stderr.contains("[1] err"), "{said}");
    // Input goes to rank 0.
    let said = sandbox.run("--ranks 2").sh("echo $RANK $(cat)").input("words").ends().out();
    assert_eq!(sorted(&said), ["0 words", "1"]);
}

#[test]
fn contradicting_options_are_refused() {
    let sandbox = Sandbox::new();
    for (options, why) in [
        ("--ranks 2 --balance", "--balance applies to one process"),
        ("--ranks 2 --report", "--report applies to one process"),
        ("--ranks 2 --env print", "--env=print applies to one process"),
        ("--prefix", "--ranks"),
        ("--grace 3", "--ranks"),
        ("--heap 1G", "--ranks"),
        ("--ranks 0", "0"),
    ] {
        let outcome = sandbox.run(options).arg("true").ends();
        assert!(outcome.code == Some(125) && outcome.stderr.contains(why), "{options}: {outcome}");
    }
    let call = sandbox.run("--ranks 2").arg("true");
    let outcome = call.env("OMPI_COMM_WORLD_LOCAL_RANK", "0").env("OMPI_COMM_WORLD_LOCAL_SIZE", "2").ends();
    assert!(outcome.code == Some(125) && outcome.stderr.contains("Open MPI has started this"), "{outcome}");
    assert_eq!(sandbox.run("--ranks 2").arg("no-such-program").ends().code, Some(127));
}
