//! Candidates: changes of the way to start a program that are worth a trial, with the reason and
//! the predicted gain.

use super::Gain;
use crate::place::Fit;
use crate::setting::Setting;
use serde::Serialize;
use std::collections::BTreeMap;

/// A change of the way to start a program. The default changes nothing: `trimtab run`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StartChange {
    /// Variables to set, or to remove (`None`).
    pub variables: BTreeMap<String, Option<String>>,
    /// Options of `trimtab run` that are knobs.
    pub setting: Setting,
    /// Option `--fit`.
    pub fit: Option<Fit>,
    /// Option `--nest`.
    pub nest: Option<String>,
    /// Words of the command, if some of them change.
    pub command: Option<Vec<String>>,
    /// Whether the program starts without `trimtab run`.
    pub bare: bool,
}

impl StartChange {
    /// Returns a change of one variable.
    pub(super) fn variable(name: &str, value: impl ToString) -> Self {
        Self { variables: BTreeMap::from([(name.to_owned(), Some(value.to_string()))]), ..Self::default() }
    }

    /// Returns whether only variables and the command change, so that it works without
    /// `trimtab run`, too.
    pub(super) fn is_portable(&self) -> bool {
        self.setting.is_empty() && self.fit.is_none() && self.nest.is_none() && *self != Self::default()
    }
}

/// A change that is worth a trial.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// Change.
    pub change: StartChange,
    /// Reason, in words.
    pub why: String,
    /// Predicted time over that of the measured run; `None` if no rule predicts it.
    pub predicted: Option<Gain>,
    /// Expected ratio for the order of the trials: the prediction, or a value of experience.
    pub expected: f64,
}
