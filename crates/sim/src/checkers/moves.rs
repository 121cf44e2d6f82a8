//! Moves: policies of the uncore penalty move nobody where memory makes nobody wait, and otherwise no more than they may.
//!
//! Where memory costs nothing, no thread stalls: neither these policies nor the published rule have anything to go by. `brm` and `serial` begin a move
//! only if it and its taking back are saved up; what was saved is at most a second's moves, or `LEAST`. Moves of several trials that are taken back
//! at once may overdraw that by as much again.
//!
//! Where nothing was asked for they may make as many moves a second as there are threads to move, and at least ten; as it is not seen from here
//! which threads those are, all that were there at any time so far are taken. Who is let go for being crowded is moved too.
//!
//! Bound: moves a second, times the time, and twice the most that may be saved; none where none was asked for. Not judged are runs in which moves
//! were refused or readings spoiled at any time: who is refused is asked again at each look.

use super::{Checker, Found, Invariant, Terms};
use trimtab_core::balance::{Decision, Kind, Reason};
use trimtab_core::drive::Step;
use trimtab_core::time::Moment;

/// So many moves may be saved up in any case.
const LEAST: f64 = 4.0;

/// So many a second may be made where nothing else was asked for, or as many as there are threads.
const USUAL: f64 = 10.0;

/// The checker.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    began: Option<Moment>,
    made: u64,
    /// The most threads that were there at a time.
    threads: usize,
}

/// Whether a decision is one on account of where memory is.
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

impl Checker for Moves {
    fn step(&mut self, terms: &Terms, step: &Step<'_>, found: &mut Found) {
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
                format!("moves thread {} where nobody stalls: {}", first.thread, first.reason),
            );
        }
        self.threads = self.threads.max(step.seen.threads.len());
        let rate = settings.penalty.moves.unwrap_or_else(|| USUAL.max(self.threads as f64)).max(0.0);
        let saved = if rate > 0.0 { rate.max(LEAST) } else { 0.0 };
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
