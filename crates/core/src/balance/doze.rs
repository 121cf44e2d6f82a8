//! Whether a program's threads go to sleep while they wait for each other.
//!
//! Unit: the share of the time in which a computing thread wants no CPU. Problem: a thread that sleeps in a barrier must stay free
//! to move: bound to one CPU it cannot be pulled to the core that just fell idle, which was measured to cost up to 40 %. Yet a
//! thread that *seems* to want nothing may have been waiting all along: the kernel counts a wait when it is over, so between
//! two looks 20 ms apart a thread beside a hog shows neither running nor waiting, and later more waiting than time. Idea: what
//! threads want is summed over a quarter of a second, without cutting off what is too much; as long as it still seems that they
//! sleep, how often they really went to sleep is read too, and believed.
//!
//! Properties: threads that only look after things do not count, nor does one that was not read; where the kernel does not
//! count waiting nothing is known, and nobody is a sleeper; where it does not say how often threads sleep, some quarters
//! must agree; a program that stops sleeping is believed after as many.

use super::seating::Seating;
use super::sitter::{LIGHT_MAX, Lately, Standing};
use super::{Decision, Finding, Reason};
use crate::ids::ProgramId;
use std::collections::BTreeMap;

/// Mean sleep from which on it counts. Chosen: spinning and yielding programs were seen below 1 %, those that sleep in
/// barriers of 1 to 100 ms above 8 %.
pub(super) const SOME: f64 = 0.04;

/// Who really sleeps in barriers goes to sleep this often a second at least: once every half second.
pub(super) const OFTEN: f64 = 2.0;

/// Seconds over which is summed up: several slices of the kernel's.
const WINDOW: f64 = 0.25;

/// So many windows without a better witness make a habit, or end one.
const ROUNDS: u32 = 3;

/// What is known of a program's sleep.
#[derive(Clone, Debug, Default)]
pub(super) struct Doze {
    strikes: u32,
    share: f64,
    sleeps: bool,
    suspect: bool,
}

impl Doze {
    /// Takes in what the program's threads did over a window. True when it just became a sleeper.
    fn judge<'a>(&mut self, threads: impl Iterator<Item = &'a Lately>) -> bool {
        let (mut idle, mut often, mut told, mut count) = (0.0, 0.0, true, 0u32);
        for lately in threads {
            let Some(wants) = lately.wants.filter(|_| lately.span >= WINDOW / 2.0) else { continue };
            if wants / lately.span >= LIGHT_MAX {
                idle += 1.0 - wants / lately.span;
                told &= lately.sleeps.is_some();
                often += lately.sleeps.unwrap_or(0.0) / lately.span;
                count += 1;
            }
        }
        if count == 0 {
            return false;
        }
        self.share = (idle / f64::from(count)).max(0.0);
        let seems = self.share >= SOME;
        let before = self.sleeps;
        self.strikes = match (seems, told) {
            (true, true) if often / f64::from(count) >= OFTEN => ROUNDS,
            // The window in which counting began cannot tell.
            (true, false) if self.suspect => (self.strikes + 1).min(ROUNDS),
            (true, false) => self.strikes,
            _ => self.strikes.saturating_sub(1),
        };
        // Read on as long as it seems so: half a window of counts is none.
        self.suspect = seems;
        self.sleeps = self.strikes >= if before { 1 } else { ROUNDS };
        self.sleeps && !before
    }

    /// Whether its threads sleep in barriers.
    fn sleeps(&self) -> bool {
        self.sleeps
    }
}

/// What is known of all programs' sleep.
#[derive(Clone, Debug, Default)]
pub(super) struct Dozes(BTreeMap<ProgramId, Doze>);

impl Dozes {
    /// Takes in the last step; says which programs turn out to sleep.
    pub(super) fn look(&mut self, seating: &mut Seating) -> Vec<Finding> {
        let mut members: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (i, sitter) in seating.sitters.iter().enumerate() {
            members.entry(sitter.program).or_default().push(i);
        }
        self.0.retain(|program, _| members.contains_key(program));
        let mut findings = Vec::new();
        for (program, members) in members {
            let doze = self.0.entry(program).or_default();
            let of = || members.iter().map(|&i| &seating.sitters[i].lately);
            if of().map(|lately| lately.span).fold(0.0, f64::max) < WINDOW {
                continue;
            }
            if doze.judge(of()) {
                findings.push(Finding::Sleepers { idle: doze.share });
            }
            for i in members {
                seating.sitters[i].lately = Lately::default();
            }
        }
        findings
    }

    /// Whether a program's threads sleep in barriers.
    pub(super) fn sleeps(&self, program: ProgramId) -> bool {
        self.0.get(&program).is_some_and(Doze::sleeps)
    }

    /// Whether it would help to read how often threads go to sleep.
    pub(super) fn suspects(&self) -> bool {
        self.0.values().any(|doze| doze.suspect)
    }

    /// How much a program's threads slept in the last window.
    pub(super) fn share(&self, program: ProgramId) -> f64 {
        self.0.get(&program).map_or(0.0, |doze| doze.share)
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

    /// Windows in each of which threads ran and waited for these shares, and went to sleep so often a second.
    fn windows(doze: &mut Doze, count: usize, did: &[(f64, f64)], sleeps: Option<f64>) {
        let thread = |&(run, wait): &(f64, f64)| Lately {
            span: WINDOW,
            wants: Some((run + wait) * WINDOW),
            sleeps: sleeps.map(|often| often * WINDOW),
        };
        let threads: Vec<Lately> = did.iter().map(thread).collect();
        for _ in 0..count {
            doze.judge(threads.iter());
        }
    }

    #[test]
    fn without_a_witness_one_window_is_no_habit() {
        let mut doze = Doze::default();
        windows(&mut doze, 2, &[(0.8, 0.0), (0.5, 0.5)], None);
        assert!(!doze.sleeps() && doze.suspect);
        windows(&mut doze, 3, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(!doze.sleeps() && !doze.suspect);
        windows(&mut doze, 4, &[(0.8, 0.0), (0.5, 0.5)], None);
        assert!(doze.sleeps());
    }

    #[test]
    fn who_is_seen_to_sleep_is_a_sleeper_at_once_and_for_some_time() {
        let mut doze = Doze::default();
        windows(&mut doze, 1, &[(0.5, 0.0), (0.5, 0.5)], Some(40.0));
        assert!(doze.sleeps());
        windows(&mut doze, 2, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(doze.sleeps());
        windows(&mut doze, 1, &[(1.0, 0.0), (0.5, 0.5)], None);
        assert!(!doze.sleeps());
    }

    /// A thread beside a hog whose wait is not counted yet.
    #[test]
    fn who_never_went_to_sleep_does_not_sleep() {
        let mut doze = Doze::default();
        windows(&mut doze, 9, &[(0.4, 0.2), (0.5, 0.3)], Some(0.0));
        assert!(!doze.sleeps());
        // Not counted, half counted, counted: whoever sleeps seldom is never taken for a sleeper.
        let mut doze = Doze::default();
        windows(&mut doze, 2, &[(0.95, 0.0), (0.4, 0.5)], None);
        windows(&mut doze, 9, &[(0.95, 0.0), (0.4, 0.5)], Some(0.5));
        assert!(!doze.sleeps() && doze.suspect);
    }

    #[test]
    fn waits_that_were_counted_late_make_up_for_what_was_missing() {
        let mut lately = Lately::default();
        for (run, wait) in [(0.2, 0.0), (0.1, 1.7), (0.5, 0.5)] {
            let span = crate::time::Span::from_ms(100);
            lately.add(&crate::observe::Rates { span, run, wait: Some(wait), slices: None, sleeps: None });
        }
        let mut doze = Doze::default();
        doze.judge(std::iter::once(&lately));
        assert!(doze.share < 1e-9 && !doze.suspect, "{}", doze.share);
    }

    #[test]
    fn helpers_and_uncounted_waits_say_nothing() {
        let mut doze = Doze::default();
        windows(&mut doze, 9, &[(1.0, 0.0), (0.05, 0.0)], None);
        assert!(!doze.sleeps(), "a thread that wakes now and then is no waiter");
        let uncounted = Lately { span: WINDOW, wants: None, sleeps: None };
        assert!(!doze.judge(std::iter::once(&uncounted)));
        assert!(!doze.sleeps());
    }
}
