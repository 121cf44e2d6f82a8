//! Which threads are the CPUs of a virtual machine.
//!
//! Problem: a virtual machine is one process of its host, with a thread for each of its CPUs and others for everything else; the
//! kernel marks none of them. Idea: ask whoever knows best first. The monitor itself tells by QMP, with the place that each CPU has
//! in the guest; KVM tells by debugfs; many monitors name their threads; and a thread that sits in `ioctl(KVM_RUN)` on the descriptor
//! of a virtual CPU is that CPU, whatever it is called.
//!
//! Unit: a [`Vcpu`], known by the number and the start of its thread, so that a later thread with the number is not taken for it.
//!
//! Properties:
//! - Nothing is guessed: when no way finds a thread, [`VmError::NoVcpus`] says what each answered, and what would help.
//! - What others say is checked: a thread that a QMP socket or debugfs names counts only where it belongs to the machine's process,
//!   and the process of a socket's answer only where it belongs to the user who listens there, or that is root.
//! - Nobody is sent anywhere by what a process says of itself: a socket that a command line names is asked only where the socket, and whoever
//!   listens there, is the process's user's.
//! - Nothing waits for long: a socket has a second and a half for everything together ([`Vms::patient`]), and an answer has a greatest size.
//!
//! The names are those of QEMU 7 to 10, Firecracker, Cloud Hypervisor, crosvm and kvmtool.

mod command;
mod descriptors;
mod error;
mod kernel;
mod list;
mod lookout;
mod names;
pub mod qmp;

pub use error::{Tried, VmError};
pub use lookout::{Lookout, Pulse, Seen};

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

/// How a virtual machine is named by people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VmName {
    /// The process that runs it.
    Pid(Pid),
    /// A QMP socket of QEMU's.
    Socket(PathBuf),
    /// Its name: QEMU's `-name`, which is libvirt's domain; `--id` of Firecracker, `--name` of others.
    Name(String),
}

impl FromStr for VmName {
    type Err = Infallible;

    /// A number is a process, what has a slash is a socket, anything else a name.
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
    /// One that is not known here.
    Other,
}

impl Monitor {
    /// Its name, for people.
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

/// How the CPUs of a machine were found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// Its monitor was asked, by QMP.
    Qmp,
    /// KVM's folder in debugfs.
    Debugfs,
    /// The names of its threads.
    Names,
    /// Descriptors of virtual CPUs, and who sits in `ioctl(KVM_RUN)` on them.
    Descriptors,
}

impl Method {
    /// What was asked, for people.
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

/// Where a virtual CPU is in its guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuestPlace {
    /// Its NUMA node, where the guest has any.
    pub node: Option<u32>,
    /// Its socket.
    pub socket: Option<u32>,
    /// Its core.
    pub core: Option<u32>,
    /// Which hardware thread of the core it is.
    pub thread: Option<u32>,
}

/// A virtual CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vcpu {
    /// Its number in the machine, where it is certain. Where one thread runs several, the least.
    pub index: Option<u32>,
    /// The thread that runs it.
    pub tid: Tid,
    /// When that thread started.
    pub start: StartTime,
    /// Where the guest sees it.
    pub place: GuestPlace,
    /// How it was found.
    pub found: Method,
}

/// A virtual machine, with its CPUs as they were when it was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualMachine {
    /// The process that runs it.
    pub pid: Pid,
    /// When that started.
    pub start: StartTime,
    /// Its name; that of its program where it has none.
    pub name: String,
    /// The program that runs it.
    pub monitor: Monitor,
    /// Its CPUs, by number.
    pub vcpus: Vec<Vcpu>,
    /// How they were found.
    pub found: Method,
    /// The socket that answered, as whoever named it calls it.
    pub qmp: Option<PathBuf>,
    /// The user who listened there.
    pub speaker: Option<u32>,
    /// What was asked before, and why that did not help.
    pub tried: Vec<Tried>,
}

/// A virtual machine that runs here, as a list shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its process.
    pub pid: Pid,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What runs it.
    pub monitor: Monitor,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().map(|name| text::printable(name.as_bytes()));
        write!(f, "{} (process {}, {})", name.as_deref().unwrap_or("without a name"), self.pid, self.monitor)
    }
}

/// The threads of a process by number, with their starts and names.
type Threads = BTreeMap<Tid, (StartTime, String)>;

/// What one way of asking answered.
type Answer = Result<Vec<Vcpu>, String>;

/// Where virtual machines are looked for.
#[derive(Clone, Debug)]
pub struct Vms {
    proc: PathBuf,
    /// KVM's folder in debugfs.
    debugfs: PathBuf,
    /// How long a QMP socket may take for everything together.
    patience: Duration,
}

/// QEMU answers in a millisecond or two; one that is starting may take most of a second. Chosen.
const PATIENCE: Duration = Duration::from_millis(1_500);

impl Vms {
    /// On the machine whose procfs is mounted there; its `sys` lies beside it.
    pub fn new(proc: &Path) -> Self {
        let root = proc.parent().unwrap_or(Path::new("/"));
        Self { proc: proc.to_owned(), debugfs: root.join("sys/kernel/debug/kvm"), patience: PATIENCE }
    }

    /// With so much time for what a QMP socket is asked.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Finds a virtual machine and its CPUs.
    ///
    /// # Errors
    /// [`VmError`]: there is none, there are several, or its CPUs cannot be told.
    pub fn find(&self, name: &VmName) -> Result<VirtualMachine, VmError> {
        match name {
            VmName::Pid(pid) => self.look(*pid),
            VmName::Socket(path) => self.by_socket(path),
            VmName::Name(name) => {
                let all = self.list();
                let mut named = all.iter().filter(|vm| vm.name.as_deref() == Some(name));
                match (named.next(), named.next()) {
                    (Some(vm), None) => self.look(vm.pid),
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

    /// The CPUs of a machine that was found before, as they are now. The socket that answered is asked again; those that did not are
    /// left in peace.
    ///
    /// # Errors
    /// As [`Vms::find`].
    pub fn again(&self, vm: &VirtualMachine) -> Result<VirtualMachine, VmError> {
        let now = self.look_at(vm.pid, vm.qmp.iter().cloned().collect(), vm.speaker)?;
        if now.start == vm.start { Ok(now) } else { Err(VmError::NoProcess(vm.pid)) }
    }

    /// The machine whose QMP socket this is.
    fn by_socket(&self, path: &Path) -> Result<VirtualMachine, VmError> {
        let qmp = |source| VmError::Socket { path: path.to_owned(), source };
        let answer = qmp::ask(path, self.patience).map_err(qmp)?;
        let has = |pid: &Pid| {
            self.threads(*pid).is_ok_and(|threads| self.by_answer(*pid, &answer, &threads).is_ok())
        };
        // Whoever listens; or the machine that was given its socket by whoever does, as libvirt's are.
        let first = answer.cpus.first().map(|cpu| Tid(cpu.thread));
        let named =
            || first.and_then(|tid| self.process_of(tid)).filter(|pid| self.may_speak_for(&answer, *pid));
        let pid = answer.peer.filter(has).or_else(named).or(answer.peer);
        self.look_with(pid.ok_or(qmp(qmp::QmpError::Nobody))?, Some((path, &answer)))
    }

    /// Asks a socket that the machine's own command line, or somebody before now, named: anybody may have put anything there.
    fn ask_theirs(&self, pid: Pid, path: &Path, speaker: Option<u32>) -> Result<qmp::Answer, QmpError> {
        let failed = |errno: Errno| QmpError::Connect(errno.into());
        let user = process::identity(&self.proc, pid).map_err(|_| QmpError::Nobody)?.effective;
        let found = match FoundSocket::of_process(&self.proc.join(pid.to_string()), path) {
            // Named by somebody who sees other folders than the machine does.
            Err(Errno::NOENT) => FoundSocket::at(path),
            found => found,
        };
        let found = found.map_err(failed)?;
        let user = speaker.filter(|speaker| *speaker == found.owner).unwrap_or(user);
        qmp::ask_theirs(&found, (pid, user), self.patience)
    }

    /// Whether a socket's answer may name this process: its listener is that process, its user, or root.
    fn may_speak_for(&self, answer: &qmp::Answer, pid: Pid) -> bool {
        let owner = process::status(&self.proc, pid).ok().map(|status| status.uid);
        answer.peer == Some(pid) || answer.user == Some(0) || (owner.is_some() && owner == answer.user)
    }

    /// The process of a thread.
    fn process_of(&self, tid: Tid) -> Option<Pid> {
        let status = text::read(&self.proc.join(format!("{tid}/status"))).ok()?;
        text::field(&status, b"Tgid:").and_then(text::number).map(Pid)
    }

    /// The machine that a process runs, asking the sockets of its command line first.
    fn look(&self, pid: Pid) -> Result<VirtualMachine, VmError> {
        let sockets = CommandLine::of(&self.proc, pid).sockets();
        let none = sockets.is_empty();
        let mut vm = self.look_at(pid, sockets, None);
        if let Err(VmError::NoVcpus { tried, .. }) = &mut vm
            && none
        {
            let why = "its command line names no socket".to_owned();
            tried.insert(0, Tried { method: Method::Qmp, why });
        }
        vm
    }

    /// The same, asking these sockets first, as far as they are the machine's user's, or this other one's.
    fn look_at(
        &self,
        pid: Pid,
        sockets: Vec<PathBuf>,
        speaker: Option<u32>,
    ) -> Result<VirtualMachine, VmError> {
        let mut tried = Vec::new();
        for path in sockets {
            let why = match self.ask_theirs(pid, &path, speaker) {
                Ok(answer) => match self.look_with(pid, Some((&path, &answer))) {
                    Ok(vm) if vm.found == Method::Qmp => return Ok(vm),
                    Ok(_) | Err(VmError::NoVcpus { .. }) => "it names no thread of the process".to_owned(),
                    Err(error) => return Err(error),
                },
                Err(error) => error.to_string(),
            };
            let path = text::printable(path.as_os_str().as_encoded_bytes());
            tried.push(Tried { method: Method::Qmp, why: format!("{path}: {why}") });
        }
        let mut vm = self.look_with(pid, None);
        if let Ok(VirtualMachine { tried: more, .. }) | Err(VmError::NoVcpus { tried: more, .. }) = &mut vm {
            more.splice(0..0, tried);
        }
        vm
    }

    /// The machine that a process runs, by what its socket answered, and otherwise by all other ways.
    fn look_with(&self, pid: Pid, socket: Option<(&Path, &qmp::Answer)>) -> Result<VirtualMachine, VmError> {
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
        type Way<'a> = (Method, &'a dyn Fn() -> Answer);
        let ways: [Way<'_>; 4] = [
            (Method::Qmp, &by_socket),
            (Method::Debugfs, &|| kernel::find(&self.debugfs, &threads)),
            (Method::Names, &|| names::find(&threads)),
            (Method::Descriptors, &|| descriptors::find(&self.proc, pid, &threads)),
        ];
        for (method, way) in ways {
            match way() {
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

    /// These, and what was known before: a way that finds less than another one did takes nothing away that still runs.
    fn with_those_that_live(&self, mut found: Vec<Vcpu>, before: &VirtualMachine) -> Vec<Vcpu> {
        let threads = self.threads(before.pid).unwrap_or_default();
        for vcpu in &before.vcpus {
            let lives = threads.get(&vcpu.tid).is_some_and(|(start, _)| *start == vcpu.start);
            match found.iter_mut().find(|one| one.tid == vcpu.tid && one.start == vcpu.start) {
                // Only the monitor knows the guest's side, and a number that was certain is so still.
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

    /// The threads of a process.
    fn threads(&self, pid: Pid) -> Result<Threads, VmError> {
        let listed = process::threads(&self.proc, pid).map_err(|error| match error {
            error if error.is_gone() => VmError::NoProcess(pid),
            error => VmError::Read(error),
        })?;
        // Of one that ends meanwhile nobody needs to know.
        let known = listed.into_iter().filter_map(|tid| {
            let stat = process::thread_stat(&self.proc, pid, tid).ok()?;
            Some((tid, (stat.start, stat.comm)))
        });
        Ok(known.collect())
    }

    /// The CPUs that QMP named, as far as they are threads of the process.
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
            return Err("it names threads that are none of the process".to_owned());
        }
        Ok(vcpus)
    }

    /// Threads by their numbers in the innermost namespace of processes, where that has others.
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

/// By number, those without one last; each thread once.
fn in_order(mut vcpus: Vec<Vcpu>) -> Vec<Vcpu> {
    vcpus.sort_by_key(|vcpu| (vcpu.index.is_none(), vcpu.index, vcpu.tid));
    let mut seen = BTreeSet::new();
    vcpus.retain(|vcpu| seen.insert(vcpu.tid));
    vcpus
}
