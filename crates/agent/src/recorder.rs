//! Trace on disk, written line by line.
//!
//! Each line is passed to the kernel whole, in one call, so that a crash of this process loses no
//! written line. A full disk ends the trace and nothing else: one message is given, the part of the
//! last line is removed, and the program continues.

use crate::output::{Claim, OutputKind};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use trimtab_core::drive::Step;
use trimtab_core::trace::{End, Header, Line, StepRecord};

/// Trace being written.
#[derive(Debug)]
pub struct Recorder {
    to: TraceOutput,
    /// Bytes of whole lines.
    written: u64,
    ended: bool,
    /// Reason why standard output could not be written.
    fault: Option<String>,
}

/// Target of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceTarget {
    /// This file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

#[derive(Debug)]
enum TraceOutput {
    File(Claim),
    Stdout,
}

impl Recorder {
    /// Opens the file that an option names. The file is emptied when the header is written: if the
    /// run does not begin, an earlier trace is kept, and no new file is left. All lines are written
    /// in place, so that a crash leaves the lines recorded before it.
    ///
    /// # Errors
    /// It cannot be written to, or it is a file other than a trace.
    pub fn open(option: &str, path: &Path) -> Result<Self, anyhow::Error> {
        let claim = Claim::open(&format!("{option} {}", path.display()), path, OutputKind::Trace, 0o600)?;
        Ok(Self { to: TraceOutput::File(claim), written: 0, ended: false, fault: None })
    }

    /// Opens the target that an option names.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub fn to(option: &str, target: &TraceTarget) -> Result<Self, anyhow::Error> {
        match target {
            TraceTarget::File(path) => Self::open(option, path),
            TraceTarget::Stdout => Ok(Self::stdout()),
        }
    }

    /// Records on standard output.
    pub fn stdout() -> Self {
        Self { to: TraceOutput::Stdout, written: 0, ended: false, fault: None }
    }

    /// Writes the first line.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn begin(&mut self, header: Header) -> Result<(), String> {
        if let TraceOutput::File(claim) = &self.to
            && let Err(error) = claim.cut(0)
        {
            return self.over(&error);
        }
        self.line(Line::Header(Box::new(header)).encode())
    }

    /// Writes a step.
    ///
    /// # Errors
    /// The message for the user, once, if it cannot be written; later lines are dropped without a
    /// message.
    pub fn step(&mut self, step: &Step<'_>) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        self.line(Line::encode_step(step))
    }

    /// Writes a step of a replay.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn again(&mut self, step: &StepRecord) -> Result<(), String> {
        self.line(Line::Step(Box::new(step.clone())).encode())
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// As [`Recorder::step`].
    pub fn end(&mut self, why: &str, status: Option<u8>) -> Result<(), String> {
        self.line(Line::End(End { why: why.to_owned(), status }).encode())
    }

    /// Returns whether the lines were the only output, and their reader has closed it.
    pub fn is_unread(&self) -> bool {
        self.ended && matches!(self.to, TraceOutput::Stdout)
    }

    /// Returns why the requested lines could not be written to standard output. This is the failure
    /// of the command, not a warning.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn line(&mut self, mut text: String) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        text.push('\n');
        let done = match &mut self.to {
            TraceOutput::File(claim) => claim.file().write_all(text.as_bytes()),
            TraceOutput::Stdout => {
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
            Err(error) => self.over(&error),
        }
    }

    /// Ends the trace after an error.
    fn over(&mut self, error: &io::Error) -> Result<(), String> {
        self.ended = true;
        match &self.to {
            TraceOutput::File(claim) => {
                // A partial line would make the trace incomplete, and a reader cannot use it.
                let _ = claim.cut(self.written);
                let name = claim.path().display();
                Err(format!("the trace ends here: {name} cannot be written ({error})"))
            }
            TraceOutput::Stdout => {
                self.fault = Some(format!("standard output cannot be written ({error})"));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Recorder, anyhow::Error> {
        Recorder::open("--to", path)
    }

    #[test]
    fn an_impossible_trace_file_is_refused_before_the_program_starts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open(dir.path()).unwrap_err().to_string().contains("--to "));
        let lost = dir.path().join("no/such.jsonl");
        assert!(format!("{:#}", open(&lost).unwrap_err()).contains("cannot write there"));
        assert!(open(Path::new("")).is_err());
    }

    #[test]
    fn a_full_disk_is_said_once() {
        let Ok(mut recorder) = open(Path::new("/dev/full")) else { return };
        assert!(recorder.end("x", None).unwrap_err().contains("the trace ends here: /dev/full"));
        assert_eq!(recorder.end("x", None), Ok(()));
        assert!(!recorder.is_unread() && recorder.fault().is_none());
    }

    #[test]
    fn an_earlier_trace_stays_until_the_header_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let earlier = "{\"header\":{\"trimtab-trace\":1}}\n";
        std::fs::write(&path, earlier).unwrap();
        let mut recorder = open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), earlier);
        recorder.end("done", Some(3)).unwrap();
        assert!(
            std::fs::read_to_string(&path).unwrap().ends_with("{\"end\":{\"why\":\"done\",\"status\":3}}\n")
        );
    }
}
