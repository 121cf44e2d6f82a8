//! Choice of the variant to use, after a race.
//!
//! Unit: ratios of times, before over after: 2 is twice as fast. Problem: a few runs of each
//! variant are noisy, and the fastest of several is partly fast by luck. Idea: a variant is advised
//! only if the careful end of its interval is a gain, and if chance would not order the runs in
//! this way. Among variants that are as fast, the simplest is advised. Only variants that stayed in
//! the race to its end are compared with each other, over the turns that they share.
//!
//! A race that asks after each turn whether a gain is certain finds one by chance sooner or later.
//! Therefore chance is judged after planned numbers of turns only ([`LOOKS`]), each by one test
//! that is chosen in advance, and the allowed error is divided among the looks and the variants.
//!
//! Properties: the advised variant ran, and was not rejected. Without a sure gain over the program
//! as it is, nothing is advised.

use super::entrant::{Entrant, Kind, leader};
use super::speedup::{ratio, speedup};
use crate::stats::Better;
use crate::stats::comparison::rank_sum_chance;
use crate::stats::paired::signed_rank_chance;
use serde::Serialize;

/// Share of the best time by which a simpler variant may be slower and still be preferred: 3 %.
pub const SIMPLER_LOSS_MAX: f64 = 0.03;
/// Gain from which a way that is not faster for certain is worth another look: 5 %.
const WORTH_A_LOOK: f64 = 0.05;
/// Of equally fast variants one is advised at most once in this number of races.
pub const CHANCE_ODDS: f64 = 20.0;
/// Numbers of turns after which chance is judged. Each look may use half of the error that those
/// before it left, since few races have time for many turns.
pub const LOOKS: [usize; 5] = [5, 8, 15, 30, 60];
/// Turns up to which the order of all runs of two variants is judged, which says more where turns
/// are few. With more, the runs of each turn are compared.
const RANKED_TURNS_MAX: usize = 8;

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
    // A run that was stopped takes longer than until then. If that is less than the fastest way,
    // only a run before the race can tell.
    let least = plain.stopped.zip(entrants[leader].median()).map(|(stopped, fastest)| stopped / fastest);
    let least = least.filter(|_| plain.seconds.is_empty());
    let plain_behind = least.unwrap_or_else(|| behind(plain));
    if plain_behind <= 1.0 + SIMPLER_LOSS_MAX {
        let once = plain.known.zip(entrants[leader].median()).map(|(known, fastest)| known / fastest);
        let untold = least.is_some() && once.is_none_or(|once| once > 1.0 + SIMPLER_LOSS_MAX);
        return if untold { Choice::Unsure { entrant: leader } } else { Choice::Keep };
    }
    // Of the variants that are as fast as the best, `trimtab run` without options is the simplest.
    let simplest = entrants
        .iter()
        .position(|one| one.kind == Kind::Run && one.is_open() && behind(one) <= 1.0 + SIMPLER_LOSS_MAX);
    let mut rest: Vec<usize> = (0..entrants.len()).filter(|&at| entrants[at].is_open()).collect();
    rest.sort_by(|&one, &other| behind(&entrants[one]).total_cmp(&behind(&entrants[other])));
    let order = simplest.into_iter().chain([leader]).chain(rest);
    let mut order = order.filter(|&at| entrants[at].kind != Kind::Plain);
    if let Some(entrant) = order.find(|&at| is_sure(plain, &entrants[at], entrants.len())) {
        return Choice::Use { entrant };
    }
    if plain_behind <= 1.0 + WORTH_A_LOOK { Choice::Keep } else { Choice::Unsure { entrant: leader } }
}

/// Returns whether a variant is faster than the program as it is, for certain, in a race of this
/// number of variants.
pub(super) fn is_sure(plain: &Entrant, one: &Entrant, compared: usize) -> bool {
    speedup(plain, one).is_some_and(|gain| gain.is_sure()) && !is_luck(plain, one, compared)
}

/// Returns whether chance could order the runs of both in this way, in a race of this number of
/// variants, by the turns of the last look that both share. Before the first look only the widened
/// extremes decide.
fn is_luck(plain: &Entrant, variant: &Entrant, compared: usize) -> bool {
    let (plain, variant) = (plain.times(), variant.times());
    let shared = plain.len().min(variant.len());
    let Some(look) = LOOKS.iter().rposition(|&turns| turns <= shared) else { return false };
    let turns = LOOKS[look];
    let (plain, variant) = (&plain[..turns], &variant[..turns]);
    let chance = match turns {
        ..=RANKED_TURNS_MAX => rank_sum_chance(Better::Less, plain, variant),
        _ => signed_rank_chance(Better::Less, plain, variant),
    };
    let share = 0.5_f64.powi(look as i32 + 1) / compared.saturating_sub(1).max(1) as f64;
    chance * CHANCE_ODDS > share
}
