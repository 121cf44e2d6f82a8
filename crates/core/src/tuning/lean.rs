//! Reduction of the best setting to the knobs that are needed: it runs in turn with variants that
//! each lack one knob.

use super::judge::judge;
use super::search::{Halt, PLAIN_GAIN_RATIO, Search, put};
use super::{End, Stage, Winner};
use crate::setting::{Knob, Setting};
use crate::stats::Verdict;
use crate::stats::comparison::rank_sum_chance;
use crate::time::Span;

/// Runs to judge the contribution of a knob: at least, and at most.
const KNOB_RUNS: (usize, usize) = (3, 7);
/// The gain of one knob within a proven setting counts if it would be chance at most once in this
/// number of comparisons.
const KNOB_CHANCE_ODDS: f64 = 20.0;

/// The best setting with one knob less.
struct LeanerSetting {
    knob: Knob,
    setting: Setting,
    values: Vec<f64>,
    /// Whether the knob adds something; `None` while undecided.
    needed: Option<bool>,
    gain: Option<f64>,
}

impl Search<'_> {
    /// Returns the winner without the knobs that add nothing, with evidence of its own.
    pub(super) fn pruned(&mut self, mut winner: Winner) -> (End, Option<Winner>) {
        let (lean, adds, halt) = self.lean(&winner.setting.clone(), Span::ZERO);
        if lean == winner.setting {
            winner.adds.clone_from(&adds);
        }
        match halt {
            Some(Halt::Stopped) => return (End::Stopped, Some(winner)),
            // The winner was judged as a whole, and no time is left for its knobs.
            Some(Halt::Spent) => return (End::Won, Some(winner)),
            None if lean == winner.setting => return (End::Won, Some(winner)),
            None => {}
        }
        match self.evidence(&lean) {
            Ok(Some(less)) => (End::Won, Some(Winner { adds, ..less })),
            Ok(None) | Err(Halt::Spent) => (End::Won, Some(winner)),
            Err(Halt::Stopped) => (End::Stopped, Some(winner)),
        }
    }

    /// Returns a setting without the knobs that add nothing, the contribution of each other knob,
    /// and the reason if the test did not reach its end.
    pub(super) fn lean(
        &mut self,
        setting: &Setting,
        reserve: Span,
    ) -> (Setting, Vec<(Knob, f64)>, Option<Halt>) {
        let start = self.start.clone();
        let mut lean = setting.clone();
        loop {
            let changed = Knob::ALL.into_iter().filter(|knob| lean.get(*knob) != start.get(*knob));
            let mut rivals: Vec<LeanerSetting> = changed
                .filter_map(|knob| {
                    let setting = put(&lean, knob, start.get(knob))?;
                    Some(LeanerSetting { knob, setting, values: Vec::new(), needed: None, gain: None })
                })
                .collect();
            if rivals.len() < 2 {
                return (lean, Vec::new(), None);
            }
            self.bench.ahead((rivals.len() + 1) * KNOB_RUNS.0);
            let halt = self.adds(&lean, &mut rivals, reserve).err();
            let idle = rivals.iter().filter(|rival| rival.needed == Some(false));
            let idle = idle.min_by(|a, b| a.gain.unwrap_or(1.0).total_cmp(&b.gain.unwrap_or(1.0)));
            match (idle, halt) {
                (Some(idle), None) => lean = idle.setting.clone(),
                (_, halt) => {
                    let adds = rivals.iter().filter_map(|rival| Some((rival.knob, rival.gain?))).collect();
                    return (lean, adds, halt);
                }
            }
        }
    }

    /// Runs a setting and its rivals, which each lack one of its knobs, in turn until it is clear
    /// which knobs are needed.
    fn adds(&mut self, setting: &Setting, rivals: &mut [LeanerSetting], reserve: Span) -> Result<(), Halt> {
        let mut with = Vec::new();
        for round in 1..=KNOB_RUNS.1 {
            if rivals.iter().all(|rival| rival.needed.is_some()) {
                break;
            }
            with.extend(self.run(setting, Stage::Without, reserve)?);
            for rival in rivals.iter_mut().filter(|rival| rival.needed.is_none()) {
                match self.run(&rival.setting, Stage::Without, reserve)? {
                    Some(value) => rival.values.push(value),
                    // The program fails without the knob.
                    None => rival.needed = Some(true),
                }
            }
            if round < KNOB_RUNS.0 {
                continue;
            }
            for rival in rivals.iter_mut().filter(|rival| rival.needed.is_none()) {
                let (answer, comparison) = judge(self.rules, &rival.values, &with);
                rival.gain = comparison.gain.map(|gain| gain.median);
                let above = |least: f64| rival.gain.is_some_and(|gain| gain >= least);
                let unlikely =
                    rank_sum_chance(self.rules.better, &rival.values, &with) * KNOB_CHANCE_ODDS <= 1.0 + 1e-9;
                let last = round == KNOB_RUNS.1;
                let least = if last { 1.0 + self.rules.gain_min } else { PLAIN_GAIN_RATIO };
                let needed = unlikely && above(least);
                rival.needed = match answer {
                    Verdict::Better => Some(true),
                    _ if needed => Some(true),
                    Verdict::Worse | Verdict::NoDifference => Some(false),
                    Verdict::Unknown => last.then_some(false),
                };
            }
        }
        Ok(())
    }
}
