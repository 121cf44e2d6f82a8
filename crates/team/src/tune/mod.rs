//! Finding out which ways are quickest here, by trying them.
//!
//! **Problem.** Other work, interrupts and moves of threads make single measurements of microseconds wrong by factors; a tuner that takes
//! one mean of each candidate chooses the slower of two barriers four times in ten.
//!
//! **Idea.** Short batches of all candidates in turn, judged by their minima: what disturbs makes slower, never quicker. Half of the
//! candidates go after each stage. The usual way is left only for one that is clearly better ([`judge`]). All ranks measure together, the
//! slowest counts, and since all know the slowest's time all come to the same verdict without being told.
//!
//! **Source.** Replays of recorded batches (best of 20: right in practically all draws of pairs 1.3 times apart); GASNet's tuner
//! (`gasnet_autotune.c`) for what to avoid.

pub mod judge;
pub mod store;

use crate::barrier::Barrier;
use crate::call::{Call, Kind, Sync};
use crate::choice::{Table, Way, class};
use crate::rank::Rank;
use crate::reduce::{Kernel, Operator, Type};
use crate::{Error, Result};
use judge::{Candidate, Verdict};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A batch lasts about so long: shorter than what usually disturbs is apart.
const BATCH: Duration = Duration::from_micros(300);
/// Batches of each candidate in the stages of a race; half of them go after each but the last.
const STAGES: [usize; 3] = [4, 6, 14];

/// What is to be tuned.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Kinds of calls.
    pub kinds: Vec<Kind>,
    /// Bytes of a block.
    pub sizes: Vec<usize>,
    /// Not longer than this, all in all: what is left then stays as usual.
    pub budget: Duration,
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
            budget: Duration::from_secs(4),
        }
    }
}

/// A way of meeting or of moving data, for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// A barrier.
    Barrier(Barrier),
    /// Another call.
    Way(Way),
}

/// What was measured of one kind and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Of calls.
    pub kind: Kind,
    /// Of a block.
    pub bytes: usize,
    /// Candidates in the order in which they were tried, the usual first, with microseconds per call of each batch.
    pub candidates: Vec<(Tried, Vec<f64>)>,
    /// Which of them is used from now on, and why.
    pub verdict: Verdict,
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
    /// What was left out when time was over.
    pub left: usize,
}

/// Tunes a team, and installs what was found. All its ranks must call it with the same plan.
pub fn tune(rank: &Rank, plan: &Plan) -> Result<Tuning> {
    let begin = Instant::now();
    let mut tuning = Tuning {
        ranks: rank.ranks(),
        crowded: rank.crowded(),
        table: rank.table(),
        cells: Vec::new(),
        left: 0,
    };
    // The deadline is one for all: the slowest clock says when it is reached.
    let over = |rank: &Rank| -> Result<bool> {
        let late = [u64::from(begin.elapsed() > plan.budget)];
        let mut any = [0];
        rank.mine().allreduce(&late, &mut any, Operator::Max)?;
        Ok(any[0] != 0)
    };
    let jobs: Vec<(Kind, usize)> = plan
        .kinds
        .iter()
        .flat_map(|kind| {
            if *kind == Kind::Barrier {
                vec![(*kind, 0)]
            } else {
                plan.sizes.iter().map(|size| (*kind, *size)).collect()
            }
        })
        .collect();
    for (at, (kind, bytes)) in jobs.iter().enumerate() {
        if over(rank)? {
            tuning.left = jobs.len() - at;
            break;
        }
        let tried: Vec<Tried> = if *kind == Kind::Barrier {
            let usual = Table::usual(rank.crowded()).barrier;
            std::iter::once(usual)
                .chain(Barrier::ALL.into_iter().filter(|barrier| *barrier != usual))
                .map(Tried::Barrier)
                .collect()
        } else {
            Way::candidates(*kind, *bytes, rank.station.area.cell_bytes(), rank.crowded())
                .into_iter()
                .map(Tried::Way)
                .collect()
        };
        if tried.len() < 2 {
            continue;
        }
        let cell = race(rank, *kind, *bytes, &tried, &tuning.table)?;
        let (winner, _) = cell.candidates[cell.verdict.winner];
        tuning.table = with(&tuning.table, *kind, *bytes, winner);
        rank.install(tuning.table.clone())?;
        tuning.cells.push(cell);
    }
    Ok(tuning)
}

/// The table with one way changed.
fn with(table: &Table, kind: Kind, bytes: usize, tried: Tried) -> Table {
    let mut table = table.clone();
    match tried {
        Tried::Barrier(barrier) => table.barrier = barrier,
        Tried::Way(way) => {
            table.ways.entry(kind).or_default().insert(class(bytes), way);
        }
    }
    table
}

/// Lets the candidates run in turn, fewer from stage to stage.
fn race(rank: &Rank, kind: Kind, bytes: usize, tried: &[Tried], table: &Table) -> Result<Cell> {
    let mut work = Work::new(rank, kind, bytes)?;
    let tables: Vec<Table> = tried.iter().map(|tried| with(table, kind, bytes, *tried)).collect();
    let mut times = 1;
    rank.install(tables[0].clone())?;
    while work.batch(times)? * (times as f64) < BATCH.as_secs_f64() * 1e6 && times < 1 << 20 {
        times *= 2;
    }
    let mut candidates: Vec<Candidate> = tried.iter().map(|_| Candidate::default()).collect();
    for (stage, batches) in STAGES.into_iter().enumerate() {
        for _ in 0..batches {
            for at in 0..candidates.len() {
                if !candidates[at].out {
                    rank.install(tables[at].clone())?;
                    let time = work.batch(times)?;
                    candidates[at].batches.push(time);
                }
            }
        }
        if stage + 1 < STAGES.len() {
            judge::halve(&mut candidates);
        }
    }
    let verdict = judge::verdict(&candidates);
    Ok(Cell {
        kind,
        bytes,
        candidates: tried
            .iter()
            .copied()
            .zip(candidates.into_iter().map(|candidate| candidate.batches))
            .collect(),
        verdict,
    })
}

/// Calls of one kind and size, again and again.
struct Work<'a> {
    rank: &'a Rank,
    call: Call,
    input: Vec<u64>,
    output: Vec<u64>,
}

impl<'a> Work<'a> {
    fn new(rank: &'a Rank, kind: Kind, bytes: usize) -> Result<Self> {
        let count = bytes / 8;
        let (gives, gets) = kind.shape(rank.ranks(), count, true);
        // One value would be all the same to every way, but not to a processor that has never touched the memory.
        let (input, output) = (vec![1; gives.max(1)], vec![2; gets.max(1)]);
        let call = Call {
            kind,
            elements: Type::U64,
            operator: kind.combines().then_some(Operator::Sum),
            kernel: if kind.combines() { Some(Kernel::of(Type::U64, Operator::Sum)?) } else { None },
            count,
            root: 0,
            input: input.as_ptr().cast(),
            output: std::ptr::null_mut(),
            sync: Sync::MINE,
        };
        Ok(Self { rank, call, input, output })
    }

    /// Microseconds per call of the slowest rank.
    fn batch(&mut self, times: u32) -> Result<f64> {
        self.call.input = self.input.as_ptr().cast();
        self.call.output = self.output.as_mut_ptr().cast();
        self.rank.barrier()?;
        let begin = Instant::now();
        for _ in 0..times {
            // SAFETY: both have what a call of this shape needs at any rank, and are this rank's alone.
            unsafe { self.rank.call(&self.call)? };
        }
        let nanoseconds = [u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)];
        let mut slowest = [0];
        self.rank.mine().allreduce(&nanoseconds, &mut slowest, Operator::Max)?;
        Ok(slowest[0] as f64 / 1e3 / f64::from(times))
    }
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

    /// How a call of so many bytes goes, in words.
    pub fn explain(&self, kind: Kind, bytes: usize) -> String {
        let table = self.table();
        let measured = table.ways.get(&kind).is_some_and(|ways| ways.contains_key(&class(bytes)));
        let why = if measured { "as was measured here" } else { "as usual: nothing was measured of it" };
        if kind == Kind::Barrier {
            let many =
                if self.crowded() { "more ranks than processors" } else { "a processor for each rank" };
            return format!("barrier: {:?}; {many}", table.barrier).to_lowercase();
        }
        if bytes <= crate::flag::INLINE {
            return format!("{} of {bytes} bytes: beside the flags, in one round", kind.name());
        }
        let way = match self.station.way(kind, bytes) {
            Way::Whole => format!("in rounds of up to {} bytes", self.station.area.cell_bytes()),
            Way::Pieces(log) => format!("in rounds of {} bytes", 1_u64 << log),
            Way::Slices(log) => format!("in pieces of {} bytes, each rank combining its slice", 1_u64 << log),
            Way::Wide => {
                "in pieces as large as all of a rank's cells, each rank combining its slice".to_owned()
            }
            Way::Tree(log) => format!("from rank to rank, each to up to {} others", 1_u64 << log),
            Way::Relayed => {
                "to one rank of each group that shares a cache, and from there to the others".to_owned()
            }
        };
        let resident = match kind {
            _ if bytes < crate::collectives::RESIDENT => "",
            Kind::Allreduce => "; without staging where all buffers lie in the segment",
            _ => "; without staging where inputs lie in the segment",
        };
        format!("{} of {bytes} bytes: {way}{resident}; {why}", kind.name())
    }
}
