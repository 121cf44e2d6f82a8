//! Link settings of the shared libraries, of this crate and of `trimtab-shim-blas`.

#![allow(unsafe_code, reason = "asks the C library for its version")]

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    safe fn gnu_get_libc_version() -> *const c_char;
}

fn main() {
    // New threads carry a destructor of this library (`slots`), and the C library a fork handler
    // (`fork`). If a host opened the library itself and closed it again, both would be called after
    // their code is gone.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    if !has_all_in_one() {
        println!("cargo::rustc-link-arg-cdylib=-Wl,--push-state,--no-as-needed,-ldl,-lpthread,--pop-state");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns whether this system's glibc has loading and threads in `libc.so.6`, as since 2.34. If
/// they are separate libraries, the shim names them, since it binds their functions weakly
/// (`imports`). musl accepts both names as its own.
fn has_all_in_one() -> bool {
    // SAFETY: a constant C string.
    let version = unsafe { CStr::from_ptr(gnu_get_libc_version()) }.to_string_lossy();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(34))
}
