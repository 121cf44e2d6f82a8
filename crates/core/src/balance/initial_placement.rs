//! Initial placement: the choice of a CPU for each thread that has none.
//!
//! Unit: load of a CPU after one more thread, relative to a full-speed CPU.
//!
//! Problem: threads come singly and in thousands, on machines with faster and slower cores, with
//! CPUs that other programs use, and with threads that may use only some CPUs.
//!
//! Idea: round robin means "always the CPU that gives most". Ties go to the CPU with the emptiest
//! core, then to the CPU nearest to the thread. Ordered sets per cache, node and machine answer
//! this in logarithmic time.
//!
//! Properties: on equal empty CPUs, the numbers of threads differ by at most one. Cores are filled
//! before their second hardware threads. A thread that is already on one of the best CPUs stays.
//! Equal inputs give equal placements.

use super::cpu_table::{CpuIndex, CpuTable, NodeIndex};
use super::share_model::ShareModel;
use super::thread_state::Binding;
use super::thread_table::ThreadTable;
use super::{Decision, Reason};
use crate::ids::{Id, ProgramId};
use crate::set::CpuSet;
use std::collections::BTreeSet;

/// Rank of a CPU for one more thread, lower is better: the load after it (in 1/1,024 of a
/// full-speed CPU), our threads on the same core, and the CPU.
type CpuRank = (u64, u32, CpuIndex);

/// Largest set of CPUs that is searched one by one.
const SCANNED_CPUS_MAX: usize = 16;

/// CPUs ordered by rank.
#[derive(Clone, Debug)]
pub(super) struct CpuRanking<'a> {
    cpu_table: &'a CpuTable,
    ours: Vec<u32>,
    foreign: Vec<f64>,
    all: BTreeSet<CpuRank>,
    nodes: Vec<BTreeSet<CpuRank>>,
    caches: Vec<BTreeSet<CpuRank>>,
}

impl<'a> CpuRanking<'a> {
    /// Creates the order from the current load of each CPU: the number of our threads, and of
    /// others (fractions for programs that do not always run).
    pub(super) fn new(cpu_table: &'a CpuTable, ours: Vec<u32>, foreign: Vec<f64>) -> Self {
        let mut ranking = Self {
            cpu_table,
            ours,
            foreign,
            all: BTreeSet::new(),
            nodes: vec![BTreeSet::new(); cpu_table.nodes()],
            caches: vec![BTreeSet::new(); cpu_table.llcs()],
        };
        for cpu in cpu_table.open() {
            ranking.put(cpu);
        }
        ranking
    }

    fn key(&self, cpu: CpuIndex) -> CpuRank {
        let after = 1.0 + f64::from(self.ours[cpu.index()]) + self.foreign[cpu.index()];
        let load = (1024.0 * after / self.cpu_table.entry(cpu).weight).round() as u64;
        (load, self.cpu_table.siblings(cpu).map(|cpu| self.ours[cpu.index()]).sum(), cpu)
    }

    fn put(&mut self, cpu: CpuIndex) {
        let (key, entry) = (self.key(cpu), self.cpu_table.entry(cpu));
        self.all.insert(key);
        self.nodes[entry.node.index()].insert(key);
        self.caches[entry.llc.index()].insert(key);
    }

    fn pull(&mut self, cpu: CpuIndex) {
        let (key, entry) = (self.key(cpu), self.cpu_table.entry(cpu));
        self.all.remove(&key);
        self.nodes[entry.node.index()].remove(&key);
        self.caches[entry.llc.index()].remove(&key);
    }

    /// Changes the number of our threads on a CPU.
    fn change(&mut self, cpu: CpuIndex, by: i32) {
        let cpus: Vec<CpuIndex> =
            self.cpu_table.siblings(cpu).filter(|&cpu| self.cpu_table.is_open(cpu)).collect();
        for &cpu in &cpus {
            self.pull(cpu);
        }
        let slot = &mut self.ours[cpu.index()];
        *slot = slot.saturating_add_signed(by);
        for &cpu in &cpus {
            self.put(cpu);
        }
    }

    /// Takes a CPU of `room` for a thread that was last on `from`; `None` if no CPU of `room` may
    /// be used. A thread that `stays` does not leave its memory node while a CPU there may be used.
    /// The thread counts on its CPU from now on.
    pub(super) fn take(&mut self, room: &CpuSet, from: Option<CpuIndex>, stays: bool) -> Option<CpuIndex> {
        let node = from.filter(|_| stays).map(|from| self.cpu_table.entry(from).node.index());
        let cpu = node.and_then(|node| self.best(&self.nodes[node], room, from));
        let cpu = cpu.or_else(|| self.best(&self.all, room, from))?;
        self.change(cpu, 1);
        Some(cpu)
    }

    /// Returns the best of some CPUs.
    fn best(&self, cpus: &BTreeSet<CpuRank>, room: &CpuSet, from: Option<CpuIndex>) -> Option<CpuIndex> {
        let open = |key: &&CpuRank| room.contains(self.cpu_table.entry(key.2).os);
        let best = if room.len() <= SCANNED_CPUS_MAX {
            let open = room
                .iter()
                .filter_map(|os| self.cpu_table.find(os))
                .filter(|&cpu| self.cpu_table.is_open(cpu));
            open.map(|cpu| self.key(cpu)).filter(|key| cpus.contains(key)).min()
        } else {
            cpus.iter().find(open).copied()
        }?;
        let near = from.and_then(|from| {
            let entry = self.cpu_table.entry(from);
            let same = |key: &&CpuRank| (key.0, key.1) == (best.0, best.1) && open(key);
            let stays = (self.cpu_table.is_open(from)).then(|| self.key(from));
            stays
                .filter(|key| same(&key))
                .or_else(|| self.caches[entry.llc.index()].first().filter(same).copied())
                .or_else(|| self.nodes[entry.node.index()].first().filter(same).copied())
        });
        Some(near.unwrap_or(best).2)
    }
}

/// Returns the threads that may be placed and were not placed yet, without the `initial` threads,
/// which stay free. A thread that came after the first sample is placed once it was read: it may
/// set a mask of its own when it starts, and that mask would not be recognised if it were the one
/// that it was given before.
pub(super) fn newcomers(
    table: &ThreadTable,
    initial: &[usize],
    sleeps: impl Fn(ProgramId) -> bool,
) -> Vec<usize> {
    let new = |i: &usize| {
        let thread = &table.threads[*i];
        let stays = initial.binary_search(i).is_ok();
        let open = thread.free() && !table.room(*i).is_empty();
        !thread.placed && thread.settled() && !stays && open && !sleeps(thread.program)
    };
    (0..table.threads.len()).filter(new).collect()
}

/// Gives `initial` threads that are held on a CPU their own masks back: at once if they compute
/// alone, after some time if they are light.
pub(super) fn release_initial(table: &mut ThreadTable, initial: &[usize]) -> Vec<Decision> {
    let release = |&&i: &&usize| {
        let thread = &table.threads[i];
        let held = thread.binding == Binding::Held && thread.free();
        held && (thread.active() || thread.initial_light_for_long())
    };
    let held: Vec<usize> = initial.iter().filter(release).copied().collect();
    held.into_iter().map(|i| table.release_light(i)).collect()
}

/// Assigns CPUs to newcomers and to threads that lost their CPU, and counts them there. With
/// `stay`, newcomers do not leave their memory node, because they already have memory there.
pub(super) fn assign_cpus(
    table: &mut ThreadTable,
    shares: &mut ShareModel,
    new: &[usize],
    lost: &[usize],
    stay: bool,
) -> Vec<Decision> {
    if new.is_empty() && lost.is_empty() {
        return Vec::new();
    }
    // A thread that lost its CPU may be a newcomer as well.
    let new = new.iter().copied().filter(|i| lost.binary_search(i).is_err());
    let all: Vec<(usize, bool)> = lost.iter().map(|&i| (i, true)).chain(new.map(|i| (i, false))).collect();
    let (mut ours, foreign) = shares.loads();
    for &(i, _) in &all {
        // The thread's present CPU loses the load that its new CPU gets.
        let thread = &table.threads[i];
        if let Some(cpu) = thread.cpu.filter(|_| thread.active()) {
            ours[cpu.index()] = ours[cpu.index()].saturating_sub(1);
        }
    }
    let cpu_table = table.cpu_table.clone();
    let open: BTreeSet<NodeIndex> = cpu_table.open().map(|cpu| cpu_table.entry(cpu).node).collect();
    let mut ranking = CpuRanking::new(&cpu_table, ours, foreign);
    let mut decisions = Vec::new();
    for (i, gone) in all {
        let from = table.threads[i].cpu;
        let reason = match from.filter(|_| gone) {
            Some(cpu) => Reason::Gone(cpu_table.entry(cpu).os),
            None => Reason::Start,
        };
        table.threads[i].placed = true;
        decisions.push(match ranking.take(table.room(i), from, stay && !gone) {
            // The same CPU again.
            Some(cpu) if from == Some(cpu) && table.threads[i].binding == Binding::Held && !gone => {
                continue;
            }
            Some(cpu) => {
                let shut = table.shut(i, &open);
                let thread = &mut table.threads[i];
                // If a node of the thread's home has no usable CPU now, the thread may belong to
                // that node: it was first seen too late for a decision. A thread that returns to
                // its home node is not displaced any more.
                let was = from.map(|from| cpu_table.entry(from).node).filter(|_| gone);
                thread.displaced =
                    thread.displaced.or(was.or(shut)).filter(|home| *home != cpu_table.entry(cpu).node);
                match from {
                    Some(from) => shares.moved(from, cpu),
                    None => shares.came(cpu),
                }
                table.confine(i, cpu, reason)
            }
            // No CPU of its home is left: the kernel decides where the thread runs.
            None => table.release(i, reason),
        });
    }
    decisions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OsCpu;
    use crate::topology::parse_synthetic;

    fn placed(cpu_table: &CpuTable, foreign: Vec<f64>, threads: &[(CpuSet, Option<u32>)]) -> Vec<u32> {
        let mut ranking = CpuRanking::new(cpu_table, vec![0; cpu_table.len()], foreign);
        let cpu = |cpu: Option<u32>| cpu.and_then(|cpu| cpu_table.find(OsCpu(cpu)));
        threads
            .iter()
            .map(|(room, from)| cpu_table.entry(ranking.take(room, cpu(*from), false).unwrap()).os.0)
            .collect()
    }

    #[test]
    fn cores_come_before_their_second_threads() {
        let cpu_table = CpuTable::new(&parse_synthetic("core:2 pu:2").unwrap());
        let all = cpu_table.usable().clone();
        let cpus = placed(&cpu_table, vec![0.0; 4], &vec![(all, None); 6]);
        assert_eq!(cpus, [0, 2, 1, 3, 0, 2]);
    }

    #[test]
    fn a_well_placed_thread_stays_and_others_go_near() {
        let cpu_table = CpuTable::new(&parse_synthetic("numa:2 l3:2 core:2 pu:1").unwrap());
        let all = cpu_table.usable().clone();
        let threads =
            [(all.clone(), Some(5)), (all.clone(), Some(5)), (all.clone(), Some(5)), (all, Some(1))];
        assert_eq!(placed(&cpu_table, vec![0.0; 8], &threads), [5, 4, 6, 1]);
    }

    #[test]
    fn a_thread_that_stays_keeps_its_node_while_a_cpu_is_open() {
        let cpu_table = CpuTable::new(&parse_synthetic("numa:2 core:2 pu:1").unwrap());
        let all = cpu_table.usable().clone();
        let mut ranking = CpuRanking::new(&cpu_table, vec![0; 4], vec![0.0; 4]);
        let node = |cpu: Option<CpuIndex>| cpu_table.entry(cpu.unwrap()).os.0 / 2;
        let from = cpu_table.find(OsCpu(2));
        let nodes: Vec<u32> = (0..4).map(|_| node(ranking.take(&all, from, true))).collect();
        assert_eq!(nodes, [1; 4]);
        assert_eq!(node(ranking.take(&"0-1".parse().unwrap(), from, true)), 0);
    }

    #[test]
    fn foreign_load_and_homes_are_respected() {
        let cpu_table = CpuTable::new(&parse_synthetic("core:3 pu:1").unwrap());
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let cpus = placed(
            &cpu_table,
            vec![1.0, 0.0, 0.0],
            &[(set("0-2"), None), (set("0-2"), None), (set("0-2"), None), (set("0"), None)],
        );
        assert_eq!(cpus, [1, 2, 0, 0]);
        let mut ranking = CpuRanking::new(&cpu_table, vec![0; 3], vec![0.0; 3]);
        assert_eq!(ranking.take(&set("7"), None, false), None);
    }
}
