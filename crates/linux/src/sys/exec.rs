//! Replacement of this process's program, with the signal actions that were inherited.
//!
//! The C library's `execvp` passes every file that the kernel refuses to `/bin/sh`, damaged
//! binaries too, and the standard library resets the signal actions that it changed. A launcher
//! must pass on the state it was given, so this module calls `execve` itself. The one signal that
//! differs from the inherited state is SIGPIPE, which Rust's runtime ignores before `main`; its
//! former action is recorded when the program is loaded.

use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether SIGPIPE was ignored when this program was started.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// The loader runs this before Rust's runtime starts.
// SAFETY: the section holds pointers to functions of this signature, which the C library calls once
// before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

extern "C" fn note_sigpipe() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only asks; the old action is written to valid memory of the right
    // type.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all-zero is a valid `sigaction`, and the call above may have overwritten it with
    // another.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    SIGPIPE_IGNORED.store(asked == 0 && handler == libc::SIG_IGN, Ordering::Relaxed);
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
    if !SIGPIPE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default action is always valid; no handler of this process depends on it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    // SAFETY: both arrays end with a null pointer, and every other pointer is to a C string that
    // outlives the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    super::errno::last()
}
