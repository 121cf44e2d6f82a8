//! Nested teams as a list of threads, for files and other programs.

use super::{Advice, Teams, draw::path_of};
use crate::ids::OsCpu;
use serde::{Deserialize, Serialize};

/// Every thread of every level, and what there is to know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The teams with every size a number: `4,scatter,2,subcompact`.
    pub teams: String,
    /// The threads of each level, outermost level first.
    pub levels: Vec<ListedLevel>,
    /// Warnings, as values.
    pub advice: Vec<Advice>,
}

/// One level.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedLevel {
    /// Threads in each team.
    pub size: u32,
    /// Where they go.
    pub strategy: String,
    /// Team after team.
    pub threads: Vec<ListedThread>,
}

/// One thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedThread {
    /// Its number in its team, behind those of the threads that opened it: `2.0`.
    pub path: String,
    /// Its CPU.
    pub cpu: OsCpu,
}

impl Listing {
    /// Lists the map of teams as they were declared, if there is one.
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
