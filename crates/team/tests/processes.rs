//! Teams of real processes: their results, and the errors of the others when one is killed, stopped
//! or ends.
#![allow(clippy::unwrap_used, clippy::print_stderr, unsafe_code)]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use trimtab_team::segment::header::Header;
use trimtab_team::segment::memfd::Mapping;
use trimtab_team::{Error, Operator, Options, Policy, Rank, Sync, Team};

/// More than any machine needs: the test is that an answer comes at all.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts this program again, as a rank that does `job`.
fn start(team: &Team, rank: u32, job: &str) -> Child {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    let (name, value) = team.invitation(rank);
    let fd = team.fd().as_raw_fd();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_a_rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(name, value).env("TEAM_TEST_JOB", job).stdout(Stdio::null());
    // SAFETY: one system call between fork and exec, which allocates nothing.
    unsafe {
        command.pre_exec(move || {
            libc::fcntl(fd, libc::F_SETFD, 0);
            Ok(())
        })
    };
    command.spawn().unwrap()
}

/// Waits for a child, and kills it if it hangs.
fn ends(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    panic!("a rank hangs");
}

fn once(rank: &Rank, job: &str) -> trimtab_team::Result<()> {
    let mine = rank.mine();
    match job {
        "barrier" => rank.barrier(),
        "broadcast" => mine.broadcast(&mut [1_u64; 4], 0),
        // Ranks 0 and 1 both act as the root.
        "roots" => mine.broadcast(&mut [1_u64; 1], u32::from(rank.rank() == 1)),
        "large" => mine.allreduce_in_place(&mut vec![1_u64; 100_000], Operator::Sum),
        "resident" => {
            let block = rank.alloc::<u64>(50_000)?;
            block.store(0, &[1; 50_000])?;
            rank.allreduce_shared(&block, &block, Operator::Sum, Sync::STRICT)?;
            rank.free(block)
        }
        _ => mine.allreduce_in_place(&mut [1_u64], Operator::Sum),
    }
}

/// Not a test: the work of a started process.
#[test]
#[ignore = "a process that the other tests start"]
fn as_a_rank() {
    let Some((mut team, number)) = Team::inherited().unwrap() else { return };
    let job = std::env::var("TEAM_TEST_JOB").unwrap();
    let (what, how) = job.split_once(' ').unwrap_or((&job, ""));
    let wait = if how == "park" { Policy::Park } else { Policy::Auto };
    team.set_wait(wait, None);
    let rank = team.join(Some(number)).unwrap();
    match what {
        "sums" => {
            for round in 0..200_u64 {
                let mut sum = [u64::from(number) + round];
                rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
                let ranks = u64::from(rank.ranks());
                assert_eq!(sum[0], ranks * round + ranks * (ranks - 1) / 2);
            }
        }
        // Ends without leaving.
        "exit" => {
            rank.barrier().unwrap();
            // SAFETY: ends the process, as intended, before anything is dropped.
            unsafe { libc::_exit(0) }
        }
        "stopped" => loop {
            std::thread::sleep(Duration::from_millis(50));
        },
        what => while once(&rank, what).is_ok() {},
    }
}

#[test]
fn processes_and_threads_of_one_team_compute_together() {
    let team = Team::new(Options::new(4)).unwrap();
    let mut children: Vec<Child> = (1..3).map(|rank| start(&team, rank, "sums")).collect();
    std::thread::scope(|scope| {
        for number in [0, 3] {
            let team = team.clone();
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                for round in 0..200_u64 {
                    let mut sum = [u64::from(number) + round];
                    rank.mine().allreduce_in_place(&mut sum, Operator::Sum).unwrap();
                    assert_eq!(sum[0], 4 * round + 6);
                }
            });
        }
    });
    for child in &mut children {
        assert_eq!(ends(child), Some(0));
    }
}

#[test]
fn a_killed_rank_is_named_in_every_call_of_the_others() {
    for job in ["barrier", "broadcast", "small", "large", "resident", "barrier park", "small park"] {
        let team = Team::new(Options::new(3)).unwrap();
        let mut victim = start(&team, 2, job);
        let mut other = start(&team, 1, job);
        let rank = team.join(Some(0)).unwrap();
        for _ in 0..20 {
            once(&rank, job.split(' ').next().unwrap()).unwrap();
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        let begin = Instant::now();
        let error = loop {
            if let Err(error) = once(&rank, job.split(' ').next().unwrap()) {
                break error;
            }
            assert!(begin.elapsed() < LIMIT, "nothing was noticed in {job}");
        };
        assert_eq!(error, Error::PeerDied(2), "{job}");
        eprintln!("{job}: named after {:?}", begin.elapsed());
        assert_eq!(ends(&mut other), Some(0));
    }
}

#[test]
fn two_roots_that_are_processes_are_a_mismatch() {
    let team = Team::new(Options::new(3)).unwrap();
    let mut others = [1, 2].map(|rank| start(&team, rank, "roots"));
    let rank = team.join(Some(0)).unwrap();
    let error = (0..).find_map(|_| once(&rank, "roots").err()).unwrap();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    for other in &mut others {
        assert_eq!(ends(other), Some(0));
    }
}

#[test]
fn ending_without_leaving_is_a_death() {
    let team = Team::new(Options::new(2)).unwrap();
    let mut child = start(&team, 1, "exit");
    let rank = team.join(Some(0)).unwrap();
    rank.barrier().unwrap();
    assert_eq!(rank.barrier(), Err(Error::PeerDied(1)));
    assert_eq!(ends(&mut child), Some(0));
}

#[test]
fn a_stopped_process_is_not_dead_and_a_deadline_ends_the_wait() {
    let mut team = Team::new(Options::new(2)).unwrap();
    team.set_wait(Policy::Auto, Some(Duration::from_millis(200)));
    let mut child = start(&team, 1, "stopped");
    let rank = team.join(Some(0)).unwrap();
    // SAFETY: a signal to a child of this process that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
    assert!(matches!(rank.barrier(), Err(Error::Timeout(_))));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_rank_that_died_before_the_team_was_complete_is_named() {
    let team = Team::new(Options::new(3)).unwrap();
    let mut child = start(&team, 1, "barrier");
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| team.join(Some(0)).map(|_| ()));
        // It has its seat and waits for rank 2, which never comes.
        let mapping = Mapping::adopt(team.fd().try_clone_to_owned().unwrap()).unwrap();
        let begin = Instant::now();
        while Header::arrivals(&mapping).load(Ordering::SeqCst) < 2 {
            assert!(begin.elapsed() < LIMIT, "the others do not arrive");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(joining.join().unwrap(), Err(Error::PeerDied(1)));
    });
}
