//! Refusals: reasons why no launch can be decided for a request.

use thiserror::Error;
use trimtab_core::place::PlaceError;

/// Reason why there is no plan. The message names the cause and the remedy.
/// [`decide()`](crate::decide()) has an example.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// Options, variables or rules contradict each other or are invalid.
    #[error("{0}")]
    Request(String),
    /// The cores are not available, permanently or at present ([`PlaceError::passes`]).
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A request cannot be met, and `--strict` was given.
    #[error("{0} (--strict)")]
    Strict(String),
}

impl Refusal {
    /// Returns whether waiting for other runs may help. [`decide()`](crate::decide()) has an
    /// example.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Place(error) if error.passes())
    }
}
