//! Clocks of the CPUs: the time that each ran its threads, accounted and not yet accounted.

/// One CPU's clock.
#[derive(Clone, Copy, Debug)]
struct CpuClock {
    /// Since when its thread runs unaccounted.
    since: u64,
    /// How long it was busy, as far as that is accounted for.
    busy: u64,
    /// The thread that ran last.
    last: u32,
    /// When the scheduler must look at it.
    until: u64,
    /// Looks in a row, while idle, that found no thread to pull.
    looks: u8,
}

/// A clock for each CPU.
#[derive(Debug)]
pub(super) struct CpuClocks(Vec<CpuClock>);

impl CpuClocks {
    pub(super) fn new(cpus: usize) -> Self {
        Self(vec![CpuClock { since: 0, busy: 0, last: u32::MAX, until: u64::MAX, looks: 0 }; cpus])
    }

    /// Since when a CPU's thread runs unaccounted.
    pub(super) fn since(&self, cpu: usize) -> u64 {
        self.0[cpu].since
    }

    /// The time that a CPU was busy, as far as it is accounted for.
    pub(super) fn busy(&self, cpu: usize) -> u64 {
        self.0[cpu].busy
    }

    /// Accounts for the time up to now.
    pub(super) fn account(&mut self, cpu: usize, now: u64) {
        let clock = &mut self.0[cpu];
        clock.busy += now - clock.since;
        clock.since = now;
    }

    /// A thread is put on an idle CPU; whether it is another one than ran there last.
    pub(super) fn begin(&mut self, cpu: usize, thread: usize, now: u64) -> bool {
        let clock = &mut self.0[cpu];
        let other = clock.last != thread as u32;
        (clock.last, clock.since, clock.looks) = (thread as u32, now, 0);
        other
    }

    /// When the scheduler must look at a CPU.
    pub(super) fn until(&self, cpu: usize) -> u64 {
        self.0[cpu].until
    }

    pub(super) fn set_until(&mut self, cpu: usize, until: u64) {
        self.0[cpu].until = until;
    }

    /// Looks in a row of an idle CPU that found no thread to pull.
    pub(super) fn looks(&self, cpu: usize) -> u8 {
        self.0[cpu].looks
    }

    /// One more such look; at most `most` are counted.
    pub(super) fn looked(&mut self, cpu: usize, most: u8) {
        let looks = &mut self.0[cpu].looks;
        *looks = (*looks + 1).min(most);
    }
}
