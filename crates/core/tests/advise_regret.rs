//! Regret of advice in simulated races: ways to start a program have drawn times, other programs
//! come and go, and runs are noisy. The best way is found by an oracle that the race does not see:
//! many runs of each way at random moments.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

use trimtab_core::advise::choice::{Choice, choose};
use trimtab_core::advise::race::{Outcome, Race, Rules};
use trimtab_core::time::Span;

/// Runs of a way from which the oracle takes the median.
const ORACLE_RUNS: usize = 301;
/// Races of each kind of program.
const DRAWS: u64 = 400;

/// Random numbers of the test alone: a linear congruence with permuted output.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number between two others, each ratio as likely.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// Returns an exponential time.
    fn waits(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A way to start the program: its times while the machine is free, and while others work.
#[derive(Clone, Copy, Debug)]
struct Way {
    free: f64,
    beside: f64,
}

/// A machine on which other programs work and sleep in turn.
struct Machine {
    chance: Chance,
    busy: bool,
    /// Time until the others begin or end.
    left: f64,
    /// Mean times of the others' work and sleep; no others if the first is 0.
    work: f64,
    sleep: f64,
    /// Standard deviation of the noise of a run, as a share.
    noise: f64,
}

impl Machine {
    fn new(seed: u64, work: f64, sleep: f64, noise: f64) -> Self {
        let mut chance = Chance(seed);
        let left = chance.waits(sleep);
        Self { chance, busy: false, left, work, sleep, noise }
    }

    fn change(&mut self) {
        self.busy = !self.busy && self.work > 0.0;
        self.left = self.chance.waits(if self.busy { self.work } else { self.sleep });
    }

    /// Lets time pass without a run.
    fn pass(&mut self, mut time: f64) {
        while time > self.left {
            time -= self.left;
            self.change();
        }
        self.left -= time;
    }

    /// Runs a way until its end, or until a limit. Returns its time.
    fn run(&mut self, way: Way, limit: f64) -> f64 {
        // The sum of four uniform numbers has a variance of a third.
        let sum: f64 = (0..4).map(|_| self.chance.unit() - 0.5).sum();
        let outlier = if self.chance.unit() < 0.04 { self.chance.between(1.2, 3.0) } else { 1.0 };
        let noise = (3_f64.sqrt() * self.noise * sum).exp() * outlier;
        let (mut work, mut time) = (1.0, 0.0);
        while time < limit {
            let all = noise * if self.busy { way.beside } else { way.free };
            let needed = work * all;
            if needed.min(limit - time) <= self.left {
                let spent = needed.min(limit - time);
                self.left -= spent;
                return time + spent;
            }
            work -= self.left / all;
            time += self.left;
            self.change();
        }
        limit
    }
}

/// A drawn program: all ways to start it, and the machine's company.
struct Program {
    ways: Vec<Way>,
    work: f64,
    sleep: f64,
    noise: f64,
}

impl Program {
    fn draw(seed: u64, shortest: f64, longest: f64) -> Self {
        let mut chance = Chance(seed);
        let now = chance.between(shortest, longest);
        let slower = chance.between(1.0, 2.5);
        let plain = Way { free: now, beside: now * slower };
        let count = 1 + (4.999 * chance.unit()) as usize;
        let mut others: Vec<(f64, Way)> = Vec::new();
        for _ in 0..count {
            let free = now * chance.between(0.4, 2.0);
            // Candidates are ordered by a prediction that is wrong by a factor of up to 1.6.
            let predicted = free * chance.between(1.0 / 1.6, 1.6);
            others.push((predicted, Way { free, beside: free * chance.between(1.0, 2.5) }));
        }
        others[1..].sort_by(|one, other| one.0.total_cmp(&other.0));
        let ways: Vec<Way> = [plain].into_iter().chain(others.into_iter().map(|(_, way)| way)).collect();
        let beside = chance.unit() < 0.6;
        let work = if beside { chance.between(0.02, 8.0) } else { 0.0 };
        Self { ways, work, sleep: chance.between(0.02, 8.0), noise: chance.between(0.005, 0.08) }
    }

    /// Returns this program with this number of ways that all are as fast as its present one.
    fn of_equal_ways(mut self, ways: usize) -> Self {
        self.ways = vec![self.ways[0]; ways];
        self
    }

    fn machine(&self, seed: u64) -> Machine {
        Machine::new(seed, self.work, self.sleep, self.noise)
    }

    /// Returns the median time of each way, from runs at random moments.
    fn oracle(&self, seed: u64) -> Vec<f64> {
        let mut machine = self.machine(seed);
        let median = |way: &Way| {
            let mut times: Vec<f64> = (0..ORACLE_RUNS)
                .map(|_| {
                    let time = machine.chance.waits(2.0 * (self.work + self.sleep));
                    machine.pass(time);
                    machine.run(*way, f64::INFINITY)
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times[ORACLE_RUNS / 2]
        };
        self.ways.iter().map(median).collect()
    }

    /// Races all ways within a budget. Returns the way that is to be used, and the time spent.
    fn advised(&self, budget: f64, seed: u64) -> (usize, f64) {
        let mut machine = self.machine(seed);
        let first = machine.run(self.ways[0], f64::INFINITY);
        let span = |seconds: f64| Span((seconds * 1e9) as u64);
        let rules = Rules {
            budget: span(budget.max(3.0 * first)),
            more: span(budget.max(3.0 * first).min(10.0)),
            limit_first: span((1.5 * first).max(1.0)),
            known: Some(span(first)),
            seed: 1,
        };
        let mut race = Race::new(rules, self.ways.len() - 2);
        while let Some(trial) = race.next() {
            let limit = trial.limit.seconds();
            let took = machine.run(self.ways[trial.entrant], limit);
            let outcome = if took >= limit {
                Outcome::Stopped { after: trial.limit }
            } else {
                Outcome::Ended { took: span(took) }
            };
            race.take(trial.entrant, &outcome);
        }
        let advised = match choose(race.entrants()) {
            Choice::Use { entrant } => entrant,
            Choice::Keep | Choice::Unsure { .. } | Choice::Unknown => 0,
        };
        (advised, race.spent().seconds())
    }
}

/// What was found about many drawn programs.
#[derive(Debug)]
struct Found {
    /// Times of the advised ways over those of the best ways, sorted.
    regrets: Vec<f64>,
    /// The same over those of the programs as they are now, sorted.
    over_now: Vec<f64>,
    /// Of programs with a way that is a tenth faster or more, the share with advice.
    answered: f64,
}

impl Found {
    fn of(shortest: f64, longest: f64) -> Self {
        let (mut regrets, mut over_now, mut wanted, mut answered) = (Vec::new(), Vec::new(), 0, 0);
        for draw in 0..DRAWS {
            let program = Program::draw(7 * draw + 1, shortest, longest);
            let times = program.oracle(draw + 10_000);
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            let (advised, _) = program.advised(5.0, draw + 20_000);
            regrets.push(times[advised] / best);
            over_now.push(times[advised] / times[0]);
            if best < 0.9 * times[0] {
                wanted += 1;
                answered += u32::from(advised != 0);
            }
        }
        regrets.sort_by(f64::total_cmp);
        over_now.sort_by(f64::total_cmp);
        Self { regrets, over_now, answered: f64::from(answered) / f64::from(wanted) }
    }

    /// Returns the value below which this share of the sorted values lie.
    fn part(sorted: &[f64], share: f64) -> f64 {
        sorted[((sorted.len() - 1) as f64 * share) as usize]
    }
}

#[test]
fn advice_on_short_programs_is_near_the_best_and_no_loss() {
    let Found { regrets, over_now, answered } = Found::of(0.015, 0.3);
    assert!(Found::part(&regrets, 0.5) <= 1.05, "median {}", Found::part(&regrets, 0.5));
    assert!(Found::part(&regrets, 0.95) <= 1.15, "95 %: {}", Found::part(&regrets, 0.95));
    assert!(Found::part(&over_now, 0.95) <= 1.02, "95 % over now: {}", Found::part(&over_now, 0.95));
    assert!(answered >= 0.9, "answered {answered}");
}

#[test]
fn advice_on_programs_of_some_seconds_loses_nothing_and_finds_what_few_runs_can_show() {
    // Three runs' time: a gain below a third is not certain after one run of each way.
    let Found { regrets, over_now, answered } = Found::of(1.0, 10.0);
    assert!(Found::part(&regrets, 0.5) <= 1.05, "median {}", Found::part(&regrets, 0.5));
    assert!(answered >= 0.7, "answered {answered}");
    assert!(Found::part(&regrets, 0.9) <= 1.4, "90 %: {}", Found::part(&regrets, 0.9));
    assert!(Found::part(&over_now, 0.95) <= 1.02, "95 % over now: {}", Found::part(&over_now, 0.95));
}

/// All ways are the same: each advice is chance. The load of others is shared by the runs of a
/// turn.
#[test]
fn of_equal_ways_one_is_advised_at_most_once_in_twenty_races() {
    for (shortest, longest) in [(0.015, 0.3), (0.3, 3.0), (1.0, 10.0)] {
        for ways in [2, 3, 6] {
            let wrong = |draw: &u64| {
                let program = Program::draw(11 * draw + 3, shortest, longest).of_equal_ways(ways);
                program.advised(5.0, draw + 30_000).0 != 0
            };
            let share = (0..DRAWS).filter(wrong).count() as f64 / DRAWS as f64;
            assert!(share <= 0.05, "{ways} ways of {shortest} to {longest} s: {share}");
        }
    }
}

#[test]
fn few_races_of_short_runs_go_on_after_their_least_budget() {
    let mut longer = 0;
    for draw in 0..DRAWS {
        let program = Program::draw(draw + 500, 0.015, 0.3);
        let (_, spent) = program.advised(5.0, draw);
        assert!(spent <= 10.0, "{spent} s");
        longer += u32::from(spent > 5.0);
    }
    assert!((1..DRAWS as u32 / 4).contains(&longer), "{longer} of {DRAWS}");
}
