//! Kind of a file that `trimtab report` gets, recognised by its first bytes, not by its name.
//! Records that gzip compressed are read as they are.

use super::sheet::Sheet;
use super::{of_profile, of_study, of_tuning};
use crate::field;
use crate::field::record::FieldRecord;
use crate::tune::record;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use trimtab_cli::tuning_store::Kept;
use trimtab_cli::{profile, traces};
use trimtab_core::study;
use trimtab_core::trace::Trace;

/// First bytes of a trace.
const TRACE: &str = "{\"header\":";
/// First bytes of a file that gzip compressed.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Records that have no page, by a key that only they have, and how each is shown.
const WITHOUT_PAGE: [(&str, &str); 3] = [
    (
        "\"behind_best\"",
        "this is a record of experiments/tune/measure, which prints its result; report shows the records of tune --json",
    ),
    (
        "\"whole_slow_down\"",
        "this is a record of experiments/profile/measure, whose table is in the .md file beside it; report shows the \
         records of profile --json",
    ),
    (
        "\"advised\"",
        "this is a record of experiments/advise/strong, whose table is in docs/advise.md; trimtab advise prints \
         advice, and report shows the records of profile --json",
    ),
];

/// A record that can be shown.
pub(super) enum ReportInput {
    /// A trace, which has its own page.
    Trace(Box<Trace>),
    /// Any other record.
    Sheet(Box<Sheet>),
    /// A field measurement, which also has a summary as text.
    Field(Box<FieldRecord>),
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is of an unknown kind; the message names it.
pub(super) fn read(file: &Path) -> Result<ReportInput> {
    let name = traces::name(file);
    // Standard input cannot be read twice, and pipes carry traces.
    if file.as_os_str() == "-" || !is_another(file) {
        return Ok(ReportInput::Trace(Box::new(traces::read(file)?)));
    }
    let text = crate::bench::read_text(file).with_context(|| format!("cannot read {name}"))?;
    if text.starts_with(TRACE) {
        return Ok(ReportInput::Trace(Box::new(Trace::parse(&text).with_context(|| name)?)));
    }
    if schema(&text) == Some(field::record::SCHEMA) {
        let record = FieldRecord::parse(&text).with_context(|| name)?;
        return Ok(ReportInput::Field(Box::new(record)));
    }
    Ok(ReportInput::Sheet(Box::new(sheet(&text, &name).with_context(|| name.clone())?)))
}

/// Returns whether a file is compressed, or JSON other than a trace.
fn is_another(file: &Path) -> bool {
    let mut head = [0; 4096];
    let Ok(read) = File::open(file).and_then(|mut open| open.read(&mut head)) else { return false };
    let head = &head[..read];
    let text = String::from_utf8_lossy(head);
    head.starts_with(GZIP)
        || !text.starts_with(TRACE) && (schema(&text).is_some() || text.starts_with(['{', '[']))
}

/// Returns the schema that a text names first.
fn schema(text: &str) -> Option<&str> {
    let after =
        text.split_once("\"schema\"")?.1.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    after.split('"').next()
}

fn sheet(text: &str, name: &str) -> Result<Sheet> {
    match schema(text) {
        Some(study::SCHEMA) => {
            if let Some(words) = of_benchmark(text, name) {
                bail!("{words}");
            }
            Ok(of_study::sheet(&study::read(text).context("this record of bench oversub cannot be shown")?))
        }
        Some(record::SCHEMA) => Ok(of_tuning::sheet(&record::read(text)?)),
        Some(trimtab_cli::tuning_store::SCHEMA) => Ok(of_tuning::kept_sheet(&Kept::parse(text)?)),
        Some(trimtab_cli::profile::SCHEMA) => Ok(of_profile::sheet(&profile::read(text)?)),
        Some(other) => match known_version(other) {
            Some(known) => bail!("its schema is {other}; this version of trimtab reads {known}"),
            None => bail!(
                "its schema is {:?}, which has no page{}: report shows traces, and the records of bench oversub --json, field, profile --json, tune --json and tune export",
                other.chars().take(40).collect::<String>(),
                shown_by(other)
            ),
        },
        None => match WITHOUT_PAGE.into_iter().find(|(key, _)| text.contains(key)) {
            Some((_, words)) => bail!("{words}"),
            None => bail!(
                "this is not a trimtab trace, and names no schema of another record: report shows traces, and the records of bench oversub --json, field, profile --json, tune --json and tune export"
            ),
        },
    }
}

/// Returns the schema that is read here of a record in another version; `None` for other records.
fn known_version(schema: &str) -> Option<&'static str> {
    let (name, version) = schema.rsplit_once('/')?;
    let known = [
        study::SCHEMA,
        record::SCHEMA,
        trimtab_cli::tuning_store::SCHEMA,
        trimtab_cli::profile::SCHEMA,
        field::record::SCHEMA,
    ];
    version.parse::<u32>().ok()?;
    known.into_iter().find(|known| known.rsplit_once('/').is_some_and(|(known, _)| known == name))
}

/// Returns how a record of another benchmark than `oversub` is shown.
fn of_benchmark(text: &str, name: &str) -> Option<String> {
    let bench = text.split_once("\"bench\":\"").and_then(|(_, rest)| rest.split('"').next());
    match bench? {
        "uncore" => Some(format!(
            "this is a record of bench uncore: trimtab bench uncore --from {name} --svg FILE makes its tables and its chart"
        )),
        bench @ ("balance" | "cost" | "nested" | "nodes" | "team" | "team-kernels") => Some(format!(
            "this is a record of bench {bench}, which shows its results when it measures; of benchmarks, report shows those of bench oversub"
        )),
        _ => None,
    }
}

/// Returns the command that shows records of a schema, as a part of a sentence.
fn shown_by(schema: &str) -> &'static str {
    match schema.split('/').next().unwrap_or_default() {
        "trimtab.sim" => " (trimtab sim SCENARIO --svg FILE draws the chart of a sweep)",
        "trimtab.figures" => " (trimtab sim figures --out FOLDER draws its chart)",
        "trimtab.report" => " (trimtab report TRACE makes the page of the trace itself)",
        "trimtab.advise" => " (trimtab advise prints its text)",
        "trimtab.topo" => " (trimtab topo --svg FILE draws the machine)",
        _ => "",
    }
}
