//! Limits of the process under which a team is made.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that lowers a limit of a child")]
#![cfg(not(any(trimtab_model, miri)))]

use std::os::unix::process::CommandExt;
use std::process::Command;
use trimtab_team::{Error, Options, Team};

/// The program that the next test starts; alone it does nothing.
#[test]
fn as_a_program() {
    if std::env::var_os("TRIMTAB_TEST_FILE_LIMIT").is_none() {
        return;
    }
    let error = Team::new(Options { heap: 1 << 20, ..Options::new(2) }).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::NoMemory { .. }), "{words}");
    assert!(words.contains("RLIMIT_FSIZE") && words.contains("65536"), "{words}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_a_program", "--nocapture"]).env("TRIMTAB_TEST_FILE_LIMIT", "1");
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 65536, rlim_max: 65536 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert!(said.contains("1 passed"), "{said}");
}
