//! Advice about nested teams, given before they run.
//!
//! Each warning has a cause in the published measurements (nested STREAM and EPCC, IWOMP 2010): a
//! lone team with a `sub` strategy had half the bandwidth on two of three machines, and teams that
//! straddle memory domains lost most.

use super::map::Map;
use super::spec::Resolved;
use super::tree::Tree;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Single piece of advice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Advice {
    /// A single outer thread opens a team that stays in one memory domain, though there are others.
    LoneTeam {
        /// Number of the level, from 1.
        level: usize,
        /// Number of threads of the team.
        threads: u32,
        /// Number of memory domains without a thread of the team.
        idle: usize,
    },
    /// Teams are in more than one memory domain although each domain could contain one.
    Straddling {
        /// Number of the level, from 1.
        level: usize,
        /// Number of straddling teams.
        teams: usize,
        /// Number of all teams of the level.
        of: usize,
    },
    /// The outer threads do not divide evenly over the memory domains.
    Uneven {
        /// Number of outer threads.
        threads: u32,
        /// Number of memory domains.
        domains: usize,
    },
    /// There are more threads than cores.
    Oversubscribed {
        /// Number of threads of all innermost teams together.
        threads: u64,
        /// Number of cores.
        cores: usize,
        /// Largest number of threads on one core.
        most: usize,
    },
    /// There is a single CPU.
    OneCpu,
    /// There are more threads than a map can have.
    TooMany {
        /// Number of threads of all innermost teams together.
        threads: u64,
    },
    /// The program's runtime creates new threads for every inner team.
    ThreadsMadeAnew,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoneTeam { level, threads, idle } => write!(
                f,
                "level {level}: a lone team of {threads} stays in its master's memory domain and leaves {idle} of them idle; for bandwidth use scatter there"
            ),
            Self::Straddling { level, teams, of } => write!(
                f,
                "level {level}: {teams} of {of} teams straddle memory domains; fewer or smaller teams would each have one"
            ),
            Self::Uneven { threads, domains } => write!(
                f,
                "{threads} outer threads do not divide evenly over {domains} memory domains: some serve more threads than others"
            ),
            Self::Oversubscribed { threads, cores, most } => {
                write!(f, "{threads} threads on {cores} cores: up to {most} of them share one")
            }
            Self::OneCpu => f.write_str("there is a single CPU to use: every thread is placed on it"),
            Self::TooMany { threads } => {
                write!(f, "{threads} threads are more than a map can hold ({}): none is placed", super::THREADS_MAX)
            }
            Self::ThreadsMadeAnew => f.write_str(
                "GNU's OpenMP creates new threads for inner teams at every region (35 to 110 µs): inner regions shorter than that are faster with LLVM's",
            ),
        }
    }
}

/// Returns the advice about `nest` on `tree`.
pub fn advise(tree: &Tree, nest: &Resolved) -> Vec<Advice> {
    if tree.mask().len() == 1 {
        return if nest.threads() > 1 { vec![Advice::OneCpu] } else { Vec::new() };
    }
    let Some(map) = Map::new(tree, nest, &nest.sizes()) else {
        return vec![Advice::TooMany { threads: nest.threads() }];
    };
    let mut all = Vec::new();
    let domains: Vec<_> = tree.domains().collect();
    let domain_of = |core: u32| domains.iter().position(|(cores, _)| cores.contains(&core));
    let largest = domains.iter().map(|(cores, _)| cores.len()).max().unwrap_or(0);
    if let Some(&(outer, strategy)) = nest.levels().first() {
        let count = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        if strategy.is_scatter()
            && !strategy.is_sub()
            && outer > 1
            && outer % count != 0
            && count % outer != 0
        {
            all.push(Advice::Uneven { threads: outer, domains: domains.len() });
        }
    }
    let mut teams = 1;
    for (at, (places, &(size, strategy))) in map.levels().iter().zip(nest.levels()).enumerate() {
        let level = at + 1;
        let spans = |team: &[super::ThreadPlace]| {
            let mut seen: Vec<_> = team.iter().map(|place| domain_of(place.core)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        let team_size = size as usize;
        let used: Vec<usize> = places.chunks(team_size.max(1)).map(spans).collect();
        if teams == 1 && strategy.is_sub() && size > 1 && used == [1] && domains.len() > 1 {
            all.push(Advice::LoneTeam { level, threads: size, idle: domains.len() - 1 });
        }
        let wants_one = strategy != super::TeamStrategy::Scatter && (at > 0 || strategy.is_sub());
        let straddling = used.iter().filter(|&&spans| spans > 1).count();
        if wants_one && straddling > 0 && team_size <= largest {
            all.push(Advice::Straddling { level, teams: straddling, of: used.len() });
        }
        teams *= team_size;
    }
    if nest.threads() > tree.cores() as u64 {
        let mut uses = vec![0usize; tree.cores()];
        for place in map.levels().last().into_iter().flatten() {
            uses[place.core as usize] += 1;
        }
        let most = uses.into_iter().max().unwrap_or(0);
        all.push(Advice::Oversubscribed { threads: nest.threads(), cores: tree.cores(), most });
    }
    all
}
