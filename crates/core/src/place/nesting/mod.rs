//! Nested teams: `4,scatter,2,subcompact` + machine -> a place for every thread of every level.
//!
//! Unit: cores. Problem: a program opens teams inside teams. OpenMP's own places cut a list of
//! numbers into ranges, so that teams straddle sockets, inner teams overlap, and two runtimes
//! disagree. Idea (Schmidl, Terboven, an Mey, Bücker, IWOMP 2010): the user gives for each level
//! the number of threads of a team and whether they should be close or far apart, and the tree of
//! the machine determines the rest. Each thread is given a *share*: the cores that it and the teams
//! it will open may use. A team divides the share of the thread that opened it.
//!
//! | strategy | a team's threads are |
//! |---|---|
//! | `compact` | close together: in the smallest part that holds them and their own teams |
//! | `scatter` | far apart over everything: as many memory domains, then caches, as possible |
//! | `subcompact` | close together next to their master |
//! | `subscatter` | far apart inside the memory domain of their master |
//!
//! Properties: Thread 0 of an inner team keeps its core. No core is used twice before all cores
//! available to the strategy are used once. A sub team stays in its master's share, and in one
//! memory domain if the domain has enough cores. Places are inside the mask. Equal input gives
//! equal output. Hardware threads of one core are the last resort. On uniform machines with at
//! least one team for each memory domain, `Y,scatter,Z,subscatter` gives the cores that
//! SHEMAT-Suite computes by hand: core `o * (C / Y) + i * (C / Y) / Z`. (With fewer teams than
//! domains that formula spreads a team over several domains; here it stays with its master's
//! memory, as in the published measurements.)
//!
//! `spec` parses; `tree` is the machine in the form needed here (and passed to the preload
//! library); `divide` cuts shares; `map` processes the levels (`cells` where all teams share the
//! machine); `narrow` determines the cores needed; `teams` keeps the map when a plan is narrowed to
//! them; `advice` warns; `draw` and `listing` show.

mod advice;
mod cells;
mod divide;
mod draw;
mod listing;
mod map;
mod narrow;
mod spec;
mod teams;
mod thread_place;
mod tree;

pub use advice::{Advice, advise};
pub use draw::draw;
pub use listing::{ListedLevel, ListedThread, Listing};
pub use map::{Map, THREADS_MAX};
pub use narrow::{Narrowed, narrow};
pub use spec::{LEVELS_MAX, Nest, NestError, Resolved, SIZE_MAX, TeamLevel, TeamSize, TeamStrategy};
pub use teams::Teams;
pub use thread_place::ThreadPlace;
pub use tree::{Tree, TreeError};

#[cfg(test)]
mod tests;
