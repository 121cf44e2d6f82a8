//! Report at exit of every seat's outcome, if the user requested it.
//!
//! It has one line for each seat that a thread took: the commanded CPU, the mask of its last
//! thread, the CPU where that thread was seen, and how often it had to be moved. Then follow the
//! regions seen, and, if there were none, possible reasons. While a report is wanted, every join
//! reads the mask back, so that the reported values are measured.
//!
//! If teams were requested and no thread was placed, a message reports that also without a report,
//! and with `--strict` the process fails. Both apply to an exit of the planned process by itself,
//! and must not harm it: the line is written only to the standard error that the process was
//! started with, and only if that takes it at once.

use super::order::{NestOrder, NestSeat, RootPart, SeatCounts, Seats};
use super::state::{orders, state};
use crate::cpus::Cpus;
use crate::{ending, plan, standard_error};
use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::*};
use trimtab_core::handoff::{Missed, Report};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::runtimes::{RUNTIMES, Runtime, RuntimeKind};
use trimtab_core::set::CpuSet;

/// Number of regions that each runtime opened.
static REGIONS: [AtomicU64; Runtime::COUNT] = [const { AtomicU64::new(0) }; Runtime::COUNT];
static LEFT_ALONE: AtomicU64 = AtomicU64::new(0);

pub(super) fn count_region(runtime: Runtime) {
    // Counted for a report only: a shared counter costs every region of every root.
    if state().is_some_and(|state| state.report != Report::No) {
        REGIONS[runtime as usize].fetch_add(1, Relaxed);
    }
}

pub(super) fn count_left_alone() {
    LEFT_ALONE.fetch_add(1, Relaxed);
}

/// Records that the calling thread joined a team in this seat.
pub(super) fn note(seen: &SeatCounts, moved: bool, lost: bool) {
    seen.entered.fetch_add(1, Relaxed);
    seen.bound.fetch_add(moved.into(), Relaxed);
    seen.lost.fetch_add(lost.into(), Relaxed);
    // SAFETY: no preconditions.
    let on = u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(u32::MAX);
    let mut mask = Cpus::new();
    if mask.read_this_thread() {
        *seen.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((mask, on));
    }
}

/// Exit status of a process that ends with 0 although no thread was placed, if that is an error:
/// the launcher's status for a request that it could not carry out.
const STATUS_MISSED: i32 = 125;

/// Registers the check at exit: a process in which no thread was placed says so when it ends by
/// itself, and fails if it must.
pub(super) fn at_exit_without_threads(missed: Missed) {
    unsafe extern "C" fn fail(status: libc::c_int, _: *mut libc::c_void) {
        let missed = plan::guarded(|| report_missed(status == 0));
        if status == 0 && missed.is_some() {
            // SAFETY: glibc goes on with the remaining handlers if a handler calls `exit`, and with
            // the new status; no other library has `on_exit`.
            unsafe { libc::exit(STATUS_MISSED) };
        }
    }
    extern "C" fn at_end() {
        plan::guarded(|| report_missed(false));
    }
    standard_error::remember();
    if missed == Missed::Fails && ending::call_at_exit(fail) {
        return;
    }
    if missed != Missed::Ignored {
        // SAFETY: `at_end` lives as long as the process, the library being `nodelete`.
        unsafe { libc::atexit(at_end) };
    }
}

/// Writes the message if no thread was placed, with the status with which the process fails.
fn report_missed(fails: bool) -> Option<()> {
    let state = state()?;
    // A forked child inherits the request, but not the plan.
    super::is_active().then_some(())?;
    let orders = orders();
    let teams = orders.first()?.nest();
    let placed = orders.iter().flat_map(|order| order.parts()).any(|part| part.all().next().is_some());
    if placed {
        return None;
    }
    // A report on standard error contains this already.
    if fails || state.report != Report::Stderr {
        let status = if fails { " (--strict: the exit status is 125 for that)" } else { "" };
        let line = format!(
            "trimtab: nested teams {teams}: no thread was placed, as no parallel region of the program was seen; it opened none, or its \
             child processes did, or its threads are not made by an OpenMP runtime within reach (one linked into it, TBB, Rayon){status}\n"
        );
        standard_error::write(line.as_bytes());
    }
    Some(())
}

/// Registers the report for when the process ends by itself.
pub(super) fn at_exit() {
    extern "C" fn at_end() {
        plan::guarded(|| {
            let state = state()?;
            // A forked child inherits the request, but not the plan.
            super::is_active().then_some(())?;
            let text = text();
            match &state.report {
                Report::No => {}
                Report::Stderr => write_all(libc::STDERR_FILENO, text.as_bytes()),
                Report::File(path) => std::fs::write(path, text).ok()?,
            }
            Some(())
        });
    }
    // SAFETY: `at_end` lives as long as the process, the library being `nodelete`.
    unsafe { libc::atexit(at_end) };
}

/// Writes without the standard library's lock on the stream, which a stopped thread may hold.
fn write_all(descriptor: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: address and length are those of `bytes`.
        let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => bytes = &bytes[written.min(bytes.len())..],
            _ => return,
        }
    }
}

fn text() -> String {
    let mut text = String::new();
    let orders = orders();
    for order in &orders {
        for (at, part) in order.parts().iter().enumerate() {
            write_part(&mut text, order, part, at);
        }
    }
    let alone = LEFT_ALONE.load(Relaxed);
    let regions = |count: u64| if count == 1 { "1 region".to_owned() } else { format!("{count} regions") };
    if REGIONS.iter().all(|regions| regions.load(Relaxed) == 0) {
        text.push_str(
            "trimtab: no parallel region was seen. The program opened none, or its OpenMP runtime is linked into it \
             (-static, libgomp.a) or was opened out of reach (RTLD_DEEPBIND, dlmopen), or is none of GNU's, LLVM's \
             and Intel's: its threads are where the system put them\n",
        );
        return text;
    }
    let openmp = RUNTIMES.iter().filter(|row| row.kind == RuntimeKind::OpenMp);
    let counts = openmp.enumerate().map(|(at, row)| {
        let count = REGIONS[row.runtime as usize].load(Relaxed);
        let count = if at == 0 { regions(count) } else { count.to_string() };
        format!("{count} of {}", row.owner)
    });
    let _ = writeln!(text, "trimtab: {}", counts.collect::<Vec<_>>().join(", "));
    if orders.is_empty() {
        text.push_str("trimtab: no teams were set, so no thread was placed\n");
    }
    if alone > 0 {
        let _ = writeln!(
            text,
            "trimtab: {} opened by further threads of the program were left alone (--nest-roots share or part:N places them)",
            regions(alone)
        );
    }
    text
}

fn write_part(text: &mut String, order: &NestOrder, part: &RootPart, at: usize) {
    let mut all: Vec<&Seats> = part.all().filter(|seats| seats.seats().iter().any(is_used)).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|seats| (seats.sizes().len(), seats.sizes()));
    let cores = if part.cores() == 1 { "1 core".to_owned() } else { format!("{} cores", part.cores()) };
    let root = if order.parts().len() > 1 { format!(", root {at}") } else { String::new() };
    let _ = writeln!(text, "trimtab: {} on {cores}{root}", part.resolved());
    let _ = writeln!(
        text,
        "{:<12} {:>9} {:>12} {:>7} {:>9} {:>9} {:>6}",
        "THREAD", "COMMANDED", "ACTUAL", "SEEN ON", "JOINED", "MOVED", "LOST"
    );
    for seats in all {
        for (number, seat) in seats.seats().iter().enumerate() {
            if let Some(seen) = seat.seen.as_deref().filter(|_| is_used(seat)) {
                write_seat(text, &path(number, seats.sizes()), seat, seen);
            }
        }
    }
}

fn is_used(seat: &NestSeat) -> bool {
    seat.seen.as_ref().is_some_and(|seen| seen.entered.load(Relaxed) > 0)
}

fn write_seat(text: &mut String, path: &str, seat: &NestSeat, seen: &SeatCounts) {
    let last = seen.last.lock().unwrap_or_else(PoisonError::into_inner);
    let (actual, on) = last
        .as_ref()
        .map_or_else(|| ("?".to_owned(), "?".to_owned()), |(mask, on)| (list(mask), on.to_string()));
    let _ = writeln!(
        text,
        "{path:<12} {:>9} {actual:>12} {on:>7} {:>9} {:>9} {:>6}",
        seat.cpu,
        seen.entered.load(Relaxed),
        seen.bound.load(Relaxed),
        seen.lost.load(Relaxed)
    );
}

/// Formats a mask as the kernel writes lists.
fn list(mask: &Cpus) -> String {
    let cpus = (0..mask.end()).filter_map(|cpu| u32::try_from(cpu).ok()).map(OsCpu);
    cpus.filter(|&cpu| mask.contains(cpu)).collect::<CpuSet>().to_string()
}

/// Returns the path of a thread from its number among those of its level.
fn path(number: usize, sizes: &[u32]) -> String {
    let mut rest = number;
    let mut path: Vec<String> = Vec::new();
    for &size in sizes.iter().rev() {
        path.push((rest % size.max(1) as usize).to_string());
        rest /= size.max(1) as usize;
    }
    path.reverse();
    path.join(".")
}
