//! Race of candidates in turns: calls of one kind, size and class, repeated in batches that all
//! ranks time together.

use super::judge::{self, CandidateTimes};
use super::{Job, Tried, with};
use crate::Result;
use crate::algorithm_table::{AlgorithmTable, CallClass};
use crate::call::{CollectiveCall, Kind, Sync};
use crate::rank::Rank;
use crate::reduce::{Kernel, Operator, Type};
use std::time::{Duration, Instant};

/// Length of a batch: shorter than the usual interval between disturbances.
const BATCH_LENGTH: Duration = Duration::from_micros(300);
/// Batches of each candidate in the stages of a race; half of the candidates are removed after each
/// stage but the last.
pub(super) const STAGES: [usize; 3] = [4, 6, 14];
/// Stages of a race in which no candidate is removed.
pub(super) const ALL: [usize; 1] = [30];
/// Input of the calls: four 16-bit ones; as 64 bits a number with sums that do not overflow.
const ONES_BITS: u64 = 0x3f80_3f80_3f80_3f80;

/// Runs the candidates in turn, fewer from stage to stage.
pub(super) fn race(
    rank: &Rank,
    job: Job,
    tried: &[Tried],
    table: &AlgorithmTable,
    stages: &[usize],
) -> Result<Vec<CandidateTimes>> {
    let mut work = BatchRunner::new(rank, job)?;
    let tables: Vec<AlgorithmTable> = tried.iter().map(|tried| with(table, job, *tried)).collect();
    let mut times = 1;
    rank.install(tables[0].clone())?;
    while work.batch(times)? * f64::from(times) < BATCH_LENGTH.as_secs_f64() * 1e6 && times < 1 << 20 {
        times *= 2;
    }
    let mut candidates: Vec<CandidateTimes> = tried.iter().map(|_| CandidateTimes::default()).collect();
    for (stage, batches) in stages.iter().enumerate() {
        for _ in 0..*batches {
            for at in 0..candidates.len() {
                if !candidates[at].out {
                    rank.install(tables[at].clone())?;
                    let time = work.batch(times)?;
                    candidates[at].batches.push(time);
                }
            }
        }
        if stage + 1 < stages.len() {
            judge::halve(&mut candidates);
        }
    }
    rank.install(table.clone())?;
    Ok(candidates)
}

/// Repeated calls of one kind, size and class.
struct BatchRunner<'a> {
    rank: &'a Rank,
    call: CollectiveCall,
    input: Vec<u64>,
    output: Vec<u64>,
}

impl<'a> BatchRunner<'a> {
    fn new(rank: &'a Rank, job: Job) -> Result<Self> {
        let Job { kind, bytes, manner } = job;
        let elements = if manner.heavy() { Type::BF16 } else { Type::U64 };
        let count = bytes / elements.size();
        let (gives, gets) = kind.shape(rank.ranks(), count, true);
        let words = |elements_of: usize| (elements_of * elements.size()).div_ceil(8).max(1);
        // The value makes no difference to an algorithm, but untouched memory does to a CPU:
        // therefore the memory is written.
        let (input, output) = (vec![ONES_BITS; words(gives)], vec![2; words(gets)]);
        let call = CollectiveCall {
            kind,
            elements,
            operator: kind.combines().then_some(Operator::Sum),
            kernel: if kind.combines() { Some(Kernel::of(elements, Operator::Sum)?) } else { None },
            count,
            root: 0,
            input: input.as_ptr().cast(),
            output: std::ptr::null_mut(),
            sync: match manner {
                CallClass::Mine | CallClass::HeavyMine => Sync::MINE,
                CallClass::Loose | CallClass::HeavyLoose => Sync::LOOSE,
                CallClass::Strict | CallClass::HeavyStrict => Sync::STRICT,
            },
        };
        Ok(Self { rank, call, input, output })
    }

    /// Returns the microseconds per call of the slowest rank.
    fn batch(&mut self, times: u32) -> Result<f64> {
        self.call.input = self.input.as_ptr().cast();
        self.call.output = self.output.as_mut_ptr().cast();
        if self.call.kind == Kind::Broadcast {
            // One buffer is both.
            self.call.input = self.call.output.cast_const();
        }
        self.rank.barrier()?;
        let begin = Instant::now();
        for _ in 0..times {
            // SAFETY: both have the size that a call of this shape needs at any rank, and belong to
            // this rank alone.
            unsafe { self.rank.call(&self.call)? };
        }
        let nanoseconds = [u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)];
        let mut slowest = [0];
        self.rank.mine().allreduce(&nanoseconds, &mut slowest, Operator::Max)?;
        Ok(slowest[0] as f64 / 1e3 / f64::from(times))
    }
}
