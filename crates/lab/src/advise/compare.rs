//! The trials: candidates, the program as it is, and `trimtab run`, in turn, by the rules of
//! `core::advise::race`.

use super::command_line::CommandLine;
use super::trial::Trials;
use anyhow::Result;
use serde::Serialize;
use trimtab_core::advise::choice::{Choice, choose};
use trimtab_core::advise::entrant::{Entrant, Kind};
use trimtab_core::advise::race::{Race, Rules};
use trimtab_core::advise::speedup::{Speedup, speedup};
use trimtab_core::advise::{Candidate, Gain};
use trimtab_core::stats::{Estimate, estimate};
use trimtab_core::time::Span;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::progress;

/// Factor of the first run's time that the trials may take.
const BUDGET_RUNS: f64 = 3.0;
/// Least budget: some dozens of runs of a program of milliseconds.
const BUDGET_MIN: Span = Span::from_ms(5_000);
/// More time of trials that nearly show a gain, at most, if the user gave no budget.
const MORE_MAX: Span = Span::from_ms(10_000);
/// Budget if the first run was ended early, so that its time says nothing.
const BUDGET_EARLY: Span = Span::from_ms(20_000);
/// Part of the budget that the first trial may take if the first run was ended early.
const FIRST_PART: f64 = 0.4;
/// Factor over the first run at which the first trial is stopped, and the least limit.
const FIRST_FACTOR: f64 = 2.0;
const FIRST_LIMIT_MIN: Span = Span::from_ms(1_000);
/// Seed of the orders of runs and of the bootstrap.
pub(super) const SEED: u64 = 1;

/// One way to start the program, with its runs.
#[derive(Debug, Serialize)]
pub(crate) struct Variant {
    /// How the program is started, without the program; empty for the program as it is.
    pub way: String,
    /// The command.
    pub command: String,
    /// Reason why it was tried.
    pub why: String,
    /// Predicted time over that of the first run.
    pub predicted: Option<Gain>,
    /// Its runs.
    #[serde(flatten)]
    pub entrant: Entrant,
    /// Median time, with its interval from five runs on.
    pub time: Option<Estimate>,
    /// How much faster it is than the program as it is.
    pub faster: Option<Speedup>,
}

/// The outcome of the trials.
#[derive(Debug, Serialize)]
pub(crate) struct Tested {
    /// Time that the trials might take, without the time added while a gain is likely.
    pub budget: Span,
    /// Time that they took.
    pub spent: Span,
    /// Conclusion.
    #[serde(flatten)]
    pub choice: Choice,
    /// All ways: the program as it is, `trimtab run`, and the candidates.
    pub variants: Vec<Variant>,
}

/// Returns the rules of the race.
pub(super) fn rules(asked: Option<Span>, first: Span, ended_early: bool) -> Rules {
    let usual = if ended_early { BUDGET_EARLY } else { first.times(BUDGET_RUNS).max(BUDGET_MIN) };
    let budget = asked.unwrap_or(usual);
    let limit_first =
        if ended_early { budget.times(FIRST_PART) } else { first.times(FIRST_FACTOR).max(FIRST_LIMIT_MIN) };
    let known = (!ended_early).then_some(first);
    let more = if asked.is_some() { Span::ZERO } else { budget.min(MORE_MAX) };
    Rules { budget, more, limit_first, known, seed: SEED }
}

/// Runs the trials of these ways to start the program: as it is, by `trimtab run`, and others, best
/// expected first.
///
/// # Errors
/// No process can be created.
pub(crate) fn compare(
    trials: &Trials,
    rules: Rules,
    lines: &[CommandLine],
    interrupt: &Interrupt,
) -> Result<Tested> {
    let mut race = Race::new(rules, lines.len().saturating_sub(2));
    let bar = progress::bar(lines.len());
    while let Some(trial) = race.next() {
        let Some(line) = lines.get(trial.entrant) else { break };
        let way = line.way();
        bar.set_message(if way.is_empty() { "as it is".to_owned() } else { way });
        bar.tick();
        let Some(outcome) = trials.run(line, trial.limit.into(), interrupt)? else { break };
        race.take(trial.entrant, &outcome);
        let failed = race.entrants().first().is_some_and(|plain| plain.rejected.is_some());
        if failed || interrupt.came().is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(tested(trials, &race, lines, rules))
}

fn tested(trials: &Trials, race: &Race, lines: &[CommandLine], rules: Rules) -> Tested {
    let entrants = race.entrants();
    let words: Vec<String> = trials.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let plain = &entrants[0];
    let variants = entrants.iter().zip(lines).map(|(entrant, line)| Variant {
        way: line.way(),
        command: line.line(&words),
        why: String::new(),
        predicted: None,
        time: estimate(&entrant.seconds, rules.seed),
        faster: if entrant.kind == Kind::Plain { None } else { speedup(plain, entrant) },
        entrant: entrant.clone(),
    });
    Tested {
        budget: rules.budget,
        spent: race.spent(),
        choice: choose(entrants),
        variants: variants.collect(),
    }
}

impl Tested {
    /// Adds the reasons and predictions of the candidates.
    pub(super) fn explain(&mut self, candidates: &[Candidate]) {
        for (variant, candidate) in self.variants.iter_mut().skip(2).zip(candidates) {
            variant.why.clone_from(&candidate.why);
            variant.predicted = candidate.predicted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_three_first_runs_with_a_floor_and_the_user_has_the_last_word() {
        let second = Span::from_ms(1_000);
        assert_eq!(rules(None, second.times(20.0), false).budget, second.times(60.0));
        assert_eq!(rules(None, Span::from_ms(20), false).budget, second.times(5.0));
        assert_eq!(rules(Some(second), second.times(20.0), false).budget, second);
        let more = |asked, first: f64| rules(asked, second.times(first), false).more;
        assert_eq!(
            [more(Some(second), 20.0), more(None, 0.1), more(None, 20.0)],
            [0.0, 5.0, 10.0].map(|of| second.times(of))
        );
        let early = rules(None, second, true);
        assert_eq!(early.budget, second.times(20.0));
        assert!(early.limit_first < early.budget);
    }
}
