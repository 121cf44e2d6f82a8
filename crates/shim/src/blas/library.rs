//! The BLAS library that code of a program is linked to.

use super::control::{self, Control};
use super::names::NAMES;
use crate::linked::{self, Linked};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// Functions as one object sees them. Leaked: calls may be inside at any time.
struct Callers {
    /// Address range of the object.
    range: Range<usize>,
    entries: [BlasFunction; NAMES.len()],
    /// Whether the object or a library that it calls has been unloaded.
    gone: AtomicBool,
    next: *mut Callers,
}

/// Function of a library.
pub(super) struct BlasFunction {
    /// Its address; 0 before it was found.
    function: AtomicUsize,
    /// Number of threads of its library; null if that cannot be set. Stored before the address.
    control: AtomicPtr<Control>,
}

impl BlasFunction {
    pub(super) fn address(&self) -> usize {
        self.function.load(Acquire)
    }

    pub(super) fn control(&self) -> Option<&'static Control> {
        // SAFETY: null, or leaked.
        unsafe { self.control.load(Relaxed).as_ref() }
    }
}

static CALLERS: AtomicPtr<Callers> = AtomicPtr::new(null_mut());

fn known() -> impl Iterator<Item = &'static Callers> {
    // SAFETY: null, or leaked before it was published.
    let follow = |at: *mut Callers| unsafe { at.as_ref() };
    std::iter::successors(follow(CALLERS.load(Acquire)), move |callers| follow(callers.next))
}

/// Returns the function `NAMES[at]` that code at this address calls; `None` if no library defines
/// it.
pub(super) fn of(address: usize, at: usize) -> Option<&'static BlasFunction> {
    let callers = known().find(|callers| callers.range.contains(&address) && !callers.gone.load(Relaxed));
    if let Some(entry) = callers.and_then(|callers| callers.entries.get(at))
        && entry.address() != 0
    {
        return Some(entry);
    }
    find(address, at, callers)
}

#[cold]
fn find(address: usize, at: usize, callers: Option<&'static Callers>) -> Option<&'static BlasFunction> {
    let Linked { callers: range, function } = linked::of(address, NAMES.get(at)?)?;
    let callers = callers.unwrap_or_else(|| publish(range));
    let entry = callers.entries.get(at)?;
    entry.control.store(control::of(function), Relaxed);
    entry.function.store(function, Release);
    Some(entry)
}

fn publish(range: Range<usize>) -> &'static Callers {
    let entry = || BlasFunction { function: AtomicUsize::new(0), control: AtomicPtr::new(null_mut()) };
    let made = Box::leak(Box::new(Callers {
        range,
        entries: std::array::from_fn(|_| entry()),
        gone: AtomicBool::new(false),
        next: null_mut(),
    }));
    let mut head = CALLERS.load(Acquire);
    loop {
        made.next = head;
        match CALLERS.compare_exchange_weak(head, made, AcqRel, Acquire) {
            Ok(_) => return made,
            Err(other) => head = other,
        }
    }
}

/// Drops unloaded objects: another object may be loaded at the same address.
pub(crate) fn forget() {
    for callers in known().filter(|callers| !callers.gone.load(Relaxed)) {
        let functions = callers.entries.iter().map(BlasFunction::address).filter(|&address| address != 0);
        let mut last = None;
        let all_loaded = functions.into_iter().all(|function| {
            // Functions of one library are close to each other.
            let is_near = last.is_some_and(|last: usize| last.abs_diff(function) < 1 << 16);
            last = Some(function);
            is_near || linked::is_loaded(&callers.range, function)
        });
        if !all_loaded {
            callers.gone.store(true, Relaxed);
        }
    }
    control::forget();
}
