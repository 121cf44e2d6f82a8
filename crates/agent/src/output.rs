//! Files written for the user: which may be overwritten, and how a whole file replaces an earlier
//! one.
//!
//! Problem: a wrong name on the command line (`--trace ./app ./app`) must not destroy that file,
//! and a file that cannot be written must be reported before a long run, not after it. Idea: an
//! existing file is overwritten only if it is empty or, by its first bytes, an earlier one of the
//! same kind. A file that is written at the end is opened at the beginning.
//!
//! Properties: any other file is refused and stays unchanged. Devices and pipes are written to
//! directly. A file that was made for a run that then did not begin is removed. A reader of a file
//! that [`replace`] writes sees the earlier one or the whole new one.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Kind of output, recognised by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputKind {
    /// A trace.
    Trace,
    /// The report after a run, as text or as JSON.
    Report,
    /// The page of `trimtab report`.
    Page,
    /// Measurements of a program, as text or as JSON.
    Profile,
    /// Chrome trace events.
    Chrome,
    /// A picture, SVG.
    Picture,
    /// The results of `trimtab field`, plain or compressed.
    Field,
}

/// Comment in the head of a compressed file of [`OutputKind::Field`].
pub const FIELD_MARK: &str = "trimtab field";
/// First bytes of a file that gzip compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a file that are read to determine its kind.
const HEAD_BYTES: u64 = 512;

impl OutputKind {
    /// Returns the words for a file that is not of this kind, with the article.
    fn what(self) -> &'static str {
        match self {
            Self::Trace => "not a trace",
            Self::Report => "not a report of trimtab",
            Self::Profile => "not a profile of trimtab",
            Self::Page => "not a page of trimtab report",
            Self::Chrome => "not a file of trimtab report --chrome",
            Self::Picture => "not a picture of trimtab",
            Self::Field => "not a file of trimtab field",
        }
    }

    fn is_begun_by(self, head: &[u8]) -> bool {
        let begins = |text: &str| head.starts_with(text.as_bytes());
        match self {
            Self::Trace => begins("{\"header\":{\"trimtab-trace\":"),
            Self::Report => begins("trimtab: ") || begins("{\"schema\":\"trimtab.audit/"),
            Self::Profile => begins("profile: ") || begins("{\"schema\":\"trimtab.profile/"),
            Self::Page => {
                let mark = b"<meta name=\"generator\" content=\"trimtab report\">";
                begins("<!doctype html>") && head.windows(mark.len()).any(|part| part == mark)
            }
            Self::Picture => begins("<svg xmlns=\"http://www.w3.org/2000/svg\""),
            Self::Field => {
                let packed = head.windows(FIELD_MARK.len()).any(|part| part == FIELD_MARK.as_bytes());
                begins("{\"schema\":\"trimtab.field/") || head.starts_with(&GZIP) && packed
            }
            Self::Chrome => begins("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"command\":"),
        }
    }
}

/// Refuses to overwrite a file of another kind; `name` is the user's name for it, such as
/// `--trace FILE`.
///
/// # Errors
/// It is a folder, or a file that would be lost.
pub fn spare(name: &str, path: &Path, kind: OutputKind) -> Result<()> {
    if path.as_os_str().is_empty() {
        bail!("{name}: no file is named");
    }
    // A missing file cannot be lost; a file without metadata fails when it is opened.
    let Ok(meta) = fs::metadata(path) else { return Ok(()) };
    let what = meta.file_type();
    if what.is_dir() {
        bail!("{name}: it is a folder");
    }
    if what.is_block_device() || what.is_socket() {
        bail!("{name}: it is not a file");
    }
    if !what.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.with_context(|| {
        format!("{name}: the file exists, and cannot be read to check whether it may be overwritten")
    })?;
    if kind.is_begun_by(&head) {
        return Ok(());
    }
    bail!("{name}: the file exists, is {}, and would be lost: name another, or remove it first", kind.what());
}

/// File that is open for writing, with its name.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
    /// Device and inode of the file, if it was not there before.
    made: Option<(u64, u64)>,
    /// Process that opened the file. A forked child that fails does not remove its parent's file.
    owner: u32,
}

impl Claim {
    /// Opens a file that may be overwritten, at its end; its content stays for now. `mode` is
    /// the mode of a new file.
    ///
    /// # Errors
    /// As [`spare`], or the file cannot be written.
    pub fn open(name: &str, path: &Path, kind: OutputKind, mode: u32) -> Result<Self> {
        spare(name, path, kind)?;
        let mut options = OpenOptions::new();
        options.append(true).mode(mode);
        let (file, made) = match options.clone().create_new(true).open(path) {
            Ok(file) => (Ok(file), true),
            // Also a link that leads to no file yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (options.create(true).open(path), false)
            }
            Err(error) => (Err(error), false),
        };
        let file = file.with_context(|| format!("{name}: cannot write there"))?;
        let made = if made { file.metadata().ok().as_ref().map(identity) } else { None };
        Ok(Self { file, path: path.to_owned(), made, owner: std::process::id() })
    }

    /// Tests whether the file can be written, as far as an empty write shows it: some devices
    /// report it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn probe(&mut self) -> io::Result<()> {
        self.file.write(&[]).map(drop)
    }

    /// The file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the length, if the file has one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn cut(&self, length: u64) -> io::Result<()> {
        let is_file = self.file.metadata().is_ok_and(|meta| meta.is_file());
        if is_file { self.file.set_len(length) } else { Ok(()) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let unused = |meta: &Metadata| Some(identity(meta)) == self.made && meta.len() == 0;
        if self.owner == std::process::id()
            && fs::symlink_metadata(&self.path).is_ok_and(|meta| unused(&meta))
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Writes a whole file under another name beside it, and renames it when it is complete. Devices
/// and pipes are written to directly, and so is a file in whose folder no other can be made.
///
/// # Errors
/// It cannot be written.
pub fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // The file itself, not the link to it.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = match OpenOptions::new().write(true).open(&path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let there = before.as_ref().map(File::metadata).transpose()?;
    let draft = match &there {
        Some(meta) if !meta.is_file() => None,
        _ => draft(&path, there.as_ref().map_or(0o666, |meta| meta.mode() & 0o777)),
    };
    let Some((name, file)) = draft else {
        drop(before);
        return written(File::create(&path)?, fill);
    };
    written(file, fill).and_then(|()| fs::rename(&name, &path)).inspect_err(|_| {
        let _ = fs::remove_file(&name);
    })
}

/// Makes a new file beside this one.
fn draft(path: &Path, mode: u32) -> Option<(PathBuf, File)> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}", std::process::id()));
    let name = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&name).ok()?;
    Some((name, file))
}

fn written(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginning of a page of `trimtab report`.
    const PAGE: &str = "<!doctype html>\n<meta name=\"generator\" content=\"trimtab report\">";

    #[test]
    fn only_nothing_and_its_own_kind_may_be_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let kinds = [
            OutputKind::Trace,
            OutputKind::Report,
            OutputKind::Page,
            OutputKind::Chrome,
            OutputKind::Picture,
            OutputKind::Field,
        ];
        for kind in kinds {
            assert!(spare("x", &path, kind).is_ok(), "not there");
        }
        for (text, own) in [
            ("", &kinds[..]),
            ("{\"header\":{\"trimtab-trace\":1,", &[OutputKind::Trace]),
            ("trimtab: 1.0 s", &[OutputKind::Report]),
            ("{\"schema\":\"trimtab.audit/1\"}", &[OutputKind::Report]),
            (PAGE, &[OutputKind::Page]),
            ("<!doctype html>\n<html>", &[]),
            ("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"command\":\"x\"", &[OutputKind::Chrome]),
            ("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\"/>", &[OutputKind::Picture]),
            ("{\"schema\":\"trimtab.field/1\",", &[OutputKind::Field]),
            ("\u{1f}trimtab field", &[]),
            ("\x7fELF", &[]),
            ("results", &[]),
        ] {
            fs::write(&path, text).unwrap();
            for kind in kinds {
                let spared = spare("--x y", &path, kind).map_err(|error| error.to_string());
                assert_eq!(spared.is_ok(), own.contains(&kind), "{text:?} {kind:?}");
                assert!(spared.is_ok() || spared.unwrap_err().contains("--x y: the file exists, is not a "));
            }
        }
        assert!(
            spare("x", dir.path(), OutputKind::Page).is_err()
                && spare("x", Path::new(""), OutputKind::Page).is_err()
        );
    }

    #[test]
    fn a_claim_that_was_not_used_leaves_nothing_and_one_that_was_leaves_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        drop(Claim::open("x", &path, OutputKind::Report, 0o600).unwrap());
        assert!(!path.exists());
        let mut claim = Claim::open("x", &path, OutputKind::Report, 0o600).unwrap();
        claim.file().write_all(b"trimtab: ").unwrap();
        drop(claim);
        assert_eq!(fs::read(&path).unwrap(), b"trimtab: ");
        drop(Claim::open("x", &path, OutputKind::Report, 0o600).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"trimtab: ", "what was there stays");
        fs::write(&path, "").unwrap();
        drop(Claim::open("x", &path, OutputKind::Report, 0o600).unwrap());
        assert!(path.exists(), "an empty file that was there stays");
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&path, "before").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let fails = replace(&link, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!((fails.is_err(), fs::read(&path).unwrap()), (true, b"before".to_vec()));
        replace(&link, |out| out.write_all(b"after")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
        assert!(replace(Path::new("/dev/full"), |out| out.write_all(b"x")).is_err());
        replace(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        assert!(replace(dir.path(), |out| out.write_all(b"x")).is_err());
    }
}
