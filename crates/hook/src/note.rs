//! Explanations of guests: a file for each guest, which tells the last decision about it. Engines
//! show what a hook prints only when it fails.

use crate::engine::HookEngine;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder below the root of the file system. Only root can make a folder there.
const FOLDER: &str = "run/trimtab-hook";
/// Longest explanation that is read.
const NOTE_MAX: u64 = 1 << 20;

/// Returns the file of a guest.
pub fn file(root: &Path, engine: HookEngine, name: &str) -> PathBuf {
    root.join(FOLDER).join(engine.id(name))
}

/// Replaces the explanation of a guest.
///
/// # Errors
/// The file cannot be written.
pub fn keep(root: &Path, engine: HookEngine, name: &str, lines: &[String]) -> io::Result<()> {
    let path = file(root, engine, name);
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    let new = path.with_file_name(format!(".{}.{}", std::process::id(), engine.word()));
    let mut text = lines.join("\n");
    text.push('\n');
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, &path)
}

/// Adds lines to the explanation of a guest.
///
/// # Errors
/// The file cannot be read or written.
pub fn add(root: &Path, engine: HookEngine, name: &str, lines: &[String]) -> io::Result<()> {
    let mut all: Vec<String> =
        read(root, engine, name)?.unwrap_or_default().lines().map(str::to_owned).collect();
    all.extend_from_slice(lines);
    keep(root, engine, name, &all)
}

/// Reads the explanation of a guest; `None` if there is none.
///
/// # Errors
/// The file cannot be read.
pub fn read(root: &Path, engine: HookEngine, name: &str) -> io::Result<Option<String>> {
    let file = match fs::File::open(file(root, engine, name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(NOTE_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_replaced_and_extended() {
        let root = tempfile::tempdir().unwrap();
        let (root, engine) = (root.path(), HookEngine::Libvirt);
        assert_eq!(read(root, engine, "a b").unwrap(), None);
        keep(root, engine, "a b", &["one".to_owned()]).unwrap();
        add(root, engine, "a b", &["two".to_owned()]).unwrap();
        assert_eq!(read(root, engine, "a b").unwrap().as_deref(), Some("one\ntwo\n"));
        keep(root, engine, "a b", &["three".to_owned()]).unwrap();
        assert_eq!(read(root, engine, "a b").unwrap().as_deref(), Some("three\n"));
        assert_eq!(read(root, HookEngine::Proxmox, "a b").unwrap(), None);
    }
}
