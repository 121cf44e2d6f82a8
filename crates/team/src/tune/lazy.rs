//! Lazy tuning: measurement of algorithms in the calls of a running program.
//!
//! **Problem.** A user cannot tune in advance for calls that are not known in advance. But a call
//! belongs to all ranks: if one of them tried another algorithm than the rest, they would deadlock.
//!
//! **Idea.** Calls of a cell (kind, size class, call class) are counted, and the count alone
//! decides the algorithm of the next one: candidates run in turns
//! ([`super::judge::CandidateTrial`]). Each rank notes the times at which it entered and left, by
//! the machine's clock. When a round is over the ranks exchange their notes, at the beginning of
//! the cell's next call. The time of a call begins when the last rank enters and ends when the last
//! rank leaves, so that a late rank makes no algorithm seem slow. All ranks have the same data and
//! reach the same verdict. From then on one call in many is a sample; a choice that has become
//! slower than its record for long is tried again ([`super::judge::Drift`]).
//!
//! **Cost.** A trial has at most [`CALLS_MAX`] calls of each candidate, and ends when they have
//! cost [`TrialLimits::spend`] more than the usual algorithm, by one round at most. Each round adds
//! one exchange of some hundred bytes, each window of samples another, which is one call in
//! [`Drift::WINDOW_SAMPLES`] times [`Drift::every`]. A call that is neither tried nor a sample
//! costs a comparison; in teams that do not tune, the test of a null pointer.
//!
//! **Not tuned.** Loose calls wait only for the data, so the ranks cannot exchange their notes in
//! them; they use the choices for the usual class. Calls beside the flag and others with one
//! algorithm have no choice. Started calls, and calls with buffers in the segment, are counted but
//! not timed.

use super::judge::{CandidateTimes, CandidateTrial, Drift, Selection, TrialLimits};
use super::{Cell as CellFindings, Job, Origin, Tried, candidates, in_force, with};
use crate::Result;
use crate::algorithm_table::{CallClass, Flat, class};
use crate::call::{CollectiveCall, Kind, Sync};
use crate::collectives::RESIDENT_BYTES_MIN;
use crate::endpoint::{BlocksView, Endpoint};
use crate::flag::INLINE_BYTES;
use crate::reduce::{Kernel, Operator, Type};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Rounds in the stages of a trial. The first stage has more than in a race beforehand: a program's
/// calls are not quiet batches.
const STAGES: [usize; 3] = [6, 8, 10];
/// Most calls of each candidate.
pub const CALLS_MAX: usize = STAGES[0] + STAGES[1] + STAGES[2];
/// Microseconds that the trial of one cell may cost.
const SPEND_MAX_US: f64 = 50_000.0;
/// Calls between two checks of a cell without a choice.
const RECHECK_CALLS: u32 = 255;

/// State of the lazy tuning of one team.
pub struct Lazy {
    /// By entry of the table: calls until the next one with something to do; 0 is the next call.
    due: Box<[Cell<u32>]>,
    watched: RefCell<BTreeMap<usize, Watched>>,
    limits: TrialLimits,
    paused: Cell<bool>,
}

/// A cell with a choice.
struct Watched {
    job: Job,
    tried: Vec<Tried>,
    state: CellState,
    /// Times at which this rank entered the calls of this round or window, and at which it left, in
    /// nanoseconds.
    came: Vec<u64>,
    left: Vec<u64>,
    found: Option<CellFindings>,
}

enum CellState {
    Trying(CandidateTrial),
    Settled(Drift),
}

/// Action in a call.
enum CallStep {
    Nothing,
    /// Use this candidate and note the time.
    Try(Tried),
    /// Note the time.
    Sample,
    /// Exchange the notes of this many calls, and decide again.
    Exchange(usize),
}

impl Lazy {
    pub(crate) fn new() -> Self {
        Self::with_limits(TrialLimits { stages: STAGES, spend: SPEND_MAX_US })
    }

    fn with_limits(limits: TrialLimits) -> Self {
        Self {
            due: (0..Flat::ENTRY_COUNT).map(|_| Cell::new(0)).collect(),
            watched: RefCell::default(),
            limits,
            paused: Cell::new(false),
        }
    }

    /// Pauses or resumes tuning. Returns the previous value.
    pub(crate) fn pause(&self, pause: bool) -> bool {
        self.paused.replace(pause)
    }

    /// Carries out and counts a call; `waits` if this rank does nothing else meanwhile.
    ///
    /// # Safety
    /// As [`Endpoint::carry_out`].
    #[inline]
    pub(crate) async unsafe fn carry_out(
        &self,
        endpoint: &Endpoint,
        call: &CollectiveCall,
        blocks: BlocksView,
        waits: bool,
    ) -> Result<()> {
        let barrier = call.kind == Kind::Barrier;
        let manner = if barrier { CallClass::Mine } else { CallClass::of(call.what()) };
        let bytes = if barrier { 0 } else { call.bytes() };
        // A rank that starts such a call must count it exactly as a rank that waits for it.
        let free = matches!(manner, CallClass::Loose | CallClass::HeavyLoose)
            || (bytes <= INLINE_BYTES && !barrier)
            // The data is taken from where it is, which leaves no choice of algorithm.
            || (bytes >= RESIDENT_BYTES_MIN && endpoint.buffers.direct.get())
            || endpoint.pulls(call.kind, bytes);
        let place = Flat::place(manner, call.kind, class(bytes));
        let due = self.due[place].get();
        if free || due > 0 || self.paused.get() {
            if !free && !self.paused.get() {
                self.due[place].set(due - 1);
            }
            // SAFETY: the caller's promise.
            return unsafe { endpoint.carry_out(call, blocks) }.await;
        }
        // SAFETY: the caller's promise.
        unsafe { self.watch(endpoint, call, place, Job { kind: call.kind, bytes, manner }, blocks, waits) }
            .await
    }

    /// # Safety
    /// As [`Endpoint::carry_out`].
    #[cold]
    async unsafe fn watch(
        &self,
        endpoint: &Endpoint,
        call: &CollectiveCall,
        place: usize,
        job: Job,
        blocks: BlocksView,
        waits: bool,
    ) -> Result<()> {
        let step = loop {
            match self.step(endpoint, place, job) {
                CallStep::Exchange(calls) => self.exchange(endpoint, place, calls).await?,
                step => break step,
            }
        };
        let tried = match step {
            CallStep::Nothing | CallStep::Exchange(_) => {
                // SAFETY: the caller's promise.
                return unsafe { endpoint.carry_out(call, blocks) }.await;
            }
            CallStep::Sample => None,
            CallStep::Try(tried) => Some(tried),
        };
        // Buffers in the segment leave no choice of algorithm.
        let says = waits && (job.kind == Kind::Barrier || endpoint.offset_of(call.input) == 0);
        let before = tried.map(|tried| divert(endpoint, place, tried));
        let came = nanoseconds();
        // SAFETY: the caller's promise.
        let outcome = unsafe { endpoint.carry_out(call, blocks) }.await;
        let left = if says { nanoseconds() } else { u64::MAX };
        if let Some(before) = before {
            restore(endpoint, place, before);
        }
        outcome?;
        if let Some(watched) = self.watched.borrow_mut().get_mut(&place) {
            watched.came.push(came);
            watched.left.push(left);
        }
        Ok(())
    }

    /// Returns the action in this call of a cell: the same for all ranks.
    fn step(&self, endpoint: &Endpoint, place: usize, job: Job) -> CallStep {
        let mut all = self.watched.borrow_mut();
        let watched = match all.entry(place) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let tried = candidates(endpoint, job);
                if tried.len() < 2 {
                    // Another size of the class may have a choice, as one byte more than a cell:
                    // this is checked at intervals.
                    self.due[place].set(RECHECK_CALLS);
                    return CallStep::Nothing;
                }
                let kept = endpoint.table().chosen(job.manner, job.kind, class(job.bytes));
                let known = match job.kind {
                    Kind::Barrier => endpoint.routes.kept_barrier.get(),
                    _ => kept.is_some_and(|(_, near)| near == job.manner),
                };
                let state = if known {
                    CellState::Settled(Drift::new(None))
                } else {
                    CellState::Trying(CandidateTrial::new(tried.len(), self.limits))
                };
                new.insert(Watched { job, tried, state, came: Vec::new(), left: Vec::new(), found: None })
            }
        };
        let noted = watched.came.len();
        match &watched.state {
            CellState::Trying(trial) => {
                let turns = trial.turns();
                match turns.get(noted) {
                    Some(at) => CallStep::Try(watched.tried[*at]),
                    None => CallStep::Exchange(noted),
                }
            }
            CellState::Settled(_) if noted >= Drift::WINDOW_SAMPLES => CallStep::Exchange(noted),
            CellState::Settled(drift) => {
                self.due[place].set(drift.every());
                CallStep::Sample
            }
        }
    }

    /// Sends the notes of this rank, gets the latest times of all ranks, and judges.
    async fn exchange(&self, endpoint: &Endpoint, place: usize, calls: usize) -> Result<()> {
        let mut own = Vec::with_capacity(2 * calls);
        if let Some(watched) = self.watched.borrow_mut().get_mut(&place) {
            own.append(&mut watched.came);
            own.append(&mut watched.left);
        }
        let mut last = vec![0; own.len()];
        latest(endpoint, &own, &mut last).await?;
        let (came, left) = last.split_at(calls);
        let times: Vec<Option<f64>> = came
            .iter()
            .zip(left)
            .map(|(came, left)| (*left != u64::MAX).then(|| left.saturating_sub(*came) as f64 / 1e3))
            .collect();
        self.judge(endpoint, place, &times);
        Ok(())
    }

    fn judge(&self, endpoint: &Endpoint, place: usize, times: &[Option<f64>]) {
        let mut all = self.watched.borrow_mut();
        let Some(watched) = all.get_mut(&place) else { return };
        match &mut watched.state {
            CellState::Trying(trial) => {
                if let Some(verdict) = trial.round(times) {
                    let found = watched.settle(verdict);
                    if found.kind_is_barrier() {
                        endpoint.routes.kept_barrier.set(true);
                    }
                    endpoint.install(with(&endpoint.table(), found.job, found.winner().tried));
                }
            }
            CellState::Settled(drift) => {
                if drift.window(times) {
                    watched.state = CellState::Trying(CandidateTrial::new(watched.tried.len(), self.limits));
                    self.due[place].set(0);
                }
            }
        }
    }

    /// Returns the finding about a cell.
    pub(crate) fn found(&self, job: Job) -> Option<CellFindings> {
        let place = Flat::place(job.manner, job.kind, class(job.bytes));
        self.watched.borrow().get(&place)?.found.clone()
    }

    /// Returns all findings.
    pub(crate) fn all(&self) -> Vec<CellFindings> {
        self.watched.borrow().values().filter_map(|watched| watched.found.clone()).collect()
    }

    /// Returns the progress of a cell's trial in words.
    pub(crate) fn state(&self, job: Job) -> Option<String> {
        let place = Flat::place(job.manner, job.kind, class(job.bytes));
        match &self.watched.borrow().get(&place)?.state {
            CellState::Trying(trial) => {
                let calls: usize = trial.candidates().iter().map(|one| one.batches.len()).sum();
                Some(format!("{calls} calls were tried so far, of {} candidates", trial.candidates().len()))
            }
            CellState::Settled(_) => None,
        }
    }
}

impl Watched {
    /// Ends the trial.
    fn settle(&mut self, verdict: Selection) -> CellFindings {
        let state = std::mem::replace(&mut self.state, CellState::Settled(Drift::new(None)));
        let candidates: Vec<CandidateTimes> = match state {
            CellState::Trying(trial) => trial.candidates().to_vec(),
            CellState::Settled(_) => Vec::new(),
        };
        let best = candidates.get(verdict.winner).map(CandidateTimes::best);
        self.state = CellState::Settled(Drift::new(best));
        let found = CellFindings::new(self.job, &self.tried, &candidates, verdict, Origin::Lazy);
        self.found = Some(found.clone());
        found
    }
}

impl CellFindings {
    fn kind_is_barrier(&self) -> bool {
        self.job.kind == Kind::Barrier
    }
}

/// Sets another algorithm for the calls of an entry for now. Returns the previous one.
fn divert(endpoint: &Endpoint, place: usize, tried: Tried) -> Before {
    match tried {
        Tried::Barrier(barrier) => Before::Barrier(endpoint.routes.barrier_by.replace(barrier)),
        Tried::Algorithm(way) => Before::Algorithm(endpoint.divert(place, Some(way))),
    }
}

enum Before {
    Barrier(crate::barrier::Barrier),
    Algorithm(Option<crate::algorithm_table::Algorithm>),
}

fn restore(endpoint: &Endpoint, place: usize, before: Before) {
    match before {
        Before::Barrier(barrier) => endpoint.routes.barrier_by.set(barrier),
        Before::Algorithm(way) => {
            endpoint.divert(place, way);
        }
    }
}

/// Computes the greatest of all ranks' numbers, for each number.
async fn latest(endpoint: &Endpoint, own: &[u64], all: &mut [u64]) -> Result<()> {
    let call = CollectiveCall {
        kind: Kind::Allreduce,
        elements: Type::U64,
        operator: Some(Operator::Max),
        kernel: Some(Kernel::of(Type::U64, Operator::Max)?),
        count: own.len(),
        root: 0,
        input: own.as_ptr().cast(),
        output: all.as_mut_ptr().cast(),
        sync: Sync::MINE,
    };
    // SAFETY: both have the same length, and are borrowed until the call is over.
    unsafe { endpoint.carry_out(&call, endpoint.blocks_view()) }.await
}

/// Reads a clock that is the same for all processes of the machine.
fn nanoseconds() -> u64 {
    crate::meter::nanoseconds_of(libc::CLOCK_MONOTONIC)
}

impl crate::Rank {
    /// Returns the algorithm that a call of a cell uses now, chosen or on trial. [`Self::found`]
    /// has an example.
    pub fn in_force(&self, job: Job) -> Tried {
        in_force(&self.endpoint, &self.endpoint.table(), job)
    }

    /// Returns whether this team measures algorithms in its calls. [`Self::found`] has an example.
    pub fn is_lazy(&self) -> bool {
        self.lazy.is_some()
    }

    /// Returns the findings of this team's own calls so far; [`Self::keep`] stores them.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::algorithm_table::CallClass;
    /// use trimtab_team::tune::Job;
    /// use trimtab_team::{Kind, Operator, Options, Result, Tables, Team};
    ///
    /// let team = Team::new(Options { tables: Tables::Lazy, ..Options::new(2) })?;
    /// let worker = |number| -> Result<()> {
    ///     let rank = team.join(Some(number))?;
    ///     assert!(rank.is_lazy());
    ///     let mut numbers = vec![1.0; 1 << 10];
    ///     for _ in 0..100 {
    ///         rank.mine().allreduce_in_place(&mut numbers, Operator::Max)?;
    ///     }
    ///     // The cells whose trial is over, and the algorithm of the next such call.
    ///     for cell in rank.found().cells {
    ///         assert_eq!(cell.job.kind, Kind::Allreduce);
    ///     }
    ///     let job = Job { kind: Kind::Allreduce, bytes: 8 << 10, manner: CallClass::Mine };
    ///     println!("{}", rank.in_force(job));
    ///     Ok(())
    /// };
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| worker(1));
    ///     worker(0)?;
    ///     other.join().expect("no panic")
    /// })?;
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    pub fn found(&self) -> super::Tuning {
        let mut tuning = super::Tuning::new(self.ranks(), self.crowded());
        tuning.how = "in a program's calls".to_owned();
        for cell in self.lazy.iter().flat_map(|lazy| lazy.all()) {
            tuning.add(cell);
        }
        tuning
    }

    /// Stores the findings of this team's own calls for later teams on this machine. Rank 0 does
    /// so; other ranks do nothing. Returns the path, if there were findings.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads: nothing was tried out, so there is nothing to keep.
    /// assert_eq!(rank.keep()?, None);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Refused` if the file cannot be written.
    pub fn keep(&self) -> Result<Option<std::path::PathBuf>> {
        let found = self.found();
        if self.rank() != 0 || found.cells.is_empty() {
            return Ok(None);
        }
        super::store::keep(&self.key(), found).map(Some)
    }
}
