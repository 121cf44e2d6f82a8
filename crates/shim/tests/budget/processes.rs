//! Teams of GNU's runtime in one and several processes, and what befalls these.

use super::common::HostProgram;
use super::hold::{Hold, PATIENCE, end, finish};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::Child;
use std::time::{Duration, Instant};
use trimtab_core::budget::page::{self, BYTES, HEADER, SLOT, SLOTS, header, slot};
use trimtab_core::budget::{Rule, VARIABLE};

/// Builds the program for GNU's runtime.
fn gnu() -> Option<HostProgram> {
    HostProgram::built("gcc", "budget.c", &["-O1", "-fopenmp"])
}

/// Repeats a run until all cores of four are lent to it: other processes notice at their second
/// examination.
fn until_lent(hold: &Hold, program: &HostProgram) {
    let begin = Instant::now();
    while !hold.run(program, &"flat ".repeat(4000)).ends_with('4') {
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn a_team_alone_gets_its_requested_threads_within_the_cores() {
    let Some(program) = gnu() else { return };
    for (cores, rule, steps, sizes) in [
        (4, Rule::Unnumbered, "flat 8 2 serial flat", "4 8 2 1 4"),
        (4, Rule::All, "flat 8 2 serial flat", "4 4 2 1 4"),
        (16, Rule::All, "flat 20", "8 16"),
        (1, Rule::All, "flat 8 nest", "1 1 1:1"),
    ] {
        assert_eq!(Hold::of(cores, rule).run(&program, steps), sizes, "{rule:?} {steps}");
    }
}

#[test]
fn a_program_that_allows_smaller_teams_gets_them() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(3, Rule::Unnumbered);
    let mut command = hold.command(&program, "flat 8");
    command.env("OMP_DYNAMIC", "true");
    // The runtime itself lowers teams further by the load average, so only the bound is known.
    let text = finish(command.spawn().unwrap());
    let sizes: Vec<u32> = text.split(' ').map(|size| size.parse().unwrap()).collect();
    assert!(sizes.len() == 2 && sizes.iter().all(|&size| (1..=3).contains(&size)), "{text}");
}

#[test]
fn inner_teams_share_the_threads_left_by_the_outer_one() {
    let Some(program) = gnu() else { return };
    // Outer teams come first; 8 are asked for on each level.
    assert_eq!(Hold::of(4, Rule::All).run(&program, "nest"), "4:1,1,1,1");
    assert_eq!(Hold::of(8, Rule::Unnumbered).run(&program, "nest flat"), "8:1,1,1,1,1,1,1,1 8");
    let hold = Hold::of(8, Rule::All);
    let mut command = hold.command(&program, "nest");
    command.env("OMP_NUM_THREADS", "3,8");
    let text = finish(command.spawn().unwrap());
    let inner: Vec<u32> =
        text.strip_prefix("3:").unwrap().split(',').map(|size| size.parse().unwrap()).collect();
    // Parts of 3, 3 and 2 cores; inner teams that run at different times may not all be there.
    assert!(inner.len() == 3 && inner[0] <= 3 && inner[1] <= 3 && inner[2] <= 2, "{text}");
    assert!(inner.iter().all(|&size| size >= 2), "{text}");
}

#[test]
fn two_processes_share_and_a_process_that_sleeps_lends() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    let (first, size) = hold.start(&program, "hold");
    assert_eq!(size, "4", "alone");
    // The new one takes its equal part at once.
    assert_eq!(hold.run(&program, "flat"), "2");
    let content = hold.content();
    assert_eq!(content.members.iter().filter(|member| member.state.computing == 4).count(), 1);
    end(first);
    assert_eq!(hold.run(&program, "flat"), "4");
    // The team sleeps, so that its cores are lent; noticed at the second examination.
    let (sleeper, _) = hold.start(&program, "sleep");
    until_lent(&hold, &program);
    end(sleeper);
}

#[test]
fn sums_are_kept_when_processes_end() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(2, Rule::All);
    for _ in 0..3 {
        hold.run(&program, "8 8");
    }
    let sums = hold.content().sums();
    assert_eq!((sums.teams, sums.bounded, sums.refused, sums.borrowed), (6, 6, 36, 0));
    assert_eq!(hold.content().programs, 3);
    // Ended processes leave one slot, which each took over from the one before.
    assert_eq!(hold.content().members.len(), 1);
}

#[test]
fn a_killed_process_does_not_count() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    for _ in 0..20 {
        let (mut held, _) = hold.start(&program, "hold");
        held.kill().unwrap();
        held.wait().unwrap();
        assert_eq!(hold.run(&program, "flat"), "4");
    }
}

#[test]
fn a_stopped_process_lends_its_cores() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    let (mut held, _) = hold.start(&program, "hold");
    kill_process(Pid::from_child(&held), Signal::STOP).unwrap();
    until_lent(&hold, &program);
    held.kill().unwrap();
    held.wait().unwrap();
}

#[test]
fn forked_children_and_new_programs_begin_without_teams() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    // The parent sleeps in `waitpid`; a child that a team's thread forked does not count that team.
    // A child of GNU's runtime cannot have teams again once its parent had a pool, so it has none.
    assert_eq!(hold.run(&program, "fork flat"), "3", "a share of four by the parent's one");
    assert_eq!(hold.run(&program, "flat exec flat exec 8"), "4 4 4");
    assert_eq!(hold.run(&program, "forkin 3"), "3");
    let living = hold.content().members;
    assert!(living.iter().all(|member| member.state.computing == 0), "{living:?}");
}

#[test]
fn a_page_that_is_none_is_left_alone() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(2, Rule::All);
    let run = |variable: &str| {
        let mut command = hold.command(&program, "flat");
        command.env(VARIABLE, variable);
        finish(command.spawn().unwrap())
    };
    let own = std::process::id();
    let other = tempfile::tempfile().unwrap();
    other.set_len(BYTES as u64).unwrap();
    for variable in [
        "",
        "1",
        "rubbish",
        &format!("1 {own} 999 2 all 0"),
        &format!("1 {own} {} 2 all 0", other.as_raw_fd()),
    ] {
        assert_eq!(run(variable), "8", "{variable}");
    }
    assert_eq!(run(&hold.variable()), "2");
    hold.put(header::MAGIC, page::MAGIC + 1);
    assert_eq!(run(&hold.variable()), "8", "another version");
}

#[test]
fn closed_descriptors_do_not_matter() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(2, Rule::All);
    // A descriptor of this test, which the program does not inherit.
    assert_eq!(hold.run(&program, "flat"), "2");
    // An inherited descriptor, if the process that has the page is gone.
    let copy = hold.file.try_clone().unwrap();
    fcntl_setfd(&copy, FdFlags::empty()).unwrap();
    let variable = hold.variable().replacen(
        &format!("1 {} {}", std::process::id(), hold.file.as_raw_fd()),
        &format!("1 {} {}", i32::MAX, copy.as_raw_fd()),
        1,
    );
    let mut command = hold.command(&program, "flat");
    command.env(VARIABLE, variable);
    assert_eq!(finish(command.spawn().unwrap()), "2");
}

#[test]
fn five_hundred_processes_find_their_places_and_no_process_gets_less_than_one_thread() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    let children: Vec<Child> =
        (0..500).map(|_| hold.command(&program, "1 wait 1").spawn().unwrap()).collect();
    let begin = Instant::now();
    while hold.content().members.len() < 500 {
        assert!(begin.elapsed() < PATIENCE, "{} of 500", hold.content().members.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut pids: Vec<u32> = hold.content().members.iter().map(|member| member.owner.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 500, "each has a slot of its own");
    let size: u32 = hold.run(&program, "flat").parse().unwrap();
    assert!((1..=4).contains(&size));
    for child in children {
        assert_eq!(finish(child), "1 1");
    }
    assert_eq!(hold.run(&program, "flat"), "4");
    // More than there are slots: those without one continue.
    let children: Vec<Child> =
        (0..SLOTS + 20).map(|_| hold.command(&program, "1 wait 1").spawn().unwrap()).collect();
    while hold.content().programs < 502 + SLOTS as u64 {
        assert!(begin.elapsed() < 2 * PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    for child in children {
        assert_eq!(finish(child), "1 1");
    }
}

#[test]
fn a_process_that_corrupts_the_page_costs_others_only_their_loans() {
    let Some(program) = gnu() else { return };
    let hold = Hold::of(4, Rule::All);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    // Rubbish, in every word but the first, while a program opens teams.
    let mut child = hold.command(&program, &"flat 8 nest ".repeat(3000)).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    });
    while child.try_wait().unwrap().is_none() {
        for _ in 0..64 {
            let word = 1 + draw() as usize % (HEADER + SLOT * SLOTS - 1);
            hold.put(
                word,
                match draw() % 4 {
                    0 => 0,
                    1 => u64::MAX,
                    2 => u64::from(std::process::id()) << 32 | 1,
                    _ => draw(),
                },
            );
        }
    }
    assert!(child.wait().unwrap().success());
    let text = reader.join().unwrap();
    let sizes = text.split_whitespace().map(|size| size.split(':').next().unwrap().parse::<u32>().unwrap());
    // None of these words names a process of the hold that computes.
    assert!(sizes.clone().count() == 9000 && sizes.clone().all(|size| size == 4), "{text}");
    // It claims the demand of all cores for a process that does compute: half is left.
    let hold = Hold::of(4, Rule::All);
    let (held, _) = hold.start(&program, "hold");
    hold.put(HEADER + slot::STATE, u64::MAX);
    assert_eq!(hold.run(&program, "flat"), "2");
    end(held);
}

/// A run that grows writes its cores into the page; so may any process of the hold.
#[test]
fn the_cores_of_the_page_count_between_those_of_the_start_and_the_cpus() {
    let Some(program) = gnu() else { return };
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    for (cores, size) in
        [(0, 1), (1, 1), (2, cpus.min(2)), (cpus, cpus.min(8)), (1 << 20, cpus.min(8)), (u64::MAX, 1)]
    {
        let hold = Hold::of(1, Rule::All);
        hold.put(header::CORES, cores);
        assert_eq!(hold.run(&program, "flat"), size.to_string(), "{cores} of {cpus}");
    }
}
