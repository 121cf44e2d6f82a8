//! Published memory: which ranks see it, which may write it, and that it outlives its publisher.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trimtab_team::{Error, Options, Rank, Team, View};

const MANY: usize = 5000;

/// Starts this program again, as a rank that does `job`.
fn start(job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_a_rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("PUBLISHED_TEST_JOB", job).env_remove("TRIMTAB_TEAM").stdout(Stdio::null());
    command
}

fn invited(team: &Team, rank: u32, job: &str) -> Child {
    let (name, value) = team.invitation(rank);
    let (fd, mut command) = (team.fd().as_raw_fd(), start(job));
    // SAFETY: one system call between fork and exec, which allocates nothing.
    unsafe {
        command.pre_exec(move || {
            libc::fcntl(fd, libc::F_SETFD, 0);
            Ok(())
        })
    };
    command.env(name, value).spawn().unwrap()
}

/// Waits for a child, and kills it if it hangs.
fn ends(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    panic!("a rank hangs");
}

/// Not a test: the work of a started process.
#[test]
#[ignore = "a process that the other tests start"]
fn as_a_rank() {
    let Ok(job) = std::env::var("PUBLISHED_TEST_JOB") else { return };
    let (what, path) = job.split_once(' ').unwrap_or((&job, ""));
    let (team, number) = if path.is_empty() {
        Team::inherited().unwrap().unwrap()
    } else {
        Team::meet(Path::new(path), None, Options::new(1)).unwrap()
    };
    let rank = team.join(Some(number)).unwrap();
    match what {
        "turns" => in_turn(&rank),
        "writes" => {
            let view = rank.publish::<u64>(0, MANY).unwrap();
            rank.barrier().unwrap();
            // SAFETY: none; the test is that the kernel stops it.
            unsafe { view.base().cast_mut().write_volatile(1) };
        }
        "reopens" => {
            let view = rank.publish::<u64>(0, MANY).unwrap();
            rank.barrier().unwrap();
            // SAFETY: asks for rights to pages of this process; the test is that it is refused.
            let allowed = unsafe {
                libc::mprotect(view.base().cast_mut().cast(), 4096, libc::PROT_READ | libc::PROT_WRITE)
            };
            assert_eq!(allowed, -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
            rank.barrier().unwrap();
        }
        "dies" => {
            let view = rank.publish::<u64>(rank.rank(), MANY).unwrap();
            view.store(0, &[7; MANY]).unwrap();
            rank.barrier().unwrap();
            // SAFETY: ends the process, as intended, before anything is dropped.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        "hides" => {
            // SAFETY: from now on only root may look into this process, which is tested here.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
            let _ = rank.publish::<u64>(rank.rank(), MANY);
            rank.barrier().unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Each rank publishes once; all see its data, and its later writes.
fn in_turn(rank: &Rank) {
    let mut views: Vec<View<u64>> = Vec::new();
    for publisher in 0..rank.ranks() {
        let view = rank.publish::<u64>(publisher, MANY).unwrap();
        assert_eq!((view.len(), view.publisher()), (MANY, publisher));
        assert_eq!(view.own().is_some(), rank.rank() == publisher);
        let mut seen = [1; 3];
        view.load(MANY - 3, &mut seen).unwrap();
        assert_eq!(seen, [0; 3]);
        for round in 1..4 {
            rank.barrier().unwrap();
            let values = [u64::from(publisher) * 100 + round; MANY];
            if rank.rank() == publisher {
                view.store(0, &values).unwrap();
            } else {
                assert!(matches!(view.store(0, &values), Err(Error::Refused(_))));
            }
            rank.barrier().unwrap();
            let mut seen = [0; MANY];
            view.load(0, &mut seen).unwrap();
            assert_eq!(seen, values);
        }
        assert!(matches!(view.load(MANY, &mut [0]), Err(Error::Argument(_))));
        assert!(matches!(view.load(usize::MAX, &mut [0; 2]), Err(Error::Argument(_))));
        views.push(view);
    }
    rank.barrier().unwrap();
    for (publisher, view) in (0_u64..).zip(&views) {
        let mut seen = [0];
        view.load(MANY / 2, &mut seen).unwrap();
        assert_eq!(seen, [publisher * 100 + 3]);
    }
}

#[test]
fn threads_and_inherited_processes_see_published_data() {
    let team = Team::new(Options::new(4)).unwrap();
    let mut children: Vec<Child> = (1..3).map(|rank| invited(&team, rank, "turns")).collect();
    std::thread::scope(|scope| {
        for number in [0, 3] {
            let team = &team;
            scope.spawn(move || in_turn(&team.join(Some(number)).unwrap()));
        }
    });
    assert!(children.iter_mut().all(|child| ends(child).success()));
}

#[test]
fn processes_joined_by_socket_see_published_data() {
    let folder = std::env::temp_dir().join(format!("trimtab-published-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let path = folder.join("team");
    let team = Team::new(Options::new(3)).unwrap();
    let mut children = [0; 2].map(|_| start(&format!("turns {}", path.display())).spawn().unwrap());
    team.host(&path).unwrap();
    in_turn(&team.join(Some(0)).unwrap());
    assert!(children.iter_mut().all(|child| ends(child).success()));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_write_through_a_view_ends_the_writer_and_changes_nothing() {
    let team = Team::new(Options::new(2)).unwrap();
    let mut child = invited(&team, 1, "writes");
    let rank = team.join(Some(0)).unwrap();
    let view = rank.publish::<u64>(0, MANY).unwrap();
    view.store(0, &[9; MANY]).unwrap();
    rank.barrier().unwrap();
    assert_eq!(ends(&mut child).signal(), Some(libc::SIGSEGV));
    let mut seen = [0; MANY];
    view.load(0, &mut seen).unwrap();
    assert_eq!(seen, [9; MANY]);
    assert_eq!(rank.barrier(), Err(Error::PeerDied(1)));
}

#[test]
fn a_view_cannot_be_made_writable() {
    let team = Team::new(Options::new(2)).unwrap();
    let mut child = invited(&team, 1, "reopens");
    let rank = team.join(Some(0)).unwrap();
    let _view = rank.publish::<u64>(0, MANY).unwrap();
    rank.barrier().unwrap();
    rank.barrier().unwrap();
    assert!(ends(&mut child).success());
}

#[test]
fn data_of_a_dead_rank_that_was_published_can_be_read() {
    let team = Team::new(Options::new(2)).unwrap();
    let mut child = invited(&team, 1, "dies");
    let rank = team.join(Some(0)).unwrap();
    let view = rank.publish::<u64>(1, MANY).unwrap();
    rank.barrier().unwrap();
    assert_eq!(ends(&mut child).signal(), Some(libc::SIGKILL));
    assert_eq!(rank.barrier(), Err(Error::PeerDied(1)));
    drop(rank);
    drop(team);
    let mut seen = [0; MANY];
    view.load(0, &mut seen).unwrap();
    assert_eq!(seen, [7; MANY]);
}

#[test]
fn a_failed_publication_is_an_error_at_all_ranks_and_the_team_continues() {
    let team = Team::new(Options::new(2)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let team = &team;
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                assert!(matches!(rank.publish::<u64>(2, 1), Err(Error::Argument(_))));
                assert!(matches!(rank.publish::<u64>(0, 0), Err(Error::Argument(_))));
                assert!(matches!(rank.publish::<u64>(0, usize::MAX), Err(Error::Argument(_))));
                // More than the machine has: the publisher reports the cause, and the other rank
                // that the publisher could not.
                let why = rank.publish::<u8>(1, 1 << 39).unwrap_err();
                match number {
                    1 => assert!(matches!(why, Error::NoMemory { .. }), "{why}"),
                    _ => assert!(why.to_string().contains("publisher"), "{why}"),
                }
                // Different sizes.
                let why = rank.publish::<u8>(0, 8 + number as usize).unwrap_err().to_string();
                match number {
                    0 => assert!(why.contains("rank 1 could not map"), "{why}"),
                    _ => assert!(why.contains("8 elements") && why.contains('9'), "{why}"),
                }
                rank.publish::<u8>(0, 8).unwrap();
                rank.barrier().unwrap();
            });
        }
    });
}

/// Root can look everywhere; any other user gets the reason for the refusal.
#[test]
fn a_publisher_that_hides_is_named_and_the_remedy() {
    let team = Team::new(Options::new(2)).unwrap();
    let mut child = invited(&team, 1, "hides");
    let rank = team.join(Some(0)).unwrap();
    // SAFETY: only asks.
    let root = unsafe { libc::geteuid() } == 0;
    match rank.publish::<u64>(1, MANY) {
        Ok(_) => assert!(root),
        Err(why) => assert!(why.to_string().contains("dumpable"), "{why}"),
    }
    rank.barrier().unwrap();
    assert!(ends(&mut child).success());
}
