//! The control loop: observe, decide, apply.
//!
//! A [`Host`] is a machine: live, simulated, recorded or scripted. It reads the requested counters,
//! applies decisions and keeps the time, but compares nothing. A [`Policy`] decides and touches
//! nothing. [`drive`] joins the two, and shows every step to a watcher (a trace, a screen, a
//! report, metrics).

use crate::balance::{Decision, Outcome, Policy, Turn, Wanted};
use crate::observe::{Observation, Observer, Sample};
use crate::time::Moment;

/// A machine that can be observed and acted on.
pub trait Host {
    /// Error that ends the loop. A failure that concerns one thread only is an outcome, not an
    /// error.
    type Error;

    /// Takes a sample of the wanted counters, now.
    ///
    /// # Errors
    /// Nothing can be read any more.
    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Self::Error>;

    /// Applies the decisions in order and returns one outcome per decision.
    ///
    /// # Errors
    /// Nothing can be applied any more.
    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Self::Error>;

    /// Waits until a moment, or until the loop has to end.
    ///
    /// # Errors
    /// Time cannot be read any more.
    fn wait(&mut self, until: Moment) -> Result<Awake, Self::Error>;
}

/// Reason why [`Host::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awake {
    /// The moment has come.
    Due,
    /// The programs have ended, or the user ended the run.
    Over,
}

/// One round of the loop, as shown to a watcher.
#[derive(Debug)]
pub struct Step<'a> {
    /// Raw readings of the host.
    pub sample: &'a Sample,
    /// View of the readings that the policy had.
    pub seen: &'a Observation<'a>,
    /// Answer of the policy.
    pub turn: &'a Turn,
    /// Outcomes of the decisions.
    pub outcomes: &'a [Outcome],
}

/// Answer of a watcher: whether the loop continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// The loop continues.
    On,
    /// The loop stops after this step.
    Stop,
}

/// Runs the loop until the host or the watcher ends it. Threads that were moved stay as they are:
/// restoring them is the task of the host, which has their earlier masks.
///
/// # Errors
/// The host's errors.
pub fn drive<H: Host + ?Sized>(
    host: &mut H,
    policy: &mut dyn Policy,
    observer: &mut Observer,
    watch: &mut dyn FnMut(&Step<'_>) -> Go,
) -> Result<(), H::Error> {
    let mut wanted = policy.first();
    let mut outcomes: Vec<Outcome> = Vec::new();
    loop {
        let sample = host.observe(&wanted)?;
        observer.take(&sample, &outcomes);
        let seen = observer.observation();
        let turn = policy.decide(&seen);
        outcomes = if turn.decisions.is_empty() { Vec::new() } else { host.apply(&turn.decisions)? };
        if watch(&Step { sample: &sample, seen: &seen, turn: &turn, outcomes: &outcomes }) == Go::Stop {
            return Ok(());
        }
        if host.wait(turn.next)? == Awake::Over {
            return Ok(());
        }
        wanted = turn.wanted;
    }
}
