//! Options of `hook`.

use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use trimtab_core::time::Span;
use trimtab_front::args::time;

/// Give virtual machines cores that nothing else has.
///
/// A hook of libvirt or Proxmox VE, or a follower of Incus's events. A guest that starts gets as
/// many free cores as it has vCPUs: a hold that excludes every other guest and every run of trimtab
/// on the machine, a CPU for each vCPU, and the remaining hardware threads of its cores for its
/// emulator and I/O threads. `trimtab ps` lists it by its name. The hold ends with the guest, in
/// any way. A guest that cannot have its cores starts without them, unless hook.toml beside the
/// site's rules (/etc/trimtab) requires them; then it is refused, with the reason.
///
/// The engine calls the hook with words of its own after `--`: `trimtab hook libvirt --install`
/// installs a script for that. `trimtab hook incus` runs in the foreground until it is ended. Needs
/// root.
///
/// Exit status 1 if a guest is refused, 2 if something else fails. The script passes only the
/// refusal on to the engine.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab hook libvirt --install\n  trimtab hook libvirt --explain web\n  \
    trimtab hook libvirt --write web\n  trimtab hook incus"
)]
pub struct HookArgs {
    /// The engine.
    pub engine: Engine,
    /// Install the script by which the engine calls the hook.
    #[arg(long, group = "task")]
    pub install: bool,
    /// Remove that script.
    #[arg(long, group = "task")]
    pub uninstall: bool,
    /// Say which cores a guest has, and why, or why it has none.
    #[arg(long, group = "task", value_name = "GUEST")]
    pub explain: Option<String>,
    /// Write the CPUs that a guest has, or would get now, into its domain, for all later starts.
    #[arg(long, group = "task", value_name = "GUEST")]
    pub write: Option<String>,
    /// Read the configuration, say what it means, and end.
    #[arg(long, group = "task")]
    pub check: bool,
    /// The configuration, instead of hook.toml beside the site's rules.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Longest time for one guest, since the engine waits (10s). After it the guest starts without
    /// cores of its own, or is refused.
    #[arg(long, value_name = "TIME", value_parser = time::lasting, default_value = "10s")]
    pub limit: Span,
    /// The engine's process, with which the hold ends until the guest runs; without it, the caller.
    #[arg(long, value_name = "PID")]
    pub engine_pid: Option<u32>,
    /// The engine's client, if it is not virsh or incus in PATH.
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub client: Option<OsString>,
    /// incus: end when the events end, instead of following them again.
    #[arg(long)]
    pub once: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print details too.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// The words of the engine's call.
    #[arg(last = true, value_name = "WORD", conflicts_with = "task")]
    pub words: Vec<String>,
}

/// An engine on the command line.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// libvirt: the hook `qemu.d`.
    Libvirt,
    /// Proxmox VE: the hookscript of a guest.
    Proxmox,
    /// Incus: its events.
    Incus,
}
