//! Recognition of threads that belong to a runtime library, not to code of the program.
//!
//! An OpenMP runtime binds its own threads, by the places it was given or region by region, and it
//! starts helpers that are not workers at all. Allocators, race detectors and communication
//! libraries start helpers, too. If a helper gets a slot, a computing thread has none, and all
//! later threads are on other slots than in the plan. So these threads are recognised and get the
//! whole mask. They are recognised by their start routine, which is in the runtime's library: no
//! thread of the program starts in any of [`HELPER_LIBRARIES`]. A wheel renames its copy
//! (`libgomp-e985bcbb.so.1`) but keeps the beginning.
//!
//! ThreadSanitizer is different. It interposes `pthread_create` itself, so that all start routines
//! are its own, and clang links it into the program. A thread that it creates for the program
//! always has an attribute; its own thread has none.
//!
//! A runtime linked into the program itself (`-l:libgomp.a`) cannot be distinguished from the
//! program: its threads are pinned in creation order, which is a runtime's own order as well.

use crate::objects::{self, Object};
use libc::{c_void, pthread_attr_t};
use std::ops::ControlFlow;
use trimtab_core::place::runtimes::HELPER_LIBRARIES;

/// Function that every program with ThreadSanitizer exports.
const RACE_DETECTOR: &std::ffi::CStr = c"__tsan_init";

/// Returns whether a thread with this start routine and attribute is a runtime's own.
///
/// Reads the list of loaded objects each time and stores no addresses, since objects are loaded and
/// unloaded.
pub(crate) fn own(routine: *const c_void, attr: *const pthread_attr_t) -> bool {
    let is_own = |object: &Object<'_>| {
        is_runtime(object.path()) || (attr.is_null() && object.defines(RACE_DETECTOR).is_some())
    };
    objects::visit(|object| match object.holds(routine.addr()) {
        true => ControlFlow::Break(is_own(object)),
        false => ControlFlow::Continue(()),
    })
    .unwrap_or(false)
}

fn is_runtime(path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    HELPER_LIBRARIES.iter().any(|name| file.starts_with(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_file() {
        for (path, runtime) in [
            ("/usr/lib/x86_64-linux-gnu/libgomp.so.1", true),
            ("/site-packages/torch.libs/libgomp-e985bcbb.so.1.0.0", true),
            ("libomp.so.5", true),
            ("/opt/intel/lib/libiomp5.so", true),
            ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", true),
            ("/usr/lib/x86_64-linux-gnu/libopen-pal.so.40", true),
            ("/usr/lib/x86_64-linux-gnu/libcudart.so.12", false),
            ("/home/libgomp/program", false),
            ("/usr/lib/libc.so.6", false),
            ("", false),
        ] {
            assert_eq!(is_runtime(path.as_bytes()), runtime, "{path}");
        }
    }

    #[test]
    fn other_addresses_belong_to_no_runtime() {
        let none = std::ptr::null();
        assert!(!own(own as *const c_void, none));
        assert!(!own(libc::getpid as *const c_void, none));
        assert!(!own(none.cast(), none));
    }
}
