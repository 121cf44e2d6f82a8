//! Stages of the search: one knob at a time, joined changes, single knobs around the best, then the
//! evidence.

use super::judge::judge;
use super::{Bench, Choice, End, Found, Ran, Rules, Series, Stage, Winner};
use crate::setting::{Knob, Setting};
use crate::stats::{Better, Comparison, Interval, Verdict, median, shuffled};
use crate::time::Span;

/// Runs of candidates after each run of the reference, so that drift affects both equally.
const CANDIDATES_PER_REFERENCE: usize = 4;
/// Runs of the reference per stage, at least.
const REFERENCES_MIN: usize = 3;
/// Share by which a first run may be worse than the reference and still get a second run: 10 %.
const FIRST_RUN_LOSS_MAX: f64 = 0.10;
/// Gain below which a few runs do not justify more runs: 1.5 %.
const PROMISING_GAIN_MIN: f64 = 0.015;
/// Knobs that are joined, at most.
const JOINED_KNOBS_MAX: usize = 4;
/// Rounds of single changes from the best setting, at most.
const AROUND_ROUNDS_MAX: usize = 3;
/// Candidates that continue after a round, at most.
const FINALISTS_MAX: usize = 4;
/// Pairs of runs in the evidence: at least, and at most.
const EVIDENCE_PAIRS: (usize, usize) = (5, 15);
/// A gain this large shows in three runs each.
pub(super) const PLAIN_GAIN_RATIO: f64 = 1.2;
/// A setting that measured better than the chosen one by this factor is examined first.
const STANDOUT_RATIO: f64 = 1.1;
/// An interval from a to b is narrow if b / a is below this: more runs will not improve the result.
const NARROW_INTERVAL_RATIO: f64 = 1.02;
/// Shortest time limit of a run: starting takes time, too.
const LIMIT_MIN: Span = Span::from_ms(500);

/// Reason why a part of the search ends early.
pub(super) enum Halt {
    Spent,
    Stopped,
}

/// A candidate, and its measured ratio to the reference in the better direction.
type Scored = (Setting, f64);

pub(super) struct Search<'a> {
    pub(super) rules: &'a Rules,
    choices: &'a [Choice],
    pub(super) start: &'a Setting,
    pub(super) bench: &'a mut dyn Bench,
    series: Vec<Series>,
    times: Vec<(Setting, Vec<f64>)>,
    runs: usize,
    spent: Span,
    /// Number of random orders drawn so far.
    drawn: u64,
}

/// Searches for a better setting than `start`.
pub fn search(rules: &Rules, choices: &[Choice], start: &Setting, bench: &mut dyn Bench) -> Found {
    let mut search = Search {
        rules,
        choices,
        start,
        bench,
        series: Vec::new(),
        times: Vec::new(),
        runs: 0,
        spent: Span::ZERO,
        drawn: 0,
    };
    let (end, winner) = search.all();
    Found { end, winner, series: search.series, runs: search.runs, spent: search.spent }
}

/// Returns the setting with a knob set to a value, or unset; `None` if the knob does not accept the
/// value.
pub(super) fn put(setting: &Setting, knob: Knob, value: Option<&str>) -> Option<Setting> {
    match value {
        Some(value) => setting.clone().with(knob, value).ok(),
        None => Some(setting.clone().without(knob)),
    }
}

impl Search<'_> {
    fn all(&mut self) -> (End, Option<Winner>) {
        let start = self.start.clone();
        self.bench.ahead(2 + self.singles(&start).len() * 2 + 2 * EVIDENCE_PAIRS.0);
        for stage in [Stage::Warm, Stage::Knobs] {
            match self.run(&start, stage, Span::ZERO) {
                Err(halt) => return (halt.into(), None),
                Ok(None) => {
                    let why = self.entry(&start).failed.clone().unwrap_or_default();
                    return (End::Failed { why }, None);
                }
                Ok(Some(_)) => {}
            }
        }
        let mut best = start.clone();
        let mut single = None;
        // The remaining time is for the evidence.
        let is_cut = match self.explore(&mut best, &mut single) {
            Err(Halt::Stopped) => return (End::Stopped, None),
            Err(Halt::Spent) => true,
            Ok(()) => false,
        };
        let fastest = self.standout(&best);
        // If the gain is already plain, unneeded knobs are removed first, which saves one round of
        // evidence.
        for plain in fastest.iter().chain([&best]).cloned().collect::<Vec<_>>() {
            if self.measured_ratio(&plain) < PLAIN_GAIN_RATIO {
                continue;
            }
            let reserve = self.reserve(&plain);
            let (lean, adds, halt) = self.lean(&plain, reserve);
            if let Some(Halt::Stopped) = halt {
                return (End::Stopped, None);
            }
            match self.evidence(&lean) {
                Ok(Some(winner)) => return (End::Won, Some(Winner { adds, ..winner })),
                Ok(None) => {}
                Err(halt) => return (halt.into(), None),
            }
        }
        // By chance, the joined setting may be worse than the settings that it was joined from.
        let mut candidates = vec![best];
        candidates.extend(single);
        candidates.dedup();
        candidates.retain(|candidate| *candidate != start);
        for candidate in candidates {
            match self.evidence(&candidate) {
                Ok(Some(winner)) => return self.pruned(winner),
                Ok(None) => {}
                Err(halt) => return (halt.into(), None),
            }
        }
        // Of settings that were not tried nothing is known.
        (if is_cut { End::Spent } else { End::Nothing }, None)
    }

    /// Searches for the best setting, and for the best single change.
    fn explore(&mut self, best: &mut Setting, single: &mut Option<Setting>) -> Result<(), Halt> {
        let start = self.start.clone();
        let good = self.knobs(&start)?;
        if let Some((setting, _)) = good.first() {
            best.clone_from(setting);
            *single = Some(setting.clone());
        }
        let joined = joined(&start, &good);
        if !joined.is_empty() {
            let rivals = self.halving(&best.clone(), joined, Stage::Joined)?;
            if let Some((setting, _)) = rivals.into_iter().next().filter(|(_, score)| *score > 1.0) {
                *best = setting;
            }
        }
        for _ in 0..AROUND_ROUNDS_MAX {
            let around = self.singles(best);
            let rivals = self.halving(&best.clone(), around, Stage::Around)?;
            let next = rivals.into_iter().next().filter(|(_, score)| *score >= 1.0 + PROMISING_GAIN_MIN);
            let Some((setting, _)) = next else { break };
            *best = setting;
        }
        Ok(())
    }

    /// Returns all settings that differ from this one in one knob, except those that return the
    /// knob to its start value.
    fn singles(&self, from: &Setting) -> Vec<Setting> {
        let mut singles = Vec::new();
        for Choice { knob, values } in self.choices {
            for value in values {
                let value = value.as_deref();
                if value != from.get(*knob) && value != self.start.get(*knob) {
                    singles.extend(put(from, *knob, value));
                }
            }
        }
        singles
    }

    /// Returns the best value of each knob by itself, if it measured better than the start; the
    /// best knob comes first.
    fn knobs(&mut self, start: &Setting) -> Result<Vec<Scored>, Halt> {
        let mut field = Vec::new();
        for Choice { knob, values } in self.choices {
            for value in values.iter().map(Option::as_deref).filter(|value| *value != start.get(*knob)) {
                field.extend(put(start, *knob, value).map(|setting| (*knob, setting)));
            }
        }
        let mut samples = StageSamples::default();
        for slack in [FIRST_RUN_LOSS_MAX, 0.0, -PROMISING_GAIN_MIN] {
            let settings: Vec<Setting> = field.iter().map(|(_, setting)| setting.clone()).collect();
            self.round(start, &settings, Stage::Knobs, &mut samples)?;
            let scores: Vec<(Knob, Scored)> = field
                .into_iter()
                .filter_map(|(knob, setting)| {
                    Some((knob, (samples.score(self.rules.better, &setting)?, setting)))
                })
                .map(|(knob, (score, setting))| (knob, (setting, score)))
                .filter(|(_, (_, score))| *score > 1.0 - slack)
                .collect();
            // The better half of each knob's values continues.
            field = Vec::new();
            for Choice { knob, .. } in self.choices {
                let mut own: Vec<&Scored> =
                    scores.iter().filter(|(of, _)| of == knob).map(|(_, scored)| scored).collect();
                own.sort_by(|a, b| b.1.total_cmp(&a.1));
                let keep = own.len().div_ceil(2);
                field.extend(own[..keep].iter().map(|(setting, _)| (*knob, setting.clone())));
            }
        }
        let mut good: Vec<Scored> = Vec::new();
        for Choice { knob, .. } in self.choices {
            let own = field.iter().filter(|(of, _)| of == knob);
            let own = own.filter_map(|(_, setting)| {
                Some((setting.clone(), samples.score(self.rules.better, setting)?))
            });
            good.extend(own.max_by(|a, b| a.1.total_cmp(&b.1)));
        }
        good.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(good)
    }

    /// Returns the candidates that are left after the worse half was dropped in each round, best
    /// first.
    fn halving(
        &mut self,
        reference: &Setting,
        field: Vec<Setting>,
        stage: Stage,
    ) -> Result<Vec<Scored>, Halt> {
        let mut samples = StageSamples::default();
        let mut scored: Vec<Scored> = field.into_iter().map(|setting| (setting, 1.0)).collect();
        for slack in [0.0, 0.0, -PROMISING_GAIN_MIN] {
            let settings: Vec<Setting> = scored.iter().map(|(setting, _)| setting.clone()).collect();
            if settings.is_empty() {
                break;
            }
            self.round(reference, &settings, stage, &mut samples)?;
            scored = settings
                .into_iter()
                .filter_map(|setting| {
                    samples.score(self.rules.better, &setting).map(|score| (setting, score))
                })
                .filter(|(_, score)| *score > 1.0 - slack)
                .collect();
            scored.sort_by(|a, b| b.1.total_cmp(&a.1));
            scored.truncate(scored.len().div_ceil(2).min(FINALISTS_MAX));
        }
        Ok(scored)
    }

    /// Makes one more run of each candidate, in a new random order, with the reference among them.
    fn round(
        &mut self,
        reference: &Setting,
        field: &[Setting],
        stage: Stage,
        samples: &mut StageSamples,
    ) -> Result<(), Halt> {
        self.drawn += 1;
        let order = shuffled(field.len(), self.rules.seed ^ self.drawn);
        let reserve = self.reserve(reference);
        for (at, index) in order.into_iter().enumerate() {
            if at % CANDIDATES_PER_REFERENCE == 0 {
                samples.references.extend(self.run(reference, stage, reserve)?);
            }
            let setting = &field[index];
            if let Some(value) = self.run(setting, stage, reserve)? {
                samples.push(setting, value);
            }
        }
        while !field.is_empty() && samples.references.len() < REFERENCES_MIN {
            match self.run(reference, stage, reserve)? {
                Some(value) => samples.references.push(value),
                None => break,
            }
        }
        Ok(())
    }

    /// Runs the candidate and the start in turn until it is clear which is better. Earlier
    /// measurements do not count.
    pub(super) fn evidence(&mut self, candidate: &Setting) -> Result<Option<Winner>, Halt> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.bench.ahead(2 * EVIDENCE_PAIRS.0);
        while before.len() < EVIDENCE_PAIRS.1 {
            // The two also take turns in running first.
            let first = before.len() % 2 == 0;
            let order = if first { [true, false] } else { [false, true] };
            for is_start in order {
                let setting = if is_start { self.start.clone() } else { candidate.clone() };
                let Some(value) = self.run(&setting, Stage::Evidence, Span::ZERO)? else { return Ok(None) };
                if is_start { before.push(value) } else { after.push(value) }
            }
            if before.len() < EVIDENCE_PAIRS.0 || before.len() % 2 == 0 {
                continue;
            }
            let (answer, comparison) = judge(self.rules, &before, &after);
            match answer {
                Verdict::Better => {
                    let (setting, adds) = (candidate.clone(), Vec::new());
                    return Ok(Some(Winner { setting, before, after, comparison, adds }));
                }
                Verdict::Worse | Verdict::NoDifference => return Ok(None),
                Verdict::Unknown if is_narrow(&comparison) => return Ok(None),
                Verdict::Unknown => {}
            }
        }
        Ok(None)
    }

    /// Returns the setting that measured best in any stage, if it is clearly better than the best
    /// one that the stages chose: a setting with one fast run must not lose to slower ones.
    fn standout(&mut self, best: &Setting) -> Option<Setting> {
        let settings: Vec<Setting> = self.series.iter().map(|series| series.setting.clone()).collect();
        let ratios = settings.into_iter().map(|setting| (self.measured_ratio(&setting), setting));
        let (ratio, setting) =
            ratios.collect::<Vec<_>>().into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
        (setting != *best && ratio >= STANDOUT_RATIO * self.measured_ratio(best)).then_some(setting)
    }

    /// Returns the ratio of a setting to the start in the better direction, by all measurements so
    /// far.
    fn measured_ratio(&mut self, setting: &Setting) -> f64 {
        let start = self.start.clone();
        let mut of = |setting: &Setting| median(&self.entry(setting).values);
        match (of(&start), of(setting), self.rules.better) {
            (Some(start), Some(setting), Better::Less) => start / setting,
            (Some(start), Some(setting), Better::More) => setting / start,
            _ => 1.0,
        }
    }

    /// Returns the shortest time of the evidence, if this setting is the best.
    fn reserve(&self, best: &Setting) -> Span {
        let pair = self.typical(self.start) + self.typical(best);
        Span((pair * EVIDENCE_PAIRS.0 as f64 * 1e9) as u64)
    }

    /// Returns the typical duration of a run in a setting, in seconds, or of a run of the start; 0
    /// if both are unknown.
    fn typical(&self, setting: &Setting) -> f64 {
        let of = |setting: &Setting| {
            self.times.iter().find(|(of, _)| of == setting).and_then(|(_, times)| median(times))
        };
        of(setting).or_else(|| of(self.start)).unwrap_or(0.0)
    }

    /// Returns the time limit of a run; `None` for runs without a limit.
    fn limit(&self, setting: &Setting, stage: Stage) -> Option<Span> {
        let cap = self.rules.cap?;
        if setting == self.start || matches!(stage, Stage::Warm | Stage::Evidence) {
            return None;
        }
        let best = self.times.iter().filter_map(|(_, times)| median(times)).fold(f64::INFINITY, f64::min);
        best.is_finite().then(|| Span((best * cap * 1e9) as u64).max(LIMIT_MIN))
    }

    /// Makes one run and returns its metric, or `None` if the program fails. A run that was stopped
    /// counts as if it had ended then, which flatters it.
    pub(super) fn run(
        &mut self,
        setting: &Setting,
        stage: Stage,
        reserve: Span,
    ) -> Result<Option<f64>, Halt> {
        if self.entry(setting).failed.is_some() {
            return Ok(None);
        }
        let expected = Span((self.typical(setting) * 1e9) as u64);
        if self.spent + expected + reserve > self.rules.budget {
            return Err(Halt::Spent);
        }
        let limit = self.limit(setting, stage);
        let ran = self.bench.run(setting, stage, limit).ok_or(Halt::Stopped)?;
        self.runs += 1;
        self.spent = self.spent + ran.took();
        let took = ran.took().seconds();
        // A run that failed or was stopped does not measure the duration of a run.
        if matches!(ran, Ran::Well { .. }) {
            match self.times.iter_mut().find(|(of, _)| of == setting) {
                Some((_, times)) => times.push(took),
                None => self.times.push((setting.clone(), vec![took])),
            }
        }
        let entry = self.entry(setting);
        match ran {
            Ran::Well { value, .. } if stage == Stage::Warm => Ok(Some(value)),
            Ran::Well { value, .. } => {
                entry.values.push(value);
                Ok(Some(value))
            }
            Ran::Slow { .. } => {
                entry.slow += 1;
                Ok(Some(took))
            }
            Ran::Failed { why, .. } => {
                entry.failed = Some(why);
                Ok(None)
            }
        }
    }

    fn entry(&mut self, setting: &Setting) -> &mut Series {
        let at = self.series.iter().position(|series| series.setting == *setting).unwrap_or_else(|| {
            self.series.push(Series { setting: setting.clone(), values: Vec::new(), slow: 0, failed: None });
            self.series.len() - 1
        });
        &mut self.series[at]
    }
}

/// Returns settings in which the best knobs are joined: the first two, three, ..., and all except
/// one of them.
fn joined(start: &Setting, good: &[Scored]) -> Vec<Setting> {
    let good = &good[..good.len().min(JOINED_KNOBS_MAX)];
    let merge = |parts: &mut dyn Iterator<Item = &Scored>| {
        parts.fold(start.clone(), |sum, (part, _)| {
            let changed = Knob::ALL.into_iter().filter(|knob| part.get(*knob) != start.get(*knob));
            changed.fold(sum, |sum, knob| put(&sum, knob, part.get(knob)).unwrap_or(sum))
        })
    };
    let mut joined: Vec<Setting> = (2..=good.len()).map(|count| merge(&mut good[..count].iter())).collect();
    if good.len() > 2 {
        let but_one = |left: usize| {
            merge(&mut good.iter().enumerate().filter(|(at, _)| *at != left).map(|(_, part)| part))
        };
        joined.extend((0..good.len() - 1).map(but_one));
    }
    joined
}

/// Returns whether more runs would hardly improve the result.
fn is_narrow(comparison: &Comparison) -> bool {
    let interval = comparison.gain.and_then(|gain| gain.interval);
    interval.is_some_and(|Interval { low, high }| high / low < NARROW_INTERVAL_RATIO)
}

impl From<Halt> for End {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Spent => Self::Spent,
            Halt::Stopped => Self::Stopped,
        }
    }
}

/// Measurements of one stage.
#[derive(Default)]
struct StageSamples {
    references: Vec<f64>,
    of: Vec<(Setting, Vec<f64>)>,
}

impl StageSamples {
    fn push(&mut self, setting: &Setting, value: f64) {
        match self.of.iter_mut().find(|(of, _)| of == setting) {
            Some((_, values)) => values.push(value),
            None => self.of.push((setting.clone(), vec![value])),
        }
    }

    /// Returns the measured ratio of a candidate to the reference in the better direction.
    fn score(&self, better: Better, setting: &Setting) -> Option<f64> {
        let (_, values) = self.of.iter().find(|(of, _)| of == setting)?;
        let (mine, reference) = (middle(values, better)?, middle(&self.references, better)?);
        Some(match better {
            Better::Less => reference / mine,
            Better::More => mine / reference,
        })
    }
}

/// Returns the middle run, or the better of the two in the middle: of two runs one may be
/// disturbed, and hardly any run is too quick.
fn middle(values: &[f64], better: Better) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = match better {
        Better::Less => values.len().checked_sub(1)? / 2,
        Better::More => values.len() / 2,
    };
    values.get(at).copied()
}
