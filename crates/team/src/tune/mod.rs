//! Tuning: measures which algorithms are quickest on this machine.
//!
//! **Problem.** Other work, interrupts and migrations of threads make single measurements of
//! microseconds wrong by factors. A tuner that takes one mean of each candidate chooses the slower
//! of two barriers four times in ten.
//!
//! **Idea.** Short batches of all candidates run in turn and are judged by their minima:
//! disturbances make calls slower, never quicker. Half of the candidates are removed after each
//! stage. The usual algorithm is replaced only by one that is clearly better ([`judge`]). All ranks
//! measure together and the slowest counts; since all have the slowest rank's time, all reach the
//! same verdict without communication. If other programs used the machine meanwhile ([`noise`]), a
//! race is run again, and in the end left undecided.
//!
//! Tuning happens beforehand ([`tune_watched`], `trimtab tune-team`), in the calls of a running
//! program ([`lazy`]), or not at all. [`check`] measures every candidate as long as the winner and
//! reports how near the choice is to the best.
//!
//! **Validity of a choice.** A choice is valid for the machine ([`store::fingerprint`]); for the
//! number of ranks, whether they are more than CPUs, the number of their caches and nodes, the
//! cells ([`Rank::key`]); and in the table for the kind of call, its size in powers of two, and its
//! class: its synchronisation and whether its elements are expensive to combine
//! ([`crate::algorithm_table::CallClass`]). Whether ranks are threads or processes is not part of
//! it: the memory and the flags are the same, and a barrier of two took 0.076 us and 0.081 us at
//! best, a round trip of sleeps 13.4 us and 13.6 us. Buffers in the segment leave no choice of
//! algorithm.
//!
//! **Source.** Replays of recorded batches (best of 20: right in practically all draws of pairs 1.3
//! times apart); GASNet's tuner (`gasnet_autotune.c`) for errors to avoid.

mod comparison;
mod explain;
pub mod judge;
pub mod lazy;
pub mod noise;
mod race;
mod rank_table;
pub mod store;

pub use comparison::{Checked, check};

use crate::Result;
use crate::algorithm_table::{Algorithm, AlgorithmTable, CallClass, class};
use crate::barrier::Barrier;
use crate::call::Kind;
use crate::endpoint::Endpoint;
use crate::rank::Rank;
use crate::reduce::Operator;
use judge::{CandidateTimes, Selection};
use noise::{NOISY, Noise};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most runs of a race that other programs disturb.
const RACES_MAX: u32 = 3;

/// Cells that are to be tuned: the product of kinds, sizes and classes. [`tune()`] has an example.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Kinds of calls.
    pub kinds: Vec<Kind>,
    /// Bytes of a block.
    pub sizes: Vec<usize>,
    /// Classes of calls; those with expensive elements are for kinds that combine.
    pub manners: Vec<CallClass>,
    /// Longest time in all; the remaining cells keep the usual algorithm.
    pub budget: Duration,
    /// Whether races that other programs disturbed are judged, too: minima are robust.
    pub accept_noise: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            kinds: vec![
                Kind::Barrier,
                Kind::Allreduce,
                Kind::Broadcast,
                Kind::Reduce,
                Kind::Allgather,
                Kind::Alltoall,
                Kind::ReduceScatter,
            ],
            sizes: (8..=21).step_by(1).map(|log| 1_usize << log).collect(),
            manners: vec![CallClass::Mine],
            budget: Duration::from_secs(4),
            accept_noise: true,
        }
    }
}

/// A cell to be measured.
///
/// # Examples
/// ```
/// use trimtab_team::Kind;
/// use trimtab_team::algorithm_table::CallClass;
/// use trimtab_team::tune::Job;
///
/// // Of teams whose stage cells have 32 KiB, and whose ranks have a CPU each.
/// let job = Job { kind: Kind::Allreduce, bytes: 64 << 10, manner: CallClass::Mine };
/// let candidates = job.candidates(32 << 10, false);
/// assert!(candidates.len() > 1); // The usual one is the first.
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Kind of the calls.
    pub kind: Kind,
    /// Bytes of a block.
    pub bytes: usize,
    /// Class of the calls.
    pub manner: CallClass,
}

/// A barrier or an algorithm that was measured. [`Job`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// Algorithm of a barrier.
    Barrier(Barrier),
    /// Algorithm of another call. Kept tunings and JSON have the word `way`, as in earlier
    /// versions.
    #[serde(rename = "way")]
    Algorithm(Algorithm),
}

impl std::fmt::Display for Tried {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Barrier(barrier) => out.write_str(&format!("{barrier:?}").to_lowercase()),
            Self::Algorithm(Algorithm::Whole) => out.write_str("whole cells"),
            Self::Algorithm(Algorithm::Pieces(log)) => write!(out, "pieces of {}", 1_u64 << log),
            Self::Algorithm(Algorithm::Slices(log)) => write!(out, "slices of {}", 1_u64 << log),
            Self::Algorithm(Algorithm::Wide) => out.write_str("wide slices"),
            Self::Algorithm(Algorithm::Tree(log)) => write!(out, "tree of {}", 1_u64 << log),
            Self::Algorithm(Algorithm::Relayed) => out.write_str("by groups"),
        }
    }
}

/// Measurements of a candidate, in microseconds per call. [`Tuning`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The candidate.
    pub tried: Tried,
    /// The least batch; `None` if there was none.
    pub best: Option<f64>,
    /// The median batch.
    pub median: Option<f64>,
    /// Number of batches.
    pub batches: usize,
}

impl Measured {
    fn of(tried: Tried, candidate: &CandidateTimes) -> Self {
        let mut sorted = candidate.batches.clone();
        sorted.sort_by(f64::total_cmp);
        let rounded = |time: &f64| (time * 1e4).round() / 1e4;
        Self {
            tried,
            best: sorted.first().map(rounded),
            median: sorted.get(sorted.len() / 2).map(rounded),
            batches: sorted.len(),
        }
    }
}

/// Time at which a choice was made. [`Tuning`] has an example of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Beforehand.
    Offline,
    /// In a program's own calls.
    Lazy,
}

/// Measurements of one kind, size and class. [`Tuning`] has an example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The cell that was measured.
    #[serde(flatten)]
    pub job: Job,
    /// Candidates in the order in which they were tried, the usual one first.
    pub candidates: Vec<Measured>,
    /// The candidate that is used from now on, and why.
    pub verdict: Selection,
    /// Whether the verdict counts: not if other programs disturbed every race.
    pub judged: bool,
    /// Share of the machine that other programs used, 0 to 1; `None` if it is not known.
    pub foreign: Option<f64>,
    /// Time at which the choice was made.
    pub origin: Origin,
}

impl Cell {
    fn new(
        job: Job,
        tried: &[Tried],
        candidates: &[CandidateTimes],
        mut verdict: Selection,
        origin: Origin,
    ) -> Self {
        // A value that is not a number could not be read back.
        verdict.ratio = if verdict.ratio.is_finite() { (verdict.ratio * 1e4).round() / 1e4 } else { 1.0 };
        let measured = tried.iter().zip(candidates).map(|(tried, candidate)| Measured::of(*tried, candidate));
        Self { job, candidates: measured.collect(), verdict, judged: true, foreign: None, origin }
    }

    /// Returns the candidate that is used from now on. [`Tuning`] has an example.
    pub fn winner(&self) -> Measured {
        self.candidates[self.verdict.winner.min(self.candidates.len() - 1)]
    }

    /// Returns the usual candidate. [`Tuning`] has an example.
    pub fn usual(&self) -> Measured {
        self.candidates[0]
    }

    fn is_of(&self, job: Job) -> bool {
        (self.job.kind, class(self.job.bytes), self.job.manner) == (job.kind, class(job.bytes), job.manner)
    }

    /// Returns whether its winner is a valid index.
    fn is_sound(&self) -> bool {
        self.verdict.winner < self.candidates.len()
    }
}

/// Result of a tuning.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// use trimtab_team::Kind;
/// use trimtab_team::algorithm_table::CallClass;
/// use trimtab_team::tune::{Job, Plan, Tuning, tune};
///
/// let plan = Plan { kinds: vec![Kind::Barrier], ..Plan::default() };
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let mut all = Tuning::new(rank.ranks(), rank.crowded()); // Nothing was measured.
/// all.merge(tune(&rank, &plan)?);
/// let job = Job { kind: Kind::Barrier, bytes: 0, manner: CallClass::Mine };
/// if let Some(cell) = all.cell(job) {
///     println!("{}, before {}", cell.winner().tried, cell.usual().tried);
///     println!("best of {} batches: {:?} us", cell.winner().batches, cell.winner().best);
/// }
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Number of ranks.
    pub ranks: u32,
    /// Whether they are more than CPUs.
    pub crowded: bool,
    /// The algorithms found.
    pub table: AlgorithmTable,
    /// The measurements behind them.
    pub cells: Vec<Cell>,
    /// Cells left out when time was over, or when a stop was requested.
    pub left: usize,
    /// Time, in seconds since 1970.
    pub when: u64,
    /// Description of how ranks were started.
    pub how: String,
}

impl Tuning {
    /// Makes the tuning of a team of which nothing was measured. [`Tuning`] has an example.
    pub fn new(ranks: u32, crowded: bool) -> Self {
        let when = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            ranks,
            crowded,
            table: AlgorithmTable::usual(crowded),
            cells: Vec::new(),
            left: 0,
            when: when.map_or(0, |when| when.as_secs()),
            how: String::new(),
        }
    }

    /// Adds a cell, in place of an older one for the same calls. Its choice goes into the table, if
    /// it was judged. [`Self::merge`] adds all cells of another tuning, and has an example.
    pub fn add(&mut self, cell: Cell) {
        if cell.judged {
            self.table = with(&self.table, cell.job, cell.winner().tried);
            self.cells.retain(|other| !other.is_of(cell.job));
        } else if self.cells.iter().any(|other| other.judged && other.is_of(cell.job)) {
            return;
        }
        self.cells.push(cell);
    }

    /// Adds later findings; cells that they do not contain stay. [`Tuning`] has an example.
    pub fn merge(&mut self, newer: Self) {
        for cell in newer.cells {
            self.add(cell);
        }
        (self.left, self.when, self.how) = (newer.left, newer.when, newer.how);
    }

    /// Returns the measurements of a cell. [`Tuning`] has an example.
    pub fn cell(&self, job: Job) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is_of(job) && cell.is_sound())
    }
}

/// Supervisor of a tuning, at each rank. The answer of one rank counts for all. [`tune_watched`]
/// has an example.
pub trait Overseer {
    /// Returns whether to end before the next cell.
    fn stop(&self) -> bool {
        false
    }

    /// Returns the CPU seconds that the whole machine has used so far.
    fn busy(&self) -> Option<f64> {
        None
    }

    /// Returns the number of CPUs behind [`Self::busy`].
    fn processors(&self) -> f64 {
        1.0
    }

    /// Called before a cell is measured, after `done` of `of` cells.
    fn begins(&self, _job: Job, _done: usize, _of: usize) {}

    /// Called after a cell was measured.
    fn ended(&self, _cell: &Cell) {}
}

/// No supervisor.
impl Overseer for () {}

impl Plan {
    /// Returns the cells to be measured: those with more than one candidate, in teams with stage
    /// cells of `cell` bytes.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::Kind;
    /// use trimtab_team::tune::Plan;
    ///
    /// let plan = Plan { kinds: vec![Kind::Barrier], ..Plan::default() };
    /// assert_eq!(plan.jobs(32 << 10, false).len(), 1);
    /// ```
    pub fn jobs(&self, cell: usize, crowded: bool) -> Vec<Job> {
        let mut jobs = Vec::new();
        for kind in &self.kinds {
            if *kind == Kind::Barrier {
                jobs.push(Job { kind: *kind, bytes: 0, manner: CallClass::Mine });
                continue;
            }
            for manner in self.manners.iter().filter(|manner| !manner.heavy() || kind.combines()) {
                jobs.extend(self.sizes.iter().map(|bytes| Job {
                    kind: *kind,
                    bytes: *bytes,
                    manner: *manner,
                }));
            }
        }
        jobs.retain(|job| job.candidates(cell, crowded).len() > 1);
        jobs
    }
}

impl Job {
    /// Returns the possible algorithms, the usual one first, in teams with stage cells of `cell`
    /// bytes. [`Job`] has an example.
    pub fn candidates(self, cell: usize, crowded: bool) -> Vec<Tried> {
        if self.kind == Kind::Barrier {
            let usual = AlgorithmTable::usual(crowded).barrier;
            let others = Barrier::ALL.into_iter().filter(|barrier| *barrier != usual);
            return std::iter::once(usual).chain(others).map(Tried::Barrier).collect();
        }
        Algorithm::candidates(self.kind, self.bytes, cell, crowded)
            .into_iter()
            .map(Tried::Algorithm)
            .collect()
    }
}

fn candidates(endpoint: &Endpoint, job: Job) -> Vec<Tried> {
    job.candidates(endpoint.area.cell_bytes(), endpoint.crowded())
}

/// Returns a table's choice for a cell.
fn in_force(endpoint: &Endpoint, table: &AlgorithmTable, job: Job) -> Tried {
    if job.kind == Kind::Barrier {
        return Tried::Barrier(table.barrier);
    }
    let cell = endpoint.area.cell_bytes();
    let flat = crate::algorithm_table::Flat::new(table.clone());
    Tried::Algorithm(flat.way(job.manner, job.kind, job.bytes, cell, endpoint.crowded()))
}

/// Returns the table with one choice changed.
fn with(table: &AlgorithmTable, job: Job, tried: Tried) -> AlgorithmTable {
    let mut table = table.clone();
    match tried {
        Tried::Barrier(barrier) => table.barrier = barrier,
        Tried::Algorithm(way) => table.choose(job.manner, job.kind, class(job.bytes), way),
    }
    table
}

/// Tunes a team, and installs the result. All its ranks must call it with the same plan. The times
/// in the result are microseconds per call.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// use std::time::Duration;
/// use trimtab_team::Kind;
/// use trimtab_team::tune::{Plan, tune};
///
/// let plan = Plan {
///     kinds: vec![Kind::Allreduce],
///     sizes: vec![1 << 16], // bytes
///     budget: Duration::from_millis(200),
///     ..Plan::default()
/// };
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let tuning = tune(&rank, &plan)?;
/// assert_eq!(tuning.ranks, 2);
/// for cell in &tuning.cells {
///     assert_eq!(cell.job.bytes, 1 << 16);
/// }
/// assert_eq!(rank.table(), tuning.table);
/// # Ok(())
/// # });
/// ```
///
/// # Errors
/// As [every call](crate::Calls#errors).
pub fn tune(rank: &Rank, plan: &Plan) -> Result<Tuning> {
    tune_watched(rank, plan, &())
}

/// Tunes a team under a supervisor, and installs the result. All its ranks must call it with the
/// same plan.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// use trimtab_team::Kind;
/// use trimtab_team::tune::{Overseer, Plan, tune_watched};
///
/// /// Ends a tuning before it has begun.
/// struct Never;
///
/// impl Overseer for Never {
///     fn stop(&self) -> bool {
///         true
///     }
/// }
///
/// let plan = Plan { kinds: vec![Kind::Barrier], ..Plan::default() };
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let tuning = tune_watched(&rank, &plan, &Never)?;
/// assert_eq!((tuning.cells.len(), tuning.left), (0, 1));
/// # Ok(())
/// # });
/// ```
///
/// # Errors
/// As [every call](crate::Calls#errors).
pub fn tune_watched(rank: &Rank, plan: &Plan, overseer: &dyn Overseer) -> Result<Tuning> {
    let mut tuning = Tuning { table: rank.table(), ..Tuning::new(rank.ranks(), rank.crowded()) };
    tuning.left = each(rank, plan, overseer, |job, noise| {
        let tried = candidates(&rank.endpoint, job);
        let (raced, quiet) =
            quietly(rank, noise, plan, || race::race(rank, job, &tried, &tuning.table, &race::STAGES))?;
        let mut cell = Cell::new(job, &tried, &raced, judge::verdict(&raced), Origin::Offline);
        cell.foreign = quiet;
        if quiet.is_some_and(|share| share > NOISY) && !plan.accept_noise {
            cell.judged = false;
            let why =
                "other programs used the machine during every measurement: the usual one stays".to_owned();
            cell.verdict = Selection { winner: 0, ratio: 1.0, why };
        }
        overseer.ended(&cell);
        tuning.add(cell);
        rank.install(tuning.table.clone())
    })?;
    rank.evidence.borrow_mut().extend(tuning.cells.iter().cloned());
    Ok(tuning)
}

/// Measures a plan's cells until all are done, time is over, or a stop is requested. Returns the
/// number of remaining cells.
fn each(
    rank: &Rank,
    plan: &Plan,
    overseer: &dyn Overseer,
    mut measure: impl FnMut(Job, &mut Noise<'_>) -> Result<()>,
) -> Result<usize> {
    let begin = Instant::now();
    let jobs = plan.jobs(rank.endpoint.area.cell_bytes(), rank.crowded());
    // Started calls finish with the algorithm with which they began.
    rank.ready()?;
    let _paused = Paused::of(rank);
    let mut noise = Noise::new(rank, overseer)?;
    for (at, job) in jobs.iter().enumerate() {
        // The end is the same for all ranks: it is reached when the slowest clock or any supervisor
        // reaches it.
        let over = [u64::from(begin.elapsed() > plan.budget || overseer.stop())];
        let mut any = [0];
        rank.mine().allreduce(&over, &mut any, Operator::Max)?;
        if any[0] != 0 {
            return Ok(jobs.len() - at);
        }
        overseer.begins(*job, at, jobs.len());
        measure(*job, &mut noise)?;
    }
    Ok(0)
}

/// While this value lives, algorithms are not measured in calls, and ranks do not read long
/// messages in place: that is not an algorithm of the table, and the result is also for teams that
/// cannot do it.
struct Paused {
    lazy: Option<(Rc<lazy::Lazy>, bool)>,
    direct: (Rc<Endpoint>, bool),
    pull: bool,
}

impl Paused {
    fn of(rank: &Rank) -> Self {
        let lazy = rank.lazy.as_ref().map(|lazy| (Rc::clone(lazy), lazy.pause(true)));
        let pull = rank.endpoint.buffers.pull.replace(false);
        Self { lazy, direct: (Rc::clone(&rank.endpoint), rank.endpoint.buffers.direct.replace(false)), pull }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let (endpoint, direct) = &self.direct;
        endpoint.set_direct(*direct);
        endpoint.buffers.pull.set(self.pull);
        if let Some((lazy, before)) = &self.lazy {
            lazy.pause(*before);
        }
    }
}

/// Measures again if other programs used the machine meanwhile, as long as there is time. Returns
/// the last race, and the share of the machine that others used in it.
fn quietly<T>(
    rank: &Rank,
    noise: &mut Noise<'_>,
    plan: &Plan,
    mut race: impl FnMut() -> Result<T>,
) -> Result<(T, Option<f64>)> {
    let mut tries = 1;
    loop {
        noise.note(rank)?;
        let raced = race()?;
        noise.note(rank)?;
        let (share, late) = noise.share(rank, 1, plan.budget)?;
        if plan.accept_noise || late || tries == RACES_MAX || share.is_none_or(|share| share <= NOISY) {
            return Ok((raced, share));
        }
        tries += 1;
    }
}
