//! Model of the share that each CPU gives to each thread on it, now and after a move.
//!
//! Unit: work per second, 1 for a thread alone on the fastest kind of core.
//!
//! Problem: a move must be judged before it is made, also a move to a CPU that holds none of our
//! threads. The paper counts such a CPU as fast, which doubles threads up beside the one core on
//! which another program runs.
//!
//! Idea: a CPU divides its time equally among all threads that want it. A CPU of weight w with n of
//! our threads and f others gives w / (n + f) to each. n is known. f follows from how much our
//! threads wait there (1 / speed - n), or, on a CPU without our threads, from how busy the CPU is.
//!
//! Properties: a CPU that was not read keeps its last estimate. A CPU without any estimate is
//! marked as unknown, and no thread is moved there. Measurements that include a move are not used.
//! Other programs that do not always run count as a fraction. Threads take turns on the CPUs, so
//! each gets the mean in the end. A move is [`MoveEffect::Better`] if the two CPUs together then
//! give more to our threads, or the same in sum and the slower CPU clearly more. A move is harmless
//! if neither CPU gives less.

use super::cpu_table::{CpuIndex, CpuTable};
use super::thread_table::ThreadTable;
use crate::observe::{Metric, Observation};
use crate::time::{Moment, Span};

/// Load of other programs below this value is measurement noise: at speed 0.87, one timer tick in
/// 30.
const NOISE_MAX: f64 = 0.15;

/// Seconds over which the usual share of a CPU is measured: several times the time in which the
/// kernel moves a hog if it can.
const USUAL_SECONDS: f64 = 0.2;

/// Seconds over which the busy time of a CPU is summed. CPU time is counted in ticks of 10 ms; over
/// this time, one tick more or less is below [`NOISE_MAX`].
const BUSY_SECONDS_MIN: f64 = 0.08;

/// Relative differences below this value do not count: a fiftieth is the loss of sampling at 250
/// ticks a second and samples every half second.
const DIFFERENCE_MIN: f64 = 0.02;

/// Smallest relative gain that is worth a move: the measured share of a thread beside another
/// program varies by the same amount.
const GAIN_MIN: f64 = 0.1;

/// Effect of a move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum MoveEffect {
    /// The two CPUs together give less, or the same with the slower CPU slower.
    Worse,
    /// The same number of threads is slow, but not the same threads.
    Same,
    /// The two CPUs together give more, or the same with the slower CPU faster.
    Better,
}

/// Load of the CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct ShareModel {
    ours: Vec<u32>,
    foreign: Vec<Option<f64>>,
    weight: Vec<f64>,
    first: Vec<usize>,
    threads: Vec<usize>,
    usual: Vec<(f64, f64)>,
    /// By CPU without our threads: the seconds for which its time was read, and the seconds of
    /// these that other programs used, since the last estimate.
    read_since: Vec<(f64, f64)>,
    changed: Vec<Moment>,
    at: Moment,
}

impl ShareModel {
    /// Processes an observation.
    pub(super) fn observe(&mut self, table: &ThreadTable, seen: &Observation<'_>) {
        let cpu_table = &table.cpu_table;
        let cpus = cpu_table.len();
        self.foreign.resize(cpus, None);
        if self.weight.is_empty() {
            self.weight = (0..cpus).map(|at| cpu_table.entry(CpuIndex::at(at)).weight).collect();
        }
        self.occupants(table);
        self.at = seen.at;
        self.changed.resize(cpus, Moment::default());
        self.usual.resize(cpus, (0.0, 0.0));
        self.read_since.resize(cpus, (0.0, 0.0));
        let before = std::mem::replace(&mut self.ours, vec![0; cpus]);
        let mut read = vec![(0.0, 0u32, 0.0); cpus];
        let mut run = vec![0.0; cpus];
        for thread in &table.threads {
            let Some(cpu) = thread.cpu else { continue };
            if thread.active() {
                self.ours[cpu.index()] += 1;
            }
            if let Some(rates) = &thread.rates {
                run[cpu.index()] += rates.run;
            }
        }
        for (at, (before, ours)) in before.iter().zip(&self.ours).enumerate() {
            if before != ours {
                self.changed[at] = seen.at;
            }
        }
        for thread in &table.threads {
            let (Some(cpu), Some(rates)) = (thread.cpu, &thread.rates) else { continue };
            if let Some(speed) =
                thread.speed(Metric::RunWait).filter(|_| thread.active() && self.clean(cpu, rates.span))
            {
                read[cpu.index()].0 += speed;
                read[cpu.index()].1 += 1;
                read[cpu.index()].2 = rates.span.seconds();
            }
        }
        for (at, (sum, count, seconds)) in read.into_iter().enumerate() {
            let ours = self.ours[at];
            if count > 0 && count == ours && sum > 0.0 {
                self.estimate_from_waits(at, f64::from(count) / sum - f64::from(ours), seconds);
            }
        }
        for view in &seen.cpus {
            let (Some(cpu), Some((busy, span))) = (cpu_table.find(view.cpu), view.busy.zip(view.span)) else {
                continue;
            };
            let at = cpu.index();
            if self.ours[at] > 0 || !self.clean(cpu, span) {
                // Our threads were there for a part of the time.
                self.read_since[at] = (0.0, 0.0);
                continue;
            }
            let (long, others) = &mut self.read_since[at];
            *long += span.seconds();
            *others += (busy - run[at]) * span.seconds();
            if *long >= BUSY_SECONDS_MIN {
                let busy = (*others / *long).clamp(0.0, 1.0);
                self.read_since[at] = (0.0, 0.0);
                self.estimate_from_busy(at, busy);
            }
        }
    }

    /// Estimates the load of a CPU without our threads from its busy share. A CPU that is always
    /// busy has at least one thread that always wants it.
    fn estimate_from_busy(&mut self, at: usize, busy: f64) {
        let most = self.foreign[at].unwrap_or(0.0).max(1.0);
        let wants = if busy < 1.0 { busy / (1.0 - busy) } else { most };
        self.foreign[at] = Some(if wants < NOISE_MAX { 0.0 } else { wants.min(most) });
    }

    fn estimate_from_waits(&mut self, at: usize, others: f64, seconds: f64) {
        let others = if others < NOISE_MAX { 0.0 } else { others };
        let (mean, known) = &mut self.usual[at];
        *known = (*known + seconds).min(USUAL_SECONDS);
        *mean += (others - *mean) * (seconds / *known).min(1.0);
        self.foreign[at] = Some(match self.foreign[at] {
            Some(before) if (before - others).abs() > NOISE_MAX => (before + others) / 2.0,
            _ => others,
        });
    }

    /// Sorts the threads by CPU once, so that the threads of a CPU are a slice.
    fn occupants(&mut self, table: &ThreadTable) {
        let cpus = table.cpu_table.len();
        self.first = vec![0; cpus + 1];
        for cpu in table.threads.iter().filter_map(|thread| thread.cpu) {
            self.first[cpu.index() + 1] += 1;
        }
        for at in 0..cpus {
            self.first[at + 1] += self.first[at];
        }
        let mut next = self.first.clone();
        self.threads = vec![0; self.first[cpus]];
        for (i, thread) in table.threads.iter().enumerate() {
            if let Some(cpu) = thread.cpu {
                self.threads[next[cpu.index()]] = i;
                next[cpu.index()] += 1;
            }
        }
    }

    /// Returns the threads on a CPU at the last sample.
    pub(super) fn on(&self, cpu: CpuIndex) -> &[usize] {
        &self.threads[self.first[cpu.index()]..self.first[cpu.index() + 1]]
    }

    /// Returns the number of our computing threads on a CPU, including moves of this turn.
    pub(super) fn ours(&self, cpu: CpuIndex) -> u32 {
        self.ours[cpu.index()]
    }

    /// Returns the loads for the initial placement: the numbers of our threads and of others, 0
    /// where the latter is unknown.
    pub(super) fn loads(&self) -> (Vec<u32>, Vec<f64>) {
        (self.ours.clone(), self.foreign.iter().map(|others| others.unwrap_or(0.0)).collect())
    }

    /// Returns the number of other threads on a CPU; `None` if unknown.
    pub(super) fn foreign(&self, cpu: CpuIndex) -> Option<f64> {
        self.foreign[cpu.index()]
    }

    /// Returns the share that a CPU gives to each of `ours` threads.
    pub(super) fn each(&self, cpu: CpuIndex, ours: u32) -> f64 {
        let at = cpu.index();
        self.weight[at] / (f64::from(ours.max(1)) + self.foreign[at].unwrap_or(0.0))
    }

    /// Returns the share that a CPU gives to each thread that is there now.
    pub(super) fn now(&self, cpu: CpuIndex) -> f64 {
        self.each(cpu, self.ours(cpu))
    }

    /// Returns whether a measurement over the time up to now describes the present threads of a
    /// CPU: it began after the last change.
    pub(super) fn clean(&self, cpu: CpuIndex, over: Span) -> bool {
        over <= self.at.since(self.changed[cpu.index()])
    }

    /// Returns the share that a CPU usually gave to the present number of threads, over the last
    /// tenths of a second; `None` if not known yet.
    pub(super) fn usual(&self, cpu: CpuIndex) -> Option<f64> {
        let (others, known) = self.usual[cpu.index()];
        (known >= USUAL_SECONDS / 2.0)
            .then(|| self.weight[cpu.index()] / (f64::from(self.ours(cpu).max(1)) + others))
    }

    /// Returns the share that a CPU would give to each thread that is there now without other
    /// programs.
    pub(super) fn alone(&self, cpu: CpuIndex) -> f64 {
        self.weight[cpu.index()] / f64::from(self.ours(cpu).max(1))
    }

    /// Returns the effect of moving one thread from one CPU to another.
    pub(super) fn worth(&self, from: CpuIndex, to: CpuIndex) -> MoveEffect {
        let (here, there) = (self.ours(from), self.ours(to));
        if here == 0 || self.foreign(to).is_none() && there == 0 {
            return MoveEffect::Worse;
        }
        let both = |here: u32, there: u32| {
            let each = |cpu, ours: u32| (ours > 0).then(|| self.each(cpu, ours));
            let (here_each, there_each) = (each(from, here), each(to, there));
            let least = here_each.into_iter().chain(there_each).fold(f64::INFINITY, f64::min);
            let sum =
                f64::from(here) * here_each.unwrap_or(0.0) + f64::from(there) * there_each.unwrap_or(0.0);
            (least, sum)
        };
        let (before, after) = (both(here, there), both(here - 1, there + 1));
        let compare = |before: f64, after: f64| {
            if after > before * (1.0 + GAIN_MIN) {
                MoveEffect::Better
            } else if after < before * (1.0 - DIFFERENCE_MIN) {
                MoveEffect::Worse
            } else {
                MoveEffect::Same
            }
        };
        match compare(before.1, after.1) {
            MoveEffect::Same => compare(before.0, after.0),
            other => other,
        }
    }

    /// Records a move that was decided.
    pub(super) fn moved(&mut self, from: CpuIndex, to: CpuIndex) {
        self.ours[from.index()] = self.ours[from.index()].saturating_sub(1);
        self.changed[from.index()] = self.at;
        self.came(to);
    }

    /// Records a thread that had no CPU.
    pub(super) fn came(&mut self, to: CpuIndex) {
        self.ours[to.index()] += 1;
        self.changed[to.index()] = self.at;
    }

    /// Records an exchange that was decided.
    pub(super) fn exchanged(&mut self, one: CpuIndex, other: CpuIndex) {
        self.changed[one.index()] = self.at;
        self.changed[other.index()] = self.at;
    }
}

/// Returns whether a CPU may be used, thread `i` may use it, and the thread can be moved now: both
/// halves of an exchange need this.
pub(super) fn fits(cpu_table: &CpuTable, table: &ThreadTable, i: usize, cpu: CpuIndex) -> bool {
    cpu_table.is_open(cpu) && table.threads[i].free() && table.may(i, cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    /// CPUs with these numbers of our threads and of others.
    fn shares(cpus: &[(u32, Option<f64>)]) -> ShareModel {
        ShareModel {
            ours: cpus.iter().map(|cpu| cpu.0).collect(),
            foreign: cpus.iter().map(|cpu| cpu.1).collect(),
            weight: vec![1.0; cpus.len()],
            ..ShareModel::default()
        }
    }

    #[test]
    fn moves_are_judged_by_the_sum_of_the_shares() {
        let worth = |here, there| shares(&[here, there]).worth(CpuIndex::at(0), CpuIndex::at(1));
        assert_eq!(
            worth((2, Some(0.0)), (1, Some(0.0))),
            MoveEffect::Same,
            "three on two: others are slow then"
        );
        assert_eq!(worth((2, Some(0.0)), (0, Some(0.0))), MoveEffect::Better);
        assert_eq!(
            worth((2, Some(0.0)), (0, Some(1.0))),
            MoveEffect::Better,
            "as slow beside the hog, and the other is fast"
        );
        assert_eq!(
            worth((1, Some(1.0)), (1, Some(0.0))),
            MoveEffect::Worse,
            "doubling up beside a hog that is alone"
        );
        assert_eq!(
            worth((1, Some(1.1)), (1, Some(0.0))),
            MoveEffect::Worse,
            "as fast as before for the one, half as fast for the other: seen to bind both to one core beside a hog"
        );
        assert_eq!(worth((2, Some(1.0)), (1, Some(0.0))), MoveEffect::Worse, "two of three beside the hog");
        assert_eq!(worth((1, Some(0.0)), (0, Some(0.0))), MoveEffect::Same);
        assert_eq!(worth((2, Some(0.0)), (0, None)), MoveEffect::Worse, "what is not known is not free");
        assert_eq!(worth((0, Some(0.0)), (1, Some(0.0))), MoveEffect::Worse, "no thread to move");
    }

    #[test]
    fn slow_cores_weigh_less() {
        let mut cpus = shares(&[(2, Some(0.0)), (0, Some(0.0))]);
        cpus.weight[1] = 0.4;
        assert_eq!(
            cpus.worth(CpuIndex::at(0), CpuIndex::at(1)),
            MoveEffect::Better,
            "0.7 each in turns, and 0.5 before"
        );
        cpus.weight[1] = 0.05;
        assert_eq!(
            cpus.worth(CpuIndex::at(0), CpuIndex::at(1)),
            MoveEffect::Worse,
            "hardly more in all, and one stands"
        );
    }

    #[test]
    fn the_share_of_an_empty_seat_follows_from_its_load() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut observer = crate::observe::Observer::new(machine.cpus());
        let mut table = ThreadTable::new(&machine);
        let mut cpus = ShareModel::default();
        for (ms, busy) in [(0, 0), (100, 100), (200, 130)] {
            let cpu = |at: u32, busy: u64| crate::observe::CpuSample {
                cpu: crate::ids::OsCpu(at),
                busy: Span::from_ms(busy),
                steal: None,
            };
            let at = Moment(ms * 1_000_000);
            let sample =
                crate::observe::Sample { at, cpus: vec![cpu(0, busy), cpu(1, 0)], ..Default::default() };
            observer.take(&sample, &[]);
            let seen = observer.observation();
            table.update(&seen);
            cpus.observe(&table, &seen);
            let each = cpus.each(CpuIndex::at(0), 1);
            match ms {
                0 => assert_eq!(cpus.foreign(CpuIndex::at(0)), None),
                100 => assert!((each - 0.5).abs() < 1e-9, "always busy: one hog at least, {each}"),
                _ => assert!((each - 0.7).abs() < 1e-9, "busy for three tenths, {each}"),
            }
        }
        assert_eq!(cpus.foreign(CpuIndex::at(1)), Some(0.0));
    }
}
