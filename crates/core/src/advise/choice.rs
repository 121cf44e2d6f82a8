//! Choice of the variant to use, after a race.
//!
//! Unit: ratios of times, before over after: 2 is twice as fast. Problem: a few runs of each
//! variant are noisy, and the fastest of several is partly fast by luck. Idea: a variant is advised
//! only if the careful end of its interval is a gain, and if chance would not order the runs in
//! this way. Among variants that are as fast, the simplest is advised.
//!
//! Properties: the advised variant ran, and was not rejected. Without a sure gain over the program
//! as it is, nothing is advised.

use super::entrant::{Entrant, Kind};
use super::speedup::speedup;
use crate::stats::comparison::rank_sum_chance;
use crate::stats::{Better, SAMPLES_MIN};
use serde::Serialize;

/// Share of the best time by which a simpler variant may be slower and still be preferred: 3 %.
pub const SIMPLER_LOSS_MAX: f64 = 0.03;
/// Gain from which a way that is not faster for certain is worth another look: 5 %.
const WORTH_A_LOOK: f64 = 0.05;
/// Chance alone may order the runs of an advised variant so at most once in this number of races.
pub const CHANCE_ODDS: f64 = 20.0;

/// Conclusion of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Choice {
    /// Use this variant: it is faster than the program as it is.
    Use {
        /// Index of the variant.
        entrant: usize,
    },
    /// Nothing that was tried is clearly faster.
    Keep,
    /// A variant looks faster, but the runs do not make it certain.
    Unsure {
        /// Index of the variant.
        entrant: usize,
    },
    /// No comparison was possible.
    Unknown,
}

/// Chooses the variant to use.
pub fn choose(entrants: &[Entrant], seed: u64) -> Choice {
    let measured: Vec<(usize, f64)> =
        entrants.iter().enumerate().filter_map(|(at, one)| Some((at, one.median()?))).collect();
    let Some(&(fastest, best)) = measured.iter().min_by(|one, other| one.1.total_cmp(&other.1)) else {
        return Choice::Unknown;
    };
    let Some(plain) = entrants.iter().find(|one| one.kind == Kind::Plain) else { return Choice::Unknown };
    if plain.rejected.is_some() || plain.seconds.is_empty() && plain.stopped.is_none() {
        return Choice::Unknown;
    }
    if plain.median().is_some_and(|own| own <= best * (1.0 + SIMPLER_LOSS_MAX)) {
        return Choice::Keep;
    }
    let sure = |at: usize| {
        let one = &entrants[at];
        speedup(plain, one, seed).is_some_and(|gain| gain.is_sure()) && !is_luck(plain, one, entrants.len())
    };
    // Of the variants that are as fast as the best, `trimtab run` without options is the simplest.
    let mut order: Vec<(usize, f64)> = measured.clone();
    let near = |time: f64| time <= best * (1.0 + SIMPLER_LOSS_MAX);
    order.sort_by(|one, other| {
        let key = |&(at, time): &(usize, f64)| match entrants[at].kind {
            Kind::Run if near(time) => (0, time),
            _ => (1, time),
        };
        let (one, other) = (key(one), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    let chosen = order.iter().map(|&(at, _)| at).find(|&at| entrants[at].kind != Kind::Plain && sure(at));
    if let Some(entrant) = chosen {
        return Choice::Use { entrant };
    }
    match plain.median() {
        Some(own) if own <= best * (1.0 + WORTH_A_LOOK) => Choice::Keep,
        _ => Choice::Unsure { entrant: fastest },
    }
}

/// Returns whether chance could order the runs of both in this way. With few runs only the
/// widened extremes decide.
fn is_luck(plain: &Entrant, variant: &Entrant, compared: usize) -> bool {
    let (plain, variant) = (plain.times(), variant.times());
    if plain.len().min(variant.len()) < SAMPLES_MIN {
        return false;
    }
    let chance = rank_sum_chance(Better::Less, &plain, &variant);
    chance * CHANCE_ODDS * compared.max(1) as f64 > 1.0
}
