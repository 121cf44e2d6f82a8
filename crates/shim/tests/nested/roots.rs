//! Threads of the program's own, which open regions or only live beside them.

use crate::runtimes::{CROSSED, Map, Runtime, checks, on_all};

fn told(roots: &str) -> String {
    format!("1 tree=[B,A] roots={roots} report=no nest={}", CROSSED.nest)
}

#[test]
fn further_roots_are_left_alone_share_the_map_or_have_parts() {
    let parts = Map { masks: "B,B/B,B,B,B", ..CROSSED };
    on_all(&["roots.cpp"], 1000, || {
        [
            CROSSED.run().arg("alone"),
            CROSSED.run().nest(&told("share")).arg("share"),
            parts.run().nest(&told("part:2")).arg("part"),
        ]
    });
}

#[test]
fn thousands_of_regions_from_many_threads() {
    for runtime in Runtime::all() {
        let Some(program) = runtime.program(&["roots.cpp"]) else { continue };
        for (roots, count) in [("alone", "6"), ("share", "6")] {
            let run = CROSSED.run().nest(&told(roots)).arg(roots).arg(count).arg("100");
            if let Some(count) = checks(runtime.name, runtime.provide(run), &program) {
                assert!(count >= 10_000, "{}: only {count} checks", runtime.name);
            }
        }
    }
}

#[test]
fn threads_of_the_program_come_and_go() {
    on_all(&["threads.c"], 500, || [CROSSED.run()]);
}
