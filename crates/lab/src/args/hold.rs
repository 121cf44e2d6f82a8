//! Options of the commands that hold cores, change a hold and end one.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::time::Span;
use trimtab_front::args::SurveyMode;
use trimtab_front::args::time::{self, Wait};
use trimtab_hold::select::HoldName;

/// Hold cores for a program that is already running.
///
/// With --pid, reserves cores for a process, binds all its threads and the processes that it
/// started to them, and returns. The hold lasts until the process ends, in any way. With --cgroup,
/// the same for the processes of a control group (version 2), until it is empty. A small process,
/// the keeper, has the hold meanwhile.
///
/// With neither, holds cores until it is interrupted, or for the time of --for.
///
/// Prints the CPUs. To start a program on free cores, use trimtab run.
///
/// Exit status 124 if there are not enough free cores now, or not in time, 125 if they can never be
/// held, 2 for another failure.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab hold -c 4 --pid 4711\n  trimtab hold -c 2xl3 --cgroup /sys/fs/cgroup/batch \
    --wait=10m\n  trimtab hold -c 4 --for 10m --json"
)]
pub struct HoldArgs {
    /// Number of cores, in all forms of `trimtab run -c`: 4, 50%, 2xl3, node.
    #[arg(short, long, value_name = "EXPR")]
    pub cores: String,
    /// Hold them for this process.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Hold them for the processes of this control group, by its folder.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "pid")]
    pub cgroup: Option<PathBuf>,
    /// Give them back after this time (30s, 10m, 2h).
    #[arg(long = "for", value_name = "TIME", value_parser = time::lasting, conflicts_with_all = ["pid", "cgroup"])]
    pub lasting: Option<Span>,
    /// Choose among these CPUs only, in all forms of `trimtab run --cpus`.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Choose cores near a device, in all forms of `trimtab run --near`.
    #[arg(long, value_name = "DEVICE")]
    pub near: Option<String>,
    /// Layout and memory: smt=all strategy=scatter.
    #[arg(long, value_name = "SETTING")]
    pub set: Vec<String>,
    /// Accept fewer cores than requested.
    #[arg(long)]
    pub or_fewer: bool,
    /// Wait for enough free cores; give up after TIME (30s, 10m, 2h) if it is given.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "forever",
          value_parser = time::wait)]
    pub wait: Option<Wait>,
    /// Position among the runs that wait, as for `trimtab run --priority`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(-100..=100),
          allow_negative_numbers = true, requires = "wait")]
    pub priority: Option<i32>,
    /// Name in `trimtab ps`, instead of the process's.
    #[arg(long, value_name = "TEXT", conflicts_with = "cgroup")]
    pub label: Option<String>,
    /// How to measure the load of other programs: auto, full or none.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub survey: SurveyMode,
    /// Ignore site and rules files.
    #[arg(long)]
    pub no_rules: bool,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Refused: a program is started by `trimtab run`.
    #[arg(trailing_var_arg = true, hide = true)]
    pub command: Vec<OsString>,
}

/// Change the number of cores of a run or a hold.
///
/// Grows by free cores near those that it has, or gives cores back. All threads of its programs get
/// new masks; a thread that its program bound to a part of the hold stays there, as long as that
/// part is left. The ledger comes first when a hold grows, the masks first when it shrinks, so that
/// no core is ever held twice.
///
/// Its user and root may do it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  trimtab resize 4711 -c 6\n  trimtab resize 0x1f3a27 -c 1 --json")]
pub struct ResizeArgs {
    /// A process of the hold, or the hold's number (0x..., from `trimtab ps --json`).
    #[arg(value_name = "PID|HOLD")]
    pub hold: HoldName,
    /// Number of cores that the hold shall have.
    #[arg(short, long, value_name = "N")]
    pub cores: usize,
    /// How to measure the load of other programs: auto, full or none.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub survey: SurveyMode,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// End a hold of `trimtab hold`.
///
/// The threads of its target get the masks back that they had before, and its cores are free. The
/// hold of a program that `trimtab run` started ends with that program.
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    /// The process for which the cores are held, or the hold's number (0x..., from `trimtab ps
    /// --json`).
    #[arg(value_name = "PID|HOLD")]
    pub hold: HoldName,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}
