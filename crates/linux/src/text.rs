//! Small files of the kernel: read whole, parsed as bytes.
//!
//! The kernel makes the files of `/proc` and `/sys` at the moment of reading. The result of one
//! read is of one moment; several reads glue several moments together. Buffers are therefore large
//! enough for one read in nearly every case. Sizes reported by the file system are meaningless
//! there, hence no `stat` before the read.

use rustix::buffer::spare_capacity;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt::Write, io};
use thiserror::Error;
use trimtab_core::ids::Id;
use trimtab_core::set::Set;

/// First buffer: the longest `/proc/PID/status` of a kernel for 8,192 CPUs and 1,024 nodes takes 6
/// KiB.
const FIRST_BYTES: usize = 8 << 10;
/// Largest file that is read. No kernel file read here is larger on any machine (`/proc/stat` of
/// 8,192 CPUs: under 1 MiB).
const LAST_BYTES: usize = 16 << 20;

/// Reason why a file of the kernel, or one in its format, could not be used.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It was read, but an expected part is missing or wrong.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The missing or wrong part.
        problem: &'static str,
    },
}

impl ReadError {
    /// Returns whether the file does not exist: the process ended, or the kernel lacks the feature.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_gone(source.raw_os_error()))
    }

    /// Returns whether the file exists but this process may not read it.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    pub(crate) fn malformed(path: &Path, problem: &'static str) -> Self {
        Self::Malformed { path: path.to_owned(), problem }
    }

    pub(crate) fn io(path: &Path, errno: Errno) -> Self {
        Self::Io { path: path.to_owned(), source: errno.into() }
    }
}

/// Returns whether this is `ENOENT` at the open, `ESRCH` at the read of a process that ended in
/// between, or `ENOTDIR` and `ENODEV` of an object that never existed.
fn is_gone(errno: Option<i32>) -> bool {
    matches!(errno, Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR | libc::ENODEV))
}

/// Reads the whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
        .and_then(|file| read_into(file, &mut text))
        .map_err(|errno| ReadError::io(path, errno))?;
    Ok(text)
}

/// Reads a file that the kernel makes in one piece: an attribute of `/sys`, or a file of `/proc`
/// that describes one object (`stat`, `status`, `loadavg`, `boot_id`). A read that leaves room in
/// the buffer has returned all of it, so the read that would find its end is saved. A file of
/// lines, as `mountinfo`, may be returned in parts: [`read`] is for those.
pub(crate) fn read_piece(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
        .and_then(|file| fill(file, &mut text, FileEnd::ShortRead))
        .map_err(|errno| ReadError::io(path, errno))?;
    Ok(text)
}

/// Reads the whole file; `None` if it does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces `text` by the unread rest of `file`, keeping its capacity for the next file.
pub(crate) fn read_into(file: impl AsFd, text: &mut Vec<u8>) -> Result<(), Errno> {
    fill(file, text, FileEnd::EmptyRead)
}

/// Sign of the end of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileEnd {
    /// A read that returns nothing.
    EmptyRead,
    /// A read that leaves room in the buffer.
    ShortRead,
}

fn fill(file: impl AsFd, text: &mut Vec<u8>, end: FileEnd) -> Result<(), Errno> {
    text.clear();
    text.reserve(FIRST_BYTES);
    loop {
        match rustix::io::read(&file, spare_capacity(text)) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => {
                text.clear();
                return Err(errno);
            }
        }
        let is_full = text.len() == text.capacity();
        if !is_full && end == FileEnd::ShortRead {
            return Ok(());
        }
        if is_full {
            if text.len() >= LAST_BYTES {
                text.clear();
                return Err(Errno::FBIG);
            }
            text.reserve(text.len());
        }
    }
}

/// Returns the rest of the first line that starts with `name`, without blanks around it.
pub(crate) fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
}

/// Splits a line into words, at blanks of any kind and number.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a number; `None` unless the whole word is one.
pub(crate) fn number<N: FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word.trim_ascii()).ok()?.parse().ok()
}

/// Parses a list of ids in the kernel's format.
pub(crate) fn list<T: Id>(text: &[u8]) -> Option<Set<T>> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Makes foreign text safe to print on one line: control characters, marks that reorder text and
/// bytes that are not UTF-8 become `\x1b`, `\u{202e}` and the like.
pub fn printable(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            let reorders =
                matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            match char {
                '\n' => safe.push_str("\\n"),
                '\t' => safe.push_str("\\t"),
                _ if char.is_ascii_control() => push_byte(&mut safe, char as u8),
                _ if char.is_control() || reorders => safe.extend(char.escape_unicode()),
                _ => safe.push(char),
            }
        }
        for &byte in chunk.invalid() {
            push_byte(&mut safe, byte);
        }
    }
    safe
}

fn push_byte(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimtab_core::set::CpuSet;

    #[test]
    fn fields_words_and_numbers() {
        let text = b"Name:\tcc1 plus\nUid:\t1000\t1001\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(field(text, b"Name:"), Some(&b"cc1 plus"[..]));
        assert_eq!(field(text, b"Cpus_allowed_list:").and_then(list), Some("0-1".parse::<CpuSet>().unwrap()));
        assert_eq!(field(text, b"Mems_allowed_list:"), None);
        assert_eq!(words(b"  a\t b \n").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(number::<u32>(b" 12\n"), Some(12));
        assert_eq!(number::<u32>(b"-1"), None);
        assert_eq!(number::<u32>(b"4294967296"), None);
        assert_eq!(list::<trimtab_core::ids::OsCpu>(b"\xff"), None);
    }

    #[test]
    fn a_file_in_one_piece_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 3 * FIRST_BYTES] {
            let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(read_piece(&path).unwrap(), text, "{length}");
        }
        let live = Path::new("/proc/self/status");
        assert_eq!(field(&read_piece(live).unwrap(), b"Pid:"), field(&read(live).unwrap(), b"Pid:"));
        assert!(read_piece(Path::new("/no/such/file")).unwrap_err().is_gone());
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(printable(b"a\x1b[2Jb\nc"), "a\\x1b[2Jb\\nc");
        assert_eq!(printable("α\u{202e}β\u{85}".as_bytes()), "α\\u{202e}β\\u{85}");
        assert_eq!(printable(b"\xffok\xc3"), "\\xffok\\xc3");
    }

    #[test]
    fn files_larger_than_the_buffer_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        for length in [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 5 * FIRST_BYTES] {
            std::fs::write(&path, vec![b'x'; length]).unwrap();
            assert_eq!(read(&path).unwrap().len(), length);
        }
        let endless = read(Path::new("/dev/zero")).unwrap_err();
        assert!(endless.to_string().starts_with("cannot read /dev/zero"), "{endless}");
        assert!(read(&dir.path().join("none")).unwrap_err().is_gone());
        assert!(read_if_there(&path.join("below a file")).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn printable_text_has_no_control_characters(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(!printable(&bytes).chars().any(char::is_control));
        }
    }
}
