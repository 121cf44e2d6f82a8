//! Page file of the budget in this process: its mapping, and this process's slot.
//!
//! The file is opened as a descriptor of the process that the launcher became (`/proc/PID/fd/N`),
//! so that programs which close inherited descriptors still find it, or else as the inherited
//! descriptor. It is a memory file of the right name and length whose length is sealed; anything
//! else is left alone. The mapping is permanent, and no descriptor is kept.
//!
//! A slot is taken by one compare-and-swap of its owner: from free, or from a process that has
//! ended. A process that is killed at any instant leaves a slot that the next one takes over.

use super::{COMPUTING, forked, process};
use crate::cpus::Cpus;
use crate::{imports, plan, shared_page, unwinder};
use libc::{c_char, c_int};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use trimtab_core::budget::page::{BYTES, HEADER, MAGIC, NAME, Owner, SLOT, SLOTS, header, slot};
use trimtab_core::budget::{Handoff, Rule, VARIABLE};

/// Start of the mapping; null before it is made.
static BASE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// This process's slot plus one; 0 if it has none.
static MINE: AtomicUsize = AtomicUsize::new(0);
/// This process as the owner of a slot; 0 before it is known.
static OWN: AtomicU64 = AtomicU64::new(0);
/// Cores of the hold, from the variable: no process can change them by the page.
static CORES: AtomicU32 = AtomicU32::new(1);
static HOLD: HoldCpus = HoldCpus(UnsafeCell::new(Cpus::new()));

/// CPUs of the hold.
struct HoldCpus(UnsafeCell<Cpus>);

// SAFETY: written only by `join`, before the budget is on and while the process has one thread.
unsafe impl Sync for HoldCpus {}

/// Slot of a process.
pub(super) type Slot = [AtomicU64; SLOT];

/// Maps the page and takes a slot. Returns the rule.
pub(super) fn join() -> Option<Rule> {
    let text = plan::variable(VARIABLE).filter(|_| imports::is_home() && unwinder::find())?;
    let handoff = Handoff::read(text)?;
    let base = map(&handoff)?;
    CORES.store(handoff.cores, Relaxed);
    // SAFETY: the budget is not on yet, so that no other code reads it.
    unsafe { &mut *HOLD.0.get() }.become_runs(handoff.cpus());
    BASE.store(base, Release);
    take_slot();
    // SAFETY: the handler lives as long as the process, the library being `nodelete`, and does only
    // what a handler may do: system calls and its own static state.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Some(handoff.rule)
}

/// Returns the cores of the hold: those of the start, or more if it has grown. The page says how
/// many, and any process of the hold may write it: the number is never below that of the start, nor
/// above the CPUs of the hand-off.
pub(super) fn cores() -> u32 {
    let first = CORES.load(Relaxed);
    let most = u32::try_from(hold().len()).unwrap_or(first);
    let now = header_word(header::CORES).map_or(0, |cores| cores.load(Relaxed));
    u32::try_from(now).unwrap_or(first).min(most).max(first)
}

/// Returns the CPUs of the hold.
pub(super) fn hold() -> &'static Cpus {
    // SAFETY: see `HoldCpus`.
    unsafe { &*HOLD.0.get() }
}

fn map(handoff: &Handoff<'_>) -> Option<*mut AtomicU64> {
    let mut room = [0; 64];
    let path = path_of(handoff.pid, handoff.descriptor, &mut room)?;
    if is_page(path) {
        // SAFETY: a C string.
        let file = unsafe { libc::open(path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if file >= 0 {
            let mapped = map_file(file);
            // SAFETY: our own descriptor.
            unsafe { libc::close(file) };
            return mapped;
        }
    }
    let mut room = [0; 64];
    is_page(path_of(0, handoff.descriptor, &mut room)?).then(|| map_file(handoff.descriptor)).flatten()
}

/// Writes the path of a descriptor of a process, or of this one if the number is 0.
fn path_of(pid: u32, descriptor: c_int, room: &mut [u8; 64]) -> Option<*const c_char> {
    use std::io::Write;
    let mut rest = room.as_mut_slice();
    match pid {
        0 => write!(rest, "/proc/self/fd/{descriptor}\0").ok()?,
        pid => write!(rest, "/proc/{pid}/fd/{descriptor}\0").ok()?,
    }
    Some(room.as_ptr().cast())
}

/// Returns whether a descriptor is a memory file of the budget's name. Checked before it is opened:
/// opening another kind of file may have side effects.
fn is_page(path: *const c_char) -> bool {
    let mut target = [0u8; 64];
    // SAFETY: a C string, and at most as many bytes as there is room for.
    let length = unsafe { libc::readlink(path, target.as_mut_ptr().cast(), target.len()) };
    let target = usize::try_from(length).ok().and_then(|length| target.get(..length)).unwrap_or_default();
    target.strip_prefix(b"/memfd:").is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

fn map_file(file: c_int) -> Option<*mut AtomicU64> {
    // SAFETY: asks a question.
    let seals = unsafe { libc::fcntl(file, libc::F_GET_SEALS) };
    // Access behind the end of a file that was cut would kill the process.
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return None;
    }
    shared_page::map(file, BYTES, header::MAGIC, MAGIC)
}

/// Returns the slot at this position; `None` without a page.
pub(super) fn slot_at(at: usize) -> Option<&'static Slot> {
    let base = BASE.load(Acquire);
    if base.is_null() || at >= SLOTS {
        return None;
    }
    // SAFETY: the mapping has this slot, stays for good, and any value is valid.
    Some(unsafe { &*base.add(HEADER + at * SLOT).cast() })
}

fn header_word(at: usize) -> Option<&'static AtomicU64> {
    let base = BASE.load(Acquire);
    // SAFETY: the mapping has the header, stays for good, and any value is valid.
    (!base.is_null() && at < HEADER).then(|| unsafe { &*base.add(at) })
}

/// Returns the number of slots that have been taken at any time.
pub(super) fn slot_end() -> usize {
    header_word(header::SLOT_END)
        .map_or(0, |end| usize::try_from(end.load(Relaxed)).unwrap_or(SLOTS).min(SLOTS))
}

/// Returns this process's slot and its position.
pub(super) fn position() -> Option<usize> {
    MINE.load(Relaxed).checked_sub(1)
}

/// Returns this process's slot.
pub(super) fn mine() -> Option<&'static Slot> {
    slot_at(position()?)
}

/// Takes a slot for this process, which may be a forked child or another program than before. A
/// process that finds none takes part without a slot.
pub(super) fn take_slot() {
    MINE.store(0, Relaxed);
    let Some(own) = process::own() else { return };
    OWN.store(own.word(), Relaxed);
    let ended = |owner: u64| Owner::read(owner).is_none_or(|owner| !process::has_number(owner.pid));
    // Reused process numbers are examined only if no other slot is free.
    let gone = |owner: u64| Owner::read(owner).is_none_or(|owner| !process::is(owner));
    let Some(at) = claim(own, ended).or_else(|| claim(own, gone)) else { return };
    if let Some((end, taken)) = header_word(header::SLOT_END).zip(header_word(header::TAKEN)) {
        end.fetch_max(at as u64 + 1, Relaxed);
        taken.fetch_add(1, Relaxed);
    }
    MINE.store(at + 1, Relaxed);
}

/// Claims the first slot that is free, or this process's from before an exec, or one whose owner
/// has ended.
fn claim(own: Owner, ended: impl Fn(u64) -> bool) -> Option<usize> {
    (0..SLOTS).find(|&at| {
        let Some(taken) = slot_at(at) else { return false };
        let owner = taken[slot::OWNER].load(Relaxed);
        if owner != 0 && owner != own.word() && !ended(owner) {
            return false;
        }
        if taken[slot::OWNER].compare_exchange(owner, own.word(), AcqRel, Relaxed).is_err() {
            return false;
        }
        // A process that is killed here leaves the previous words, which are not read: it has
        // ended.
        taken[slot::STATE].store(u64::from(COMPUTING.load(Relaxed)), Relaxed);
        for (sum, word) in taken[slot::TEAMS..].iter().take(slot::SUMS).enumerate() {
            let ended = word.swap(0, Relaxed);
            if let Some(all) = header_word(header::ENDED + sum) {
                all.fetch_add(ended, Relaxed);
            }
        }
        true
    })
}

/// Takes a slot again if another process wrote over this one's, or if this process was forked
/// without the handlers of the C library.
pub(super) fn keep_slot() {
    let own = OWN.load(Relaxed);
    let is_own = Owner::read(own).is_some_and(|own| Some(own.pid) == process::number());
    let has_slot = mine().is_some_and(|mine| mine[slot::OWNER].load(Relaxed) == own);
    if !(is_own && has_slot) {
        take_slot();
    }
}
