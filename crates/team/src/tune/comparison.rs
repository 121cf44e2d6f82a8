//! Comparison of the choices in force with the best candidates, measured again.

use super::judge;
use super::noise::NOISY;
use super::{Cell, Job, Measured, Origin, Overseer, Plan, Tried, candidates, each, in_force, quietly, race};
use crate::Result;
use crate::rank::Rank;
use serde::{Deserialize, Serialize};

/// Distance of a choice from the best candidate. [`check`] has an example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The cell that was measured.
    #[serde(flatten)]
    pub job: Job,
    /// The candidate in use.
    pub kept: Tried,
    /// All measurements, of equal length.
    pub candidates: Vec<Measured>,
    /// The quickest candidate.
    pub best: Tried,
    /// The time of the candidate in use over that of the quickest.
    pub ratio: f64,
    /// Share of the machine that other programs used, 0 to 1.
    pub foreign: Option<f64>,
    /// Whether the result is valid: not if other programs disturbed it, unless the plan accepts
    /// that.
    pub judged: bool,
}

impl Checked {
    /// Largest ratio at which a choice is good.
    pub const GOOD_RATIO: f64 = 1.05;

    /// Returns whether the choice is good: within [`Self::GOOD_RATIO`] of the best. [`check`] has
    /// an example of its ratio.
    pub fn good(&self) -> bool {
        self.ratio <= Self::GOOD_RATIO
    }
}

/// Measures all candidates of each cell for the same time, and compares the quickest with the
/// choice of the team's table. All ranks must call it with the same plan. Also returns the number
/// of cells left out.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// use std::time::Duration;
/// use trimtab_team::Kind;
/// use trimtab_team::tune::{Plan, check};
///
/// let plan = Plan {
///     kinds: vec![Kind::Allreduce],
///     sizes: vec![1 << 16], // bytes
///     budget: Duration::from_millis(200),
///     ..Plan::default()
/// };
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let (checked, left) = check(&rank, &plan, &())?;
/// assert_eq!(checked.len() + left, 1);
/// for cell in checked {
///     // 1.0 if the choice is the quickest.
///     assert!(cell.ratio >= 1.0);
/// }
/// # Ok(())
/// # });
/// ```
///
/// # Errors
/// As [every call](crate::Calls#errors).
pub fn check(rank: &Rank, plan: &Plan, overseer: &dyn Overseer) -> Result<(Vec<Checked>, usize)> {
    let table = rank.table();
    let mut all = Vec::new();
    let left = each(rank, plan, overseer, |job, noise| {
        let mut tried = candidates(&rank.endpoint, job);
        let kept = in_force(&rank.endpoint, &table, job);
        if !tried.contains(&kept) {
            tried.push(kept);
        }
        let (raced, foreign) =
            quietly(rank, noise, plan, || race::race(rank, job, &tried, &table, &race::ALL))?;
        let of = |wanted: Tried| {
            tried.iter().position(|one| *one == wanted).map_or(f64::INFINITY, |at| raced[at].best())
        };
        let best = tried.iter().copied().min_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap_or(kept);
        let cell = Cell::new(job, &tried, &raced, judge::verdict(&raced), Origin::Offline);
        overseer.ended(&Cell { foreign, ..cell.clone() });
        let ratio = of(kept) / of(best);
        let ratio = if ratio.is_finite() { (ratio * 1e4).round() / 1e4 } else { 1.0 };
        let judged = plan.accept_noise || foreign.is_none_or(|share| share <= NOISY);
        all.push(Checked { job, kept, candidates: cell.candidates, best, ratio, foreign, judged });
        Ok(())
    })?;
    Ok((all, left))
}
