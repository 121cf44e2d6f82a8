//! Handlers that the C library calls with the exit status of a process that ends by itself.

use crate::real::Symbol;
use libc::{c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

/// Handler; it gets the exit status and a null argument.
pub(crate) type Handler = unsafe extern "C" fn(c_int, *mut c_void);

static ON_EXIT: Symbol = Symbol::new(c"on_exit");

/// Registers `handler` for the exit of the process. Returns false if the C library cannot call it;
/// only glibc can.
pub(crate) fn call_at_exit(handler: Handler) -> bool {
    type OnExit = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    let Some(on_exit) = ON_EXIT.look_up() else { return false };
    // SAFETY: this is the type of glibc's `on_exit`; the handler lives as long as the process, the
    // library being `nodelete`, and has no argument.
    unsafe { transmute::<NonNull<c_void>, OnExit>(on_exit)(handler, null_mut()) == 0 }
}
