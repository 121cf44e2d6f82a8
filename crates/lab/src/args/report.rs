//! Options of `trimtab report`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Turn a trace, a profile or a study into a page.
///
/// A record is a trace, or the output of bench oversub --json, field, profile --json, tune --json
/// or tune export; its content says which. A file that gzip compressed is read as it is. Without
/// options, the page is written beside the record, with the ending .html. The page is one file and
/// loads nothing from a network. A trace can also become a file for Perfetto, or JSON. A trace that
/// a crash cut off can be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  trimtab report run.trace                        writes run.html\n  \
    trimtab report run.trace --chrome run.json      for https://ui.perfetto.dev\n  \
    trimtab report run.trace --json | jq '.programs[0].balance'\n  \
    trimtab report trimtab-field.json               also prints a summary\n  \
    trimtab report study.jsonl                      tables that can be sorted, and charts\n\n\
    Exit status: 0 if done, 2 if the record cannot be read or a file cannot be written.")]
pub struct ReportArgs {
    /// The record; - for a trace on standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: PathBuf,
    /// File of the page; - for standard output.
    #[arg(short, long, value_name = "FILE.html", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Write Chrome trace events, which Perfetto opens; - for standard output.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    pub chrome: Option<PathBuf>,
    /// Print as JSON (schema in docs/json.md) instead of a page.
    #[arg(long)]
    pub json: bool,
}
