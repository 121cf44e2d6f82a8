//! Ctrl-C, and any other signal with a handler in Python, while a rank waits without the
//! interpreter's lock.
//!
//! **Problem.** Python runs handlers between its own steps, and there are none while a rank waits.
//!
//! **Idea.** A waiting rank calls a function every few milliseconds. In the main thread, the only
//! one where handlers run, Python runs them then. If one raises (as Ctrl-C does), the exception is
//! kept, the wait is given up, and the exception is raised when the call returns.

use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Records whether this is the main thread. Must be called at least once before a thread joins.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let own = threading.call_method0("get_ident")?;
    MAIN.set(main.eq(own)?);
    Ok(())
}

/// Returns whether the wait is to end. Called without the interpreter's lock.
pub(crate) fn asked() -> bool {
    if !MAIN.get() {
        return false;
    }
    if RAISED.with_borrow(Option::is_some) {
        return true;
    }
    // Outside of the borrow: handlers may do anything.
    match Python::attach(|py| py.check_signals()) {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    }
}

/// Defers an exception that cannot be raised here: Ctrl-C comes once more, at Python's next step;
/// the exception of another handler is printed.
pub(crate) fn put_off(py: Python<'_>) {
    if let Some(error) = RAISED.take() {
        if error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
            // SAFETY: only notes that the signal came; the lock is held.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        } else {
            error.write_unraisable(py, None);
        }
    }
}

/// Returns the result of a wait; an exception that a handler raised meanwhile takes precedence.
pub(crate) fn settle<T>(result: Result<T, impl Into<crate::errors::Failure>>) -> PyResult<T> {
    if let Some(error) = RAISED.take() {
        return Err(error);
    }
    result.map_err(crate::errors::of)
}
