//! Result codes of the entries, and the text of each thread's last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use trimtab_team::Error;

/// Result code of success. This code and those below are the codes of `team.h`, in its order.
pub(crate) const OK: c_int = 0;
const PANIC: c_int = 13;
const POISONED: c_int = 14;
const TEXTS: [&std::ffi::CStr; 15] = [
    c"no error",
    c"a rank has died",
    c"a rank has left while others wait for it",
    c"a call waited longer than the deadline",
    c"ranks made different calls",
    c"the team was given up",
    c"the handle is of a process that forked",
    c"an invalid argument",
    c"no memory",
    c"not a team's segment",
    c"refused",
    c"a system call failed",
    c"a wait was interrupted",
    c"a fault inside the library",
    c"a rank that has met a fault inside the library before",
];

fn code(error: &Error) -> c_int {
    match error {
        Error::PeerDied(_) => 1,
        Error::PeerLeft(_) => 2,
        Error::Timeout(_) => 3,
        Error::Mismatch { .. } => 4,
        Error::Revoked(_) => 5,
        Error::Forked(_) => 6,
        Error::Argument(_) => 7,
        Error::NoMemory { .. } => 8,
        Error::NotATeam(_) => 9,
        Error::Refused(_) => 10,
        Error::System { .. } => 11,
        Error::Interrupted => 12,
        _ => PANIC,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn set_last_error(words: String) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // While the thread ends, the text is gone, and no call can read it.
    let _ = LAST.try_with(|last| last.replace(words));
}

/// Runs the body of an exported function: every error becomes a code and a text.
pub(crate) fn entry(work: impl FnOnce() -> trimtab_team::Result<()>) -> c_int {
    guarded(work, || (), Error::to_string)
}

/// Returns the code for a rank that met a fault before.
pub(crate) fn poisoned() -> c_int {
    set_last_error(
        "the rank met a fault inside the library before, and has given the team up: it can only leave"
            .to_owned(),
    );
    POISONED
}

/// As [`entry`]; calls `at_fault` if `work` panics, which is a fault inside the library. `text` is
/// the text of an error.
pub(crate) fn guarded(
    work: impl FnOnce() -> trimtab_team::Result<()>,
    at_fault: impl FnOnce(),
    text: impl FnOnce(&Error) -> String,
) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => OK,
        Ok(Err(error)) => {
            set_last_error(text(&error));
            code(&error)
        }
        Err(_) => {
            // `at_fault` may panic, too.
            let _ = catch_unwind(AssertUnwindSafe(at_fault));
            set_last_error("a fault inside the library; a rank that met it can only leave".to_owned());
            PANIC
        }
    }
}

/// Returns the text of this thread's last error; valid until its next call.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the text of a code.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_error_text(code: c_int) -> *const c_char {
    let text = usize::try_from(code).ok().and_then(|code| TEXTS.get(code)).copied();
    text.unwrap_or(c"no such code").as_ptr()
}
