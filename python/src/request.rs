//! A call that was started.

use crate::pinned::Pinned;
use crate::rank::Rank;
use pyo3::prelude::*;

/// A call under way (Rank.start_allreduce and its like). Its arrays are kept until it is over, and are not to be touched before.
#[pyclass(module = "trimtab_team", frozen)]
pub(crate) struct Request {
    pub(crate) rank: Py<Rank>,
    pub(crate) request: Pinned<trimtab_team::Request>,
    pub(crate) result: Py<PyAny>,
}

#[pymethods]
impl Request {
    /// Whether it is over; all that the rank started goes on a little. Raises what the call failed with.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let request = self.request.get()?;
        self.rank.get().with(py, |rank| rank.test(request))
    }

    /// Waits until it is over, and returns what the call itself would return.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let request = self.request.get()?;
        self.rank.get().with(py, |rank| rank.wait(request))?;
        Ok(self.result.clone_ref(py))
    }
}
