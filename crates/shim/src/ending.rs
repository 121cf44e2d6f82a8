//! Handlers that the C library calls with the exit status of a process that ends by itself.

use crate::real::Symbol;
use libc::{c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

/// A handler: the exit status, and nothing.
pub(crate) type Handler = unsafe extern "C" fn(c_int, *mut c_void);

static ON_EXIT: Symbol = Symbol::new(c"on_exit");

/// Has `handler` called when the process exits; false where the C library cannot, as only glibc's can.
pub(crate) fn call_at_exit(handler: Handler) -> bool {
    type OnExit = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    let Some(on_exit) = ON_EXIT.look_up() else { return false };
    // SAFETY: of glibc's `on_exit` this is the type, and handler and no argument live as long as the process, the
    // library being `nodelete`.
    unsafe { transmute::<NonNull<c_void>, OnExit>(on_exit)(handler, null_mut()) == 0 }
}
