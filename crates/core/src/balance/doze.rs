//! Whether a program's threads go to sleep while they wait for each other.
//!
//! Unit: the share of the time in which a computing thread wants no CPU. Problem: a thread that sleeps in a barrier must stay free
//! to move: bound to one CPU it cannot be pulled to the core that just fell idle, which was measured to cost up to 40 %. Yet one
//! sleep is no habit: the end of a phase, a page fault, a thread that ends. Idea: what computing threads sleep is
//! averaged over all of a program, round by round; some sleep again and again, or much at once, makes sleepers of them.
//!
//! Properties: threads that only look after things do not count, nor does one that was not read; where the kernel does not
//! count waiting nothing is known, and nobody is a sleeper; a program that stops sleeping is believed after as many rounds.

use super::seating::{LIGHT_MAX, Seating, Sitter, Standing};
use super::{Decision, Finding, Reason};
use crate::ids::ProgramId;
use std::collections::BTreeMap;

/// Mean sleep of a round from which on it counts. Chosen: spinning and yielding programs were seen below 1 %, those that
/// sleep in barriers of 1 to 100 ms above 8 %.
pub(super) const SOME: f64 = 0.04;

/// Mean sleep of a round that needs no second one.
const MUCH: f64 = 0.15;

/// So many rounds of some sleep make a habit.
const ROUNDS: u32 = 3;

/// What is known of a program's sleep.
#[derive(Clone, Debug, Default)]
pub(super) struct Doze {
    idle: f64,
    read: u32,
    strikes: u32,
    share: f64,
    sleeps: bool,
}

impl Doze {
    /// Takes in what the program's threads did since the last look; `threads` of them compute. True when it just became a
    /// sleeper.
    pub(super) fn look<'a>(&mut self, sitters: impl Iterator<Item = &'a Sitter>, threads: usize) -> bool {
        for sitter in sitters {
            let Some(rates) = sitter.rates.as_ref() else { continue };
            let Some(idle) = rates.idle() else { continue };
            if 1.0 - idle >= LIGHT_MAX {
                self.idle += idle;
                self.read += 1;
            }
        }
        if self.read == 0 || (self.read as usize) < threads {
            return false;
        }
        self.share = self.idle / f64::from(self.read);
        (self.idle, self.read) = (0.0, 0);
        let before = self.sleeps;
        if self.share >= MUCH {
            self.strikes = ROUNDS;
        } else if self.share >= SOME {
            self.strikes = (self.strikes + 1).min(ROUNDS);
        } else {
            self.strikes = self.strikes.saturating_sub(1);
        }
        self.sleeps = self.strikes >= if before { 1 } else { ROUNDS };
        self.sleeps && !before
    }

    /// Whether its threads sleep in barriers.
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// How much they slept in the last whole round.
    pub(super) fn share(&self) -> f64 {
        self.share
    }
}

/// What is known of all programs' sleep.
#[derive(Clone, Debug, Default)]
pub(super) struct Dozes(BTreeMap<ProgramId, Doze>);

impl Dozes {
    /// Takes in the last step; says which programs turn out to sleep.
    pub(super) fn look(&mut self, seating: &Seating) -> Vec<Finding> {
        let mut programs: BTreeMap<ProgramId, Vec<&Sitter>> = BTreeMap::new();
        for sitter in &seating.sitters {
            programs.entry(sitter.program).or_default().push(sitter);
        }
        self.0.retain(|program, _| programs.contains_key(program));
        let mut findings = Vec::new();
        for (program, sitters) in programs {
            let threads = sitters.iter().filter(|sitter| sitter.active()).count();
            let doze = self.0.entry(program).or_default();
            if doze.look(sitters.into_iter(), threads) {
                findings.push(Finding::Sleepers { idle: doze.share() });
            }
        }
        findings
    }

    /// Whether a program's threads sleep in barriers.
    pub(super) fn sleeps(&self, program: ProgramId) -> bool {
        self.0.get(&program).is_some_and(Doze::sleeps)
    }

    /// How much a program's threads slept in the last round.
    pub(super) fn share(&self, program: ProgramId) -> f64 {
        self.0.get(&program).map_or(0.0, Doze::share)
    }

    /// Gives sleepers that are bound by us their own masks back. They are dealt seats again if they stop sleeping.
    pub(super) fn release(&self, seating: &mut Seating) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for i in 0..seating.sitters.len() {
            let sitter = &seating.sitters[i];
            if sitter.standing == Standing::Held && sitter.free() && self.sleeps(sitter.program) {
                seating.sitters[i].dealt = false;
                decisions.push(seating.release(i, Reason::Sleeps));
            }
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;
    use crate::observe::Rates;
    use crate::time::Span;

    fn sitter(run: f64, wait: Option<f64>) -> Sitter {
        let rates = Rates { span: Span::from_ms(100), run, wait, slices: None, sleeps: None };
        Sitter::read(ThreadId(0), rates)
    }

    fn rounds(doze: &mut Doze, rounds: usize, did: &[(f64, f64)]) {
        let sitters: Vec<Sitter> = did.iter().map(|(run, wait)| sitter(*run, Some(*wait))).collect();
        for _ in 0..rounds {
            doze.look(sitters.iter(), sitters.len());
        }
    }

    #[test]
    fn one_short_sleep_is_no_habit() {
        let mut doze = Doze::default();
        rounds(&mut doze, 2, &[(0.9, 0.0), (0.5, 0.5)]);
        assert!(!doze.sleeps());
        rounds(&mut doze, 5, &[(1.0, 0.0), (0.5, 0.5)]);
        rounds(&mut doze, 2, &[(0.9, 0.0), (0.5, 0.5)]);
        assert!(!doze.sleeps());
        rounds(&mut doze, 1, &[(0.9, 0.0), (0.5, 0.5)]);
        assert!(doze.sleeps());
    }

    #[test]
    fn much_sleep_is_believed_at_once_and_forgotten_in_time() {
        let mut doze = Doze::default();
        rounds(&mut doze, 1, &[(0.5, 0.0), (0.5, 0.5)]);
        assert!(doze.sleeps());
        rounds(&mut doze, 2, &[(1.0, 0.0), (0.5, 0.5)]);
        assert!(doze.sleeps());
        rounds(&mut doze, 1, &[(1.0, 0.0), (0.5, 0.5)]);
        assert!(!doze.sleeps());
    }

    #[test]
    fn helpers_and_uncounted_waits_say_nothing() {
        let mut doze = Doze::default();
        rounds(&mut doze, 9, &[(1.0, 0.0), (0.05, 0.0)]);
        assert!(!doze.sleeps(), "a thread that wakes now and then is no waiter");
        let uncounted = sitter(0.5, None);
        assert!(!doze.look(std::iter::once(&uncounted), 1));
        assert!(!doze.sleeps());
    }
}
