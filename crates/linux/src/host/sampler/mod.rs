//! One look: what was asked for, read as cheaply as it can be.

pub(in crate::host) mod counters;

use crate::host::Live;
use crate::host::clock::Clock;
use crate::host::constraints::{Changed, GroupId};
use crate::host::discovery::thread_table::Wish;
use crate::host::procfs;
use crate::host::sampler::counters::Unread;
use crate::process::{self, Pid, Stat, State, Tid};
use crate::survey::LoadSample;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use trimtab_core::balance::Wanted;
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{CpuSample, Notice, Sample, ThreadSample};
use trimtab_core::time::Span;

/// A thread whose counters stand still is asked whether it sleeps at each of so many looks. Pools of sleeping threads are large:
/// from then on it is asked once in so many looks, and when it has slept for [`ASLEEP`] of them only once in that many, not all
/// threads at the same look.
const STILL: u32 = 8;
const ASLEEP: u32 = 64;

/// Whether a thread is asked that has stood still for so many looks.
fn is_asked(still: u32, tid: Tid) -> bool {
    let one_in = |looks: u32| still.wrapping_add(tid.0).is_multiple_of(looks);
    still <= STILL || (still < ASLEEP && one_in(STILL)) || one_in(ASLEEP)
}

/// So many processes are asked for their groups each time that is looked at. Chosen: some 10 us each, each second.
const PLACED: usize = 128;

/// How far apart masks are compared with what they should be.
const MASKS_EVERY: Span = Span::from_ms(90);

impl Live {
    /// Reads what is wanted, now.
    pub(in crate::host) fn sample(&mut self, wanted: &Wanted) -> Sample {
        let mut sample = Sample { at: self.clock.now(), ..std::mem::take(&mut self.later) };
        let worked = Clock::worked();
        sample.cost =
            self.worked.replace(worked).filter(|before| *before <= worked).map(|before| worked.less(before));
        if let Some(span) = self.clock.slept() {
            self.suspended = self.suspended + span;
            sample.notices.push(Notice::ClockJump(span));
        }
        self.look_at_bounds(&mut sample);
        let known: Vec<ThreadId> = self.table.threads.keys().copied().collect();
        let mut unread = self.read_threads(&known, wanted, &mut sample);
        self.find(sample.at, &mut sample);
        let untold = self.table.threads.range(self.table.untold..).map(|(id, _)| *id);
        let new: Vec<ThreadId> = untold.filter(|id| known.binary_search(id).is_err()).collect();
        unread += self.read_threads(&new, wanted, &mut sample);
        if unread > 0 {
            sample.notices.push(Notice::Unread(unread));
        }
        self.count(wanted, &mut sample);
        self.look_at_fetches(&mut sample);
        self.check_masks(&mut sample);
        if wanted.cpus {
            sample.cpus = self.read_cpus();
        }
        sample.throttled = self.bounds.throttled();
        self.tidy(&mut sample.news);
        sample.threads.sort_unstable_by_key(|read| read.id);
        // Some were read and then turned out to have ended.
        let table = &self.table.threads;
        sample.threads.retain(|read| table.contains_key(&read.id));
        self.table.told();
        sample
    }

    /// What the machine lets the programs use may have changed, and with it their masks.
    fn look_at_bounds(&mut self, sample: &mut Sample) {
        if self.bounds.is_due(sample.at) {
            self.bounds.forget_groups();
            self.look_at_groups(sample);
            if self.bounds.look_at_scheduler() {
                let scheduler = self.bounds.scheduler().map(str::to_owned);
                if scheduler.is_some() {
                    // It places threads now: they get their own masks back.
                    self.restore_threads();
                }
                sample.notices.push(Notice::Scheduler(scheduler));
                let ids: Vec<ThreadId> = self.table.threads.keys().copied().collect();
                for id in ids {
                    self.tell(id, sample);
                }
            }
        }
        self.look_at_usable(sample);
    }

    /// In which groups the processes are, so many at a time.
    fn look_at_groups(&mut self, sample: &mut Sample) {
        // Of virtual machines each CPU, else each process.
        let whole = self.table.processes.iter().filter(|(_, process)| process.only.is_none());
        let alone = self.table.threads.iter().filter(|(_, thread)| thread.group.is_some());
        let places: Vec<(Pid, Option<ThreadId>)> = whole
            .map(|(pid, _)| (*pid, None))
            .chain(alone.map(|(id, thread)| (thread.pid, Some(*id))))
            .collect();
        let count = places.len().min(PLACED);
        for step in 0..count {
            match places[(self.placed + step) % places.len()] {
                (pid, None) => self.place(pid, sample),
                (_, Some(id)) => self.place_vcpu(id, sample),
            }
        }
        self.placed = self.placed.wrapping_add(count);
        self.bounds.keep_groups(&self.table.groups());
    }

    /// Looks in which group a process is.
    pub(in crate::host) fn place(&mut self, pid: Pid, sample: &mut Sample) {
        let Some(group) = self.bounds.group_of(pid) else { return };
        let Some(process) = self.table.processes.get_mut(&pid) else { return };
        let before = std::mem::replace(&mut process.group, group);
        self.regrouped(&self.table.threads_of(pid), before, group, sample);
    }

    /// Threads are in another group than before, perhaps.
    pub(in crate::host) fn regrouped(
        &mut self,
        ids: &BTreeSet<ThreadId>,
        before: GroupId,
        group: GroupId,
        sample: &mut Sample,
    ) {
        if before != group {
            let before = self.bounds.active(before).cloned();
            // A group that is new has not been looked at.
            self.bounds.look(&self.table.groups());
            if let Some(before) = before.filter(|before| self.bounds.active(group) != Some(before)) {
                self.rebase(ids, group, &before, sample);
            }
        }
    }

    /// The CPUs that may be used may have changed, and with them masks that nobody else set.
    pub(in crate::host) fn look_at_usable(&mut self, sample: &mut Sample) {
        for Changed { group, before } in self.bounds.look(&self.table.groups()) {
            self.rebase(&self.table.threads_in(group), group, &before, sample);
        }
        if *self.bounds.usable() != self.told_usable {
            self.told_usable = self.bounds.usable().clone();
            sample.notices.push(Notice::Usable(self.told_usable.clone()));
        }
    }

    /// Reads these threads; how many could not be read.
    fn read_threads(&mut self, ids: &[ThreadId], wanted: &Wanted, sample: &mut Sample) -> u32 {
        let mut unread = 0;
        for &id in ids {
            let Some(thread) = self.table.threads.get(&id) else { continue };
            if thread.wish == Wish::Untagged {
                continue;
            }
            if let (Some(on), Some(place)) = (&wanted.on, thread.place())
                && !on.contains(place)
            {
                continue;
            }
            match self.read_thread(id, wanted, sample) {
                Ok(read) => sample.threads.push(read),
                Err(Unread::Gone) => self.end_thread(id, sample),
                Err(Unread::Trouble) => unread += 1,
            }
        }
        unread
    }

    fn read_thread(
        &mut self,
        id: ThreadId,
        wanted: &Wanted,
        sample: &mut Sample,
    ) -> Result<ThreadSample, Unread> {
        let Some(thread) = self.table.threads.get_mut(&id) else { return Err(Unread::Gone) };
        let (pid, tid, start) = (thread.pid, thread.tid, thread.start);
        let kept = thread.files.tell_who();
        let now = thread.files.counters(self.folder.as_fd(), (pid, tid), self.source, &mut self.budget)?;
        let before = thread.last.replace(now);
        let ran = before != Some(now);
        // Whoever goes to another CPU is put on it.
        let stayed = before.is_some_and(|before| now.slices.is_some() && now.slices == before.slices);
        let backwards = before.is_some_and(|before| now.run < before.run);
        // Opened anew, the file may be another thread's with the same number.
        if (!kept && before.is_some() || backwards)
            && process::thread_stat(&self.proc, pid, tid).map(|stat| stat.start).ok() != Some(start)
        {
            return Err(Unread::Gone);
        }
        let Some(thread) = self.table.threads.get_mut(&id) else { return Err(Unread::Gone) };
        let mut seen_stat: Option<Stat> = None;
        if let Some(only) = thread.only_cpu() {
            thread.cpu = Some(only);
        } else if wanted.places && (ran && !(stayed && thread.placed) || thread.cpu.is_none()) {
            seen_stat = thread.files.stat(self.folder.as_fd(), (pid, tid), &mut self.budget)?;
            thread.cpu = seen_stat.as_ref().and_then(|stat| stat.last_cpu).or(thread.cpu);
            thread.placed = seen_stat.as_ref().is_some_and(|stat| stat.last_cpu.is_some());
        } else if !stayed {
            // It may be elsewhere by now.
            thread.placed = false;
        }
        thread.compared &= !ran;
        thread.still = if ran { 0 } else { thread.still.saturating_add(1) };
        // Who was ready and has not run since still is: a thread that waits for a CPU cannot fall asleep.
        let asked = !ran && before.is_some() && now.wait.is_some() && is_asked(thread.still, tid);
        if asked && thread.ready != Some(true) && seen_stat.is_none() {
            seen_stat = thread.files.stat(self.folder.as_fd(), (pid, tid), &mut self.budget)?;
        }
        thread.ready = match &seen_stat {
            _ if ran => None,
            Some(stat) if asked => Some(stat.state == State::Running),
            _ => thread.ready,
        };
        let ready = thread.ready;
        if !wanted.sleeps {
            // Read before a pause in asking, it would be told as if it were of now.
            thread.voluntary = None;
        } else if ran || thread.voluntary.is_none() {
            let file = procfs::open(&self.folder, &format!("{pid}/task/{tid}/status"))?;
            let status = procfs::read_all(file, &mut self.text)?;
            thread.voluntary = counters::switches(status).0.or(thread.voluntary);
        }
        if let (Some(cpu), true) = (thread.cpu, ran) {
            let run = now.run.less(before.map_or(Span::ZERO, |before| before.run));
            self.audit.ran(id, thread, cpu, run);
        }
        let read = ThreadSample {
            id,
            run: now.run,
            wait: now.wait,
            slices: now.slices,
            voluntary: thread.voluntary,
            cpu: thread.cpu,
            ready,
            counts: None,
        };
        if let Some(stat) = seen_stat {
            self.renamed(id, &stat, sample);
        }
        Ok(read)
    }

    fn read_cpus(&mut self) -> Vec<CpuSample> {
        if self.stat_file.is_none() {
            self.stat_file = procfs::open(&self.folder, "stat").ok();
        }
        let Some(file) = &self.stat_file else { return Vec::new() };
        let read = procfs::read_all(file, &mut self.text).ok().and_then(|text| LoadSample::parse(text).ok());
        let span = |ticks: u64| Span::from(process::from_ticks(ticks));
        read.map(|read| {
            let cpus = read.cpus.into_iter();
            cpus.map(|(cpu, ticks)| {
                let busy = [ticks.user, ticks.nice, ticks.system, ticks.irq, ticks.softirq];
                let busy = busy.into_iter().fold(0u64, u64::saturating_add);
                CpuSample { cpu, busy: span(busy), steal: Some(span(ticks.steal)) }
            })
            .collect()
        })
        .unwrap_or_default()
    }

    /// Whether masks are as they should be.
    fn check_masks(&mut self, sample: &mut Sample) {
        // A mask is looked at before each move too; looking at all of them is half of what a short look costs.
        // Whoever binds itself runs to do so. What others did to a thread that sleeps matters when it wakes, and is seen then,
        // or at a full look.
        let all = self.finder.is_full_at(sample.at);
        if !all && self.masks_at.is_some_and(|at| sample.at.since(at) < MASKS_EVERY) {
            return;
        }
        self.masks_at = Some(sample.at);
        let due: Vec<ThreadId> =
            self.table.threads.iter().filter(|(_, t)| all || !t.compared).map(|(id, _)| *id).collect();
        for id in due {
            let Some(thread) = self.table.threads.get(&id) else { continue };
            let Ok(now) = self.mask(thread.pid, thread.tid) else { continue };
            if !self.was_set(id, now, sample)
                && let Some(thread) = self.table.threads.get_mut(&id)
            {
                thread.compared = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_asked_seldom_and_in_turn() {
        let asked =
            |from: u32, to: u32, tid: u32| (from..to).filter(|still| is_asked(*still, Tid(tid))).count();
        for tid in 1..200 {
            assert_eq!(asked(1, STILL + 1, tid), 8, "each time at first");
            assert_eq!(
                asked(STILL + 1, ASLEEP, tid),
                (ASLEEP / STILL - 1) as usize - usize::from(tid % 8 == 0)
            );
            assert_eq!(asked(1_000, 1_000 + 4 * ASLEEP, tid), 4);
        }
        // A pool that fell asleep together is not asked together.
        let most =
            (1_000..1_100).map(|still| (0..256).filter(|tid| is_asked(still, Tid(*tid))).count()).max();
        assert_eq!(most, Some(4));
    }
}
