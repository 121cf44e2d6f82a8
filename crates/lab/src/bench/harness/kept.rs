//! Reader of stored records, plain or compressed by gzip.

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Longest record that is read, in bytes after decompression: a hundred times the longest kept one.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// First bytes of a file that gzip compressed.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads the text of a record.
///
/// # Errors
/// The file cannot be read, is damaged, too long, or not UTF-8.
pub(crate) fn read_text(file: &Path) -> Result<String> {
    let bytes = fs::read(file)?;
    if !bytes.starts_with(&GZIP_MAGIC) {
        return String::from_utf8(bytes).context("it is not text");
    }
    let mut text = String::new();
    GzDecoder::new(bytes.as_slice()).take(RECORD_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > RECORD_BYTES_MAX {
        bail!("it is longer than {} MiB", RECORD_BYTES_MAX >> 20);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn plain_and_compressed_records_are_the_same_text() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, packed] = ["plain", "packed"].map(|name| folder.path().join(name));
        fs::write(&plain, "{}\n").unwrap();
        let mut encoder = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::default());
        encoder.write_all(b"{}\n").unwrap();
        encoder.finish().unwrap();
        assert_eq!(read_text(&plain).unwrap(), "{}\n");
        assert_eq!(read_text(&packed).unwrap(), "{}\n");
        let cut = fs::read(&packed).unwrap();
        fs::write(&packed, &cut[..cut.len() - 4]).unwrap();
        assert!(read_text(&packed).is_err());
    }
}
