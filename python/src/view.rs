//! Published memory in Python: an array that one rank writes and the others can only read.

use crate::buffer::name;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Mutex;
use trimtab_team::Type;

/// Memory that one rank of a team has published (Rank.publish). numpy.asarray() gives an array over
/// it, which can be written at the publisher only.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct View {
    /// Keeps the memory mapped. It is reached by its address; the lock only lets any thread drop
    /// it.
    pages: Mutex<trimtab_team::View<u8>>,
    /// Its address in this process.
    address: usize,
    is_own: bool,
    shape: Vec<usize>,
    elements: Type,
}

impl View {
    /// Makes the view of an array of this shape.
    pub(crate) fn new(pages: trimtab_team::View<u8>, shape: Vec<usize>, elements: Type) -> Self {
        let (address, is_own) = (pages.base().expose_provenance(), pages.own().is_some());
        Self { pages: Mutex::new(pages), address, is_own, shape, elements }
    }
}

#[pymethods]
impl View {
    /// The rank that writes it.
    #[getter]
    fn publisher(&self) -> u32 {
        self.pages.lock().unwrap_or_else(std::sync::PoisonError::into_inner).publisher()
    }

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
        crate::block::interface(py, &self.shape, self.elements, self.address, !self.is_own)
    }

    fn __repr__(&self) -> String {
        format!(
            "<trimtab_team.View of {:?} {}, written by rank {}>",
            self.shape,
            name(self.elements),
            self.publisher()
        )
    }
}
