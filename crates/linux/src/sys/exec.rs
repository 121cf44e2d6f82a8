//! Replacement of this process's program, with the signal actions that were inherited.
//!
//! The C library's `execvp` passes every file that the kernel refuses to `/bin/sh`, damaged
//! binaries too, and the standard library resets the signal actions that it changed. A launcher
//! must pass on the state it was given, so this module calls `execve` itself. The one signal that
//! differs from the inherited state is SIGPIPE, which Rust's runtime ignores before `main`: it gets
//! its default action again. A program with its own [entry](super::entry) leaves it alone.

use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the action of SIGPIPE is right for the next program as it is.
static SIGPIPE_IS_RIGHT: AtomicBool = AtomicBool::new(false);

/// Makes [`execve`] leave the action of SIGPIPE alone: it is a handler, which the kernel replaces
/// by the default action, or was ignored from the start.
pub(super) fn leave_sigpipe() {
    SIGPIPE_IS_RIGHT.store(true, Ordering::Relaxed);
}

/// Replaces this process's program; returns only if that fails. `arguments` start with the
/// program's own name.
///
/// # Errors
/// The kernel's error: `ENOENT`, `EACCES`, `ENOEXEC`, `E2BIG` and others of execve(2).
pub fn execve(path: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    if !SIGPIPE_IS_RIGHT.load(Ordering::Relaxed) {
        // SAFETY: the default action is always valid; no handler of this process depends on it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    // SAFETY: both arrays end with a null pointer, and every other pointer is to a C string that
    // outlives the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    super::errno::last()
}
