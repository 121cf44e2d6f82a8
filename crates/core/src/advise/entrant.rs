//! Variants of a program in a race: the program as the user runs it, `trimtab run`, and the
//! candidates, with the times of their runs.

use crate::stats::median;
use crate::time::Span;
use serde::Serialize;

/// Kind of a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The program as the user runs it now.
    Plain,
    /// The program under `trimtab run` without options.
    Run,
    /// The program with a change that the profile suggests.
    Candidate,
}

/// A variant with its runs so far.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Entrant {
    /// Kind.
    pub kind: Kind,
    /// Seconds of the runs that ended.
    pub seconds: Vec<f64>,
    /// Seconds after which a run was stopped. The variant does not run again.
    pub stopped: Option<f64>,
    /// Reason why its runs do not count.
    pub rejected: Option<String>,
    /// Time of all its runs.
    #[serde(skip)]
    pub(super) spent: Span,
}

impl Entrant {
    /// Creates a variant without runs.
    pub fn new(kind: Kind) -> Self {
        Self { kind, seconds: Vec::new(), stopped: None, rejected: None, spent: Span::ZERO }
    }

    /// Returns the median of its runs, if its runs count and one ended.
    pub fn median(&self) -> Option<f64> {
        if self.rejected.is_some() { None } else { median(&self.seconds) }
    }

    /// Returns the seconds of all its runs, if one ended: a run that was stopped counts with the
    /// time until then.
    pub(super) fn times(&self) -> Vec<f64> {
        let stopped = self.stopped.filter(|_| !self.seconds.is_empty());
        self.seconds.iter().copied().chain(stopped).collect()
    }

    pub(super) fn is_open(&self) -> bool {
        self.rejected.is_none() && self.stopped.is_none()
    }
}
