//! Test of a program's file: whether the program that is about to start can load this library, and
//! has a use for it ([`idle`]).
//!
//! The loader of a program of another word size, of musl or in another root writes to standard
//! error that it cannot preload the library, or stops. A program with AddressSanitizer stops if a
//! library comes before the sanitizer's. The test reads the library's own path, as seen from here;
//! the file's head; for a `#!` script, the interpreter's head; the dynamic loader that the file
//! names; and the libraries that it needs.
//!
//! The code runs between `vfork` and exec, on the parent's memory: it uses system calls and the
//! stack only, some two kibibytes of it. A file that cannot be read, or is malformed, is not
//! judged: the exec reports the fault.

use libc::{c_char, c_int, c_long};
use trimtab_core::handoff::bearer::{self, MACHINE, NAME_BYTES};

mod idle;

/// Program that is about to be started.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// File by its path.
    Path(*const c_char),
    /// File by its path from an open folder, or the open file itself if the path is empty.
    At(c_int, *const c_char),
    /// Open file.
    Open(c_int),
    /// Name that is searched for in the folders of `PATH`, unless it has a slash.
    Name(*const c_char),
}

/// Bound of the interpreters of interpreters that are followed, as in the kernel.
const SCRIPTS_MAX: usize = 5;
/// Bytes of a file that are read first: the kernel reads 256 bytes for `#!`, and program headers
/// end before this in nearly every program.
const HEAD_BYTES: usize = 1024;
/// Longest path that is put together here, in bytes.
const PATH_BYTES: usize = 1024;
/// Bound of the program headers, and of the dynamic entries, that are read.
const ENTRIES_MAX: u64 = 512;

/// Returns whether the target cannot carry the library at `library`, a C string, or has no use for
/// it. `alone`: no other library is preloaded, which might have a use for it.
pub(crate) fn is_out_of_reach(target: Target, library: *const c_char, alone: bool) -> bool {
    if is_missing(library) {
        return true;
    }
    let mut path = [0; PATH_BYTES];
    let mut file = match target {
        Target::Path(path) => OpenFile::open(libc::AT_FDCWD, path),
        // SAFETY: a C string, by the caller's contract.
        Target::At(folder, path) if !path.is_null() && unsafe { *path } != 0 => OpenFile::open(folder, path),
        Target::At(file, _) | Target::Open(file) => OpenFile::reopen(file),
        Target::Name(name) => OpenFile::search(name, &mut path),
    };
    for _ in 0..SCRIPTS_MAX {
        let Some(open) = file else { return false };
        let mut head = [0; HEAD_BYTES];
        let head = open.read(0, &mut head);
        match head {
            [b'#', b'!', line @ ..] => {
                let Some(path) = interpreter(line, &mut path) else { return false };
                file = OpenFile::open(libc::AT_FDCWD, path);
            }
            [0x7f, b'E', b'L', b'F', ..] => {
                let elf = Elf { file: &open, head };
                return !elf.carries() || (alone && elf.is_idle() == Some(true));
            }
            _ => return false,
        }
    }
    false
}

/// Returns whether the library cannot be opened from here: in another root, or without the right.
pub(crate) fn is_missing(library: *const c_char) -> bool {
    match open(libc::AT_FDCWD, library) {
        Ok(file) => {
            close(file);
            false
        }
        // Out of descriptors, or of memory: this proves nothing about the library.
        Err(why) => [libc::ENOENT, libc::EACCES, libc::ENOTDIR, libc::ELOOP].contains(&why),
    }
}

/// Open file, closed with the value.
struct OpenFile(c_int);

impl OpenFile {
    /// Opens a file that may be executed; an exec takes only such files.
    fn open(folder: c_int, path: *const c_char) -> Option<Self> {
        // SAFETY: the path is a C string, by the callers' contracts.
        (unsafe { libc::syscall(libc::SYS_faccessat, folder, path, libc::X_OK) } == 0)
            .then(|| open(folder, path).ok())
            .flatten()
            .map(Self)
    }

    /// Opens the file behind a descriptor, which may be open for other uses than reading.
    fn reopen(file: c_int) -> Option<Self> {
        const FOLDER: &[u8] = b"/proc/self/fd/";
        let mut digits = [0; 10];
        let (mut rest, mut first) = (u32::try_from(file).ok()?, digits.len());
        while rest > 0 || first == digits.len() {
            first -= 1;
            *digits.get_mut(first)? = b"0123456789"[(rest % 10) as usize];
            rest /= 10;
        }
        let mut room = [0; PATH_BYTES];
        let path = join(&[FOLDER, digits.get(first..)?], &mut room)?;
        open(libc::AT_FDCWD, path).ok().map(Self)
    }

    /// Opens the first file of that name in the folders of `PATH`, as `execvp` finds it.
    fn search(name: *const c_char, room: &mut [u8; PATH_BYTES]) -> Option<Self> {
        // SAFETY: a C string, by the caller's contract.
        let text = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
        if text.contains(&b'/') {
            return Self::open(libc::AT_FDCWD, name);
        }
        let folders = crate::leave::own_variable(b"PATH").unwrap_or(b"/bin:/usr/bin");
        folders.split(|&byte| byte == b':').find_map(|folder| {
            let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
            let path = join(&[folder, slash, text], room)?;
            Self::open(libc::AT_FDCWD, path)
        })
    }

    fn read<'b>(&self, at: u64, to: &'b mut [u8]) -> &'b [u8] {
        let Ok(at) = libc::off_t::try_from(at) else { return &[] };
        // SAFETY: our own descriptor, and at most as many bytes as there is room for.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, to.as_mut_ptr(), to.len(), at) };
        usize::try_from(read).ok().and_then(|read| to.get(..read)).unwrap_or_default()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        close(self.0);
    }
}

fn open(folder: c_int, path: *const c_char) -> Result<c_int, c_int> {
    // Non-blocking, in case the file is a pipe or a device.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: the path is a C string, by the callers' contracts.
    let file: c_long = unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, 0) };
    // SAFETY: the location is valid in the calling thread.
    if file < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(file as c_int) }
}

fn close(file: c_int) {
    // SAFETY: our own descriptor.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

/// Joins the parts to a C string; `None` if they do not fit.
fn join(parts: &[&[u8]], room: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    let mut end = 0;
    for part in parts {
        room.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *room.get_mut(end)? = 0;
    Some(room.as_ptr().cast())
}

/// Returns the interpreter that a script's first line names; `line` begins behind `#!`.
fn interpreter(line: &[u8], room: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    let line = line.split(|&byte| byte == b'\n' || byte == 0).next()?.trim_ascii_start();
    let path = line.split(|&byte| byte == b' ' || byte == b'\t').next().filter(|path| !path.is_empty())?;
    join(&[path], room)
}

/// Executable file; `head` is its beginning.
struct Elf<'a> {
    file: &'a OpenFile,
    head: &'a [u8],
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// Program header.
struct Segment {
    kind: u32,
    at: u64,
    address: u64,
    bytes: u64,
}

impl Elf<'_> {
    /// Returns whether the library can be preloaded. A static program cannot load it either, and
    /// could not remove the library from the environment of its children.
    fn carries(&self) -> bool {
        const CLASS_64_LITTLE: [u8; 2] = [2, 1];
        let ours = self.head.get(4..6) == Some(&CLASS_64_LITTLE)
            && self.number::<2>(18).map(|machine| machine as u16) == Some(MACHINE);
        ours && self.loader_is_ours().unwrap_or(false) && !self.needs_to_be_first().unwrap_or(false)
    }

    /// Returns whether the dynamic loader is of this library's kind; `None` if the program has no
    /// loader.
    fn loader_is_ours(&self) -> Option<bool> {
        let named = self.segments().find(|segment| segment.kind == PT_INTERP)?;
        // The end of the path is enough, because it holds the file name.
        let mut end = [0; 64];
        let skipped = named.bytes.saturating_sub(end.len() as u64);
        let length = usize::try_from(named.bytes - skipped).ok()?;
        let path = self.file.read(named.at.checked_add(skipped)?, end.get_mut(..length)?);
        Some(bearer::is_loader(path.split(|&byte| byte == 0).next()?))
    }

    /// Returns whether it needs a library that has to be loaded first.
    fn needs_to_be_first(&self) -> Option<bool> {
        let (dynamic, strings) = self.strings()?;
        Some(!self.needs_only(&dynamic, strings, |name| !bearer::must_be_first(name)))
    }

    /// Returns the dynamic section, and the place of its table of strings in the file.
    fn strings(&self) -> Option<(Segment, u64)> {
        let dynamic = self.segments().find(|segment| segment.kind == PT_DYNAMIC)?;
        let address = self.entries(&dynamic).find(|&(tag, _)| tag == DT_STRTAB)?.1;
        let strings = self.segments().find_map(|segment| {
            let into = address.checked_sub(segment.address).filter(|&into| into < segment.bytes)?;
            (segment.kind == PT_LOAD).then(|| segment.at.checked_add(into))?
        })?;
        Some((dynamic, strings))
    }

    /// Returns whether all libraries that it needs are as wanted. Names end with a null byte or
    /// after [`NAME_BYTES`].
    fn needs_only(&self, dynamic: &Segment, strings: u64, wanted: fn(&[u8; NAME_BYTES]) -> bool) -> bool {
        self.entries(dynamic).filter(|&(tag, _)| tag == DT_NEEDED).all(|(_, offset)| {
            let mut name = [0; NAME_BYTES];
            if let Some(at) = strings.checked_add(offset) {
                self.file.read(at, &mut name);
            }
            wanted(&name)
        })
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        const HEADER_BYTES: u64 = 56;
        let (start, size, count) =
            (self.number::<8>(32).unwrap_or(0), self.number::<2>(54), self.number::<2>(56).unwrap_or(0));
        let count = if size == Some(HEADER_BYTES) { count.min(ENTRIES_MAX) } else { 0 };
        (0..count).map_while(move |at| {
            let at = start.checked_add(at * HEADER_BYTES)?;
            let mut room = [0; HEADER_BYTES as usize];
            let near = usize::try_from(at).ok().and_then(|at| self.head.get(at..at + room.len()));
            let bytes = match near {
                Some(bytes) => bytes,
                None => self.file.read(at, &mut room),
            };
            Some(Segment {
                kind: number::<4>(bytes, 0)? as u32,
                at: number::<8>(bytes, 8)?,
                address: number::<8>(bytes, 16)?,
                bytes: number::<8>(bytes, 32)?,
            })
        })
    }

    /// Yields the entries of the dynamic section, tag and value.
    fn entries(&self, dynamic: &Segment) -> impl Iterator<Item = (u64, u64)> + '_ {
        const AT_ONCE: usize = 16;
        let (start, count) = (dynamic.at, (dynamic.bytes / 16).min(ENTRIES_MAX));
        let (mut room, mut held) = ([0; AT_ONCE * 16], None);
        (0..count)
            .map_while(move |at| {
                let part = at / AT_ONCE as u64;
                if held != Some(part) {
                    room.fill(0);
                    self.file.read(start.checked_add(part * (AT_ONCE * 16) as u64)?, &mut room);
                    held = Some(part);
                }
                let into = (at % AT_ONCE as u64) as usize * 16;
                Some((number::<8>(&room, into)?, number::<8>(&room, into + 8)?))
            })
            .take_while(|&(tag, _)| tag != 0)
    }

    fn number<const N: usize>(&self, at: usize) -> Option<u64> {
        number::<N>(self.head, at)
    }
}

/// Reads a number of N bytes, little-endian.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + N)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    /// Returns a program that can carry the library.
    fn own() -> Vec<u8> {
        std::fs::read("/bin/sh").unwrap()
    }

    /// Returns whether a file of these bytes cannot carry an existing library.
    fn leaves(bytes: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        is_out_of_reach(Target::Path(c(file.path()).as_ptr()), c"/proc/self/exe".as_ptr(), true)
    }

    #[test]
    fn programs_of_this_machines_glibc_are_in_reach_by_every_way_to_name_them() {
        let library = c"/proc/self/exe".as_ptr();
        let open = std::fs::File::open("/bin/sh").unwrap();
        let folder = std::fs::File::open("/bin").unwrap();
        use std::os::fd::AsRawFd;
        for target in [
            Target::Path(c"/bin/sh".as_ptr()),
            Target::Name(c"sh".as_ptr()),
            Target::Name(c"/bin/sh".as_ptr()),
            Target::Open(open.as_raw_fd()),
            Target::At(folder.as_raw_fd(), c"sh".as_ptr()),
            Target::At(open.as_raw_fd(), c"".as_ptr()),
        ] {
            assert!(!is_out_of_reach(target, library, true));
            assert!(is_out_of_reach(target, c"/none/library".as_ptr(), true));
        }
        assert!(!is_out_of_reach(Target::Name(c"no-program-of-that-name".as_ptr()), library, true));
    }

    #[test]
    fn another_class_machine_or_loader_is_out_of_reach() {
        let own = own();
        assert!(!leaves(&own));
        for (at, byte) in [(4, 1), (5, 2), (18, MACHINE as u8 ^ 1)] {
            let mut other = own.clone();
            other[at] = byte;
            assert!(leaves(&other), "byte {at}");
        }
        let place = own.windows(9).position(|word| word == b"/ld-linux").unwrap();
        let mut other = own.clone();
        other[place + 5] = b'x';
        assert!(leaves(&other), "another loader");
    }

    #[test]
    fn programs_that_start_nothing_have_no_use_for_it_unless_another_library_is_preloaded() {
        let library = c"/proc/self/exe".as_ptr();
        assert!(is_out_of_reach(Target::Name(c"cat".as_ptr()), library, true));
        assert!(!is_out_of_reach(Target::Name(c"cat".as_ptr()), library, false));
    }

    #[test]
    fn texts_and_rubbish_are_left_as_they_are() {
        for bytes in [&b""[..], b"#!", b"#!\n", b"#! \t\n", b"#!/none/interpreter\n", b"echo\n", b"\x7fELF"] {
            // A head of four bytes is not a program.
            assert_eq!(leaves(bytes), bytes == b"\x7fELF", "{bytes:?}");
        }
        let long = [b"#!/".as_slice(), &[b'x'; 4000]].concat();
        assert!(!leaves(&long));
    }

    proptest! {
        #[test]
        fn any_damage_to_a_program_is_survived(
            changes in prop::collection::vec((0usize..1200, any::<u8>()), 1..20), length in 0usize..6000,
        ) {
            let mut bytes = own();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(length + 64);
            let _ = leaves(&bytes);
        }
    }
}
