//! Timeline: a whole trace folded into columns of time, for a picture of the run.
//!
//! Unit: shares of a column's time. Problem: a thousand threads over a hundred thousand steps are
//! more than a picture has room for and more than a page can hold. Idea: the numbers of columns and
//! lanes are bounded. A reading counts for each column in proportion to its overlap with the
//! column, so only detail is lost. Threads that ran longest get the lanes; the number of threads
//! without a lane is part of the result. Properties: a column in which a thread was not read is
//! empty, not zero. The CPU time of all columns of a lane sums to the thread's.

use super::{Account, Keep, Move, Playback, ThreadAccount};
use crate::balance::Finding;
use crate::drive::Step;
use crate::ids::{OsCpu, ProgramId, ThreadId};
use crate::observe::{ACTIVE_MIN, Metric, ThreadView};
use crate::time::{Moment, Span};
use crate::trace::Trace;
use std::collections::BTreeMap;

/// One thread in one column.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TimelineCell {
    /// CPU on which the thread spent most of the column, as far as samples saw.
    pub cpu: Option<OsCpu>,
    /// Speed; `None` if the thread slept or was not read.
    pub speed: Option<f64>,
    /// Share of the column that the thread was on a CPU; `None` if it was not read.
    pub run: Option<f64>,
    /// Observed changes of core in the column.
    pub migrations: u32,
    /// Decisions about the thread in the column.
    pub decisions: u32,
}

/// A thread over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Lane {
    /// The thread, at its own end or at the end of the trace.
    pub thread: ThreadAccount,
    /// One cell per column.
    pub cells: Vec<TimelineCell>,
}

/// A CPU over time.
#[derive(Clone, PartialEq, Debug)]
pub struct CpuLane {
    /// CPU.
    pub cpu: OsCpu,
    /// Share of each column in which the CPU ran the watched threads.
    pub ours: Vec<f64>,
    /// Share of each column in which the CPU ran anything; `None` if this was not read.
    pub busy: Vec<Option<f64>>,
}

/// A program at the end of one column.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Point {
    /// Mean speed of the threads in the column.
    pub speed: Option<f64>,
    /// Lowest speed of a thread in the column.
    pub slowest: Option<f64>,
    /// Lowest over highest CPU time of the program's cores, so far.
    pub balance: Option<f64>,
    /// Slowest over mean progress of the active threads.
    pub expected: Option<f64>,
}

/// A program over time.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramLine {
    /// Program.
    pub id: ProgramId,
    /// One point per column. Between two samples, the balances are those of the first. Speeds are
    /// empty if no thread wanted a CPU.
    pub points: Vec<Point>,
}

/// A trace in columns.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Start of each column, and the end of the last.
    pub edges: Vec<Moment>,
    /// Threads that ran longest, ascending by number.
    pub lanes: Vec<Lane>,
    /// Number of threads without a lane.
    pub omitted: usize,
    /// CPUs that were read or ran a watched thread, ascending.
    pub cpus: Vec<CpuLane>,
    /// Programs, ascending.
    pub programs: Vec<ProgramLine>,
    /// Latest moves, oldest first.
    pub moves: Vec<Move>,
    /// Findings of the policy, with the moments at which they came up.
    pub findings: Vec<(Moment, Vec<Finding>)>,
    /// Account at the end of the trace.
    pub account: Account,
}

/// Division of the trace's time into columns of equal width.
struct Columns {
    start: Moment,
    length: Span,
    count: usize,
}

impl Columns {
    fn of(trace: &Trace, most: usize) -> Self {
        let moments = || trace.steps.iter().map(|step| step.sample.at);
        let (start, end) = (moments().min().unwrap_or_default(), moments().max().unwrap_or_default());
        let count = trace.steps.len().saturating_sub(1).clamp(1, most.max(1));
        Self { start, length: end.since(start), count }
    }

    fn edge(&self, at: usize) -> Moment {
        let part = u128::from(self.length.0) * at as u128 / self.count as u128;
        self.start + Span(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Returns the column of a moment; a moment on an edge belongs to the column that ends there.
    fn at(&self, moment: Moment) -> usize {
        let part = u128::from(moment.since(self.start).0) * self.count as u128;
        let at = part.div_ceil(u128::from(self.length.0.max(1))).saturating_sub(1);
        usize::try_from(at).unwrap_or(usize::MAX).min(self.count - 1)
    }

    /// Returns the columns that a reading overlaps, each with the length of the overlap.
    fn parts(&self, end: Moment, span: Span) -> impl Iterator<Item = (usize, Span)> {
        let begin = end - span;
        let first = self.at(begin + Span(1));
        (first..=self.at(end).max(first)).map(move |at| {
            let (from, to) = (self.edge(at).max(begin), self.edge(at + 1).min(end));
            (at, to.since(from))
        })
    }

    fn width(&self, at: usize) -> Span {
        self.edge(at + 1).since(self.edge(at))
    }
}

/// Sums from which a [`TimelineCell`] is computed.
#[derive(Clone, Copy, Default)]
struct Sum {
    read: Span,
    run: f64,
    wait: Option<f64>,
    cpu: Option<OsCpu>,
    on_cpu: f64,
    migrations: u32,
    decisions: u32,
}

impl Sum {
    fn cell(&self, metric: Metric) -> TimelineCell {
        let read = (self.read > Span::ZERO).then_some(self.read.0 as f64);
        let speed = |read: f64| match metric {
            Metric::CpuShare => Some(self.run / read),
            Metric::RunWait => {
                let wanted = self.run + self.wait?;
                (wanted >= ACTIVE_MIN * read).then(|| self.run / wanted)
            }
        };
        TimelineCell {
            cpu: self.cpu,
            speed: read.and_then(speed).map(|speed| speed.clamp(0.0, 1.0)),
            run: read.map(|read| self.run / read),
            migrations: self.migrations,
            decisions: self.decisions,
        }
    }
}

impl Timeline {
    /// Folds a trace into at most `columns` columns and `lanes` lanes; at most `moves` of the
    /// latest moves are kept.
    pub fn of(trace: &Trace, columns: usize, lanes: usize, moves: usize) -> Self {
        let columns = Columns::of(trace, columns);
        let mut playback = Playback::new(&trace.header, Keep { history: 0, moves });
        let mut all: Vec<ThreadAccount> = Vec::new();
        let mut findings = Vec::new();
        let mut programs: BTreeMap<ProgramId, Vec<Point>> = BTreeMap::new();
        let mut cpus: BTreeMap<OsCpu, CpuSums> = BTreeMap::new();
        let mut sampled = vec![false; columns.count];
        for record in &trace.steps {
            playback.step(record, &mut |step, account| {
                let at = columns.at(step.seen.at);
                sampled[at] = true;
                all.extend_from_slice(account.ended());
                if !step.turn.findings.is_empty() {
                    findings.push((step.seen.at, step.turn.findings.clone()));
                }
                for program in account.programs() {
                    let empty = || vec![Point::default(); columns.count];
                    let point = &mut programs.entry(program.id).or_insert_with(empty)[at];
                    point.balance = program.balance;
                    point.expected = program.expected.or(point.expected);
                }
                add_cpus(&columns, step, &mut cpus);
            });
        }
        programs.values_mut().for_each(|points| carry_forward(points, &sampled));
        let account = playback.account().clone();
        all.extend(account.threads().cloned());
        let omitted = all.len().saturating_sub(lanes);
        all.sort_by_key(|thread| (std::cmp::Reverse(thread.totals.run), thread.info.id));
        all.truncate(lanes);
        all.sort_by_key(|thread| thread.info.id);
        let metric = trace.header.settings.metric;
        let lanes = self::lanes(trace, &columns, all, &mut cpus, &mut programs, metric);
        let lines = programs.into_iter().map(|(id, points)| ProgramLine { id, points });
        Self {
            edges: (0..=columns.count).map(|at| columns.edge(at)).collect(),
            omitted,
            lanes,
            cpus: cpus.into_iter().map(|(cpu, sums)| sums.lane(cpu, &columns)).collect(),
            programs: lines.collect(),
            moves: account.moves().cloned().collect(),
            findings,
            account,
        }
    }
}

/// Fills columns without a sample with the balances at the end of the column before.
fn carry_forward(points: &mut [Point], sampled: &[bool]) {
    for at in 1..points.len() {
        if !sampled[at] {
            let Point { balance, expected, .. } = points[at - 1];
            points[at] = Point { balance, expected, ..points[at] };
        }
    }
}

/// Sums from which a [`CpuLane`] is computed.
struct CpuSums {
    ours: Vec<f64>,
    busy: Vec<(f64, Span)>,
}

impl CpuSums {
    fn new(count: usize) -> Self {
        Self { ours: vec![0.0; count], busy: vec![(0.0, Span::ZERO); count] }
    }

    fn lane(self, cpu: OsCpu, columns: &Columns) -> CpuLane {
        let ours = |(at, run): (usize, f64)| match columns.width(at).0 {
            0 => 0.0,
            width => (run / width as f64).min(1.0),
        };
        let busy = |(busy, read): (f64, Span)| (read > Span::ZERO).then(|| (busy / read.0 as f64).min(1.0));
        CpuLane {
            cpu,
            ours: self.ours.into_iter().enumerate().map(ours).collect(),
            busy: self.busy.into_iter().map(busy).collect(),
        }
    }
}

fn add_cpus(columns: &Columns, step: &Step<'_>, cpus: &mut BTreeMap<OsCpu, CpuSums>) {
    for view in &step.seen.cpus {
        let sums = cpus.entry(view.cpu).or_insert_with(|| CpuSums::new(columns.count));
        let Some((busy, span)) = view.busy.zip(view.span) else { continue };
        for (at, part) in columns.parts(step.seen.at, span) {
            let (sum, read) = &mut sums.busy[at];
            *sum += busy * part.0 as f64;
            *read = *read + part;
        }
    }
}

/// Makes the second pass: every reading of the chosen threads, and of all threads for CPUs and
/// programs.
fn lanes(
    trace: &Trace,
    columns: &Columns,
    chosen: Vec<ThreadAccount>,
    cpus: &mut BTreeMap<OsCpu, CpuSums>,
    programs: &mut BTreeMap<ProgramId, Vec<Point>>,
    metric: Metric,
) -> Vec<Lane> {
    let place: BTreeMap<ThreadId, usize> =
        chosen.iter().enumerate().map(|(at, thread)| (thread.info.id, at)).collect();
    let mut sums = vec![Sum::default(); chosen.len() * columns.count];
    let mut migrations: BTreeMap<ThreadId, u64> = BTreeMap::new();
    let mut speeds: BTreeMap<(ProgramId, usize), (f64, f64, f64)> = BTreeMap::new();
    let mut playback = Playback::new(&trace.header, Keep { history: 0, moves: 1 });
    for record in &trace.steps {
        playback.step(record, &mut |step, account| {
            let column = columns.at(step.seen.at);
            for view in &step.seen.threads {
                let lane = place.get(&view.id()).copied();
                let row = lane.map(|lane| &mut sums[lane * columns.count..(lane + 1) * columns.count]);
                read(columns, step, view, row, cpus);
                if let Some(speed) = view.speed(metric) {
                    let (sum, count, least) =
                        speeds.entry((view.info.program, column)).or_insert((0.0, 0.0, 1.0));
                    (*sum, *count, *least) = (*sum + speed, *count + 1.0, least.min(speed));
                }
                let seen = account.thread(view.id()).map_or(0, |thread| thread.totals.migrations);
                let before = migrations.insert(view.id(), seen).unwrap_or(0);
                if let Some(lane) = lane {
                    let new = u32::try_from(seen.saturating_sub(before)).unwrap_or(u32::MAX);
                    let cell = &mut sums[lane * columns.count + column];
                    cell.migrations = cell.migrations.saturating_add(new);
                }
            }
            for decision in &step.turn.decisions {
                if let Some(lane) = place.get(&decision.thread) {
                    sums[lane * columns.count + column].decisions += 1;
                }
            }
        });
    }
    for ((program, column), (sum, count, least)) in speeds {
        if let Some(points) = programs.get_mut(&program) {
            points[column].speed = Some(sum / count);
            points[column].slowest = Some(least);
        }
    }
    let rows = sums.chunks(columns.count);
    let lane = |(thread, sums): (ThreadAccount, &[Sum])| Lane {
        thread,
        cells: sums.iter().map(|sum| sum.cell(metric)).collect(),
    };
    chosen.into_iter().zip(rows).map(lane).collect()
}

/// Spreads one reading over the columns that it overlaps.
fn read(
    columns: &Columns,
    step: &Step<'_>,
    view: &ThreadView<'_>,
    mut row: Option<&mut [Sum]>,
    cpus: &mut BTreeMap<OsCpu, CpuSums>,
) {
    let Some(rates) = view.rates else { return };
    for (at, part) in columns.parts(step.seen.at, rates.span) {
        let run = rates.run * part.0 as f64;
        if let Some(cpu) = view.cpu {
            cpus.entry(cpu).or_insert_with(|| CpuSums::new(columns.count)).ours[at] += run;
        }
        let Some(sum) = row.as_mut().map(|row| &mut row[at]) else { continue };
        sum.read = sum.read + part;
        sum.run += run;
        if let Some(wait) = rates.wait {
            sum.wait = Some(sum.wait.unwrap_or_default() + wait * part.0 as f64);
        }
        // Of several CPUs in one column, the one with the longest stay is shown; of equal stays,
        // the latest.
        if view.cpu.is_some() && (sum.cpu == view.cpu || run >= sum.on_cpu) {
            sum.on_cpu = if sum.cpu == view.cpu { sum.on_cpu + run } else { run };
            sum.cpu = view.cpu;
        }
    }
}
