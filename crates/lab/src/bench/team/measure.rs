//! Verification, calibration, timing and report of one rank of a team, as bench/team/measure.c does
//! it for the peers.
//!
//! Unit: microseconds per call. Both follow the same rules, so that their values are comparable.
//! Results are verified before the measurement and after every batch, with values that change from
//! batch to batch. Buffers are rewritten before each batch. A batch has the same number of calls in
//! every rank; its time is that of the slowest rank, and its CPU time that of all ranks. The share
//! of the machine that other processes used is reported with it.

use crate::args::{Mode, Operation, TeamCellArgs};
use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::io::Write;
use std::time::Duration;
use trimtab_front::args::ranks::RankLayout;
use trimtab_front::exit;
use trimtab_team::{Element, Kind, Operator, Rank, Shared, Sync, Team};

/// Exit status for a wrong result of an operation.
const EXIT_WRONG_RESULT: u8 = 3;
/// Calls that are verified before the timed ones.
const WARM_UP_CALLS: u32 = 12;
/// Largest number of ranks that arrive late, one after the other, at a barrier that is verified;
/// and their delay.
const LATE_MAX: u32 = 8;
const LATE_BY: Duration = Duration::from_micros(300);
/// Shortest window for a share of the machine, in seconds: the kernel counts the machine's CPU time
/// in ticks of 10 ms, and a share is computed over at least ten.
const FOREIGN_WINDOW_S: f64 = 0.1;
const TICKS_A_SECOND: f64 = 100.0;

/// Returns the CPUs that this process may use.
///
/// # Errors
/// The kernel does not report them.
pub(super) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the allowed CPUs")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Measures as this rank; rank 0 prints. The exit status is the same in every rank.
///
/// # Errors
/// The team fails, or the report cannot be written.
pub(super) fn rank(args: &TeamCellArgs, team: &Team, number: u32, allowed: &[usize]) -> Result<u8> {
    if let Some(&cpu) = allowed.get(number as usize % allowed.len().max(1)).filter(|_| args.pinned) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).context("cannot bind a rank to its CPU")?;
    }
    let rank = team.join(Some(number))?;
    let mut bench = RankBench::new(args, &rank)?;
    let status = bench.batches()?;
    // Other ranks may still read this rank's buffers until all have arrived here.
    rank.barrier()?;
    Ok(status)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

fn now() -> f64 {
    seconds(ClockId::Monotonic)
}

/// Returns the CPU seconds of all CPUs since boot.
fn machine_busy() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line.split_whitespace().take(7).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _wait, interrupts, soft] = ticks[..] else { return None };
    Some((user + nice + system + interrupts + soft) / TICKS_A_SECOND)
}

fn online() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    cpus.max(1) as f64
}

/// Time, and CPU time of the machine and of this team, at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct LoadMoment {
    at: f64,
    busy: Option<f64>,
    own: f64,
}

impl LoadMoment {
    fn now(own: f64) -> Self {
        Self { at: now(), busy: machine_busy(), own }
    }
}

#[derive(Clone, Copy, Debug)]
struct TimedBatch {
    began: f64,
    ended: f64,
    us: f64,
    cpu_us: f64,
}

/// Returns the share of the machine that other processes used around a batch: over the batch, and
/// over as many neighbours as the window needs. The moment before batch i has index i + 1.
fn foreign(moments: &[LoadMoment], batch: &TimedBatch, at: usize, cpus: f64) -> Option<f64> {
    let spare = (FOREIGN_WINDOW_S - (batch.ended - batch.began)) / 2.0;
    let (mut before, mut after) = (at + 1, at + 2);
    while before > 0 && moments.get(before)?.at > batch.began - spare {
        before -= 1;
    }
    while after + 1 < moments.len() && moments.get(after)?.at < batch.ended + spare {
        after += 1;
    }
    let (before, after) = (moments.get(before)?, moments.get(after)?);
    let others = after.busy? - before.busy? - (after.own - before.own);
    Some((others / ((after.at - before.at) * cpus)).clamp(0.0, 1.0))
}

/// Memory that begins at a page boundary, as a mapping does.
struct Aligned<T> {
    all: Vec<T>,
    from: usize,
    count: usize,
}

impl<T: Element + Clone + Default> Aligned<T> {
    fn new(count: usize) -> Self {
        let all = vec![T::default(); count + 4096 / size_of::<T>()];
        let from = all.as_ptr().align_offset(4096).min(4096 / size_of::<T>());
        Self { all, from, count }
    }

    fn all(&self) -> &[T] {
        &self.all[self.from..self.from + self.count]
    }

    fn all_mut(&mut self) -> &mut [T] {
        &mut self.all[self.from..self.from + self.count]
    }
}

/// Buffers of an operation.
enum OperationData {
    Nothing,
    Bytes { input: Aligned<u8>, output: Aligned<u8> },
    Doubles { input: Aligned<f64>, output: Aligned<f64> },
    SharedBytes { block: Shared<u8>, copy: Vec<u8> },
    SharedParts { input: Shared<u8>, output: Shared<u8>, copy: Vec<u8> },
    SharedDoubles { input: Shared<f64>, output: Shared<f64>, copy: Vec<f64> },
}

/// Returns byte i of a block from one rank to another: different for neighbouring ranks and bytes,
/// and from one batch to the next.
fn byte(seed: u32, from: u32, to: u32, at: usize) -> u8 {
    let mixed = seed.wrapping_mul(59).wrapping_add(from * 31).wrapping_add(to * 17);
    (mixed as usize).wrapping_add((at + (at >> 8)) * 3) as u8
}

/// Returns a small integer, so that sums are exact in any order.
fn number(seed: u32, at: usize) -> f64 {
    ((at + seed as usize) % 17) as f64
}

struct RankBench<'a> {
    args: &'a TeamCellArgs,
    rank: &'a Rank,
    sync: Sync,
    data: OperationData,
    /// Values gathered from all ranks.
    all: Vec<f64>,
}

impl<'a> RankBench<'a> {
    fn new(args: &'a TeamCellArgs, rank: &'a Rank) -> Result<Self> {
        let ranks = rank.ranks() as usize;
        let resident = args.mode == Mode::Resident;
        let data = match args.op {
            Operation::Barrier => OperationData::Nothing,
            Operation::Bcast if resident => {
                OperationData::SharedBytes { block: rank.alloc(args.bytes)?, copy: vec![0; args.bytes] }
            }
            Operation::Alltoall if resident => OperationData::SharedParts {
                input: rank.alloc(args.bytes * ranks)?,
                output: rank.alloc(args.bytes * ranks)?,
                copy: vec![0; args.bytes * ranks],
            },
            Operation::Bcast => {
                OperationData::Bytes { input: Aligned::new(args.bytes), output: Aligned::new(0) }
            }
            Operation::Alltoall => OperationData::Bytes {
                input: Aligned::new(args.bytes * ranks),
                output: Aligned::new(args.bytes * ranks),
            },
            Operation::Allreduce if resident => OperationData::SharedDoubles {
                input: rank.alloc(args.bytes / 8)?,
                output: rank.alloc(args.bytes / 8)?,
                copy: vec![0.0; args.bytes / 8],
            },
            Operation::Allreduce => OperationData::Doubles {
                input: Aligned::new(args.bytes / 8),
                output: Aligned::new(args.bytes / 8),
            },
        };
        let sync = match args.mode {
            Mode::Strict => Sync::STRICT,
            Mode::Loose => Sync::LOOSE,
            Mode::Stream | Mode::Resident => Sync::MINE,
        };
        Ok(Self { args, rank, sync, data, all: Vec::new() })
    }

    /// Gathers these numbers from every rank into [`Self::all`], in every rank.
    fn gather(&mut self, mine: &[f64]) -> Result<()> {
        self.all.resize(mine.len() * self.rank.ranks() as usize, 0.0);
        Ok(self.rank.mine().allgather(mine, &mut self.all)?)
    }

    fn all_say(&mut self, so: bool) -> Result<bool> {
        self.gather(&[if so { 1.0 } else { 0.0 }])?;
        Ok(self.all.iter().all(|said| *said > 0.0))
    }

    /// Rewrites all buffers: the data to send, and values that cannot be the result.
    fn fill(&mut self, seed: u32) -> Result<()> {
        // After a loose call, other ranks may use the buffers until all ranks have arrived.
        self.rank.barrier()?;
        let (me, bytes) = (self.rank.rank(), self.args.bytes);
        let sent = if me == 0 { seed } else { seed + 1 };
        match &mut self.data {
            OperationData::Nothing => {}
            OperationData::Bytes { input, output } if self.args.op == Operation::Alltoall => {
                output.all_mut().fill(0xff);
                for (to, block) in (0..).zip(input.all_mut().chunks_exact_mut(bytes)) {
                    block.iter_mut().enumerate().for_each(|(at, one)| *one = byte(seed, me, to, at));
                }
            }
            OperationData::Bytes { input, .. } => {
                input.all_mut().iter_mut().enumerate().for_each(|(at, one)| *one = byte(sent, 0, 0, at));
            }
            OperationData::SharedBytes { block, copy } => {
                copy.iter_mut().enumerate().for_each(|(at, one)| *one = byte(sent, 0, 0, at));
                block.store(0, copy)?;
            }
            OperationData::SharedParts { input, output, copy } => {
                copy.fill(0xff);
                output.store(0, copy)?;
                for (to, block) in (0..).zip(copy.chunks_exact_mut(bytes)) {
                    block.iter_mut().enumerate().for_each(|(at, one)| *one = byte(seed, me, to, at));
                }
                input.store(0, copy)?;
            }
            OperationData::Doubles { input, output } => {
                output.all_mut().fill(f64::NAN);
                let values = input.all_mut().iter_mut().enumerate();
                values.for_each(|(at, one)| *one = number(seed, at) + f64::from(me));
            }
            OperationData::SharedDoubles { input, output, copy } => {
                copy.fill(f64::NAN);
                output.store(0, copy)?;
                copy.iter_mut().enumerate().for_each(|(at, one)| *one = number(seed, at) + f64::from(me));
                input.store(0, copy)?;
            }
        }
        Ok(())
    }

    fn is_right(&mut self, seed: u32) -> Result<bool> {
        let (me, ranks, bytes) = (self.rank.rank(), f64::from(self.rank.ranks()), self.args.bytes);
        let sum = |at: usize| ranks * number(seed, at) + ranks * (ranks - 1.0) / 2.0;
        let sums = |values: &[f64]| values.iter().enumerate().all(|(at, one)| *one == sum(at));
        let sent = |values: &[u8]| values.iter().enumerate().all(|(at, one)| *one == byte(seed, 0, 0, at));
        let parts = |all: &[u8]| {
            (0..).zip(all.chunks_exact(bytes)).all(|(from, block)| {
                block.iter().enumerate().all(|(at, one)| *one == byte(seed, from, me, at))
            })
        };
        Ok(match &mut self.data {
            OperationData::Nothing => true,
            OperationData::Bytes { output, .. } if self.args.op == Operation::Alltoall => parts(output.all()),
            OperationData::SharedParts { output, copy, .. } => {
                output.load(me, 0, copy)?;
                parts(copy)
            }
            OperationData::Bytes { input, .. } => sent(input.all()),
            OperationData::Doubles { output, .. } => sums(output.all()),
            OperationData::SharedBytes { block, copy } => {
                block.load(me, 0, copy)?;
                sent(copy)
            }
            OperationData::SharedDoubles { output, copy, .. } => {
                output.load(me, 0, copy)?;
                sums(copy)
            }
        })
    }

    fn call(&mut self, calls: u64) -> Result<()> {
        let (rank, sync) = (self.rank, self.sync);
        // One loop for each operation, as in the peers, so that nothing is decided between two
        // calls.
        match &mut self.data {
            OperationData::Nothing => (0..calls).try_for_each(|_| rank.barrier())?,
            OperationData::Bytes { input, output } if self.args.op == Operation::Alltoall => {
                let (input, output) = (input.all(), output.all_mut());
                (0..calls).try_for_each(|_| rank.with(sync).alltoall(input, output))?;
            }
            OperationData::Bytes { input, .. } => {
                let buffer = input.all_mut();
                (0..calls).try_for_each(|_| rank.with(sync).broadcast(buffer, 0))?;
            }
            OperationData::Doubles { input, output } => {
                let (input, output) = (input.all(), output.all_mut());
                (0..calls).try_for_each(|_| rank.with(sync).allreduce(input, output, Operator::Sum))?;
            }
            OperationData::SharedBytes { block, .. } => {
                (0..calls).try_for_each(|_| rank.broadcast_shared(block, 0, sync))?;
            }
            OperationData::SharedParts { input, output, .. } => {
                let bytes = self.args.bytes;
                let call = || rank.call_shared(Kind::Alltoall, bytes, input, output, 0, None, sync);
                (0..calls).try_for_each(|_| call())?;
            }
            OperationData::SharedDoubles { input, output, .. } => {
                (0..calls).try_for_each(|_| rank.allreduce_shared(input, output, Operator::Sum, sync))?;
            }
        }
        Ok(())
    }

    /// Verifies that no rank leaves a barrier before the last one has arrived, whichever is last.
    /// All ranks use the machine's clock.
    fn barrier_holds(&mut self) -> Result<bool> {
        let ranks = self.rank.ranks();
        let mut holds = true;
        for late in 0..ranks.min(LATE_MAX) {
            if self.rank.rank() == ranks - 1 - late {
                std::thread::sleep(LATE_BY);
            }
            let came = now();
            self.rank.barrier()?;
            self.gather(&[came, now()])?;
            let came = self.all.iter().step_by(2).copied().fold(f64::MIN, f64::max);
            let left = self.all.iter().skip(1).step_by(2).copied().fold(f64::MAX, f64::min);
            holds &= came <= left;
        }
        Ok(holds)
    }

    /// Makes the first calls: each with other values, each verified.
    fn warm_up(&mut self) -> Result<bool> {
        let mut right = self.barrier_holds()?;
        for seed in 0..WARM_UP_CALLS {
            self.fill(seed)?;
            self.call(1)?;
            right &= self.is_right(seed)?;
        }
        self.all_say(right)
    }

    /// Returns the seconds of the slowest rank, the CPU seconds of all ranks, and their total CPU
    /// seconds so far.
    fn timed(&mut self, calls: u64) -> Result<(f64, f64, f64)> {
        // A process of several ranks has one thread for each.
        let clock = match self.args.kind {
            RankLayout::Processes => ClockId::ProcessCPUTime,
            _ => ClockId::ThreadCPUTime,
        };
        self.rank.barrier()?;
        let (cpu_began, began) = (seconds(clock), now());
        self.call(calls)?;
        let (ended, cpu_ended) = (now(), seconds(clock));
        self.gather(&[ended - began, cpu_ended - cpu_began, cpu_ended])?;
        let of = |at: usize| self.all.iter().skip(at).step_by(3).copied();
        Ok((of(0).fold(0.0, f64::max), of(1).sum(), of(2).sum()))
    }

    /// Returns the number of calls in a batch. All ranks have the time of the slowest rank and
    /// therefore compute the same number. The shortest of three runs counts.
    fn calibrate(&mut self) -> Result<u64> {
        let wanted = self.args.milliseconds / 1e3;
        let mut calls = 1_u64;
        loop {
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                least = least.min(self.timed(calls)?.0);
                if least < wanted / 2.0 {
                    break;
                }
            }
            if least >= wanted / 2.0 {
                return Ok(((calls as f64 * wanted / least + 0.5) as u64).max(1));
            }
            calls *= 2;
        }
    }

    fn batches(&mut self) -> Result<u8> {
        let prints = self.rank.rank() == 0;
        let mut moments = Vec::new();
        let mut done: Vec<TimedBatch> = Vec::new();
        let (_, _, own) = self.timed(0)?;
        moments.push(LoadMoment::now(own));
        let mut right = self.warm_up()?;
        if right {
            let calls = self.calibrate()?;
            let (_, _, own) = self.timed(0)?;
            moments.push(LoadMoment::now(own));
            for seed in WARM_UP_CALLS..WARM_UP_CALLS + self.args.batches {
                self.fill(seed)?;
                let began = now();
                let (slowest, cpu, own) = self.timed(calls)?;
                let [us, cpu_us] = [slowest, cpu].map(|seconds| seconds * 1e6 / calls as f64);
                done.push(TimedBatch { began, ended: now(), us, cpu_us });
                // Reading the machine's time is expensive, and only the printing rank needs it.
                if prints {
                    moments.push(LoadMoment::now(own));
                }
                let so = self.is_right(seed)?;
                right = self.all_say(so)?;
                if !right {
                    break;
                }
            }
        }
        if !right {
            if prints {
                let TeamCellArgs { ranks, op, bytes, .. } = self.args;
                let said = format!("wrong result of {} with {ranks} ranks, {bytes} bytes", op.word());
                trimtab_front::diagnostics::warning(trimtab_front::diagnostics::Volume::Normal, &said);
            }
            return Ok(EXIT_WRONG_RESULT);
        }
        if prints {
            self.print(&moments, &done).context("cannot write the report")?;
        }
        Ok(exit::DONE)
    }

    fn print(&self, moments: &[LoadMoment], done: &[TimedBatch]) -> std::io::Result<()> {
        let TeamCellArgs { ranks, op, bytes, mode, kind, .. } = *self.args;
        let bytes = if op == Operation::Barrier { 0 } else { bytes };
        let round = |number: f64, to: f64| (number * to).round() / to;
        let cpus = online();
        let mut out = std::io::stdout().lock();
        for (at, batch) in done.iter().enumerate() {
            let foreign = foreign(moments, batch, at, cpus).map(|share| round(share, 1e3));
            let line = json!({
                "peer": "team", "kind": kind.to_string(), "ranks": ranks, "op": op.word(), "bytes": bytes, "mode": mode.word(),
                "us": round(batch.us, 1e4), "cpu_us": round(batch.cpu_us, 1e4), "foreign": foreign,
            });
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_others_is_computed_over_enough_batches() {
        let moment = |at: f64, busy: f64, own: f64| LoadMoment { at, busy: Some(busy), own };
        // For 0.4 s this team had two CPUs, and other processes none; then others had one.
        let moments: Vec<LoadMoment> = (0..9)
            .map(|at| f64::from(at) * 0.05)
            .map(|at| moment(at, 2.0 * at, if at > 0.21 { 0.4 + (at - 0.2) } else { 2.0 * at }))
            .collect();
        let batch = |at: usize| TimedBatch {
            began: moments[at + 1].at,
            ended: moments[at + 2].at,
            us: 1.0,
            cpu_us: 1.0,
        };
        assert_eq!(foreign(&moments, &batch(0), 0, 2.0), Some(0.0));
        assert!((foreign(&moments, &batch(6), 6, 2.0).unwrap() - 0.5).abs() < 1e-9);
        let blind: Vec<LoadMoment> =
            moments.iter().map(|moment| LoadMoment { busy: None, ..*moment }).collect();
        assert_eq!(foreign(&blind, &batch(0), 0, 2.0), None);
    }

    #[test]
    fn every_cell_is_right_in_every_mode() {
        for op in Operation::ALL {
            for mode in Mode::ALL.into_iter().filter(|mode| mode.fits(op)) {
                for ranks in [1, 2, 3] {
                    let args = TeamCellArgs {
                        ranks,
                        op,
                        bytes: 4104,
                        mode,
                        batches: 1,
                        milliseconds: 0.01,
                        kind: RankLayout::Threads,
                        pinned: false,
                    };
                    let team = Team::new(trimtab_team::Options::new(ranks)).unwrap();
                    std::thread::scope(|scope| {
                        let threads: Vec<_> = (0..ranks)
                            .map(|number| {
                                let (args, team) = (&args, &team);
                                scope.spawn(move || {
                                    let rank = team.join(Some(number)).unwrap();
                                    let mut bench = RankBench::new(args, &rank).unwrap();
                                    assert!(bench.warm_up().unwrap(), "{args:?}");
                                    // A correct result must be found wrong for another batch.
                                    assert_eq!(
                                        bench.is_right(WARM_UP_CALLS).unwrap(),
                                        op == Operation::Barrier,
                                        "{args:?}"
                                    );
                                    rank.barrier().unwrap();
                                })
                            })
                            .collect();
                        threads.into_iter().for_each(|thread| thread.join().unwrap());
                    });
                }
            }
        }
    }
}
