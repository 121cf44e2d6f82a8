//! Refusals: why no launch can be decided for a request.

use thiserror::Error;
use trimtab_core::place::PlaceError;

/// Why there is no plan. The words name the cause and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// Options, variables or rules that contradict each other, or are not understood.
    #[error("{0}")]
    Request(String),
    /// The cores cannot be had: at all, or now ([`PlaceError::passes`]).
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// `--strict`, and something that was asked for cannot be had.
    #[error("{0} (--strict)")]
    Strict(String),
}

impl Refusal {
    /// Whether waiting for other runs may help.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Place(error) if error.passes())
    }
}
