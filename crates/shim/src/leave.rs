//! Removal of the library from the environment of a program that cannot load it, or has no use for
//! it.
//!
//! [`carry`] identifies these programs. Their `LD_PRELOAD` is the host's without this library, or
//! absent if nothing is left. All other variables, and the order of all, stay as they are. For a
//! program that is started through a shell, the shell does this, since it has loaded the library
//! itself.
//!
//! The code runs between `vfork` and exec, on the parent's memory and beside the parent's other
//! threads. The caller's environment is not changed: the array of pointers is copied, onto the
//! stack while it is short, else into memory of the calling thread, which is mapped once and used
//! again. After its `vfork`ed child has become a program, the parent has that memory unchanged.

use crate::birth::quietly;
use crate::carry::{self, Target};
use libc::{c_char, c_void};
use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use trimtab_core::handoff::bearer;

/// Array of C strings that ends with a null pointer.
pub(crate) type List = *const *const c_char;

/// Variable by which the loader gets the library, with the `=` that follows.
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Longest path of the library that is searched for, in bytes. A longer path stays in the variable.
const PATH_BYTES: usize = 1024;
/// Room on the stack for an environment, in words: five hundred variables.
const STACK_WORDS: usize = 512;

/// Process that a program is started in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Successor {
    /// The calling process, which ends its own program by that.
    Replacement,
    /// A child of it.
    Child,
}

impl Successor {
    /// Returns whether the process has loaded this library with the program that it ends. It keeps
    /// the library, even without a use for it: it may be the planned process, for whose end there
    /// may be something to report.
    fn has_loaded_it(self) -> bool {
        // A system call, so that a child of `vfork` is not taken for its parent.
        // SAFETY: no preconditions.
        self == Self::Replacement && LOADED_BY.load(Relaxed) == unsafe { libc::syscall(libc::SYS_getpid) }
    }
}

/// Process that loaded the library; 0 before.
static LOADED_BY: AtomicI64 = AtomicI64::new(0);

/// Remembers the process that has loaded the library.
pub(crate) fn remember_process() {
    // SAFETY: no preconditions.
    LOADED_BY.store(unsafe { libc::syscall(libc::SYS_getpid) }, Relaxed);
}

thread_local! {
    /// This thread's memory for longer environments: address and size in bytes; 0 before it is
    /// mapped.
    static MAPPED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Calls `start` with an environment without this library, and with `spare` words of room, if the
/// target cannot carry the library or has no use for it. Returns `None` without calling `start` if
/// the target is to carry it, or if memory for the copy is missing.
pub(crate) fn without<T>(
    successor: Successor,
    target: Target,
    environment: List,
    spare: usize,
    start: impl FnOnce(List, &mut [usize]) -> T,
) -> Option<T> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: an environment, by the contract of every function that starts programs.
    let entries = unsafe { entries(environment) };
    let (mut words, mut bytes) = (1, 0);
    let (mut ours, mut alone) = (None, false);
    for (entry, value) in entries.clone() {
        words += 1;
        if let Some(value) = value
            && let Some(library) = value.split(is_separator).find(|path| bearer::is_library(path))
        {
            (ours, bytes) = (Some(library), bytes + PRELOAD.len() + value.len() + 1);
            alone = value.split(is_separator).filter(|path| !path.is_empty()).count() == 1;
        }
        debug_assert!(!entry.is_null());
    }
    if !quietly(|| is_out_of_reach(target, ours, alone && !successor.has_loaded_it())) {
        return None;
    }
    let text = bytes.div_ceil(size_of::<usize>());
    with_room(words + text + spare, |room| {
        let (list, room) = room.split_at_mut(words);
        let (text, spare) = room.split_at_mut(text);
        copy(entries, list, text);
        start(list.as_ptr().cast(), spare)
    })
}

/// Removes this library from the process's own environment if its path does not exist, as in
/// another root. For functions that use that environment. The text is shortened in place, where no
/// other thread searches for it.
pub(crate) fn for_good_if_missing() {
    // SAFETY: the C library's own.
    let environment = unsafe { libc::environ };
    if environment.is_null() {
        return;
    }
    // SAFETY: an environment.
    for (entry, value) in unsafe { entries(environment.cast_const().cast()) } {
        let Some(value) = value else { continue };
        let ours = value.split(is_separator).find(|path| bearer::is_library(path));
        let Some(library) = ours else { continue };
        let mut path = [0; PATH_BYTES];
        if !text(library, &mut path).is_some_and(|path| quietly(|| carry::is_missing(path))) {
            continue;
        }
        let length = value.len();
        // SAFETY: a loader, a shell or `setenv` made the text of a variable that holds our path, so
        // it may be written; the slice above is not used any more.
        let value = unsafe {
            std::slice::from_raw_parts_mut(entry.cast_mut().cast::<u8>().add(PRELOAD.len()), length)
        };
        let kept = keep_others(value);
        if let Some(end) = value.get_mut(kept) {
            *end = 0;
        }
    }
}

/// Returns a variable of this process, as bytes. `getenv` is not used: some programs replace it.
pub(crate) fn own_variable(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: the C library's own.
    let environment = unsafe { libc::environ };
    if environment.is_null() {
        return None;
    }
    // SAFETY: an environment.
    unsafe { all(environment.cast_const().cast()) }.find_map(|entry| {
        // SAFETY: a C string, which stays until the program changes its environment.
        let text: &'static [u8] = unsafe { CStr::from_ptr(entry) }.to_bytes();
        text.strip_prefix(name)?.strip_prefix(b"=")
    })
}

fn is_out_of_reach(target: Target, library: Option<&[u8]>, alone: bool) -> bool {
    let mut path = [0; PATH_BYTES];
    library
        .and_then(|library| text(library, &mut path))
        .is_some_and(|path| carry::is_out_of_reach(target, path, alone))
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// Copies a path into `room` as a C string.
fn text(path: &[u8], room: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    room.get_mut(..path.len())?.copy_from_slice(path);
    *room.get_mut(path.len())? = 0;
    Some(room.as_ptr().cast())
}

/// # Safety
/// As [`List`].
unsafe fn all(environment: List) -> impl Iterator<Item = *const c_char> + Clone {
    // SAFETY: reads up to and including the null pointer.
    (0..).map(move |at| unsafe { *environment.add(at) }).take_while(|entry| !entry.is_null())
}

/// Yields the entries of an environment, with the value of each that names libraries to preload.
///
/// # Safety
/// As [`List`], of strings that stay while the entries are in use.
unsafe fn entries<'e>(environment: List) -> impl Iterator<Item = (*const c_char, Option<&'e [u8]>)> + Clone {
    // SAFETY: the caller's promise.
    unsafe { all(environment) }.map(|entry| {
        // SAFETY: reads up to the first byte that differs, which is at the latest the zero at the
        // end.
        let named = PRELOAD.iter().enumerate().all(|(at, &byte)| unsafe { *entry.add(at) as u8 } == byte);
        // SAFETY: a C string with the name in front.
        let value = named.then(|| unsafe { CStr::from_ptr(entry.add(PRELOAD.len())) }.to_bytes());
        (entry, value)
    })
}

/// Fills `list` with the entries without this library, and null pointers behind them.
fn copy<'e>(
    entries: impl Iterator<Item = (*const c_char, Option<&'e [u8]>)>,
    list: &mut [usize],
    text: &mut [usize],
) {
    // SAFETY: the same memory as bytes; every byte value is valid.
    let mut text =
        unsafe { std::slice::from_raw_parts_mut(text.as_mut_ptr().cast::<u8>(), size_of_val(text)) };
    let mut places = list.iter_mut();
    for (entry, value) in entries {
        let ours = value.filter(|value| value.split(is_separator).any(bearer::is_library));
        // Another thread may have changed the variable meanwhile; an entry without room stays as it
        // is.
        let room = ours.and_then(|value| {
            let (room, rest) =
                std::mem::take(&mut text).split_at_mut_checked(PRELOAD.len() + value.len() + 1)?;
            text = rest;
            Some((value, room))
        });
        let entry = match room {
            None => Some(entry.addr()),
            Some((value, room)) => {
                let (name, others) = room.split_at_mut(PRELOAD.len());
                name.copy_from_slice(PRELOAD);
                let (copied, end) = others.split_at_mut(value.len());
                copied.copy_from_slice(value);
                end.fill(0);
                let kept = keep_others(copied);
                copied.get_mut(kept..).unwrap_or_default().fill(0);
                (kept > 0).then(|| room.as_ptr().addr())
            }
        };
        if let Some((place, entry)) = entry.and_then(|entry| Some((places.next()?, entry))) {
            *place = entry;
        }
    }
    places.for_each(|place| *place = 0);
}

/// Moves the paths of other libraries to the front, with their separators. Returns their total
/// length.
fn keep_others(value: &mut [u8]) -> usize {
    let (mut from, mut kept) = (0, 0);
    while from < value.len() {
        let rest = &value[from..];
        let length = rest.iter().position(is_separator).unwrap_or(rest.len());
        let ours = bearer::is_library(&rest[..length]);
        let end = (from + length + 1).min(value.len());
        if !ours && length > 0 {
            value.copy_within(from..end, kept);
            kept += end - from;
        }
        from = end;
    }
    match kept.checked_sub(1).and_then(|last| value.get(last)) {
        Some(last) if is_separator(last) => kept - 1,
        _ => kept,
    }
}

/// Lends `words` words to `work`; `None` if memory is missing.
fn with_room<T>(words: usize, work: impl FnOnce(&mut [usize]) -> T) -> Option<T> {
    if words <= STACK_WORDS {
        return Some(on_stack(words, work));
    }
    let bytes = words.checked_mul(size_of::<usize>())?;
    let (mut start, held) = MAPPED.get();
    if held < bytes {
        let asked = bytes.checked_next_multiple_of(1 << 16)?;
        start = map(asked)?;
        let before = MAPPED.replace((start, asked));
        if before.1 != 0 {
            // SAFETY: mapped by this thread, and not lent at present.
            unsafe { libc::syscall(libc::SYS_munmap, before.0, before.1) };
        }
    }
    let room: *mut usize = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: this thread's own memory of at least `words` words, which is lent once at a time:
    // the work starts a program.
    Some(work(unsafe { std::slice::from_raw_parts_mut(room, words) }))
}

#[inline(never)]
fn on_stack<T>(words: usize, work: impl FnOnce(&mut [usize]) -> T) -> T {
    let mut room = [0; STACK_WORDS];
    work(room.get_mut(..words).unwrap_or_default())
}

fn map(bytes: usize) -> Option<usize> {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let nowhere: *mut c_void = null_mut();
    // SAFETY: a new mapping.
    let start = unsafe { libc::syscall(libc::SYS_mmap, nowhere, bytes, read_write, private, -1, 0) };
    // The kernel reports errors as the last page's addresses, which `syscall` turns into -1.
    usize::try_from(start).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    const OURS: &str = "/opt/lib/libtrimtab_shim.so";

    #[test]
    fn other_libraries_stay() {
        for (before, after) in [
            ("", ""),
            ("X", ""),
            ("X:X", ""),
            ("/a.so", "/a.so"),
            ("/a.so:X", "/a.so"),
            ("X:/a.so", "/a.so"),
            ("/a.so X /b.so", "/a.so /b.so"),
            ("/a.so:/b.so:X", "/a.so:/b.so"),
            (": X: ", ""),
            ("::/a.so::X", "/a.so"),
        ] {
            let mut value = before.replace('X', OURS).into_bytes();
            let kept = keep_others(&mut value);
            assert_eq!(String::from_utf8_lossy(&value[..kept]), after, "{before:?}");
        }
    }

    /// Returns the environment with which a program would be started.
    fn left(environment: &[&str], target: &CStr) -> Option<Vec<String>> {
        let texts: Vec<CString> = environment.iter().map(|text| CString::new(*text).unwrap()).collect();
        let mut list: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(std::ptr::null());
        without(Successor::Child, Target::Path(target.as_ptr()), list.as_ptr(), 3, |list, spare| {
            assert_eq!(spare.len(), 3);
            // SAFETY: `list` was just made.
            let all = unsafe { all(list) };
            // SAFETY: as above.
            all.map(|entry| unsafe { CStr::from_ptr(entry) }.to_str().unwrap().to_owned()).collect()
        })
    }

    #[test]
    fn the_library_is_taken_out_where_it_is_missing_and_the_rest_stays_in_order() {
        let missing = "LD_PRELOAD=/none/libtrimtab_shim.so";
        let with = |value: &str| ["A=1".to_owned(), format!("LD_PRELOAD={value}"), "Z=".to_owned()];
        for (environment, after) in [
            (vec!["A=1", missing, "Z="], vec!["A=1", "Z="]),
            (vec![missing], vec![]),
            (vec![missing, missing, "LD_PRELOAD_X=1"], vec!["LD_PRELOAD_X=1"]),
        ] {
            assert_eq!(left(&environment, c"/bin/sh").unwrap(), after);
        }
        let two = with("/a.so:/none/libtrimtab_shim.so:/b.so");
        assert_eq!(left(&two.each_ref().map(String::as_str), c"/bin/sh").unwrap(), with("/a.so:/b.so"));
    }

    #[test]
    fn an_environment_without_the_library_is_left() {
        for environment in [
            &["A=1"][..],
            &[],
            &["LD_PRELOAD=/a.so"],
            &["LD_PRELOAD="],
            &["XLD_PRELOAD=/none/libtrimtab_shim.so"],
        ] {
            assert_eq!(left(environment, c"/bin/sh"), None);
        }
    }

    #[test]
    fn large_environments_are_copied_too_and_use_the_same_memory_again() {
        let texts: Vec<String> = (0..20_000).map(|at| format!("V{at}={at}")).collect();
        let mut environment: Vec<&str> = texts.iter().map(String::as_str).collect();
        environment.insert(7, "LD_PRELOAD=/none/libtrimtab_shim.so");
        assert_eq!(left(&environment, c"/bin/sh").unwrap(), texts);
        let before = MAPPED.get();
        assert_eq!(left(&environment, c"/bin/sh").unwrap(), texts);
        assert!(before.0 != 0 && before == MAPPED.get());
    }
}
