//! Map of nested teams: a place for every thread of every level.
//!
//! Idea: process the levels from the outside in. A thread of a level has a *seat*: a core, one of
//! its CPUs, and the share of the machine that the thread and its own teams may use. Teams that
//! stay with their master, or are close together, divide their master's share, each team for
//! itself. Teams that scatter over the whole machine would overlap that way, so all teams of such a
//! level are placed together (`cells`).
//!
//! Cost: proportional to the number of threads times the depth of the tree.

use super::cells::together;
use super::divide::{Cut, divide, divide_run};
use super::spec::{Resolved, TeamStrategy};
use super::thread_place::ThreadPlace;
use super::tree::{CoreGroup, Tree};
use crate::set::CpuSet;

/// Maximum number of threads of a map, in all innermost teams together: eight for each possible
/// CPU.
pub const THREADS_MAX: u64 = 1 << 16;

/// Places of the threads of nested teams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    sizes: Vec<u32>,
    levels: Vec<Vec<ThreadPlace>>,
}

impl Map {
    /// Places teams of `sizes`, outermost first; fewer sizes than levels in `nest` give a map of
    /// the outer levels.
    ///
    /// A size may differ from the one in `nest`: teams are placed with their actual size, and leave
    /// the room that `nest` requires for the levels below the last of `sizes`. Returns `None` if
    /// there are no sizes, more sizes than levels, a size of 0, or more threads than
    /// [`THREADS_MAX`].
    pub fn new(tree: &Tree, nest: &Resolved, sizes: &[u32]) -> Option<Self> {
        Self::below(tree, nest, sizes, &[])
    }

    /// Does the same below outer levels that are already placed; their sizes are the first of
    /// `sizes`.
    pub(super) fn below(
        tree: &Tree,
        nest: &Resolved,
        sizes: &[u32],
        placed: &[Vec<ThreadPlace>],
    ) -> Option<Self> {
        let threads = sizes.iter().fold(1u64, |all, &size| all.saturating_mul(size.into()));
        if sizes.is_empty() || sizes.len() > nest.levels().len() || !(1..=THREADS_MAX).contains(&threads) {
            return None;
        }
        let all: Vec<u32> = (0..tree.len()).collect();
        let root = ThreadPlace { core: 0, cpu: *tree.cpus(0).first()?, share: all.clone() };
        let mut levels: Vec<Vec<ThreadPlace>> = placed.to_vec();
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
            levels.push(places_of(tree, shares, masters));
        }
        Some(Self { sizes: sizes.to_vec(), levels })
    }

    /// Creates a map of known places.
    pub(super) fn of(sizes: Vec<u32>, levels: Vec<Vec<ThreadPlace>>) -> Self {
        Self { sizes, levels }
    }

    /// Returns the team sizes, outermost first.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// Returns the places of each level, outermost first: the threads of team 0, then those of team
    /// 1, and so on.
    pub fn levels(&self) -> &[Vec<ThreadPlace>] {
        &self.levels
    }

    /// Returns the place of the thread with this `path`: the numbers of the threads that opened its
    /// team, outermost first, then its own number in the team.
    pub fn place(&self, path: &[u32]) -> Option<&ThreadPlace> {
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

    /// Returns all CPUs with a thread.
    pub fn cpus(&self) -> CpuSet {
        self.levels.iter().flatten().map(|place| place.cpu).collect()
    }
}

/// Returns the shares for one team, independently of other teams.
fn alone(
    tree: &Tree,
    master: &ThreadPlace,
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
    // The team is larger than its master's share was planned for: keep it close together, but not
    // all on the same cores.
    if strategy == TeamStrategy::Compact && share.len() < threads {
        let near = nearest(tree, master);
        let cut = Cut { threads, width: 1, apart: false, anchored: true };
        return divide_run(&near, cut);
    }
    let cores = if strategy.is_sub() { domain(tree, master, wanted) } else { share };
    divide(tree, cores, Cut { threads, width, apart, anchored: true })
}

/// Returns the part of a master's share in which its team stays: the smallest group that contains
/// enough of the share and the master's memory domain. The master is its first core, as in the
/// share.
fn domain<'a>(tree: &Tree, master: &'a ThreadPlace, wanted: usize) -> &'a [u32] {
    let memory = tree.domain(master.core);
    let inside = |group: &CoreGroup| {
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

/// Returns all cores by their distance from a master's share: the share, then the groups around the
/// master from the inside out.
fn nearest(tree: &Tree, master: &ThreadPlace) -> Vec<u32> {
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

/// Turns shares, by team and thread, into places: each thread on the first core of its share, on
/// the least used hardware thread of this core. Masters keep their places.
fn places_of(tree: &Tree, shares: Vec<Vec<Vec<u32>>>, masters: Option<&[ThreadPlace]>) -> Vec<ThreadPlace> {
    let mut uses = vec![0usize; tree.cores()];
    for master in masters.unwrap_or_default() {
        uses[master.core as usize] += 1;
    }
    let mut places = Vec::with_capacity(shares.iter().map(Vec::len).sum());
    for (team, shares) in shares.into_iter().enumerate() {
        let master = masters.and_then(|masters| masters.get(team));
        for (thread, share) in shares.into_iter().enumerate() {
            if let Some(&ThreadPlace { core, cpu, .. }) = master.filter(|_| thread == 0) {
                // If masters had to share cores, the cell may belong to another master.
                let share = if share.first() == Some(&core) { share } else { vec![core] };
                places.push(ThreadPlace { core, cpu, share });
                continue;
            }
            let core = share.first().copied().unwrap_or_default();
            let cpus = tree.cpus(core);
            let turn = uses[core as usize] % cpus.len().max(1);
            uses[core as usize] += 1;
            places.push(ThreadPlace { core, cpu: cpus.get(turn).copied().unwrap_or_default(), share });
        }
    }
    places
}
