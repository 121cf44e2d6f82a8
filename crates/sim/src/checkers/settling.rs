//! Checker of settling: when the load stops changing, moves for balance stop within bounded steps,
//! and do not start again.
//!
//! The time after the last change is cut into windows of a second, or of twenty of the policy's
//! intervals if that is longer. A window in which threads started or ended is not judged. A window
//! is unsettled
//!
//! - if no balanced thread slept, or waited for as much as a fiftieth of the time, and the policy
//!   moved some for balance all the same;
//! - if no thread is bound, all compute or poll all the time with equal weights, and a thread has
//!   less than seven tenths of the share that the fullest CPU gives when threads are spread as
//!   evenly as possible: 1 / ⌈threads / CPUs⌉. Exceptions: a thread that polls by yielding gives
//!   its share away; a kernel that pins assigns each program's threads from the first CPU on; the
//!   control `pinned` leaves threads where lost CPUs sent them; and a round of all threads on such
//!   a CPU must fit ten times into the window, or the window proves nothing.
//!
//! Bound: four unsettled windows in a row. A policy needs some of its steps to trust its readings,
//! a failed trial of `auto` takes half a second and is not repeated at once, and one window may
//! contain a move.

use super::trips::balances;
use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::kernel::SchedulerKind;
use crate::program::WaitMode;
use crate::world::{Activity, ThreadView};
use std::collections::BTreeMap;
use trimtab_core::balance::Kind as Policy;
use trimtab_core::drive::Step;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Shortest window, and the least number of the policy's intervals in a window.
const WINDOW_MIN: Span = Span::from_ms(1_000);
const WINDOW_INTERVALS_MIN: f64 = 20.0;
/// Number of unsettled windows in a row that is a breach.
const IN_A_ROW: u32 = 4;
/// Waiting below this share of the time counts as none; a thread that computes for all but this
/// share counts as computing all the time.
const WAIT_SHARE_IGNORED: f64 = 0.02;
/// Share of an even share that a thread must have.
const FAIR_SHARE_MIN: f64 = 0.7;
/// Number of rounds that a window must hold.
const WINDOW_ROUNDS_MIN: f64 = 10.0;

/// Checker of settling.
#[derive(Debug, Default)]
pub(crate) struct SettlingChecker {
    /// Scene at the start of the window.
    began: Option<Scene>,
    /// Moves for balance in the window.
    moves: u64,
    row: u32,
    homes: BTreeMap<ThreadKey, CpuSet>,
}

impl SettlingChecker {
    fn judge(&self, terms: &Terms, began: &Scene, now: &Scene) -> Option<String> {
        let wall = now.at.since(began.at).seconds();
        let alive = |scene: &Scene| scene.alive().map(ThreadKey::of).collect::<Vec<_>>();
        if alive(began) != alive(now) || began.usable != now.usable {
            return None;
        }
        let pairs: Vec<(&ThreadView, &ThreadView)> = now.since(began).collect();
        let waited = |pairs: &mut dyn Iterator<Item = &(&ThreadView, &ThreadView)>| {
            let (mut count, mut wait, mut slept) = (0, 0.0, false);
            for (then, now) in pairs {
                count += 1;
                wait += now.wait.less(then.wait).seconds();
                slept |= now.sleeps > then.sleeps;
            }
            (count, wait, slept)
        };
        let (ours, wait, slept) = waited(&mut pairs.iter().filter(|(_, now)| now.id.is_some()));
        let knows = terms.even && terms.counts_waits() && !slept;
        if knows && self.moves > 0 && wait < WAIT_SHARE_IGNORED * wall * f64::from(ours) {
            return Some(format!("{} moves for balance although no thread waits", self.moves));
        }
        let whole = terms.machine.cpus();
        let plain = terms.weights == 1.0
            && !terms.kernel.groups
            && terms.kernel.kind != SchedulerKind::Pinned
            && terms.policy.as_ref().is_none_or(|(kind, _)| *kind != Policy::Pinned)
            && terms.programs.iter().all(|program| program.wait != WaitMode::Yield)
            && pairs.iter().all(|(then, now)| {
                let wanted = now.run.less(then.run) + now.wait.less(then.wait);
                let free = self.homes.get(&ThreadKey::of(now)).is_some_and(|home| *home == whole);
                free && now.activity != Activity::Asleep
                    && wanted.seconds() > (1.0 - WAIT_SHARE_IGNORED) * wall
            });
        if !plain || pairs.is_empty() {
            return None;
        }
        let crowd = pairs.len().div_ceil(now.usable.len().max(1)) as f64;
        if terms.turn().times(crowd * WINDOW_ROUNDS_MIN).seconds() > wall {
            return None;
        }
        let even = 1.0 / crowd;
        let share = |(then, now): &(&ThreadView, &ThreadView)| now.run.less(then.run).seconds() / wall;
        let (least, last) =
            pairs.iter().map(|pair| (share(pair), pair.1)).min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least < FAIR_SHARE_MIN * even).then(|| {
            format!(
                "{} has {:.0} % of a CPU, {} threads on {} CPUs could have {:.0} % each",
                ThreadKey::of(last),
                100.0 * least,
                pairs.len(),
                now.usable.len(),
                100.0 * even
            )
        })
    }
}

impl Checker for SettlingChecker {
    fn inspect(&mut self, terms: &Terms, _before: &Scene, now: &Scene, found: &mut ViolationLog) {
        for thread in now.alive() {
            self.homes.entry(ThreadKey::of(thread)).or_insert_with(|| thread.mask.clone());
        }
        let window = WINDOW_MIN.max(terms.interval().times(WINDOW_INTERVALS_MIN));
        match &self.began {
            None if now.at >= terms.calm => self.begin(now),
            Some(began) if now.at.since(began.at) >= window => {
                match self.judge(terms, began, now) {
                    Some(text) => {
                        self.row += 1;
                        if self.row > IN_A_ROW {
                            let long = now.at.since(terms.calm.max(Moment(0)));
                            found.add(
                                Invariant::Settling,
                                None,
                                format!("{text}, {long} after the last change"),
                            );
                        }
                    }
                    None => self.row = 0,
                }
                self.begin(now);
            }
            _ => {}
        }
    }

    fn step(&mut self, _terms: &Terms, step: &Step<'_>, _found: &mut ViolationLog) {
        self.moves += step.turn.decisions.iter().filter(|decision| balances(decision)).count() as u64;
    }
}

impl SettlingChecker {
    fn begin(&mut self, now: &Scene) {
        self.began = Some(now.clone());
        self.moves = 0;
    }
}
