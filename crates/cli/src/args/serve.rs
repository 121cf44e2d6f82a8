//! What can be typed about the service: to start it, to ask it, and to speak to it from inside a guest.

use super::balance::{CountingArgs, PolicyArgs, policies};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use trimtab_agent::service::channel::{Channel, GuestPort};
use trimtab_core::balance::Kind;
use trimtab_core::set::CpuSet;

/// Balance all threads of the machine that are tagged, until it is stopped.
///
/// Runs in the foreground; packaging/trimtab.service runs it for systemd. Started by root it serves everybody, each for what is theirs;
/// started by you it serves your own programs without privilege. Threads are tagged by `trimtab tag`, from inside guests (--guest), or
/// because they were bound to some CPUs (--pinned). When it ends every thread has its own mask again, also within moments when it is
/// killed. SIGTERM and SIGINT end it; SIGHUP does so only when its terminal was closed. `trimtab detach` takes processes out of it.
#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The policy: brm (threads that stall on memory try other nodes), or any other of `trimtab attach`.
    #[arg(long, value_name = "POLICY", default_value = "brm", value_parser = policies(), hide_possible_values = true)]
    pub policy: Kind,
    #[command(flatten)]
    pub settings: PolicyArgs,
    #[command(flatten)]
    pub counting: CountingArgs,
    /// Where to listen, instead of /run/trimtab-serve/socket for root and $XDG_RUNTIME_DIR/trimtab-serve/socket for others.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The CPUs that threads may be moved to, instead of all of the machine.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Take threads as tagged that somebody bound to some CPUs, more than one and not all.
    #[arg(long)]
    pub pinned: bool,
    /// Listen to a guest (may be repeated). VM is the machine's name or process. It is heard at unix:PATH, the socket of its port
    /// org.trimtab.0; at vsock:CID:PORT, where CID is its number and PORT one of ours; or at listen:PATH, where its monitor calls for it.
    #[arg(long, value_name = "VM=WAY")]
    pub guest: Vec<Channel>,
    /// Record what is seen, decided and done in FILE, one line of JSON a look.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Say what is done.
    #[arg(short, long)]
    pub verbose: bool,
    /// Say nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

const SERVE_EXAMPLES: &str = "Examples:\n  trimtab serve &                        for your own programs\n  \
    trimtab tag $(pgrep solver)            have its threads looked after\n  \
    trimtab status                         what is tagged, moved, and what that costs\n  \
    sudo trimtab serve --guest web=unix:/run/web-port.sock   guests say which of their CPUs mind\n\n\
    Exit status: 0 when it was stopped, 2 when it cannot serve (another daemon runs, the place is not fit).";

/// What is meant.
#[derive(Args, Debug)]
#[group(skip)]
pub struct WhatArgs {
    /// Processes with all that comes from them, or single threads as PID:TID.
    #[arg(value_name = "PID[:TID]", value_parser = task)]
    pub tasks: Vec<Task>,
    /// All processes of a control group, and of those below it: a path such as /user.slice/… or a folder of /sys/fs/cgroup.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// The CPUs of a virtual machine, by its name or the process of its monitor; root may name its QMP socket too.
    #[arg(long, value_name = "VM")]
    pub vm: Vec<String>,
}

/// Something must be meant: one of these, or several.
fn meant(also: Option<&'static str>) -> ArgGroup {
    ArgGroup::new("what").args(["tasks", "cgroup", "vm"]).args(also).required(true).multiple(true)
}

/// A process or a thread of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: Option<u32>,
}

fn task(text: &str) -> Result<Task, String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|number| (1..=i32::MAX.unsigned_abs()).contains(number))
            .ok_or_else(|| format!("\"{text}\" is no number of a process or thread"))
    };
    match text.split_once(':') {
        Some((pid, tid)) => Ok(Task { pid: number(pid)?, tid: Some(number(tid)?) }),
        None => Ok(Task { pid: number(text)?, tid: None }),
    }
}

/// Have threads looked after by the service: say that they mind where they run.
///
/// A tag lasts until it is cleared or what it names has ended. To tag again changes nothing. You may tag what is yours; root may tag
/// everything.
#[derive(Args, Debug)]
#[command(after_help = TAG_EXAMPLES, group = meant(None))]
pub struct TagArgs {
    #[command(flatten)]
    pub what: WhatArgs,
    /// As one program with all others that you tag under this name.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Where the service listens, instead of the usual places.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

const TAG_EXAMPLES: &str = "Examples:\n  trimtab tag 4711                       process 4711 and all it starts\n  \
    trimtab tag 4711:4713                  one thread of it\n  \
    trimtab tag --cgroup /system.slice/solver.service\n  \
    trimtab tag --vm web                   the CPUs of a virtual machine\n\n\
    Exit status: 0 when all is tagged, 2 when something could not be (no daemon, not yours, no such process).";

/// End what `trimtab tag` began: the threads get their own masks back.
///
/// With a process go tags of its threads, with a virtual machine what its guest tagged.
#[derive(Args, Debug)]
#[command(after_help = CLEAR_STATUS, group = meant(Some("all")))]
pub struct ClearArgs {
    #[command(flatten)]
    pub what: WhatArgs,
    /// All that you tagged.
    #[arg(long, conflicts_with_all = ["tasks", "cgroup", "vm"])]
    pub all: bool,
    /// Where the service listens, instead of the usual places.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

const CLEAR_STATUS: &str = "Exit status: 0 when nothing of yours is tagged any more, also if nothing was; 2 when it could not be\n\
    cleared (no daemon, another user's).";

/// Show what the service does: what is tagged and by whom, moves, and what it costs.
///
/// You see your own tags and how many others there are; root and the service's own user see all.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Where the service listens, instead of the usual places.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Inside a guest: tell the host which CPUs run tasks that somebody bound.
///
/// A task that may run on some CPUs only minds where they are. This looks now and then on which CPU each such task is, and writes
/// `tag vcpu N` and `clear vcpu N` to a virtio-serial port or a vsock, at which the host's `trimtab serve --guest` listens. Needs no
/// privilege but to write to the port.
#[derive(Args, Debug)]
#[command(after_help = GUEST_EXAMPLES)]
pub struct GuestArgs {
    /// The port: a device, or vsock:CID:PORT (the host is CID 2).
    #[arg(long, value_name = "PORT", default_value = "/dev/virtio-ports/org.trimtab.0")]
    pub port: GuestPort,
    /// The time between two looks: 500ms, 5s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::time::interval)]
    pub interval: trimtab_core::time::Span,
    /// Stop after so many looks.
    #[arg(long, value_name = "N")]
    pub looks: Option<u64>,
    /// Say what is told.
    #[arg(short, long)]
    pub verbose: bool,
}

const GUEST_EXAMPLES: &str = "On the host, for QEMU:\n  \
    -device virtio-serial -chardev socket,id=trimtab,path=/run/web-port.sock,server=on,wait=off\n  \
    -device virtserialport,chardev=trimtab,name=org.trimtab.0\n  \
    trimtab serve --guest web=unix:/run/web-port.sock\n\n\
    or by vsock, with trimtab guest --port vsock:2:7000 in the guest:\n  \
    -device vhost-vsock-pci,guest-cid=3\n  \
    trimtab serve --guest web=vsock:3:7000\n\n\
    for Firecracker and Cloud Hypervisor, whose vsock is a Unix socket /run/web.vsock of the host:\n  \
    trimtab serve --guest web=listen:/run/web.vsock_7000\n\n\
    Exit status: 0 when it was stopped, 2 when there is no such port.";

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
