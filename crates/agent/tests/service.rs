//! Test of the service, its client and detach without a front end. One test, since signals affect
//! the whole process.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "fixtures/lines.rs"]
mod lines;

use lines::Lines;
use rustix::process::{Pid as RawPid, Signal, getpid, kill_process};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trimtab_agent::detach::{DetachEvent, detach};
use trimtab_agent::narrator::{Narrator, Severity};
use trimtab_agent::paths::Paths;
use trimtab_agent::service::client::Client;
use trimtab_agent::service::{ServiceEnd, ServiceOptions, removal, serve};
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::tags::{Answer, Ask, What};
use trimtab_core::topology::parse_synthetic;
use trimtab_linux::perf::Choice;
use trimtab_linux::process::Pid;
use trimtab_linux::sys::affinity;
use trimtab_linux::sys::signals::is_ignored;

/// Longest time that any step here may take. Chosen: minutes would be a fault on any machine.
const TIME_MAX: Duration = Duration::from_secs(180);

/// Process that does nothing, ended with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begin.elapsed() < TIME_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_service_tags_reports_releases_and_ends_by_a_signal() {
    if is_ignored(Signal::TERM.as_raw()) {
        eprintln!("SKIPPED: SIGTERM is ignored here, and the service keeps to that");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = Paths {
        root: "/".into(),
        ledger: Some(folder.path().to_owned()),
        socket: Some(folder.path().join("socket")),
        ..Paths::default()
    };
    let lines = Arc::new(Lines::default());
    let narrator: Arc<dyn Narrator> = Arc::clone(&lines) as _;
    let options = ServiceOptions {
        policy: Kind::Float,
        settings: Settings::of(Kind::Float),
        counting: Choice::Off,
        socket: None,
        cpus: None,
        pinned: false,
        guests: Vec::new(),
        declared: None,
        observe: false,
        metrics: None,
        enforce: None,
    };
    let cpus = affinity::get(None).unwrap().iter().map(|cpu| cpu.0 + 1).max().unwrap();
    let machine = move || Ok(parse_synthetic(&format!("pack:1 core:{cpus} pu:1")).unwrap());
    let service = {
        let paths = paths.clone();
        std::thread::spawn(move || serve(&paths, options, None, machine, &narrator))
    };
    let mut client = eventually("the service answers", || Client::find(&paths, None, &*lines).ok());

    let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleeper.0.id();
    let answer = client.ask_patiently(&Ask::Tag { what: What::Process { pid }, group: None }).unwrap();
    assert!(matches!(answer, Answer::Tagged { new: true, .. }), "{answer:?}");
    let status = eventually("its thread is found", || {
        let status = removal::status(&mut client).unwrap();
        (status.threads == 1).then_some(status)
    });
    assert_eq!((status.policy.as_str(), status.tags.len()), ("float", 1));
    assert_eq!(status.pid, std::process::id());

    let mut events = Vec::new();
    assert!(detach(&paths, Some(Pid(pid)), &*lines, &mut events).unwrap());
    let own = Pid(std::process::id());
    assert_eq!(events, [DetachEvent::Cleared { pid: Some(Pid(pid)), tags: 1, service: own }]);
    assert_eq!(removal::status(&mut client).unwrap().tags, []);
    events.clear();
    assert!(!detach(&paths, Some(Pid(pid)), &*lines, &mut events).unwrap());
    assert_eq!(events, []);

    kill_process(RawPid::from_raw(getpid().as_raw_nonzero().get()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(service.join().unwrap().unwrap(), ServiceEnd::Stopped);
    let told = lines.of(Severity::Headline);
    assert!(told.len() == 2 && told[0].contains("by float on CPUs"), "{told:?}");
    assert!(told[1].starts_with("stopped: 0 moves"), "{told:?}");
    assert_eq!(lines.of(Severity::Warning), [""; 0]);
    assert!(Client::find(&paths, None, &*lines).is_err(), "the socket is gone");
}
