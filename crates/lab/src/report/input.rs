//! Kind of a file that `trimtab report` gets, recognised by its first bytes, not by its name.

use super::sheet::Sheet;
use super::{of_profile, of_study, of_tuning};
use crate::tune::record;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use trimtab_cli::tuning_store::Kept;
use trimtab_cli::{profile, traces};
use trimtab_core::study;
use trimtab_core::trace::Trace;

/// Records other than traces are far smaller; this bounds the cost of a wrong file.
const BYTES_MAX: u64 = 256 << 20;
/// First bytes of a trace.
const TRACE: &[u8] = b"{\"header\":";

/// A record that can be shown.
pub(super) enum ReportInput {
    /// A trace, which has its own page.
    Trace(Box<Trace>),
    /// Any other record.
    Sheet(Box<Sheet>),
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is of an unknown kind; the message names it.
pub(super) fn read(file: &Path) -> Result<ReportInput> {
    // Standard input cannot be read twice, and pipes carry traces.
    if file.as_os_str() == "-" || !is_another(file) {
        return Ok(ReportInput::Trace(Box::new(traces::read(file)?)));
    }
    let name = traces::name(file);
    let mut text = String::new();
    let open = File::open(file).with_context(|| format!("cannot read {name}"))?;
    open.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{name} is larger than {} MiB", BYTES_MAX >> 20);
    }
    Ok(ReportInput::Sheet(Box::new(sheet(&text).with_context(|| name)?)))
}

/// Returns whether a file names the schema of another kind of record.
fn is_another(file: &Path) -> bool {
    let mut head = [0; 4096];
    let Ok(read) = File::open(file).and_then(|mut open| open.read(&mut head)) else { return false };
    let head = &head[..read];
    !head.starts_with(TRACE) && schema(&String::from_utf8_lossy(head)).is_some()
}

/// Returns the schema that a text names first.
fn schema(text: &str) -> Option<&str> {
    let after =
        text.split_once("\"schema\"")?.1.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    after.split('"').next()
}

fn sheet(text: &str) -> Result<Sheet> {
    match schema(text) {
        Some(study::SCHEMA) => {
            Ok(of_study::sheet(&study::read(text).context("only the records of bench oversub can be shown")?))
        }
        Some(record::SCHEMA) => Ok(of_tuning::sheet(&record::read(text)?)),
        Some(trimtab_cli::tuning_store::SCHEMA) => Ok(of_tuning::kept_sheet(&Kept::parse(text)?)),
        Some(trimtab_cli::profile::SCHEMA) => Ok(of_profile::sheet(&profile::read(text)?)),
        other => bail!(
            "its schema is {:?}: report shows traces, and the records of bench oversub --json, profile --json, tune --json and tune export",
            other.unwrap_or_default().chars().take(40).collect::<String>()
        ),
    }
}
