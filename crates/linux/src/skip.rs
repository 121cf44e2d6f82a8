//! Report of tests that this machine cannot run.
#![expect(clippy::print_stderr, reason = "what is skipped is said where the tests' counts are made")]

/// Prints the reason, in the form that `make test` counts.
pub(crate) fn skipped(why: impl std::fmt::Display) {
    eprintln!("SKIPPED: {why}");
}
