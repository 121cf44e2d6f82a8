//! Test for programs that have no use for this library: they start neither a thread nor a program,
//! and ask for no CPUs.
//!
//! Scripts start such programs by the hundred (`true`, `cat`, `rm`), and loading the library takes
//! some tenths of a millisecond each time. The table of strings of a program has the names of all
//! functions that it calls in other files. A program counts as idle if it needs only libraries that
//! are known to be idle, and if no name in its table contains a word of a list. A program whose
//! table has such a word by chance loads the library as before.

use super::{Elf, NAME_BYTES};

/// Libraries that start nothing by themselves. Names are compared up to the version.
const LIBRARIES: [&[u8]; 9] = [
    b"libc.so.",
    b"libm.so.",
    b"libselinux.so.",
    b"libacl.so.",
    b"libattr.so.",
    b"libcap.so.",
    b"libgmp.so.",
    b"libpcre2-8.so.",
    b"ld-linux",
];
/// Parts of the names of functions that start a thread or a program, load a library, or ask for
/// CPUs.
const WORDS: [&[u8]; 20] = [
    b"pthread_create",
    b"thrd_create",
    b"timer_create",
    b"aio_",
    b"getaddrinfo_a",
    b"mq_notify",
    b"exec",
    b"spawn",
    b"system",
    b"popen",
    b"wordexp",
    b"fork",
    b"clone",
    b"syscall",
    b"dlopen",
    b"dlmopen",
    b"affinity",
    b"cpu",
    b"nprocs",
    b"sysconf",
];
/// Longest word, in bytes.
const WORD_BYTES: usize = 14;
/// Largest table of strings that is searched, in bytes. Chosen: those of small tools have some 2
/// KiB, and a larger program gains little.
const STRINGS_BYTES_MAX: u64 = 16 << 10;
/// Bytes of the table that are read at once.
const PIECE_BYTES: usize = 512;

const DT_STRSZ: u64 = 10;

impl Elf<'_> {
    /// Returns whether the program starts nothing and asks for no CPUs; `None` if its file does not
    /// show it.
    pub(super) fn is_idle(&self) -> Option<bool> {
        let (dynamic, strings) = self.strings()?;
        let bytes = self.entries(&dynamic).find(|&(tag, _)| tag == DT_STRSZ)?.1;
        if bytes > STRINGS_BYTES_MAX || !self.needs_only(&dynamic, strings, is_idle_library) {
            return Some(false);
        }
        let (mut at, mut room) = (0, [0; PIECE_BYTES]);
        loop {
            let wanted = bytes.saturating_sub(at).min(PIECE_BYTES as u64);
            let piece = self.file.read(strings.checked_add(at)?, room.get_mut(..wanted as usize)?);
            if piece.len() as u64 != wanted {
                return None;
            }
            if has_word(piece) {
                return Some(false);
            }
            let end = at + wanted;
            if end >= bytes {
                return Some(true);
            }
            // A word may lie across the end of a piece.
            at = end - (WORD_BYTES as u64 - 1);
        }
    }
}

fn is_idle_library(name: &[u8; NAME_BYTES]) -> bool {
    LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// Words that have a byte at a position, as bits by their order in [`WORDS`].
const fn words_by_byte(position: usize) -> [u32; 256] {
    let mut words = [0; 256];
    let mut at = 0;
    while at < WORDS.len() {
        words[WORDS[at][position] as usize] |= 1 << at;
        at += 1;
    }
    words
}

/// Words by their first byte, and by their second: few positions of a table remain, so that the
/// search takes some microseconds.
static BY_FIRST: [u32; 256] = words_by_byte(0);
static BY_SECOND: [u32; 256] = words_by_byte(1);

/// Returns whether a word of the list is among the bytes.
fn has_word(bytes: &[u8]) -> bool {
    bytes.windows(2).enumerate().any(|(at, pair)| {
        let begun = BY_FIRST[usize::from(pair[0])] & BY_SECOND[usize::from(pair[1])];
        begun != 0 && WORDS.iter().any(|word| bytes[at..].starts_with(word))
    })
}

#[cfg(test)]
mod tests {
    use super::super::OpenFile;
    use super::*;
    use std::ffi::CString;

    fn is_idle(path: &str) -> Option<bool> {
        let path = CString::new(path).unwrap();
        let file = OpenFile::open(libc::AT_FDCWD, path.as_ptr()).unwrap();
        let mut head = [0; super::super::HEAD_BYTES];
        let head = file.read(0, &mut head);
        Elf { file: &file, head }.is_idle()
    }

    #[test]
    fn no_word_is_longer_than_the_overlap_of_pieces() {
        assert_eq!(WORDS.iter().map(|word| word.len()).max(), Some(WORD_BYTES));
    }

    #[test]
    fn tools_that_start_nothing_are_distinguished_from_those_that_do() {
        for (tool, idle) in
            [("cat", true), ("rm", true), ("env", false), ("nproc", false), ("sort", false), ("sh", false)]
        {
            assert_eq!(is_idle(&format!("/bin/{tool}")), Some(idle), "{tool}");
        }
    }

    #[test]
    fn a_word_is_found_wherever_it_lies() {
        for word in WORDS.iter() {
            for before in 0..40 {
                let bytes = [&vec![b'x'; before], *word, b"_x\0"].concat();
                assert!(has_word(&bytes));
                assert!(!has_word(&bytes[..before + word.len() - 1]));
            }
        }
    }
}
