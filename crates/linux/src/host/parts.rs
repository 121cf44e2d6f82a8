//! Parts of the live host that keep state for each thread, as one listener of discovery.
//!
//! Reports of threads, processes and masks are gathered in one sample, whether they occur during a
//! sample or between two; the sample returns them.

use super::affinity::{AffinityWriter, Restored, Surroundings, WriterOptions};
use super::audit::Auditor;
use super::constraints::Constraints;
use super::counter_reader::CounterReader;
use super::discovery::{Discovery, Interest, ProcessOrigin, ThreadListener, ThreadTable, WatchedThread};
use super::page_migration::PageMigration;
use super::procfs::{DescriptorBudget, Procfs};
use super::sampler::{Sampler, Unread, at_once};
use super::{AffinityJournal, HostOptions};
use crate::process::{Pid, Stat, Tid};
use std::sync::Arc;
use trimtab_core::balance::{Act, Decision, Outcome, Refusal, Settled, Wanted};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Notice, ProgramInfo, Sample};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Moment;

/// Parts of the live host.
#[derive(Debug)]
pub(super) struct Parts {
    proc: Arc<Procfs>,
    /// Whether the roots are tags.
    tags: bool,
    /// Whether threads of large processes may be read at once.
    at_once: bool,
    pub(super) budget: DescriptorBudget,
    pub(super) constraints: Constraints,
    pub(super) sampler: Sampler,
    pub(super) counters: CounterReader,
    pub(super) affinity: AffinityWriter,
    pub(super) pages: PageMigration,
    pub(super) audit: Auditor,
    /// The next sample, as far as it is complete.
    pub(super) news: Sample,
    /// Counts of masks given back since the interest in their threads ended.
    pub(super) released: Restored,
}

impl Parts {
    pub(super) fn new(
        proc: &Arc<Procfs>,
        budget: &DescriptorBudget,
        usable: &CpuSet,
        options: HostOptions,
    ) -> Self {
        let HostOptions { keep: journal, bound, hands_off, tags, counting, thrift, at_once, .. } = options;
        Self {
            proc: proc.clone(),
            tags,
            at_once,
            budget: budget.clone(),
            constraints: Constraints::new(proc.root(), usable),
            sampler: Sampler::new(proc.clone(), budget.clone()),
            counters: CounterReader::new(proc.clone(), budget.clone(), counting, thrift),
            affinity: AffinityWriter::new(proc.clone(), WriterOptions { journal, bound, hands_off }),
            pages: PageMigration::new(proc.clone()),
            audit: Auditor::default(),
            news: Sample::default(),
            released: Restored::default(),
        }
    }

    /// Returns the writer, with the parts that it reads.
    fn writer<'a>(&'a mut self, table: &'a ThreadTable) -> (&'a mut AffinityWriter, Surroundings<'a>) {
        let Self { constraints, sampler, news, affinity, .. } = self;
        (affinity, Surroundings { table, constraints, sampler, news })
    }

    /// Begins a sample: reads the large processes with many requested threads at once.
    pub(super) fn read_at_once(&mut self, table: &ThreadTable, wanted: &Wanted) {
        if !self.sampler.begin() || !self.at_once {
            return;
        }
        let is_read = |id: ThreadId| {
            let interest = table.thread(id).map(|thread| thread.interest);
            interest.is_some_and(Interest::is_wanted) && !self.is_elsewhere(id, wanted)
        };
        let mut large = Vec::new();
        for (pid, process) in &table.processes {
            let enough = at_once::WANTED_MIN.max(process.threads.len() / at_once::ONE_IN);
            if process.threads.len() >= enough
                && process.threads.values().filter(|id| is_read(**id)).take(enough).count() == enough
            {
                large.push((*pid, process.threads.len()));
            }
        }
        self.sampler.read_at_once(&large);
    }

    /// Returns whether a thread is on a CPU that is not requested.
    fn is_elsewhere(&self, id: ThreadId, wanted: &Wanted) -> bool {
        let Some(on) = &wanted.on else { return false };
        let place = self.affinity.only_cpu(id).or_else(|| self.sampler.last_cpu(id));
        place.is_some_and(|place| !on.contains(place))
    }

    /// Reads one thread into the sample; returns its stat line if that was read. Skips a thread on
    /// a CPU that is not requested.
    pub(super) fn read(
        &mut self,
        id: ThreadId,
        thread: &WatchedThread,
        wanted: &Wanted,
    ) -> Result<Option<Stat>, Unread> {
        if self.is_elsewhere(id, wanted) {
            return Ok(None);
        }
        let only = self.affinity.only_cpu(id);
        let read = self.sampler.read(id, thread, only, wanted);
        let ran = self.sampler.ran(id);
        if ran {
            self.affinity.has_run(id);
        }
        let reading = read?;
        self.news.threads.push(reading.sample);
        Ok(reading.stat)
    }

    /// Reads the CPUs that the machine grants the programs; if they changed, updates their masks.
    pub(super) fn refresh_constraints(&mut self, at: Moment, table: &ThreadTable) {
        let due = self.constraints.is_due(at);
        let (affinity, mut around) = self.writer(table);
        if due {
            affinity.refresh_groups(&mut around);
            if around.constraints.read_scheduler() {
                let scheduler = around.constraints.scheduler().map(str::to_owned);
                if scheduler.is_some() {
                    // The scheduler places threads now: they get their own masks back.
                    affinity.restore(&mut around);
                }
                around.news.notices.push(Notice::Scheduler(scheduler));
                for (id, _) in table.threads() {
                    affinity.report(id, &mut around);
                }
            }
        }
        affinity.refresh_grants(&mut around);
    }

    /// Completes the sample after its threads were read; `full` means that everything was just
    /// listed.
    pub(super) fn complete(&mut self, wanted: &Wanted, full: bool, table: &ThreadTable) -> Sample {
        let affinity = &self.affinity;
        self.counters.count(wanted, table, &|id| affinity.expected(id), &mut self.news);
        let may_move = |id: ThreadId| {
            let interest = table.thread(id).map(|thread| thread.interest);
            affinity.left(id).is_none() && interest.is_some_and(Interest::is_wanted)
        };
        self.pages.collect(&may_move, table, &mut self.news);
        let at = self.news.at;
        let (affinity, mut around) = self.writer(table);
        affinity.compare(at, full, &mut around);
        if wanted.cpus {
            self.news.cpus = self.sampler.cpus();
        }
        self.news.throttled = self.constraints.throttled();
        std::mem::take(&mut self.news)
    }

    /// Tidies up after a full listing: other balancers may have ended, and given masks may be
    /// dropped.
    pub(super) fn tidy_up(&mut self, now: Moment, discovery: &Discovery) {
        let table = discovery.table();
        let (affinity, mut around) = self.writer(table);
        affinity.refresh_balancers(&mut around);
        affinity.forget_given(now, discovery.searched(), table);
    }

    /// Carries out one decision.
    pub(super) fn carry_out(&mut self, decision: &Decision, table: &ThreadTable) -> Outcome {
        let end = self.act(decision.thread, &decision.act, table).unwrap_or_else(|end| end);
        Outcome { thread: decision.thread, end }
    }

    fn act(&mut self, id: ThreadId, act: &Act, table: &ThreadTable) -> Result<Settled, Settled> {
        let thread = table.thread(id).ok_or(Settled::Vanished)?;
        self.affinity.may_move(id, &self.constraints)?;
        if thread.interest == Interest::Untagged {
            return Err(Settled::Refused(Refusal::Other));
        }
        if !self.sampler.is_same(id, thread) {
            return Err(Settled::Vanished);
        }
        let owned = table.is_still_owned(self.proc.path(), thread);
        if let (Act::Fetch(node), true) = (act, owned) {
            return Ok(self.pages.begin(id, *node, table, &mut self.news));
        }
        let (affinity, mut around) = self.writer(table);
        if !owned {
            return Err(affinity.refuse(id, &mut around));
        }
        affinity.carry_out(id, act, &mut around)
    }

    /// Gives every thread that still has our mask its own mask back.
    pub(super) fn restore(&mut self, table: &ThreadTable) -> Restored {
        let (affinity, mut around) = self.writer(table);
        affinity.restore(&mut around)
    }

    /// Ends page migrations; pages moved so far stay where they are.
    pub(super) fn stop_migrations(&mut self) {
        self.pages.stop(&mut self.news);
    }

    pub(super) fn look_closely(&mut self, table: &ThreadTable) {
        let sampler = &self.sampler;
        self.audit.look_closely(self.proc.path(), table, &|id| sampler.sleeps(id));
    }

    pub(super) fn forget_touched(&mut self, table: &ThreadTable) {
        self.audit.forget_touched(self.proc.path(), table);
    }
}

impl ThreadListener for Parts {
    fn program_named(&mut self, info: ProgramInfo) {
        self.news.programs.push(info);
    }

    fn process_found(&mut self, table: &ThreadTable, pid: Pid, origin: ProcessOrigin) {
        let mut parent = None;
        self.constraints.forget_process(pid);
        match origin {
            ProcessOrigin::Root if self.tags => self.constraints.join(pid),
            ProcessOrigin::Group => self.constraints.join(pid),
            ProcessOrigin::ChildOf(of) => {
                self.constraints.inherit(pid, of);
                parent = Some(of);
            }
            ProcessOrigin::Root | ProcessOrigin::VirtualMachine => {}
        }
        self.affinity.process_found(table, pid, parent);
    }

    fn process_ended(&mut self, pid: Pid) {
        self.sampler.forget_process(pid);
        self.constraints.forget_process(pid);
        self.affinity.process_ended(pid);
    }

    fn process_dropped(&mut self, table: &ThreadTable, pid: Pid) {
        self.sampler.forget_process(pid);
        self.constraints.forget_process(pid);
        self.affinity.process_dropped(pid, table);
    }

    fn thread_found(&mut self, table: &ThreadTable, id: ThreadId, stat: &Stat) -> bool {
        let (affinity, mut around) = self.writer(table);
        affinity.thread_found(id, stat, &mut around)
    }

    fn thread_ended(&mut self, id: ThreadId, thread: &WatchedThread, told: bool) {
        let sleeps = self.sampler.sleeps(id);
        self.sampler.forget(id);
        self.counters.forget(id);
        self.constraints.forget_thread(id);
        self.affinity.thread_ended(id, thread.pid, thread.tid);
        self.audit.thread_ended(id, thread, sleeps);
        // A thread that came and went within this sample is not reported.
        if told {
            self.news.gone.push(id);
        }
    }

    fn thread_renamed(&mut self, table: &ThreadTable, id: ThreadId) {
        let (affinity, mut around) = self.writer(table);
        affinity.report(id, &mut around);
    }

    fn interest_changed(&mut self, table: &ThreadTable, id: ThreadId) {
        let Some(interest) = table.thread(id).map(|thread| thread.interest) else { return };
        let mut released = self.released;
        let (affinity, mut around) = self.writer(table);
        affinity.interest_changed(id, interest);
        if interest == Interest::Untagged {
            affinity.restore_one(id, &mut released, &mut around);
        }
        affinity.report(id, &mut around);
        self.released = released;
    }

    fn bystander_found(&mut self, table: &ThreadTable, pid: Pid, tid: Tid) {
        let (affinity, mut around) = self.writer(table);
        affinity.bystander_found(pid, tid, &mut around);
    }

    fn wants_child(&self, child: Pid, parent: Pid) -> bool {
        self.affinity.was_born_with_ours(child, parent)
    }

    fn is_own(&self, pid: Pid) -> bool {
        self.affinity.journal().and_then(AffinityJournal::guardian) == Some(pid)
    }
}
