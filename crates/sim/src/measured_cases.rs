//! What was measured on real machines, as runs of the model beside it.
//!
//! Unit: a *cell*, one way of running one scenario, as `trimtab bench balance` names it. Problem: a model that is compared with published
//! figures alone may be right for wrong reasons. Idea: the measured cells of this project are data (threads, work, barriers, ways to
//! wait and to run, and the measured time over the ideal's); each becomes a [`Scenario`] on a model of the machine it was measured
//! on, with that machine's kernel and with as much foreign load as was measured beside it.
//!
//! Properties: nothing here is fitted to a cell. What differs between sets is the machine, the kernel and the foreign load; within a set, all
//! cells run under the same.
//!
//! Left out: cells of OpenMP runtimes, whose ways to wait are their own.
//!
//! Source: `experiments/balance/results` and `experiments/simulator/live`.

use crate::faults::Faults;
use crate::kernel::Kernel;
use crate::model::shipped::{self, NotShipped};
use crate::observer_cost::Looking;
use crate::program::{Bind, Body, Program, Wait};
use crate::scenario::Scenario;
use std::str::FromStr;
use thiserror::Error;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

/// All machines here have so many CPUs.
const CPUS: u32 = 2;
/// `hyb` waiters poll this long (`bench/balance/barrier.c`).
const MOMENT: Span = Span::from_us(50);
/// The competitor that makes a slow core of one works for this half of its period (`bench/balance/balance_hog.c`).
const HALF: Span = Span::from_ms(5);
/// No cell takes as long.
const END: Moment = Moment(60_000_000_000);
/// Foreign load of a quiet machine comes in pieces of this length. Estimated: kernel workers, daemons and timers run for some tens to
/// hundreds of us.
const PIECE: Span = Span::from_us(100);
/// Foreign programs that always want to run do so for a tick whenever they are let.
const TICK: Span = Span::from_ms(4);

/// Cells measured together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Set {
    /// Its name, which is its file's without `.csv`.
    pub name: &'static str,
    /// What was measured, where.
    pub title: &'static str,
    /// The machine's model.
    pub machine: &'static str,
    /// The kernel's.
    pub kernel: &'static str,
    /// Whether sessions shared (autogroups).
    pub groups: bool,
    /// The part of the machine that others took meanwhile, hypervisor included.
    pub foreign: f64,
    /// In pieces of which length.
    pub piece: Span,
    /// What was measured.
    text: &'static str,
}

macro_rules! measured {
    ($name:literal) => {
        include_str!(concat!("../../../experiments/simulator/live/", $name, ".csv"))
    };
}

/// All sets.
pub const SETS: &[Set] = &[
    Set {
        name: "bench-6.18",
        title: "trimtab bench balance, guest with 2 Intel CPUs, Linux 6.18.44",
        machine: "guest-intel-2",
        kernel: "linux-6.18",
        groups: true,
        // The median of the clean runs' noise.
        foreign: 0.013,
        piece: PIECE,
        text: measured!("bench-6.18"),
    },
    Set {
        name: "host-6.18",
        title: "the study's program, guest with 2 EPYC CPUs beside a loaded session, Linux 6.18.44",
        machine: "host-2",
        kernel: "linux-6.18",
        groups: true,
        // 5 to 8 % of the machine, by programs of another session that computed all the time.
        foreign: 0.065,
        piece: TICK,
        text: measured!("host-6.18"),
    },
    Set {
        name: "guest-6.12",
        title: "the study's program, emulated machine with 2 CPUs, Linux 6.12.117",
        machine: "guest-emulated-2",
        kernel: "linux-6.12",
        groups: true,
        foreign: QUIET,
        piece: PIECE,
        text: measured!("guest-6.12"),
    },
    Set {
        name: "guest-6.1",
        title: "the study's program, emulated machine with 2 CPUs, Linux 6.1.192",
        machine: "guest-emulated-2",
        kernel: "linux-6.1",
        groups: true,
        foreign: QUIET,
        piece: PIECE,
        text: measured!("guest-6.1"),
    },
];

/// Nothing else ran there; estimated: its kernel's own workers.
const QUIET: f64 = 0.005;

/// Why a set cannot be read. Tests make sure that those here can.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LiveError {
    /// No set has this name.
    #[error("\"{0}\" is no set of measurements (known: {known})", known = names())]
    Unknown(String),
    /// A line is not a cell.
    #[error("{set}.csv, line {line}: {what}")]
    Line {
        /// The set.
        set: &'static str,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Its machine or its kernel.
    #[error(transparent)]
    Shipped(#[from] NotShipped),
}

fn names() -> String {
    SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ")
}

/// How a program was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By Linux alone.
    Kernel,
    /// By Linux alone, thread i bound to CPU i modulo the CPUs.
    Pinned,
    /// With a policy.
    Balance(Kind),
}

/// Who competed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rival {
    /// Bound to the last CPU.
    pub bound: bool,
    /// In a session of its own.
    pub session: bool,
    /// Working half of the time.
    pub half: bool,
}

/// One cell and what was measured of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Scenario, wait, way.
    pub name: &'static str,
    /// How many threads.
    pub threads: u32,
    /// The work of each.
    pub work: Span,
    /// Between two barriers; `None` for one at the end.
    pub phase: Option<Span>,
    /// How they wait.
    pub wait: Wait,
    /// Who competes.
    pub rival: Option<Rival>,
    /// Whether the program binds its threads, however it is run.
    pub binds: bool,
    /// How it is run.
    pub way: Way,
    /// How many clean runs were measured.
    pub runs: u32,
    /// Their median time over the ideal's, and the least and most.
    pub measured: f64,
    /// See `measured`.
    pub low: f64,
    /// See `measured`.
    pub high: f64,
}

/// The set of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static Set, LiveError> {
    SETS.iter().find(|set| set.name == name).ok_or_else(|| LiveError::Unknown(name.to_owned()))
}

impl Set {
    /// Its cells, in the order of their names.
    ///
    /// # Errors
    /// A line is not a cell.
    pub fn cells(&self) -> Result<Vec<Cell>, LiveError> {
        let lines = self.text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let cell = |(at, line): (usize, &'static str)| {
            Cell::read(line).map_err(|what| LiveError::Line { set: self.name, line: at + 1, what })
        };
        lines.skip(1).map(cell).collect()
    }

    /// A cell as a scenario on this set's machine.
    ///
    /// # Errors
    /// A shipped machine or preset is missing.
    pub fn scenario(&self, cell: &Cell, seed: u64) -> Result<Scenario, LiveError> {
        let model = shipped::needed(self.machine)?;
        let preset = Kernel::preset(self.kernel, CPUS as usize).map_err(NotShipped::from)?;
        let kernel = Kernel { groups: self.groups, ..preset };
        let mut programs = vec![cell.program()];
        let session = Program { group: 2, ..Program::hog("others", CPUS) };
        programs.push(part_time("others", session, self.piece, self.piece.times(1.0 / self.foreign)));
        // Who competes was there first.
        if let Some(rival) = cell.rival {
            programs.insert(0, rival.program());
        }
        let policy = match cell.way {
            Way::Balance(kind) => Some((kind, Settings { seed, ..Settings::default() })),
            _ => None,
        };
        if let Way::Balance(kind) = cell.way {
            let (cost, interval) = looking(kind);
            let own = Program { group: 0, ..Program::hog("trimtab", 1) };
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
            looking: Looking::default(),
            end: END,
            seed,
        })
    }
}

/// A program that works for a piece of each period.
fn part_time(name: &str, program: Program, piece: Span, period: Span) -> Program {
    let pause = Span(period.0.saturating_sub(piece.0));
    Program { name: name.to_owned(), body: Body::Hog { duty: Some((piece, pause)) }, ..program }
}

/// How long a look takes, and how often one is taken: docs/performance.md, "What looking costs", with three threads. `nudge`, which was not
/// measured, follows the rule of `speed`.
fn looking(kind: Kind) -> (Span, Span) {
    match kind {
        Kind::Auto => (Span::from_us(180), Span::from_ms(20)),
        Kind::Exchange | Kind::Float => (Span::from_us(300), Span::from_ms(100)),
        _ => (Span::from_us(200), Span::from_ms(100)),
    }
}

impl Rival {
    fn program(self) -> Program {
        let mut hog = Program { group: u32::from(self.session), ..Program::hog("hog", 1) };
        if self.bound {
            hog = hog.on(CpuSet::from_iter([trimtab_core::ids::OsCpu(CPUS - 1)]));
        }
        if self.half {
            hog.body = Body::Hog { duty: Some((HALF, HALF)) };
        }
        hog
    }
}

impl Cell {
    fn read(line: &'static str) -> Result<Self, String> {
        let words: Vec<&'static str> = line.split(',').collect();
        let [name, threads, work, phase, wait, rival, binds, way, runs, measured, low, high] = words[..]
        else {
            return Err(format!("{} values where 12 belong", words.len()));
        };
        let phase = Span::from_us(number(phase)?);
        let rival = match rival {
            "none" => None,
            "hog" => Some((false, false, false)),
            "hog-session" => Some((false, true, false)),
            "hog-pinned" => Some((true, false, false)),
            "hog-pinned-session" => Some((true, true, false)),
            "slow-core" => Some((true, false, true)),
            other => return Err(format!("\"{other}\" is no rival")),
        };
        Ok(Self {
            name,
            threads: number(threads)?,
            work: Span::from_us(number(work)?),
            phase: (phase > Span::ZERO).then_some(phase),
            wait: match wait {
                "spin" => Wait::Spin,
                "yield" => Wait::Yield,
                "sleep" => Wait::Sleep,
                "hyb" => Wait::SpinThenSleep(MOMENT),
                other => return Err(format!("\"{other}\" is no way to wait")),
            },
            rival: rival.map(|(bound, session, half)| Rival { bound, session, half }),
            binds: binds == "1",
            way: match way {
                "kernel" => Way::Kernel,
                "pinned" => Way::Pinned,
                other => Way::Balance(other.parse().map_err(|_| format!("\"{other}\" is no way to run"))?),
            },
            runs: number(runs)?,
            measured: number(measured)?,
            low: number(low)?,
            high: number(high)?,
        })
    }

    fn program(&self) -> Program {
        let mut program = Program::spmd("threads", self.threads, self.work, self.wait);
        if let Some(phase) = self.phase {
            program = program.every(phase);
        }
        if self.binds || self.way == Way::Pinned {
            program = program.bound(Bind::Close);
        }
        program
    }

    /// How long the ideal takes, seconds: all share the cores evenly all the time, a hog like a thread.
    pub fn ideal(&self) -> f64 {
        let (hogs, cores) = match self.rival {
            None => (0, f64::from(CPUS)),
            Some(Rival { half: true, .. }) => (0, f64::from(CPUS) - 0.5),
            Some(_) => (1, f64::from(CPUS)),
        };
        f64::from(self.threads + hogs) * self.work.seconds() / cores
    }

    /// Where the program stands among those of its scenario.
    pub fn place(&self) -> usize {
        usize::from(self.rival.is_some())
    }

    /// What is run, apart from the way: cells that share it are compared.
    pub fn subject(&self) -> &'static str {
        self.name.rsplit_once('/').map_or(self.name, |(subject, _)| subject)
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("\"{word}\" is no such number"))
}

#[cfg(test)]
mod tests;
