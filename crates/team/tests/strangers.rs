//! Peers at a socket that are not ranks: peers that keep silent, belong to another user, come late,
//! or pass a descriptor that is not a segment.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unsafe_code,
    reason = "tests with processes of other users"
)]
#![cfg(not(any(trimtab_model, miri)))]

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use trimtab_team::segment::meeting::Meeting;
use trimtab_team::segment::socket::Host;
use trimtab_team::{Error, Options, Team};

/// Greeting of a rank that takes any seat.
const HELLO: &[u8; 12] = b"TRTEAM\x00\x01\xff\xff\xff\xff";
/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// Held while this process forks. A forked child has copies of all descriptors, also of other
/// tests' listeners and locks, so a test that depends on their end forbids forks.
static FORKS: Mutex<()> = Mutex::new(());

/// A folder that only this user can enter, removed with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trimtab-strangers-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
    fn socket(&self) -> PathBuf {
        self.0.join("team")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn within(limit: u64) -> Options {
    Options { gather: Duration::from_millis(limit), heap: 4096, cell: 1024, ..Options::new(2) }
}

fn connected(path: &Path) -> UnixStream {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return stream;
        }
    }
}

#[test]
fn a_silent_process_delays_no_other_process() {
    let folder = Folder::new("silent");
    let path = folder.socket();
    // One after the other they would take longer than the time limit.
    let team = Team::new(within(10_000)).unwrap();
    std::thread::scope(|scope| {
        let hosted = scope.spawn(|| team.host(&path));
        let mut silent: Vec<UnixStream> = (0..60).map(|_| connected(&path)).collect();
        silent[7].write_all(&HELLO[..5]).unwrap();
        let (met, rank) = Team::meet(&path, None, within(10_000)).unwrap();
        assert_eq!((met.ranks(), rank), (2, 1));
        assert_eq!(hosted.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_process_that_does_not_answer_is_waited_for_until_the_limit_only() {
    let folder = Folder::new("deaf");
    let deaf = UnixListener::bind(folder.socket()).unwrap();
    // SAFETY: a listening socket. Its queue is made as short as possible.
    assert_eq!(unsafe { libc::listen(deaf.as_raw_fd(), 0) }, 0);
    let _waits = connected(&folder.socket());
    let error = Team::meet(&folder.socket(), None, within(100)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("accepts no connections"), "{error}");
    // Its place is not taken, either.
    assert!(matches!(Host::listen(&folder.socket()), Err(Error::Refused(_))));
}

#[test]
fn of_hosts_that_begin_at_once_one_listens() {
    let _no_forks = FORKS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("race");
    let path = folder.socket();
    for _ in 0..100 {
        drop(UnixListener::bind(&path).unwrap());
        let begin = std::sync::Barrier::new(4);
        let hosts: Vec<Host> = std::thread::scope(|scope| {
            let listen = || {
                begin.wait();
                Host::listen(&path).ok()
            };
            let hosts: Vec<_> = (0..4).map(|_| scope.spawn(listen)).collect();
            hosts.into_iter().filter_map(|host| host.join().unwrap()).collect()
        });
        assert_eq!(hosts.len(), 1);
        drop(UnixStream::connect(&path).unwrap());
    }
    // A lock leaves nothing.
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// Passes a descriptor to the first peer, as a host would.
fn pass(listener: &UnixListener, fd: &OwnedFd) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut hello = [0; 12];
    stream.read_exact(&mut hello).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let passed = [fd.as_fd()];
    assert!(beside.push(SendAncillaryMessage::ScmRights(&passed)));
    let words = [IoSlice::new(b"TRTEAM\x00\x01\x01\x00\x00\x00")];
    rustix::net::sendmsg(&stream, &words, &mut beside, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn a_passed_descriptor_of_no_sealed_segment_is_refused() {
    let folder = Folder::new("passed");
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let memfd = || {
        let fd = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
        fd
    };
    let sealed = memfd();
    use rustix::fs::SealFlags;
    rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let file: OwnedFd = std::fs::File::create(folder.0.join("file")).unwrap().into();
    let (socket, _other) = UnixStream::pair().unwrap();
    for (what, fd, says) in [
        ("a device", std::fs::File::open("/dev/null").unwrap().into(), "not a memfd"),
        ("a file", file, "not a memfd"),
        ("a socket", socket.into(), "not a memfd"),
        ("memory that can be shortened", memfd(), "could still be changed"),
        ("memory of no team", sealed, "magic"),
    ] {
        let told = std::thread::scope(|scope| {
            scope.spawn(|| pass(&listener, &fd));
            Team::meet(&folder.socket(), None, within(10_000)).map(|_| ())
        });
        let Err(Error::NotATeam(why)) = &told else { panic!("{what}: {told:?}") };
        assert!(why.contains(says), "{what}: {why}");
    }
}

#[test]
fn a_late_process_is_refused_and_does_no_harm() {
    let folder = Folder::new("late");
    let path = folder.socket();
    let team = Team::new(within(10_000)).unwrap();
    let late = team.clone();
    let begun = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            team.host(&path).unwrap();
            let rank = team.join(Some(0)).unwrap();
            begun.wait();
            rank.barrier().unwrap();
            begun.wait();
            rank.barrier().unwrap();
        });
        scope.spawn(|| {
            let (team, number) = Team::meet(&path, None, within(10_000)).unwrap();
            let rank = team.join(Some(number)).unwrap();
            begun.wait();
            rank.barrier().unwrap();
            begun.wait();
            rank.barrier().unwrap();
        });
        begun.wait();
        let said = |rank| late.join(rank).map(|_| ()).unwrap_err().to_string();
        assert!(said(None).contains("has begun") && said(Some(1)).contains("has begun"));
        let error = Team::meet(&path, None, within(50)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("no host listens"), "{error}");
        begun.wait();
    });
}

/// Runs a function as the user `nobody`, in a process of its own; its result is the exit status.
fn as_user_nobody(work: impl FnOnce() -> u8) -> libc::pid_t {
    let _alone = FORKS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the parts of the C library that the child uses are safe after fork, and it ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let changed = libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(NOBODY) == 0
                && libc::setuid(NOBODY) == 0;
            libc::_exit(if changed { work().into() } else { 99 });
        }
        child
    }
}

fn exit_status(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status}");
    libc::WEXITSTATUS(status)
}

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED (1): {test}: only root can be another user");
    }
    root
}

#[test]
fn another_user_gets_no_segment() {
    if !is_root("another_user_gets_no_segment") {
        return;
    }
    let folder = Folder::new("guest");
    let path = folder.socket();
    let team = Team::new(within(10_000)).unwrap();
    std::thread::scope(|scope| {
        let hosted = scope.spawn(|| team.host(&path));
        drop(connected(&path));
        // Whatever permissions let other users reach the socket: the kernel identifies them.
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let guest = as_user_nobody(|| {
            let Ok(mut stream) = UnixStream::connect(&path) else { return 1 };
            // The host may close the connection before that.
            let _ = stream.write_all(HELLO);
            let mut answer = [0; 12];
            if stream.read(&mut answer).is_ok_and(|got| got > 0) { 2 } else { 0 }
        });
        assert_eq!(exit_status(guest), 0);
        // The seat is still free for this user's rank.
        let (_team, rank) = Team::meet(&path, None, within(10_000)).unwrap();
        assert_eq!(rank, 1);
        assert_eq!(hosted.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_host_of_another_user_is_refused() {
    if !is_root("a_host_of_another_user_is_refused") {
        return;
    }
    let folder = Folder::new("host");
    std::os::unix::fs::chown(&folder.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let path = folder.socket();
    let host = as_user_nobody(|| {
        let Ok(listener) = UnixListener::bind(&path) else { return 1 };
        let Ok((mut stream, _)) = listener.accept() else { return 2 };
        // The peer sends nothing to it.
        if stream.read(&mut [0; 12]).is_ok_and(|got| got > 0) { 3 } else { 0 }
    });
    let told = Team::meet(&path, None, within(10_000)).map(|_| ());
    assert_eq!(told, Err(Error::Refused(format!("the peer is user {NOBODY}, not this one"))));
    assert_eq!(exit_status(host), 0);
    // This user does not host in another user's folder, either.
    assert!(matches!(Host::listen(&path), Err(Error::Refused(_))));
}

/// Not a test: a rank of a job that another test starts, with an environment of its own.
#[test]
fn as_a_rank_of_a_job() {
    let Ok(words) = std::env::var("TEAM_TEST_JOB_RANK") else { return };
    let (rank, key) = words.split_once(' ').unwrap();
    let rank = rank.parse().unwrap();
    let joined = Team::of_job(rank, key, within(20_000)).unwrap().join(Some(rank)).unwrap();
    let mut sum = [rank + 1];
    joined.mine().allreduce_in_place(&mut sum, trimtab_team::Operator::Sum).unwrap();
    assert_eq!(sum, [3]);
}

/// Starts a rank of a job, for which `TMPDIR` is a folder.
fn rank_of_a_job(rank: u32, key: &str, temporary: &Path) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_rank_of_a_job", "--nocapture"])
        .env("TEAM_TEST_JOB_RANK", format!("{rank} {key}"))
        .env("TMPDIR", temporary)
        .env_remove("XDG_RUNTIME_DIR")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn both_end_well(ranks: [std::process::Child; 2]) {
    for mut rank in ranks {
        assert!(rank.wait().unwrap().success());
    }
}

#[test]
fn ranks_of_a_job_with_different_temporary_folders_meet() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    let key = format!("folders-{}", std::process::id());
    both_end_well([rank_of_a_job(0, &key, &one.0), rank_of_a_job(1, &key, &other.0)]);
}

#[test]
fn another_user_who_has_the_folder_and_a_name_of_a_job_does_not_prevent_it() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!(
            "SKIPPED (1): another_user_who_has_the_folder...: only root can start processes of other users"
        );
        return;
    }
    let folder = Folder::new("taken");
    let key = format!("taken-{}", std::process::id());
    let squatted = folder.0.join("trimtab-team-0");
    std::fs::create_dir(&squatted).unwrap();
    std::os::unix::fs::chown(&squatted, Some(NOBODY), Some(NOBODY)).unwrap();
    // Its name as an error shows it; in this process the folder is another.
    let places = Meeting::of_job(&key).to_string();
    let name = places.rsplit(' ').next().unwrap().to_owned();
    let (mut told, tell) = UnixStream::pair().unwrap();
    let squatter = as_user_nobody(|| {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name);
        let Ok(_listener) = address.and_then(|address| UnixListener::bind_addr(&address)) else { return 1 };
        let mut ended = [0];
        let _ = (&tell).write_all(b"x");
        let _ = (&tell).read(&mut ended);
        0
    });
    drop(tell);
    told.read_exact(&mut [0]).unwrap();
    both_end_well([rank_of_a_job(0, &key, &folder.0), rank_of_a_job(1, &key, &folder.0)]);
    told.write_all(b"x").unwrap();
    assert_eq!(exit_status(squatter), 0);
}
