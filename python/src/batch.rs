//! Several calls with one wait for all ranks before the first and one after the last.

use crate::rank::Rank;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The block of a `with` statement in which a rank's calls are loose (Rank.batch).
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct Batch {
    pub(crate) rank: Py<Rank>,
}

#[pymethods]
impl Batch {
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Rank>> {
        self.rank.get().begin_batch(py)?;
        Ok(self.rank.clone_ref(py))
    }

    /// After an exception no rank is waited for: it may be one of the calls', after which the team
    /// is over.
    #[pyo3(signature = (kind = None, *_more))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _more: &Bound<'_, PyTuple>,
    ) -> PyResult<bool> {
        self.rank.get().end_batch(py, kind.is_none())?;
        Ok(false)
    }
}
