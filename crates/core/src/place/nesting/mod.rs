//! Nested teams: `4,scatter,2,subcompact` + machine -> a place for every thread of every level.
//!
//! Unit: cores. Problem: a program opens teams inside teams; OpenMP's own places cut a list of numbers into ranges, so
//! that teams straddle sockets, inner teams land on each other, and two runtimes disagree. Idea (Schmidl, Terboven,
//! an Mey, Bücker, IWOMP 2010): say for each level how many threads a team has and whether they want to be close or
//! far apart, and let the tree of the machine do the rest. Each thread is given a *share*: the cores that it and the
//! teams it will open may use. A team divides the share of the thread that opened it.
//!
//! | strategy | a team's threads are |
//! |---|---|
//! | `compact` | close together: in the smallest part of the machine that holds them and their own teams |
//! | `scatter` | far apart over everything: as many memory domains, then caches, as possible |
//! | `subcompact` | close together next to their master |
//! | `subscatter` | far apart inside the memory domain of their master |
//!
//! Properties: thread 0 of an inner team keeps its core; no core is used twice before all that the strategy may use are
//! used once; a sub team stays in its master's share, and in one memory domain where that has enough cores; places lie in
//! the mask; equal input gives equal output; hardware threads of one core are the last resort. On uniform machines with
//! a team or more for each memory domain, `Y,scatter,Z,subscatter` is what SHEMAT-Suite computes by hand:
//! core `o * (C / Y) + i * (C / Y) / Z`. (With fewer teams than domains that formula spreads a team over several; here
//! it stays with its master's memory, as in the published measurements.)
//!
//! `spec` parses, `tree` is the machine as this sees it (and as the guest library is told of it), `divide` cuts shares,
//! `map` walks the levels (`cells` where all teams meet), `narrow` says what cores that takes,
//! `teams` keeps the map when a plan is narrowed to them, `advice` warns, `draw` and `listing` show.

mod advice;
mod cells;
mod divide;
mod draw;
mod listing;
mod map;
mod narrow;
mod spec;
mod teams;
mod tree;

pub use advice::{Advice, advise};
pub use draw::draw;
pub use listing::{ListedLevel, ListedThread, Listing};
pub use map::{Map, Place, THREADS_MAX};
pub use narrow::{Narrowed, narrow};
pub use spec::{LEVELS_MAX, Level, Nest, NestError, Resolved, SIZE_MAX, TeamSize, TeamStrategy};
pub use teams::Teams;
pub use tree::{Tree, TreeError};

#[cfg(test)]
mod tests;
