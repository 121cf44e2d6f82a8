//! Finding out which ways are quickest here, by trying them.
//!
//! **Problem.** Other work, interrupts and moves of threads make single measurements of microseconds wrong by factors; a tuner that takes
//! one mean of each candidate chooses the slower of two barriers four times in ten.
//!
//! **Idea.** Short batches of all candidates in turn, judged by their minima: what disturbs makes slower, never quicker. Half of the
//! candidates go after each stage. The usual way is left only for one that is clearly better ([`judge`]). All ranks measure together, the
//! slowest counts, and since all know the slowest's time all come to the same verdict without being told. Where others used the machine
//! meanwhile ([`noise`]) a race is run again, and in the end left undecided.
//!
//! Beforehand ([`tune_watched`], `trimtab tune-team`), in the calls that a program makes anyway ([`lazy`]), or not at all. [`check`] measures every candidate
//! as long as the winner and says how near the choice is to the best.
//!
//! **What a choice holds for.** The machine ([`store::fingerprint`]); how many ranks, whether they are more than processors, over how many caches and
//! nodes they are, cells ([`Rank::key`]); and in the table the kind of call, its size in powers of two, and its manner: how strictly it is
//! synchronised and whether its elements are work ([`crate::algorithm_table::CallClass`]). Whether ranks are threads or processes is not in it: the
//! memory and the flags are the same, and a barrier of two took 0.076 us and 0.081 us at best, a round trip of sleeps 13.4 us and 13.6 us. Buffers in
//! the segment leave no choice of ways.
//!
//! **Source.** Replays of recorded batches (best of 20: right in practically all draws of pairs 1.3 times apart); GASNet's tuner
//! (`gasnet_autotune.c`) for what to avoid.

mod explain;
pub mod judge;
pub mod lazy;
pub mod noise;
mod race;
pub mod store;

use crate::algorithm_table::{Algorithm, CallClass, Table, class};
use crate::barrier::Barrier;
use crate::call::Kind;
use crate::endpoint::Endpoint;
use crate::rank::Rank;
use crate::reduce::Operator;
use crate::{Error, Result};
use judge::{Candidate, Selection};
use noise::{NOISY, Noise};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// So often a race is run that others disturb.
const TRIES: u32 = 3;

/// What is to be tuned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Kinds of calls.
    pub kinds: Vec<Kind>,
    /// Bytes of a block.
    pub sizes: Vec<usize>,
    /// Manners of calling; those of heavy elements are for kinds that combine.
    pub manners: Vec<CallClass>,
    /// Not longer than this, all in all: what is left then stays as usual.
    pub budget: Duration,
    /// Judges also what others disturbed: minima bear much.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Of calls.
    pub kind: Kind,
    /// Of a block.
    pub bytes: usize,
    /// Of calling.
    pub manner: CallClass,
}

/// A barrier or an algorithm that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// A barrier.
    Barrier(Barrier),
    /// Another call. Kept tunings and JSON say `way`, as they always did.
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

/// What was measured of a candidate, in microseconds per call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Which.
    pub tried: Tried,
    /// The least batch; `None` if there was none.
    pub best: Option<f64>,
    /// The median batch.
    pub median: Option<f64>,
    /// How many batches.
    pub batches: usize,
}

impl Measured {
    fn of(tried: Tried, candidate: &Candidate) -> Self {
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

/// When a choice was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Beforehand.
    Offline,
    /// In a program's own calls.
    Lazy,
}

/// What was measured of one kind, size and manner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Of what.
    #[serde(flatten)]
    pub job: Job,
    /// Candidates in the order in which they were tried, the usual first.
    pub candidates: Vec<Measured>,
    /// Which of them is used from now on, and why.
    pub verdict: Selection,
    /// Whether it is: not where others disturbed every race.
    pub judged: bool,
    /// The share of the machine that others used, where that is known.
    pub foreign: Option<f64>,
    /// When.
    pub origin: Origin,
}

impl Cell {
    fn new(
        job: Job,
        tried: &[Tried],
        candidates: &[Candidate],
        mut verdict: Selection,
        origin: Origin,
    ) -> Self {
        // What is no number could not be read back.
        verdict.ratio = if verdict.ratio.is_finite() { (verdict.ratio * 1e4).round() / 1e4 } else { 1.0 };
        let measured = tried.iter().zip(candidates).map(|(tried, candidate)| Measured::of(*tried, candidate));
        Self { job, candidates: measured.collect(), verdict, judged: true, foreign: None, origin }
    }

    /// What is used from now on.
    pub fn winner(&self) -> Measured {
        self.candidates[self.verdict.winner.min(self.candidates.len() - 1)]
    }

    /// What is usual.
    pub fn usual(&self) -> Measured {
        self.candidates[0]
    }

    fn is_of(&self, job: Job) -> bool {
        (self.job.kind, class(self.job.bytes), self.job.manner) == (job.kind, class(job.bytes), job.manner)
    }

    /// Whether it has what others index by.
    fn is_sound(&self) -> bool {
        self.verdict.winner < self.candidates.len()
    }
}

/// What came of tuning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// How many ranks.
    pub ranks: u32,
    /// Whether they are more than processors.
    pub crowded: bool,
    /// The ways found.
    pub table: Table,
    /// What they were found by.
    pub cells: Vec<Cell>,
    /// What was left out when time was over, or when somebody asked for an end.
    pub left: usize,
    /// When, in seconds since 1970.
    pub when: u64,
    /// How ranks came to be, in words.
    pub how: String,
}

impl Tuning {
    /// Of a team of which nothing was measured.
    pub fn new(ranks: u32, crowded: bool) -> Self {
        let when = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            ranks,
            crowded,
            table: Table::usual(crowded),
            cells: Vec::new(),
            left: 0,
            when: when.map_or(0, |when| when.as_secs()),
            how: String::new(),
        }
    }

    /// Adds a cell, instead of what there was of it; its choice goes into the table, if it was judged.
    pub fn add(&mut self, cell: Cell) {
        if cell.judged {
            self.table = with(&self.table, cell.job, cell.winner().tried);
            self.cells.retain(|other| !other.is_of(cell.job));
        } else if self.cells.iter().any(|other| other.judged && other.is_of(cell.job)) {
            return;
        }
        self.cells.push(cell);
    }

    /// Adds what was found later; what that says nothing of stays.
    pub fn merge(&mut self, newer: Self) {
        for cell in newer.cells {
            self.add(cell);
        }
        (self.left, self.when, self.how) = (newer.left, newer.when, newer.how);
    }

    /// What was measured of a cell.
    pub fn cell(&self, job: Job) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is_of(job) && cell.is_sound())
    }
}

/// Who looks after a tuning, at each rank. What one rank says counts for all.
pub trait Overseer {
    /// Whether to end before the next cell.
    fn stop(&self) -> bool {
        false
    }

    /// CPU seconds that the whole machine has used so far.
    fn busy(&self) -> Option<f64> {
        None
    }

    /// Of so many processors.
    fn processors(&self) -> f64 {
        1.0
    }

    /// A cell is about to be measured, after so many of so many.
    fn begins(&self, _job: Job, _done: usize, _of: usize) {}

    /// A cell was measured.
    fn ended(&self, _cell: &Cell) {}
}

/// Nobody.
impl Overseer for () {}

impl Plan {
    /// What there is to be measured: cells with more than one candidate, in teams with cells of `cell` bytes.
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
    /// The ways among which to choose, the usual one first.
    pub fn candidates(self, cell: usize, crowded: bool) -> Vec<Tried> {
        if self.kind == Kind::Barrier {
            let usual = Table::usual(crowded).barrier;
            let others = Barrier::ALL.into_iter().filter(|barrier| *barrier != usual);
            return std::iter::once(usual).chain(others).map(Tried::Barrier).collect();
        }
        Algorithm::candidates(self.kind, self.bytes, cell, crowded)
            .into_iter()
            .map(Tried::Algorithm)
            .collect()
    }
}

fn candidates(station: &Endpoint, job: Job) -> Vec<Tried> {
    job.candidates(station.area.cell_bytes(), station.crowded)
}

/// The table with one way changed.
fn with(table: &Table, job: Job, tried: Tried) -> Table {
    let mut table = table.clone();
    match tried {
        Tried::Barrier(barrier) => table.barrier = barrier,
        Tried::Algorithm(way) => table.choose(job.manner, job.kind, class(job.bytes), way),
    }
    table
}

/// Tunes a team, and installs what was found. All its ranks must call it with the same plan.
pub fn tune(rank: &Rank, plan: &Plan) -> Result<Tuning> {
    tune_watched(rank, plan, &())
}

/// Tunes a team that somebody looks after, and installs what was found. All its ranks must call it with the same plan.
pub fn tune_watched(rank: &Rank, plan: &Plan, overseer: &dyn Overseer) -> Result<Tuning> {
    let mut tuning = Tuning { table: rank.table(), ..Tuning::new(rank.ranks(), rank.crowded()) };
    tuning.left = each(rank, plan, overseer, |job, noise| {
        let tried = candidates(&rank.station, job);
        let (raced, quiet) =
            quietly(rank, noise, plan, || race::race(rank, job, &tried, &tuning.table, &race::STAGES))?;
        let mut cell = Cell::new(job, &tried, &raced, judge::verdict(&raced), Origin::Offline);
        cell.foreign = quiet;
        if quiet.is_some_and(|share| share > NOISY) && !plan.accept_noise {
            cell.judged = false;
            let why = "others used the machine while it was measured, every time: left as usual".to_owned();
            cell.verdict = Selection { winner: 0, ratio: 1.0, why };
        }
        overseer.ended(&cell);
        tuning.add(cell);
        rank.install(tuning.table.clone())
    })?;
    rank.evidence.borrow_mut().extend(tuning.cells.iter().cloned());
    Ok(tuning)
}

/// Goes through a plan's cells until all are done, time is over, or somebody asks for an end. Answers how many are left.
fn each(
    rank: &Rank,
    plan: &Plan,
    overseer: &dyn Overseer,
    mut measure: impl FnMut(Job, &mut Noise<'_>) -> Result<()>,
) -> Result<usize> {
    let begin = Instant::now();
    let jobs = plan.jobs(rank.station.area.cell_bytes(), rank.crowded());
    // What was started goes the way it began.
    rank.ready()?;
    let _paused = Paused::of(rank);
    let mut noise = Noise::new(rank, overseer)?;
    for (at, job) in jobs.iter().enumerate() {
        // The end is one for all: the slowest clock, or whoever is asked, says when it is reached.
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

/// While this lives, ways are not tried out in calls, and ranks do not take long messages from where they are: that is no way of the
/// table's, and what is tuned is also for teams that cannot.
struct Paused {
    lazy: Option<(Rc<lazy::Lazy>, bool)>,
    direct: (Rc<Endpoint>, bool),
    pull: bool,
}

impl Paused {
    fn of(rank: &Rank) -> Self {
        let lazy = rank.lazy.as_ref().map(|lazy| (Rc::clone(lazy), lazy.pause(true)));
        let pull = rank.station.buffers.pull.replace(false);
        Self { lazy, direct: (Rc::clone(&rank.station), rank.station.buffers.direct.replace(false)), pull }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let (station, direct) = &self.direct;
        station.set_direct(*direct);
        station.buffers.pull.set(self.pull);
        if let Some((lazy, before)) = &self.lazy {
            lazy.pause(*before);
        }
    }
}

/// Measures again where others used the machine meanwhile, as long as there is time. The last of the races counts; with what share others had in it.
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
        if plan.accept_noise || late || tries == TRIES || share.is_none_or(|share| share <= NOISY) {
            return Ok((raced, share));
        }
        tries += 1;
    }
}

/// How near a choice is to the best there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Of what.
    #[serde(flatten)]
    pub job: Job,
    /// What is used.
    pub kept: Tried,
    /// All that was measured, as long as each other.
    pub candidates: Vec<Measured>,
    /// Which is the quickest.
    pub best: Tried,
    /// The time of what is used over that of the quickest.
    pub ratio: f64,
    /// The share of the machine that others used.
    pub foreign: Option<f64>,
    /// Whether it says anything: not where others disturbed it, unless the plan accepts that.
    pub judged: bool,
}

impl Checked {
    /// Within so much of the best a choice is good.
    pub const GOOD: f64 = 1.05;

    /// Whether the choice is good.
    pub fn good(&self) -> bool {
        self.ratio <= Self::GOOD
    }
}

/// Measures all candidates of each cell as long as each other, and compares the quickest with what the team's table says. All ranks must
/// call it with the same plan. Answers what was left out, too.
pub fn check(rank: &Rank, plan: &Plan, overseer: &dyn Overseer) -> Result<(Vec<Checked>, usize)> {
    let table = rank.table();
    let mut all = Vec::new();
    let left = each(rank, plan, overseer, |job, noise| {
        let mut tried = candidates(&rank.station, job);
        let kept = in_force(&rank.station, &table, job);
        if !tried.contains(&kept) {
            tried.push(kept);
        }
        let (raced, foreign) =
            quietly(rank, noise, plan, || race::race(rank, job, &tried, &table, &race::ALL))?;
        let of = |wanted: Tried| {
            tried.iter().position(|one| *one == wanted).map_or(f64::INFINITY, |at| raced[at].best())
        };
        let best = tried.iter().copied().min_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap_or(kept);
        let cell = Cell::new(job, &tried, &raced, judge::verdict(&raced), Origin::Offline);
        overseer.ended(&Cell { foreign, ..cell.clone() });
        let ratio = of(kept) / of(best);
        let ratio = if ratio.is_finite() { (ratio * 1e4).round() / 1e4 } else { 1.0 };
        let judged = plan.accept_noise || foreign.is_none_or(|share| share <= NOISY);
        all.push(Checked { job, kept, candidates: cell.candidates, best, ratio, foreign, judged });
        Ok(())
    })?;
    Ok((all, left))
}

/// What a table says of a cell.
fn in_force(station: &Endpoint, table: &Table, job: Job) -> Tried {
    if job.kind == Kind::Barrier {
        return Tried::Barrier(table.barrier);
    }
    let cell = station.area.cell_bytes();
    let flat = crate::algorithm_table::Flat::new(table.clone());
    Tried::Algorithm(flat.way(job.manner, job.kind, job.bytes, cell, station.crowded))
}

impl Rank {
    /// The table in force.
    pub fn table(&self) -> Table {
        self.station.table()
    }

    /// From now on calls go these ways. All ranks must install the same table between the same calls: who cannot be sure of that uses
    /// [`Self::install_of_first`].
    pub fn install(&self, table: Table) -> Result<()> {
        self.ready()?;
        self.station.install(table);
        Ok(())
    }

    /// Installs rank 0's table at all ranks, which must all call it.
    pub fn install_of_first(&self, table: Option<&Table>) -> Result<()> {
        let own = match (self.rank(), table) {
            (0, Some(table)) => {
                serde_json::to_vec(table).map_err(|error| Error::Argument(error.to_string()))?
            }
            _ => Vec::new(),
        };
        let mut length = [own.len() as u64];
        self.mine().broadcast(&mut length, 0)?;
        if length[0] == 0 {
            return Ok(());
        }
        let mut text = if self.rank() == 0 { own } else { vec![0; length[0].min(1 << 20) as usize] };
        self.mine().broadcast(&mut text, 0)?;
        let table = serde_json::from_slice(&text).map_err(|error| Error::NotATeam(error.to_string()))?;
        self.install(table)
    }

    /// What a tuning of this team holds for: see [`store::key`].
    pub fn key(&self) -> String {
        let (cell, place) = (self.station.area.cell_bytes(), store::place(&self.mask, self.ranks()));
        store::key(self.ranks(), self.crowded(), cell, &place)
    }
}
