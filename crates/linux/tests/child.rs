//! A parent that stands in for its program, with timers that were set up for the program before
//! either process existed. Without the usual runner: a process with more than one thread cannot
//! fork itself.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "results, and what is skipped, are said aloud")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use trimtab_linux::child::{self, Two};

/// Variable that makes this program the parent of a test.
const ROLE: &str = "TRIMTAB_TEST_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(ROLE).is_some() {
        return stand_in();
    }
    let begin = Instant::now();
    a_deadline_set_before_ends_the_program();
    println!("test a_deadline_set_before_ends_the_program ... ok");
    // In the words of the usual runner, so that it is counted and timed with all others.
    let seconds = begin.elapsed().as_secs_f64();
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; finished in {seconds:.2}s\n");
    ExitCode::SUCCESS
}

/// Runs an endless program, as its parent.
fn stand_in() -> ExitCode {
    match child::two().unwrap() {
        Two::Program(_) => panic!("{}", Command::new("sleep").arg("1000000").exec()),
        Two::Parent(mut program) => {
            drop(program.word());
            program.attend(|| {}).unwrap();
            ExitCode::from(program.collect().unwrap().hand_on())
        }
    }
}

/// `alarm` and then exec is how scripts bound a run: the signal is the program's, whatever process
/// stands in between.
fn a_deadline_set_before_ends_the_program() {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("perl");
    command.args(["-e", "alarm 1; exec @ARGV"]).arg(own).env(ROLE, "1").stdin(Stdio::null());
    match command.status() {
        Ok(status) => assert_eq!(status.signal(), Some(14), "{status}"),
        Err(_) => eprintln!("SKIPPED: no perl"),
    }
}
