//! Checker of moves: policies of the uncore penalty move no thread if memory delays none, and
//! otherwise no more than they may.
//!
//! If memory costs nothing, no thread stalls, so neither these policies nor the published rule have
//! a basis for moves. `brm` and `serial` begin a move only if the budget covers the move and its
//! undoing; the budget holds at most a second's moves, or `SAVED_MOVES_MIN`. Moves of several
//! trials that are undone at once may overdraw the savings by the same amount again.
//!
//! Without a limit in the request they may make as many moves a second as there are movable
//! threads, and at least ten. A checker cannot see which threads those are, so the highest number
//! of threads present at any time so far is used. A thread that is released because of crowding is
//! moved too.
//!
//! Bound: moves a second, times the time, and twice the highest savings; none if no limit was
//! requested. Runs in which moves were refused or readings falsified at any time are not judged: a
//! refused move is requested again at each sample.

use super::{Checker, Invariant, Terms, ViolationLog};
use trimtab_core::balance::{Decision, Kind, Reason};
use trimtab_core::drive::Step;
use trimtab_core::time::Moment;

/// Number of moves that may be saved up in any case.
const SAVED_MOVES_MIN: f64 = 4.0;

/// Moves a second that are allowed without a limit in the request; more if there are more threads.
const MOVES_PER_SECOND_MIN: f64 = 10.0;

/// Checker of moves.
#[derive(Debug, Default)]
pub(crate) struct MovesChecker {
    began: Option<Moment>,
    made: u64,
    /// Highest number of threads present at a time.
    threads: usize,
}

/// Returns whether a decision is made because of memory placement.
fn migrates(decision: &Decision) -> bool {
    matches!(
        decision.reason,
        Reason::Explore
            | Reason::Stalls { .. }
            | Reason::Exchanged { .. }
            | Reason::Undo
            | Reason::Crowded { .. }
    )
}

impl Checker for MovesChecker {
    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut ViolationLog) {
        let Some((kind, settings)) = terms.policy.as_ref().filter(|(kind, _)| kind.by_penalty()) else {
            return;
        };
        let at = step.seen.at;
        let long = at.since(*self.began.get_or_insert(at));
        let moves: Vec<&Decision> =
            step.turn.decisions.iter().filter(|decision| migrates(decision)).collect();
        self.made += moves.len() as u64;
        if let Some(first) = moves.first().filter(|_| !terms.stalls) {
            found.add(
                Invariant::Moves,
                None,
                format!("moves thread {} although no thread stalls: {}", first.thread, first.reason),
            );
        }
        self.threads = self.threads.max(step.seen.threads.len());
        let rate =
            settings.penalty.moves.unwrap_or_else(|| MOVES_PER_SECOND_MIN.max(self.threads as f64)).max(0.0);
        let saved = if rate > 0.0 { rate.max(SAVED_MOVES_MIN) } else { 0.0 };
        let most = rate * long.seconds() + 2.0 * saved;
        if *kind != Kind::BrmPaper && !terms.faults && self.made as f64 > most {
            found.add(
                Invariant::Moves,
                None,
                format!("{} moves in {long}, where {most:.0} are allowed", self.made),
            );
        }
    }
}
