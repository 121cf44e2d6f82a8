//! Library that code at an address is linked to, by the name of one of its functions.
//!
//! Several libraries may define the same function (each Python wheel brings its own OpenMP runtime
//! and its own BLAS), and an interposed call must reach the definition that the loader would have
//! chosen. The loader searches the objects that the program starts with first, whatever libraries a
//! later object names as needed. If none of them defines the function, the object that holds the
//! address is searched, then the libraries that this object needs.

use crate::objects::{self, Object};
use libc::c_void;
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of objects that the program started with. The loader lists them first, and never unloads
/// them.
static AT_START: AtomicUsize = AtomicUsize::new(0);

/// Code and the library that it is linked to.
pub(crate) struct Linked {
    /// Address range of the object that holds the code.
    pub(crate) callers: Range<usize>,
    /// Address of the function in the library.
    pub(crate) function: usize,
}

/// Definitions of a function, by the order in which the loader searches them.
#[derive(Default)]
struct Definitions {
    /// Of the objects that the program started with.
    at_start: Option<usize>,
    /// Of the object that holds the code.
    own: Option<usize>,
    /// Of a library that this object needs.
    needed: Option<usize>,
    /// Of any object.
    first: Option<usize>,
}

/// Counts the objects that the program starts with. Called before the program begins.
pub(crate) fn note_start() {
    let mut count = 0;
    objects::visit(|_| -> ControlFlow<()> {
        count += 1;
        ControlFlow::Continue(())
    });
    AT_START.store(count, Relaxed);
}

/// Returns the library whose function of this name the code at an address calls; `None` if no
/// library defines it.
pub(crate) fn of(address: usize, name: &CStr) -> Option<Linked> {
    let Definitions { at_start, own, needed, first } = definitions(address, name);
    // The first object that defines the function would be called without this library.
    let function = at_start.or(own).or(needed).or(first)?;
    // Code outside all objects is stored by its own address.
    let mut callers = address..address.saturating_add(1);
    objects::visit(|object| match object.holds(address) {
        true => {
            callers = object.range();
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    });
    Some(Linked { callers, function })
}

/// Returns the function of this name in the library that holds an address, or in one that this
/// library needs.
pub(crate) fn beside(address: usize, name: &CStr) -> Option<usize> {
    let Definitions { own, needed, .. } = definitions(address, name);
    own.or(needed)
}

fn definitions(address: usize, name: &CStr) -> Definitions {
    let mut found = Definitions::default();
    let (mut behind, mut position) = (Behind::default(), 0);
    objects::visit(|candidate| -> ControlFlow<()> {
        position += 1;
        let Some(function) = behind.definition(candidate, name) else {
            return ControlFlow::Continue(());
        };
        found.first.get_or_insert(function);
        if position <= AT_START.load(Relaxed) {
            found.at_start.get_or_insert(function);
        }
        if candidate.holds(address) {
            found.own.get_or_insert(function);
        }
        let caller_needs = |object: &Object<'_>| {
            object.holds(address)
                && (object.needs(candidate.file())
                    || candidate.soname().is_some_and(|name| object.needs(name)))
        };
        // For the program itself the first is right, even if another object has the same name.
        let needed = objects::visit(|object| match caller_needs(object) && !object.path().is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        if needed.is_some() {
            found.needed.get_or_insert(function);
        }
        ControlFlow::Continue(())
    });
    found
}

/// Returns whether the objects of a caller and of a function are still loaded where they were.
pub(crate) fn is_loaded(callers: &Range<usize>, function: usize) -> bool {
    let is_there = |address: usize, range: Option<&Range<usize>>| {
        objects::visit(|object| {
            match object.holds(address) && range.is_none_or(|range| object.range() == *range) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .is_some()
    };
    is_there(callers.start, Some(callers)) && is_there(function, None)
}

/// Determines which of the visited objects come after this library: those that `RTLD_NEXT` would
/// search. An object before it may interpose these functions too, and expect this library to call
/// the next one.
#[derive(Default)]
struct Behind(bool);

impl Behind {
    /// Returns the function in an object behind this library.
    fn definition(&mut self, object: &Object<'_>, name: &CStr) -> Option<usize> {
        if object.holds(definitions as *const c_void as usize) {
            self.0 = true;
            return None;
        }
        object.defines(name).filter(|_| self.0)
    }
}
