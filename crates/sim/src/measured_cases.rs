//! Measured cases: measurements of real machines, next to runs of the model.
//!
//! Unit: a *cell*, one way of running one scenario, as `trimtab bench balance` names it. Problem: a
//! model that is compared with published figures alone may agree with them for wrong reasons. Idea:
//! the measured cells of this project are data (threads, work, barriers, ways to wait and to run,
//! and the measured time over the ideal time). Each becomes a [`Scenario`] on a model of the
//! machine on which it was measured, with that machine's kernel and with the foreign load measured
//! at the same time.
//!
//! Properties: nothing here is fitted to a cell. The sets differ in the machine, the kernel and the
//! foreign load; within a set, all cells run under the same.
//!
//! Left out: cells of OpenMP runtimes, which have their own ways to wait.
//!
//! Source: `experiments/balance/results` and `experiments/simulator/live`.

use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::shipped::{self, NotShipped};
use crate::observer_cost::ObserverCost;
use crate::program::{Bind, Body, ProgramSpec, WaitMode};
use crate::scenario::Scenario;
use std::str::FromStr;
use thiserror::Error;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// Number of CPUs of all machines here.
const CPU_COUNT: u32 = 2;
/// Time for which `hyb` waiters poll (`bench/balance/barrier.c`).
const HYB_POLL_SPAN: Span = Span::from_us(50);
/// Working half of the period of the competitor that turns a core into a slow one
/// (`bench/balance/balance_hog.c`).
const RIVAL_HALF_PERIOD: Span = Span::from_ms(5);
/// Latest end of a run; longer than any cell takes.
const RUN_END: Moment = Moment(60_000_000_000);
/// Length of the pieces in which foreign load of a quiet machine comes. Estimated: kernel workers,
/// daemons and timers run for some tens to hundreds of us.
const QUIET_PIECE: Span = Span::from_us(100);
/// Length of the pieces of foreign programs that always want to run: a tick each time that they
/// run.
const TICK_PIECE: Span = Span::from_ms(4);

/// Cells measured together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CaseSet {
    /// Name: the file name without `.csv`.
    pub name: &'static str,
    /// Subject and machine of the measurements.
    pub title: &'static str,
    /// Name of the machine's model.
    pub machine: &'static str,
    /// Name of the kernel's preset.
    pub kernel: &'static str,
    /// Whether sessions shared the CPU time (autogroups).
    pub groups: bool,
    /// Share of the machine that other programs took meanwhile, hypervisor included, 0 to 1.
    pub foreign: f64,
    /// Length of the pieces of the foreign load.
    pub piece: Span,
    /// Measurements, as CSV.
    text: &'static str,
}

macro_rules! measured {
    ($name:literal) => {
        include_str!(concat!("../measured/", $name, ".csv"))
    };
}

/// All sets.
pub const SETS: &[CaseSet] = &[
    CaseSet {
        name: "bench-6.18",
        title: "trimtab bench balance, guest with 2 Intel CPUs, Linux 6.18.44",
        machine: "guest-intel-2",
        kernel: "linux-6.18",
        groups: true,
        // The median of the clean runs' noise.
        foreign: 0.013,
        piece: QUIET_PIECE,
        text: measured!("bench-6.18"),
    },
    CaseSet {
        name: "host-6.18",
        title: "the study's program, guest with 2 EPYC CPUs beside a loaded session, Linux 6.18.44",
        machine: "host-2",
        kernel: "linux-6.18",
        groups: true,
        // 5 to 8 % of the machine, by programs of another session that computed all the time.
        foreign: 0.065,
        piece: TICK_PIECE,
        text: measured!("host-6.18"),
    },
    CaseSet {
        name: "guest-6.12",
        title: "the study's program, emulated machine with 2 CPUs, Linux 6.12.117",
        machine: "guest-emulated-2",
        kernel: "linux-6.12",
        groups: true,
        foreign: QUIET_FOREIGN_SHARE,
        piece: QUIET_PIECE,
        text: measured!("guest-6.12"),
    },
    CaseSet {
        name: "guest-6.1",
        title: "the study's program, emulated machine with 2 CPUs, Linux 6.1.192",
        machine: "guest-emulated-2",
        kernel: "linux-6.1",
        groups: true,
        foreign: QUIET_FOREIGN_SHARE,
        piece: QUIET_PIECE,
        text: measured!("guest-6.1"),
    },
];

/// Foreign load of machines on which nothing else ran; estimated: the kernel's own workers.
const QUIET_FOREIGN_SHARE: f64 = 0.005;

/// Error in a set. Tests ensure that the sets here can be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LiveError {
    /// No set has this name.
    #[error("\"{0}\" is not a set of measurements (known: {known})", known = names())]
    Unknown(String),
    /// A line is not a cell.
    #[error("{set}.csv, line {line}: {what}")]
    Line {
        /// Name of the set.
        set: &'static str,
        /// Line, from 1.
        line: usize,
        /// Problem.
        what: String,
    },
    /// The machine or the kernel of the set is not shipped.
    #[error(transparent)]
    Shipped(#[from] NotShipped),
}

fn names() -> String {
    SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ")
}

/// Way in which a program was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunMethod {
    /// By Linux alone.
    Kernel,
    /// By Linux alone, thread i bound to CPU i modulo the CPUs.
    Pinned,
    /// With a policy.
    Balance(Kind),
}

/// Competing program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Competitor {
    /// Whether it is bound to the last CPU.
    pub bound: bool,
    /// Whether it is in a session of its own.
    pub session: bool,
    /// Whether it works half of the time.
    pub half: bool,
}

/// Cell and its measured results.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredCell {
    /// Scenario, wait, way.
    pub name: &'static str,
    /// Number of threads.
    pub threads: u32,
    /// Work of each thread.
    pub work: Span,
    /// Work between two barriers; `None` for one barrier at the end.
    pub phase: Option<Span>,
    /// How the threads wait.
    pub wait: WaitMode,
    /// Competing program, if any.
    pub competitor: Option<Competitor>,
    /// Whether the program binds its threads, in each way of running it.
    pub binds: bool,
    /// Way of running the program.
    pub way: RunMethod,
    /// Number of clean runs measured.
    pub runs: u32,
    /// Median of the time over the ideal time.
    pub measured: f64,
    /// Lowest time over the ideal time.
    pub low: f64,
    /// Highest time over the ideal time.
    pub high: f64,
}

/// Returns the set of this name.
///
/// # Errors
/// No set has this name.
pub fn find(name: &str) -> Result<&'static CaseSet, LiveError> {
    SETS.iter().find(|set| set.name == name).ok_or_else(|| LiveError::Unknown(name.to_owned()))
}

impl CaseSet {
    /// Returns the cells, in the order of their names.
    ///
    /// # Errors
    /// A line is not a cell.
    pub fn cells(&self) -> Result<Vec<MeasuredCell>, LiveError> {
        let lines = self.text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let cell = |(at, line): (usize, &'static str)| {
            MeasuredCell::read(line).map_err(|what| LiveError::Line { set: self.name, line: at + 1, what })
        };
        lines.skip(1).map(cell).collect()
    }

    /// Returns a cell as a scenario on this set's machine.
    pub fn scenario(&self, cell: &MeasuredCell, seed: u64) -> Result<Scenario, LiveError> {
        let model = shipped::needed(self.machine)?;
        let preset = Kernel::preset(self.kernel, CPU_COUNT as usize).map_err(NotShipped::from)?;
        let kernel = Kernel { groups: self.groups, ..preset };
        let mut programs = vec![cell.program()];
        let session = ProgramSpec { group: 2, ..ProgramSpec::hog("others", CPU_COUNT) };
        programs.push(part_time("others", session, self.piece, self.piece.times(1.0 / self.foreign)));
        // The competing program started first.
        if let Some(competitor) = cell.competitor {
            programs.insert(0, competitor.program());
        }
        let policy = match cell.way {
            RunMethod::Balance(kind) => Some((kind, Settings { seed, free: true, ..Settings::default() })),
            _ => None,
        };
        if let RunMethod::Balance(kind) = cell.way {
            let (cost, interval) = sampling(kind);
            let own = ProgramSpec { group: 0, ..ProgramSpec::hog("trimtab", 1) };
            programs.push(part_time("trimtab", own, cost, interval));
        }
        Ok(Scenario {
            name: cell.name.to_owned(),
            model,
            memory: false,
            kernel,
            programs,
            arrivals: Vec::new(),
            policy,
            events: Vec::new(),
            faults: Faults::default(),
            observer_cost: ObserverCost::default(),
            end: RUN_END,
            seed,
        })
    }
}

/// Returns a program that works for a piece of each period.
fn part_time(name: &str, program: ProgramSpec, piece: Span, period: Span) -> ProgramSpec {
    let pause = Span(period.0.saturating_sub(piece.0));
    ProgramSpec { name: name.to_owned(), body: Body::Hog { duty: Some((piece, pause)) }, ..program }
}

/// Returns the time that a sample takes, and the period of samples: docs/performance.md, "What
/// looking costs", with three threads. `nudge`, which was not measured, follows the rule of
/// `speed`.
fn sampling(kind: Kind) -> (Span, Span) {
    match kind {
        Kind::Auto => (Span::from_us(180), Span::from_ms(20)),
        Kind::Exchange | Kind::Float => (Span::from_us(300), Span::from_ms(100)),
        _ => (Span::from_us(200), Span::from_ms(100)),
    }
}

impl Competitor {
    fn program(self) -> ProgramSpec {
        let mut hog = ProgramSpec { group: u32::from(self.session), ..ProgramSpec::hog("hog", 1) };
        if self.bound {
            hog = hog.on(CpuSet::from_iter([trimtab_core::ids::OsCpu(CPU_COUNT - 1)]));
        }
        if self.half {
            hog.body = Body::Hog { duty: Some((RIVAL_HALF_PERIOD, RIVAL_HALF_PERIOD)) };
        }
        hog
    }
}

impl MeasuredCell {
    fn read(line: &'static str) -> Result<Self, String> {
        let words: Vec<&'static str> = line.split(',').collect();
        let [name, threads, work, phase, wait, competitor, binds, way, runs, measured, low, high] = words[..]
        else {
            return Err(format!("{} values instead of 12", words.len()));
        };
        let phase = Span::from_us(number(phase)?);
        let competitor = match competitor {
            "none" => None,
            "hog" => Some((false, false, false)),
            "hog-session" => Some((false, true, false)),
            "hog-pinned" => Some((true, false, false)),
            "hog-pinned-session" => Some((true, true, false)),
            "slow-core" => Some((true, false, true)),
            other => return Err(format!("\"{other}\" is not a competitor")),
        };
        Ok(Self {
            name,
            threads: number(threads)?,
            work: Span::from_us(number(work)?),
            phase: (phase > Span::ZERO).then_some(phase),
            wait: match wait {
                "spin" => WaitMode::Spin,
                "yield" => WaitMode::Yield,
                "sleep" => WaitMode::Sleep,
                "hyb" => WaitMode::SpinThenSleep(HYB_POLL_SPAN),
                other => return Err(format!("\"{other}\" is not a way to wait")),
            },
            competitor: competitor.map(|(bound, session, half)| Competitor { bound, session, half }),
            binds: binds == "1",
            way: match way {
                "kernel" => RunMethod::Kernel,
                "pinned" => RunMethod::Pinned,
                other => {
                    RunMethod::Balance(other.parse().map_err(|_| format!("\"{other}\" is not a way to run"))?)
                }
            },
            runs: number(runs)?,
            measured: number(measured)?,
            low: number(low)?,
            high: number(high)?,
        })
    }

    fn program(&self) -> ProgramSpec {
        let mut program = ProgramSpec::spmd("threads", self.threads, self.work, self.wait);
        if let Some(phase) = self.phase {
            program = program.every(phase);
        }
        if self.binds || self.way == RunMethod::Pinned {
            program = program.bound(Bind::Close);
        }
        program
    }

    /// Returns the ideal time, seconds: all threads share the cores evenly all the time, a hog like
    /// a thread.
    pub fn ideal(&self) -> f64 {
        let (hogs, cores) = match self.competitor {
            None => (0, f64::from(CPU_COUNT)),
            Some(Competitor { half: true, .. }) => (0, f64::from(CPU_COUNT) - 0.5),
            Some(_) => (1, f64::from(CPU_COUNT)),
        };
        f64::from(self.threads + hogs) * self.work.seconds() / cores
    }

    /// Returns the place of the program among those of its scenario.
    pub fn place(&self) -> usize {
        usize::from(self.competitor.is_some())
    }

    /// Returns the subject without the way of running it: cells with the same subject are compared.
    pub fn subject(&self) -> &'static str {
        self.name.rsplit_once('/').map_or(self.name, |(subject, _)| subject)
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("\"{word}\" is not a number of this kind"))
}

#[cfg(test)]
mod tests;
