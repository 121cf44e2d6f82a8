//! The live host with real programs: threads that start, end, rename, bind and multiply, balancers
//! that are killed, bounds that shrink. One test per claim. Nothing here asserts a time.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::print_stdout, reason = "what another process says to its test")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod at_once;
mod audits;
mod counting;
mod finding;
mod groups;
mod guests;
mod keeping;
mod moving;
mod paper;
mod refusals;
mod scene;
mod tags;
mod waiting;

/// Not a test: another process that balances. Does nothing when started by the test runner.
#[test]
fn role() {
    if let Some(task) = std::env::var_os(scene::TASK) {
        keeping::balance(&task.into_string().unwrap());
    }
}
