//! What makes a test a few lines: a sandbox with a ledger of its own, calls of the program in it, what came of them.

mod call;
mod machine;
mod programs;
mod sandbox;

pub(crate) use call::{Call, Orphan, Outcome, Running};
pub(crate) use machine::{confined, cpus, masks, two, two_users};
pub(crate) use programs::{built, c, installed, lab, python, trimtab};
pub(crate) use sandbox::Sandbox;

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// After this much time something hangs. Nothing is asserted about being quicker.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A line of shell that prints the CPUs the shell may use, without starting anything.
pub(crate) const MASK: &str = "while read -r key list; do case $key in Cpus_allowed_list:) echo \"$list\";; esac; done </proc/self/status";

/// Says, past the test runner that would swallow it, what was not tested and why.
pub(crate) fn skip(why: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED ({count}): {test}: {why}");
}

/// Skips the rest of a test for want of something.
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

/// Waits for what others do in their own time.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(HANG, what, holds);
}

/// The same, for what takes longer than anything else.
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

/// Numbers that look random and are the same in every run.
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
