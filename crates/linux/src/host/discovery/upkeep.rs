//! What is known of threads is kept right: told to who watches, renamed, ended.
//!
//! Properties: a thread is told of once a look at most, with the last that is known; of one that came and went within a look nothing is
//! said; a number that belongs to another thread meanwhile ends the one that had it.

use crate::host::discovery::is_gone;
use crate::host::{Live, Root};
use crate::process::{self, Pid, Stat};
use std::collections::BTreeMap;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Left, ProgramInfo, Sample, ThreadInfo};

impl Live {
    /// What is known about a thread goes into the sample's news; what was told before of it counts no more.
    pub(in crate::host) fn tell(&self, id: ThreadId, sample: &mut Sample) {
        if let Some(thread) = self.table.threads.get(&id) {
            let active = self.bounds.active(self.table.group_of(id));
            sample.news.push(thread.info(id, self.bounds.scheduler(), active));
        }
    }

    /// Leaves the last that was told of each thread that lives.
    pub(in crate::host) fn tidy(&self, news: &mut Vec<ThreadInfo>) {
        let last: BTreeMap<ThreadId, ThreadInfo> = news.drain(..).map(|info| (info.id, info)).collect();
        news.extend(last.into_values().filter(|info| self.table.threads.contains_key(&info.id)));
    }

    /// A thread has ended.
    pub(in crate::host) fn end_thread(&mut self, id: ThreadId, sample: &mut Sample) {
        let Some(thread) = self.table.remove_thread(id, self.counting.recipe(), &mut self.budget) else {
            return;
        };
        if let Some(record) =
            self.table.processes.get_mut(&thread.pid).and_then(|process| process.record.as_mut())
        {
            record.ended(thread.tid);
        }
        self.audit.thread_ended(id, &thread);
        // Of one that came and went within this look nobody needs to know.
        if id < self.table.untold {
            sample.gone.push(id);
        }
    }

    /// A process has ended, and all its threads.
    pub(in crate::host) fn end_process(&mut self, pid: Pid, sample: &mut Sample) {
        for id in self.table.threads_of(pid) {
            self.end_thread(id, sample);
        }
        if let Some(record) = self.table.remove_process(pid).and_then(|process| process.record) {
            record.finish();
        }
    }

    /// Looks whether names changed: programs rename their threads, and a process that calls exec becomes another program.
    pub(in crate::host) fn refresh(&mut self, sample: &mut Sample) {
        self.look_at_balancers(sample);
        let ids: Vec<_> = self.table.threads.keys().copied().collect();
        // So many at each full look, in turn: names are for people.
        let count = ids.len().min(256);
        for step in 0..count {
            let id = ids[(self.refreshed + step) % ids.len()];
            self.refresh_thread(id, sample);
        }
        self.refreshed = self.refreshed.wrapping_add(count);
    }

    /// Whether other balancers have ended.
    fn look_at_balancers(&mut self, sample: &mut Sample) {
        let Some(keep) = &self.options.keep else { return };
        keep.tend();
        let mut free = Vec::new();
        for (pid, process) in &mut self.table.processes {
            if process.balancer.is_some() && keep.balancer(*pid, process.start).is_none() {
                process.balancer = None;
                free.extend(process.threads.values().copied());
            }
        }
        for id in free {
            if let Some(thread) = self.table.threads.get_mut(&id)
                && matches!(thread.left, Some(Left::Balancer(_)))
            {
                thread.left = None;
            }
            self.tell(id, sample);
        }
    }

    /// Looks at one thread's name, and whether it is still the same.
    pub(in crate::host) fn refresh_thread(&mut self, id: ThreadId, sample: &mut Sample) {
        let Some(thread) = self.table.threads.get(&id) else { return };
        match process::thread_stat(&self.proc, thread.pid, thread.tid) {
            Ok(stat) => self.renamed(id, &stat, sample),
            Err(error) if is_gone(&error) => self.end_thread(id, sample),
            Err(_) => {}
        }
    }

    /// What a thread's stat line says about who it is.
    pub(in crate::host) fn renamed(&mut self, id: ThreadId, stat: &Stat, sample: &mut Sample) {
        let Some(thread) = self.table.threads.get_mut(&id) else { return };
        if thread.start != stat.start {
            return self.end_thread(id, sample);
        }
        let alone = self.table.processes.get(&thread.pid).is_some_and(|process| process.only.is_some());
        if alone || thread.name == stat.comm {
            return;
        }
        thread.name.clone_from(&stat.comm);
        let (pid, program) = (thread.pid, thread.program);
        let leads = pid.main_thread() == thread.tid
            && self.roots.values().any(|w| w.program == program && w.root == Root::Tree(pid));
        if leads {
            sample.programs.push(ProgramInfo { id: program, pid: pid.0, name: stat.comm.clone() });
        }
        self.tell(id, sample);
    }
}
