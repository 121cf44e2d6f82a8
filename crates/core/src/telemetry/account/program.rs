//! Account of one program.

use super::{CpuPosition, ThreadAccount};
use crate::ids::{CoreId, OsCpu, ProgramId};
use crate::observe::ProgramInfo;
use crate::set::CpuSet;
use crate::telemetry::balance;
use crate::telemetry::totals::{Change, Totals};
use crate::time::Span;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// Readings needed before the balance is shown. The time of a reading counts for the CPU at its
/// end, so fewer readings would mostly show chance.
const BALANCE_READINGS: u64 = 10;

/// Account of one program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramAccount {
    /// Number of the program.
    pub id: ProgramId,
    /// Description of the program; `None` if the trace lacks it.
    #[serde(flatten)]
    pub info: Option<ProgramInfo>,
    /// Number of living threads.
    pub threads: u64,
    /// Number of living threads that wanted a CPU in the latest readings.
    pub active: u64,
    /// Number of threads that have ended.
    pub ended: u64,
    /// Mean speed of the threads that have a speed now.
    pub speed: Option<f64>,
    /// Lowest of these speeds.
    pub slowest: Option<f64>,
    /// Share of the wanted CPU time in which the threads waited, since the program was first seen.
    pub waited: Option<f64>,
    /// Lowest over highest CPU time of the program's cores so far; `None` before the tenth reading.
    pub balance: Option<f64>,
    /// Slowest over mean progress of the active threads: the balance at the end if all goes on as
    /// now.
    pub expected: Option<f64>,
    /// Times and migrations of its threads while they were watched, ended ones included, by the
    /// core's place in the model.
    #[serde(flatten, serialize_with = "without_watched")]
    pub totals: Totals<CoreId>,
    /// Moves of the program's threads that a policy decided and the host applied.
    pub moves: u64,
    /// Largest number of threads that were active at the same time.
    #[serde(skip)]
    active_max: u64,
    /// Samples in which any of the threads had run.
    #[serde(skip)]
    readings: u64,
    #[serde(skip)]
    ran: bool,
    /// Moves of the threads that have ended.
    #[serde(skip)]
    moves_ended: u64,
}

/// Serialises the totals of a program. The sum of its threads' watched times means nothing to a
/// reader.
fn without_watched<S: Serializer>(totals: &Totals<CoreId>, to: S) -> Result<S::Ok, S::Error> {
    let mut fields = to.serialize_struct("Totals", 5)?;
    fields.serialize_field("run_ns", &totals.run)?;
    fields.serialize_field("wait_ns", &totals.wait)?;
    fields.serialize_field("migrations", &totals.migrations)?;
    fields.serialize_field("node_migrations", &totals.node_migrations)?;
    fields.serialize_field("run_on_ns", &totals.run_on)?;
    fields.end()
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
            totals: Totals::default(),
            moves: 0,
            active_max: 0,
            readings: 0,
            ran: false,
            moves_ended: 0,
        }
    }

    /// Returns the name of the program; empty if the trace lacks it.
    pub fn name(&self) -> &str {
        self.info.as_ref().map_or("", |info| &info.name)
    }

    pub(super) fn bury(&mut self, thread: &ThreadAccount) {
        self.ended += 1;
        self.moves_ended += thread.moves;
    }

    /// Takes a change of one of the threads, which is on this core now.
    pub(super) fn take(&mut self, change: &Change, core: Option<CoreId>) {
        self.ran |= core.is_some() && change.interval.is_some_and(|interval| interval.run > Span::ZERO);
        self.totals.add(change, core);
    }

    pub(super) fn sum_up(
        &mut self,
        threads: &[&ThreadAccount],
        usable: &CpuSet,
        seats: &BTreeMap<OsCpu, CpuPosition>,
    ) {
        self.moves = self.moves_ended + threads.iter().map(|thread| thread.moves).sum::<u64>();
        self.threads = threads.len() as u64;
        self.waited = self.totals.wait_share();
        let speeds: Vec<f64> = threads.iter().filter_map(|thread| thread.speed).collect();
        self.speed = mean(&speeds);
        self.slowest = least(&speeds);
        let progress: Vec<f64> = threads.iter().filter_map(|thread| thread.progress()).collect();
        self.active = progress.len() as u64;
        self.active_max = self.active_max.max(self.active);
        self.expected = match (least(&progress), mean(&progress)) {
            // A single thread cannot be behind another.
            (Some(least), Some(mean)) if progress.len() > 1 && mean > 0.0 => Some((least / mean).min(1.0)),
            _ => None,
        };
        let may: BTreeSet<CoreId> = cores(threads, usable, seats);
        self.readings += u64::from(std::mem::take(&mut self.ran));
        if self.readings < BALANCE_READINGS {
            return;
        }
        self.balance =
            balance_of_busiest(&self.totals.run_on, self.active_max.min(may.len() as u64)).or(self.balance);
    }
}

/// Returns the cores that the threads may use by their own masks.
fn cores(
    threads: &[&ThreadAccount],
    usable: &CpuSet,
    seats: &BTreeMap<OsCpu, CpuPosition>,
) -> BTreeSet<CoreId> {
    let mut homes: Vec<&CpuSet> = threads.iter().map(|thread| &thread.info.home).collect();
    // Nearly always all masks are equal.
    homes.dedup();
    let home = homes.iter().fold(CpuSet::new(), |sum, home| sum.union(home));
    home.intersection(usable).iter().filter_map(|cpu| seats.get(&cpu)).map(|seat| seat.core).collect()
}

/// Returns the balance over the `count` busiest cores; a core that was never used counts as zero.
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
