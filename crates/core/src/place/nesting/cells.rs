//! Teams that scatter over everything, placed together.
//!
//! Unit: cells, each a core, or as many cores as one thread needs for the teams it opens. Problem: many teams want to be
//! far apart over the same machine, each from a master whose place is given, and none may sit on another while there is
//! room. Idea: team after team, thread after thread, down the tree: to the group where the own team has least for its
//! size, then where all teams have least. How full a cell may get is known before: with `t` threads on `c` cells, `t / c`,
//! rounded down for all and up for as many as the remainder says.
//!
//! Properties: no cell is used twice before all are used once, whatever the masters leave; a team meets its own only where
//! what is left leaves no choice. The last teams of a full machine take what is left, which may be one group short of best.

use super::divide::{Cut, divide};
use super::map::Place;
use super::tree::Tree;

/// Shares for all teams of a level that scatters over everything.
pub(super) fn together(tree: &Tree, masters: &[Place], threads: usize, width: usize) -> Vec<Vec<Vec<u32>>> {
    // Room for all threads of this level comes before room for the teams they open.
    let each = tree.cores() / masters.len().saturating_mul(threads).max(1);
    let all = masters.len() * threads;
    let mut cells = Cells::new(tree, masters, width.min(each).max(1), all);
    let mut seats: Vec<Vec<usize>> = masters.iter().map(|master| vec![cells.of(master.core)]).collect();
    for team in &seats {
        cells.sit(team[0]);
    }
    for (team, master) in seats.iter_mut().zip(masters) {
        cells.begin_team(team[0], master.core);
        while team.len() < threads {
            team.push(cells.next());
        }
    }
    let share = |cell: usize| cells.cells[cell].clone();
    seats.into_iter().map(|team| team.into_iter().map(share).collect()).collect()
}

/// What a level that scatters deals out: runs of cores, and how many threads are on them.
struct Cells<'a> {
    tree: &'a Tree,
    cells: Vec<Vec<u32>>,
    load: Vec<u32>,
    /// Threads of the team being placed on each cell, with the team's number: others' counts are stale.
    mates: Vec<(u32, u32)>,
    team: u32,
    /// The core of that team's master.
    master: u32,
    /// The cell that holds each core.
    of: Vec<usize>,
    /// For each group of the tree its cells, as far as they are in no group inside it.
    own: Vec<Vec<usize>>,
    groups: Vec<Count>,
    /// How many threads every cell gets at least, and at most but for masters.
    least: u32,
    most: u32,
    /// Threads still to be placed, and how many of those are needed for every cell to get its least.
    left: usize,
    needed: usize,
}

#[derive(Clone, Copy, Default)]
struct Count {
    cells: u64,
    /// Threads of all teams.
    all: u64,
    /// Threads of the team being placed.
    team: u64,
    /// Cells that have not got their least, and that have not got their most.
    wanting: u64,
    open: u64,
}

impl<'a> Cells<'a> {
    /// Cells of `width` cores within the shares of the masters, and of what no share has.
    fn new(tree: &'a Tree, masters: &[Place], width: usize, threads: usize) -> Self {
        let mut claimed = vec![false; tree.cores()];
        let mut cells: Vec<Vec<u32>> = Vec::new();
        for master in masters {
            // Masters on one core share it, and with it their cell.
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
            mates: vec![(0, 0); cells.len()],
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
    fn sit(&mut self, cell: usize) {
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

    /// Forgets the last team and begins one whose master sits in `cell`.
    fn begin_team(&mut self, cell: usize, master: u32) {
        self.master = master;
        for count in &mut self.groups {
            count.team = 0;
        }
        self.team += 1;
        self.join_team(cell);
    }

    /// Counts a thread in `cell` to the team being placed.
    fn join_team(&mut self, cell: usize) {
        self.mates[cell] = (self.team, self.mates_in(cell) + 1);
        for group in holding(self.tree, &self.cells[cell]) {
            self.groups[group].team += 1;
        }
    }

    fn mates_in(&self, cell: usize) -> u32 {
        let (team, mates) = self.mates[cell];
        if team == self.team { mates } else { 0 }
    }

    /// The best cell for one more thread of the team, taken.
    fn next(&mut self) -> usize {
        let mut group = 0;
        let cell = loop {
            let children = self.tree.groups()[group].children.iter().map(|&child| child as usize);
            // Who is left may be needed where there is less than the least.
            let limit = if self.left > self.needed { self.most } else { self.least };
            let free = |at: &usize| {
                let Count { wanting, open, .. } = self.groups[*at];
                if self.left > self.needed { open > 0 } else { wanting > 0 }
            };
            // Fewest of this team for its cells, then fewest of all; among equals the next one round from the master, so
            // that teams do not all begin with the same.
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
            // A cell of its own stands beside the groups as one of size 1.
            let own = own.min_by_key(|&cell| (self.mates_in(cell), self.load[cell], cell));
            match (best, own) {
                (Some(inner), None) => group = inner,
                (Some(inner), Some(_)) if self.groups[inner].team == 0 => group = inner,
                (_, Some(cell)) => break cell,
                // More masters on one cell than it should have had: whoever has least.
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
        self.sit(cell);
        self.join_team(cell);
        cell
    }
}

/// The positions of the groups that hold a run of cores, innermost first.
fn holding<'a>(tree: &'a Tree, cores: &'a [u32]) -> impl Iterator<Item = usize> + use<'a> {
    let (first, last) =
        (cores.first().copied().unwrap_or_default(), cores.last().copied().unwrap_or_default());
    tree.positions_around(first).filter(move |&at| tree.groups()[at].cores.contains(&last))
}
