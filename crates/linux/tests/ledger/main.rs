//! The ledger under several processes and users. One test per claim; a test that needs another
//! process starts an actor: this very program, started again as [`role`].

#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod actor;
mod calls;
mod crowd;
mod holds;
mod names;
mod places;
mod queues;
mod scene;
mod views;

/// Not a test: the code of an actor. Does nothing when started by the test runner.
#[test]
fn role() {
    if let Some(scene) = std::env::var_os(actor::SCENE) {
        actor::play(scene.as_ref());
    }
}
