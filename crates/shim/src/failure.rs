//! One-line message about a program that fails within seconds of a launch that changed variables.
//!
//! No launcher exists by then: it became the program. So the preload library gets the exit status
//! from the C library and names the changed variables and the options that leave them unchanged.
//!
//! Nothing is printed for an end by a signal or `_exit`, in children, or after
//! [`FAILURE_TIME_MAX`].

use crate::{ending, imports, plan, standard_error};
use libc::{c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use trimtab_core::handoff::{CHANGED_VARIABLE, read_changed};

/// Longest time from the launch to a failure that the launch may have caused.
const FAILURE_TIME_MAX: Duration = Duration::from_secs(5);
/// Bound of the stored names, in bytes.
const NAMES_MAX: usize = 256;
/// Bound of the line, in bytes.
const LINE_MAX: usize = 512;

static START: OnceLock<LaunchState> = OnceLock::new();

/// State of the process when the library was loaded.
struct LaunchState {
    pid: u32,
    time: Instant,
    /// Names of the changed variables; the first `names_len` bytes count.
    names: [u8; NAMES_MAX],
    names_len: usize,
}

/// Watches for the end of the planned process, if the launcher changed variables for it.
pub(crate) fn watch() {
    let Some((pid, names)) = plan::variable(CHANGED_VARIABLE).and_then(read_changed) else { return };
    if pid != std::process::id() || names.len() > NAMES_MAX || !imports::is_home() {
        return;
    }
    standard_error::remember();
    let mut start = LaunchState { pid, time: Instant::now(), names: [0; NAMES_MAX], names_len: names.len() };
    start.names[..names.len()].copy_from_slice(names.as_bytes());
    if START.set(start).is_ok() {
        ending::call_at_exit(at_exit);
    }
}

unsafe extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    plan::guarded(|| {
        report_failure(status & 0xff);
        Some(())
    });
}

fn report_failure(status: c_int) {
    let Some(start) = START.get() else { return };
    let took = start.time.elapsed();
    if status == 0 || took > FAILURE_TIME_MAX || start.pid != std::process::id() {
        return;
    }
    let names = std::str::from_utf8(&start.names[..start.names_len]).unwrap_or_default();
    let mut line = [0u8; LINE_MAX];
    let mut rest = &mut line[..];
    let written = writeln!(
        rest,
        "trimtab: the program ended with status {status} after {:.1} s. Changed for it: {names}. \
         If it runs without trimtab, try --env keep or --pin mask, or let trimtab doctor find the cause",
        took.as_secs_f64(),
    );
    let length = LINE_MAX - rest.len();
    if written.is_ok() {
        standard_error::write(&line[..length]);
    }
}
