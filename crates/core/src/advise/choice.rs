//! Choice of the variant to use, after a race.
//!
//! Unit: ratios of times, before over after: 2 is twice as fast. Problem: a few runs of each
//! variant are noisy, and the fastest of several is partly fast by luck. Idea: a variant is advised
//! only if the careful end of its interval is a gain, and if chance would not order the runs in
//! this way. Among variants that are as fast, the simplest is advised. Only variants that stayed in
//! the race to its end are compared with each other, over the turns that they share.
//!
//! Properties: the advised variant ran, and was not rejected. Without a sure gain over the program
//! as it is, nothing is advised.

use super::entrant::{Entrant, Kind, leader};
use super::speedup::{ratio, speedup};
use crate::stats::comparison::rank_sum_chance;
use crate::stats::paired::signed_rank_chance;
use crate::stats::{Better, SAMPLES_MIN};
use serde::Serialize;

/// Share of the best time by which a simpler variant may be slower and still be preferred: 3 %.
pub const SIMPLER_LOSS_MAX: f64 = 0.03;
/// Gain from which a way that is not faster for certain is worth another look: 5 %.
const WORTH_A_LOOK: f64 = 0.05;
/// Chance alone may order the runs of an advised variant so at most once in this number of races.
pub const CHANCE_ODDS: f64 = 20.0;

/// Runs up to which the order of all runs of two variants is counted.
const RANKED_RUNS_MAX: usize = 15;

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
pub fn choose(entrants: &[Entrant]) -> Choice {
    let Some(leader) = leader(entrants) else { return Choice::Unknown };
    let Some(plain) = entrants.iter().find(|one| one.kind == Kind::Plain) else { return Choice::Unknown };
    if plain.rejected.is_some() || plain.seconds.is_empty() && plain.stopped.is_none() {
        return Choice::Unknown;
    }
    // Returns the time of a variant over that of the fastest, of the same turns.
    let behind = |one: &Entrant| {
        let found = ratio(&one.seconds, &entrants[leader].seconds);
        found.map_or(f64::INFINITY, |found| found.likely)
    };
    if entrants[leader].kind == Kind::Plain {
        return Choice::Keep;
    }
    let plain_behind = if plain.stopped.is_some() { f64::INFINITY } else { behind(plain) };
    if plain_behind <= 1.0 + SIMPLER_LOSS_MAX {
        return Choice::Keep;
    }
    // Of the variants that are as fast as the best, `trimtab run` without options is the simplest.
    let simplest = entrants.iter().position(|one| {
        one.kind == Kind::Run && one.rejected.is_none() && behind(one) <= 1.0 + SIMPLER_LOSS_MAX
    });
    let mut rest: Vec<usize> = (0..entrants.len()).filter(|&at| entrants[at].is_open()).collect();
    rest.sort_by(|&one, &other| behind(&entrants[one]).total_cmp(&behind(&entrants[other])));
    let order = simplest.into_iter().chain([leader]).chain(rest);
    let mut order = order.filter(|&at| entrants[at].kind != Kind::Plain);
    if let Some(entrant) = order.find(|&at| is_sure(plain, &entrants[at], entrants.len())) {
        return Choice::Use { entrant };
    }
    if plain_behind <= 1.0 + WORTH_A_LOOK { Choice::Keep } else { Choice::Unsure { entrant: leader } }
}

/// Returns whether a variant is faster than the program as it is, for certain, as one of this
/// number of variants.
pub(super) fn is_sure(plain: &Entrant, one: &Entrant, compared: usize) -> bool {
    speedup(plain, one).is_some_and(|gain| gain.is_sure()) && !is_luck(plain, one, compared)
}

/// Returns whether chance could order the runs of both in this way: neither the order of all runs
/// nor that of the runs of each turn excludes it. With few runs only the widened extremes decide.
fn is_luck(plain: &Entrant, variant: &Entrant, compared: usize) -> bool {
    let (plain, variant) = (plain.times(), variant.times());
    if plain.len().min(variant.len()) < SAMPLES_MIN {
        return false;
    }
    let paired = signed_rank_chance(Better::Less, &plain, &variant);
    // The order of all runs says more where turns are few, and takes long to count where they are
    // many.
    let chance = match plain.len().max(variant.len()) {
        ..=RANKED_RUNS_MAX => rank_sum_chance(Better::Less, &plain, &variant).min(paired),
        _ => paired,
    };
    chance * CHANCE_ODDS * compared.max(1) as f64 > 1.0
}
