//! Cost of a start, as a number of system calls: unlike its time, it is the same on each machine.

use crate::util::{Sandbox, built, installed, need, skip, text};

/// Most system calls of a start with a reservation, those of a static program included. A start
/// makes 105 in a build for debugging, 14 of them the program's, on a machine where the process is
/// in the outermost control groups. The margin of 20 is for six groups above it, of which each
/// takes three calls, and two to learn where they are mounted.
const CALLS_MAX: u32 = 125;

#[test]
fn a_start_takes_a_bounded_number_of_system_calls() {
    let sandbox = Sandbox::new();
    let strace = need!(installed("strace"), "strace is not installed");
    let program = need!(built("cc", "nothing.c", &["-O1", "-static"]), "no C compiler that links statically");
    let run = |words: &str| sandbox.trimtab(words).arg(&program);
    // The first start keeps the machine's model, which the second one finds.
    run("run -c 1 --survey none --").ends().ok();
    let trace = sandbox.path("trace");
    let watched = ["-f", "-c", "-U", "calls,name", "-o"];
    let prefix = [strace.as_os_str()].into_iter().chain(watched.iter().map(std::ffi::OsStr::new));
    let ends = run("run -c 1 --survey none --").through(prefix.chain([trace.as_os_str()])).ends();
    let counts = text(&trace);
    let Some(total) = counts.lines().find_map(|line| line.trim().strip_suffix("total")) else {
        skip("strace may not observe programs here");
        return;
    };
    ends.ok();
    assert!(counts.contains("execve"), "{counts}");
    let total: u32 = total.trim().parse().unwrap();
    assert!(total <= CALLS_MAX, "{total} system calls: {counts}");
}
