//! Ranks that vanish without leaving: threads that end with their seats, and programs that execute
//! other programs.
#![allow(clippy::unwrap_used, unsafe_code, reason = "tests with processes")]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{inherited, number, spawn};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use trimtab_team::{Error, Operator, Options, Rank, Team};

/// More than any machine needs: the test is that an answer comes at all.
const LIMIT: Duration = Duration::from_secs(120);

/// How a started process gives up its seat, by number.
const THREAD_RETURNS: u64 = 0;
const THREAD_ENDS: u64 = 1;
const FIRST_THREAD_ENDS: u64 = 2;
const EXEC: u64 = 3;
const EXEC_OF_ANOTHER_THREAD: u64 = 4;
const EXEC_WHERE_ANOTHER_THREAD_IS_RANK: u64 = 5;
const EXEC_AFTER_A_FORK: u64 = 6;
const EXEC_OF_THE_SAME_PROGRAM: u64 = 7;

fn become_another() -> ! {
    let error = Command::new("sleep").arg("60").exec();
    panic!("{error}");
}

/// Ends the calling thread by a system call, which a language's own runtime never does.
fn end_thread() -> ! {
    // SAFETY: ends this thread alone; no thread waits for its resources.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!()
}

fn is_first_thread() -> bool {
    // SAFETY: only a query.
    unsafe { libc::gettid() as u32 == std::process::id() }
}

/// Is a rank until all have met once, and then no more, without leaving.
#[test]
fn a_vanishing_rank() {
    let Some((team, rank)) = inherited(LIMIT, None) else { return };
    let how = number("HOW").unwrap();
    let join = move || {
        let rank = team.join(Some(rank)).unwrap();
        rank.barrier().unwrap();
        std::mem::forget(rank);
    };
    // Tests are not in the first threads of their processes: a forked child is.
    // SAFETY: the parts of the C library that the child uses are safe after fork; it ends with this
    // thread.
    unsafe {
        let child = libc::fork();
        if child != 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
            return;
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    assert!(is_first_thread());
    match how {
        THREAD_RETURNS => std::thread::spawn(join).join().unwrap(),
        THREAD_ENDS => {
            std::thread::spawn(move || {
                join();
                end_thread()
            });
        }
        FIRST_THREAD_ENDS => {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(600)));
            join();
            end_thread()
        }
        EXEC => {
            join();
            become_another()
        }
        EXEC_OF_ANOTHER_THREAD => {
            join();
            let _ = std::thread::spawn(|| become_another()).join();
        }
        EXEC_WHERE_ANOTHER_THREAD_IS_RANK => {
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                join();
                tell.send(()).unwrap();
                std::thread::sleep(Duration::from_secs(600));
            });
            told.recv().unwrap();
            become_another()
        }
        EXEC_AFTER_A_FORK => {
            join();
            // SAFETY: the child sleeps, which is a system call, with copies of all descriptors,
            // until the pipe's other end is closed.
            unsafe {
                let parent = libc::getpid();
                if libc::fork() == 0 {
                    while libc::getppid() == parent {
                        libc::usleep(10_000);
                    }
                    libc::_exit(0);
                }
            }
            become_another()
        }
        _ => {
            join();
            let error = Command::new(std::env::current_exe().unwrap())
                .env_remove("TRIMTAB_TEAM")
                .args(["--exact", "sleeps", "--ignored"])
                .exec();
            panic!("{error}");
        }
    }
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
#[ignore = "a program that a rank of the other tests executes"]
fn sleeps() {
    std::thread::sleep(Duration::from_secs(600));
}

fn vanishing(team: &Team, rank: u32, how: u64) -> Child {
    spawn(team, rank, "a_vanishing_rank", &[("HOW", how)])
}

/// Returns the error of a rank that waits for the vanished one.
fn told(rank: &Rank) -> Error {
    let begin = Instant::now();
    loop {
        if let Err(error) = rank.mine().allreduce_in_place(&mut [1_u64; 40], Operator::Sum) {
            return error;
        }
        assert!(begin.elapsed() < LIMIT);
    }
}

fn team(ranks: u32) -> Team {
    Team::new(Options { heap: 4096, cell: 1024, deadline: Some(LIMIT), ..Options::new(ranks) }).unwrap()
}

fn is_named(how: u64) {
    let team = team(3);
    let mut child = vanishing(&team, 1, how);
    std::thread::scope(|scope| {
        for number in [0, 2] {
            let team = &team;
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                rank.barrier().unwrap();
                let error = told(&rank);
                assert_eq!(error, Error::PeerDied(1), "rank {number}, way {how}");
                let rank = rank.shrink(LIMIT).unwrap();
                assert_eq!(rank.ranks(), 2);
                rank.barrier().unwrap();
            });
        }
    });
    // No other process ended it.
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_thread_of_another_process_that_ends_is_named() {
    is_named(THREAD_RETURNS);
    is_named(THREAD_ENDS);
}

#[test]
fn a_first_thread_that_ends_before_others_is_named() {
    is_named(FIRST_THREAD_ENDS);
}

#[test]
fn a_process_that_becomes_another_program_is_named() {
    is_named(EXEC);
    is_named(EXEC_OF_THE_SAME_PROGRAM);
}

#[test]
fn a_rank_is_named_after_its_process_became_another_program() {
    is_named(EXEC_OF_ANOTHER_THREAD);
    is_named(EXEC_WHERE_ANOTHER_THREAD_IS_RANK);
}

#[test]
fn a_process_that_becomes_another_program_and_leaves_a_child_is_named() {
    is_named(EXEC_AFTER_A_FORK);
}

#[test]
fn a_thread_of_this_process_that_ends_is_named() {
    let team = team(3);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let team = team.clone();
            let work = move || {
                let rank = team.join(Some(number)).unwrap();
                rank.barrier().unwrap();
                if number == 1 {
                    std::mem::forget(rank);
                    return;
                }
                assert_eq!(told(&rank), Error::PeerDied(1), "rank {number}");
            };
            scope.spawn(work);
        }
    });
}

#[test]
fn a_thread_that_ends_while_others_gather_is_named() {
    let team = team(3);
    std::thread::scope(|scope| {
        let (sits, other) = (team.clone(), team.clone());
        // Takes the seat as `join` does, without waiting for the others.
        scope.spawn(move || {
            let mapping = std::sync::Arc::new(
                trimtab_team::segment::memfd::Mapping::adopt(sits.fd().try_clone_to_owned().unwrap())
                    .unwrap(),
            );
            let geometry = trimtab_team::segment::header::Header::check(&mapping).unwrap();
            let own = trimtab_team::liveness::SeatHolder::own(false);
            let seat =
                trimtab_team::segment::seat::SharedSeat::take(&mapping, &geometry, Some(2), own).unwrap();
            std::mem::forget(seat);
        });
        scope.spawn(move || assert_eq!(other.join(Some(0)).map(|_| ()), Err(Error::PeerDied(2))));
    });
}

#[test]
fn a_rank_of_the_process_outlives_the_thread_that_joined() {
    /// A rank that two threads use one after the other.
    struct Passed(Rank);
    // SAFETY: of a process's rank, which nothing else refers to.
    unsafe impl Send for Passed {}
    let team = team(2);
    std::thread::scope(|scope| {
        let own = team.clone();
        let joined = scope.spawn(move || Passed(own.join_process(Some(0)).unwrap()));
        scope.spawn(|| {
            let rank = team.join_process(Some(1)).unwrap();
            rank.barrier().unwrap();
            // Long enough for this rank to examine the other one's thread.
            assert_eq!(rank.barrier(), Err(Error::PeerLeft(0)));
        });
        // The thread that joined has ended.
        let Passed(rank) = joined.join().unwrap();
        rank.barrier().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        drop(rank);
    });
}
