//! Conversation with `uncore_lists`: the program names its threads, and sleeps until a line of
//! input opens a window.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use trimtab_linux::process::{Pid, Tid};

/// The program, with its standard input and output. It is killed on drop.
#[derive(Debug)]
pub(in crate::bench) struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talk {
    /// Starts the program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in crate::bench) fn start(words: &[OsString]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot open pipes to {}", words[0].display());
        };
        Ok(Self { child, to: Some(to), from: BufReader::new(from) })
    }

    /// Process id of the program.
    pub(in crate::bench) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The child process, for signals.
    pub(in crate::bench) fn child(&self) -> &Child {
        &self.child
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).context("cannot read its output")?;
        if !line.ends_with('\n') {
            bail!("it ended too early");
        }
        Ok(line)
    }

    /// Returns the program's threads as soon as all are ready.
    ///
    /// # Errors
    /// The program ended, or printed something else.
    pub(in crate::bench) fn threads(&mut self) -> Result<Vec<Tid>> {
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let tids: Option<Vec<Tid>> = words
            .next()
            .filter(|word| *word == "threads")
            .and_then(|_| words.map(|word| word.parse().ok().map(Tid)).collect());
        match tids {
            Some(tids) if !tids.is_empty() => Ok(tids),
            _ => bail!("it does not name its threads: {:?}", line.trim_end()),
        }
    }

    /// Sends the line of input that opens a window.
    ///
    /// # Errors
    /// The program does not read its input any more.
    pub(in crate::bench) fn open(&mut self) -> Result<()> {
        let to = self.to.as_mut().context("its input is closed")?;
        to.write_all(b"\n").and_then(|()| to.flush()).context("it does not read its input")
    }

    /// Returns the report of a window: the line about all threads.
    ///
    /// # Errors
    /// The program ended, printed something else, or its result is wrong.
    pub(in crate::bench) fn report(&mut self) -> Result<Value> {
        loop {
            let line = self.line()?;
            let report: Value = serde_json::from_str(&line)
                .with_context(|| format!("its report is not JSON: {:?}", line.trim_end()))?;
            match &report["verified"] {
                Value::Null => {}
                Value::Bool(true) => return Ok(report),
                _ => bail!("its result is wrong"),
            }
        }
    }

    /// Ends the program, and waits for it.
    ///
    /// # Errors
    /// The program failed.
    pub(in crate::bench) fn end(mut self) -> Result<()> {
        drop(self.to.take());
        let status = self.child.wait().context("cannot wait for the program")?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    }

    /// Stops the program, and returns its standard error.
    pub(in crate::bench) fn stop(&mut self) -> String {
        drop(self.to.take());
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(mut from) = self.child.stderr.take() {
            let _ = from.read_to_string(&mut said);
        }
        let _ = self.child.wait();
        said
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // The program may have ended by itself; either way there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
