//! Settling: when the load stops changing, the balance comes to rest within bounded steps, and stays there.
//!
//! Time after the last change is cut into windows of a second, or twenty of the policy's intervals if that is longer. A window
//! in which threads came or went is not judged. One is unsettled
//!
//! - where no thread of the policy's slept, or waited for as much as a fiftieth of the time, and the policy moved some for balance all the same;
//! - where nothing binds anybody, all compute or poll all the time with equal weights, and a thread has less than seven tenths of what the crowd's
//!   fullest CPU gives when threads are spread as evenly as they can be: 1 / ⌈threads / CPUs⌉. Who polls by yielding gives its share
//!   away; a kernel that pins deals each program's threads from the first CPU on; the control `pinned` leaves threads where lost CPUs sent them; and a round of everybody on such a CPU must
//!   fit ten times into the window, or the window cannot tell.
//!
//! Bound: four unsettled windows in a row. A policy needs some of its steps to believe what it sees, a failed trial of `auto` takes half
//! a second and is not repeated at once, and one window may be one in which somebody moved.

use super::trips::balances;
use super::{Checker, Found, Invariant, Scene, Terms, Who};
use crate::kernel::Kind;
use crate::program::Wait;
use crate::world::{Activity, ThreadSeen};
use std::collections::BTreeMap;
use trimtab_core::balance::Kind as Policy;
use trimtab_core::drive::Step;
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// The shortest window, and how many of the policy's intervals it lasts at least.
const WINDOW: Span = Span::from_ms(1_000);
const INTERVALS: f64 = 20.0;
/// So many unsettled ones in a row.
const IN_A_ROW: u32 = 4;
/// Waiting below this part of the time is none; who computes for all but this part computes all the time.
const NOTHING: f64 = 0.02;
/// The part of an even share that a thread must have.
const SHARE: f64 = 0.7;
/// So many rounds a window must hold.
const ROUNDS: f64 = 10.0;

/// The checker.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// The scene at which the window began.
    began: Option<Scene>,
    /// Moves for balance in it.
    moves: u64,
    row: u32,
    homes: BTreeMap<Who, CpuSet>,
}

impl Settling {
    fn judge(&self, terms: &Terms, began: &Scene, now: &Scene) -> Option<String> {
        let wall = now.at.since(began.at).seconds();
        let alive = |scene: &Scene| scene.alive().map(Who::of).collect::<Vec<_>>();
        if alive(began) != alive(now) || began.usable != now.usable {
            return None;
        }
        let pairs: Vec<(&ThreadSeen, &ThreadSeen)> = now.since(began).collect();
        let waited = |pairs: &mut dyn Iterator<Item = &(&ThreadSeen, &ThreadSeen)>| {
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
        if knows && self.moves > 0 && wait < NOTHING * wall * f64::from(ours) {
            return Some(format!("{} moves for balance where nobody waits", self.moves));
        }
        let whole = terms.machine.cpus();
        let plain = terms.weights == 1.0
            && !terms.kernel.groups
            && terms.kernel.kind != Kind::Pinned
            && terms.policy.as_ref().is_none_or(|(kind, _)| *kind != Policy::Pinned)
            && terms.programs.iter().all(|program| program.wait != Wait::Yield)
            && pairs.iter().all(|(then, now)| {
                let wanted = now.run.less(then.run) + now.wait.less(then.wait);
                let free = self.homes.get(&Who::of(now)).is_some_and(|home| *home == whole);
                free && now.activity != Activity::Asleep && wanted.seconds() > (1.0 - NOTHING) * wall
            });
        if !plain || pairs.is_empty() {
            return None;
        }
        let crowd = pairs.len().div_ceil(now.usable.len().max(1)) as f64;
        if terms.turn().times(crowd * ROUNDS).seconds() > wall {
            return None;
        }
        let even = 1.0 / crowd;
        let share = |(then, now): &(&ThreadSeen, &ThreadSeen)| now.run.less(then.run).seconds() / wall;
        let (least, last) =
            pairs.iter().map(|pair| (share(pair), pair.1)).min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least < SHARE * even).then(|| {
            format!(
                "{} has {:.0} % of a CPU, {} threads on {} CPUs could have {:.0} % each",
                Who::of(last),
                100.0 * least,
                pairs.len(),
                now.usable.len(),
                100.0 * even
            )
        })
    }
}

impl Checker for Settling {
    fn look(&mut self, terms: &Terms, _before: &Scene, now: &Scene, found: &mut Found) {
        for thread in now.alive() {
            self.homes.entry(Who::of(thread)).or_insert_with(|| thread.mask.clone());
        }
        let window = WINDOW.max(terms.interval().times(INTERVALS));
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

    fn step(&mut self, _terms: &Terms, step: &Step<'_>, _found: &mut Found) {
        self.moves += step.turn.decisions.iter().filter(|decision| balances(decision)).count() as u64;
    }
}

impl Settling {
    fn begin(&mut self, now: &Scene) {
        self.began = Some(now.clone());
        self.moves = 0;
    }
}
