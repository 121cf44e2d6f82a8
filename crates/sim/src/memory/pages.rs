//! Pages of threads: their nodes, and the cost of moving them.

use super::{Memory, PAGE_NS, Task};
use crate::program::PagePlacement;
use trimtab_core::ids::{Id, NodeId};
use trimtab_core::time::{Moment, Span};

impl Memory {
    /// Places the pages of a thread when it first runs, which is on `core`.
    pub(super) fn touch(&mut self, task: &mut Task, core: usize) {
        let here = self.layout.node(core);
        let master = *self.masters.entry(task.program).or_insert(here);
        if !task.pages.is_empty() {
            return;
        }
        let nodes = self.layout.nodes;
        task.pages = match task.policy {
            PagePlacement::FirstTouch => vec![(here, 1.0)],
            PagePlacement::Master => vec![(master, 1.0)],
            PagePlacement::Interleave => (0..nodes).map(|node| (node, 1.0 / nodes as f64)).collect(),
            PagePlacement::Node(node) => vec![((node as usize).min(nodes - 1), 1.0)],
        };
    }

    /// Moves this share of a thread's pages that are elsewhere to a node. Returns the time that the
    /// kernel works on it: copying, and a cost for each page. The thread's data in caches are lost
    /// with the old addresses.
    ///
    /// Does nothing for a thread that uses no memory, has not run yet, or has its pages there
    /// already.
    pub fn move_pages(&mut self, now: Moment, thread: usize, to: NodeId, part: f64) -> Span {
        let (nodes, part) = (self.layout.nodes, if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 });
        let Some(task) = self.tasks.get_mut(thread).and_then(|task| task.as_deref_mut()) else {
            return Span::ZERO;
        };
        let to = to.index().min(nodes - 1);
        let away: f64 = task.pages.iter().filter(|&&(node, _)| node != to).map(|&(_, share)| share).sum();
        let moved = away * part;
        if moved <= 0.0 || task.set.is_infinite() {
            return Span::ZERO;
        }
        let running = task.running;
        if running {
            let llc = &mut self.llcs[task.llc];
            llc.advance(now);
            task.settle(now, llc.replaced, &self.layout);
            task.held *= 1.0 - moved;
        }
        for left in &mut task.left {
            let llc = &mut self.llcs[left.llc];
            llc.advance(now);
            let there = left.now(llc.age(now));
            llc.parked = (llc.parked - there * moved).max(0.0);
            left.bytes *= 1.0 - moved;
        }
        for (_, share) in task.pages.iter_mut().filter(|(node, _)| *node != to) {
            *share *= 1.0 - part;
        }
        match task.pages.iter_mut().find(|(node, _)| *node == to) {
            Some((_, share)) => *share += moved,
            None => task.pages.push((to, moved)),
        }
        task.pages.retain(|&(_, share)| share > 1e-9);
        let bytes = task.set * moved;
        if running {
            self.touched(now);
        }
        // Each byte is read and written.
        Span((2.0 * bytes / self.layout.core_bandwidth + (bytes / self.layout.page).ceil() * PAGE_NS) as u64)
    }

    /// Returns the share of a thread's pages on each node; empty before it first runs, and for a
    /// thread that uses no memory.
    pub fn pages(&self, thread: usize) -> Vec<(NodeId, f64)> {
        let pages = self.task(thread).map_or(&[][..], |task| &task.pages);
        pages.iter().map(|&(node, part)| (NodeId::from_index(node), part)).collect()
    }
}
