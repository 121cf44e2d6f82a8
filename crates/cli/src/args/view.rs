//! Options of `trimtab top`.

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
