//! The reporter inside a virtual machine: tells the host's service on which virtual CPUs bound
//! tasks run.

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

/// All tags are repeated with this period, however seldom tasks are scanned: for a service that has
/// begun to listen since, and since a service forgets after a minute what is not repeated.
const REPEAT_PERIOD: Duration = Duration::from_secs(10);
/// A port that takes nothing is tried again after this time.
const PORT_RETRY: Duration = Duration::from_millis(20);
/// A host that does not accept a connection is tried again after this time. Chosen.
const CONNECT_RETRY: Duration = Duration::from_secs(2);
/// The longest time that the host may take to accept a connection. Chosen.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// The least ratio of time and scanning time: 1/200 of a CPU.
const SCAN_COST_RATIO: u32 = 200;

/// How the reporter is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestOptions {
    /// The port to the host.
    pub port: GuestPort,
    /// The time between two scans.
    pub interval: Span,
    /// Ends after so many scans.
    pub scans: Option<u64>,
}

/// Reports until a signal comes, or after the scans that are asked for.
///
/// # Errors
/// There is no such port, or tasks cannot be looked at.
pub fn report(paths: &Paths, options: &GuestOptions, narrator: &dyn Narrator) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot listen for signals")?;
    }
    let mut wire = HostLink::open(&options.port, narrator)?;
    let mut told: BTreeSet<OsCpu> = BTreeSet::new();
    let (mut look_at, mut say_at) = (Instant::now(), Instant::now() + REPEAT_PERIOD);
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut lines = String::new();
        let begin = Instant::now();
        if begin >= look_at {
            let online = machine::online(&paths.sys()).context("cannot tell which CPUs this guest has")?;
            let bound = bound(paths, &online)?;
            bound.difference(&told).for_each(|cpu| lines.push_str(&tag(*cpu)));
            told.difference(&bound).for_each(|cpu| lines.push_str(&clear(*cpu)));
            told = bound;
            looks += 1;
            look_at = begin + Duration::from(options.interval).max(begin.elapsed() * SCAN_COST_RATIO);
        }
        // The host's patience does not depend on how often we look; and one that has just begun to
        // listen knows nothing.
        if wire.connect()? || Instant::now() >= say_at {
            lines = told.iter().map(|cpu| tag(*cpu)).collect();
            say_at = Instant::now() + REPEAT_PERIOD;
        }
        if !lines.is_empty() && wire.file.is_some() {
            narrator.detail(&lines.trim_end().replace('\n', ", "));
        }
        wire.say(lines.as_bytes(), &stop)?;
        if options.scans.is_some_and(|most| looks >= most) {
            break;
        }
        let next = look_at.min(say_at).min(wire.again().unwrap_or(look_at));
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            std::thread::sleep(
                Duration::from_millis(100).min(next.saturating_duration_since(Instant::now())),
            );
        }
    }
    // A host that hears this need not wait until it has not heard of us for long.
    let lines: String = told.iter().map(|cpu| clear(*cpu)).collect();
    if options.scans.is_none() {
        // Only as far as it is taken now: without a listener it never is.
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

/// The way to the host.
struct HostLink<'a> {
    port: &'a GuestPort,
    file: Option<File>,
    /// When it is tried again, where it can break and be mended: by vsock, the host's side ends
    /// with the service there.
    next: Option<Instant>,
    /// A line was begun that was not ended.
    cut: bool,
    narrator: &'a dyn Narrator,
}

impl<'a> HostLink<'a> {
    /// Opens a device, or finds out whether there can be a way at all.
    fn open(port: &'a GuestPort, narrator: &'a dyn Narrator) -> Result<Self> {
        let file = match port {
            GuestPort::Device(path) => Some(open(path)?),
            GuestPort::Vsock { .. } => None,
        };
        Ok(Self { port, file, next: None, cut: false, narrator })
    }

    /// When it is to be tried again.
    fn again(&self) -> Option<Instant> {
        self.next.filter(|_| self.file.is_none())
    }

    /// Connects, where that is to be done and it is time; whether it was done just now.
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
                    "this guest has no vsock: its host gives it one with -device vhost-vsock-pci,guest-cid=N (trimtab guest --help)"
                ));
            }
            Err(why) => {
                self.next = Some(Instant::now() + CONNECT_RETRY);
                if first {
                    let port = self.port;
                    self.narrator
                        .warning(&format!("nobody listens at {port} yet ({why}): it is tried again"));
                }
            }
        }
        Ok(self.file.is_some())
    }

    /// Writes all of it, also where the host reads slowly, or not at all until we are stopped.
    fn say(&mut self, bytes: &[u8], stop: &AtomicBool) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        // What was cut off must not become one with what comes now.
        let ended = if self.cut && !bytes.is_empty() { [b"\n", bytes].concat() } else { bytes.to_vec() };
        match write(file, &ended, stop) {
            Ok(written) if written < ended.len() => self.cut = written > 0 && ended[written - 1] != b'\n',
            Ok(_) => self.cut = false,
            Err(error) if matches!(self.port, GuestPort::Device(_)) => {
                return Err(error).with_context(|| format!("cannot tell {}", self.port));
            }
            Err(why) => {
                let port = self.port;
                self.narrator.detail(&format!("{port} is not heard any more ({why}): it is tried again"));
                (self.file, self.next) = (None, Some(Instant::now() + CONNECT_RETRY));
            }
        }
        Ok(())
    }
}

/// Calls the host, which takes a moment.
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
            "there is no port {}: the host gives one with -device virtserialport,...,name=org.trimtab.0 (trimtab guest --help)",
            path.display()
        ),
        ErrorKind::ResourceBusy => anyhow!("{} is in use by another program", path.display()),
        _ => anyhow!("cannot open {}: {error}", path.display()),
    })
}

/// The CPUs on which bound tasks ran last: those that run now, or were there when they went to
/// sleep a moment ago.
fn bound(paths: &Paths, online: &CpuSet) -> Result<BTreeSet<OsCpu>> {
    let scan = PinScan { proc: &paths.proc(), cpus: online, own: Pid::own(), masks: Masks::Kernel };
    let pins = scan.run(|_| true).context("cannot look at this guest's tasks")?.pins;
    let runs = pins.into_iter().filter(|pin| pin.state == State::Running);
    Ok(runs.filter_map(|pin| pin.last_cpu).collect())
}

/// Writes; how much of it was taken before we were stopped.
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
