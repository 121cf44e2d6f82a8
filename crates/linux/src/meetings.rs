//! Page file in which preload libraries count barriers and collectives: made by the parent, opened
//! by its children, freed at the end of the parent.
//!
//! The file has no name in any folder, so nothing is left behind. Children open it as a descriptor
//! of their parent. This works as long as the parent lives, and also through programs that close
//! the descriptors they inherit.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use trimtab_core::sync_stats::{self, BYTES, HEADER, MAGIC, ROW, ROWS, SyncStats, header};

/// The page file.
#[derive(Debug)]
pub struct PageFile(File);

impl PageFile {
    /// Creates a file without counts.
    ///
    /// # Errors
    /// The kernel gives no memory or no descriptor.
    pub fn create() -> io::Result<Self> {
        let file = File::from(memfd_create("trimtab-meetings", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, BYTES as u64)?;
        file.write_all_at(&MAGIC.to_ne_bytes(), 8 * header::MAGIC as u64)?;
        Ok(Self(file))
    }

    /// Returns the path for the shim's environment variable.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Returns the counts so far; `None` if they cannot be read.
    pub fn read(&self) -> Option<SyncStats> {
        // Most programs use few of the rows.
        let mut next = [0; 8];
        self.0.read_exact_at(&mut next, 8 * header::NEXT_ROW as u64).ok()?;
        let rows = usize::try_from(u64::from_ne_bytes(next)).unwrap_or(ROWS).min(ROWS);
        let mut bytes = vec![0; 8 * (HEADER + ROW * rows)];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        sync_stats::read(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_page_file_says_that_nothing_was_counted_and_is_found_by_its_path() {
        let file = PageFile::create().unwrap();
        assert_eq!(file.read(), Some(SyncStats::default()));
        let same = File::options().read(true).write(true).open(file.path()).unwrap();
        same.write_all_at(&3u64.to_ne_bytes(), 8 * header::GUEST_COUNT as u64).unwrap();
        assert_eq!(file.read().map(|met| met.guests), Some(3));
        same.write_all_at(&[0; 8], 0).unwrap();
        assert_eq!(file.read(), None);
    }
}
