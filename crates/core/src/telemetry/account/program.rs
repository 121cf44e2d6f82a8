//! The account of one program.

use super::{Seat, ThreadAccount};
use crate::ids::{CoreId, OsCpu, ProgramId};
use crate::observe::ProgramInfo;
use crate::set::CpuSet;
use crate::telemetry::{add_time, balance};
use crate::time::Span;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The time of a reading counts for the CPU at its end: fewer readings than this would tell where the dice fell.
const BALANCE_READINGS: u64 = 10;

/// The account of one program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramAccount {
    /// Its number.
    pub id: ProgramId,
    /// Who it is; `None` when a trace does not say.
    #[serde(flatten)]
    pub info: Option<ProgramInfo>,
    /// Living threads.
    pub threads: u64,
    /// Those of them that wanted a CPU lately.
    pub active: u64,
    /// Threads that have ended.
    pub ended: u64,
    /// Mean speed of the threads that have one now.
    pub speed: Option<f64>,
    /// The lowest of their speeds.
    pub slowest: Option<f64>,
    /// The share of the wanted time that its threads waited, all the time it was watched.
    pub waited: Option<f64>,
    /// Lowest over highest time of its cores, so far; `None` before the tenth reading.
    pub balance: Option<f64>,
    /// Slowest over mean progress of its active threads: the balance at the end if all goes on as now.
    pub expected: Option<f64>,
    /// Time on CPUs while it was watched.
    #[serde(rename = "run_ns")]
    pub run: Span,
    /// Time ready without one.
    #[serde(rename = "wait_ns")]
    pub wait: Option<Span>,
    /// Changes of core that were seen.
    pub migrations: u64,
    /// Those of them to another node.
    pub node_migrations: u64,
    /// How often its threads were moved by decision.
    pub moves: u64,
    /// Its time on each core, by the core's place in the model.
    #[serde(rename = "run_on_ns")]
    pub run_on: BTreeMap<CoreId, Span>,
    /// The most threads that were active at a time.
    #[serde(skip)]
    active_max: u64,
    /// Looks at which any of its threads had run.
    #[serde(skip)]
    readings: u64,
    #[serde(skip)]
    ran: bool,
    #[serde(skip)]
    buried: Sums,
}

/// What ended threads leave behind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    run: Span,
    wait: Option<Span>,
    migrations: u64,
    node_migrations: u64,
    moves: u64,
}

impl Sums {
    fn add(&mut self, thread: &ThreadAccount) {
        self.run = self.run + thread.run;
        if let Some(wait) = thread.wait {
            self.wait = Some(self.wait.unwrap_or_default() + wait);
        }
        self.migrations += thread.migrations;
        self.node_migrations += thread.node_migrations;
        self.moves += thread.moves;
    }
}

impl ProgramAccount {
    pub(super) fn new(id: ProgramId) -> Self {
        Self {
            id,
            info: None,
            threads: 0,
            active: 0,
            ended: 0,
            speed: None,
            slowest: None,
            waited: None,
            balance: None,
            expected: None,
            run: Span::ZERO,
            wait: None,
            migrations: 0,
            node_migrations: 0,
            moves: 0,
            run_on: BTreeMap::new(),
            active_max: 0,
            readings: 0,
            ran: false,
            buried: Sums::default(),
        }
    }

    /// What to call it.
    pub fn name(&self) -> &str {
        self.info.as_ref().map_or("", |info| &info.name)
    }

    pub(super) fn bury(&mut self, thread: &ThreadAccount) {
        self.ended += 1;
        self.buried.add(thread);
    }

    pub(super) fn ran_on(&mut self, core: CoreId, run: Span) {
        add_time(&mut self.run_on, core, run);
        self.ran |= run > Span::ZERO;
    }

    pub(super) fn sum_up(
        &mut self,
        threads: &[&ThreadAccount],
        usable: &CpuSet,
        seats: &BTreeMap<OsCpu, Seat>,
    ) {
        let mut sums = self.buried;
        for thread in threads {
            sums.add(thread);
        }
        let Sums { run, wait, migrations, node_migrations, moves } = sums;
        (self.run, self.wait, self.moves) = (run, wait, moves);
        (self.migrations, self.node_migrations) = (migrations, node_migrations);
        self.threads = threads.len() as u64;
        self.waited = wait.and_then(|wait| wait.share_of(run + wait));
        let speeds: Vec<f64> = threads.iter().filter_map(|thread| thread.speed).collect();
        self.speed = mean(&speeds);
        self.slowest = least(&speeds);
        let progress: Vec<f64> = threads.iter().filter_map(|thread| thread.progress()).collect();
        self.active = progress.len() as u64;
        self.active_max = self.active_max.max(self.active);
        self.expected = match (least(&progress), mean(&progress)) {
            // One thread alone cannot be behind another.
            (Some(least), Some(mean)) if progress.len() > 1 && mean > 0.0 => Some((least / mean).min(1.0)),
            _ => None,
        };
        let may: BTreeSet<CoreId> = cores(threads, usable, seats);
        self.readings += u64::from(std::mem::take(&mut self.ran));
        if self.readings < BALANCE_READINGS {
            return;
        }
        self.balance =
            balance_of_busiest(&self.run_on, self.active_max.min(may.len() as u64)).or(self.balance);
    }
}

/// The cores that any of these threads may use by its program's own will.
fn cores(threads: &[&ThreadAccount], usable: &CpuSet, seats: &BTreeMap<OsCpu, Seat>) -> BTreeSet<CoreId> {
    let mut homes: Vec<&CpuSet> = threads.iter().map(|thread| &thread.info.home).collect();
    // Nearly always all are alike.
    homes.dedup();
    let home = homes.iter().fold(CpuSet::new(), |sum, home| sum.union(home));
    home.intersection(usable).iter().filter_map(|cpu| seats.get(&cpu)).map(|seat| seat.core).collect()
}

/// Balance over the `count` busiest cores; one that was never used counts nothing.
fn balance_of_busiest(run_on: &BTreeMap<CoreId, Span>, count: u64) -> Option<f64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count < 2 {
        return None;
    }
    let mut times: Vec<Span> = run_on.values().copied().collect();
    times.sort_unstable_by(|one, other| other.cmp(one));
    let unused = (times.len() < count).then_some(Span::ZERO);
    balance(times.into_iter().take(count).chain(unused))
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}
