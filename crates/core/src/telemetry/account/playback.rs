//! Playback of a recorded run through the path of a live run.

use super::{Account, Keep};
use crate::balance::Outcome;
use crate::drive::Step;
use crate::observe::Observer;
use crate::trace::{Header, StepRecord};

/// Feeds the steps of a trace to an account, through the same observer as a live run.
#[derive(Clone, Debug)]
pub struct Playback {
    observer: Observer,
    outcomes: Vec<Outcome>,
    account: Account,
}

impl Playback {
    /// Creates a playback at the beginning of a trace.
    pub fn new(header: &Header, keep: Keep) -> Self {
        Self {
            observer: Observer::new(header.usable.clone()),
            outcomes: Vec::new(),
            account: Account::new(&header.machine, header.settings.metric, keep),
        }
    }

    /// Takes the next step into the account, and shows it to a watcher.
    pub fn step(&mut self, record: &StepRecord, watch: &mut dyn FnMut(&Step<'_>, &Account)) {
        self.observer.take(&record.sample, &self.outcomes);
        let seen = self.observer.observation();
        let step =
            Step { sample: &record.sample, seen: &seen, turn: &record.turn, outcomes: &record.outcomes };
        self.account.take(&step);
        watch(&step, &self.account);
        self.outcomes.clone_from(&record.outcomes);
    }

    /// Returns the account so far.
    pub fn account(&self) -> &Account {
        &self.account
    }
}
