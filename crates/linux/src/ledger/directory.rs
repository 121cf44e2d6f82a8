//! Open directory: names are resolved from it, and its entries can be listed.
//!
//! A start lists the directory of the ledger once. The descriptor from which names are resolved
//! serves for that list, so that the directory is not opened again.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory that is open. A parent that is renamed does not redirect it.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    descriptor: OwnedFd,
    /// Whether the descriptor can be read, and stands at the beginning of the list.
    is_unread: AtomicBool,
}

/// A descriptor that stands at the beginning of a directory's list.
#[derive(Debug)]
pub(crate) enum ListDescriptor<'a> {
    /// The directory's own.
    Own(BorrowedFd<'a>),
    /// Another one of the same directory.
    Another(OwnedFd),
}

impl OpenDirectory {
    /// Opens a directory, with these flags beside those that each directory needs. One that this
    /// process may enter and not list is opened for names alone.
    pub(crate) fn open(path: &Path, flags: OFlags) -> Result<Self, Errno> {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (opened, is_unread) = match openat(CWD, path, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => (openat(CWD, path, flags | OFlags::PATH, Mode::empty()), false),
            opened => (opened, true),
        };
        Ok(Self { descriptor: opened?, is_unread: AtomicBool::new(is_unread) })
    }

    /// Returns a descriptor for a list of the entries: the directory's own for the first list, and
    /// a new one for each later one, since a list moves the position of its descriptor.
    pub(crate) fn list(&self) -> Result<ListDescriptor<'_>, Errno> {
        if self.is_unread.swap(false, Ordering::Relaxed) {
            return Ok(ListDescriptor::Own(self.descriptor.as_fd()));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.descriptor, ".", flags, Mode::empty()).map(ListDescriptor::Another)
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsFd for ListDescriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(descriptor) => *descriptor,
            Self::Another(descriptor) => descriptor.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{RawDir, statat};
    use std::collections::BTreeSet;
    use std::fs;
    use std::mem::MaybeUninit;
    use std::os::unix::fs::symlink;

    fn names(directory: &OpenDirectory) -> BTreeSet<String> {
        let list = directory.list().unwrap();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(list.as_fd(), &mut buffer);
        let mut names = BTreeSet::new();
        while let Some(entry) = entries.next() {
            names.insert(entry.unwrap().file_name().to_str().unwrap().to_owned());
        }
        names
    }

    #[test]
    fn each_list_has_all_names_also_those_made_since_the_list_before() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "").unwrap();
        let directory = OpenDirectory::open(root.path(), OFlags::empty()).unwrap();
        assert_eq!(names(&directory), [".", "..", "a"].map(str::to_owned).into());
        fs::write(root.path().join("b"), "").unwrap();
        for _ in 0..2 {
            assert_eq!(names(&directory), [".", "..", "a", "b"].map(str::to_owned).into());
        }
    }

    #[test]
    fn names_are_resolved_in_the_same_directory_after_a_rename() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        fs::create_dir(&old).unwrap();
        fs::write(old.join("a"), "").unwrap();
        let directory = OpenDirectory::open(&old, OFlags::empty()).unwrap();
        fs::rename(&old, &new).unwrap();
        fs::create_dir(&old).unwrap();
        assert!(statat(&directory, "a", rustix::fs::AtFlags::empty()).is_ok());
        assert!(names(&directory).contains("a"));
        symlink(&new, root.path().join("link")).unwrap();
        let link = root.path().join("link");
        assert!(OpenDirectory::open(&link, OFlags::empty()).is_ok());
        assert!(OpenDirectory::open(&link, OFlags::NOFOLLOW).is_err());
    }
}
