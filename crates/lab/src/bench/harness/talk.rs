//! A conversation with `uncore_lists`: it says which threads it has, and sleeps until a line opens a window.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use trimtab_linux::process::{Pid, Tid};

/// The program, spoken with through its standard input and output. Gone when it is dropped.
#[derive(Debug)]
pub(in crate::bench) struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talk {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub(in crate::bench) fn start(words: &[OsString]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot speak with {}", words[0].display());
        };
        Ok(Self { child, to: Some(to), from: BufReader::new(from) })
    }

    /// Its process.
    pub(in crate::bench) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The same, to be ended by a signal.
    pub(in crate::bench) fn child(&self) -> &Child {
        &self.child
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).context("cannot read what it says")?;
        if !line.ends_with('\n') {
            bail!("it ended too early");
        }
        Ok(line)
    }

    /// Its threads, as soon as all are ready.
    ///
    /// # Errors
    /// It does not, or says something else.
    pub(in crate::bench) fn threads(&mut self) -> Result<Vec<Tid>> {
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let tids: Option<Vec<Tid>> = words
            .next()
            .filter(|word| *word == "threads")
            .and_then(|_| words.map(|word| word.parse().ok().map(Tid)).collect());
        match tids {
            Some(tids) if !tids.is_empty() => Ok(tids),
            _ => bail!("it does not say which threads it has: {:?}", line.trim_end()),
        }
    }

    /// Opens a window, or lets it end.
    ///
    /// # Errors
    /// It does not, or says something else.
    pub(in crate::bench) fn open(&mut self) -> Result<()> {
        let to = self.to.as_mut().context("it is not listening")?;
        to.write_all(b"\n").and_then(|()| to.flush()).context("it does not listen")
    }

    /// The report of a window: the line about all threads.
    ///
    /// # Errors
    /// It does not, or says something else.
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

    /// Lets it end.
    ///
    /// # Errors
    /// It does not, or says something else.
    pub(in crate::bench) fn end(mut self) -> Result<()> {
        drop(self.to.take());
        let status = self.child.wait().context("cannot wait for it")?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    }

    /// Stops it; what it said on standard error.
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
        // It may have ended by itself; either way nothing is left to do about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
