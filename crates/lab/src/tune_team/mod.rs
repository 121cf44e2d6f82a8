//! `trimtab tune-team`: measures the fastest algorithm for each collective of a team on this
//! machine, and stores it.
//!
//! `ranks` makes teams of threads or processes that measure, `page` formats the results. The
//! library measures, judges and stores (`trimtab_team::tune`). A signal ends the command before the
//! next cell: finished cells are stored and reported.

pub(crate) mod page;
mod ranks;

use crate::args::{Pace, TuneTeamArgs, Weight};
use anyhow::{Context, Result, anyhow};
use page::{TeamOf, TeamResult, TuneTeamReport};
use ranks::TeamFindings;
use std::time::{Duration, Instant};
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::print;
use trimtab_front::process_env::World;
use trimtab_team::algorithm_table::CallClass;
use trimtab_team::cpus::crowded_here;
use trimtab_team::tune::store::{self, Store};
use trimtab_team::tune::{Checked, Plan, noise};
use trimtab_team::{Kind, Options};

/// Sizes in bytes that a first tuning measures.
const QUICK_SIZES: [usize; 2] = [64 << 10, 1 << 20];
const QUICK_SECONDS: f64 = 5.0;
/// Share of the cells in which the choice must be good.
const GOOD_SHARE_GOAL: f64 = 0.95;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when teams cannot be made, or the results cannot be stored.
pub fn run(_world: &World, args: &TuneTeamArgs) -> Result<u8, Exit> {
    let done = match &args.as_rank {
        Some(plan) => ranks::as_rank(args, plan),
        None if args.show => show(args),
        None if args.forget => forget(args),
        None if args.list => list(args),
        None => measure(args),
    };
    done.map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// Returns the numbers of ranks, without repetition, ascending.
fn counts(args: &TuneTeamArgs) -> Result<Vec<u32>> {
    let mut counts = args.ranks.clone();
    if counts.is_empty() {
        let cpus = u32::try_from(ranks::allowed()?.len()).unwrap_or(256).clamp(1, 256);
        counts = vec![2, cpus.max(2), 2 * cpus];
        if args.kind.split(2).is_none() {
            counts.retain(|count| args.kind.split(*count).is_some());
        }
    }
    counts.sort_unstable();
    counts.dedup();
    match counts.iter().find(|count| args.kind.split(**count).is_none()) {
        Some(count) => Err(anyhow!("{} cannot make {count} ranks", args.kind)),
        None if counts.is_empty() => {
            Err(anyhow!("{} cannot make any of the usual counts: set --ranks", args.kind))
        }
        None => Ok(counts),
    }
}

fn plan(args: &TuneTeamArgs) -> Plan {
    let usual = Plan::default();
    let chosen = |own: &[usize], others: Vec<usize>| if own.is_empty() { others } else { own.to_vec() };
    let sizes = if args.quick { QUICK_SIZES.to_vec() } else { usual.sizes };
    let weights = if args.quick { &[Weight::Plain][..] } else { &args.types[..] };
    let mut manners = Vec::new();
    for weight in weights {
        for pace in &args.modes {
            manners.push(match (weight, pace) {
                (Weight::Plain, Pace::Stream) => CallClass::Mine,
                (Weight::Plain, Pace::Strict) => CallClass::Strict,
                (Weight::Plain, Pace::Loose) => CallClass::Loose,
                (Weight::Heavy, Pace::Stream) => CallClass::HeavyMine,
                (Weight::Heavy, Pace::Strict) => CallClass::HeavyStrict,
                (Weight::Heavy, Pace::Loose) => CallClass::HeavyLoose,
            });
        }
    }
    manners.sort_unstable();
    manners.dedup();
    Plan {
        kinds: if args.ops.is_empty() { usual.kinds } else { args.ops.clone() },
        sizes: chosen(&args.bytes, sizes),
        manners,
        budget: Duration::from_secs_f64(if args.quick {
            args.budget.min(QUICK_SECONDS)
        } else {
            args.budget
        }),
        accept_noise: args.accept_noise,
    }
}

/// Reads the tables of this machine; warns about a file that exists and cannot be used.
fn read() -> Result<(std::path::PathBuf, Store)> {
    let (path, machine) = store::here().ok_or_else(|| {
        anyhow!("neither XDG_CACHE_HOME nor HOME is set, so there is no folder for the tables")
    })?;
    let (store, why) = Store::read(&path, &machine);
    if let Some(why) = why {
        diagnostics::warning(Volume::Normal, &format!("{} is ignored: {why}", path.display()));
    }
    Ok((path, store))
}

fn wanted(args: &TuneTeamArgs, ranks: u32) -> bool {
    args.ranks.is_empty() || args.ranks.contains(&ranks)
}

fn show(args: &TuneTeamArgs) -> Result<u8> {
    let (path, store) = read()?;
    let teams = store.keys().filter_map(|key| Some((key.to_owned(), store.get(key)?.clone())));
    let teams: Vec<TeamOf> = teams
        .filter(|(_, tuning)| wanted(args, tuning.ranks))
        .map(|(key, tuning)| TeamOf { key, of: TeamResult::Tuned(tuning) })
        .collect();
    let document = TuneTeamReport::new("kept", Some(&path), teams);
    print(&if args.json { document.json()? } else { page::kept(&document) })?;
    Ok(exit::DONE)
}

fn forget(args: &TuneTeamArgs) -> Result<u8> {
    let (path, mut store) = read()?;
    let keys: Vec<String> = store.keys().map(str::to_owned).collect();
    let mut forgotten = Vec::new();
    for key in keys {
        if store.get(&key).is_some_and(|tuning| wanted(args, tuning.ranks))
            && let Some(tuning) = store.remove(&key)
        {
            forgotten.push(TeamOf { key, of: TeamResult::Tuned(tuning) });
        }
    }
    let none = forgotten.is_empty();
    if !none {
        store.write(&path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let document = TuneTeamReport::new("forgotten", Some(&path), forgotten);
    print(&if args.json { document.json()? } else { page::forgotten(&document) })?;
    Ok(if none { exit::NO } else { exit::DONE })
}

fn list(args: &TuneTeamArgs) -> Result<u8> {
    let (plan, cell) = (plan(args), Options::new(2).cell);
    let teams = counts(args)?.into_iter().map(|ranks| {
        let crowded = crowded_here(ranks);
        let jobs = plan.jobs(cell, crowded);
        let cells = jobs.into_iter().map(|job| (job, job.candidates(cell, crowded))).collect();
        TeamOf { key: page::title(ranks, crowded), of: TeamResult::Planned { ranks, crowded, cells } }
    });
    let document = TuneTeamReport::new("planned", None, teams.collect());
    print(&if args.json { document.json()? } else { page::planned(&document) })?;
    Ok(exit::DONE)
}

fn measure(args: &TuneTeamArgs) -> Result<u8> {
    let (counts, mut plan) = (counts(args)?, plan(args));
    let cell = Options::new(2).cell;
    let jobs: Vec<usize> = counts.iter().map(|ranks| plan.jobs(cell, crowded_here(*ranks)).len()).collect();
    let all: usize = jobs.iter().sum();
    if all == 0 {
        return Err(anyhow!(
            "there is nothing to choose: calls of these operations and sizes have only one algorithm; --list shows the calls with a choice"
        ));
    }
    // An unwritable folder is reported before minutes are spent on measuring.
    let (path, _) = read()?;
    let interrupt = Interrupt::listen()?;
    if !args.accept_noise
        && let Some(share) = ranks::others(Duration::from_millis(200))
        && share > noise::NOISY
    {
        diagnostics::warning(
            Volume::Normal,
            &format!(
                "other programs use {:.0} % of this machine: disturbed cells are measured up to three times, then they keep the usual algorithm; wait for a \
                 quiet moment, or judge it nevertheless (--accept-noise)",
                share * 100.0
            ),
        );
    }
    let (begin, budget) = (Instant::now(), plan.budget);
    let bar = trimtab_front::progress::bar(all);
    let mut teams = Vec::new();
    let mut trouble = None;
    let mut kept = None;
    for (at, ranks) in counts.iter().enumerate() {
        // Each team gets an equal part of the remaining time.
        let left = budget.saturating_sub(begin.elapsed());
        plan.budget = left / u32::try_from(counts.len() - at).unwrap_or(1);
        bar.set_position(jobs[..at].iter().sum::<usize>() as u64);
        match ranks::measure(args, &plan, *ranks, &interrupt, &bar) {
            Ok((key, TeamFindings::Tuned(tuning))) => {
                if tuning.cells.iter().any(|cell| cell.judged) {
                    kept = Some(store::keep(&key, tuning.clone())?);
                }
                teams.push(TeamOf { key, of: TeamResult::Tuned(tuning) });
            }
            Ok((key, TeamFindings::Checked { crowded, cells, left })) => {
                teams.push(TeamOf { key, of: TeamResult::Checked { ranks: *ranks, crowded, cells, left } });
            }
            // The results of other teams are not lost.
            Err(error) => {
                trouble = Some(error.context(format!("measuring a team of {ranks} ranks failed")));
                break;
            }
        }
        if interrupt.came().is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    let what = if args.check { "checked" } else { "tuned" };
    let mut document = TuneTeamReport::new(what, kept.as_deref().or(args.check.then_some(&path)), teams);
    document.signal = interrupt.came();
    document.complete = trouble.is_none() && document.signal.is_none() && document.left() == 0;
    let verdict = args.check.then(|| page::verdict(&document, GOOD_SHARE_GOAL));
    document.verdict.clone_from(&verdict);
    print(&if args.json {
        document.json()?
    } else if args.check {
        page::checked(&document)
    } else {
        page::tuned(&document)
    })?;
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    if let Some(signal) = document.signal {
        return Ok(exit::by_signal(signal));
    }
    Ok(if verdict.is_some_and(|verdict| verdict.met == Some(false)) { exit::NO } else { exit::DONE })
}

/// Returns the name of an operation of the plan, for output.
fn named(kind: Kind) -> &'static str {
    kind.name()
}

/// Returns the cells that were not disturbed.
fn clear(cells: &[Checked]) -> impl Iterator<Item = &Checked> {
    cells.iter().filter(|cell| cell.judged)
}
