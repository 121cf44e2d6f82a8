//! The plan, read once from the environment into static storage.
//!
//! Reading allocates nothing, takes no lock and is safe in a signal handler, because the first
//! caller may be an allocator that computes its own size (`sysconf`) before it can allocate. The
//! state changes in one direction: unread, being read, then applied or absent; a fault of the shim
//! changes the state from applied to faulty permanently. While the plan is being read, only a
//! signal handler, or a thread that is older than this library, can request it; the result is then
//! that there is no plan.

use crate::cpus::Cpus;
use crate::{imports, narrowed};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::*};
use trimtab_core::handoff::{CPUS_MAX, Pin, Text, VARIABLE};
use trimtab_core::ids::OsCpu;

/// Bound of the stored slots: one for each CPU there can be. Threads beyond them float in the mask.
pub(crate) const SLOTS_MAX: usize = CPUS_MAX;

/// Bound of the stored runs of consecutive CPUs, for all slots together. Chosen: two for each slot,
/// as many as a slot of two hardware threads needs. Slots beyond the bound are not used.
const RUNS_MAX: usize = 2 * SLOTS_MAX;

const STATE_UNREAD: u8 = 0;
const STATE_READING: u8 = 1;
const STATE_APPLIES: u8 = 2;
const STATE_ABSENT: u8 = 3;
/// State after a fault of the shim under a plan: no more actions, but changes are undone.
const STATE_FAULTY: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(STATE_UNREAD);
static ROOM: Room = Room(UnsafeCell::new(AppliedPlan::new()));

/// Static storage for the plan; [`STATE`] says which thread may use it.
struct Room(UnsafeCell<AppliedPlan>);

// SAFETY: written only by the one thread that moved STATE from STATE_UNREAD to STATE_READING, and
// shared only after that thread stored STATE_APPLIES with release ordering.
unsafe impl Sync for Room {}

/// Returns the plan, if there is one to apply.
pub(crate) fn current() -> Option<&'static AppliedPlan> {
    match STATE.load(Acquire) {
        // SAFETY: after STATE_APPLIES nothing writes the plan any more, and the acquire load sees
        // all writes.
        STATE_APPLIES => Some(unsafe { &*ROOM.0.get() }),
        STATE_UNREAD => read(),
        _ => None,
    }
}

/// Returns the plan, also after a fault, to take back changes that were made by it.
pub(crate) fn to_undo() -> Option<&'static AppliedPlan> {
    match STATE.load(Acquire) {
        // SAFETY: as in `current`; a fault comes after the plan was read.
        STATE_FAULTY => Some(unsafe { &*ROOM.0.get() }),
        _ => current(),
    }
}

/// Runs `work` for the host program. A fault in it is a fault of the shim: from then on every call
/// passes through.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|fault| {
        if STATE.compare_exchange(STATE_APPLIES, STATE_FAULTY, AcqRel, Acquire).is_err() {
            let _ = STATE.compare_exchange(STATE_READING, STATE_ABSENT, AcqRel, Acquire);
        }
        crate::nest::stand_down();
        crate::budget::stand_down();
        crate::spin::stand_down();
        std::mem::forget(fault); // its destructor may be as broken
        None
    })
}

/// Drops the plan before anything was done by it. Every call passes through from now on.
pub(crate) fn drop_it() {
    STATE.store(STATE_ABSENT, Release);
}

#[cold]
fn read() -> Option<&'static AppliedPlan> {
    // SAFETY: the C library's; null as long as it has not started itself, which is too early to
    // read the plan.
    if unsafe { libc::environ }.is_null() {
        return None;
    }
    STATE.compare_exchange(STATE_UNREAD, STATE_READING, Acquire, Relaxed).ok()?;
    // SAFETY: this thread, alone, moved the state to STATE_READING.
    let room = unsafe { &mut *ROOM.0.get() };
    let text = variable(VARIABLE).filter(|_| imports::is_home());
    let found = guarded(|| {
        room.fill(&Text::read(text?).ok()?)?;
        narrowed::note_start(room);
        Some(())
    });
    STATE.store(if found.is_some() { STATE_APPLIES } else { STATE_ABSENT }, Release);
    current()
}

/// Returns the text of a variable in the environment.
///
/// Searched here and not with `getenv`, which some programs replace. To be parsed before this
/// library returns to the program.
pub(crate) fn variable(name: &str) -> Option<&'static str> {
    // SAFETY: `environ` is the C library's and, not being null, points to a null-terminated array
    // of C strings, which does not change while a program starts.
    unsafe {
        let mut entry = libc::environ.cast_const();
        while !entry.is_null() && !(*entry).is_null() {
            let value = CStr::from_ptr(*entry).to_bytes().strip_prefix(name.as_bytes());
            if let Some(value) = value.and_then(|rest| rest.strip_prefix(b"=")) {
                return std::str::from_utf8(value).ok();
            }
            entry = entry.add(1);
        }
        None
    }
}

/// Plan in static storage.
pub(crate) struct AppliedPlan {
    pid: u32,
    pin: Pin,
    threads: Option<u32>,
    mask: Cpus,
    slots: usize,
    /// CPUs of all slots as runs, slot after slot: first and last CPU.
    runs: [(u16, u16); RUNS_MAX],
    /// Index behind the last run of each slot.
    ends: [u16; SLOTS_MAX],
}

impl AppliedPlan {
    const fn new() -> Self {
        Self {
            pid: 0,
            pin: Pin::Born,
            threads: None,
            mask: Cpus::new(),
            slots: 0,
            runs: [(0, 0); RUNS_MAX],
            ends: [0; SLOTS_MAX],
        }
    }

    fn fill(&mut self, text: &Text<'_>) -> Option<()> {
        (self.pid, self.pin, self.threads) = (text.pid, text.pin, text.threads);
        self.mask.become_runs(text.mask());
        let mut end = 0;
        for (kept, slot) in self.ends.iter_mut().zip(text.slots()) {
            for (first, last) in slot {
                // Out of room for runs: this slot and those after it are not used; the plan stays
                // valid.
                let Some(run) = self.runs.get_mut(end) else { return Some(()) };
                *run = (u16::try_from(first.0).ok()?, u16::try_from(last.0).ok()?);
                end += 1;
            }
            *kept = u16::try_from(end).ok()?;
            self.slots += 1;
        }
        Some(())
    }

    /// Returns whether the plan places new threads of the calling process: it names one process,
    /// and the children of this process inherit the text. Computed each time, since a fork or a
    /// `vfork` changes the result and costs far more than computing it.
    pub(crate) fn governs_this_process(&self) -> bool {
        let places = !matches!(self.pin, Pin::Mask | Pin::Moved) || crate::nest::is_active();
        places && self.is_of_this_process()
    }

    /// Returns whether the plan names the calling process.
    pub(crate) fn is_of_this_process(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        u32::try_from(unsafe { libc::getpid() }) == Ok(self.pid)
    }

    /// Returns whether threads take slots, rather than only the mask.
    pub(crate) fn has_places_for_threads(&self) -> bool {
        self.pin == Pin::Born
    }

    /// Returns whether threads start in the mask, because something else places them.
    pub(crate) fn floats(&self) -> bool {
        self.pin == Pin::Float
    }

    /// Returns whether a balancer moves threads.
    pub(crate) fn is_balanced(&self) -> bool {
        self.pin == Pin::Moved
    }

    /// Returns every CPU that the program may use.
    pub(crate) fn mask(&self) -> &Cpus {
        &self.mask
    }

    /// Returns how many threads are worth starting, if fewer than there are CPUs in the mask.
    pub(crate) fn fewer_threads(&self) -> Option<usize> {
        let threads = usize::try_from(self.threads?).ok()?;
        (threads < self.mask.len()).then_some(threads)
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Replaces `cpus` by the CPUs of a slot.
    pub(crate) fn read_slot(&self, slot: usize, cpus: &mut Cpus) {
        cpus.become_runs(self.runs_of(slot));
    }

    /// Returns whether `mask` is exactly a slot.
    pub(crate) fn is_slot(&self, slot: usize, mask: &Cpus) -> bool {
        // Membership first: for nearly every other slot, its first CPU decides.
        let within = self
            .runs_of(slot)
            .flat_map(|(first, last)| first.0..=last.0)
            .all(|cpu| mask.contains(OsCpu(cpu)));
        within
            && self.runs_of(slot).map(|(first, last)| (last.0 - first.0) as usize + 1).sum::<usize>()
                == mask.len()
    }

    /// Returns whether the program itself narrowed a thread with this mask: to a part of the plan's
    /// mask that is not a slot. A slot is set by the shim, or by an OpenMP runtime that was given
    /// the slots as its places. The result is the same after the system withdrew CPUs, which is
    /// also a reason to leave the thread unchanged.
    pub(crate) fn is_foreign(&self, mask: &Cpus) -> bool {
        mask.is_within(&self.mask) && !(0..self.slots).any(|slot| self.is_slot(slot, mask))
    }

    /// Yields the CPUs of a slot as runs, ascending; none if the slot does not exist.
    fn runs_of(&self, slot: usize) -> impl Iterator<Item = (OsCpu, OsCpu)> {
        let ends = self.ends.get(..self.slots).unwrap_or_default();
        let start = slot.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied());
        let runs =
            start.zip(ends.get(slot)).and_then(|(start, &end)| self.runs.get(start.into()..end.into()));
        runs.unwrap_or_default().iter().map(|&(first, last)| (OsCpu(first.into()), OsCpu(last.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Box<AppliedPlan> {
        let mut plan = Box::new(AppliedPlan::new());
        plan.fill(&Text::read(text).unwrap()).unwrap();
        plan
    }

    fn cpus(list: &[u32]) -> Cpus {
        let mut cpus = Cpus::new();
        cpus.become_runs(list.iter().map(|&cpu| (OsCpu(cpu), OsCpu(cpu))));
        cpus
    }

    #[test]
    fn slots_come_back_as_written() {
        let plan = plan("1 pid=1 mask=0-3,64-67 slots=1,65/0,64/3/2,64-66 pin=born");
        assert_eq!((plan.slots(), plan.mask().len(), plan.mask().end()), (4, 8, 68));
        let mut read = cpus(&[7]);
        for (slot, list) in [&[1, 65][..], &[0, 64], &[3], &[2, 64, 65, 66]].into_iter().enumerate() {
            plan.read_slot(slot, &mut read);
            assert!(read == cpus(list) && plan.is_slot(slot, &read), "slot {slot}");
            assert!(!plan.is_slot((slot + 1) % 4, &read), "slot {slot} is no other");
        }
        plan.read_slot(4, &mut read);
        assert!(read == Cpus::new());
    }

    #[test]
    fn threads_are_fewer_than_cpus_only_where_the_plan_says_so() {
        for (end, threads) in
            [("", None), (" threads=2", Some(2)), (" threads=4", None), (" threads=9", None)]
        {
            assert_eq!(plan(&format!("1 pid=1 mask=0-3 slots=0/1 pin=born{end}")).fewer_threads(), threads);
        }
    }

    #[test]
    fn a_mask_is_foreign_when_it_is_neither_plan_nor_slot() {
        let plan = plan("1 pid=1 mask=0-3 slots=1/0,2 pin=born");
        for (mask, foreign) in [
            (&[0, 1, 2, 3][..], false), // the plan's own
            (&[1], false),
            (&[0, 2], false),
            (&[0], true), // part of a slot
            (&[0, 1], true),
            (&[0, 1, 2, 3, 4], false), // wider than the plan: not narrowed
            (&[7], false),
        ] {
            assert_eq!(plan.is_foreign(&cpus(mask)), foreign, "{mask:?}");
        }
    }

    #[test]
    fn a_plan_beyond_the_room_keeps_the_slots_that_fit() {
        let slots = |slot: &str, count| vec![slot; count].join("/");
        let wide = plan(&format!("1 pid=1 mask=0-9 slots={} pin=born", slots("0", SLOTS_MAX + 5)));
        assert_eq!(wide.slots(), SLOTS_MAX);
        let holes = plan(&format!("1 pid=1 mask=0-9 slots={} pin=born", slots("0,2,4,6", SLOTS_MAX)));
        assert_eq!(holes.slots(), RUNS_MAX / 4);
        assert!(holes.is_slot(RUNS_MAX / 4 - 1, &cpus(&[0, 2, 4, 6])));
    }

    #[test]
    fn a_process_without_a_plan_has_none() {
        assert!(current().is_none());
    }

    #[test]
    fn a_fault_of_ours_is_contained() {
        assert_eq!(guarded(|| Some(1)), Some(1));
        assert_eq!(guarded(|| -> Option<u8> { panic!("as planned") }), None);
        assert!(current().is_none());
    }

    #[test]
    fn only_the_named_process_is_pinned() {
        let text = |pid: u32, pin: &str| format!("1 pid={pid} mask=0 slots=0 pin={pin}");
        assert!(plan(&text(std::process::id(), "born")).governs_this_process());
        assert!(!plan(&text(std::process::id(), "mask")).governs_this_process());
        assert!(!plan(&text(std::process::id(), "moved")).governs_this_process());
        assert!(!plan(&text(std::process::id() + 1, "born")).governs_this_process());
    }
}
