//! Clocks of the CPUs: the time that each ran its threads, accounted and not yet accounted.

/// Clock of one CPU.
#[derive(Clone, Copy, Debug)]
struct CpuClock {
    /// Start of the running thread's time that is not yet accounted, ns.
    since: u64,
    /// Accounted busy time, ns.
    busy: u64,
    /// Last thread that ran.
    last: u32,
    /// When the scheduler must check the CPU, ns.
    until: u64,
    /// Number of searches in a row, while idle, that found no thread to pull.
    failed_pulls: u8,
}

/// Clock for each CPU.
#[derive(Debug)]
pub(super) struct CpuClocks(Vec<CpuClock>);

impl CpuClocks {
    pub(super) fn new(cpus: usize) -> Self {
        Self(vec![CpuClock { since: 0, busy: 0, last: u32::MAX, until: u64::MAX, failed_pulls: 0 }; cpus])
    }

    /// Returns the start of the running thread's time that is not yet accounted, ns.
    pub(super) fn since(&self, cpu: usize) -> u64 {
        self.0[cpu].since
    }

    /// Returns the accounted busy time of a CPU, ns.
    pub(super) fn busy(&self, cpu: usize) -> u64 {
        self.0[cpu].busy
    }

    /// Accounts the time up to now.
    pub(super) fn account(&mut self, cpu: usize, now: u64) {
        let clock = &mut self.0[cpu];
        clock.busy += now - clock.since;
        clock.since = now;
    }

    /// Notes that a thread is put on an idle CPU. Returns whether another thread ran there last.
    pub(super) fn begin(&mut self, cpu: usize, thread: usize, now: u64) -> bool {
        let clock = &mut self.0[cpu];
        let other = clock.last != thread as u32;
        (clock.last, clock.since, clock.failed_pulls) = (thread as u32, now, 0);
        other
    }

    /// Returns when the scheduler must check a CPU, ns.
    pub(super) fn until(&self, cpu: usize) -> u64 {
        self.0[cpu].until
    }

    pub(super) fn set_until(&mut self, cpu: usize, until: u64) {
        self.0[cpu].until = until;
    }

    /// Returns the number of searches in a row, of an idle CPU, that found no thread to pull.
    pub(super) fn failed_pulls(&self, cpu: usize) -> u8 {
        self.0[cpu].failed_pulls
    }

    /// Counts one more such search; at most `most` are counted.
    pub(super) fn note_failed_pull(&mut self, cpu: usize, most: u8) {
        let failed_pulls = &mut self.0[cpu].failed_pulls;
        *failed_pulls = (*failed_pulls + 1).min(most);
    }
}
