//! Scripted machine for tests: the script lists the events that count and the calls that are
//! refused.

use super::cpu::Cpu;
use super::event::{Event, EventError, Role, Spec};
use super::group::Recipe;
use super::ladder::{CountingTrial, LadderMachine};
use rustix::io::Errno;
use std::path::Path;
use trimtab_core::counter_budget::Price;
use trimtab_core::counts::Counts;
use trimtab_core::time::Span;

/// Behaviour of an event in a try.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum EventBehaviour {
    /// Counts as it should.
    Well,
    /// Stands still.
    Silent,
    /// Counts all the time.
    Noisy,
}

/// The machine.
pub(super) struct Scripted {
    pub(super) cpu: Option<Cpu>,
    pub(super) paranoid: Option<i64>,
    /// Error of every open, if set.
    pub(super) refusal: Option<Errno>,
    /// Error of opening counters that include the kernel, if set.
    pub(super) kernel: Option<Errno>,
    /// Error of opening counters that include guests, if set.
    pub(super) guests: Option<Errno>,
    /// Virtual machines get the counters themselves.
    pub(super) lends: bool,
    /// Largest number of counters; more are refused.
    pub(super) counters: usize,
    /// More counters than that are opened instead, and never run.
    pub(super) quietly: bool,
    /// No counter ever runs.
    pub(super) taken: bool,
    /// Share of the time that counters run, 0 to 1.
    pub(super) share: f64,
    /// Behaviour of events, by the start of their names; others count well.
    pub(super) events: Vec<(&'static str, EventBehaviour)>,
    pub(super) price: Option<Price>,
    pub(super) nodes: usize,
    pub(super) balancing: Option<bool>,
    pub(super) residency: Result<(), Errno>,
    /// Number of tries made.
    pub(super) tries: u32,
    /// All recipes that were to be opened.
    pub(super) asked: Vec<Recipe>,
}

impl Default for Scripted {
    /// Makes a Zen 3 machine on which everything works.
    fn default() -> Self {
        Self {
            cpu: Some(Cpu::X86 { vendor: "AuthenticAMD".into(), family: 0x19, model: 1 }),
            paranoid: Some(2),
            refusal: None,
            kernel: None,
            guests: None,
            lends: false,
            counters: 8,
            quietly: false,
            taken: false,
            share: 1.0,
            events: Vec::new(),
            price: Some(Price { read: Span(800), one: Span(900), two: Span(1_200) }),
            nodes: 2,
            balancing: Some(true),
            residency: Ok(()),
            tries: 0,
            asked: Vec::new(),
        }
    }
}

impl LadderMachine for Scripted {
    fn cpu(&self) -> Option<Cpu> {
        self.cpu.clone()
    }

    fn paranoid(&self) -> Option<i64> {
        self.paranoid
    }

    fn lends(&self) -> bool {
        self.lends
    }

    fn resolve(&self, spec: &Spec) -> Result<Event, EventError> {
        spec.resolve(Path::new("/nowhere"))
    }

    fn trial(&mut self, recipe: &Recipe) -> Result<CountingTrial, Errno> {
        self.asked.push(recipe.clone());
        let answers = [
            self.refusal,
            self.kernel.filter(|_| !recipe.user_only),
            self.guests.filter(|_| !recipe.no_guests),
            (recipe.events.len() > self.counters && !self.quietly).then_some(Errno::INVAL),
        ];
        if let Some(errno) = answers.into_iter().flatten().next() {
            return Err(errno);
        }
        self.tries += 1;
        if self.taken || recipe.events.len() > self.counters {
            return Ok(CountingTrial { steps: 1_000, walk: None, still: None });
        }
        let time = 1_000_000;
        let running = Span((time as f64 * self.share) as u64);
        let count = |role: Role, walking: bool| {
            let (_, event) = recipe.events.iter().find(|(of, _)| *of == role)?;
            let does = self
                .events
                .iter()
                .find(|(name, _)| event.name.contains(name))
                .map_or(EventBehaviour::Well, |(_, does)| *does);
            let often = match role {
                Role::Busy => 100_000,
                Role::Requests => 1_000,
                _ => 1_000_000,
            };
            let waits = matches!(role, Role::Busy | Role::Requests);
            let often = match (does, waits && !walking) {
                (EventBehaviour::Silent, _) => 0,
                (EventBehaviour::Well, true) => often / 100,
                _ => often,
            };
            Some((often as f64 * self.share) as u64)
        };
        let counts = |walking| Counts {
            enabled: Span(time),
            running,
            busy: count(Role::Busy, walking),
            requests: count(Role::Requests, walking),
            cycles: count(Role::Cycles, walking),
            instructions: count(Role::Instructions, walking),
            ..Counts::default()
        };
        Ok(CountingTrial { steps: 1_000, walk: Some(counts(true)), still: Some(counts(false)) })
    }

    fn price(&mut self, _: &Recipe) -> Option<Price> {
        self.price
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn balancing(&self) -> Option<bool> {
        self.balancing
    }

    fn residency(&self) -> Result<(), Errno> {
        self.residency
    }
}
