//! Trying ways out in the calls that a program makes anyway.
//!
//! **Problem.** Nobody tunes beforehand what they do not know they will call. But a call belongs to all ranks: if one of them tried another way
//! than the rest, they would wait for each other for ever.
//!
//! **Idea.** Calls of a cell (kind, class of size, manner) are counted, and the count alone says which way the next one goes: candidates
//! run in turns ([`super::judge::Trial`]). Each rank notes when it came and when it left, by the machine's clock. When a round is over the ranks exchange what they
//! noted, at the beginning of the cell's next call: a call took from when the last came to when the last left, so who comes late makes
//! nothing slow. All hear the same and come to the same verdict. From then on one call in many is a sample; a choice that has become
//! slower than its record for long is tried anew ([`super::judge::Drift`]).
//!
//! **Cost.** A trial has at most [`CALLS`] calls of each candidate, and ends when they have cost [`Limits::spend`] more than the usual way, by one round
//! at most. Each round adds one exchange of some hundred bytes, each window of samples another, which is one call in [`Drift::WINDOW`] times [`Drift::every`]. What
//! is neither tried nor a sample costs a comparison; teams that do not tune, a null pointer's.
//!
//! **Left alone.** Loose calls wait for no more than the data, so there is nothing to exchange in; they go as calls in the usual manner do. Calls beside
//! the flag and others with one way have no choice. Calls that were started, and calls with buffers in the segment, are counted and
//! say nothing.

use super::judge::{Candidate, Drift, Limits, Selection, Trial};
use super::{Cell as Found, Job, Origin, Tried, candidates, in_force, with};
use crate::Result;
use crate::algorithm_table::{CallClass, Flat, class};
use crate::call::{Call, Kind, Sync};
use crate::collectives::RESIDENT;
use crate::endpoint::Endpoint;
use crate::flag::INLINE;
use crate::reduce::{Kernel, Operator, Type};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Rounds of a trial. More in the first stage than a race beforehand has: a program's calls are not quiet batches.
const STAGES: [usize; 3] = [6, 8, 10];
/// Calls of each candidate, at most.
pub const CALLS: usize = STAGES[0] + STAGES[1] + STAGES[2];
/// Microseconds that the trial of one cell may cost.
const SPEND: f64 = 50_000.0;
/// A cell without a choice is due once in so many calls.
const SELDOM: u32 = 255;

/// See the module.
pub struct Lazy {
    /// Of each place of the table: in how many calls something is to be done; 0 is at the next.
    due: Box<[Cell<u32>]>,
    watched: RefCell<BTreeMap<usize, Watched>>,
    limits: Limits,
    paused: Cell<bool>,
}

/// A cell with a choice.
struct Watched {
    job: Job,
    tried: Vec<Tried>,
    state: State,
    /// When this rank came to the calls of this round or window, and when it left: nanoseconds.
    came: Vec<u64>,
    left: Vec<u64>,
    found: Option<Found>,
}

enum State {
    Trying(Trial),
    Settled(Drift),
}

/// What is to be done in a call.
enum Step {
    Nothing,
    /// Go this way and note the time.
    Try(Tried),
    /// Note the time.
    Sample,
    /// Exchange what was noted, so many calls of it, and look again.
    Exchange(usize),
}

impl Lazy {
    pub(crate) fn new() -> Self {
        Self::with_limits(Limits { stages: STAGES, spend: SPEND })
    }

    fn with_limits(limits: Limits) -> Self {
        Self {
            due: (0..Flat::PLACES).map(|_| Cell::new(0)).collect(),
            watched: RefCell::default(),
            limits,
            paused: Cell::new(false),
        }
    }

    /// Leaves calls alone, or no longer. Answers what was before.
    pub(crate) fn pause(&self, pause: bool) -> bool {
        self.paused.replace(pause)
    }

    /// Carries out a call, which is counted; `waits` if this rank does nothing else meanwhile.
    ///
    /// # Safety
    /// As [`Endpoint::carry_out`].
    #[inline]
    pub(crate) async unsafe fn carry_out(
        &self,
        station: &Endpoint,
        call: &Call,
        blocks: bool,
        waits: bool,
    ) -> Result<()> {
        let barrier = call.kind == Kind::Barrier;
        let manner = if barrier { CallClass::Mine } else { CallClass::of(call.what()) };
        let bytes = if barrier { 0 } else { call.bytes() };
        // Whoever starts such a call must count it no more than who waits for it.
        let free = matches!(manner, CallClass::Loose | CallClass::HeavyLoose)
            || (bytes <= INLINE && !barrier)
            // Such is taken from where it is: no way is chosen.
            || (bytes >= RESIDENT && station.buffers.direct.get())
            || station.pulls(call.kind, bytes);
        let place = Flat::place(manner, call.kind, class(bytes));
        let due = self.due[place].get();
        if free || due > 0 || self.paused.get() {
            if !free && !self.paused.get() {
                self.due[place].set(due - 1);
            }
            // SAFETY: the caller's promise.
            return unsafe { station.carry_out(call, blocks) }.await;
        }
        // SAFETY: the caller's promise.
        unsafe { self.watch(station, call, place, Job { kind: call.kind, bytes, manner }, blocks, waits) }
            .await
    }

    /// # Safety
    /// As [`Endpoint::carry_out`].
    #[cold]
    async unsafe fn watch(
        &self,
        station: &Endpoint,
        call: &Call,
        place: usize,
        job: Job,
        blocks: bool,
        waits: bool,
    ) -> Result<()> {
        let step = loop {
            match self.step(station, place, job) {
                Step::Exchange(calls) => self.exchange(station, place, calls).await?,
                step => break step,
            }
        };
        let tried = match step {
            // SAFETY: the caller's promise.
            Step::Nothing | Step::Exchange(_) => return unsafe { station.carry_out(call, blocks) }.await,
            Step::Sample => None,
            Step::Try(tried) => Some(tried),
        };
        // Buffers in the segment go without a way.
        let says = waits && (job.kind == Kind::Barrier || station.offset_of(call.input) == 0);
        let before = tried.map(|tried| divert(station, place, tried));
        let came = nanoseconds();
        // SAFETY: the caller's promise.
        let outcome = unsafe { station.carry_out(call, blocks) }.await;
        let left = if says { nanoseconds() } else { u64::MAX };
        if let Some(before) = before {
            restore(station, place, before);
        }
        outcome?;
        if let Some(watched) = self.watched.borrow_mut().get_mut(&place) {
            watched.came.push(came);
            watched.left.push(left);
        }
        Ok(())
    }

    /// What is to be done in this call of a cell: of all ranks the same.
    fn step(&self, station: &Endpoint, place: usize, job: Job) -> Step {
        let mut all = self.watched.borrow_mut();
        let watched = match all.entry(place) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let tried = candidates(station, job);
                if tried.len() < 2 {
                    // Another size of the class may have a choice, as one byte more than a cell: it is looked for now and then.
                    self.due[place].set(SELDOM);
                    return Step::Nothing;
                }
                let kept = station.table().chosen(job.manner, job.kind, class(job.bytes));
                let known = match job.kind {
                    Kind::Barrier => station.routes.kept_barrier.get(),
                    _ => kept.is_some_and(|(_, near)| near == job.manner),
                };
                let state = if known {
                    State::Settled(Drift::new(None))
                } else {
                    State::Trying(Trial::new(tried.len(), self.limits))
                };
                new.insert(Watched { job, tried, state, came: Vec::new(), left: Vec::new(), found: None })
            }
        };
        let noted = watched.came.len();
        match &watched.state {
            State::Trying(trial) => {
                let turns = trial.turns();
                match turns.get(noted) {
                    Some(at) => Step::Try(watched.tried[*at]),
                    None => Step::Exchange(noted),
                }
            }
            State::Settled(_) if noted >= Drift::WINDOW => Step::Exchange(noted),
            State::Settled(drift) => {
                self.due[place].set(drift.every());
                Step::Sample
            }
        }
    }

    /// Tells the others when this rank came and left, hears when the last did, and judges.
    async fn exchange(&self, station: &Endpoint, place: usize, calls: usize) -> Result<()> {
        let mut own = Vec::with_capacity(2 * calls);
        if let Some(watched) = self.watched.borrow_mut().get_mut(&place) {
            own.append(&mut watched.came);
            own.append(&mut watched.left);
        }
        let mut last = vec![0; own.len()];
        latest(station, &own, &mut last).await?;
        let (came, left) = last.split_at(calls);
        let times: Vec<Option<f64>> = came
            .iter()
            .zip(left)
            .map(|(came, left)| (*left != u64::MAX).then(|| left.saturating_sub(*came) as f64 / 1e3))
            .collect();
        self.judge(station, place, &times);
        Ok(())
    }

    fn judge(&self, station: &Endpoint, place: usize, times: &[Option<f64>]) {
        let mut all = self.watched.borrow_mut();
        let Some(watched) = all.get_mut(&place) else { return };
        match &mut watched.state {
            State::Trying(trial) => {
                if let Some(verdict) = trial.round(times) {
                    let found = watched.settle(verdict);
                    if found.kind_is_barrier() {
                        station.routes.kept_barrier.set(true);
                    }
                    station.install(with(&station.table(), found.job, found.winner().tried));
                }
            }
            State::Settled(drift) => {
                if drift.window(times) {
                    watched.state = State::Trying(Trial::new(watched.tried.len(), self.limits));
                    self.due[place].set(0);
                }
            }
        }
    }

    /// What was found of a cell.
    pub(crate) fn found(&self, job: Job) -> Option<Found> {
        let place = Flat::place(job.manner, job.kind, class(job.bytes));
        self.watched.borrow().get(&place)?.found.clone()
    }

    /// All that was found.
    pub(crate) fn all(&self) -> Vec<Found> {
        self.watched.borrow().values().filter_map(|watched| watched.found.clone()).collect()
    }

    /// How far the trial of a cell is, in words.
    pub(crate) fn state(&self, job: Job) -> Option<String> {
        let place = Flat::place(job.manner, job.kind, class(job.bytes));
        match &self.watched.borrow().get(&place)?.state {
            State::Trying(trial) => {
                let calls: usize = trial.candidates().iter().map(|one| one.batches.len()).sum();
                Some(format!("{calls} calls were tried so far, in {} ways", trial.candidates().len()))
            }
            State::Settled(_) => None,
        }
    }
}

impl Watched {
    /// The race is over.
    fn settle(&mut self, verdict: Selection) -> Found {
        let state = std::mem::replace(&mut self.state, State::Settled(Drift::new(None)));
        let candidates: Vec<Candidate> = match state {
            State::Trying(trial) => trial.candidates().to_vec(),
            State::Settled(_) => Vec::new(),
        };
        let best = candidates.get(verdict.winner).map(Candidate::best);
        self.state = State::Settled(Drift::new(best));
        let found = Found::new(self.job, &self.tried, &candidates, verdict, Origin::Lazy);
        self.found = Some(found.clone());
        found
    }
}

impl Found {
    fn kind_is_barrier(&self) -> bool {
        self.job.kind == Kind::Barrier
    }
}

/// Lets calls of a place go a way for now. Answers what they went.
fn divert(station: &Endpoint, place: usize, tried: Tried) -> Before {
    match tried {
        Tried::Barrier(barrier) => Before::Barrier(station.routes.barrier_by.replace(barrier)),
        Tried::Algorithm(way) => Before::Algorithm(station.divert(place, Some(way))),
    }
}

enum Before {
    Barrier(crate::barrier::Barrier),
    Algorithm(Option<crate::algorithm_table::Algorithm>),
}

fn restore(station: &Endpoint, place: usize, before: Before) {
    match before {
        Before::Barrier(barrier) => station.routes.barrier_by.set(barrier),
        Before::Algorithm(way) => {
            station.divert(place, way);
        }
    }
}

/// The greatest of all ranks' numbers, each.
async fn latest(station: &Endpoint, own: &[u64], all: &mut [u64]) -> Result<()> {
    let call = Call {
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
    // SAFETY: both are as long as each other, and borrowed until the call is over.
    unsafe { station.carry_out(&call, false) }.await
}

/// By a clock that all processes of the machine have alike.
fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl crate::Rank {
    /// Which way a call of a cell goes now, tried out or not.
    pub fn in_force(&self, job: Job) -> Tried {
        in_force(&self.station, &self.station.table(), job)
    }

    /// Whether this team tries ways out in its calls.
    pub fn is_lazy(&self) -> bool {
        self.lazy.is_some()
    }

    /// What was found so far in this team's own calls, for who wants to keep it: [`Self::keep`].
    pub fn found(&self) -> super::Tuning {
        let mut tuning = super::Tuning::new(self.ranks(), self.crowded());
        tuning.how = "in a program's calls".to_owned();
        for cell in self.lazy.iter().flat_map(|lazy| lazy.all()) {
            tuning.add(cell);
        }
        tuning
    }

    /// Keeps what was found in this team's own calls for teams to come, on this machine; at rank 0, and nothing at others. Where it was
    /// written, if anything was found.
    ///
    /// # Errors
    /// `Refused` where the file cannot be written.
    pub fn keep(&self) -> Result<Option<std::path::PathBuf>> {
        let found = self.found();
        if self.rank() != 0 || found.cells.is_empty() {
            return Ok(None);
        }
        super::store::keep(&self.key(), found).map(Some)
    }
}
