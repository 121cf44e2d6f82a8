//! Jobserver of a run ([`trimtab_core::jobserver`]), across the two processes of the run: the one
//! that becomes the program fills the pipe, and its parent keeps the tokens up.

use crate::narrator::Narrator;
use crate::spawn::spawn;
use anyhow::{Context, Result};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use trimtab_core::jobserver::Form;
use trimtab_core::jobserver::upkeep::{Sample, Upkeep, interval};
use trimtab_core::time::Span;
use trimtab_linux::child::{Child, End};
use trimtab_linux::jobserver::{Taker, TokenPipe, computing};
use trimtab_linux::process::Pid;

/// Jobserver of a run, made before the run becomes two processes.
#[derive(Debug)]
pub struct Jobserver {
    pipe: TokenPipe,
    /// Tells the parent that the tokens are in the pipe.
    word: (PipeReader, PipeWriter),
}

impl Jobserver {
    /// Creates a jobserver without tokens.
    ///
    /// # Errors
    /// The kernel gives no descriptors.
    pub fn create() -> io::Result<Self> {
        Ok(Self { pipe: TokenPipe::create()?, word: io::pipe()? })
    }

    /// Puts the tokens into the pipe, hands it to the program that this process becomes, and
    /// returns the text that names it to build tools.
    ///
    /// # Errors
    /// No descriptor is left, or the pipe cannot be written.
    pub fn hand_over(&self, tokens: u32, form: Form) -> io::Result<String> {
        let auth = self.pipe.hand_over(form)?;
        self.pipe.add(tokens)?;
        // A parent that was killed corrects nothing, and the program runs without it.
        let _ = (&self.word.1).write_all(&tokens.to_le_bytes());
        Ok(auth)
    }

    /// Keeps the tokens up from another thread of the parent, until this process ends.
    pub fn keep_up(self, proc: PathBuf, program: Pid, narrator: &Arc<dyn Narrator>) {
        let Self { pipe, word: (reader, writer) } = self;
        // Else a program that never begins is waited for.
        drop(writer);
        let kept = pipe.taker().context("cannot open the pipe again").and_then(|taker| {
            spawn("jobserver", move || {
                if let Some(tokens) = announced(reader) {
                    let _ = keep_up(&pipe, &taker, tokens, &proc, program);
                }
            })
        });
        if let Err(error) = kept {
            narrator.warning(&format!("lost tokens of the jobserver are not replaced: {error:#}"));
        }
    }
}

/// Returns the number of tokens that the program began with; `None` if it did not begin.
fn announced(mut word: PipeReader) -> Option<u32> {
    let mut bytes = [0; 4];
    word.read_exact(&mut bytes).ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// Samples and corrects until the pipe fails.
fn keep_up(pipe: &TokenPipe, taker: &Taker, tokens: u32, proc: &Path, program: Pid) -> io::Result<()> {
    let mut upkeep = Upkeep::new(tokens + 1);
    let mut taken = 0;
    loop {
        let begin = Instant::now();
        let unclaimed = pipe.unclaimed()?;
        let computing = if upkeep.counts(unclaimed) { computing(proc, program) } else { None };
        let change = upkeep.turn(Sample { unclaimed, computing, taken });
        pipe.add(change.add)?;
        let pause = interval(Span::from(begin.elapsed())).into();
        let begin = Instant::now();
        taken = if change.take > 0 { taker.take(change.take, pause) } else { 0 };
        std::thread::sleep(pause.saturating_sub(begin.elapsed()));
    }
}

/// Stays as the parent of a program that nothing else observes, and returns how it ended.
///
/// # Errors
/// The kernel does not let us wait for it.
pub fn stay(mut child: Child) -> Result<End> {
    let attended = child.attend(|| ());
    attended.and_then(|()| child.collect()).context("cannot wait for the program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_announced_once_they_are_in_the_pipe_and_not_by_a_program_that_never_began() {
        let jobserver = Jobserver::create().unwrap();
        let auth = jobserver.hand_over(3, Form::Fifo).unwrap();
        assert!(auth.starts_with(&format!("fifo:/proc/{}/fd/", std::process::id())), "{auth}");
        assert_eq!(jobserver.pipe.unclaimed().unwrap(), 3);
        assert_eq!(announced(jobserver.word.0), Some(3));
        let (reader, writer) = Jobserver::create().unwrap().word;
        drop(writer);
        assert_eq!(announced(reader), None);
    }
}
