//! What entries answer: a code, and for each thread the words of what went wrong last.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use trimtab_team::Error;

/// The codes of `team.h`, in its order.
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
    c"an argument that cannot be",
    c"no memory",
    c"not a team's segment",
    c"refused",
    c"the system refused something",
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

fn keep(words: String) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has nobody left to ask.
    let _ = LAST.try_with(|last| last.replace(words));
}

/// Carries out an entry: whatever goes wrong becomes a code, and words.
pub(crate) fn entry(work: impl FnOnce() -> trimtab_team::Result<()>) -> c_int {
    guarded(work, || ())
}

/// What is answered for a rank that met a fault before.
pub(crate) fn poisoned() -> c_int {
    keep(
        "the rank met a fault inside the library before, and has given the team up: all it can do is leave"
            .to_owned(),
    );
    POISONED
}

/// The same, with something that is done where there is a fault inside the library.
pub(crate) fn guarded(work: impl FnOnce() -> trimtab_team::Result<()>, at_fault: impl FnOnce()) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => OK,
        Ok(Err(error)) => {
            keep(error.to_string());
            code(&error)
        }
        Err(_) => {
            // It may meet another on its way out.
            let _ = catch_unwind(AssertUnwindSafe(at_fault));
            keep("a fault inside the library; a rank that met it can only leave".to_owned());
            PANIC
        }
    }
}

/// What went wrong last in this thread, in words; valid until its next call.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A code in words.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_error_text(code: c_int) -> *const c_char {
    let text = usize::try_from(code).ok().and_then(|code| TEXTS.get(code)).copied();
    text.unwrap_or(c"no such code").as_ptr()
}
