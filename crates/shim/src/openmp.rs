//! Which threads belong to an OpenMP runtime.
//!
//! A runtime binds its own threads, by the places it was given or region by region, and it starts helpers that are no
//! workers at all; whoever guesses among them guesses wrong. So its threads are known by their start routine, which
//! lies in the runtime's library, and are left to it.
//!
//! A runtime linked into the program itself (`-l:libgomp.a`) cannot be told from the program: its threads are pinned
//! in creation order, which is a runtime's own order as well.

use crate::objects;
use libc::c_void;
use std::ops::ControlFlow;

/// How the files of the runtimes begin. A wheel renames its copy (`libgomp-e985bcbb.so.1`) but keeps the beginning.
const RUNTIMES: [&[u8]; 4] = [b"libgomp", b"libomp", b"libiomp", b"libnvomp"];

/// Whether a start routine lies in an OpenMP runtime.
///
/// Walks the loaded objects each time rather than remember what lay where: objects come and go.
pub(crate) fn owns(routine: *const c_void) -> bool {
    objects::visit(|object| match object.holds(routine.addr()) {
        true => ControlFlow::Break(is_runtime(object.path())),
        false => ControlFlow::Continue(()),
    })
    .unwrap_or(false)
}

fn is_runtime(path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    RUNTIMES.iter().any(|name| file.starts_with(name))
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
            ("/home/libgomp/program", false),
            ("/usr/lib/libc.so.6", false),
            ("", false),
        ] {
            assert_eq!(is_runtime(path.as_bytes()), runtime, "{path}");
        }
    }

    #[test]
    fn other_addresses_belong_to_no_runtime() {
        assert!(!owns(owns as *const c_void));
        assert!(!owns(libc::getpid as *const c_void));
        assert!(!owns(std::ptr::null()));
    }
}
