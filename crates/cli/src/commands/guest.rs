//! `trimtab guest`: inside a guest, tells the host which CPUs run tasks that somebody bound.

use crate::args::GuestArgs;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::{Context, Result, anyhow};
use rustix::fs::OFlags;
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
use trimtab_linux::machine;
use trimtab_linux::process::{Pid, State};
use trimtab_linux::survey::{Masks, PinScan};

/// All is said again so often, for a host that has begun to listen since.
const AGAIN: Duration = Duration::from_secs(10);
/// A port that takes nothing is tried again after this.
const REST: Duration = Duration::from_millis(20);
/// Looking takes at most one part in this many of a CPU.
const SHARE: u32 = 200;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: there is no such port, or tasks cannot be looked at.
pub fn run(world: &World, args: &GuestArgs) -> Result<u8, Exit> {
    tell(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn tell(world: &World, args: &GuestArgs) -> Result<u8> {
    let volume = Volume::of(false, args.verbose);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot listen for signals")?;
    }
    let mut port = open(&args.port)?;
    let mut told: BTreeSet<OsCpu> = BTreeSet::new();
    let mut all_at = Instant::now();
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let online = machine::online(&world.sys()).context("cannot tell which CPUs this guest has")?;
        let bound = bound(world, &online)?;
        let again = all_at.elapsed() >= AGAIN;
        if again {
            all_at = Instant::now();
        }
        let mut lines = String::new();
        for cpu in bound.iter().filter(|cpu| again || !told.contains(cpu)) {
            lines.push_str(&format!("tag vcpu {cpu}\n"));
        }
        for cpu in told.difference(&bound) {
            lines.push_str(&format!("clear vcpu {cpu}\n"));
        }
        if !lines.is_empty() {
            say::note(volume, &lines.trim_end().replace('\n', ", "));
        }
        write(&mut port, lines.as_bytes(), &stop)
            .with_context(|| format!("cannot tell {}", args.port.display()))?;
        told = bound;
        looks += 1;
        if args.looks.is_some_and(|most| looks >= most) {
            break;
        }
        let next = begin + Duration::from(args.interval).max(begin.elapsed() * SHARE);
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            std::thread::sleep(
                Duration::from_millis(100).min(next.saturating_duration_since(Instant::now())),
            );
        }
    }
    // A host that hears this need not wait until it has not heard of us for long.
    let lines: String = told.iter().map(|cpu| format!("clear vcpu {cpu}\n")).collect();
    if args.looks.is_none() {
        // Only as far as it is taken now: where nobody listens, it never is.
        let _ = write(&mut port, lines.as_bytes(), &AtomicBool::new(true));
    }
    Ok(exit::DONE)
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

/// The CPUs on which bound tasks ran last: those that run now, or were there when they went to sleep a moment ago.
fn bound(world: &World, online: &CpuSet) -> Result<BTreeSet<OsCpu>> {
    let scan = PinScan { proc: &world.proc(), cpus: online, own: Pid::own(), masks: Masks::Kernel };
    let pins = scan.run(|_| true).context("cannot look at this guest's tasks")?.pins;
    let runs = pins.into_iter().filter(|pin| pin.state == State::Running);
    Ok(runs.filter_map(|pin| pin.last_cpu).collect())
}

/// Writes all of it, also where the host reads slowly, or not at all until we are stopped.
fn write(port: &mut File, mut bytes: &[u8], stop: &AtomicBool) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match port.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                std::thread::sleep(REST);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
