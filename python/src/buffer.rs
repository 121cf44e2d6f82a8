//! Elements passed from Python: anything with the buffer protocol, or `__array_interface__`.
//!
//! **Problem.** The protocol is in the stable interface of Python only from 3.11 on, and one wheel
//! is to work for all versions from 3.9 on.
//!
//! **Idea.** Its functions and the struct have been the same in every Python since 3.9, and 3.11
//! froze them unchanged: they are declared here. Types for which numpy does not support the
//! protocol (bfloat16 of `ml_dtypes`) are reached by `__array_interface__`, whose memory the owner
//! keeps.

use crate::errors::argument;
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::ffi::{CStr, c_char, c_int, c_void};
use trimtab_team::Type;

/// Same layout as in Python's `object.h`.
#[repr(C)]
struct View {
    address: *mut c_void,
    owner: *mut PyObject,
    bytes: Py_ssize_t,
    element: Py_ssize_t,
    readonly: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_CheckBuffer(object: *mut PyObject) -> c_int;
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// Requests format, shape, strides and suboffsets, so that errors can name the property that does
/// not fit.
const FULL: c_int = 0x4 | 0x8 | 0x10 | 0x100;

/// A view that is released, with the interpreter's lock, when it is dropped.
struct Export(Box<View>);

// SAFETY: the data behind the pointers belongs to the owner, and the view keeps it until any thread
// releases the view.
unsafe impl Send for Export {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Export {}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: filled by PyObject_GetBuffer, and released once, with the lock held.
        Python::attach(|_| unsafe { PyBuffer_Release(&raw mut *self.0) });
    }
}

/// Elements of one type, contiguous, kept in place until dropped.
pub(crate) struct Buffer {
    /// Their address; never null.
    pub(crate) address: *mut u8,
    /// Number of elements.
    pub(crate) count: usize,
    /// Their type.
    pub(crate) elements: Type,
    /// Lengths of all dimensions.
    pub(crate) shape: Vec<usize>,
    _export: Option<Export>,
    _owner: Py<PyAny>,
}

// SAFETY: an address in memory that the owner keeps; each access argues its own case.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Gets the buffer of an object. `what` names it in errors, `write` asks for writable memory,
    /// `told` is the type of its bits.
    pub(crate) fn of(
        object: &Bound<'_, PyAny>,
        what: &str,
        write: bool,
        told: Option<Type>,
    ) -> PyResult<Self> {
        // SAFETY: an object, and the lock is held. Without the protocol the rest would make an
        // exception only to discard it.
        if unsafe { PyObject_CheckBuffer(object.as_ptr()) } == 0
            && let Some(found) = Self::by_interface(object, what, write, told)?
        {
            return Ok(found);
        }
        let mut view = Box::new(View {
            address: std::ptr::null_mut(),
            owner: std::ptr::null_mut(),
            bytes: 0,
            element: 0,
            readonly: 0,
            dimensions: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: an object, and a struct of the layout that the function fills; the lock is held,
        // as `object` shows.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, FULL) } != 0 {
            let error = PyErr::fetch(object.py());
            return Self::by_interface(object, what, write, told)
                .and_then(|found| found.ok_or_else(|| refusal(object, what, &error)));
        }
        let export = Export(view);
        let view = &export.0;
        // SAFETY: both arrays have as many entries as there are dimensions, or are null; the view
        // is held.
        let (shape, strides) = unsafe {
            let list = |from: *mut Py_ssize_t| {
                (!from.is_null()).then(|| std::slice::from_raw_parts(from, view.dimensions.max(0) as usize))
            };
            (list(view.shape), list(view.strides))
        };
        let element = view.element.max(1) as usize;
        let shape: Vec<usize> = match shape {
            Some(shape) => shape.iter().map(|n| *n as usize).collect(),
            // A single number.
            None if view.dimensions == 0 => Vec::new(),
            None => vec![view.bytes as usize / element],
        };
        let format = if view.format.is_null() {
            "B".into()
        } else {
            // SAFETY: a string that ends in zero, the owner's while the view is held.
            unsafe { CStr::from_ptr(view.format) }.to_string_lossy()
        };
        let elements = typed(by_format(&format, element), told, element, what, &format)?;
        if !view.suboffsets.is_null() || strides.is_some_and(|strides| !dense(&shape, strides, element)) {
            return Err(scattered(what, strides.unwrap_or_default(), element));
        }
        if write && view.readonly != 0 {
            return Err(argument(format!("{what} is to be written, and this {} is read-only", kind(object))));
        }
        let address = placed(view.address.cast());
        let count = view.bytes as usize / element;
        Ok(Self { address, count, elements, shape, _export: Some(export), _owner: object.clone().unbind() })
    }

    /// The same by `__array_interface__`; `None` for an object without one.
    fn by_interface(
        object: &Bound<'_, PyAny>,
        what: &str,
        write: bool,
        told: Option<Type>,
    ) -> PyResult<Option<Self>> {
        // Scalars of numpy have one too, of a copy.
        let Ok(interface) = object.getattr("__array_interface__") else { return Ok(None) };
        let Ok(interface) = interface.cast_into::<PyDict>() else { return Ok(None) };
        let field = |name: &str| {
            interface
                .get_item(name)?
                .ok_or_else(|| argument(format!("{what}: an __array_interface__ without {name}")))
        };
        let code: String = field("typestr")?.extract()?;
        let (address, readonly): (usize, bool) = field("data")?.extract()?;
        let shape: Vec<usize> = field("shape")?.extract()?;
        let element = code.get(2..).and_then(|digits| digits.parse().ok()).unwrap_or(1_usize).max(1);
        let name = object.getattr("dtype").map(|dtype| dtype.to_string()).unwrap_or_default();
        let found = if name == "bfloat16" { Some(Type::BF16) } else { by_interface_code(&code) };
        let elements = typed(found, told, element, what, if name.is_empty() { &code } else { &name })?;
        if let Some(strides) = interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
            let strides: Vec<Py_ssize_t> = strides.extract()?;
            if !dense(&shape, &strides, element) {
                return Err(scattered(what, &strides, element));
            }
        }
        if write && readonly {
            return Err(argument(format!("{what} is to be written, and this {} is read-only", kind(object))));
        }
        let count = shape.iter().product();
        let address = placed(std::ptr::with_exposed_provenance_mut(address));
        Ok(Some(Self { address, count, elements, shape, _export: None, _owner: object.clone().unbind() }))
    }

    /// Returns the bytes of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.elements.size()
    }
}

/// Returns a valid address also if there are no elements.
fn placed(address: *mut u8) -> *mut u8 {
    if address.is_null() { std::ptr::dangling_mut::<u64>().cast() } else { address }
}

fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

#[cold]
fn refusal(object: &Bound<'_, PyAny>, what: &str, error: &PyErr) -> PyErr {
    argument(format!(
        "{what} is to be an array, or anything else with the buffer protocol, not {}: {}",
        kind(object),
        error.value(object.py())
    ))
}

#[cold]
fn scattered(what: &str, strides: &[Py_ssize_t], element: usize) -> PyErr {
    argument(format!(
        "{what} must have its elements one after the other, in the order of C; this one has strides of {strides:?} bytes for elements \
         of {element}: pass numpy.ascontiguousarray() of it"
    ))
}

/// Returns whether the elements are contiguous.
fn dense(shape: &[usize], strides: &[Py_ssize_t], element: usize) -> bool {
    let mut wanted = element;
    let mut gaps = false;
    for (length, stride) in shape.iter().zip(strides).rev() {
        // A dimension of one element may have any stride; one of none has no elements at all.
        match length {
            0 => return true,
            1 => {}
            _ => gaps |= usize::try_from(*stride) != Ok(wanted),
        }
        wanted *= length;
    }
    !gaps
}

/// Returns the type, as found or as passed.
fn typed(found: Option<Type>, told: Option<Type>, element: usize, what: &str, name: &str) -> PyResult<Type> {
    match (found, told) {
        (_, Some(told)) if told.size() == element => Ok(told),
        (_, Some(told)) => Err(argument(format!(
            "{what} has elements of {element} bytes, and those of dtype={} have {}",
            told.name(),
            told.size()
        ))),
        (Some(found), None) => Ok(found),
        (None, None) => Err(argument(format!(
            "{what} has elements of type {name:?}; a team knows int8 to int64, uint8 to uint64, float16, bfloat16, float32 and float64 of \
             this machine's byte order (for others pass a view of them, or dtype='bfloat16' with uint16)"
        ))),
    }
}

/// Returns the type of a format of Python's `struct`.
fn by_format(format: &str, bytes: usize) -> Option<Type> {
    let foreign = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
    if format.starts_with(foreign) && bytes > 1 {
        return None;
    }
    match format.trim_start_matches(['@', '=', '<', '>', '!']) {
        "b" | "h" | "i" | "l" | "q" | "n" => whole(true, bytes),
        "B" | "H" | "I" | "L" | "Q" | "N" => whole(false, bytes),
        "e" | "f" | "d" => fraction(bytes),
        _ => None,
    }
}

/// Returns the type of a code such as `<f8`.
fn by_interface_code(code: &str) -> Option<Type> {
    let foreign = if cfg!(target_endian = "little") { '>' } else { '<' };
    let bytes = code.get(2..)?.parse().ok()?;
    if code.starts_with(foreign) && bytes > 1 {
        return None;
    }
    match code.get(1..2)? {
        "i" => whole(true, bytes),
        "u" => whole(false, bytes),
        "f" => fraction(bytes),
        _ => None,
    }
}

fn whole(signed: bool, bytes: usize) -> Option<Type> {
    Some(match (signed, bytes) {
        (true, 1) => Type::I8,
        (true, 2) => Type::I16,
        (true, 4) => Type::I32,
        (true, 8) => Type::I64,
        (false, 1) => Type::U8,
        (false, 2) => Type::U16,
        (false, 4) => Type::U32,
        (false, 8) => Type::U64,
        _ => return None,
    })
}

fn fraction(bytes: usize) -> Option<Type> {
    Some(match bytes {
        2 => Type::F16,
        4 => Type::F32,
        8 => Type::F64,
        _ => return None,
    })
}

/// Returns numpy's name for a type.
pub(crate) fn name(elements: Type) -> &'static str {
    match elements {
        Type::I8 => "int8",
        Type::I16 => "int16",
        Type::I32 => "int32",
        Type::I64 => "int64",
        Type::U8 => "uint8",
        Type::U16 => "uint16",
        Type::U32 => "uint32",
        Type::U64 => "uint64",
        Type::F16 => "float16",
        Type::BF16 => "bfloat16",
        Type::F32 => "float32",
        Type::F64 => "float64",
    }
}

/// Returns the type of a `dtype=` argument: a name of this library's or of numpy's, or anything
/// that numpy accepts.
pub(crate) fn dtype(told: &Bound<'_, PyAny>) -> PyResult<Type> {
    let known = |word: &str| {
        Type::ALL.into_iter().find(|elements| word == name(*elements) || word == elements.name())
    };
    let word = match told.cast::<PyString>() {
        Ok(word) => word.to_string(),
        Err(_) => told
            .getattr("name")
            .or_else(|_| told.getattr("__name__"))
            .map_or_else(|_| told.to_string(), |name| name.to_string()),
    };
    if let Some(elements) = known(&word) {
        return Ok(elements);
    }
    let asked = told.py().import("numpy").and_then(|numpy| numpy.getattr("dtype")?.call1((told,)));
    asked
        .and_then(|dtype| dtype.getattr("name")?.extract::<String>())
        .ok()
        .and_then(|word| known(&word))
        .ok_or_else(|| argument(format!("no type of a team's elements: dtype={word}")))
}
