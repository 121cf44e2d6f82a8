//! Who wins a race of noisy measurements. Pure: what was measured goes in, a verdict with its reason comes out.

use serde::{Deserialize, Serialize};

/// The usual way is left only for one whose best batch takes less than this part of its best.
pub const CLEARLY: f64 = 0.95;
/// No verdict against the usual is given on fewer batches.
pub const ENOUGH: usize = 20;

/// What was measured of a candidate: microseconds per call of each batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidate {
    /// Batches, in order.
    pub batches: Vec<f64>,
    /// No longer in the race.
    pub out: bool,
}

impl Candidate {
    /// The best batch.
    pub fn best(&self) -> f64 {
        self.batches.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Which candidate is used, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its number; 0 is the usual one.
    pub winner: usize,
    /// Its best time over the usual one's.
    pub ratio: f64,
    /// In words.
    pub why: String,
}

/// The slower half goes; the first, which is the usual, stays to be compared with.
pub fn halve(candidates: &mut [Candidate]) {
    let mut running: Vec<usize> = (1..candidates.len()).filter(|at| !candidates[*at].out).collect();
    running.sort_by(|a, b| candidates[*a].best().total_cmp(&candidates[*b].best()).then(a.cmp(b)));
    for at in running.iter().skip(running.len().div_ceil(2).max(1)) {
        candidates[*at].out = true;
    }
}

/// The verdict when a race is over.
pub fn verdict(candidates: &[Candidate]) -> Verdict {
    let usual = candidates.first().map_or(f64::INFINITY, Candidate::best);
    let best = (0..candidates.len())
        .filter(|at| !candidates[*at].out && candidates[*at].batches.len() >= ENOUGH)
        .min_by(|a, b| candidates[*a].best().total_cmp(&candidates[*b].best()));
    let stays = |ratio, why: &str| Verdict { winner: 0, ratio, why: why.to_owned() };
    let Some(best) = best else { return stays(1.0, "too little was measured to leave the usual way") };
    let ratio = candidates[best].best() / usual;
    if best == 0 {
        stays(1.0, "the usual way is the quickest")
    } else if !ratio.is_finite() || ratio >= CLEARLY {
        stays(ratio, "another is not 5 % quicker, which is within the noise")
    } else {
        Verdict { winner: best, ratio, why: format!("quicker by {:.0} %", (1.0 - ratio) * 100.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates(all: &[&[f64]]) -> Vec<Candidate> {
        let pad = |batches: &&[f64]| batches.iter().copied().cycle().take(24).collect();
        all.iter().map(|batches| Candidate { batches: pad(batches), out: false }).collect()
    }

    #[test]
    fn only_what_is_clearly_better_wins() {
        assert_eq!(verdict(&candidates(&[&[1.0, 9.0], &[0.97]])).winner, 0);
        assert_eq!(verdict(&candidates(&[&[1.0, 9.0], &[0.90, 50.0]])).winner, 1);
        let few = Candidate { batches: vec![0.1; ENOUGH - 1], out: false };
        assert_eq!(verdict(&[candidates(&[&[1.0]]).remove(0), few]).winner, 0);
        assert_eq!(verdict(&[]).winner, 0);
    }

    #[test]
    fn halves_keep_the_usual_and_the_best() {
        let mut all = candidates(&[&[9.0], &[3.0], &[1.0], &[2.0], &[4.0]]);
        halve(&mut all);
        assert_eq!(all.iter().map(|one| one.out).collect::<Vec<_>>(), [false, true, false, false, true]);
        halve(&mut all);
        halve(&mut all);
        assert_eq!(all.iter().map(|one| one.out).collect::<Vec<_>>(), [false, true, false, true, true]);
        assert_eq!(verdict(&all).winner, 2);
    }

    proptest! {
        // A machine that disturbs half of all batches by up to a hundred times: who is 1.3 times slower loses nearly always.
        #[test]
        fn noise_that_only_slows_does_not_decide(noise in prop::collection::vec((any::<bool>(), 1.0_f64..100.0, 0.0_f64..0.02), 48)) {
            let one = |true_time: f64, noise: &[(bool, f64, f64)]| Candidate {
                batches: noise.iter().map(|(hit, by, jitter)| true_time * (1.0 + jitter) * if *hit { *by } else { 1.0 }).collect(),
                out: false,
            };
            let undisturbed = |noise: &[(bool, f64, f64)]| noise.iter().any(|(hit, by, _)| !hit || *by < 1.02);
            prop_assume!(undisturbed(&noise[..24]) && undisturbed(&noise[24..]));
            prop_assert_eq!(verdict(&[one(1.3, &noise[..24]), one(1.0, &noise[24..])]).winner, 1);
            prop_assert_eq!(verdict(&[one(1.0, &noise[..24]), one(1.3, &noise[24..])]).winner, 0);
        }
    }
}
