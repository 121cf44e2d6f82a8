//! What a file is that `trimtab report` is given: told by what it begins with, not by its name.

use super::sheet::Sheet;
use super::{of_profile, of_study, of_tuning};
use crate::commands::tune::lines;
use crate::kept::Kept;
use crate::{profile, traces};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use trimtab_core::study;
use trimtab_core::trace::Trace;

/// Records that are no traces are far below this; it bounds what a mistaken file costs.
const BYTES_MAX: u64 = 256 << 20;
/// Traces begin so.
const TRACE: &[u8] = b"{\"header\":";

/// What can be shown.
pub(super) enum Record {
    /// A trace, which has a page of its own.
    Trace(Box<Trace>),
    /// Anything else, as a sheet.
    Sheet(Box<Sheet>),
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is none of what is known; the message names it.
pub(super) fn read(file: &Path) -> Result<Record> {
    // Standard input cannot be looked at twice; traces are what comes through pipes.
    if file.as_os_str() == "-" || !is_another(file) {
        return Ok(Record::Trace(Box::new(traces::read(file)?)));
    }
    let name = traces::name(file);
    let mut text = String::new();
    let open = File::open(file).with_context(|| format!("cannot read {name}"))?;
    open.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{name} is larger than {} MiB", BYTES_MAX >> 20);
    }
    Ok(Record::Sheet(Box::new(sheet(&text).with_context(|| name)?)))
}

/// Whether a file says of itself that it is a record of another kind than a trace.
fn is_another(file: &Path) -> bool {
    let mut head = [0; 4096];
    let Ok(read) = File::open(file).and_then(|mut open| open.read(&mut head)) else { return false };
    let head = &head[..read];
    !head.starts_with(TRACE) && schema(&String::from_utf8_lossy(head)).is_some()
}

/// The schema that a text names first.
fn schema(text: &str) -> Option<&str> {
    let after =
        text.split_once("\"schema\"")?.1.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    after.split('"').next()
}

fn sheet(text: &str) -> Result<Sheet> {
    match schema(text) {
        Some(study::SCHEMA) => Ok(of_study::sheet(
            &study::read(text).context("of all benchmarks bench oversub's records alone are shown")?,
        )),
        Some(lines::SCHEMA) => Ok(of_tuning::sheet(&lines::read(text)?)),
        Some(crate::kept::SCHEMA) => Ok(of_tuning::kept_sheet(&Kept::parse(text)?)),
        Some(crate::profile::SCHEMA) => Ok(of_profile::sheet(&profile::read(text)?)),
        other => bail!(
            "it says that it is {:?}: what can be shown are traces, and what bench oversub --json, profile --json, tune --json and profiles export write",
            other.unwrap_or_default().chars().take(40).collect::<String>()
        ),
    }
}
