//! Common placement of teams that scatter over the whole machine.
//!
//! Unit: cells; each is a core, or the number of cores that one thread needs for the teams it
//! opens. Problem: many teams should be spread over the same machine, each from a master with a
//! given place, and no thread may share a cell with another while there is room. Idea: place team
//! after team, thread after thread, by descending the tree: to the group in which the own team has
//! the fewest threads for the group's size, then to the one in which all teams have the fewest. The
//! limits of a cell are known in advance: with `t` threads on `c` cells, `t / c`, rounded down for
//! all cells and rounded up for as many cells as the remainder.
//!
//! Properties: No cell is used twice before all are used once, for any positions of the masters. A
//! team shares a cell with its own threads only if the remaining cells leave no choice. The last
//! teams of a full machine take the remaining cells, which may be one group short of optimal.

use super::divide::{Cut, divide};
use super::thread_place::ThreadPlace;
use super::tree::Tree;

/// Returns the shares for all teams of a level that scatters over the whole machine.
pub(super) fn together(
    tree: &Tree,
    masters: &[ThreadPlace],
    threads: usize,
    width: usize,
) -> Vec<Vec<Vec<u32>>> {
    // Room for all threads of this level has priority over room for the teams they open.
    let each = tree.cores() / masters.len().saturating_mul(threads).max(1);
    let all = masters.len() * threads;
    let mut cells = Cells::new(tree, masters, width.min(each).max(1), all);
    let mut seat_cells: Vec<Vec<usize>> = masters.iter().map(|master| vec![cells.of(master.core)]).collect();
    for team in &seat_cells {
        cells.add_thread(team[0]);
    }
    for (team, master) in seat_cells.iter_mut().zip(masters) {
        cells.begin_team(team[0], master.core);
        while team.len() < threads {
            team.push(cells.next());
        }
    }
    let share = |cell: usize| cells.cells[cell].clone();
    seat_cells.into_iter().map(|team| team.into_iter().map(share).collect()).collect()
}

/// Cells of a level that scatters: runs of cores, and the number of threads on them.
struct Cells<'a> {
    tree: &'a Tree,
    cells: Vec<Vec<u32>>,
    load: Vec<u32>,
    /// Number of threads of the current team on each cell, with the team's number; counts with
    /// another team's number are stale.
    teammates: Vec<(u32, u32)>,
    team: u32,
    /// Core of the current team's master.
    master: u32,
    /// Cell of each core.
    of: Vec<usize>,
    /// Cells of each group of the tree that are in no inner group.
    own: Vec<Vec<usize>>,
    groups: Vec<Count>,
    /// Minimum number of threads of every cell, and the maximum except for masters.
    least: u32,
    most: u32,
    /// Number of threads still to be placed, and the number of those needed for every cell to reach
    /// its minimum.
    left: usize,
    needed: usize,
}

#[derive(Clone, Copy, Default)]
struct Count {
    cells: u64,
    /// Number of threads of all teams.
    all: u64,
    /// Number of threads of the current team.
    team: u64,
    /// Number of cells below their minimum, and of cells below their maximum.
    wanting: u64,
    open: u64,
}

impl<'a> Cells<'a> {
    /// Creates cells of `width` cores within the shares of the masters, and from the cores outside
    /// all shares.
    fn new(tree: &'a Tree, masters: &[ThreadPlace], width: usize, threads: usize) -> Self {
        let mut claimed = vec![false; tree.cores()];
        let mut cells: Vec<Vec<u32>> = Vec::new();
        for master in masters {
            // Masters on one core share the core, and therefore its cell.
            if claimed[master.core as usize] {
                continue;
            }
            let free: Vec<u32> =
                master.share.iter().copied().filter(|&core| !claimed[core as usize]).collect();
            for &core in &free {
                claimed[core as usize] = true;
            }
            let threads = (free.len() / width).max(1);
            cells.extend(divide(tree, &free, Cut { threads, width, apart: true, anchored: true }));
        }
        let rest: Vec<u32> = (0..tree.len()).filter(|&core| !claimed[core as usize]).collect();
        if rest.len() >= width {
            let threads = rest.len() / width;
            cells.extend(divide(tree, &rest, Cut { threads, width, apart: true, anchored: true }));
        }
        cells.sort_unstable();
        let mut of = vec![0; tree.cores()];
        let mut own = vec![Vec::new(); tree.groups().len()];
        let mut groups = vec![Count::default(); tree.groups().len()];
        for (at, cell) in cells.iter().enumerate() {
            for &core in cell {
                of[core as usize] = at;
            }
            if let Some(innermost) = holding(tree, cell).next() {
                own[innermost].push(at);
            }
            for group in holding(tree, cell) {
                groups[group].cells += 1;
            }
        }
        let least = u32::try_from(threads / cells.len().max(1)).unwrap_or(u32::MAX);
        let most = u32::try_from(threads.div_ceil(cells.len().max(1))).unwrap_or(u32::MAX);
        for count in &mut groups {
            (count.wanting, count.open) = (if least > 0 { count.cells } else { 0 }, count.cells);
        }
        Self {
            tree,
            load: vec![0; cells.len()],
            teammates: vec![(0, 0); cells.len()],
            team: 0,
            master: 0,
            of,
            own,
            groups,
            least,
            most,
            left: threads,
            needed: least as usize * cells.len(),
            cells,
        }
    }

    fn of(&self, core: u32) -> usize {
        self.of[core as usize]
    }

    /// Puts a thread into a cell.
    fn add_thread(&mut self, cell: usize) {
        self.load[cell] += 1;
        self.left = self.left.saturating_sub(1);
        let load = self.load[cell];
        if load <= self.least {
            self.needed -= 1;
        }
        for group in holding(self.tree, &self.cells[cell]) {
            let count = &mut self.groups[group];
            count.all += 1;
            count.wanting -= u64::from(load == self.least);
            count.open -= u64::from(load == self.most);
        }
    }

    /// Drops the last team and begins one with its master in `cell`.
    fn begin_team(&mut self, cell: usize, master: u32) {
        self.master = master;
        for count in &mut self.groups {
            count.team = 0;
        }
        self.team += 1;
        self.join_team(cell);
    }

    /// Counts a thread in `cell` as a member of the current team.
    fn join_team(&mut self, cell: usize) {
        self.teammates[cell] = (self.team, self.teammates_in(cell) + 1);
        for group in holding(self.tree, &self.cells[cell]) {
            self.groups[group].team += 1;
        }
    }

    fn teammates_in(&self, cell: usize) -> u32 {
        let (team, teammates) = self.teammates[cell];
        if team == self.team { teammates } else { 0 }
    }

    /// Takes the best cell for one more thread of the team and returns it.
    fn next(&mut self) -> usize {
        let mut group = 0;
        let cell = loop {
            let children = self.tree.groups()[group].children.iter().map(|&child| child as usize);
            // The remaining threads may all be needed for cells below their minimum.
            let limit = if self.left > self.needed { self.most } else { self.least };
            let free = |at: &usize| {
                let Count { wanting, open, .. } = self.groups[*at];
                if self.left > self.needed { open > 0 } else { wanting > 0 }
            };
            // Fewest threads of this team relative to the cells, then fewest of all teams; among
            // equals the next one in turn from the master, so that teams do not all begin with the
            // same group.
            let count = children.len().max(1);
            let from = children.clone().position(|at| self.tree.groups()[at].cores.contains(&self.master));
            let from = from.unwrap_or(self.team as usize % count);
            let round = |place: usize| if place < from { place + count } else { place };
            let best = children.enumerate().filter(|(_, at)| free(at)).min_by(|&(one, a), &(other, b)| {
                let (a, b) = (&self.groups[a], &self.groups[b]);
                let fuller = |a_sits: u64, b_sits: u64| (a_sits * b.cells).cmp(&(b_sits * a.cells));
                let order = fuller(a.team, b.team).then_with(|| fuller(a.all, b.all));
                order.then_with(|| round(one).cmp(&round(other)))
            });
            let best = best.map(|(_, at)| at);
            let own = self.own[group].iter().copied().filter(|&cell| self.load[cell] < limit);
            // A cell outside the inner groups counts like a group of size 1.
            let own = own.min_by_key(|&cell| (self.teammates_in(cell), self.load[cell], cell));
            match (best, own) {
                (Some(inner), None) => group = inner,
                (Some(inner), Some(_)) if self.groups[inner].team == 0 => group = inner,
                (_, Some(cell)) => break cell,
                // One cell has more masters than its maximum: take the cell with the fewest
                // threads.
                (None, None) => {
                    break self
                        .load
                        .iter()
                        .enumerate()
                        .min_by_key(|(_, load)| **load)
                        .map_or(0, |(at, _)| at);
                }
            }
        };
        self.add_thread(cell);
        self.join_team(cell);
        cell
    }
}

/// Returns the positions of the groups that contain a run of cores, innermost first.
fn holding<'a>(tree: &'a Tree, cores: &'a [u32]) -> impl Iterator<Item = usize> + use<'a> {
    let (first, last) =
        (cores.first().copied().unwrap_or_default(), cores.last().copied().unwrap_or_default());
    tree.positions_around(first).filter(move |&at| tree.groups()[at].cores.contains(&last))
}
