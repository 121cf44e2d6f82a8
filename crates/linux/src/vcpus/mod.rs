//! Threads that are the CPUs of a virtual machine.
//!
//! Problem: a virtual machine is one process of its host, with a thread for each of its CPUs and
//! others for everything else; the kernel marks none of them. Idea: query the best source first.
//! The monitor itself answers by QMP, with the place that each CPU has in the guest; KVM answers by
//! debugfs; many monitors name their threads; and a thread that sits in `ioctl(KVM_RUN)` on the
//! descriptor of a vCPU is that vCPU, whatever its name.
//!
//! Unit: a [`Vcpu`], identified by the number and the start time of its thread, so that a later
//! thread with the same number is not mistaken for it.
//!
//! Properties:
//! - Nothing is guessed: when no method finds a thread, [`VmError::NoVcpus`] has the answer of each
//!   method and advice.
//! - Answers are checked: a thread that a QMP socket or debugfs names counts only if it belongs to
//!   the machine's process, and the process of a socket's answer only if it belongs to the user who
//!   listens there, or if that user is root.
//! - No process can direct us to another user's socket by its own statements: a socket that a
//!   command line names is queried only if the socket and its listener belong to the process's
//!   user.
//! - All waits are short: a socket has 1.5 seconds for everything together ([`Vms::patient`]), and
//!   an answer has a maximal size.
//!
//! The names are those of QEMU 7 to 10, Firecracker, Cloud Hypervisor, crosvm and kvmtool.

mod command;
mod descriptors;
mod error;
mod kernel;
mod list;
mod names;
pub mod qmp;
mod watcher;

pub use error::{Tried, VmError};
pub use watcher::{Pulse, VcpuSnapshot, VcpuWatcher};

use crate::process::{self, Pid, StartTime, Tid};
use crate::socket::found::FoundSocket;
use crate::text;
use command::CommandLine;
use qmp::QmpError;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Designation of a virtual machine by a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VmName {
    /// The process that runs it.
    Pid(Pid),
    /// A QMP socket of QEMU.
    Socket(PathBuf),
    /// Its name: QEMU's `-name`, which is libvirt's domain; `--id` of Firecracker, `--name` of
    /// others.
    Name(String),
}

impl FromStr for VmName {
    type Err = Infallible;

    /// Parses a designation: a number is a process, a text with a slash is a socket, anything else
    /// a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.parse() {
            Ok(pid) => Self::Pid(Pid(pid)),
            Err(_) if text.contains('/') => Self::Socket(PathBuf::from(text)),
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => pid.fmt(f),
            Self::Socket(path) => f.write_str(&text::printable(path.as_os_str().as_encoded_bytes())),
            Self::Name(name) => f.write_str(&text::printable(name.as_bytes())),
        }
    }
}

/// The program that runs a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Monitor {
    /// QEMU, with KVM or without.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// kvmtool (`lkvm`).
    Kvmtool,
    /// An unknown program.
    Other,
}

impl Monitor {
    /// Returns its name, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Firecracker => "Firecracker",
            Self::CloudHypervisor => "Cloud Hypervisor",
            Self::Crosvm => "crosvm",
            Self::Kvmtool => "kvmtool",
            Self::Other => "an unknown monitor",
        }
    }
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Method by which the CPUs of a machine were found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// A query to its monitor by QMP.
    Qmp,
    /// KVM's folder in debugfs.
    Debugfs,
    /// The names of its threads.
    Names,
    /// Descriptors of vCPUs, and the threads that sit in `ioctl(KVM_RUN)` on them.
    Descriptors,
}

impl Method {
    /// Returns the source of the answer, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Qmp => "QMP",
            Self::Debugfs => "KVM's debugfs",
            Self::Names => "names of threads",
            Self::Descriptors => "descriptors of KVM",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Position of a vCPU in its guest's topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuestPlace {
    /// NUMA node, if the guest has any.
    pub node: Option<u32>,
    /// Socket.
    pub socket: Option<u32>,
    /// Core.
    pub core: Option<u32>,
    /// Hardware thread of the core.
    pub thread: Option<u32>,
}

/// A vCPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vcpu {
    /// Number in the machine, if it is certain. If one thread runs several vCPUs, the lowest.
    pub index: Option<u32>,
    /// The thread that runs it.
    pub tid: Tid,
    /// Start time of that thread.
    pub start: StartTime,
    /// Position in the guest's topology.
    pub place: GuestPlace,
    /// Method by which it was found.
    pub found: Method,
}

/// A virtual machine, with its CPUs at the time of the query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualMachine {
    /// The process that runs it.
    pub pid: Pid,
    /// Start time of that process.
    pub start: StartTime,
    /// Name of the machine; the name of its program if it has none.
    pub name: String,
    /// The program that runs it.
    pub monitor: Monitor,
    /// Its CPUs, by number.
    pub vcpus: Vec<Vcpu>,
    /// Method by which they were found.
    pub found: Method,
    /// The socket that answered, under the path by which it was named.
    pub qmp: Option<PathBuf>,
    /// User id of the listener on that socket.
    pub speaker: Option<u32>,
    /// Methods tried before, with the reasons why they failed.
    pub tried: Vec<Tried>,
}

/// A virtual machine on this host, as an entry of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its process.
    pub pid: Pid,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The program that runs it.
    pub monitor: Monitor,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().map(|name| text::printable(name.as_bytes()));
        write!(f, "{} (process {}, {})", name.as_deref().unwrap_or("without a name"), self.pid, self.monitor)
    }
}

/// Threads of a process by number, with their start times and names.
type Threads = BTreeMap<Tid, (StartTime, String)>;

/// Answer of one method; a failure has the reason.
type Answer = Result<Vec<Vcpu>, String>;

/// Source of virtual machines: the kernel's files about them.
#[derive(Clone, Debug)]
pub struct Vms {
    proc: PathBuf,
    /// KVM's folder in debugfs.
    debugfs: PathBuf,
    /// Time that a QMP socket may take for everything together.
    patience: Duration,
}

/// Default patience with a QMP socket. QEMU answers in a millisecond or two; a starting one may
/// take most of a second. Chosen.
const QMP_PATIENCE: Duration = Duration::from_millis(1_500);

impl Vms {
    /// Makes the source of the machine with its procfs mounted at `proc`; its `sys` is beside it.
    pub fn new(proc: &Path) -> Self {
        let root = proc.parent().unwrap_or(Path::new("/"));
        Self { proc: proc.to_owned(), debugfs: root.join("sys/kernel/debug/kvm"), patience: QMP_PATIENCE }
    }

    /// Sets the time for all queries to a QMP socket together.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Finds a virtual machine and its CPUs.
    ///
    /// # Errors
    /// [`VmError`]: there is none, there are several, or its CPUs cannot be determined.
    pub fn find(&self, name: &VmName) -> Result<VirtualMachine, VmError> {
        match name {
            VmName::Pid(pid) => self.find_process(*pid),
            VmName::Socket(path) => self.by_socket(path),
            VmName::Name(name) => {
                let all = self.list();
                let mut named = all.iter().filter(|vm| vm.name.as_deref() == Some(name));
                match (named.next(), named.next()) {
                    (Some(vm), None) => self.find_process(vm.pid),
                    (Some(_), Some(_)) => Err(VmError::Ambiguous {
                        name: name.clone(),
                        machines: all.iter().filter(|vm| vm.name.as_deref() == Some(name)).cloned().collect(),
                    }),
                    (None, _) if is_socket(Path::new(name)) => self.by_socket(Path::new(name)),
                    (None, _) => Err(VmError::Unknown { name: name.clone(), machines: all }),
                }
            }
        }
    }

    /// Returns the present CPUs of a machine that was found before. Only the socket that answered
    /// is queried again.
    ///
    /// # Errors
    /// As [`Vms::find`].
    pub fn again(&self, vm: &VirtualMachine) -> Result<VirtualMachine, VmError> {
        let now = self.find_at(vm.pid, vm.qmp.iter().cloned().collect(), vm.speaker)?;
        if now.start == vm.start { Ok(now) } else { Err(VmError::NoProcess(vm.pid)) }
    }

    /// Finds the machine with this QMP socket.
    fn by_socket(&self, path: &Path) -> Result<VirtualMachine, VmError> {
        let qmp = |source| VmError::Socket { path: path.to_owned(), source };
        let answer = qmp::ask(path, self.patience).map_err(qmp)?;
        let has = |pid: &Pid| {
            self.threads(*pid).is_ok_and(|threads| self.by_answer(*pid, &answer, &threads).is_ok())
        };
        // The listener; or the machine to which the listener gave its socket, as libvirt does.
        let first = answer.cpus.first().map(|cpu| Tid(cpu.thread));
        let named =
            || first.and_then(|tid| self.process_of(tid)).filter(|pid| self.may_speak_for(&answer, *pid));
        let pid = answer.peer.filter(has).or_else(named).or(answer.peer);
        self.find_with(pid.ok_or(qmp(qmp::QmpError::NoProcess))?, Some((path, &answer)))
    }

    /// Queries a socket that the machine's own command line, or an earlier caller, named. The path
    /// is not trusted.
    fn ask_untrusted(&self, pid: Pid, path: &Path, speaker: Option<u32>) -> Result<qmp::Answer, QmpError> {
        let failed = |errno: Errno| QmpError::Connect(errno.into());
        let user = process::identity(&self.proc, pid).map_err(|_| QmpError::NoProcess)?.effective;
        let found = match FoundSocket::of_process(&self.proc.join(pid.to_string()), path) {
            // Named by a process that sees other folders than the machine does.
            Err(Errno::NOENT) => FoundSocket::at(path),
            found => found,
        };
        let found = found.map_err(failed)?;
        let user = speaker.filter(|speaker| *speaker == found.owner).unwrap_or(user);
        qmp::ask_untrusted(&found, (pid, user), self.patience)
    }

    /// Returns whether a socket's answer may name this process: its listener is that process, its
    /// user, or root.
    fn may_speak_for(&self, answer: &qmp::Answer, pid: Pid) -> bool {
        let owner = process::status(&self.proc, pid).ok().map(|status| status.uid);
        answer.peer == Some(pid) || answer.user == Some(0) || (owner.is_some() && owner == answer.user)
    }

    /// Returns the process of a thread.
    fn process_of(&self, tid: Tid) -> Option<Pid> {
        let status = text::read(&self.proc.join(format!("{tid}/status"))).ok()?;
        text::field(&status, b"Tgid:").and_then(text::number).map(Pid)
    }

    /// Finds the machine that a process runs, querying the sockets of its command line first.
    fn find_process(&self, pid: Pid) -> Result<VirtualMachine, VmError> {
        let sockets = CommandLine::of(&self.proc, pid).sockets();
        let none = sockets.is_empty();
        let mut vm = self.find_at(pid, sockets, None);
        if let Err(VmError::NoVcpus { tried, .. }) = &mut vm
            && none
        {
            let why = "its command line names no socket".to_owned();
            tried.insert(0, Tried { method: Method::Qmp, why });
        }
        vm
    }

    /// Finds the machine that a process runs, querying `sockets` first if they belong to the
    /// machine's user or to `speaker`.
    fn find_at(
        &self,
        pid: Pid,
        sockets: Vec<PathBuf>,
        speaker: Option<u32>,
    ) -> Result<VirtualMachine, VmError> {
        let mut tried = Vec::new();
        for path in sockets {
            let why = match self.ask_untrusted(pid, &path, speaker) {
                Ok(answer) => match self.find_with(pid, Some((&path, &answer))) {
                    Ok(vm) if vm.found == Method::Qmp => return Ok(vm),
                    Ok(_) | Err(VmError::NoVcpus { .. }) => "it names no thread of the process".to_owned(),
                    Err(error) => return Err(error),
                },
                Err(error) => error.to_string(),
            };
            let path = text::printable(path.as_os_str().as_encoded_bytes());
            tried.push(Tried { method: Method::Qmp, why: format!("{path}: {why}") });
        }
        let mut vm = self.find_with(pid, None);
        if let Ok(VirtualMachine { tried: more, .. }) | Err(VmError::NoVcpus { tried: more, .. }) = &mut vm {
            more.splice(0..0, tried);
        }
        vm
    }

    /// Finds the machine that a process runs, by the answer of its socket, and otherwise by all
    /// other methods.
    fn find_with(&self, pid: Pid, socket: Option<(&Path, &qmp::Answer)>) -> Result<VirtualMachine, VmError> {
        let stat = process::stat(&self.proc, pid).map_err(|error| match error {
            error if error.is_gone() => VmError::NoProcess(pid),
            error => VmError::Read(error),
        })?;
        if stat.kernel_thread {
            return Err(VmError::Kernel(pid));
        }
        let threads = self.threads(pid)?;
        let command = CommandLine::of(&self.proc, pid);
        let monitor = command.monitor().unwrap_or(Monitor::Other);
        let mut tried = Vec::new();
        let by_socket = || match socket {
            Some((_, answer)) => self.by_answer(pid, answer, &threads),
            None => Ok(Vec::new()),
        };
        type Finder<'a> = (Method, &'a dyn Fn() -> Answer);
        let finders: [Finder<'_>; 4] = [
            (Method::Qmp, &by_socket),
            (Method::Debugfs, &|| kernel::find(&self.debugfs, &threads)),
            (Method::Names, &|| names::find(&threads)),
            (Method::Descriptors, &|| descriptors::find(&self.proc, pid, &threads)),
        ];
        for (method, finder) in finders {
            match finder() {
                Ok(vcpus) if vcpus.is_empty() => {}
                Ok(vcpus) => {
                    let name = command.name().unwrap_or(stat.comm);
                    let asked = socket.filter(|_| method == Method::Qmp);
                    let qmp = asked.map(|(path, _)| path.to_owned());
                    let speaker = asked.and_then(|(_, answer)| answer.user);
                    let vcpus = in_order(vcpus);
                    let start = stat.start;
                    return Ok(VirtualMachine {
                        pid,
                        start,
                        name,
                        monitor,
                        vcpus,
                        found: method,
                        qmp,
                        speaker,
                        tried,
                    });
                }
                Err(why) => tried.push(Tried { method, why }),
            }
        }
        Err(VmError::NoVcpus { pid, monitor, tried })
    }

    /// Merges the found vCPUs with those known before: a method that finds fewer than an earlier
    /// one removes no vCPU with a thread that still runs.
    fn with_living(&self, mut found: Vec<Vcpu>, before: &VirtualMachine) -> Vec<Vcpu> {
        let threads = self.threads(before.pid).unwrap_or_default();
        for vcpu in &before.vcpus {
            let lives = threads.get(&vcpu.tid).is_some_and(|(start, _)| *start == vcpu.start);
            match found.iter_mut().find(|one| one.tid == vcpu.tid && one.start == vcpu.start) {
                // Only the monitor has the guest's numbers, and an index that was certain stays
                // certain.
                Some(one)
                    if one.place == GuestPlace::default()
                        && one.index.is_none_or(|_| vcpu.index.is_some()) =>
                {
                    one.clone_from(vcpu);
                }
                Some(_) => {}
                None if lives => found.push(vcpu.clone()),
                None => {}
            }
        }
        in_order(found)
    }

    /// Returns the threads of a process.
    fn threads(&self, pid: Pid) -> Result<Threads, VmError> {
        let listed = process::threads(&self.proc, pid).map_err(|error| match error {
            error if error.is_gone() => VmError::NoProcess(pid),
            error => VmError::Read(error),
        })?;
        // Threads that end meanwhile are left out.
        let known = listed.into_iter().filter_map(|tid| {
            let stat = process::thread_stat(&self.proc, pid, tid).ok()?;
            Some((tid, (stat.start, stat.comm)))
        });
        Ok(known.collect())
    }

    /// Returns the CPUs that QMP named, as far as they are threads of the process.
    fn by_answer(&self, pid: Pid, answer: &qmp::Answer, threads: &Threads) -> Answer {
        if answer.cpus.is_empty() {
            return Err("it answers that the machine has no CPU".to_owned());
        }
        let inner = self.inner_numbers(pid, threads);
        let vcpus: Vec<Vcpu> = answer
            .cpus
            .iter()
            .filter_map(|cpu| {
                let said = Tid(cpu.thread);
                let tid = inner.get(&said).copied().unwrap_or(said);
                let (start, _) = threads.get(&tid)?;
                Some(Vcpu {
                    index: Some(cpu.index),
                    tid,
                    start: *start,
                    place: cpu.place,
                    found: Method::Qmp,
                })
            })
            .collect();
        if vcpus.is_empty() {
            return Err("it names no thread of the process".to_owned());
        }
        Ok(vcpus)
    }

    /// Returns the threads by their numbers in the innermost pid namespace, if it has its own
    /// numbers.
    fn inner_numbers(&self, pid: Pid, threads: &Threads) -> BTreeMap<Tid, Tid> {
        let inner = |tid: &Tid| {
            let status = text::read(&self.proc.join(format!("{pid}/task/{tid}/status"))).ok()?;
            let last = text::words(text::field(&status, b"NSpid:")?).last().and_then(text::number)?;
            Some((Tid(last), *tid))
        };
        threads.keys().filter_map(inner).collect()
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Sorts by number, vCPUs without a number last; keeps each thread once.
fn in_order(mut vcpus: Vec<Vcpu>) -> Vec<Vcpu> {
    vcpus.sort_by_key(|vcpu| (vcpu.index.is_none(), vcpu.index, vcpu.tid));
    let mut seen = BTreeSet::new();
    vcpus.retain(|vcpu| seen.insert(vcpu.tid));
    vcpus
}
