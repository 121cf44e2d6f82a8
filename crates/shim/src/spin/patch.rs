//! Change of the program's code: a wait loop gets a detour through a trampoline that yields.
//!
//! Only code is changed that stays where it is until the process ends: that of the program and of
//! the libraries with which it started. The writes go through the process's memory file, which
//! makes a private copy of a page of code without making it writable for the program. Each byte is
//! compared before it is written, so that a debugger's breakpoint, or other code, is left alone.

use super::system;
use crate::objects;
use libc::c_int;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use trimtab_core::spin::detour::{Detour, HiddenJump, REACH, TRAMPOLINE, Write, trampoline};
use trimtab_core::spin::wait_loop::{Code, WaitLoop};

/// Most loops that are changed.
pub(super) const LOOPS_MAX: usize = 32;
/// Most objects whose code is known.
const OBJECTS_MAX: usize = 128;
/// Bytes of code that are read around a sample.
const CODE_BYTES: usize = 2 * REACH as usize;
const PAGE: u64 = 4096;

/// A loop as its trampoline sees it. The trampoline has the address of the first word.
#[repr(C)]
pub(super) struct Loop {
    /// Whether it yields now: 1 or 0.
    yielding: AtomicU64,
    /// Its yields, about: threads that count at the same instant count once.
    pub(super) yields: AtomicU64,
    /// Address of its jump; 0 if the place is free.
    pub(super) jump: AtomicU64,
    /// Address of the hidden jump of its detour; 0 if it has none.
    hidden: AtomicU64,
    /// Whether it got a detour.
    pub(super) changed: AtomicU64,
}

impl Loop {
    const fn new() -> Self {
        Self {
            yielding: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            jump: AtomicU64::new(0),
            hidden: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }
}

static LOOPS: [Loop; LOOPS_MAX] = [const { Loop::new() }; LOOPS_MAX];
/// Ranges of the objects with which the program started: first address, and end.
static OBJECTS: [(AtomicU64, AtomicU64); OBJECTS_MAX] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; OBJECTS_MAX];
static OBJECTS_END: AtomicUsize = AtomicUsize::new(0);

/// Records the objects of the program. Called when it starts, before it opens others.
pub(super) fn note_code() {
    let own = note_code as *const () as usize;
    let mut at = 0;
    objects::visit::<()>(|object| {
        // Neither this library's code nor the kernel's page of functions.
        let excluded = object.holds(own) || object.file().starts_with(b"linux-vdso");
        if let Some((start, end)) = OBJECTS.get(at).filter(|_| !excluded) {
            let range = object.range();
            start.store(range.start as u64, Relaxed);
            end.store(range.end as u64, Relaxed);
            at += 1;
        }
        ControlFlow::Continue(())
    });
    OBJECTS_END.store(at, Release);
}

/// Returns the range of the object that has an address, if it stays until the process ends.
fn object_of(address: u64) -> Option<(u64, u64)> {
    let known = OBJECTS.iter().take(OBJECTS_END.load(Acquire));
    let mut ranges = known.map(|(start, end)| (start.load(Relaxed), end.load(Relaxed)));
    ranges.find(|&(start, end)| (start..end).contains(&address))
}

/// Returns all loops that were found.
pub(super) fn loops() -> impl Iterator<Item = &'static Loop> {
    LOOPS.iter().take_while(|known| known.jump.load(Acquire) != 0)
}

/// Lets all changed loops yield from now on, or not.
pub(super) fn set_yielding(yields: bool) {
    for known in loops() {
        known.yielding.store(yields.into(), Relaxed);
    }
}

/// Code of this process, through its memory file.
pub(super) struct Memory(c_int);

impl Memory {
    pub(super) fn open() -> Option<Self> {
        system::open(b"/proc/self/mem\0", libc::O_RDWR).map(Self)
    }

    /// Examines the loop at the address where a thread was seen. Returns it if it is a wait loop
    /// that was not known, and is known now, whether it could be changed or not.
    pub(super) fn examine(&self, address: u64) -> Option<&'static Loop> {
        let (start, end) = object_of(address)?;
        let start = address.saturating_sub(REACH).max(start);
        let length = usize::try_from(address.saturating_add(REACH).min(end).checked_sub(start)?).ok()?;
        let mut room = [0; CODE_BYTES];
        let count = system::read_at(self.0, room.get_mut(..length)?, start);
        let code = Code { start, bytes: room.get(..count)? };
        let found = WaitLoop::around(&code, address)?;
        if loops().any(|known| known.jump.load(Relaxed) == found.jump) {
            return None;
        }
        // Only the helper adds loops, and there is one.
        let known = LOOPS.iter().find(|known| known.jump.load(Relaxed) == 0)?;
        let changed = self.lead_through_trampoline(&code, &found, known);
        known.changed.store(changed.is_some().into(), Relaxed);
        known.jump.store(found.jump, Release);
        Some(known)
    }

    fn lead_through_trampoline(&self, code: &Code<'_>, found: &WaitLoop, known: &Loop) -> Option<()> {
        let others = || loops().map(|other| other.hidden.load(Relaxed)).filter(|&at| at != 0);
        let (jump, at) = HiddenJump::near(code, found)
            .filter(|jump| others().all(|other| jump.spares(found, other)))
            .find_map(|jump| Some((jump, room_in(jump.targets())?)))?;
        let state = (&raw const *known).addr() as u64;
        let made = trampoline(at, found.head, state)?;
        let detour = Detour::new(found, &jump, at)?;
        known.hidden.store(jump.at, Relaxed);
        let hidden = self.put(at, &made)
            && system::make_executable(at & !(PAGE - 1), pages_of(at))
            && self.replace(code, &detour.far)
            && system::synchronise_code();
        (hidden && self.replace(code, &detour.near)).then_some(())
    }

    fn put(&self, at: u64, bytes: &[u8; TRAMPOLINE]) -> bool {
        system::write_at(self.0, bytes, at)
    }

    /// Writes, if the bytes are still those that the decision was made for.
    fn replace(&self, code: &Code<'_>, write: &Write) -> bool {
        let mut now = [0; 5];
        let Some(now) = now.get_mut(..write.bytes().len()) else { return false };
        let same =
            system::read_at(self.0, now, write.at) == now.len() && code.from(write.at).starts_with(now);
        same && system::write_at(self.0, write.bytes(), write.at)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        system::close(self.0);
    }
}

/// Maps memory for a trampoline between two addresses; returns where it begins.
fn room_in((first, last): (u64, u64)) -> Option<u64> {
    /// Tries in a large range. Chosen: few ranges have a mapping in more than a few of their parts.
    const TRIES: u64 = 32;
    let step = ((last - first) / TRIES).next_multiple_of(PAGE);
    // The middle of a large range is the program itself, so the tries begin at its ends.
    let large = (1..TRIES).filter_map(|step_at| first.checked_add((step_at * step) & !(PAGE - 1)));
    let small = [first].into_iter().filter(|_| last - first < 2 * PAGE);
    let fits = |at: &u64| (first..=last).contains(at) && *at >= 1 << 16;
    small.chain(large).filter(fits).find(|&at| system::map_at(at & !(PAGE - 1), pages_of(at)))
}

/// Returns the bytes of the pages that a trampoline at this address takes.
fn pages_of(at: u64) -> usize {
    ((at % PAGE + TRAMPOLINE as u64).next_multiple_of(PAGE)) as usize
}
