//! Letting candidates run in turn: calls of one kind, size and manner, again and again, in batches that all ranks time together.

use super::judge::{self, Candidate};
use super::{Job, Tried, with};
use crate::Result;
use crate::algorithm_table::{CallClass, Table};
use crate::call::{Call, Kind, Sync};
use crate::rank::Rank;
use crate::reduce::{Kernel, Operator, Type};
use std::time::{Duration, Instant};

/// A batch lasts about so long: shorter than what usually disturbs is apart.
const BATCH: Duration = Duration::from_micros(300);
/// Batches of each candidate in the stages of a race; half of them go after each but the last.
pub(super) const STAGES: [usize; 3] = [4, 6, 14];
/// Where none goes.
pub(super) const ALL: [usize; 1] = [30];
/// Four 16-bit ones; and a number whose sums do not overflow, as 64 bits.
const ONES: u64 = 0x3f80_3f80_3f80_3f80;

/// Lets the candidates run in turn, fewer from stage to stage.
pub(super) fn race(
    rank: &Rank,
    job: Job,
    tried: &[Tried],
    table: &Table,
    stages: &[usize],
) -> Result<Vec<Candidate>> {
    let mut work = Work::new(rank, job)?;
    let tables: Vec<Table> = tried.iter().map(|tried| with(table, job, *tried)).collect();
    let mut times = 1;
    rank.install(tables[0].clone())?;
    while work.batch(times)? * f64::from(times) < BATCH.as_secs_f64() * 1e6 && times < 1 << 20 {
        times *= 2;
    }
    let mut candidates: Vec<Candidate> = tried.iter().map(|_| Candidate::default()).collect();
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

/// Calls of one kind, size and manner, again and again.
struct Work<'a> {
    rank: &'a Rank,
    call: Call,
    input: Vec<u64>,
    output: Vec<u64>,
}

impl<'a> Work<'a> {
    fn new(rank: &'a Rank, job: Job) -> Result<Self> {
        let Job { kind, bytes, manner } = job;
        let elements = if manner.heavy() { Type::BF16 } else { Type::U64 };
        let count = bytes / elements.size();
        let (gives, gets) = kind.shape(rank.ranks(), count, true);
        let words = |elements_of: usize| (elements_of * elements.size()).div_ceil(8).max(1);
        // One value would be all the same to every way, but not to a processor that has never touched the memory.
        let (input, output) = (vec![ONES; words(gives)], vec![2; words(gets)]);
        let call = Call {
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

    /// Microseconds per call of the slowest rank.
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
            // SAFETY: both have what a call of this shape needs at any rank, and are this rank's alone.
            unsafe { self.rank.call(&self.call)? };
        }
        let nanoseconds = [u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)];
        let mut slowest = [0];
        self.rank.mine().allreduce(&nanoseconds, &mut slowest, Operator::Max)?;
        Ok(slowest[0] as f64 / 1e3 / f64::from(times))
    }
}
