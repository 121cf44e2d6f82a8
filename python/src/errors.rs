//! The team library's errors as exceptions. Their classes are Python's (`_errors.py`), so that they
//! can be pickled and read.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use trimtab_team::Error;

/// Returns the module of exceptions.
fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE
        .get_or_try_init(py, || Ok(py.import("trimtab_team._errors")?.unbind()))
        .map(|module| module.bind(py))
}

fn made<A>(name: &str, arguments: A) -> PyErr
where
    A: for<'py> pyo3::call::PyCallArgs<'py> + for<'py> IntoPyObject<'py, Target = pyo3::types::PyTuple>,
{
    Python::attach(|py| {
        let exception =
            || module(py)?.getattr(name)?.cast_into::<PyType>().map_err(PyErr::from)?.call1(arguments);
        exception().map_or_else(|error| error, PyErr::from_value)
    })
}

/// Makes an exception of one of the classes that only take a text.
#[cold]
pub(crate) fn raise(name: &str, words: &str) -> PyErr {
    made(name, (words,))
}

/// Makes the exception for an invalid argument.
#[cold]
pub(crate) fn argument(words: impl AsRef<str>) -> PyErr {
    raise("ArgumentError", words.as_ref())
}

/// An error with its text, which may include the calls of all ranks.
pub(crate) struct Failure {
    error: Error,
    words: String,
}

impl Failure {
    /// Returns the failure of a rank's call.
    pub(crate) fn of_rank(rank: &trimtab_team::Rank, error: Error) -> Self {
        Self { words: rank.describe_error(&error), error }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { words: error.to_string(), error }
    }
}

/// Makes the exception for an error.
#[cold]
pub(crate) fn of(failure: impl Into<Failure>) -> PyErr {
    let Failure { error, words } = failure.into();
    match error {
        Error::PeerDied(rank) => made("PeerDied", (words, rank)),
        Error::PeerLeft(rank) => made("PeerLeft", (words, rank)),
        Error::Revoked(rank) => made("Revoked", (words, rank)),
        Error::Mismatch { rank, theirs, ours } => made("Mismatch", (words, rank, theirs, ours)),
        Error::Timeout(_) => raise("Timeout", &words),
        Error::Forked(_) => raise("Forked", &words),
        Error::Argument(_) => raise("ArgumentError", &words),
        Error::NoMemory { .. } => raise("NoMemory", &words),
        Error::NotATeam(_) => raise("NotATeam", &words),
        Error::Refused(_) => raise("Refused", &words),
        _ => raise("TeamError", &words),
    }
}
