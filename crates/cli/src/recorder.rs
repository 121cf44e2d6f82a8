//! A trace on disk, line by line.
//!
//! Each line is handed to the kernel whole, in one call, so that a crash of ours loses none that was written. A disk that
//! fills up ends the trace and nothing else: that is said once, what was written of the last line is taken away again, and
//! the program goes on.

use anyhow::{Context, anyhow};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trimtab_core::drive::Step;
use trimtab_core::trace::{End, Header, Line, StepRecord};

/// A trace under way.
#[derive(Debug)]
pub struct Recorder {
    to: To,
    /// Bytes of whole lines.
    written: u64,
    ended: bool,
}

#[derive(Debug)]
enum To {
    File(File, PathBuf),
    Stdout,
}

impl Recorder {
    /// Opens a file, which is emptied when the header comes: of a run that does not begin, an earlier trace is left.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn open(path: &Path) -> Result<Self, anyhow::Error> {
        let name = path.display();
        if path.as_os_str().is_empty() {
            return Err(anyhow!("--trace: no file is named"));
        }
        if path.is_dir() {
            return Err(anyhow!("--trace {name}: it is a folder"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("--trace {name}: cannot write there"))?;
        let kind = file.metadata().map(|meta| meta.file_type());
        if kind.is_ok_and(|kind| kind.is_block_device() || kind.is_socket()) {
            return Err(anyhow!("--trace {name}: it is no file"));
        }
        Ok(Self { to: To::File(file, path.to_owned()), written: 0, ended: false })
    }

    /// Standard output.
    pub fn stdout() -> Self {
        Self { to: To::Stdout, written: 0, ended: false }
    }

    /// The first line. What to say if that fails.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn begin(&mut self, header: Header) -> Result<(), String> {
        if let To::File(file, _) = &self.to
            && file.metadata().is_ok_and(|meta| meta.is_file())
            && let Err(error) = file.set_len(0)
        {
            return Err(self.over(&error));
        }
        self.line(Line::Header(Box::new(header)).encode())
    }

    /// A step.
    ///
    /// # Errors
    /// What to say, once, when it cannot be written; later lines are dropped in silence.
    pub fn step(&mut self, step: &Step<'_>) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        self.line(Line::encode_step(step))
    }

    /// A step of a replay.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn again(&mut self, step: &StepRecord) -> Result<(), String> {
        self.line(Line::Step(Box::new(step.clone())).encode())
    }

    /// The last line.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn end(&mut self, why: &str, status: Option<u8>) -> Result<(), String> {
        self.line(Line::End(End { why: why.to_owned(), status }).encode())
    }

    /// Whether the lines were all that somebody wanted, and nobody reads them any more.
    pub fn is_unread(&self) -> bool {
        self.ended && matches!(self.to, To::Stdout)
    }

    fn line(&mut self, mut text: String) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        text.push('\n');
        let done = match &mut self.to {
            To::File(file, _) => file.write_all(text.as_bytes()),
            To::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
        };
        match done {
            Ok(()) => {
                self.written += text.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.ended = true;
                Ok(())
            }
            Err(error) => Err(self.over(&error)),
        }
    }

    /// Gives up.
    fn over(&mut self, error: &io::Error) -> String {
        self.ended = true;
        let name = match &self.to {
            To::File(file, path) => {
                if file.metadata().is_ok_and(|meta| meta.is_file()) {
                    // A line without its end would be read as cut off, and this one is not worth a word to the reader.
                    let _ = file.set_len(self.written);
                }
                path.display().to_string()
            }
            To::Stdout => "standard output".to_owned(),
        };
        format!("the trace ends here: {name} cannot be written ({error})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_trace_is_refused_before_anything_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Recorder::open(dir.path()).unwrap_err().to_string().contains("it is a folder"));
        let lost = dir.path().join("no/such.jsonl");
        assert!(format!("{:#}", Recorder::open(&lost).unwrap_err()).contains("cannot write there"));
        assert!(Recorder::open(Path::new("")).is_err());
    }

    #[test]
    fn a_full_disk_is_said_once() {
        let Ok(mut recorder) = Recorder::open(Path::new("/dev/full")) else { return };
        assert!(recorder.end("x", None).unwrap_err().contains("the trace ends here: /dev/full"));
        assert_eq!(recorder.end("x", None), Ok(()));
        assert!(!recorder.is_unread());
    }

    #[test]
    fn an_earlier_trace_stays_until_the_header_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, "earlier\n").unwrap();
        let mut recorder = Recorder::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier\n");
        recorder.end("done", Some(3)).unwrap();
        assert!(
            std::fs::read_to_string(&path).unwrap().ends_with("{\"end\":{\"why\":\"done\",\"status\":3}}\n")
        );
    }
}
