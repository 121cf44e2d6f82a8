//! Nested teams as a list of threads, for files and other programs.

use super::{Advice, Teams, draw::path_of};
use crate::ids::OsCpu;
use serde::{Deserialize, Serialize};

/// Threads of every level, with the advice about them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The teams with every size resolved to a number: `4,scatter,2,subcompact`.
    pub teams: String,
    /// Threads of each level, outermost level first.
    pub levels: Vec<ListedLevel>,
    /// Warnings, as values.
    pub advice: Vec<Advice>,
}

/// Level of nested teams.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedLevel {
    /// Number of threads in each team.
    pub size: u32,
    /// Strategy of the level.
    pub strategy: String,
    /// Threads, team after team.
    pub threads: Vec<ListedThread>,
}

/// Thread of a nested team.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedThread {
    /// Numbers of the threads that opened its team, then its own number in the team: `2.0`.
    pub path: String,
    /// CPU of the thread.
    pub cpu: OsCpu,
}

impl Listing {
    /// Lists the map of teams as declared, if there is one.
    pub fn new(teams: &Teams) -> Self {
        let (map, nest) = (teams.declared(), teams.resolved());
        let levels = map.iter().flat_map(|map| {
            map.levels().iter().zip(nest.levels()).enumerate().map(|(at, (places, &(size, strategy)))| {
                ListedLevel {
                    size,
                    strategy: strategy.to_string(),
                    threads: places
                        .iter()
                        .enumerate()
                        .map(|(thread, place)| ListedThread {
                            path: path_of(thread, &map.sizes()[..=at]),
                            cpu: place.cpu,
                        })
                        .collect(),
                }
            })
        });
        Self { teams: nest.to_string(), levels: levels.collect(), advice: teams.advice() }
    }
}
