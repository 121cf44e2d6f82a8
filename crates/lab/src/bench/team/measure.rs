//! Verifying, calibrating, timing and reporting of one rank: what bench/team/measure.c does for the peers, for a team.
//!
//! Unit: microseconds a call. What decides whether figures can be set side by side is the same there: results are verified before anything is
//! measured and after every batch, with values that change from batch to batch; buffers are written anew before each; a batch
//! has the same number of calls in every rank; its time is that of the slowest rank and its CPU time that of all; beside it stands what others
//! took of the machine.

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

/// An operation did not give what it should.
const WRONG: u8 = 3;
/// Calls that are verified before any is timed.
const WARM_UP: u32 = 12;
/// Ranks that come late, one after the other, to a barrier that is verified; and how late.
const LATE_MAX: u32 = 8;
const LATE: Duration = Duration::from_micros(300);
/// The kernel counts a machine's CPU time in ticks of 10 ms: shares of it are told over ten, at least.
const WINDOW: f64 = 0.1;
const TICKS_A_SECOND: f64 = 100.0;

/// The CPUs that this process may use.
///
/// # Errors
/// The kernel does not say.
pub(super) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask which CPUs are allowed")?;
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
    let mut bench = Bench::new(args, &rank)?;
    let status = bench.batches()?;
    // Others may still read this rank's buffers until all have come here.
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

/// CPU seconds of all CPUs since the machine was started.
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

/// The machine and this team at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: f64,
    busy: Option<f64>,
    own: f64,
}

impl Moment {
    fn now(own: f64) -> Self {
        Self { at: now(), busy: machine_busy(), own }
    }
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    began: f64,
    ended: f64,
    us: f64,
    cpu_us: f64,
}

/// What others took of the machine around a batch: over it and as many neighbours as it takes to be told. The moment before batch i
/// is the one of number i + 1.
fn foreign(moments: &[Moment], batch: &Batch, at: usize, cpus: f64) -> Option<f64> {
    let spare = (WINDOW - (batch.ended - batch.began)) / 2.0;
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

/// Memory that begins with a page, as a mapping does.
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

/// What an operation works on.
enum Data {
    Nothing,
    Bytes { input: Aligned<u8>, output: Aligned<u8> },
    Doubles { input: Aligned<f64>, output: Aligned<f64> },
    SharedBytes { block: Shared<u8>, copy: Vec<u8> },
    SharedParts { input: Shared<u8>, output: Shared<u8>, copy: Vec<u8> },
    SharedDoubles { input: Shared<f64>, output: Shared<f64>, copy: Vec<f64> },
}

/// Byte i of what one rank has for another: different for neighbours in each of these, and from one batch to the next.
fn byte(seed: u32, from: u32, to: u32, at: usize) -> u8 {
    let mixed = seed.wrapping_mul(59).wrapping_add(from * 31).wrapping_add(to * 17);
    (mixed as usize).wrapping_add((at + (at >> 8)) * 3) as u8
}

/// Small whole numbers, so that sums are exact in whatever order.
fn number(seed: u32, at: usize) -> f64 {
    ((at + seed as usize) % 17) as f64
}

struct Bench<'a> {
    args: &'a TeamCellArgs,
    rank: &'a Rank,
    sync: Sync,
    data: Data,
    /// What all ranks told.
    all: Vec<f64>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a TeamCellArgs, rank: &'a Rank) -> Result<Self> {
        let ranks = rank.ranks() as usize;
        let resident = args.mode == Mode::Resident;
        let data = match args.op {
            Operation::Barrier => Data::Nothing,
            Operation::Bcast if resident => {
                Data::SharedBytes { block: rank.alloc(args.bytes)?, copy: vec![0; args.bytes] }
            }
            Operation::Alltoall if resident => Data::SharedParts {
                input: rank.alloc(args.bytes * ranks)?,
                output: rank.alloc(args.bytes * ranks)?,
                copy: vec![0; args.bytes * ranks],
            },
            Operation::Bcast => Data::Bytes { input: Aligned::new(args.bytes), output: Aligned::new(0) },
            Operation::Alltoall => Data::Bytes {
                input: Aligned::new(args.bytes * ranks),
                output: Aligned::new(args.bytes * ranks),
            },
            Operation::Allreduce if resident => Data::SharedDoubles {
                input: rank.alloc(args.bytes / 8)?,
                output: rank.alloc(args.bytes / 8)?,
                copy: vec![0.0; args.bytes / 8],
            },
            Operation::Allreduce => {
                Data::Doubles { input: Aligned::new(args.bytes / 8), output: Aligned::new(args.bytes / 8) }
            }
        };
        let sync = match args.mode {
            Mode::Strict => Sync::STRICT,
            Mode::Loose => Sync::LOOSE,
            Mode::Stream | Mode::Resident => Sync::MINE,
        };
        Ok(Self { args, rank, sync, data, all: Vec::new() })
    }

    /// Every rank learns these numbers of every rank, in [`Self::all`].
    fn gather(&mut self, mine: &[f64]) -> Result<()> {
        self.all.resize(mine.len() * self.rank.ranks() as usize, 0.0);
        Ok(self.rank.mine().allgather(mine, &mut self.all)?)
    }

    fn all_say(&mut self, so: bool) -> Result<bool> {
        self.gather(&[if so { 1.0 } else { 0.0 }])?;
        Ok(self.all.iter().all(|said| *said > 0.0))
    }

    /// Writes all buffers anew: what is to be sent, and what cannot be the result.
    fn fill(&mut self, seed: u32) -> Result<()> {
        // Loose calls leave buffers to the others until all have come.
        self.rank.barrier()?;
        let (me, bytes) = (self.rank.rank(), self.args.bytes);
        let sent = if me == 0 { seed } else { seed + 1 };
        match &mut self.data {
            Data::Nothing => {}
            Data::Bytes { input, output } if self.args.op == Operation::Alltoall => {
                output.all_mut().fill(0xff);
                for (to, block) in (0..).zip(input.all_mut().chunks_exact_mut(bytes)) {
                    block.iter_mut().enumerate().for_each(|(at, one)| *one = byte(seed, me, to, at));
                }
            }
            Data::Bytes { input, .. } => {
                input.all_mut().iter_mut().enumerate().for_each(|(at, one)| *one = byte(sent, 0, 0, at));
            }
            Data::SharedBytes { block, copy } => {
                copy.iter_mut().enumerate().for_each(|(at, one)| *one = byte(sent, 0, 0, at));
                block.store(0, copy)?;
            }
            Data::SharedParts { input, output, copy } => {
                copy.fill(0xff);
                output.store(0, copy)?;
                for (to, block) in (0..).zip(copy.chunks_exact_mut(bytes)) {
                    block.iter_mut().enumerate().for_each(|(at, one)| *one = byte(seed, me, to, at));
                }
                input.store(0, copy)?;
            }
            Data::Doubles { input, output } => {
                output.all_mut().fill(f64::NAN);
                let values = input.all_mut().iter_mut().enumerate();
                values.for_each(|(at, one)| *one = number(seed, at) + f64::from(me));
            }
            Data::SharedDoubles { input, output, copy } => {
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
            Data::Nothing => true,
            Data::Bytes { output, .. } if self.args.op == Operation::Alltoall => parts(output.all()),
            Data::SharedParts { output, copy, .. } => {
                output.load(me, 0, copy)?;
                parts(copy)
            }
            Data::Bytes { input, .. } => sent(input.all()),
            Data::Doubles { output, .. } => sums(output.all()),
            Data::SharedBytes { block, copy } => {
                block.load(me, 0, copy)?;
                sent(copy)
            }
            Data::SharedDoubles { output, copy, .. } => {
                output.load(me, 0, copy)?;
                sums(copy)
            }
        })
    }

    fn call(&mut self, calls: u64) -> Result<()> {
        let (rank, sync) = (self.rank, self.sync);
        // One loop each, as the peers have, so that nothing is decided between two calls.
        match &mut self.data {
            Data::Nothing => (0..calls).try_for_each(|_| rank.barrier())?,
            Data::Bytes { input, output } if self.args.op == Operation::Alltoall => {
                let (input, output) = (input.all(), output.all_mut());
                (0..calls).try_for_each(|_| rank.with(sync).alltoall(input, output))?;
            }
            Data::Bytes { input, .. } => {
                let buffer = input.all_mut();
                (0..calls).try_for_each(|_| rank.with(sync).broadcast(buffer, 0))?;
            }
            Data::Doubles { input, output } => {
                let (input, output) = (input.all(), output.all_mut());
                (0..calls).try_for_each(|_| rank.with(sync).allreduce(input, output, Operator::Sum))?;
            }
            Data::SharedBytes { block, .. } => {
                (0..calls).try_for_each(|_| rank.broadcast_shared(block, 0, sync))?;
            }
            Data::SharedParts { input, output, .. } => {
                let bytes = self.args.bytes;
                let call = || rank.call_shared(Kind::Alltoall, bytes, input, output, 0, None, sync);
                (0..calls).try_for_each(|_| call())?;
            }
            Data::SharedDoubles { input, output, .. } => {
                (0..calls).try_for_each(|_| rank.allreduce_shared(input, output, Operator::Sum, sync))?;
            }
        }
        Ok(())
    }

    /// Nobody has left a barrier before the last has come, whoever that is. The clock is the machine's.
    fn barrier_holds(&mut self) -> Result<bool> {
        let ranks = self.rank.ranks();
        let mut holds = true;
        for late in 0..ranks.min(LATE_MAX) {
            if self.rank.rank() == ranks - 1 - late {
                std::thread::sleep(LATE);
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

    /// The first calls: each with values of its own, each verified.
    fn warm_up(&mut self) -> Result<bool> {
        let mut right = self.barrier_holds()?;
        for seed in 0..WARM_UP {
            self.fill(seed)?;
            self.call(1)?;
            right &= self.is_right(seed)?;
        }
        self.all_say(right)
    }

    /// Seconds that the slowest rank took, CPU seconds of all, and all that they have had so far.
    fn timed(&mut self, calls: u64) -> Result<(f64, f64, f64)> {
        // A process of several ranks has a thread each.
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

    /// Calls in a batch. All ranks know the slowest one's time and so come to the same number. The least of three runs counts.
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
        let mut done: Vec<Batch> = Vec::new();
        let (_, _, own) = self.timed(0)?;
        moments.push(Moment::now(own));
        let mut right = self.warm_up()?;
        if right {
            let calls = self.calibrate()?;
            let (_, _, own) = self.timed(0)?;
            moments.push(Moment::now(own));
            for seed in WARM_UP..WARM_UP + self.args.batches {
                self.fill(seed)?;
                let began = now();
                let (slowest, cpu, own) = self.timed(calls)?;
                let [us, cpu_us] = [slowest, cpu].map(|seconds| seconds * 1e6 / calls as f64);
                done.push(Batch { began, ended: now(), us, cpu_us });
                // Reading the machine's time is not cheap, and who does not print has no use for it.
                if prints {
                    moments.push(Moment::now(own));
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
            return Ok(WRONG);
        }
        if prints {
            self.print(&moments, &done).context("cannot write the report")?;
        }
        Ok(exit::DONE)
    }

    fn print(&self, moments: &[Moment], done: &[Batch]) -> std::io::Result<()> {
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
    fn others_are_told_over_as_many_batches_as_it_takes() {
        let moment = |at: f64, busy: f64, own: f64| Moment { at, busy: Some(busy), own };
        // 0.4 s of which this team had two CPUs, and others nothing; then others had one.
        let moments: Vec<Moment> = (0..9)
            .map(|at| f64::from(at) * 0.05)
            .map(|at| moment(at, 2.0 * at, if at > 0.21 { 0.4 + (at - 0.2) } else { 2.0 * at }))
            .collect();
        let batch =
            |at: usize| Batch { began: moments[at + 1].at, ended: moments[at + 2].at, us: 1.0, cpu_us: 1.0 };
        assert_eq!(foreign(&moments, &batch(0), 0, 2.0), Some(0.0));
        assert!((foreign(&moments, &batch(6), 6, 2.0).unwrap() - 0.5).abs() < 1e-9);
        let blind: Vec<Moment> = moments.iter().map(|moment| Moment { busy: None, ..*moment }).collect();
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
                                    let mut bench = Bench::new(args, &rank).unwrap();
                                    assert!(bench.warm_up().unwrap(), "{args:?}");
                                    // What was right is found wrong when it is another batch's.
                                    assert_eq!(
                                        bench.is_right(WARM_UP).unwrap(),
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
