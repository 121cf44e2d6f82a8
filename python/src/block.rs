//! A block of a team's memory in Python: by `__array_interface__` (numpy) and by DLPack (torch, jax
//! and others), without a copy.
//!
//! **Properties.** The block, and every array over it, keeps the memory mapped, also after the rank
//! has left.

use crate::buffer::name;
use crate::dlpack;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trimtab_team::{Team, Type};

/// Elements in the memory of a team, which other ranks can access, too. numpy.asarray(block) and
/// numpy.from_dlpack(block) are arrays over them, and collectives take it without a copy.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct Block {
    /// Keeps the memory.
    pub(crate) team: Team,
    /// Its address in this process.
    pub(crate) address: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Type,
}

impl Block {
    /// Makes a numpy array over it, which keeps it.
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let elements = self.elements;
        array(Bound::new(py, self)?.as_any(), elements)
    }
}

/// Makes a numpy array over an object with `__array_interface__`, which the array keeps.
pub(crate) fn array(of: &Bound<'_, PyAny>, elements: Type) -> PyResult<Py<PyAny>> {
    let py = of.py();
    let array = py.import("numpy")?.call_method1("asarray", (of,))?;
    // numpy has no bfloat16 of its own; without ml_dtypes the bits are given as whole numbers.
    match py.import("ml_dtypes") {
        Ok(types) if elements == Type::BF16 => {
            Ok(array.call_method1("view", (types.getattr("bfloat16")?,))?.unbind())
        }
        _ => Ok(array.unbind()),
    }
}

/// Returns the array interface of numpy, version 3, of memory at an address.
pub(crate) fn interface<'py>(
    py: Python<'py>,
    shape: &[usize],
    elements: Type,
    address: usize,
    is_read_only: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let letter = match elements {
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => 'i',
        Type::F16 | Type::F32 | Type::F64 => 'f',
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::BF16 => 'u',
    };
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("shape", PyTuple::new(py, shape)?)?;
    interface.set_item("typestr", format!("{order}{letter}{}", elements.size()))?;
    interface.set_item("data", (address, is_read_only))?;
    Ok(interface)
}

#[pymethods]
impl Block {
    /// Lengths of all dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The name of the elements' type in numpy.
    #[getter]
    fn dtype(&self) -> &'static str {
        name(self.elements)
    }

    /// The array interface of numpy, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, &self.shape, self.elements, self.address, false)
    }

    /// Returns a DLPack capsule, for a library's from_dlpack.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some()
            || dl_device.is_some_and(|device| device != dlpack::PROCESSOR)
            || copy == Some(true)
        {
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "a team's memory belongs to the CPU, has no streams, and is not copied",
            ));
        }
        dlpack::capsule(py, self, max_version.is_some_and(|version| version >= (1, 0)))
    }

    /// Returns the CPU's type and number in DLPack.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::PROCESSOR
    }

    fn __repr__(&self) -> String {
        format!("<trimtab_team.Block of {:?} {}>", self.shape, name(self.elements))
    }
}
