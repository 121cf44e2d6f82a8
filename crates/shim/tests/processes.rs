//! Only the planned process is pinned: not its children, not another process, and no process
//! without a readable plan.

mod common;

use common::{HostProgram, HostRun, pinned, two_cpus};

#[track_caller]
fn expect(run: HostRun, program: Option<HostProgram>, lines: &[&str]) {
    if let Some(outcome) = program.and_then(|program| run.run(&program)) {
        assert_eq!(outcome.text().lines().collect::<Vec<_>>(), lines);
    }
}

#[test]
fn children_of_forks_live_in_the_mask_unless_the_program_placed_their_parent() {
    expect(
        pinned("B/A"),
        HostProgram::c("forks.c"),
        &[
            "initial thread: AB child AB",
            "thread of child: AB",
            "pinned thread: A child AB thread of child AB",
            "moved thread: A child A", // to its slot, but set by the program
            "moved thread: B child B",
            "initial thread: A child A stays A",
            "initial thread: B child AB stays B", // as an OpenMP runtime does: the place that is slot 0
            "grandchild: B",
        ],
    );
}

#[test]
fn an_exec_starts_afresh() {
    // An exec keeps the mask of the thread that calls it. The third program was started from a
    // slot, and still has all CPUs.
    expect(pinned("B/A").arg("1"), HostProgram::c("execs.c"), &["1: AB: A B", "2: AB: A B", "3: AB: A B"]);
}

#[test]
fn programs_started_without_fork_work() {
    expect(pinned("B/A"), HostProgram::c("spawns.c"), &["done"]);
}

#[test]
fn another_process_than_the_planned_one_is_not_pinned() {
    let run = HostRun::guest().text("1 pid=1 mask=A,B slots=B/A pin=born").arg("3");
    expect(run, HostProgram::c("born.c"), &["AB: AB AB AB"]);
    let run = HostRun::guest().text("1 pid=1 mask=A,B slots=B/A pin=born").arg("2").arg("A");
    expect(run, HostProgram::c("born.c"), &["A: A A"]);
}

#[test]
fn counts_bound_the_plans_cpu_numbers_in_every_process_and_thread() {
    let (Some(program), Some([a, b])) = (HostProgram::c("counts.c"), two_cpus()) else { return };
    let Some(native) = HostRun::native().run(&program) else { return };
    let native = native.text();
    let others = native.lines().last().unwrap().rsplit_once(' ').unwrap().0;
    let number = |name: &str| -> u32 {
        let mut words = native.split_whitespace().skip_while(|word| *word != name).skip(1);
        words.next().unwrap().parse().unwrap()
    };
    let (machine, most) = (number("online"), number("configured"));
    for (plan, last, threads) in [
        ("pid=PID mask=A slots=A pin=born", a, None),
        ("pid=PID mask=B slots=B pin=mask", b, None),
        ("pid=1 mask=A slots=A pin=born", a, None),
        ("pid=PID mask=A,B slots=B/A pin=born", b, None),
        ("pid=PID mask=A,B slots=B/A pin=born threads=1", b, Some(1)), // a quota for one CPU
        ("pid=PID mask=A slots=A pin=born threads=9", a, None),
        ("pid=1 mask=A,B,8000 slots= pin=mask", 8000, None), // never more than the machine reports
        ("pid=PID mask=8000-8003 slots=8000 pin=born", 8000, None),
    ] {
        let text = HostRun::guest().text(&format!("1 {plan}")).run(&program).unwrap().text();
        let lines: Vec<_> = text.lines().collect();
        let (online, configured) = (threads.unwrap_or(machine.min(last + 1)), most.min(last + 1));
        for (line, who) in lines.iter().zip(["main", "thread", "child"]) {
            assert_eq!(
                *line,
                format!(
                    "{who}: online {online} configured {configured} nprocs {online} nprocs_conf {configured}"
                ),
                "{plan}"
            );
        }
        assert!(lines[3].starts_with(others), "{} is not {others}", lines[3]);
    }
}

#[test]
fn a_text_that_is_no_plan_changes_nothing() {
    let (Some(born), Some(counts)) = (HostProgram::c("born.c"), HostProgram::c("counts.c")) else { return };
    let asked =
        |run: HostRun| Some([run.run(&counts)?.text().lines().take(3).collect::<Vec<_>>().join("\n")]);
    let native = asked(HostRun::native());
    for text in [
        " ",
        "1",
        "born",
        "0 pid=PID mask=A slots=A pin=born",
        "2 pid=PID mask=A slots=A pin=born",
        "1 pid=PID mask= slots= pin=born",
        "1 pid=PID mask=A slots=B pin=born",
        "1 pid=PID mask=A slots=A pin=",
        "1 pid=PID mask=A slots=A pin=born and more",
        "1 pid=PID mask=0-99999999999999999999 slots=A pin=born",
        "1 pid=99999999999 mask=A slots=A pin=born",
        "\u{7f}\u{e9}%s%n\n\t",
    ] {
        assert_eq!(asked(HostRun::guest().text(text)), native, "{text:?}");
        if let Some(outcome) = HostRun::guest().text(text).arg("2").arg("A").run(&born) {
            assert_eq!(outcome.text(), "A: A A", "{text:?}");
        }
    }
    let long = format!("1 pid=PID mask=A slots={}A pin=born", "A/".repeat(40_000));
    if let Some(outcome) = HostRun::guest().text(&long).arg("2").run(&born) {
        assert_eq!(outcome.text(), "AB: A A", "long, but a plan");
    }
}
