//! Result codes of the entries, and their texts.

use serde::Serialize;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use trimtab_hold::reserve::ReserveError;

/// Result code of success. This code and those below are the codes of `trimtab.h`, in its order.
const OK: c_int = 0;
const BUSY: c_int = 1;
const NEVER: c_int = 2;
const CANCELLED: c_int = 3;
const ARGUMENT: c_int = 4;
const SYSTEM: c_int = 5;
const FAULT: c_int = 6;

/// Error of an entry.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    words: String,
}

impl Failure {
    /// Makes the error for an invalid argument.
    pub(crate) fn argument(words: impl Into<String>) -> Self {
        Self { code: ARGUMENT, words: words.into() }
    }

    /// Makes the error for a system call that failed.
    pub(crate) fn system(words: String) -> Self {
        Self { code: SYSTEM, words }
    }

    /// Makes the error for something that cannot be read.
    pub(crate) fn unread(cause: impl std::fmt::Display) -> Self {
        Self { code: NEVER, words: format!("{cause:#}") }
    }

    /// Returns the error for an invalid argument, unless it is valid.
    pub(crate) fn unless(valid: bool, words: &str) -> Result<(), Self> {
        if valid { Ok(()) } else { Err(Self::argument(words)) }
    }
}

impl From<ReserveError> for Failure {
    fn from(error: ReserveError) -> Self {
        let code = match error {
            ReserveError::NoCores(_) => BUSY,
            ReserveError::Never(_) => NEVER,
            ReserveError::Cancelled => CANCELLED,
        };
        Self { code, words: error.to_string() }
    }
}

/// Runs the body of an exported function: every error becomes a code and a text at `error`.
///
/// # Safety
/// `error` is null or valid for writing.
pub(crate) unsafe fn entry(error: *mut *mut c_char, work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    if !error.is_null() {
        // SAFETY: not null, and so valid by the caller's promise.
        unsafe { error.write(std::ptr::null_mut()) };
    }
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure { code: FAULT, words: "a fault inside the library".to_owned() },
    };
    if !error.is_null() {
        // SAFETY: as above.
        unsafe { error.write(text(&failure.words)) };
    }
    failure.code
}

/// Writes a document to the caller's address.
///
/// # Safety
/// `to` is null or valid for writing.
pub(crate) unsafe fn give(to: *mut *mut c_char, document: &impl Serialize) -> Result<(), Failure> {
    let words = serde_json::to_string(document).map_err(Failure::unread)?;
    // SAFETY: by the caller's promise.
    unsafe { give_text(to, &words) }
}

/// Writes a text to the caller's address.
///
/// # Safety
/// As [`give`].
pub(crate) unsafe fn give_text(to: *mut *mut c_char, words: &str) -> Result<(), Failure> {
    Failure::unless(!to.is_null(), "there is no address for the answer")?;
    // SAFETY: not null, and so valid by the caller's promise.
    unsafe { to.write(text(words)) };
    Ok(())
}

/// Returns a text that the caller frees.
fn text(words: &str) -> *mut c_char {
    CString::new(words.replace('\0', " ")).unwrap_or_default().into_raw()
}
