//! `trimtab advise --pair`: advice on how to run two programs on the same cores.
//!
//! Both programs run one after the other first, which shows the time of each alone. Then the
//! arrangements of `core::advise::pair` run in turn by the rules of `core::advise::race`, whose
//! time of a run is that until both programs have ended.

mod page;
mod trials;

use super::command_line::quoted;
use super::compare::SEED;
use anyhow::{Result, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use trials::{PairTrial, PairTrials};
use trimtab_cli::args::AdviseArgs;
use trimtab_core::advise::choice::{Choice, choose};
use trimtab_core::advise::entrant::{Entrant, Kind};
use trimtab_core::advise::pair::{Arrangement, Ends, PairFigures, alone, arrangements, figures};
use trimtab_core::advise::race::{Race, Rules};
use trimtab_core::advise::speedup::{Speedup, speedup};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_front::exit;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_front::progress;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_front::stdout::print;
use trimtab_linux::sys::affinity;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.pair/1";
/// Number of the arrangement that runs first: one after the other.
const IN_TURN: usize = 1;
/// Factor of the first trial's time that the other trials may take: two turns of all arrangements.
const BUDGET_TRIALS: f64 = 10.0;
/// Least time of all trials.
const BUDGET_MIN: Span = Span::from_ms(5_000);
/// Longest first trial without a budget of the user's.
const FIRST_MAX: Span = Span::from_ms(24 * 3_600_000);

/// The answer.
#[derive(Debug, Serialize)]
struct PairReport {
    schema: &'static str,
    /// The programs and their arguments.
    commands: [Vec<String>; 2],
    /// Number of cores that this process may use.
    cores: u32,
    /// Seconds of each program alone under `trimtab run`.
    alone: Option<[f64; 2]>,
    /// Time that the trials might take, and took.
    budget: Span,
    spent: Span,
    /// Conclusion.
    #[serde(flatten)]
    choice: Choice,
    /// The command to use; `None` if no change is advised.
    run: Option<String>,
    /// All arrangements: as the programs are started now, one after the other, and the others.
    arrangements: Vec<TriedArrangement>,
}

/// An arrangement with its trials.
#[derive(Debug, Serialize)]
struct TriedArrangement {
    #[serde(flatten)]
    arrangement: Arrangement,
    /// The command.
    command: String,
    /// Times until both programs have ended.
    #[serde(flatten)]
    entrant: Entrant,
    /// How much sooner both have ended than as they are started now.
    faster: Option<Speedup>,
    /// Figures of the trials that ended.
    #[serde(flatten)]
    figures: Option<PairFigures>,
}

/// Runs the command.
///
/// # Errors
/// The programs are not named, the machine cannot be read, or no process can be started.
pub(super) fn run(world: &World, args: &AdviseArgs) -> Result<u8> {
    super::first_run::refuse_inside(world)?;
    let programs = split(&args.command)?;
    let (machine, _) = Which::Live.load(world)?;
    let cores = usable(&machine)?;
    let ways = arrangements(cores);
    let trials = PairTrials::begin(sibling::find(TRIMTAB)?, world.proc(), programs)?;
    let interrupt = Interrupt::listen()?;
    let done = compare(&trials, args.budget, &ways, &interrupt)?;
    let report = report(&trials, cores, &ways, &done);
    let text = if args.json { serde_json::to_string(&report)? } else { page::words(&report) };
    print(&text)?;
    if let Some(signal) = interrupt.came() {
        return Ok(exit::by_signal(signal));
    }
    if report.arrangements.iter().take(2).any(|tried| tried.entrant.rejected.is_some()) {
        return Ok(exit::FAILED);
    }
    Ok(if report.run.is_none() { exit::NO } else { exit::DONE })
}

/// Splits the words of the command line into two programs at `--`. Without it the same program runs
/// twice.
fn split(words: &[OsString]) -> Result<[Vec<OsString>; 2]> {
    let parts: Vec<&[OsString]> = words.split(|word| word == "--").collect();
    match parts[..] {
        [one] => Ok([one.to_vec(), one.to_vec()]),
        [one, other] if !one.is_empty() && !other.is_empty() => Ok([one.to_vec(), other.to_vec()]),
        [_, _] => bail!("--pair needs a program on each side of --: trimtab advise --pair ./a 1 -- ./b 2"),
        _ => bail!(
            "--pair takes two programs, and there are {} words \"--\": put a program that has one of its own into a script, or into sh -c '...'",
            parts.len() - 1
        ),
    }
}

/// Returns the number of cores that this process may use.
fn usable(machine: &Machine) -> Result<u32> {
    let mask = affinity::get(None)?;
    let of = |cpu| machine.pu(cpu).map(|pu| machine.core_of(pu));
    let cores: BTreeSet<_> = mask.iter().filter_map(of).collect();
    Ok(u32::try_from(cores.len()).unwrap_or(u32::MAX).max(1))
}

/// All trials of a comparison.
struct Compared {
    race: Race,
    rules: Rules,
    /// Ends of the trials that ended, by arrangement.
    ends: Vec<Vec<Ends>>,
}

/// Runs the trials.
fn compare(
    trials: &PairTrials,
    budget: Option<Span>,
    ways: &[Arrangement],
    interrupt: &Interrupt,
) -> Result<Compared> {
    let bar = progress::bar(ways.len());
    let run = |at: usize, limit: Span| {
        bar.set_message(page::name(ways[at]));
        bar.tick();
        trials.run(ways[at], limit.into(), interrupt)
    };
    let first = run(IN_TURN, budget.unwrap_or(FIRST_MAX))?;
    let took = first.as_ref().map_or(Span::ZERO, PairTrial::took);
    let usual = took.times(BUDGET_TRIALS).max(BUDGET_MIN);
    let rules = Rules {
        budget: budget.unwrap_or(usual),
        more: Span::ZERO,
        limit_first: took.times(2.0),
        known: None,
        seed: SEED,
    };
    let mut done =
        Compared { race: Race::new(rules, ways.len() - 2), rules, ends: vec![Vec::new(); ways.len()] };
    let mut next = first.map(|trial| (IN_TURN, trial));
    while let Some((at, trial)) = next.take() {
        done.race.take(at, &trial.outcome);
        done.ends[at].extend(trial.ends);
        let failed = done.race.entrants()[..=IN_TURN].iter().any(|one| one.rejected.is_some());
        if failed || interrupt.came().is_some() {
            break;
        }
        if let Some(trial) = done.race.next() {
            next = run(trial.entrant, trial.limit)?.map(|run| (trial.entrant, run));
        }
    }
    bar.finish_and_clear();
    Ok(done)
}

/// Makes the answer.
fn report(trials: &PairTrials, cores: u32, ways: &[Arrangement], done: &Compared) -> PairReport {
    let entrants = done.race.entrants();
    let alone = alone(&done.ends[IN_TURN]);
    let tried =
        ways.iter().zip(entrants).zip(&done.ends).map(|((&arrangement, entrant), ends)| TriedArrangement {
            arrangement,
            command: trials.line(arrangement),
            faster: if entrant.kind == Kind::Plain { None } else { speedup(&entrants[0], entrant) },
            figures: figures(ends, alone),
            entrant: entrant.clone(),
        });
    let arrangements: Vec<TriedArrangement> = tried.collect();
    let choice = choose(entrants);
    let run = match choice {
        Choice::Use { entrant } => arrangements.get(entrant).map(|one| one.command.clone()),
        Choice::Keep | Choice::Unsure { .. } | Choice::Unknown => None,
    };
    PairReport {
        schema: SCHEMA,
        commands: trials.words(),
        cores,
        alone,
        budget: done.rules.budget,
        spent: done.race.spent(),
        choice,
        run,
        arrangements,
    }
}

/// Names a program for a table: its command without folders, in few letters.
fn short(words: &[String]) -> String {
    const LETTERS_MAX: usize = 32;
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut()
        && let Some((_, name)) = program.rsplit_once('/').filter(|(_, name)| !name.is_empty())
    {
        *program = name.to_owned();
    }
    let line = quoted(&words);
    if line.chars().count() <= LETTERS_MAX {
        return line;
    }
    let start: String = line.chars().take(LETTERS_MAX - 1).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::advise::race::Outcome;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn two_programs_are_split_and_one_runs_twice() {
        assert_eq!(split(&words("a 1 -- b 2")).unwrap(), [words("a 1"), words("b 2")]);
        assert_eq!(split(&words("a 1")).unwrap(), [words("a 1"), words("a 1")]);
        for (bad, why) in [("a --", "each side"), ("-- b", "each side"), ("a -- b -- c", "sh -c")] {
            let error = split(&words(bad)).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn long_commands_are_cut_at_a_letter() {
        let long = short(&["programm".to_owned(), "ä".repeat(80)]);
        assert_eq!(long.chars().count(), 32);
        assert!(long.ends_with('…'));
        assert_eq!(short(&["/long/folder/app".to_owned(), "/data".to_owned()]), "app /data");
    }

    #[test]
    fn a_race_needs_no_outcome_to_have_a_report() {
        let rules =
            Rules { budget: BUDGET_MIN, more: Span::ZERO, limit_first: BUDGET_MIN, known: None, seed: SEED };
        let race = Race::new(rules, 2);
        assert_eq!(choose(race.entrants()), Choice::Unknown);
        let stopped = PairTrial { outcome: Outcome::Stopped { after: Span::from_ms(5) }, ends: None };
        assert_eq!(stopped.took(), Span::from_ms(5));
    }
}
