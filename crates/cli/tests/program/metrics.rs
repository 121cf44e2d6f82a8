//! `--metrics` of `run` and `attach`.

use crate::util::{HANG_TIME_MAX, Sandbox, eventually, need, two};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

fn fetch(path: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    page.contains("trimtab_program_threads").then_some(page)
}

#[test]
fn a_run_offers_its_figures_and_takes_them_back() {
    let sandbox = Sandbox::new();
    let socket = sandbox.path("m.sock");
    let mut running = sandbox
        .run(&format!("-c 1 --interval 50ms --metrics unix:{}", socket.display()))
        .sh("echo up; exec cat")
        .begins();
    running.line();
    eventually("there are figures", || fetch(&socket).is_some());
    let page = fetch(&socket).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("trimtab_steps_total"), "{page}");
    assert!(page.contains("trimtab_thread_run_seconds_total{"), "{page}");
    running.ends().ok();
    assert!(!socket.exists(), "the socket goes with the run");
}

#[test]
fn a_run_that_waits_for_cores_answers_too() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold("-c 2");
    let socket = sandbox.path("m.sock");
    let options = format!("--wait -c 2 --metrics unix:{}", socket.display());
    let waiting = sandbox.run(&options).sh("exec cat").begins();
    eventually("it stands in line", || sandbox.ps()["waiting"] == 1);
    let ask = || {
        let mut stream = UnixStream::connect(&socket).ok()?;
        stream.set_read_timeout(Some(HANG_TIME_MAX)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    };
    let page = ask().unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains("trimtab_steps_total 0\n"), "{page}");
    held.ends().ok();
    eventually("there are figures", || fetch(&socket).is_some());
    waiting.ends().ok();
    assert!(!socket.exists());
}

#[test]
fn a_run_that_cannot_offer_them_does_not_begin() {
    let sandbox = Sandbox::new();
    for (address, words) in [
        ("0.0.0.0:9100", "can be reached from other machines"),
        ("unix:/no/such/folder/m.sock", "/no/such/folder/m.sock"),
        ("nowhere", "is not an address"),
    ] {
        let refused = sandbox.run(&format!("-c 1 --metrics {address}")).sh("echo began").ends();
        assert_eq!(refused.code, Some(125), "{refused}");
        assert!(refused.stderr.contains(words) && refused.stdout.is_empty(), "{refused}");
    }
}
