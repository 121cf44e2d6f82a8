//! A place for every thread of every level.
//!
//! Idea: walk down the levels. Threads of one level are *seats*: a core, a CPU of it, and the share of the machine that
//! the seat and its own teams may use. Teams that keep to their master, or are close together, divide their master's
//! share, each team for itself. Teams that scatter over everything would meet there, so all teams of such a level are
//! placed together (`cells`).
//!
//! Cost: proportional to the threads times the depth of the tree.

use super::cells::together;
use super::divide::{Cut, divide, divide_run};
use super::spec::{Resolved, TeamStrategy};
use super::tree::{Group, Tree};
use crate::ids::OsCpu;
use crate::set::CpuSet;

/// The most threads a map may have, all innermost teams together. Eight for each CPU there can be.
pub const THREADS_MAX: u64 = 1 << 16;

/// Where the threads of nested teams go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    sizes: Vec<u32>,
    levels: Vec<Vec<Place>>,
}

/// Where one thread goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its core, as a position in the tree.
    pub core: u32,
    /// Its CPU.
    pub cpu: OsCpu,
    /// The cores that it and the teams it opens may use; ascending, its own first.
    pub share: Vec<u32>,
}

impl Map {
    /// Places teams of `sizes`, outermost first; fewer sizes than `nest` has levels make a map of the outer levels.
    ///
    /// A size may differ from the one in `nest`: teams are placed as large as they are, and leave the room that `nest`
    /// says for the levels below the last of `sizes`. `None` when there are no sizes, more than levels, a size of 0, or more
    /// threads than [`THREADS_MAX`].
    pub fn new(tree: &Tree, nest: &Resolved, sizes: &[u32]) -> Option<Self> {
        Self::below(tree, nest, sizes, &[])
    }

    /// The same, below outer levels that are placed already; their sizes are the first of `sizes`.
    pub(super) fn below(tree: &Tree, nest: &Resolved, sizes: &[u32], placed: &[Vec<Place>]) -> Option<Self> {
        let threads = sizes.iter().fold(1u64, |all, &size| all.saturating_mul(size.into()));
        if sizes.is_empty() || sizes.len() > nest.levels().len() || !(1..=THREADS_MAX).contains(&threads) {
            return None;
        }
        let all: Vec<u32> = (0..tree.len()).collect();
        let root = Place { core: 0, cpu: *tree.cpus(0).first()?, share: all.clone() };
        let mut levels: Vec<Vec<Place>> = placed.to_vec();
        for (at, (&size, &(_, strategy))) in sizes.iter().zip(nest.levels()).enumerate().skip(placed.len()) {
            let width = usize::try_from(nest.below(at)).unwrap_or(usize::MAX).min(all.len());
            let threads = size as usize;
            let masters = levels.last().map_or(std::slice::from_ref(&root), Vec::as_slice);
            let outermost = at == 0;
            let shares: Vec<Vec<Vec<u32>>> = if strategy == TeamStrategy::Scatter && !outermost {
                together(tree, masters, threads, width)
            } else {
                masters
                    .iter()
                    .map(|master| alone(tree, master, threads, width, strategy, outermost))
                    .collect()
            };
            let masters = (!outermost).then_some(masters);
            levels.push(seat(tree, shares, masters));
        }
        Some(Self { sizes: sizes.to_vec(), levels })
    }

    /// A map of places that were found before.
    pub(super) fn of(sizes: Vec<u32>, levels: Vec<Vec<Place>>) -> Self {
        Self { sizes, levels }
    }

    /// The team sizes, outermost first.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// The places of each level, outermost first: the threads of team 0, then those of team 1, and so on.
    pub fn levels(&self) -> &[Vec<Place>] {
        &self.levels
    }

    /// The place of the thread at the end of `path`: its number in its team, behind those of the threads that opened
    /// its team, outermost first.
    pub fn place(&self, path: &[u32]) -> Option<&Place> {
        let level = self.levels.get(path.len().checked_sub(1)?)?;
        let mut at = 0usize;
        for (&index, &size) in path.iter().zip(&self.sizes) {
            if index >= size {
                return None;
            }
            at = at * size as usize + index as usize;
        }
        level.get(at)
    }

    /// Every CPU that a thread is placed on.
    pub fn cpus(&self) -> CpuSet {
        self.levels.iter().flatten().map(|place| place.cpu).collect()
    }
}

impl Place {
    /// Where threads go that this one opens a team for which no level is listed: its share, or, rather than stack them
    /// on one core, its memory domain.
    pub fn room(&self, tree: &Tree) -> CpuSet {
        let cpus = |core: u32| tree.cpus(core).iter().copied();
        match self.share.as_slice() {
            [_, _, ..] => self.share.iter().flat_map(|&core| cpus(core)).collect(),
            _ => tree.domain(self.core).flat_map(cpus).collect(),
        }
    }
}

/// Shares for one team that keeps to itself.
fn alone(
    tree: &Tree,
    master: &Place,
    threads: usize,
    width: usize,
    strategy: TeamStrategy,
    outermost: bool,
) -> Vec<Vec<u32>> {
    let wanted = threads.saturating_mul(width);
    let share = &master.share;
    let apart = strategy.is_scatter();
    if outermost && !strategy.is_sub() {
        return divide(tree, share, Cut { threads, width, apart, anchored: false });
    }
    // A team larger than its master's share was meant for: close together, but not all on top of each other.
    if strategy == TeamStrategy::Compact && share.len() < threads {
        let near = nearest(tree, master);
        let cut = Cut { threads, width: 1, apart: false, anchored: true };
        return divide_run(&near, cut);
    }
    let cores = if strategy.is_sub() { domain(tree, master, wanted) } else { share };
    divide(tree, cores, Cut { threads, width, apart, anchored: true })
}

/// The part of a master's share that its team keeps to: the smallest group that holds enough of the share and the
/// master's memory domain. The master is its first core, as it is of the share.
fn domain<'a>(tree: &Tree, master: &'a Place, wanted: usize) -> &'a [u32] {
    let memory = tree.domain(master.core);
    let inside = |group: &Group| {
        let from = master.share.partition_point(|&core| core < group.cores.start);
        let to = master.share.partition_point(|&core| core < group.cores.end);
        &master.share[from..to]
    };
    tree.around(master.core)
        .filter(|group| group.cores.start <= memory.start && memory.end <= group.cores.end)
        .map(inside)
        .find(|cores| cores.len() >= wanted)
        .unwrap_or(&master.share)
}

/// All cores by their distance from a master's share: the share, then what is around the master, group by group.
fn nearest(tree: &Tree, master: &Place) -> Vec<u32> {
    let mut taken = vec![false; tree.cores()];
    let mut near = Vec::with_capacity(tree.cores());
    let groups = tree.around(master.core).map(|group| group.cores.clone());
    let shells = std::iter::once(master.share.clone()).chain(groups.map(Iterator::collect));
    for core in shells.flatten() {
        if !std::mem::replace(&mut taken[core as usize], true) {
            near.push(core);
        }
    }
    near
}

/// Turns shares, by team and thread, into places: each thread on the first core of its share, on the hardware thread that
/// is used least there. Masters keep what they have.
fn seat(tree: &Tree, shares: Vec<Vec<Vec<u32>>>, masters: Option<&[Place]>) -> Vec<Place> {
    let mut uses = vec![0usize; tree.cores()];
    for master in masters.unwrap_or_default() {
        uses[master.core as usize] += 1;
    }
    let mut places = Vec::with_capacity(shares.iter().map(Vec::len).sum());
    for (team, shares) in shares.into_iter().enumerate() {
        let master = masters.and_then(|masters| masters.get(team));
        for (thread, share) in shares.into_iter().enumerate() {
            if let Some(&Place { core, cpu, .. }) = master.filter(|_| thread == 0) {
                // Where masters had to share cores, the cell may be another's.
                let share = if share.first() == Some(&core) { share } else { vec![core] };
                places.push(Place { core, cpu, share });
                continue;
            }
            let core = share.first().copied().unwrap_or_default();
            let cpus = tree.cpus(core);
            let turn = uses[core as usize] % cpus.len().max(1);
            uses[core as usize] += 1;
            places.push(Place { core, cpu: cpus.get(turn).copied().unwrap_or_default(), share });
        }
    }
    places
}
