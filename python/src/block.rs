//! A block of a team's memory in Python: by `__array_interface__` (numpy) and by DLPack (torch, jax
//! and others), without a copy.
//!
//! **Properties.** The block, and every array over it, keeps the memory mapped, also after the rank
//! has left.

use crate::dlpack;
use crate::layout::{ArrayLayout, array, array_properties};
use pyo3::prelude::*;
use trimtab_team::{Team, Type};

/// Elements in the memory of a team, which other ranks can access, too. numpy.asarray(block) and
/// numpy.from_dlpack(block) are arrays over them, and collectives take it without a copy.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct Block {
    /// Keeps the memory.
    pub(crate) team: Team,
    pub(crate) layout: ArrayLayout,
}

impl Block {
    /// Makes the block at an address of a team's memory.
    pub(crate) fn new(team: Team, address: usize, shape: Vec<usize>, elements: Type) -> Self {
        Self { team, layout: ArrayLayout { address, shape, elements, is_read_only: false } }
    }

    /// Makes a numpy array over it, which keeps it.
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let elements = self.layout.elements;
        array(Bound::new(py, self)?.as_any(), elements)
    }
}

array_properties!(Block);

#[pymethods]
impl Block {
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
        format!("<trimtab_team.Block of {}>", self.layout.text())
    }
}
