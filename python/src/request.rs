//! A started call.

use crate::pinned::Pinned;
use crate::rank::Rank;
use pyo3::prelude::*;

/// A call under way (Rank.start_allreduce and its like). Its arrays are kept until it is over, and
/// must not be touched before.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct Request {
    pub(crate) rank: Py<Rank>,
    pub(crate) request: Pinned<trimtab_team::PendingCall>,
    pub(crate) result: Py<PyAny>,
}

#[pymethods]
impl Request {
    /// Returns whether it is over; all started calls of the rank make some progress. Raises the
    /// call's error.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let request = self.request.get()?;
        self.rank.get().with(py, |rank| rank.test(request))
    }

    /// Waits until it is over, and returns the result of the call.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let request = self.request.get()?;
        self.rank.get().with(py, |rank| rank.wait(request))?;
        Ok(self.result.clone_ref(py))
    }
}
