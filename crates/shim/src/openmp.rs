//! Which threads belong to an OpenMP runtime.
//!
//! A runtime binds its own threads, by the places it was given or region by region, and it starts helpers that are no
//! workers at all; whoever guesses among them guesses wrong. So its threads are known by their start routine, which
//! lies in the runtime's library, and are left to it.
//!
//! A runtime linked into the program itself (`-l:libgomp.a`) cannot be told from the program: its threads are pinned
//! in creation order, which is a runtime's own order as well.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;

/// How the files of the runtimes begin. A wheel renames its copy (`libgomp-e985bcbb.so.1`) but keeps the beginning.
const RUNTIMES: [&[u8]; 4] = [b"libgomp", b"libomp", b"libiomp", b"libnvomp"];

/// Whether a start routine lies in an OpenMP runtime.
///
/// Walks the loaded objects each time rather than remember what lay where: objects come and go. `dladdr` would be
/// shorter but takes the loader's main lock, and a thread that is opening a library holds that one while it waits, in
/// the library's constructor, for threads it has created: a thread that creates another there would wait for ever.
/// `dl_iterate_phdr` takes the lock of the list only, as every C++ exception does.
pub(crate) fn owns(routine: *const c_void) -> bool {
    let mut question = Question { address: routine.addr(), answer: false };
    // SAFETY: `visit` has the type asked for, and `question` lives throughout.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut question).cast()) };
    question.answer
}

struct Question {
    address: usize,
    answer: bool,
}

/// Looks at one object; not 0 to stop, when it is the one.
unsafe extern "C" fn visit(object: *mut dl_phdr_info, _: size_t, question: *mut c_void) -> c_int {
    // SAFETY: `object` is valid for this call, and `question` is the one that `owns` passed.
    let (object, question) = unsafe { (&*object, &mut *question.cast::<Question>()) };
    if object.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object has that many headers there.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let offset = question.address.wrapping_sub(object.dlpi_addr as usize);
    let holds = headers.iter().any(|header| {
        header.p_type == libc::PT_LOAD
            && offset.wrapping_sub(header.p_vaddr as usize) < header.p_memsz as usize
    });
    if holds && !object.dlpi_name.is_null() {
        // SAFETY: a name is a C string.
        question.answer = is_runtime(unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes());
    }
    holds.into()
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
