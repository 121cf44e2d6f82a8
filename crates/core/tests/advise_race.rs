//! Tests of the race and of the choice: the times of all ways are known here, so the best way is
//! found by comparing all of them. The race sees only runs with noise, limits and a budget.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is test")]

use proptest::prelude::*;
use trimtab_core::advise::choice::{Choice, choose};
use trimtab_core::advise::entrant::{Entrant, Kind};
use trimtab_core::advise::race::{BOUND_PLAIN, LIMIT_MIN, Outcome, Race, Rules, Trial};
use trimtab_core::advise::speedup::speedup;
use trimtab_core::time::Span;

/// Largest relative deviation of a run from the true time.
const NOISE: f64 = 0.01;

/// A way to start the program, as only the test knows it.
#[derive(Clone, Copy, Debug)]
struct Truth {
    seconds: f64,
    fails: bool,
}

fn span(seconds: f64) -> Span {
    Span((seconds * 1e9) as u64)
}

/// Returns a number from -1 to 1.
fn noise(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as f64 / f64::from(1_u32 << 31)) * 2.0 - 1.0
}

/// Runs a race to its end. Returns it with all trials and outcomes.
fn raced(truths: &[Truth], rules: Rules, seed: u64) -> (Race, Vec<(Trial, Outcome)>) {
    let (mut race, mut state, mut log) = (Race::new(rules, truths.len() - 2), seed, Vec::new());
    while let Some(trial) = race.next() {
        let truth = truths[trial.entrant];
        let took = span(truth.seconds * (1.0 + NOISE * noise(&mut state)));
        let outcome = if took > trial.limit {
            Outcome::Stopped { after: trial.limit }
        } else if truth.fails {
            Outcome::Rejected { why: "status 1".to_owned(), took }
        } else {
            Outcome::Ended { took }
        };
        race.take(trial.entrant, &outcome);
        log.push((trial, outcome));
        assert!(log.len() < 1_000, "the race does not end");
    }
    (race, log)
}

fn rules(budget: f64, first: f64) -> Rules {
    Rules { budget: span(budget), more: Span::ZERO, limit_first: span(first), known: None, seed: 1 }
}

/// Draws ways with times over four orders of magnitude.
fn truths() -> impl Strategy<Value = Vec<Truth>> {
    let one = (-2.0..2.0_f64, 0..10_u32)
        .prop_map(|(log, fails)| Truth { seconds: 10_f64.powf(log), fails: fails == 0 });
    prop::collection::vec(one, 2..=6)
}

/// Returns the fastest way that does not fail, by comparing all of them.
fn oracle(truths: &[Truth]) -> Option<f64> {
    truths.iter().filter(|truth| !truth.fails).map(|truth| truth.seconds).min_by(f64::total_cmp)
}

proptest! {
    #[test]
    fn a_race_goes_on_beyond_its_budget_only_while_the_answer_is_open(
        truths in truths(), budget in 0.01..20.0_f64, more in 0.0..20.0_f64, seed: u64,
    ) {
        let rules = Rules { more: span(more), ..rules(budget, budget) };
        let (_, log) = raced(&truths, rules, seed);
        let mut again = Race::new(rules, truths.len() - 2);
        for (trial, outcome) in &log {
            if again.spent() >= span(budget) {
                let choice = choose(again.entrants());
                prop_assert!(matches!(choice, Choice::Unsure { .. }), "{choice:?}");
            }
            again.take(trial.entrant, outcome);
        }
        prop_assert!(again.spent() <= span(budget) + span(more));
    }

    #[test]
    fn no_race_takes_longer_than_its_budget_or_repeats_what_is_over(
        truths in truths(), budget in 0.01..100.0_f64, first in 0.01..50.0_f64, seed: u64,
    ) {
        let (race, log) = raced(&truths, rules(budget, first), seed);
        let total: Span = log.iter().map(|(_, outcome)| match outcome {
            Outcome::Ended { took } | Outcome::Rejected { took, .. } => *took,
            Outcome::Stopped { after } => *after,
        }).sum();
        prop_assert_eq!(race.spent(), total);
        prop_assert!(total <= span(budget));
        for (at, (trial, outcome)) in log.iter().enumerate() {
            let entrant = &race.entrants()[trial.entrant];
            let is_over = match outcome {
                Outcome::Ended { .. } => false,
                // Of a short program a run that was stopped is one of its times.
                Outcome::Stopped { after } => !entrant.seconds.contains(&after.seconds()),
                Outcome::Rejected { .. } => true,
            };
            if is_over {
                let again = log[at + 1..].iter().any(|(later, _)| later.entrant == trial.entrant);
                prop_assert!(!again, "{} runs after its end", trial.entrant);
            }
        }
        for (at, entrant) in race.entrants().iter().enumerate() {
            let runs = log.iter().filter(|(trial, _)| trial.entrant == at).count();
            let ends = usize::from(entrant.stopped.is_some()) + usize::from(entrant.rejected.is_some());
            prop_assert_eq!(runs, entrant.seconds.len() + ends, "each run is a time, or the end");
        }
        // Equal outcomes give equal questions.
        prop_assert_eq!(raced(&truths, rules(budget, first), seed).1, log);
    }

    #[test]
    fn with_enough_time_the_advised_way_is_near_the_best_of_all_and_never_slower_than_now(
        truths in truths(), seed: u64,
    ) {
        let (race, _) = raced(&truths, rules(1e6, 1e6), seed);
        let plain = truths[0];
        prop_assume!(!plain.fails);
        let best = oracle(&truths).unwrap();
        let slack = (1.0 + NOISE) / (1.0 - NOISE);
        match choose(race.entrants()) {
            Choice::Use { entrant } => {
                let chosen = truths[entrant];
                prop_assert!(!chosen.fails);
                prop_assert!(chosen.seconds < plain.seconds, "{} is slower than now", chosen.seconds);
                prop_assert!(chosen.seconds <= best * 1.03 * slack, "{} of {best}", chosen.seconds);
            }
            Choice::Keep => prop_assert!(plain.seconds <= best * 1.05 * slack),
            Choice::Unsure { .. } => prop_assert!(plain.seconds <= best * 1.08, "a plain gain is not seen"),
            Choice::Unknown => prop_assert!(false, "all ways ran"),
        }
    }

    #[test]
    fn a_hopeless_candidate_costs_little_more_than_the_best(times in prop::collection::vec(1.0..1e4_f64, 1..5)) {
        // `trimtab run` takes a second, the candidates much longer.
        let slow = |seconds: &f64| Truth { seconds: 3.0 * seconds, fails: false };
        let mut all = vec![Truth { seconds: 1e6, fails: false }, Truth { seconds: 1.0, fails: false }];
        all.extend(times.iter().map(slow));
        let (race, log) = raced(&all, rules(1e9, 1e9), 7);
        for (trial, outcome) in &log {
            let limit = match race.entrants()[trial.entrant].kind {
                Kind::Plain => BOUND_PLAIN * 1.02,
                Kind::Run => continue,
                Kind::Candidate => 1.5 * 1.02,
            };
            prop_assert!(matches!(outcome, Outcome::Stopped { after } if after.seconds() <= limit), "{outcome:?}");
        }
        prop_assert_eq!(choose(race.entrants()), Choice::Use { entrant: 1 });
        let gain = speedup(&race.entrants()[0], &race.entrants()[1]).unwrap();
        prop_assert!(gain.high.is_none() && gain.low > 9.0 && gain.low <= 10.2, "{gain:?}");
    }

    #[test]
    fn a_speedup_lies_within_the_ratios_of_all_pairs(
        one in prop::collection::vec(0.1..10.0_f64, 1..9), other in prop::collection::vec(0.1..10.0_f64, 1..9),
    ) {
        let entrant = |seconds: &Vec<f64>| {
            let mut entrant = Entrant::new(Kind::Candidate);
            entrant.seconds.clone_from(seconds);
            entrant
        };
        let found = speedup(&entrant(&one), &entrant(&other)).unwrap();
        let ratios: Vec<f64> = one.iter().flat_map(|one| other.iter().map(move |other| one / other)).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let found_high = found.high.unwrap();
        prop_assert!(found.low <= found.likely && found.likely <= found_high);
        if one.len().min(other.len()) < 5 {
            prop_assert!(found.low < low && found_high > high, "few runs are widened");
        } else {
            prop_assert!(found.low >= low - 1e-12 && found_high <= high + 1e-12);
        }
        // No printed interval is wider than a factor of four.
        let text = found.to_string();
        if found_high > 4.0 * found.low {
            prop_assert!(!text.contains(" to "), "{text}");
        }
    }
}

#[test]
fn a_program_that_spins_without_end_gets_an_answer_in_a_moment() {
    let truth = |seconds| Truth { seconds, fails: false };
    // LU with four threads on two CPUs: now 6.6 s, under `trimtab run` and with two threads 0.03 s.
    let (race, log) = raced(&[truth(6.6), truth(0.034), truth(0.03)], rules(20.0, 8.0), 3);
    assert!(race.spent() < Span::from_ms(2_500), "{:?}", race.spent());
    assert_eq!(choose(race.entrants()), Choice::Use { entrant: 2 });
    assert!(log.iter().filter(|(trial, _)| trial.entrant == 0).count() == 1);
    assert!(race.entrants()[0].stopped.is_some_and(|stopped| stopped >= LIMIT_MIN.seconds()));
}

#[test]
fn a_single_slow_run_of_a_short_program_does_not_exclude_a_way() {
    let mut race = Race::new(rules(10.0, 1.0), 1);
    let mut slow = true;
    while let Some(trial) = race.next() {
        let outcome = match trial.entrant {
            2 if slow && race.best().is_some() => {
                slow = false;
                assert!(trial.limit >= span(0.3), "three times the best, or the least limit");
                // A run is found to be too long when it has been.
                Outcome::Stopped { after: trial.limit.times(1.01) }
            }
            2 => Outcome::Ended { took: span(0.05) },
            _ => Outcome::Ended { took: span(0.1) },
        };
        race.take(trial.entrant, &outcome);
    }
    assert!(!slow && race.entrants()[2].stopped.is_none());
    assert_eq!(choose(race.entrants()), Choice::Use { entrant: 2 });
}

#[test]
fn a_lucky_first_run_does_not_stop_all_ways() {
    let truth = |seconds| Truth { seconds, fails: false };
    // The run before the race took 2 s, and all later ones take twice as long or three quarters of
    // it.
    let lucky = Rules { known: Some(span(2.0)), ..rules(60.0, 8.0) };
    let (race, log) = raced(&[truth(4.0), truth(3.0), truth(3.0)], lucky, 3);
    assert!(matches!(log[0].1, Outcome::Stopped { .. }), "the known time is its limit");
    assert_eq!(log[1].0.entrant, 0, "then the program as it is");
    assert!(race.entrants()[2].stopped.is_none() || race.entrants()[1].stopped.is_none());
}

#[test]
fn a_way_that_was_stopped_is_not_advised_and_a_slower_one_does_not_look_faster() {
    let entrant = |kind, seconds: &[f64], stopped: Option<f64>| {
        let mut entrant = Entrant::new(kind);
        entrant.seconds = seconds.to_vec();
        entrant.stopped = stopped;
        entrant
    };
    let plain = || entrant(Kind::Plain, &[2.0, 2.01, 1.99, 2.02, 1.98], None);
    let fast = [1.0, 1.01, 0.99, 1.0, 1.0];
    let ways = [plain(), entrant(Kind::Run, &fast, Some(4.0)), entrant(Kind::Candidate, &fast, None)];
    assert_eq!(choose(&ways), Choice::Use { entrant: 2 });
    // The present way was stopped, after it had been faster.
    let stopped = entrant(Kind::Plain, &[1.0, 1.0, 1.0], Some(10.0));
    assert_eq!(choose(&[stopped, entrant(Kind::Run, &[1.2, 1.2, 1.2], None)]), Choice::Keep);
    let never = entrant(Kind::Plain, &[], Some(1.0));
    assert_eq!(choose(&[never, entrant(Kind::Run, &[1.2], None)]), Choice::Unsure { entrant: 1 });
}

#[test]
fn a_way_that_is_stopped_twice_does_not_run_again() {
    let mut race = Race::new(rules(10.0, 1.0), 1);
    let mut stops = 0;
    while let Some(trial) = race.next() {
        let outcome = match (trial.entrant, race.entrants()[2].seconds.len()) {
            (2, 3 | 5) => {
                stops += 1;
                Outcome::Stopped { after: trial.limit.times(1.01) }
            }
            (2, _) => Outcome::Ended { took: span(0.05) },
            _ => Outcome::Ended { took: span(0.1) },
        };
        race.take(trial.entrant, &outcome);
    }
    assert_eq!((stops, race.entrants()[2].seconds.len()), (2, 5), "the second stop is no time");
    assert!(race.entrants()[2].stopped.is_some());
    assert!(!matches!(choose(race.entrants()), Choice::Use { entrant: 2 }));
}

#[test]
fn the_run_before_the_race_bounds_runs_and_is_no_run_of_the_program_as_it_is() {
    let choice = |known, plain: Outcome| {
        let mut race = Race::new(Rules { known, ..rules(100.0, 10.0) }, 0);
        race.take(0, &plain);
        race.take(1, &Outcome::Ended { took: span(5.0) });
        choose(race.entrants())
    };
    let ended = || Outcome::Ended { took: span(10.0) };
    assert_eq!(choice(None, ended()), Choice::Use { entrant: 1 });
    assert_eq!(choice(Some(span(5.1)), ended()), Choice::Use { entrant: 1 });
    let stopped = |after| Outcome::Stopped { after: span(after) };
    assert_eq!(choice(Some(span(5.1)), stopped(50.0)), Choice::Use { entrant: 1 });
    // It was stopped before it had taken as long as the other way.
    assert_eq!(choice(Some(span(5.1)), stopped(5.0)), Choice::Keep);
    assert_eq!(choice(Some(span(9.0)), stopped(5.0)), Choice::Unsure { entrant: 1 });
    assert_eq!(choice(None, stopped(5.0)), Choice::Unsure { entrant: 1 });
}

#[test]
fn without_a_known_time_a_stopped_way_does_not_bring_the_present_one_forward() {
    let truth = |seconds| Truth { seconds, fails: false };
    // `trimtab run` and the program as it is hardly end; the candidate does.
    let (race, log) = raced(&[truth(900.0), truth(900.0), truth(5.0)], rules(20.0, 8.0), 3);
    assert_eq!(log[1].0.entrant, 2);
    assert_eq!(race.entrants()[2].seconds.len(), log.iter().filter(|(trial, _)| trial.entrant == 2).count());
}

#[test]
fn a_program_that_fails_now_gets_no_advice() {
    let truths = [Truth { seconds: 1.0, fails: true }, Truth { seconds: 0.1, fails: false }];
    let (race, _) = raced(&truths, rules(100.0, 100.0), 3);
    assert_eq!(choose(race.entrants()), Choice::Unknown);
}

#[test]
fn one_run_each_advises_only_a_gain_beyond_its_margin() {
    let entrant = |kind, seconds: &[f64]| {
        let mut entrant = Entrant::new(kind);
        entrant.seconds = seconds.to_vec();
        entrant
    };
    let pair = |now, then| [entrant(Kind::Plain, &[now]), entrant(Kind::Run, &[then])];
    assert_eq!(choose(&pair(10.0, 5.0)), Choice::Use { entrant: 1 });
    assert_eq!(choose(&pair(10.0, 8.0)), Choice::Unsure { entrant: 1 });
    assert_eq!(choose(&pair(10.0, 9.6)), Choice::Keep);
    assert_eq!(choose(&pair(10.0, 11.0)), Choice::Keep);
    // Of two ways that are as fast, `trimtab run` without options is the simpler one.
    let seconds = [1.0, 1.01, 0.99, 1.0, 1.0];
    let fast: Vec<f64> = seconds.iter().map(|one| one * 0.99).collect();
    let three = [
        entrant(Kind::Plain, &[2.0, 2.01, 1.99, 2.02, 1.98]),
        entrant(Kind::Run, &seconds),
        entrant(Kind::Candidate, &fast),
    ];
    assert_eq!(choose(&three), Choice::Use { entrant: 1 });
}

#[test]
fn a_baseline_that_was_stopped_once_keeps_its_other_runs() {
    let mut plain = Entrant::new(Kind::Plain);
    plain.seconds = vec![0.1, 0.24, 0.08];
    plain.stopped = Some(1.0);
    let mut run = Entrant::new(Kind::Run);
    run.seconds = vec![0.03, 0.032, 0.03, 0.038, 0.03];
    let gain = speedup(&plain, &run).unwrap();
    // The smallest of its times over the largest of the other's is the careful end.
    assert!(gain.low < 0.08 / 0.038 && gain.low > 1.5 && gain.high.is_none(), "{gain:?}");
    assert!(gain.likely > 4.0 && gain.likely < 6.0, "{gain:?}");
}

#[test]
fn words_of_a_speedup_are_clear_and_hold_no_wide_interval() {
    let said = |low, likely, high| trimtab_core::advise::speedup::Speedup { low, likely, high }.to_string();
    assert_eq!(said(5.1, 5.7, Some(6.2)), "5.70 times faster (5.10 to 6.20)");
    assert_eq!(said(94.2, 94.2, None), "at least 94.2 times faster");
    assert_eq!(said(0.99, 1.0, Some(1.01)), "no certain difference (0.99 to 1.01 times as fast)");
    assert_eq!(said(0.4, 0.5, Some(0.8)), "2.00 times slower (1.25 to 2.50)");
    assert_eq!(said(0.9, 54.05, Some(519_312.88)), "not known: too few runs, or too much noise");
    assert_eq!(said(3.0, 20.0, Some(200.0)), "at least 3.00 times faster");
    assert_eq!(said(0.01, 0.1, Some(0.5)), "at least 2.00 times slower");
}
