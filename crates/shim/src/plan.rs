//! The plan as read from the environment, once, into static storage.
//!
//! Reading allocates nothing, takes no lock and is safe in a signal handler, because the first to ask may be an
//! allocator sizing itself (`sysconf`) before it can allocate. The state moves one way: unread, being read, and then
//! either applied for good or absent for good. Who asks while it is being read, which takes a signal handler or a
//! thread older than this library, is answered as if there were no plan.

use crate::cpus::Cpus;
use crate::imports;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::*};
use trimtab_core::handoff::{CPUS_MAX, Pin, Text, VARIABLE};
use trimtab_core::ids::OsCpu;

/// The most slots kept: one for each CPU there can be. Threads beyond them float in the mask.
pub(crate) const SLOTS_MAX: usize = CPUS_MAX;

/// The most runs of consecutive CPUs kept for all slots together. Chosen: two for each slot, which is what a slot of
/// two hardware threads takes. Slots beyond them are not used.
const RUNS_MAX: usize = 2 * SLOTS_MAX;

const UNREAD: u8 = 0;
const READING: u8 = 1;
const APPLIES: u8 = 2;
const ABSENT: u8 = 3;
/// There was one, and then a fault of ours: nothing more is done, but what was done is undone.
const FAULTY: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static ROOM: Room = Room(UnsafeCell::new(Plan::new()));

/// Static storage for the plan; [`STATE`] says whose it is.
struct Room(UnsafeCell<Plan>);

// SAFETY: written only by the one thread that moved STATE from UNREAD to READING, and shared only after that thread
// stored APPLIES with release ordering.
unsafe impl Sync for Room {}

/// The plan, if there is one to apply.
pub(crate) fn current() -> Option<&'static Plan> {
    match STATE.load(Acquire) {
        // SAFETY: after APPLIES nothing writes the plan any more, and the acquire load sees all that was written.
        APPLIES => Some(unsafe { &*ROOM.0.get() }),
        UNREAD => read(),
        _ => None,
    }
}

/// The plan, also after a fault: for taking back what was done by it.
pub(crate) fn to_undo() -> Option<&'static Plan> {
    match STATE.load(Acquire) {
        // SAFETY: as in `current`; a fault comes after the plan was read.
        FAULTY => Some(unsafe { &*ROOM.0.get() }),
        _ => current(),
    }
}

/// Does `work` for the host. A fault in it is ours, not the host's: from then on everything passes through.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|fault| {
        if STATE.compare_exchange(APPLIES, FAULTY, AcqRel, Acquire).is_err() {
            let _ = STATE.compare_exchange(READING, ABSENT, AcqRel, Acquire);
        }
        crate::nest::stand_down();
        std::mem::forget(fault); // its destructor may be as broken
        None
    })
}

/// Leaves everything alone from now on, before anything was done by the plan.
pub(crate) fn drop_it() {
    STATE.store(ABSENT, Release);
}

#[cold]
fn read() -> Option<&'static Plan> {
    // SAFETY: the C library's; null as long as it has not started itself, which is too early to tell.
    if unsafe { libc::environ }.is_null() {
        return None;
    }
    STATE.compare_exchange(UNREAD, READING, Acquire, Relaxed).ok()?;
    // SAFETY: this thread, alone, moved the state to READING.
    let room = unsafe { &mut *ROOM.0.get() };
    let text = variable(VARIABLE).filter(|_| imports::is_home());
    let found = guarded(|| room.fill(&Text::read(text?).ok()?));
    STATE.store(if found.is_some() { APPLIES } else { ABSENT }, Release);
    current()
}

/// The text of a variable in the environment.
///
/// Searched here and not with `getenv`, which some programs replace by their own. To be parsed before this library
/// returns to the program.
pub(crate) fn variable(name: &str) -> Option<&'static str> {
    // SAFETY: `environ` is the C library's and, not being null, points to a null-terminated array of C strings, which
    // nobody changes while a program starts.
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

/// A plan in static storage.
pub(crate) struct Plan {
    pid: u32,
    pin: Pin,
    threads: Option<u32>,
    mask: Cpus,
    slots: usize,
    /// The CPUs of all slots as runs, slot after slot: first and last CPU.
    runs: [(u16, u16); RUNS_MAX],
    /// Where the runs of each slot end.
    ends: [u16; SLOTS_MAX],
}

impl Plan {
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
                // Out of room for runs: this slot and those after it are not used, the plan still holds.
                let Some(run) = self.runs.get_mut(end) else { return Some(()) };
                *run = (u16::try_from(first.0).ok()?, u16::try_from(last.0).ok()?);
                end += 1;
            }
            *kept = u16::try_from(end).ok()?;
            self.slots += 1;
        }
        Some(())
    }

    /// Whether the plan says where threads of the calling process are born: it names one process, and its children inherit the
    /// text. Asked each time, since a fork or a `vfork` changes the answer and costs far more than the question.
    pub(crate) fn governs_this_process(&self) -> bool {
        (self.pin != Pin::Mask || crate::nest::is_active()) && self.is_of_this_process()
    }

    /// Whether the plan names the calling process.
    pub(crate) fn is_of_this_process(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        u32::try_from(unsafe { libc::getpid() }) == Ok(self.pid)
    }

    /// Whether threads take slots, or only the mask.
    pub(crate) fn has_places_for_threads(&self) -> bool {
        self.pin == Pin::Born
    }

    /// Every CPU the program may use.
    pub(crate) fn mask(&self) -> &Cpus {
        &self.mask
    }

    /// How many threads are worth starting, where that is fewer than there are CPUs in the mask.
    pub(crate) fn fewer_threads(&self) -> Option<usize> {
        let threads = usize::try_from(self.threads?).ok()?;
        (threads < self.mask.len()).then_some(threads)
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Makes `cpus` those of a slot.
    pub(crate) fn read_slot(&self, slot: usize, cpus: &mut Cpus) {
        cpus.become_runs(self.runs_of(slot));
    }

    /// Whether `mask` is exactly a slot.
    pub(crate) fn is_slot(&self, slot: usize, mask: &Cpus) -> bool {
        // Membership first: for nearly every other slot the first CPU settles it.
        let within = self
            .runs_of(slot)
            .flat_map(|(first, last)| first.0..=last.0)
            .all(|cpu| mask.contains(OsCpu(cpu)));
        within
            && self.runs_of(slot).map(|(first, last)| (last.0 - first.0) as usize + 1).sum::<usize>()
                == mask.len()
    }

    /// Whether a thread with this mask was narrowed by the program itself: to a part of the plan's mask that is no
    /// slot. A slot is what we set, or what an OpenMP runtime set that was given the slots as its places. The same is
    /// seen when the system took CPUs away, and is then as good a reason to leave threads where they are.
    pub(crate) fn is_foreign(&self, mask: &Cpus) -> bool {
        mask.is_within(&self.mask) && !(0..self.slots).any(|slot| self.is_slot(slot, mask))
    }

    /// The CPUs of a slot as runs, ascending; none for a slot there is not.
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

    fn plan(text: &str) -> Box<Plan> {
        let mut plan = Box::new(Plan::new());
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
            (&[0, 1, 2, 3, 4], false), // wider than the plan: no narrowing
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
        assert!(!plan(&text(std::process::id() + 1, "born")).governs_this_process());
    }
}
