//! Memory model: caches, nodes and links as state, and the speed of a running thread.
//!
//! Unit: the *rate* of a thread, the share of its core's speed that it turns into work; in the rest
//! it waits. Problem: placement affects speed by caches that are shared or cold, memory that is
//! near or far, buses that are saturated and cache lines that are transferred; each depends on the
//! places of the other threads. Idea: the lasting part is state (how many bytes a thread holds in
//! which cache, where its pages are); the rest is solved (see `memory::queues`). At intervals, in
//! an *epoch*, all rates are computed together and stay until the next epoch. A thread that is put
//! on a CPU in between gets its rate at once, from the present delays.
//!
//! A thread needs, for a nanosecond of work, on a core of speed `s`
//!
//! ```text
//! 1/s + misses x (hits x shared_ns + (1 - hits) x (latency to its pages + waiting)) / parallelism
//!     + writes x (transfer + waiting)
//! ```
//!
//! where `hits = (held / working set) ^ locality`, and its rate is `1/s` of that. A thread on a
//! core whose private cache has another thread's data fetches its own again; the cost is spread
//! over its next stretch of running.
//!
//! Properties: a value, without clock or randomness; sums run in an order that the calls decide. A
//! thread without misses and shared writes has the rate 1, is left out of the model and causes no
//! epoch. An epoch costs in proportion to the hungry threads (those that use memory) that run.
//!
//! Constants without a machine's key are stated here: see [`EPOCH_PERIOD`], [`NOTICE_DELAY`],
//! [`EPOCH_PERIOD_MAX`], [`RATE_CHANGE_MIN`], [`PAGE_NS`].

mod cache;
mod layout;
mod pages;
mod queues;
mod sharing;
mod task;

#[cfg(test)]
mod tests;

use crate::model::Model;
use crate::program::Footprint;
use crate::progress::{MemoryCounts, Progress};
use cache::{CacheRemnant, LINE_BYTES, Llc};
use layout::Layout;
use queues::Queues;
use sharing::WriterTeam;
use std::collections::BTreeMap;
use task::Task;
use trimtab_core::ids::{NodeId, Pu};
use trimtab_core::time::{Moment, Span};

/// Period of epochs while things change: short against the time in which a cache fills
/// (milliseconds).
pub const EPOCH_PERIOD: Span = Span::from_ms(1);
/// Delay from a change of the running threads to the epoch that processes it, on machines with few
/// hungry threads.
pub const NOTICE_DELAY: Span = Span::from_us(200);
/// Period of epochs after no change for a while.
pub const EPOCH_PERIOD_MAX: Span = Span::from_ms(16);
/// Highest number of hungry threads on CPUs with which changes are noticed after [`NOTICE_DELAY`];
/// with more, at the next epoch.
const NOTICE_THREADS_MAX: usize = 64;
/// Relative change below which a rate keeps its published value.
pub const RATE_CHANGE_MIN: f64 = 1e-3;
/// Highest share of a thread's time that goes into filling its private cache again.
const REFILL_SHARE_MAX: f64 = 0.5;
/// Kernel time for each page moved, besides copying, ns. Estimated: a fault, an unmapping and a
/// flush.
pub const PAGE_NS: f64 = 1_000.0;

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    /// Number of threads on its hardware threads now, and of those that use memory.
    busy: u32,
    hungry: u32,
    /// Thread of the data in the private cache.
    owner: Option<usize>,
}

/// Memory of a machine and the threads that use it.
#[derive(Clone, Debug)]
pub struct Memory {
    layout: Layout,
    cores: Vec<Core>,
    llcs: Vec<Llc>,
    /// By thread; `None` for those that use no memory.
    tasks: Vec<Option<Box<Task>>>,
    /// Counts of the threads that are over, until their numbers are reused.
    past: BTreeMap<usize, MemoryCounts>,
    /// By thread: the core on which it is, for all threads.
    places: Vec<Option<usize>>,
    teams: BTreeMap<usize, WriterTeam>,
    /// Node on which each program's first thread first ran.
    masters: BTreeMap<usize, usize>,
    queues: Queues,
    paths: Paths,
    running: usize,
    due: Option<Moment>,
    last: Moment,
    gap: Span,
    touched: bool,
}

/// Numbers of the queues, by resource.
#[derive(Clone, Copy, Debug)]
struct Paths {
    nodes: usize,
    links: Option<usize>,
    ports: Option<usize>,
    bus: Option<usize>,
}

impl Memory {
    /// Returns the memory of a machine, idle and empty.
    pub fn new(model: &Model) -> Self {
        let layout = Layout::new(model);
        let memory = &model.memory;
        let mut queues = Queues::default();
        let mut several = |count: usize, bandwidth: f64| {
            let first = (0..count).map(|_| queues.add(bandwidth, LINE_BYTES / bandwidth)).min();
            first.unwrap_or(0)
        };
        let nodes = several(layout.nodes, memory.node_bandwidth);
        let linked = layout.nodes > 1 && memory.link_bandwidth.is_finite();
        let links = linked.then(|| several(layout.nodes, memory.link_bandwidth));
        let ports = memory.port_bandwidth.map(|bandwidth| several(layout.packages, bandwidth));
        let bus = memory.bus_bandwidth.map(|bandwidth| several(1, bandwidth));
        let llcs = model.machine.llcs().iter().map(|_| Llc::new(layout.shared)).collect();
        Self {
            cores: vec![Core::default(); layout.speeds.len()],
            layout,
            llcs,
            tasks: Vec::new(),
            past: BTreeMap::new(),
            places: Vec::new(),
            teams: BTreeMap::new(),
            masters: BTreeMap::new(),
            queues,
            paths: Paths { nodes, links, ports, bus },
            running: 0,
            due: None,
            last: Moment(0),
            gap: EPOCH_PERIOD,
            touched: false,
        }
    }

    /// Adds a thread of a program, before it first runs.
    pub fn add(&mut self, thread: usize, program: usize, footprint: &Footprint) {
        if self.tasks.len() <= thread {
            self.tasks.resize(thread + 1, None);
            self.places.resize(thread + 1, None);
        }
        self.past.remove(&thread);
        let misses = footprint.misses.max(0.0) / 1e3;
        let written = if footprint.shared > 0 { footprint.shared_writes.max(0.0) / 1e3 } else { 0.0 };
        if misses <= 0.0 && written <= 0.0 {
            return;
        }
        if written > 0.0 {
            let lines = (footprint.shared as f64 / LINE_BYTES).max(1.0);
            let resource = self.teams.get(&program).map(|team| team.resource);
            let resource = resource.unwrap_or_else(|| self.queues.add(lines, 1.0));
            self.teams.entry(program).or_insert(WriterTeam {
                running: Vec::new(),
                resource,
                busy: 0.0,
                mean: 0.0,
            });
        }
        self.tasks[thread] = Some(Box::new(Task::new(program, misses, written, footprint)));
    }

    /// Removes a thread, whose number may be reused; its memory is freed, and the data that it held
    /// in caches no longer count.
    pub fn remove(&mut self, now: Moment, thread: usize) {
        self.off_cpu(now, thread);
        let Some(task) = self.tasks.get_mut(thread).and_then(Option::take) else { return };
        self.past.insert(thread, task.counts);
        for left in &task.left {
            let llc = &mut self.llcs[left.llc];
            llc.advance(now);
            let there = left.now(llc.age(now));
            llc.parked = (llc.parked - there).max(0.0);
        }
        for core in self.cores.iter_mut().filter(|core| core.owner == Some(thread)) {
            core.owner = None;
        }
    }

    /// Puts a thread onto a hardware thread.
    pub fn on_cpu(&mut self, now: Moment, thread: usize, pu: Pu) {
        let core = self.layout.core(pu);
        self.cores[core].busy += 1;
        if let Some(place) = self.places.get_mut(thread) {
            *place = Some(core);
        }
        let Some(mut task) = self.tasks.get_mut(thread).and_then(Option::take) else { return };
        let here = self.layout.llc(core);
        self.touch(&mut task, core);
        let llc = &mut self.llcs[here];
        llc.advance(now);
        let age = llc.age(now);
        task.held = 0.0;
        if let Some(at) = task.left.iter().position(|left| left.llc == here) {
            task.held = task.left.swap_remove(at).now(age).min(task.set);
            llc.parked = (llc.parked - task.held).max(0.0);
        }
        task.at_llc = llc.running.len();
        llc.running.push(thread);
        (task.running, task.core, task.llc, task.since) = (true, core, here, now);
        if task.last_core != Some(core) || self.cores[core].owner != Some(thread) {
            (task.debt, task.line_ns) = self.refill(&task);
        }
        task.last_core = Some(core);
        self.cores[core].owner = Some(thread);
        self.cores[core].hungry += 1;
        self.running += 1;
        if task.writes().is_some()
            && let Some(team) = self.teams.get_mut(&task.program)
        {
            task.at_team = team.running.len();
            team.running.push(thread);
            task.transfer = team.mean;
        }
        let time = self.alone(&task) + self.waiting(&task);
        self.pace(&mut task, time);
        self.tasks[thread] = Some(task);
        self.touched(now);
    }

    /// Takes a thread off its hardware thread.
    pub fn off_cpu(&mut self, now: Moment, thread: usize) {
        let Some(core) = self.places.get_mut(thread).and_then(Option::take) else { return };
        self.cores[core].busy = self.cores[core].busy.saturating_sub(1);
        let Some(task) = self.tasks[thread].as_deref_mut() else { return };
        let llc = &mut self.llcs[task.llc];
        llc.advance(now);
        task.settle(now, llc.replaced, &self.layout);
        task.running = false;
        let (here, at_llc, at_team, program) = (task.llc, task.at_llc, task.at_team, task.program);
        let writes = task.writes().is_some();
        llc.running.swap_remove(at_llc);
        // Less than a page of lines is evicted before any thread accesses it again.
        task.left.retain(|left| left.bytes > 0.0);
        if task.held >= 4096.0 {
            llc.parked += task.held;
            task.left.push(CacheRemnant { llc: task.llc, bytes: task.held, age: llc.age(now) });
        }
        self.cores[core].hungry -= 1;
        self.running -= 1;
        // The last of the list takes the place of the one removed.
        if let Some(moved) =
            self.llcs[here].running.get(at_llc).and_then(|&moved| self.tasks[moved].as_deref_mut())
        {
            moved.at_llc = at_llc;
        }
        if let Some(team) = self.teams.get_mut(&program).filter(|_| writes) {
            team.running.swap_remove(at_team);
            if let Some(moved) = team.running.get(at_team).and_then(|&moved| self.tasks[moved].as_deref_mut())
            {
                moved.at_team = at_team;
            }
        }
        self.touched(now);
        if self.running == 0 {
            self.due = None;
            for llc in &mut self.llcs {
                llc.advance(now);
                llc.replaced = 0.0;
            }
        }
    }

    /// Returns the share of its core's speed that a thread turns into work, in (0, 1].
    pub fn rate(&self, thread: usize) -> f64 {
        self.task(thread).map_or(1.0, |task| task.rate)
    }

    /// Returns when the next epoch is due; `None` while no running thread uses memory.
    pub fn next(&self) -> Option<Moment> {
        self.due
    }

    /// Computes all rates again. Adds the threads with changed rates to `changed`.
    pub fn epoch(&mut self, now: Moment, changed: &mut Vec<usize>) {
        self.last = now;
        if self.running == 0 {
            self.due = None;
            return;
        }
        self.settle(now);
        let moved = self.solve(changed);
        let calm = !self.touched && moved < RATE_CHANGE_MIN;
        self.gap = if calm { Span((self.gap.0 * 2).min(EPOCH_PERIOD_MAX.0)) } else { EPOCH_PERIOD };
        self.touched = false;
        for at in 0..self.llcs.len() {
            if self.llcs[at].running.is_empty() {
                // No thread fills the cache any more.
                self.llcs[at].advance(now);
                self.llcs[at].replaced = 0.0;
                continue;
            }
            let (mut held, mut filled) = (0.0, 0.0);
            for task in self.llcs[at].running.iter().filter_map(|&thread| self.tasks[thread].as_deref()) {
                held += task.held;
                filled += task.pace * task.misses * task.missed * LINE_BYTES;
            }
            self.llcs[at].fill(filled, held, self.gap.0 as f64);
        }
        self.due = Some(now + self.gap);
    }

    /// Returns the counter values of a thread at a moment, also after its end. Between two epochs
    /// its present rates are assumed to continue.
    pub fn counts(&self, now: Moment, thread: usize) -> MemoryCounts {
        let past = || self.past.get(&thread).copied().unwrap_or_default();
        self.task(thread).map_or_else(past, |task| {
            let span = if task.running { now.since(task.since).0 as f64 } else { 0.0 };
            task.counted(span, &self.layout)
        })
    }

    /// Returns the bandwidth that a running thread draws from memory now, bytes a nanosecond.
    pub fn bandwidth(&self, thread: usize) -> f64 {
        let task = self.task(thread).filter(|task| task.running);
        task.map_or(0.0, |task| task.pace * task.misses * task.missed * LINE_BYTES)
    }

    /// Returns the bytes that a running thread holds in the shared cache on which it runs.
    pub fn held(&self, thread: usize) -> f64 {
        self.task(thread).filter(|task| task.running).map_or(0.0, |task| task.held)
    }

    fn task(&self, thread: usize) -> Option<&Task> {
        self.tasks.get(thread).and_then(|task| task.as_deref())
    }

    /// Notes that the running threads have changed: the next epoch comes soon.
    fn touched(&mut self, now: Moment) {
        self.touched = true;
        self.gap = EPOCH_PERIOD;
        let gap = if self.running <= NOTICE_THREADS_MAX { NOTICE_DELAY } else { EPOCH_PERIOD };
        let soon = (now + Span(NOTICE_DELAY.0 / 4)).max(self.last + gap);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Advances all running threads to a moment, and reduces the contents of caches to their size.
    fn settle(&mut self, now: Moment) {
        for llc in self.llcs.iter_mut().filter(|llc| !llc.running.is_empty()) {
            llc.advance(now);
            let mut held = 0.0;
            for &thread in &llc.running {
                if let Some(task) = self.tasks[thread].as_deref_mut() {
                    task.settle(now, llc.replaced, &self.layout);
                    held += task.held;
                }
            }
            let factor = llc.fit(held);
            if factor < 1.0 {
                for &thread in &llc.running {
                    if let Some(task) = self.tasks[thread].as_deref_mut() {
                        task.held *= factor;
                    }
                }
            }
        }
    }

    /// Solves for all running threads together. Returns the largest relative change of a rate.
    fn solve(&mut self, changed: &mut Vec<usize>) -> f64 {
        self.settle_sharing();
        self.queues.clear();
        let running: Vec<usize> = self.llcs.iter().flat_map(|llc| llc.running.iter().copied()).collect();
        for &thread in &running {
            let Some(task) = self.tasks[thread].take() else { continue };
            let slot = self.queues.thread(self.alone(&task));
            let Self { layout, paths, queues, cores, .. } = self;
            task.flows(layout, paths, cores, |resource, wait, load, customers| {
                queues.uses(slot, resource, wait, load, customers);
            });
            self.tasks[thread] = Some(task);
            self.share(slot, thread);
        }
        self.queues.solve();
        for team in self.teams.values_mut().filter(|team| !team.running.is_empty()) {
            team.busy = self.queues.busy(team.resource);
        }
        let mut most = 0.0_f64;
        for (slot, &thread) in running.iter().enumerate() {
            let Some(mut task) = self.tasks[thread].take() else { continue };
            let old = task.rate;
            self.pace(&mut task, self.queues.time(slot));
            let by = (task.rate / old - 1.0).abs();
            most = most.max(by);
            if by < RATE_CHANGE_MIN {
                task.rate = old;
            } else {
                changed.push(thread);
            }
            self.tasks[thread] = Some(task);
        }
        most
    }

    /// Returns the time that a thread takes for a nanosecond of work without contention, ns.
    fn alone(&self, task: &Task) -> f64 {
        let speed = self.layout.speed(task.core, self.cores[task.core].busy);
        let home = self.layout.node(task.core);
        let missed = task.missed_part(&self.layout);
        let memory: f64 = task.pages.iter().map(|&(node, part)| part * self.layout.latency(home, node)).sum();
        let miss = (1.0 - missed) * self.layout.shared_ns + missed * memory;
        1.0 / speed
            + task.misses * miss / task.at_once(&self.layout, &self.cores)
            + task.written * task.transfer
    }

    /// Returns the time that waiting adds to that with the present delays, ns.
    fn waiting(&self, task: &Task) -> f64 {
        let mut sum = 0.0;
        task.flows(&self.layout, &self.paths, &self.cores, |resource, wait, _, _| {
            sum += wait * self.queues.delay(resource);
        });
        if let Some(team) = task.writes().and_then(|_| self.teams.get(&task.program)) {
            sum += task.written * self.queues.delay(team.resource);
        }
        sum
    }

    /// Sets the values that follow from the time that a nanosecond of work takes.
    fn pace(&self, task: &mut Task, time: f64) {
        let speed = self.layout.speed(task.core, self.cores[task.core].busy);
        let busy = 1.0 / speed;
        task.paying = (task.debt / self.gap.0.max(1) as f64).min(REFILL_SHARE_MAX);
        task.missed = task.missed_part(&self.layout);
        task.pace = (1.0 - task.paying) / time;
        task.waits = 1.0 - task.pace * busy;
        task.rate = (task.pace * busy).clamp(f64::MIN_POSITIVE, 1.0);
    }

    /// Returns the time that a thread takes to fill a private cache, and for each line of it, ns.
    fn refill(&self, task: &Task) -> (f64, f64) {
        let lines = task.set.min(self.layout.private) / LINE_BYTES;
        let missed = task.missed_part(&self.layout);
        let home = self.layout.node(task.core);
        let memory: f64 = task.pages.iter().map(|&(node, part)| part * self.layout.latency(home, node)).sum();
        if task.misses <= 0.0 {
            return (0.0, 0.0);
        }
        let line = (1.0 - missed) * self.layout.shared_ns + missed * memory;
        let line = line / task.parallelism.min(self.layout.outstanding);
        (lines * line, line)
    }
}

impl Progress for Memory {
    fn born(&mut self, _: Moment, thread: usize, program: usize, footprint: &Footprint) {
        self.add(thread, program, footprint);
    }
    fn on_cpu(&mut self, now: Moment, thread: usize, pu: Pu) {
        Self::on_cpu(self, now, thread, pu);
    }
    fn off_cpu(&mut self, now: Moment, thread: usize) {
        Self::off_cpu(self, now, thread);
    }
    fn ended(&mut self, now: Moment, thread: usize) {
        self.remove(now, thread);
    }
    fn rate(&self, thread: usize) -> f64 {
        Self::rate(self, thread)
    }
    fn next(&self) -> Option<Moment> {
        Self::next(self)
    }
    fn epoch(&mut self, now: Moment, changed: &mut Vec<usize>) {
        Self::epoch(self, now, changed);
    }
    fn counts(&self, now: Moment, thread: usize) -> MemoryCounts {
        Self::counts(self, now, thread)
    }
    fn fetch(&mut self, now: Moment, thread: usize, to: NodeId) -> Span {
        self.move_pages(now, thread, to, 1.0)
    }
}
