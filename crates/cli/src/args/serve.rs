//! Options of the service: its start, its requests, and its agent in a virtual machine.

use super::balance::{CountingArgs, PolicyArgs, policies};
use clap::{ArgGroup, Args, ValueHint};
use std::path::PathBuf;
use trimtab_agent::metrics::Address;
use trimtab_agent::service::channel::{Channel, GuestPort};
use trimtab_core::balance::Kind;
use trimtab_core::enforce::PartitionKind;
use trimtab_core::set::CpuSet;

/// Run the service that balances tagged programs.
///
/// Runs in the foreground; packaging/trimtab.service runs it under systemd. A service of root
/// serves all users, each for their own programs. A service that you start serves your own programs
/// and needs no privilege. Threads are tagged by `trimtab tag`, by files (--declared), from inside
/// virtual machines (--guest), or because they are bound to some CPUs (--pinned). When the service
/// ends, or within milliseconds after it is killed, every thread has its own mask again. SIGTERM
/// and SIGINT end it; SIGHUP reads the files again, or ends it if its terminal was closed. `trimtab
/// untag` and `trimtab detach` take processes out of it.
#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Policy: auto, brm (threads that stall on memory try other nodes), or any other policy of
    /// `trimtab attach`.
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policies(), hide_possible_values = true)]
    pub policy: Kind,
    #[command(flatten)]
    pub settings: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Socket to listen at, instead of /run/trimtab-serve/socket for root and
    /// $XDG_RUNTIME_DIR/trimtab-serve/socket for other users.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// CPUs that threads may move to, instead of all CPUs of the machine.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Treat threads as tagged if they are bound to more than one CPU, but not to all.
    #[arg(long)]
    pub pinned: bool,
    /// Listen to the agent in a virtual machine (may be repeated). VM is the machine's name or
    /// process. The channel is unix:PATH, the socket of its port org.trimtab.0; vsock:CID:PORT, its
    /// number and a port of this host; or listen:PATH, a socket that its monitor connects to.
    #[arg(long, value_name = "VM=CHANNEL")]
    pub guest: Vec<Channel>,
    /// Tag the programs and virtual machines that the files *.toml in this folder declare, instead
    /// of serve.d in /etc/trimtab for root and in ~/.config/trimtab for other users.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub declared: Option<PathBuf>,
    /// Move no thread. The moves that would have been made, and their reasons, are printed, counted
    /// and recorded.
    #[arg(long)]
    pub observe: bool,
    /// Keep all other tasks off the CPUs of holds, and refuse holds beyond the limits of
    /// /etc/trimtab/site.toml (root, control groups of version 2, Linux 6.7). KIND is root or
    /// isolated: whether the scheduler balances load inside of a hold. With --observe, changes are
    /// only printed. Experimental: docs/guide/enforcing.md names its known faults.
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "root")]
    pub enforce: Option<PartitionKind>,
    /// Give back what a killed service with --enforce left, and end.
    #[arg(long, exclusive = true)]
    pub give_back: bool,
    /// Serve metrics to Prometheus at unix:PATH or 127.0.0.1:PORT. An address that other machines
    /// reach must be written as public:ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Address>,
    /// Record samples, decisions and actions in FILE, one line of JSON for each sample.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Print each action.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print errors only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

const SERVE_EXAMPLES: &str = "Examples:\n  trimtab serve &                        for your own programs\n  \
    trimtab tag $(pgrep solver)            let the service balance its threads\n  \
    trimtab status --why                   tags, moves, the reasons, and the cost of the service\n  \
    trimtab serve --observe                see first what it would move\n  \
    sudo trimtab serve --enforce           keep other programs off the CPUs of holds\n  \
    sudo trimtab serve --guest web=unix:/run/web-port.sock   a VM's agent says which vCPUs matter\n\n\
    Exit status: 0 if it was stopped, 2 if it cannot serve (another service runs, the socket's folder is\n\
    not safe).";

/// Threads of a request.
#[derive(Args, Debug)]
#[group(skip)]
pub struct TargetArgs {
    /// Processes with all their descendants, or single threads as PID:TID.
    #[arg(value_name = "PID[:TID]", value_parser = task)]
    pub tasks: Vec<Task>,
    /// All processes of a cgroup and of the cgroups below it: a path such as /user.slice/... or a
    /// folder of /sys/fs/cgroup.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub cgroup: Vec<PathBuf>,
    /// The vCPUs of a virtual machine, by its name or the process of its monitor; root may give its
    /// QMP socket too.
    #[arg(long, value_name = "VM")]
    pub vm: Vec<String>,
}

/// Group of arguments of which at least one must be given.
fn targets(also: Option<&'static str>) -> ArgGroup {
    ArgGroup::new("what").args(["tasks", "cgroup", "vm"]).args(also).required(true).multiple(true)
}

/// A process or a thread of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// Thread id; `None` for the whole process.
    pub tid: Option<u32>,
}

fn task(text: &str) -> Result<Task, String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|number| (1..=i32::MAX.unsigned_abs()).contains(number))
            .ok_or_else(|| format!("\"{text}\" is not a process or thread id"))
    };
    match text.split_once(':') {
        Some((pid, tid)) => Ok(Task { pid: number(pid)?, tid: Some(number(tid)?) }),
        None => Ok(Task { pid: number(text)?, tid: None }),
    }
}

/// Hand running programs to the service.
///
/// A tag lasts until it is removed or its processes have ended. Tagging twice has no further
/// effect. You may tag your own programs; root may tag all.
#[derive(Args, Debug)]
#[command(after_help = TAG_EXAMPLES, group = targets(None))]
pub struct TagArgs {
    #[command(flatten)]
    pub what: TargetArgs,
    /// Treat the threads as one program with all others that you tag under this name.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Socket of the service, instead of the usual ones.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
}

const TAG_EXAMPLES: &str = "Examples:\n  trimtab tag 4711                       process 4711 and its children\n  \
    trimtab tag 4711:4713                  one thread of it\n  \
    trimtab tag --cgroup /system.slice/solver.service\n  \
    trimtab tag --vm web                   the vCPUs of a virtual machine\n\n\
    Exit status: 0 if everything is tagged, 2 if not (no service, another user's process, no such process).";

/// Take programs back from the service.
///
/// Removes tags; the threads get their own masks back. The tags of a process's threads go with the
/// process, and the tags that a VM's agent made go with the VM.
#[derive(Args, Debug)]
#[command(after_help = UNTAG_STATUS, group = targets(Some("all")))]
pub struct UntagArgs {
    #[command(flatten)]
    pub what: TargetArgs,
    /// All your tags.
    #[arg(long, conflicts_with_all = ["tasks", "cgroup", "vm"])]
    pub all: bool,
    /// Socket of the service, instead of the usual ones.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
}

const UNTAG_STATUS: &str = "Exit status: 0 if the tags are gone, or never existed; 2 if they could not be removed (no service,\n\
    another user's).";

/// Have the service read its files of declared tags again.
///
/// Prints the declarations that came and went. If a file cannot be used, all tags stay as they
/// were, and the error names the file and the line. Only root and the service's own user may ask
/// for it.
#[derive(Args, Debug)]
#[command(after_help = RELOAD_STATUS)]
pub struct ReloadArgs {
    /// Socket of the service, instead of the usual ones.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
}

const RELOAD_STATUS: &str =
    "Exit status: 0 if the files are in use, 2 if not (no service, a file that cannot be used).";

/// Show what the service balances, and its cost.
///
/// You see your own tags, and the number of the others; root and the service's own user see all.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Show the last decision about each tag's threads, its reason, or why nothing is done.
    /// JSON has this always.
    #[arg(long)]
    pub why: bool,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Socket of the service, instead of the usual ones.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
}

/// Tell the host, from inside a VM, which vCPUs run bound tasks.
///
/// The speed of a task that is bound to some CPUs depends on the place of these CPUs. The agent
/// reads at intervals on which vCPU each such task runs, and writes `tag vcpu N` and `clear vcpu N`
/// to a virtio-serial port or a vsock, at which `trimtab serve --guest` listens on the host. The
/// agent needs write access to the port and no other privilege.
#[derive(Args, Debug)]
#[command(after_help = GUEST_AGENT_EXAMPLES)]
pub struct GuestAgentArgs {
    /// Port: a device, or vsock:CID:PORT (the host is CID 2).
    #[arg(long, value_name = "PORT", default_value = "/dev/virtio-ports/org.trimtab.0")]
    pub port: GuestPort,
    /// Time between two scans: 500ms, 5s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::time::interval)]
    pub interval: trimtab_core::time::Span,
    /// Stop after N scans.
    #[arg(long = "scans", alias = "looks", value_name = "N")]
    pub scans: Option<u64>,
    /// Print each message to the host.
    #[arg(short, long)]
    pub verbose: bool,
}

const GUEST_AGENT_EXAMPLES: &str = "On the host, for QEMU:\n  \
    -device virtio-serial -chardev socket,id=trimtab,path=/run/web-port.sock,server=on,wait=off\n  \
    -device virtserialport,chardev=trimtab,name=org.trimtab.0\n  \
    trimtab serve --guest web=unix:/run/web-port.sock\n\n\
    or by vsock, with trimtab guest-agent --port vsock:2:7000 in the guest:\n  \
    -device vhost-vsock-pci,guest-cid=3\n  \
    trimtab serve --guest web=vsock:3:7000\n\n\
    for Firecracker and Cloud Hypervisor, whose vsock is a Unix socket /run/web.vsock of the host:\n  \
    trimtab serve --guest web=listen:/run/web.vsock_7000\n\n\
    Exit status: 0 if it was stopped, 2 if there is no such port.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_or_refused() {
        assert_eq!(task("7:8"), Ok(Task { pid: 7, tid: Some(8) }));
        assert_eq!(task("7"), Ok(Task { pid: 7, tid: None }));
        for bad in ["", "0", "-1", "7:", ":7", "7:0", "7:8:9", "4294967295"] {
            assert!(task(bad).is_err(), "{bad}");
        }
    }
}
