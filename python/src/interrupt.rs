//! Ctrl-C, and any other signal with a handler in Python, while a rank waits without the interpreter's lock.
//!
//! **Problem.** Handlers of Python run between its own steps, and there are none while we wait.
//!
//! **Idea.** Who waits asks every few milliseconds. In the main thread, the only one where handlers run, the answer is Python's: it runs
//! them. If one raises (as Ctrl-C does) the exception is kept, the wait broken off, and the exception raised where the call returns.

use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// To be called before a thread joins, once at least.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let own = threading.call_method0("get_ident")?;
    MAIN.set(main.eq(own)?);
    Ok(())
}

/// Whether the wait is to end. Called without the interpreter's lock.
pub(crate) fn asked() -> bool {
    if !MAIN.get() {
        return false;
    }
    if RAISED.with_borrow(Option::is_some) {
        return true;
    }
    // Not within the borrow: handlers may do anything.
    match Python::attach(|py| py.check_signals()) {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    }
}

/// Where nothing can be raised: Ctrl-C comes once more, at Python's next step; what another handler raised is written out.
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

/// The result of what was waited for; what a handler raised meanwhile goes before it.
pub(crate) fn settle<T>(result: trimtab_team::Result<T>) -> PyResult<T> {
    if let Some(error) = RAISED.take() {
        return Err(error);
    }
    result.map_err(crate::errors::of)
}
