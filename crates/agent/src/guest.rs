//! Reporter inside a virtual machine: sends to the host's service which virtual CPUs run bound
//! tasks.

use crate::narrator::Narrator;
use crate::paths::Paths;
use crate::service::channel::GuestPort;
use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_linux::machine;
use trimtab_linux::process::{Pid, State};
use trimtab_linux::survey::{Masks, PinScan};
use trimtab_linux::sys::vsock;

/// Period with which all tags are repeated, independent of the scan interval: a service may have
/// started to listen since the last message, and it drops tags that are not repeated for a minute.
const REPEAT_PERIOD: Duration = Duration::from_secs(10);
/// Time after which a port that takes no data is tried again.
const PORT_RETRY: Duration = Duration::from_millis(20);
/// Time after which a host that does not accept a connection is tried again. Chosen.
const CONNECT_RETRY: Duration = Duration::from_secs(2);
/// Longest time that the host may take to accept a connection. Chosen.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Least ratio of elapsed time to scanning time: 1/200 of a CPU.
const SCAN_COST_RATIO: u32 = 200;

/// Settings of the reporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestOptions {
    /// The port to the host.
    pub port: GuestPort,
    /// The time between two scans.
    pub interval: Span,
    /// Number of scans after which the reporter ends; `None` for no limit.
    pub scans: Option<u64>,
}

/// Reports until a signal arrives, or after the requested number of scans.
///
/// # Errors
/// The port does not exist, or tasks cannot be scanned.
pub fn report(paths: &Paths, options: &GuestOptions, narrator: &dyn Narrator) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot listen for signals")?;
    }
    let mut wire = HostLink::open(&options.port, narrator)?;
    let mut tagged: BTreeSet<OsCpu> = BTreeSet::new();
    let (mut scan_at, mut repeat_at) = (Instant::now(), Instant::now() + REPEAT_PERIOD);
    let mut scans = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut lines = String::new();
        let begin = Instant::now();
        if begin >= scan_at {
            let online = machine::online(&paths.sys()).context("cannot tell which CPUs this guest has")?;
            let bound = bound(paths, &online)?;
            bound.difference(&tagged).for_each(|cpu| lines.push_str(&tag(*cpu)));
            tagged.difference(&bound).for_each(|cpu| lines.push_str(&clear(*cpu)));
            tagged = bound;
            scans += 1;
            scan_at = begin + Duration::from(options.interval).max(begin.elapsed() * SCAN_COST_RATIO);
        }
        // The time limit of the host does not depend on the scan interval, and a host that has just
        // begun to listen has no tags.
        if wire.connect()? || Instant::now() >= repeat_at {
            lines = tagged.iter().map(|cpu| tag(*cpu)).collect();
            repeat_at = Instant::now() + REPEAT_PERIOD;
        }
        if !lines.is_empty() && wire.file.is_some() {
            narrator.detail(&lines.trim_end().replace('\n', ", "));
        }
        wire.say(lines.as_bytes(), &stop)?;
        if options.scans.is_some_and(|most| scans >= most) {
            break;
        }
        let next = scan_at.min(repeat_at).min(wire.again().unwrap_or(scan_at));
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            std::thread::sleep(
                Duration::from_millis(100).min(next.saturating_duration_since(Instant::now())),
            );
        }
    }
    // A host that gets this need not wait for its timeout.
    let lines: String = tagged.iter().map(|cpu| clear(*cpu)).collect();
    if options.scans.is_none() {
        // Only as many bytes as the port accepts now: without a listener it accepts none.
        let _ = wire.say(lines.as_bytes(), &AtomicBool::new(true));
    }
    Ok(())
}

fn tag(cpu: OsCpu) -> String {
    format!("tag vcpu {cpu}\n")
}

fn clear(cpu: OsCpu) -> String {
    format!("clear vcpu {cpu}\n")
}

/// Connection to the host.
struct HostLink<'a> {
    port: &'a GuestPort,
    file: Option<File>,
    /// Time of the next attempt, for a connection that can break and be mended: by vsock, the
    /// host's side ends with the service there.
    next: Option<Instant>,
    /// Whether the last line was begun and not ended.
    cut: bool,
    narrator: &'a dyn Narrator,
}

impl<'a> HostLink<'a> {
    /// Opens a device, or checks whether a connection is possible.
    fn open(port: &'a GuestPort, narrator: &'a dyn Narrator) -> Result<Self> {
        let file = match port {
            GuestPort::Device(path) => Some(open(path)?),
            GuestPort::Vsock { .. } => None,
        };
        Ok(Self { port, file, next: None, cut: false, narrator })
    }

    /// Returns the time of the next attempt to connect.
    fn again(&self) -> Option<Instant> {
        self.next.filter(|_| self.file.is_none())
    }

    /// Connects, if there is no connection and it is time. Returns whether it has just connected.
    fn connect(&mut self) -> Result<bool> {
        let GuestPort::Vsock { cid, port } = self.port else { return Ok(false) };
        let now = Instant::now();
        if self.file.is_some() || self.next.is_some_and(|next| next > now) {
            return Ok(false);
        }
        let first = self.next.is_none();
        match call(*cid, *port) {
            Ok(file) => (self.file, self.next, self.cut) = (Some(file), Some(now), false),
            Err(Errno::AFNOSUPPORT | Errno::NODEV) => {
                return Err(anyhow!(
                    "this guest has no vsock: its host gives it one with -device vhost-vsock-pci,guest-cid=N (trimtab guest-agent --help)"
                ));
            }
            Err(why) => {
                self.next = Some(Instant::now() + CONNECT_RETRY);
                if first {
                    let port = self.port;
                    self.narrator.warning(&format!("no service listens at {port} yet ({why}): trying again"));
                }
            }
        }
        Ok(self.file.is_some())
    }

    /// Writes all bytes, also if the host reads slowly. Stops early only if `stop` is set.
    fn say(&mut self, bytes: &[u8], stop: &AtomicBool) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        // The rest of a cut line must not join with the next line.
        let ended = if self.cut && !bytes.is_empty() { [b"\n", bytes].concat() } else { bytes.to_vec() };
        match write(file, &ended, stop) {
            Ok(written) if written < ended.len() => self.cut = written > 0 && ended[written - 1] != b'\n',
            Ok(_) => self.cut = false,
            Err(error) if matches!(self.port, GuestPort::Device(_)) => {
                return Err(error).with_context(|| format!("cannot tell {}", self.port));
            }
            Err(why) => {
                let port = self.port;
                self.narrator.detail(&format!("{port} does not answer any more ({why}): trying again"));
                (self.file, self.next) = (None, Some(Instant::now() + CONNECT_RETRY));
            }
        }
        Ok(())
    }
}

/// Connects to the host, which takes a moment.
fn call(cid: u32, port: u32) -> Result<File, Errno> {
    let socket = vsock::connect(cid, port)?;
    let patience = Timespec::try_from(CONNECT_TIME_MAX).map_err(|_| Errno::INVAL)?;
    let mut waits = [PollFd::new(&socket, PollFlags::OUT)];
    if poll(&mut waits, Some(&patience))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    socket_error(&socket)??;
    Ok(File::from(socket))
}

fn open(path: &Path) -> Result<File> {
    // A serial port must not become our terminal.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "there is no port {}: the host gives one with -device virtserialport,...,name=org.trimtab.0 (trimtab guest-agent --help)",
            path.display()
        ),
        ErrorKind::ResourceBusy => anyhow!("{} is in use by another program", path.display()),
        _ => anyhow!("cannot open {}: {error}", path.display()),
    })
}

/// Returns the CPUs on which bound tasks ran last: tasks that run now, or ran there just before
/// they went to sleep.
fn bound(paths: &Paths, online: &CpuSet) -> Result<BTreeSet<OsCpu>> {
    let scan = PinScan { proc: &paths.proc(), cpus: online, own: Pid::own(), masks: Masks::Kernel };
    let pins = scan.run(|_| true).context("cannot read this guest's tasks")?.pins;
    let runs = pins.into_iter().filter(|pin| pin.state == State::Running);
    Ok(runs.filter_map(|pin| pin.last_cpu).collect())
}

/// Writes. Returns the number of bytes that were taken before the stop.
fn write(file: &mut File, bytes: &[u8], stop: &AtomicBool) -> std::io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(PORT_RETRY);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
