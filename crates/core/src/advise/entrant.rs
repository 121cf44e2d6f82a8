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
    /// Seconds of the runs that ended, one of each turn; of a short program, for a run that was
    /// stopped, the seconds until then.
    pub seconds: Vec<f64>,
    /// Seconds after which a run was stopped; of a short program, the second one. The variant does
    /// not run again.
    pub stopped: Option<f64>,
    /// Reason why its runs do not count.
    pub rejected: Option<String>,
    /// Whether it is slower than another variant, so that it does not run again.
    #[serde(skip)]
    pub(super) beaten: bool,
    /// Time of all its runs.
    #[serde(skip)]
    pub(super) spent: Span,
    /// Whether one of its seconds is of a run that was stopped.
    #[serde(skip)]
    pub(super) slowed: bool,
    /// Seconds of a run before the race; `None` if none ended.
    #[serde(skip)]
    pub(super) known: Option<f64>,
}

impl Entrant {
    /// Creates a variant without runs.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            seconds: Vec::new(),
            stopped: None,
            rejected: None,
            beaten: false,
            spent: Span::ZERO,
            slowed: false,
            known: None,
        }
    }

    /// Returns the median of its runs, if its runs count and one ended.
    pub fn median(&self) -> Option<f64> {
        if self.rejected.is_some() { None } else { median(&self.seconds) }
    }

    /// Returns the seconds of all its runs, if one ended: a run that was stopped counts with the
    /// time until then. The run before the race does not count, since it was profiled on the CPUs
    /// of `trimtab run`.
    pub(super) fn times(&self) -> Vec<f64> {
        let stopped = self.stopped.filter(|_| !self.seconds.is_empty());
        self.seconds.iter().copied().chain(stopped).collect()
    }

    /// Returns whether it may run again.
    pub(super) fn is_open(&self) -> bool {
        self.rejected.is_none() && self.stopped.is_none() && !self.beaten
    }
}

/// Returns the fastest of the variants that were not beaten, over the turns that all of them ran: a
/// variant that left early may have run while other programs slept. `None` if no run ended.
pub(super) fn leader(entrants: &[Entrant]) -> Option<usize> {
    let ran = |one: &Entrant| one.rejected.is_none() && !one.seconds.is_empty();
    let all: Vec<usize> = (0..entrants.len()).filter(|&at| ran(&entrants[at])).collect();
    let open: Vec<usize> = all.iter().copied().filter(|&at| entrants[at].is_open()).collect();
    let among = if open.is_empty() { all } else { open };
    let turns = among.iter().map(|&at| entrants[at].seconds.len()).min()?;
    let time = |at: usize| median(&entrants[at].seconds[..turns]).unwrap_or(f64::INFINITY);
    among.into_iter().min_by(|&one, &other| time(one).total_cmp(&time(other)))
}
