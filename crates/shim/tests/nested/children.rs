//! Children and successors of a program start with the mask with which it started.

use crate::runtimes::{CROSSED, Runtime, checks, on_all};

#[test]
fn children_start_where_the_program_did() {
    on_all(&["children.c"], 60, || [CROSSED.run()]);
}

#[test]
fn a_child_may_open_regions() {
    on_all(&["fork_first.c"], 100, || [CROSSED.run()]);
}

#[test]
fn a_successor_starts_where_the_program_did() {
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        let Some(program) = runtime.program(&["children.c"]) else { continue };
        for way in
            ["execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"]
        {
            for when in ["outer", "inner", "worker", "after"] {
                let Some(outcome) = CROSSED.run().arg("become").arg(way).arg(when).run(&program) else {
                    return;
                };
                assert_eq!(outcome.code, Some(0), "{} {way} {when}: {outcome:?}", runtime.name);
            }
        }
    }
}

#[test]
fn a_successor_is_placed_again() {
    // The other program finds the plan, which still names this process.
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        let (Some(first), Some(second)) = (runtime.program(&["succeed.c"]), runtime.program(&["deep.c"]))
        else {
            continue;
        };
        checks(runtime.name, CROSSED.run().arg(second.path.to_str().unwrap()), &first);
    }
}
