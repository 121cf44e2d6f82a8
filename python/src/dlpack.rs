//! DLPack's structs (<https://dmlc.github.io/dlpack>, versions 0 and 1), filled for a block of a
//! team's memory.

use crate::block::Block;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use trimtab_team::{Team, Type};

/// Type and number of the device.
pub(crate) const PROCESSOR: (i32, i32) = (1, 0);

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: (i32, i32),
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

#[repr(C)]
struct Old {
    tensor: Tensor,
    keeper: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut Old)>,
}

#[repr(C)]
struct New {
    version: [u32; 2],
    keeper: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut New)>,
    flags: u64,
    tensor: Tensor,
}

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";

/// The data that a tensor needs as long as it lives.
struct Kept {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _team: Team,
}

unsafe extern "C" fn delete_old(tensor: *mut Old) {
    // SAFETY: both came out of boxes in `capsule`; the tensor's holder deletes it once.
    unsafe {
        drop(Box::from_raw((*tensor).keeper.cast::<Kept>()));
        drop(Box::from_raw(tensor));
    }
}

unsafe extern "C" fn delete_new(tensor: *mut New) {
    // SAFETY: as above.
    unsafe {
        drop(Box::from_raw((*tensor).keeper.cast::<Kept>()));
        drop(Box::from_raw(tensor));
    }
}

/// Destroys a capsule. If it still has its name, no library took the tensor out of it.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule made here, with the name of its struct.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) != 0 {
            delete_old(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) != 0 {
            delete_new(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// Makes a capsule of the old or the new version.
pub(crate) fn capsule<'py>(py: Python<'py>, block: &Block, new: bool) -> PyResult<Bound<'py, PyAny>> {
    let shape: Vec<i64> = block.layout.shape.iter().map(|n| *n as i64).collect();
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at];
    }
    let mut kept = Box::new(Kept { shape, strides, _team: block.team.clone() });
    let tensor = Tensor {
        data: std::ptr::with_exposed_provenance_mut(block.layout.address),
        device: PROCESSOR,
        dimensions: kept.shape.len() as i32,
        code: match block.layout.elements {
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => 0,
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => 1,
            Type::F16 | Type::F32 | Type::F64 => 2,
            Type::BF16 => 4,
        },
        bits: block.layout.elements.size() as u8 * 8,
        lanes: 1,
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        offset: 0,
    };
    let keeper = Box::into_raw(kept).cast();
    let (address, name): (*mut c_void, _) = if new {
        let tensor = New { version: [1, 0], keeper, delete: Some(delete_new), flags: 0, tensor };
        (Box::into_raw(Box::new(tensor)).cast(), NEW)
    } else {
        let tensor = Old { tensor, keeper, delete: Some(delete_old) };
        (Box::into_raw(Box::new(tensor)).cast(), OLD)
    };
    // SAFETY: a struct on the heap that the capsule now owns, a static name, and the lock is held.
    unsafe {
        let capsule = ffi::PyCapsule_New(address, name.as_ptr(), Some(unused));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}
