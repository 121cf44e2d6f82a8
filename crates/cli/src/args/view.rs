//! What can be typed to see programs: `top` and `report`.

use super::time;
use clap::Args;
use std::path::PathBuf;
use trimtab_agent::targets::vm_name;
use trimtab_core::time::Span;
use trimtab_linux::vcpus::VmName;

/// Show how threads run now: speed, core, migrations, waiting, balance; and what of the machine is taken.
///
/// Watches the programs of these processes, with all that they start; without any, the programs that hold cores and your
/// own busiest ones. Nothing is touched, no privilege is needed. ? shows the keys.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab top                      what holds cores, and what keeps them busy\n  \
    trimtab top 4242                 the program of process 4242\n  \
    trimtab top --once | less        one look, as text\n  \
    trimtab top --replay run.trace   a recorded run, in the same view\n\n\
    Exit status: 0 when you leave it, 2 when there is nothing to show or no terminal to show it on."
)]
pub struct TopArgs {
    /// Processes to watch, each with all that it starts.
    #[arg(value_name = "PID", conflicts_with = "replay")]
    pub pids: Vec<u32>,
    /// The CPUs of a virtual machine, by its name, its process or its QMP socket.
    #[arg(long, value_name = "NAME|PID|QMP-SOCKET", value_parser = vm_name, conflicts_with = "replay")]
    pub vm: Vec<VmName>,
    /// Show a recorded run: the trace that --trace wrote.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Time between two looks: 100ms, 1s, 2.5s.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time::picture)]
    pub interval: Span,
    /// Print one look as text and end: also for pipes; with --json as that.
    #[arg(long)]
    pub once: bool,
    /// Print one look as JSON and end (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Show what a record says: a page for any browser; of a trace also a file for Perfetto, or JSON.
///
/// A record is a trace, or what bench oversub --json, profile --json, tune --json or profiles export wrote: what it is is seen by what is in it.
/// Without options the page is written beside it, with the ending .html. It holds all it needs and asks nothing of any
/// network. A trace that a crash cut off is fine.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  trimtab report run.trace                        writes run.html\n  \
    trimtab report run.trace --chrome run.json      for https://ui.perfetto.dev\n  \
    trimtab report run.trace --json | jq '.programs[0].balance'\n  \
    trimtab report study.jsonl                      tables that can be sorted, and pictures\n\n\
    Exit status: 0 done, 2 when the record cannot be read or a file cannot be written.")]
pub struct ReportArgs {
    /// The record; - for a trace on standard input.
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Where to write the page; - for standard output.
    #[arg(short, long, value_name = "FILE.html", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Write Chrome trace events, which Perfetto opens; - for standard output.
    #[arg(long, value_name = "FILE.json")]
    pub chrome: Option<PathBuf>,
    /// Print as JSON (schema in docs/json.md) instead of a page.
    #[arg(long)]
    pub json: bool,
}
