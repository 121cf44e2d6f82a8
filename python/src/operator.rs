//! Operators of the caller's own: a Python function that combines arrays.
//!
//! **Problem.** It is called in the middle of a collective, for pieces in the team's memory that
//! belong to others a moment later, and it may raise.
//!
//! **Idea.** It gets arrays of its own, copies of the pieces, which it may keep. If it raises, the
//! exception is kept, the team is given up at once, so that no rank takes the data combined until
//! then for a result, and the exception is raised when the call returns.

use crate::arguments::array;
use crate::buffer::Buffer;
use crate::errors::argument;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use trimtab_team::{Kernel, Type};

/// A Python function as operator. It belongs to one call, in the thread that makes it.
pub(crate) struct Own {
    callable: Py<PyAny>,
    /// An array that gives the type of new ones.
    like: Py<PyAny>,
    elements: Type,
    /// Rank of the call, while there is one.
    rank: Cell<*const trimtab_team::Rank>,
    raised: RefCell<Option<PyErr>>,
}

impl Own {
    /// Makes an operator for elements like those of an array.
    pub(crate) fn new(callable: Py<PyAny>, like: &Bound<'_, PyAny>, elements: Type) -> PyResult<Box<Self>> {
        if like.py().import("numpy").is_err() {
            return Err(argument(
                "a function as op is called with numpy's arrays, and there is no numpy here",
            ));
        }
        Ok(Box::new(Self {
            callable,
            like: like.clone().unbind(),
            elements,
            rank: Cell::new(std::ptr::null()),
            raised: RefCell::new(None),
        }))
    }

    /// Returns the code that calls it, which has this address: for calls that are over before it is
    /// dropped.
    pub(crate) fn kernel(&self) -> trimtab_team::Result<Kernel> {
        let context = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: `combine` takes such a context, touches only the elements that it is given, and
        // catches Python's exceptions. The caller keeps this value in place until the call is over
        // (`Prepared`).
        unsafe { Kernel::own(combine, context, self.elements.size()) }
    }

    /// Makes a call that combines by it, and then a barrier: no rank takes the result before all
    /// have combined without a fault.
    pub(crate) fn during(
        &self,
        rank: &trimtab_team::Rank,
        call: impl FnOnce(&trimtab_team::Rank) -> trimtab_team::Result<()>,
    ) -> trimtab_team::Result<()> {
        self.rank.set(rank);
        let result = call(rank);
        self.rank.set(std::ptr::null());
        if self.raised.borrow().is_some() { result } else { result.and_then(|()| rank.barrier()) }
    }

    /// Takes the exception that it raised.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        self.raised.take()
    }

    /// # Safety
    /// Both are valid for `count` elements, `into` for writing too.
    unsafe fn apply(&self, py: Python<'_>, into: *mut u8, from: *const u8, count: usize) -> PyResult<()> {
        let like = self.like.bind(py);
        let bytes = count * self.elements.size();
        let copy = |source: *const u8| {
            let array = array(like, self.elements, &[count])?.into_bound(py);
            let buffer = Buffer::of(&array, "op", true, Some(self.elements))?;
            // SAFETY: it has that length, and is new.
            unsafe { std::ptr::copy_nonoverlapping(source, buffer.address, bytes) };
            PyResult::Ok((array, buffer))
        };
        let (a, mine) = copy(into.cast_const())?;
        let (b, _) = copy(from)?;
        let result = self.callable.bind(py).call1((&a, b))?;
        if !result.is_none() && !result.is(&a) {
            // By numpy's rules: a function on whole numbers that returns fractions is refused, not
            // truncated.
            py.import("numpy")?.call_method1("copyto", (&a, result))?;
        }
        // SAFETY: as above; the buffer keeps the array where it is.
        unsafe { std::ptr::copy_nonoverlapping(mine.address.cast_const(), into, bytes) };
        Ok(())
    }
}

/// # Safety
/// The context is an `Own` in its call, and the addresses are valid for `count` of its elements.
unsafe extern "C" fn combine(into: *mut c_void, from: *const c_void, count: usize, context: *mut c_void) {
    // SAFETY: the caller's promise.
    let own = unsafe { &*context.cast_const().cast::<Own>() };
    if own.raised.borrow().is_some() {
        return;
    }
    // SAFETY: the caller's promise.
    let result = Python::attach(|py| unsafe { own.apply(py, into.cast(), from.cast(), count) });
    if let Err(error) = result {
        own.raised.replace(Some(error));
        // SAFETY: null, or the rank whose call this is.
        if let Some(rank) = unsafe { own.rank.get().as_ref() } {
            rank.give_up();
        }
    }
}
