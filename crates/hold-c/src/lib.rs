//! Cores on call for C and C++ (`include/trimtab/trimtab.h`): a thin layer over `trimtab-hold`,
//! without decisions of its own.
//!
//! **Idea.** Reserved cores are an address that the caller owns. Every failure is a code and a text
//! that the caller frees, so that the library has no global state and no thread of its own.
//!
//! **Properties.** Every entry catches panics; nothing here prints or ends the process. Structures
//! contain their size: programs built with earlier headers go on working. A forked child that
//! releases cores does not take them from its parent.
//!
//! # Example
//!
//! The calls that a C program makes to see what it would get. `trimtab.h` declares them with their
//! C types; docs/cores.md has a complete program in C:
//!
//! ```
//! use std::ptr::null_mut;
//! use trimtab_hold_c::*;
//!
//! let wanted = WantedOf { cores: c"1".as_ptr(), ..WantedOf::default() };
//! let (mut json, mut error) = (null_mut(), null_mut());
//! // SAFETY: all addresses are of variables that live until the calls return.
//! unsafe {
//!     assert_eq!(trimtab_cores_plan(&wanted, &mut json, &mut error), 0);
//!     let text = std::ffi::CStr::from_ptr(json).to_str()?;
//!     assert!(text.contains("trimtab.cores/1"));
//!     trimtab_cores_free(json);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(unsafe_code, reason = "the C interface: callers guarantee that addresses are valid")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod code;
mod place;
mod ranks;
mod target;
mod wanted;

use code::{Failure, entry, give};
pub use ranks::*;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
pub use target::TargetOf;
use trimtab_front::args::SurveyMode;
use trimtab_hold::cores::{Cores, CoresDocument, list};
use trimtab_hold::release::release;
use trimtab_hold::resize::resize;
use trimtab_hold::select::HoldName;
pub use wanted::WantedOf;

/// Reserves cores.
///
/// # Safety
/// `wanted` is null or a structure of `trimtab.h` whose texts end with a zero byte; `cores` and
/// `error` are null or valid for writing; `look` may be called with `data` until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_reserve(
    wanted: *const WantedOf,
    cores: *mut *mut Cores,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!cores.is_null(), "there is no address for the cores")?;
            cores.write(std::ptr::null_mut());
            let asked = wanted::read(wanted)?;
            let world = place::world();
            let kept = asked.wanted()?.reserve(&world, &|line| asked.tell(line), &|| asked.goes_on())?;
            cores.write(Box::into_raw(Box::new(kept)));
            Ok(())
        })
    }
}

/// Describes reserved cores as JSON.
///
/// # Safety
/// `cores` is null or of [`trimtab_cores_reserve`] and not released; `json` and `error` are null or
/// valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_describe(
    cores: *const Cores,
    json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let cores = cores.as_ref().ok_or_else(|| Failure::argument("there are no cores"))?;
            give(json, &CoresDocument::of(cores))
        })
    }
}

/// Binds the calling thread to reserved cores.
///
/// # Safety
/// As [`trimtab_cores_describe`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_bind_thread(cores: *const Cores, error: *mut *mut c_char) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let cores = cores.as_ref().ok_or_else(|| Failure::argument("there are no cores"))?;
            cores
                .bind_thread()
                .map_err(|why| Failure::system(format!("cannot bind to CPUs {}: {why}", cores.cpus())))
        })
    }
}

/// Gives reserved cores back.
///
/// # Safety
/// `cores` is null or of [`trimtab_cores_reserve`], and no other thread uses it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_release(cores: *mut Cores) {
    if !cores.is_null() {
        // SAFETY: it was made from a box, and is used by no other call.
        let cores = unsafe { Box::from_raw(cores) };
        // A panic here would leave the library.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(cores)));
    }
}

/// Changes the number of reserved cores.
///
/// # Safety
/// `cores` is null or of [`trimtab_cores_reserve`] and not released, and no other thread uses it
/// during the call; `error` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_resize(
    cores: *mut Cores,
    number: c_uint,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let cores = cores.as_mut().ok_or_else(|| Failure::argument("there are no cores"))?;
            cores.resize(&place::world(), number as usize)?;
            Ok(())
        })
    }
}

/// Reserves a part of reserved cores.
///
/// # Safety
/// `whole` is null or of [`trimtab_cores_reserve`] and not released; the others as there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_reserve_part(
    whole: *const Cores,
    wanted: *const WantedOf,
    cores: *mut *mut Cores,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!cores.is_null(), "there is no address for the cores")?;
            cores.write(std::ptr::null_mut());
            let whole = whole.as_ref().ok_or_else(|| Failure::argument("there are no cores to divide"))?;
            let asked = wanted::read(wanted)?;
            let world = place::world();
            let request = asked.wanted()?;
            let kept = whole.reserve_part(&request, &world, &|line| asked.tell(line), &|| asked.goes_on())?;
            cores.write(Box::into_raw(Box::new(kept)));
            Ok(())
        })
    }
}

/// Reserves cores for a process or a control group that runs already, and binds its threads.
///
/// # Safety
/// `target` is null or a structure of `trimtab.h` whose text ends with a zero byte, with a
/// descriptor that stays open during the call; the others as for [`trimtab_cores_reserve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_hold(
    wanted: *const WantedOf,
    target: *const TargetOf,
    json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!json.is_null(), "there is no address for the answer")?;
            let asked = wanted::read(wanted)?;
            let world = place::world();
            let watched = target::watch(&world, target)?;
            let keeper = place::keeper()?;
            let request = asked.wanted_of_target()?;
            let held =
                request.hold_for(&world, watched, &keeper, &|line| asked.tell(line), &|| asked.goes_on())?;
            give(json, &held.document())
        })
    }
}

/// Changes the number of cores of a hold, by a process of it or by its number.
///
/// # Safety
/// `hold` is null or ends with a zero byte; `json` and `error` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_resize_hold(
    hold: *const c_char,
    number: c_uint,
    json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!json.is_null(), "there is no address for the answer")?;
            let name = hold_name(hold)?;
            let done = resize(&place::world(), name, number as usize, SurveyMode::Auto);
            give(json, &done.map_err(Failure::unread)?)
        })
    }
}

/// Ends a hold that a keeper keeps, by its process or by its number.
///
/// # Safety
/// As [`trimtab_cores_resize_hold`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_release_hold(
    hold: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!json.is_null(), "there is no address for the answer")?;
            give(json, &release(&place::world(), hold_name(hold)?).map_err(Failure::unread)?)
        })
    }
}

/// Reads the name of a hold.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn hold_name(text: *const c_char) -> Result<HoldName, Failure> {
    Failure::unless(!text.is_null(), "no hold is named")?;
    // SAFETY: not null, and so a text by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.parse().map_err(Failure::argument)
}

/// Returns the cores that would be reserved now, as JSON.
///
/// # Safety
/// As [`trimtab_cores_reserve`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_plan(
    wanted: *const WantedOf,
    json: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let asked = wanted::read(wanted)?;
            let world = place::world();
            let planned = asked.wanted()?.plan(&world)?;
            give(json, &CoresDocument::planned(&planned))
        })
    }
}

/// Returns the holds of this machine, as JSON.
///
/// # Safety
/// `json` and `error` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_list(json: *mut *mut c_char, error: *mut *mut c_char) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { entry(error, || give(json, &list(&place::world()).map_err(Failure::unread)?)) }
}

/// Frees a text.
///
/// # Safety
/// `text` is null or a text of this library that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it was made by `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_cores_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
