//! Search of a file for a word.

use std::fs::File;
use std::io::Read;
use std::path::Path;

const CHUNK_BYTES: usize = 1 << 16;

/// Returns whether `word` occurs and begins in the first `bytes` bytes of a file; `None` if
/// unknown: the file is longer or cannot be read.
pub(super) fn mentions(path: &Path, word: &[u8], bytes: usize) -> Option<bool> {
    let mut file = File::open(path).ok()?;
    let finder = memchr::memmem::Finder::new(word);
    let mut buffer = vec![0; CHUNK_BYTES + word.len()];
    let (mut kept, mut seen) = (0, 0);
    loop {
        let read = file.read(&mut buffer[kept..]).ok()?;
        if read == 0 {
            return Some(false);
        }
        let end = kept + read;
        if finder.find(&buffer[..end]).is_some() {
            return Some(true);
        }
        seen += read;
        if seen > bytes {
            return None;
        }
        // A word may lie across two chunks.
        kept = end.min(word.len().saturating_sub(1));
        buffer.copy_within(end - kept..end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_at_every_position() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        for at in [0, 1, CHUNK_BYTES - 3, CHUNK_BYTES, CHUNK_BYTES + 3, 3 * CHUNK_BYTES] {
            let mut bytes = vec![b'x'; at];
            bytes.extend(b"a word");
            bytes.extend(vec![b'x'; 10]);
            std::fs::write(path, &bytes).unwrap();
            assert_eq!(mentions(path, b"a word", 1 << 20), Some(true), "{at}");
            assert_eq!(mentions(path, b"another", 1 << 20), Some(false), "{at}");
        }
        assert_eq!(mentions(path, b"another", 1000), None, "the file is longer");
        assert_eq!(mentions(Path::new("/nowhere"), b"x", 1), None);
    }
}
