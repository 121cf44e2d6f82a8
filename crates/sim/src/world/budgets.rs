//! Budgets of holds: the size of a team that is about to start, from the observed processes of its
//! hold.
//!
//! The decisions are those of [`trimtab_core::budget`], as in the preload library: a process
//! examines the others when it opens a team, at most once a millisecond, and keeps a track of each.
//! Left out: the cost of that, and processes with several teams at a time.

use std::collections::BTreeMap;
use trimtab_core::budget::page::{COUNT_MAX, State};
use trimtab_core::budget::share::{demand, grant, share};
use trimtab_core::budget::track::{EXAMINE_NS_MIN, Track};
use trimtab_core::ids::Pu;
use trimtab_core::set::Set;

/// Budgets, by the number of the hold.
#[derive(Debug, Default)]
pub(super) struct Budgets(BTreeMap<u32, HoldBudget>);

/// Budget of a hold.
#[derive(Debug, Default)]
struct HoldBudget {
    /// CPUs that one of its processes may use.
    cpus: Set<Pu>,
    /// Slots of processes, in the order of the page.
    slots: Vec<BudgetSlot>,
}

/// Slot of a process, with its own memory.
#[derive(Debug)]
struct BudgetSlot {
    program: usize,
    state: State,
    /// Threads that it may have, when it last examined the others.
    share: u32,
    /// Time from which it examines them again, ns.
    next: u64,
    /// By slot: the process that was observed there, and its track.
    tracks: Vec<(usize, Track)>,
    /// Last time at which another process took it for one that waits while its team was open, ns:
    /// it had got no CPU for some milliseconds.
    passed_over: u64,
}

/// Process of a hold, as another process observes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessUse {
    pub(super) program: usize,
    /// CPU time of all its threads, ns.
    pub(super) cpu_ns: u64,
    /// Whether its initial thread is on a CPU or ready for one.
    pub(super) is_ready: bool,
}

impl Budgets {
    /// Adds the CPUs that a process of a hold may use.
    pub(super) fn add_cpus(&mut self, hold: u32, cpus: &Set<Pu>) {
        let budget = self.0.entry(hold).or_default();
        budget.cpus = budget.cpus.union(cpus);
    }

    /// Returns the cores of a hold.
    pub(super) fn cores(&self, hold: u32) -> u32 {
        let cpus = self.0.get(&hold).map_or(0, |budget| budget.cpus.len());
        u32::try_from(cpus).unwrap_or(COUNT_MAX).clamp(1, COUNT_MAX)
    }

    /// Returns the processes that have or had a slot.
    pub(super) fn programs(&self, hold: u32) -> impl Iterator<Item = usize> + '_ {
        self.0.get(&hold).into_iter().flat_map(|budget| budget.slots.iter().map(|slot| slot.program))
    }

    /// Returns when another process last took this one for one that waits while its team was open,
    /// ns; 0 if none did.
    pub(super) fn passed_over(&self, hold: u32, program: usize) -> u64 {
        let mut slots = self.0.get(&hold).into_iter().flat_map(|budget| &budget.slots);
        slots.find(|slot| slot.program == program).map_or(0, |slot| slot.passed_over)
    }

    /// Returns whether a process would examine the others if it opened a team now.
    pub(super) fn is_due(&self, hold: u32, program: usize, now: u64) -> bool {
        let mut slots = self.0.get(&hold).into_iter().flat_map(|budget| &budget.slots);
        slots.find(|slot| slot.program == program).is_none_or(|slot| now >= slot.next)
    }

    /// Opens a team of a process that wants this many threads, and returns its size. `alive` is the
    /// processes of the hold that have not ended, if an examination is due.
    pub(super) fn open(
        &mut self,
        hold: u32,
        program: usize,
        wanted: u32,
        now: u64,
        alive: &[ProcessUse],
    ) -> u32 {
        let cores = self.cores(hold);
        let Some(budget) = self.0.get_mut(&hold) else { return wanted };
        let own = budget.slot(program, alive);
        let wants = wanted.min(COUNT_MAX);
        budget.slots[own].state.wants = wants;
        budget.slots[own].state.teams = budget.slots[own].state.teams.wrapping_add(1);
        if now >= budget.slots[own].next {
            budget.examine(own, cores, now, alive);
        }
        let slot = &mut budget.slots[own];
        slot.state.computing = grant(slot.share, 0, wants, None);
        slot.state.computing
    }

    /// Closes the team of a process.
    pub(super) fn close(&mut self, hold: u32, program: usize) {
        let slots = self.0.get_mut(&hold).map(|budget| &mut budget.slots);
        if let Some(slot) = slots.into_iter().flatten().find(|slot| slot.program == program) {
            slot.state.computing = 0;
        }
    }
}

impl HoldBudget {
    /// Returns the slot of a process: its own, or that of a process that has ended, or a new one.
    /// `alive` names those that have not ended, once a process is new.
    fn slot(&mut self, program: usize, alive: &[ProcessUse]) -> usize {
        if let Some(own) = self.slots.iter().position(|slot| slot.program == program) {
            return own;
        }
        let state = State::default();
        let new = BudgetSlot { program, state, share: 1, next: 0, tracks: Vec::new(), passed_over: 0 };
        let ended = |slot: &BudgetSlot| alive.iter().all(|process| process.program != slot.program);
        match self.slots.iter().position(ended) {
            Some(at) => {
                self.slots[at] = new;
                at
            }
            None => {
                self.slots.push(new);
                self.slots.len() - 1
            }
        }
    }

    /// Computes the share of a process from its observations of the others.
    fn examine(&mut self, own: usize, cores: u32, now: u64, alive: &[ProcessUse]) {
        let mut tracks = std::mem::take(&mut self.slots[own].tracks);
        let mut demands: Vec<u32> = Vec::with_capacity(self.slots.len());
        for (at, slot) in self.slots.iter().enumerate() {
            let fresh = (slot.program, Track::new(slot.state.teams));
            if tracks.len() == at {
                tracks.push(fresh);
            }
            if tracks[at].0 != slot.program {
                tracks[at] = fresh;
            }
            let process = alive.iter().find(|process| process.program == slot.program && at != own);
            demands.push(process.map_or(0, |process| {
                // A track's time 0 is that of a process that was not observed yet.
                let observed = tracks[at].1.observe(slot.state, process.cpu_ns, now + 1, || process.is_ready);
                demand(&observed, cores)
            }));
        }
        for (slot, _) in self.slots.iter_mut().zip(&demands).filter(|(_, demand)| **demand == 0) {
            if slot.state.computing > 0 {
                slot.passed_over = now;
            }
        }
        let (before, after) = (demands[..own].iter().copied(), demands[own + 1..].iter().copied());
        let slot = &mut self.slots[own];
        // As if it wanted all cores: a team gets no more than it wants in any case.
        slot.share = share(cores, before, cores, after);
        slot.next = now + EXAMINE_NS_MIN;
        slot.tracks = tracks;
    }
}
