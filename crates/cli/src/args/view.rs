//! Options of `trimtab top` and `trimtab report`.

use super::time;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use trimtab_agent::targets::vm_name;
use trimtab_core::time::Span;
use trimtab_linux::vcpus::VmName;

/// Show live how threads run.
///
/// Shows speed, core, migrations, waiting and balance of each thread, and the load of the machine.
/// With process ids, shows these programs and all their descendants; otherwise the programs that
/// hold cores, and your own busiest ones. Nothing is changed, and no privilege is needed. The key ?
/// shows the other keys.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab top                      programs that hold cores, and busy programs\n  \
    trimtab top 4242                 the program of process 4242\n  \
    trimtab top --once | less        one sample, as text\n  \
    trimtab top --replay run.trace   a recorded run, in the same view\n\n\
    Exit status: 0 if you leave it, 2 if there is nothing to show, or no terminal."
)]
pub struct TopArgs {
    /// Processes to show, with all their descendants.
    #[arg(value_name = "PID", conflicts_with = "replay")]
    pub pids: Vec<u32>,
    /// The vCPUs of a virtual machine, by its name, its process or its QMP socket.
    #[arg(long, value_name = "NAME|PID|QMP-SOCKET", value_parser = vm_name, conflicts_with = "replay")]
    pub vm: Vec<VmName>,
    /// Show a recorded run: a trace that --trace wrote.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub replay: Option<PathBuf>,
    /// Time between two samples: 100ms, 1s, 2.5s.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time::picture)]
    pub interval: Span,
    /// Print one sample as text and end; also for pipes. With --json, as JSON.
    #[arg(long)]
    pub once: bool,
    /// Print one sample as JSON and end (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Turn a trace, a profile or a study into a page.
///
/// A record is a trace, or the output of bench oversub --json, profile --json, tune --json or tune
/// export; its content says which. Without options, the page is written beside the record, with the
/// ending .html. The page is one file and loads nothing from a network. A trace can also become a
/// file for Perfetto, or JSON. A trace that a crash cut off can be read.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  trimtab report run.trace                        writes run.html\n  \
    trimtab report run.trace --chrome run.json      for https://ui.perfetto.dev\n  \
    trimtab report run.trace --json | jq '.programs[0].balance'\n  \
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
