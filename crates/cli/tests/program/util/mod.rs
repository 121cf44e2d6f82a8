//! Helpers that make a test a few lines: a sandbox with its own ledger, calls of the program in it,
//! and their outcomes.

mod call;
mod machine;
mod programs;
mod sandbox;

pub(crate) use call::{Call, Orphan, Outcome, Running};
pub(crate) use machine::{confined, cpus, mask_of, masks, two, two_users, workers_are_bound};
pub(crate) use programs::{built, c, installed, lab, python, trimtab};
pub(crate) use sandbox::Sandbox;

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// After this time a call counts as hanging. Nothing is asserted about being faster.
pub(crate) const HANG_TIME_MAX: Duration = Duration::from_secs(180);

/// A line of shell that prints the CPUs that the shell may use, without starting anything.
pub(crate) const MASK: &str = "while read -r key list; do case $key in Cpus_allowed_list:) echo \"$list\";; esac; done </proc/self/status";

/// Prints what was not tested and why, past the test runner, which would swallow it.
pub(crate) fn skip(why: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED ({count}): {test}: {why}");
}

/// Skips the rest of a test if a requirement is missing.
macro_rules! need {
    ($what:expr, $($why:tt)+) => {
        match $what {
            Some(what) => what,
            None => {
                crate::util::skip(&format!($($why)+));
                return;
            }
        }
    };
}
pub(crate) use need;

/// Waits for an asynchronous effect.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(HANG_TIME_MAX, what, holds);
}

/// The same, for effects that take longer.
#[track_caller]
pub(crate) fn eventually_within(hang: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < hang, "not within {hang:?}: {what}");
        nap();
    }
}

pub(crate) fn nap() {
    std::thread::sleep(Duration::from_millis(5));
}

pub(crate) fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Pseudo-random numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64, Steele, Lea and Flood 2014
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
