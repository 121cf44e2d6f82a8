//! Thread that uses memory: its demand, its holdings and its counts.

use super::cache::{CacheRemnant, LINE_BYTES, held_after};
use super::layout::Layout;
use super::{Core, Paths};
use crate::program::{Footprint, PagePlacement};
use crate::progress::MemoryCounts;
use trimtab_core::time::Moment;

/// A thread that uses memory.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) program: usize,
    /// Misses of the private caches, and writes to shared lines, per nanosecond of work.
    pub(super) misses: f64,
    pub(super) written: f64,
    pub(super) parallelism: f64,
    pub(super) locality: f64,
    /// Working set, bytes; infinite if nothing is used twice.
    pub(super) set: f64,
    pub(super) policy: PagePlacement,
    /// Share of the pages on each node; empty until the thread first runs.
    pub(super) pages: Vec<(usize, f64)>,
    pub(super) left: Vec<CacheRemnant>,
    pub(super) running: bool,
    /// Places in the lists of the threads that run on its cache, and of its program's writers.
    pub(super) at_llc: usize,
    pub(super) at_team: usize,
    pub(super) core: usize,
    pub(super) llc: usize,
    pub(super) last_core: Option<usize>,
    /// Bytes held in the cache of the core on which the thread runs.
    pub(super) held: f64,
    /// Time up to which `held`, `debt` and `counts` are right.
    pub(super) since: Moment,
    /// Time that filling the private cache still takes, ns, and the share of the thread's time that
    /// now goes into it.
    pub(super) debt: f64,
    pub(super) paying: f64,
    /// Wait for each of these lines, ns.
    pub(super) line_ns: f64,
    /// Cost of a write to a shared line, without waiting, ns.
    pub(super) transfer: f64,
    /// Present work per nanosecond, share of time that the thread waits for memory, and share of
    /// its misses that leave the cache.
    pub(super) pace: f64,
    pub(super) waits: f64,
    pub(super) missed: f64,
    pub(super) rate: f64,
    pub(super) counts: MemoryCounts,
}

impl Task {
    /// Returns a thread that has not run yet.
    pub(super) fn new(program: usize, misses: f64, written: f64, footprint: &Footprint) -> Self {
        Self {
            program,
            misses,
            written,
            parallelism: footprint.parallelism.max(1.0),
            locality: footprint.locality.max(0.01),
            set: if footprint.working_set > 0 { footprint.working_set as f64 } else { f64::INFINITY },
            policy: footprint.pages,
            pages: Vec::new(),
            left: Vec::new(),
            running: false,
            at_llc: 0,
            at_team: 0,
            core: 0,
            llc: 0,
            last_core: None,
            held: 0.0,
            since: Moment(0),
            debt: 0.0,
            paying: 0.0,
            line_ns: 0.0,
            transfer: 0.0,
            pace: 0.0,
            waits: 0.0,
            missed: 0.0,
            rate: 1.0,
            counts: MemoryCounts::default(),
        }
    }

    /// Advances holdings, debt and counts to a moment.
    pub(super) fn settle(&mut self, now: Moment, replaced: f64, layout: &Layout) {
        let span = now.since(self.since).0 as f64;
        self.since = now;
        if span <= 0.0 {
            return;
        }
        self.debt = (self.debt - span * self.paying).max(0.0);
        self.counts = self.counted(span, layout);
        if layout.shared > 0.0 {
            let asked = self.pace * self.misses * LINE_BYTES;
            self.held =
                held_after(self.held, self.set, asked, self.missed, replaced, span).min(layout.shared);
        }
    }

    /// Returns the counts of a running thread, `span` nanoseconds after `since`.
    pub(super) fn counted(&self, span: f64, layout: &Layout) -> MemoryCounts {
        let mut counts = self.counts;
        let misses = self.pace * self.misses * span;
        // A written line that travels is requested like any other; so are the lines that a private
        // cache fetches again.
        let written = if self.transfer > 0.0 { self.pace * self.written * span } else { 0.0 };
        let again = if self.line_ns > 0.0 { self.paying * span / self.line_ns } else { 0.0 };
        counts.requests += misses + written + again;
        counts.waited_ns += self.waits * span;
        let home = layout.node(self.core);
        let local: f64 = self.pages.iter().filter(|&&(node, _)| node == home).map(|&(_, part)| part).sum();
        counts.local += misses * self.missed * local;
        counts.remote += misses * self.missed * (1.0 - local).max(0.0);
        counts
    }

    /// Returns the share of its misses that the shared cache cannot serve.
    pub(super) fn missed_part(&self, layout: &Layout) -> f64 {
        if layout.shared <= 0.0 || self.set.is_infinite() {
            return 1.0;
        }
        let part = (self.held / self.set).clamp(0.0, 1.0);
        1.0 - if self.locality == 1.0 { part } else { part.powf(self.locality) }
    }

    /// Returns the number of its outstanding misses, given the threads that share its core.
    pub(super) fn at_once(&self, layout: &Layout, cores: &[Core]) -> f64 {
        self.parallelism.min(layout.outstanding / f64::from(cores[self.core].hungry.max(1))).max(1.0)
    }

    /// Lists the queues in which the thread waits: number, slowdown per nanosecond of delay, load,
    /// and outstanding uses.
    pub(super) fn flows(
        &self,
        layout: &Layout,
        paths: &Paths,
        cores: &[Core],
        mut uses: impl FnMut(usize, f64, f64, f64),
    ) {
        let lines = self.misses * self.missed_part(layout);
        if lines <= 0.0 {
            return;
        }
        let at_once = self.at_once(layout, cores);
        let home = layout.node(self.core);
        let mut flow = |resource: usize, part: f64| {
            uses(resource, lines * part / at_once, lines * part * LINE_BYTES, at_once * part);
        };
        for &(node, part) in &self.pages {
            flow(paths.nodes + node, part);
            if let Some(links) = paths.links.filter(|_| node != home) {
                flow(links + home, part);
                flow(links + node, part);
            }
        }
        if let Some(ports) = paths.ports {
            flow(ports + layout.package(self.core), 1.0);
        }
        if let Some(bus) = paths.bus {
            flow(bus, 1.0);
        }
    }
}
