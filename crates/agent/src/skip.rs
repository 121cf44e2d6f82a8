//! Notice of a test that cannot run on this machine.
#![expect(clippy::print_stderr, reason = "what is skipped is said where the tests' counts are made")]

/// Prints the notice, in the words that `make test` counts.
pub(crate) fn skipped(why: impl std::fmt::Display) {
    eprintln!("SKIPPED: {why}");
}
