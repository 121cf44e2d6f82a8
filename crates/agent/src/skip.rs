//! Saying what a test cannot try on this machine.
#![expect(clippy::print_stderr, reason = "what is skipped is said where the tests' counts are made")]

/// Says it, in the words that `make test` counts.
pub(crate) fn skipped(why: impl std::fmt::Display) {
    eprintln!("SKIPPED: {why}");
}
