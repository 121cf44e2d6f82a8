//! One line about a program that fails within seconds of a launch that changed variables for it.
//!
//! The launcher is gone by then: it became the program. So the preload library asks the C library for the
//! exit status (`on_exit`) and names the changed variables and the options that leave them as they were.
//!
//! Nothing is said for an end by a signal or `_exit`, in children, after [`SOON`], or where standard error
//! is no longer the file that it was at the start: a program may have closed it and opened its data there.

use crate::real::Symbol;
use crate::{imports, plan};
use libc::{c_int, c_void};
use std::io::Write;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use trimtab_core::handoff::{CHANGED_VARIABLE, read_changed};

/// The longest time from the launch to a failure that the launch may have caused.
const SOON: Duration = Duration::from_secs(5);
/// Most bytes of names that are kept.
const NAMES_MAX: usize = 256;
/// Most bytes of the line.
const LINE_MAX: usize = 512;

static ON_EXIT: Symbol = Symbol::new(c"on_exit");
static START: OnceLock<Start> = OnceLock::new();

/// The state of the process when the library was loaded.
struct Start {
    pid: u32,
    time: Instant,
    /// Device and inode of standard error.
    errors: (u64, u64),
    names: [u8; NAMES_MAX],
    names_len: usize,
}

/// Watches for the end of the planned process, where the launcher changed variables for it.
pub(crate) fn watch() {
    let Some((pid, names)) = plan::variable(CHANGED_VARIABLE).and_then(read_changed) else { return };
    if pid != std::process::id() || names.len() > NAMES_MAX || !imports::is_home() {
        return;
    }
    let (Some(errors), Some(on_exit)) = (file_of_errors(), ON_EXIT.look_up()) else { return };
    let mut start =
        Start { pid, time: Instant::now(), errors, names: [0; NAMES_MAX], names_len: names.len() };
    start.names[..names.len()].copy_from_slice(names.as_bytes());
    if START.set(start).is_err() {
        return;
    }
    type Function = extern "C" fn(c_int, *mut c_void);
    // SAFETY: the symbol of that name has that type.
    let on_exit =
        unsafe { transmute::<NonNull<c_void>, extern "C" fn(Function, *mut c_void) -> c_int>(on_exit) };
    on_exit(at_exit, null_mut());
}

/// Device and inode of standard error, if it is open.
fn file_of_errors() -> Option<(u64, u64)> {
    // SAFETY: an all-zero `stat` is valid, and the call fills it.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(libc::STDERR_FILENO, &mut found) == 0).then_some((found.st_dev, found.st_ino))
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    plan::guarded(|| {
        say(status);
        Some(())
    });
}

fn say(status: c_int) {
    let Some(start) = START.get() else { return };
    let took = start.time.elapsed();
    let ours = start.pid == std::process::id() && file_of_errors() == Some(start.errors);
    if status & 0xff == 0 || took > SOON || !ours {
        return;
    }
    let mut line = [0u8; LINE_MAX];
    let mut rest = &mut line[..];
    let names = std::str::from_utf8(&start.names[..start.names_len]).unwrap_or_default();
    let written = write!(
        rest,
        "trimtab: the program ended with status {} after {:.1} s. Changed for it: {names}. \
         If it runs without trimtab, try --env keep or --pin mask, or let trimtab doctor find the cause\n",
        status & 0xff,
        took.as_secs_f64(),
    );
    if written.is_err() {
        return;
    }
    let length = LINE_MAX - rest.len();
    // SAFETY: the bytes are initialised and `length` of them are within the array.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length) };
}
