//! Elements in memory, as Python sees them: by numpy's `__array_interface__`, for all classes whose
//! objects are such memory.

use crate::buffer::name;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trimtab_team::Type;

/// Place, shape and type of elements.
pub(crate) struct ArrayLayout {
    /// Their address in this process.
    pub(crate) address: usize,
    /// Lengths of all dimensions.
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Type,
    pub(crate) is_read_only: bool,
}

impl ArrayLayout {
    /// Returns the lengths of all dimensions.
    pub(crate) fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Returns the array interface of numpy, version 3.
    pub(crate) fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let letter = match self.elements {
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => 'i',
            Type::F16 | Type::F32 | Type::F64 => 'f',
            Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::BF16 => 'u',
        };
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.lengths(py)?)?;
        interface.set_item("typestr", format!("{order}{letter}{}", self.elements.size()))?;
        interface.set_item("data", (self.address, self.is_read_only))?;
        Ok(interface)
    }

    /// Returns shape and type of the elements, as the objects' texts show them.
    pub(crate) fn text(&self) -> String {
        format!("{:?} {}", self.shape, name(self.elements))
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

/// Gives a class with a field `layout` the properties of numpy's arrays.
macro_rules! array_properties {
    ($class:ty) => {
        #[pymethods]
        impl $class {
            /// Lengths of all dimensions.
            #[getter]
            fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                self.layout.lengths(py)
            }

            /// The name of the elements' type in numpy.
            #[getter]
            fn dtype(&self) -> &'static str {
                $crate::buffer::name(self.layout.elements)
            }

            /// The array interface of numpy, version 3.
            #[getter]
            fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
                self.layout.interface(py)
            }
        }
    };
}

pub(crate) use array_properties;
