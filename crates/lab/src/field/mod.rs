//! `trimtab field`: the benchmarks of a machine with several nodes, one after the other within a
//! given time, and one file that can be sent.
//!
//! `parts` has the benchmarks, `measurement` runs one, `facts` reads the machine,
//! `cleaning` leaves out everything private, `record` is the file, and `findings` sums it up.

mod cleaning;
mod facts;
pub(crate) mod findings;
mod measurement;
mod parts;
pub(crate) mod record;

use crate::args::{FieldArgs, FieldPart};
use crate::usable::Usable;
use anyhow::{Context, Result, bail};
use cleaning::Cleaner;
use measurement::Measurement;
use record::{FieldRecord, PartEnd, SCHEMA};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trimtab_agent::output::{Claim, OutputKind};
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::status_line::StatusLine;
use trimtab_front::{date, print};
use trimtab_linux::users::Users;

/// Time of a measurement with `--quick`.
const QUICK_TIME: Duration = Duration::from_secs(120);
/// Part of the time that is kept for the ends of parts: 1/40, and at most this.
const RESERVE_MAX: Duration = Duration::from_secs(15);

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] if nothing could be measured, or the file cannot be written.
pub fn run(world: &World, args: &FieldArgs) -> Result<u8, Exit> {
    field(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn field(world: &World, args: &FieldArgs) -> Result<u8> {
    let file = args.output.as_path();
    let option = format!("--output {}", file.display());
    // A file that cannot be written is reported before the measurement. An earlier one stays until
    // there are results.
    drop(Claim::open(&option, file, OutputKind::Field, 0o666)?);
    let began = Instant::now();
    let time = if args.quick { QUICK_TIME } else { Duration::from_secs(60 * u64::from(args.minutes)) };
    let interrupt = Interrupt::listen()?;
    let programs = args.programs.as_deref().map(std::path::absolute).transpose()?;
    let cleaner = cleaner(world, programs.as_deref()).context("names of this machine")?;
    let usable = Usable::live(world, true)?;
    let machine = facts::read(world, &usable.machine, &usable.allowed.to_string(), &cleaner)
        .context("this machine cannot be described without its name")?;
    let mut record = FieldRecord {
        schema: SCHEMA.to_owned(),
        trimtab: env!("CARGO_PKG_VERSION").to_owned(),
        day: today(),
        seconds_max: time.as_secs_f64(),
        seconds: 0.0,
        quick: args.quick,
        complete: false,
        machine,
        parts: Vec::new(),
    };
    let measurement = Measurement {
        program: &std::env::current_exe().context("this program's own path is unknown")?,
        programs: programs.as_deref(),
        cleaner: &cleaner,
        interrupt: &interrupt,
    };
    measure(args, &mut record, &measurement, began, time)?;
    record.complete = interrupt.came().is_none();
    record.seconds = began.elapsed().as_secs_f64();
    record.write(file)?;
    print(&format!("{}\n{}", findings::text(&record), file.display()))?;
    if let Some(signal) = interrupt.came() {
        return Ok(exit::by_signal(signal));
    }
    if record.parts.iter().all(|part| part.end == PartEnd::Failed) {
        bail!("nothing could be measured, see above");
    }
    Ok(exit::DONE)
}

/// Measures the parts one after the other, and writes the file after each.
fn measure(
    args: &FieldArgs,
    record: &mut FieldRecord,
    measurement: &Measurement<'_>,
    began: Instant,
    time: Duration,
) -> Result<()> {
    let wanted = |part: &FieldPart| args.only.is_empty() || args.only.contains(part);
    let parts: Vec<FieldPart> = FieldPart::ALL.into_iter().filter(wanted).collect();
    let time = time.saturating_sub((time / 40).min(RESERVE_MAX));
    for (at, part) in parts.iter().enumerate() {
        if measurement.interrupt.came().is_some() {
            return Ok(());
        }
        let left = time.saturating_sub(began.elapsed());
        let share = parts::share(left, &parts[at..]);
        let title = format!("part {} of {}: {}", at + 1, parts.len(), part.title());
        diagnostics::notice(
            Volume::Normal,
            &format!("{title}; at most {}, of {} left", rough(share), rough(left)),
        );
        let mut line = StatusLine::new(false);
        let mut tell = |runs: usize| {
            let left = time.saturating_sub(began.elapsed());
            line.set(&format!("{title}: {runs} runs; {} left", rough(left)));
        };
        let measured = measurement.run(*part, share, &mut tell);
        drop(line);
        for why in &measured.why {
            diagnostics::notice(Volume::Normal, &format!("{}: {why}", part.word()));
        }
        record.parts.push(measured);
        record.seconds = began.elapsed().as_secs_f64();
        record.write(&args.output)?;
    }
    Ok(())
}

/// Returns the day, without the time: it tells how old the results are, and no more.
fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date::date(now).chars().take_while(|letter| *letter != ' ').collect()
}

/// Returns a time in minutes, or in seconds if it is short.
fn rough(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 120 { format!("{} min", (seconds + 30) / 60) } else { format!("{seconds} s") }
}

/// Makes the cleaner for this machine, its user, and the folders of this measurement.
fn cleaner(world: &World, programs: Option<&Path>) -> Result<Cleaner> {
    let program = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let home = world.text("HOME").map(PathBuf::from);
    let mut folders: Vec<PathBuf> =
        [programs.map(Path::to_owned), home, here].into_iter().flatten().collect();
    folders.extend(program.as_deref().and_then(Path::parent).map(Path::to_owned));
    // Messages may have them without links, too.
    let real: Vec<PathBuf> = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let folders: Vec<&Path> = folders.iter().chain(&real).map(PathBuf::as_path).collect();
    Ok(Cleaner::new(&names(world), &folders)?)
}

/// Returns names of this machine and its user, which the file must not have.
fn names(world: &World) -> Vec<String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    let domain = uname.domainname().to_string_lossy().into_owned();
    let short = host.split('.').next().map(str::to_owned);
    let variables = ["USER", "LOGNAME", "SUDO_USER", "HOSTNAME"];
    let mut names: Vec<String> = variables.into_iter().filter_map(|name| world.text(name)).collect();
    let home = world.text("HOME");
    names.extend(home.as_deref().and_then(|home| home.rsplit('/').next()).map(str::to_owned));
    names.extend([host, domain].into_iter().chain(short));
    // The user who runs it, and the one of whose rights it makes use.
    let users = Users::read(&world.root.join("etc/passwd")).unwrap_or_default();
    for uid in [rustix::process::getuid(), rustix::process::geteuid()] {
        let name = users.name(uid.as_raw());
        // A user without a name is a number, which is in texts by chance.
        names.extend((name != uid.as_raw().to_string()).then_some(name));
    }
    // "root" is everybody's name, and the kernel's word for a domain that was not set.
    names.retain(|name| !name.is_empty() && name != "root" && name != "(none)");
    names
}
