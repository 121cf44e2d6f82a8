//! A folder for files of this process alone.

use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most names that are tried.
const NAMES_MAX: u32 = 1_000;

/// A new folder that only its user can enter, removed at the end. In a shared temporary folder a
/// file with a name that others can guess may be a link of theirs to a file of this user.
#[derive(Debug)]
pub(super) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes a folder within `parent`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn new(parent: &Path) -> Result<Self> {
        let parent = std::path::absolute(parent)?;
        let mut number = 0;
        loop {
            let path = parent.join(format!("trimtab-misses-{}-{number}", std::process::id()));
            // What exists is not used, whatever it is: a link, or another's folder.
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < NAMES_MAX => number += 1,
                made => {
                    made.with_context(|| format!("{} cannot be made", path.display()))?;
                    return Ok(Self(path));
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_exists_is_not_used_and_the_end_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let guessed = parent.path().join(format!("trimtab-misses-{}-0", std::process::id()));
        symlink(other.path(), &guessed).unwrap();
        let scratch = ScratchFolder::new(parent.path()).unwrap();
        assert_ne!(scratch.path(), guessed);
        assert_eq!(scratch.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(scratch.path().join("counts"), "1").unwrap();
        drop(scratch);
        let left: Vec<_> = parent.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [guessed]);
        assert_eq!(other.path().read_dir().unwrap().count(), 0);
        assert!(ScratchFolder::new(&parent.path().join("missing")).is_err());
    }
}
