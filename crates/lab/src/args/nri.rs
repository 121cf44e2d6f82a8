//! Options of `nri`.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use trimtab_agent::metrics::Address;
use trimtab_nri::serve::SOCKET;

/// Give containers of Kubernetes cores that nothing else has.
///
/// A plug-in for NRI, the Node Resource Interface of containerd and CRI-O. A pod with the
/// annotation `trimtab.io/cores: "2"` gets two free cores for each of its containers: a list of
/// CPUs, the variables for thread counts where they are needed, and a hold that excludes every
/// other container and every run of trimtab on the machine. A container that cannot have its cores
/// is refused, with the reason in the pod's events; the kubelet tries again.
///
/// Runs in the foreground until it is ended, and connects again when the runtime was restarted. The
/// holds last until their containers end, also if this process is killed. Needs root. The
/// configuration is nri.toml beside the site's rules (/etc/trimtab).
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab nri\n  trimtab nri --config ./nri.toml --metrics 127.0.0.1:9756\n  trimtab nri --check"
)]
pub struct NriArgs {
    /// The runtime's socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
    /// Position among the runtime's plug-ins: two digits.
    #[arg(long, value_name = "NN", default_value = "50")]
    pub index: String,
    /// The configuration, instead of nri.toml beside the site's rules.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Offer figures for Prometheus at this address: a loopback address with a port, or unix:PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Address>,
    /// End with the first connection, instead of connecting again.
    #[arg(long)]
    pub once: bool,
    /// Read the configuration, say what it means, and end.
    #[arg(long)]
    pub check: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print details too.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
}
