//! Cost of a start, as a number of system calls: unlike its time, it is the same on each machine.

use crate::util::{Sandbox, built, installed, need, skip, text};

/// Options of a start, and the most system calls of a start with them, those of a static program
/// included. Such starts make 105 and 102 in a build for debugging, 14 of them the program's, on a
/// machine where the process is in the outermost control groups. The margin of 20 is for six groups
/// above it, of which each takes three calls, and two to learn where they are mounted.
const CALLS_MAX: [(&str, u32); 2] = [("", 125), ("--env keep", 122)];

#[test]
fn a_start_takes_a_bounded_number_of_system_calls() {
    let sandbox = Sandbox::new();
    let strace = need!(installed("strace"), "strace is not installed");
    let program = need!(built("cc", "nothing.c", &["-O1", "-static"]), "no C compiler that links statically");
    let run = |options: &str| sandbox.trimtab(&format!("run -c 1 --survey none {options} --")).arg(&program);
    // The first start keeps the machine's model, which the others find.
    run("").ends().ok();
    let trace = sandbox.path("trace");
    let watched = ["-f", "-c", "-U", "calls,name", "-o"];
    for (options, most) in CALLS_MAX {
        let prefix = [strace.as_os_str()].into_iter().chain(watched.iter().map(std::ffi::OsStr::new));
        let ends = run(options).through(prefix.chain([trace.as_os_str()])).ends();
        let counts = text(&trace);
        let Some(total) = counts.lines().find_map(|line| line.trim().strip_suffix("total")) else {
            skip("strace may not observe programs here");
            return;
        };
        ends.ok();
        assert!(counts.contains("execve"), "{counts}");
        let total: u32 = total.trim().parse().unwrap();
        assert!(total <= most, "{options}: {total} system calls: {counts}");
    }
}
