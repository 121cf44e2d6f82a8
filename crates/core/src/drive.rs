//! The one loop: observe, decide, apply.
//!
//! A [`Host`] is a machine: the live one, a simulated one, a recorded one, a scripted one. It reads what it is asked to read,
//! does what it is told, keeps the time, and compares nothing. A [`Policy`] decides and touches nothing. [`drive`] joins the two,
//! and tells every step to whoever watches (a trace, a screen, a report, metrics).

use crate::balance::{Decision, Outcome, Policy, Turn, Wanted};
use crate::observe::{Observation, Observer, Sample};
use crate::time::Moment;

/// A machine that can be watched and acted on.
pub trait Host {
    /// What ends the watching. What concerns one thread only is an outcome, not an error.
    type Error;

    /// Reads what is wanted, now.
    ///
    /// # Errors
    /// Nothing can be read any more.
    fn observe(&mut self, wanted: &Wanted) -> Result<Sample, Self::Error>;

    /// Does what was decided, in order; one outcome per decision.
    ///
    /// # Errors
    /// Nothing can be done any more.
    fn apply(&mut self, decisions: &[Decision]) -> Result<Vec<Outcome>, Self::Error>;

    /// Lets time pass until a moment, or until something ends the watching.
    ///
    /// # Errors
    /// Time cannot be told any more.
    fn wait(&mut self, until: Moment) -> Result<Awake, Self::Error>;
}

/// Why [`Host::wait`] came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awake {
    /// It is time.
    Due,
    /// The programs have ended, or the user ended the watching.
    Over,
}

/// What a watcher is told about one round of the loop.
#[derive(Debug)]
pub struct Step<'a> {
    /// What was read.
    pub sample: &'a Sample,
    /// What the policy saw of it.
    pub seen: &'a Observation<'a>,
    /// What it decided.
    pub turn: &'a Turn,
    /// What became of that.
    pub outcomes: &'a [Outcome],
}

/// Whether a watcher wants more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Go on.
    On,
    /// Stop after this step.
    Stop,
}

/// Runs the loop until the host or the watcher ends it. Threads that were moved stay as they are: to restore them is the
/// host's business, who knows how they were.
///
/// # Errors
/// The host's.
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
