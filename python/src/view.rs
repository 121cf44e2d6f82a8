//! Published memory in Python: an array that one rank writes and the others can only read.

use crate::layout::{ArrayLayout, array_properties};
use pyo3::prelude::*;
use std::sync::Mutex;
use trimtab_team::Type;

/// Memory that one rank of a team has published (Rank.publish). numpy.asarray() gives an array over
/// it, which can be written at the publisher only.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct View {
    /// Keeps the memory mapped. It is reached by its address; the lock only lets any thread drop
    /// it.
    pages: Mutex<trimtab_team::View<u8>>,
    layout: ArrayLayout,
}

impl View {
    /// Makes the view of an array of this shape.
    pub(crate) fn new(pages: trimtab_team::View<u8>, shape: Vec<usize>, elements: Type) -> Self {
        let (address, is_read_only) = (pages.base().expose_provenance(), pages.own().is_none());
        let layout = ArrayLayout { address, shape, elements, is_read_only };
        Self { pages: Mutex::new(pages), layout }
    }
}

array_properties!(View);

#[pymethods]
impl View {
    /// The rank that writes it.
    #[getter]
    fn publisher(&self) -> u32 {
        self.pages.lock().unwrap_or_else(std::sync::PoisonError::into_inner).publisher()
    }

    fn __repr__(&self) -> String {
        format!("<trimtab_team.View of {}, written by rank {}>", self.layout.text(), self.publisher())
    }
}
