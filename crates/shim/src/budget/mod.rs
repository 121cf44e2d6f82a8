//! Budget of the hold: the size of a team that is about to start, from the threads with which all
//! processes of the hold compute.
//!
//! The launcher hands over a page of shared memory ([`trimtab_core::budget`]) in which each process
//! publishes its teams. [`page`] maps it and takes a slot, [`survey`] examines the other processes
//! and computes this process's share, [`process`] reads their state from the kernel. The functions
//! that open teams get the size of each team here ([`open`]) and report its end ([`Team::close`]).
//!
//! - A team costs a few atomic operations on memory of this process, two stores to its slot, and a
//!   read of the time stamp counter. The others are examined at most once a millisecond, for at
//!   most one hundredth of the time.
//! - This process's own counts are kept in its own memory; the page gets copies. Other processes
//!   can therefore write anything into the page without damage to these counts.
//! - Nothing blocks: a thread that finds another one examining uses the previous share.
//! - A forked child starts without teams and takes a slot of its own.
//! - Without the variable, or with a page of another format, a team costs one more load.

pub(crate) mod callers;
mod page;
mod process;
mod survey;

use crate::ticks::now;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use trimtab_core::budget::Rule;
use trimtab_core::budget::count_use::CountUse;
use trimtab_core::budget::page::{State, slot};
use trimtab_core::budget::share::{Inside, grant, part_of_opener};

/// Whether there is a budget. Every team costs one load of it.
static ON: AtomicBool = AtomicBool::new(false);
/// Position of the rule in [`Rule::ALL`].
static RULE: AtomicU8 = AtomicU8::new(0);
/// Most threads that this process may compute with, and its equal part of the cores, when the page
/// was last examined.
static SHARE: AtomicU32 = AtomicU32::new(1);
static EQUAL_PART: AtomicU32 = AtomicU32::new(1);
/// Time from which the page is to be examined again, in ticks.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Threads in the open teams of this process.
static COMPUTING: AtomicU32 = AtomicU32::new(0);
/// Most threads that this process wanted at a time since the page was last examined, and in the
/// time between the two examinations before.
static WANTS: AtomicU32 = AtomicU32::new(0);
static WANTED_BEFORE: AtomicU32 = AtomicU32::new(0);
/// Open teams of this process outside all teams.
static OPENERS: AtomicU32 = AtomicU32::new(0);
/// Number of such teams when there was last more than one, and when that was, in ticks.
static OPENERS_BEFORE: AtomicU32 = AtomicU32::new(0);
static OPENERS_AT: AtomicU64 = AtomicU64::new(0);
/// For so long threads that opened teams at the same time are expected to do so again, in ticks:
/// 10 ms (see [`survey`]). Chosen: longer than the pause of a worker between two calls of a
/// library; as long as a process waits at most for cores that it lent.
const PAUSE_TICKS: u64 = 10 * survey::INTERVAL_TICKS;

/// Sums over teams, in the order of the slot's words.
static SUMS: [AtomicU64; slot::SUMS] = [const { AtomicU64::new(0) }; slot::SUMS];

const TEAMS: usize = 0;
const BOUNDED: usize = slot::BOUNDED - slot::TEAMS;
const REFUSED: usize = slot::REFUSED - slot::TEAMS;
const BORROWED: usize = slot::BORROWED - slot::TEAMS;

/// Team that a program is about to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Threads, the opening one included; at least 1.
    pub(crate) threads: u32,
    /// Whether the program demands the number.
    pub(crate) numbered: bool,
    /// Whether the program allows smaller teams.
    pub(crate) dynamic: bool,
    /// Position of the opening thread in its teams; `None` outside all teams.
    pub(crate) inside: Option<Inside>,
    /// Whether the program fails with a smaller team. It is counted only.
    pub(crate) is_exact: bool,
}

impl Wanted {
    /// Returns the same team, as the library that opens it uses its number of threads.
    pub(crate) fn of_library(self, count: CountUse) -> Self {
        Self {
            is_exact: self.is_exact || count == CountUse::Relied,
            dynamic: self.dynamic || count == CountUse::Free,
            ..self
        }
    }
}

/// Team that has been counted.
#[derive(Clone, Copy, Debug)]
#[must_use = "a team that is not closed counts for ever"]
pub(crate) struct Team {
    /// Threads that the team may have; `None`: the number of the program.
    pub(crate) threads: Option<u32>,
    /// Threads by which it added to [`COMPUTING`].
    counted: u32,
    /// Whether it is outside all teams.
    is_outer: bool,
}

/// Joins the hold's budget, if there is one. Called while the process has one thread.
pub(crate) fn begin() {
    if let Some(rule) = crate::errno::kept(page::join) {
        let at = Rule::ALL.iter().position(|&known| known == rule).unwrap_or(0);
        RULE.store(at as u8, Relaxed);
        SHARE.store(page::cores(), Relaxed);
        ON.store(true, Release);
    }
}

/// Returns whether there is a budget.
pub(crate) fn is_on() -> bool {
    ON.load(Acquire)
}

/// Returns whether a team of this process is open.
pub(crate) fn has_teams() -> bool {
    COMPUTING.load(Relaxed) > 0
}

/// Ends this process's part in the budget after a fault of the shim.
pub(crate) fn stand_down() {
    ON.store(false, Release);
}

fn rule() -> Rule {
    Rule::ALL.get(usize::from(RULE.load(Relaxed))).copied().unwrap_or(Rule::Unnumbered)
}

/// Counts a team that the calling thread is about to open, and decides its size.
pub(crate) fn open(wanted: Wanted) -> Team {
    let Wanted { threads: asked, numbered, dynamic, inside, is_exact } = wanted;
    // The opening thread of an inner team is counted already.
    let known = u32::from(inside.is_some());
    SUMS[TEAMS].fetch_add(1, Relaxed);
    let total = COMPUTING.load(Relaxed).saturating_add(asked).saturating_sub(known);
    if WANTS.load(Relaxed) < total {
        WANTS.fetch_max(total, Relaxed);
    }
    let ticks = now();
    if ticks >= NEXT.load(Relaxed) {
        survey::examine();
    }
    let is_outer = inside.is_none();
    let openers = if is_outer { openers(ticks) } else { 1 };
    let bounds = !is_exact && rule().bounds(numbered, dynamic);
    let share = SHARE.load(Relaxed);
    let size = |computing| match (bounds, inside) {
        (false, _) => asked,
        (true, None) => grant(share, computing, asked, inside).min(part_of_opener(share, openers)),
        (true, Some(_)) => grant(share, computing, asked, inside),
    };
    let mut computing = COMPUTING.load(Relaxed);
    let size = loop {
        let size = size(computing);
        let then = computing.saturating_add(size).saturating_sub(known);
        match COMPUTING.compare_exchange_weak(computing, then, Relaxed, Relaxed) {
            Ok(_) => break size,
            Err(other) => computing = other,
        }
    };
    let counted = size.saturating_sub(known);
    if size < asked {
        SUMS[BOUNDED].fetch_add(1, Relaxed);
        SUMS[REFUSED].fetch_add((asked - size).into(), Relaxed);
    }
    let beyond = computing.saturating_add(counted).saturating_sub(EQUAL_PART.load(Relaxed)).min(counted);
    if beyond > 0 {
        SUMS[BORROWED].fetch_add(beyond.into(), Relaxed);
    }
    publish();
    Team { threads: (size < asked).then_some(size), counted, is_outer }
}

/// Counts a team outside all teams. Returns the number of threads that open such teams now or did a
/// moment ago.
fn openers(ticks: u64) -> u32 {
    let open = OPENERS.fetch_add(1, Relaxed).saturating_add(1);
    if open > 1 {
        OPENERS_BEFORE.store(open, Relaxed);
        OPENERS_AT.store(ticks, Relaxed);
        return open;
    }
    let is_recent = ticks.saturating_sub(OPENERS_AT.load(Relaxed)) < PAUSE_TICKS;
    if is_recent { OPENERS_BEFORE.load(Relaxed).max(1) } else { 1 }
}

/// Counts the end of a team outside all teams.
fn close_opener() {
    // A forked child begins at 0.
    let before = OPENERS.fetch_update(Relaxed, Relaxed, |open| open.checked_sub(1)).unwrap_or(0);
    if before > 1 {
        OPENERS_AT.store(now(), Relaxed);
    }
}

impl Team {
    /// Returns a team that is not counted.
    pub(crate) const fn uncounted() -> Self {
        Self { threads: None, counted: 0, is_outer: false }
    }

    /// Returns the team as a word for [`close_word`](Self::close_word); not 0.
    pub(crate) const fn word(self) -> u64 {
        1 | (self.is_outer as u64) << 1 | (self.counted as u64) << 32
    }

    /// Records the end of the team of a word; of none if it is 0.
    pub(crate) fn close_word(word: u64) {
        if word != 0 {
            Self { threads: None, counted: (word >> 32) as u32, is_outer: word & 2 != 0 }.close();
        }
    }

    /// Records the end of the team.
    pub(crate) fn close(self) {
        if self.is_outer {
            close_opener();
        }
        if self.counted > 0 {
            // A forked child begins at 0, in whichever team its parent was.
            let less = |now: u32| Some(now.saturating_sub(self.counted));
            let _ = COMPUTING.fetch_update(Relaxed, Relaxed, less);
            publish_state();
        }
    }
}

/// Returns the state of this process for the others.
fn state() -> State {
    State {
        computing: COMPUTING.load(Relaxed),
        wants: WANTS.load(Relaxed).max(WANTED_BEFORE.load(Relaxed)),
        teams: SUMS[TEAMS].load(Relaxed) as u32,
    }
}

fn publish_state() {
    if let Some(mine) = page::mine() {
        mine[slot::STATE].store(state().word(), Relaxed);
    }
}

/// Copies the counts of this process into its slot.
fn publish() {
    let Some(mine) = page::mine() else { return };
    mine[slot::STATE].store(state().word(), Relaxed);
    for (to, sum) in mine[slot::TEAMS..].iter().zip(&SUMS) {
        to.store(sum.load(Relaxed), Relaxed);
    }
}

/// Drops the parent's teams. Runs in every forked child, on its only thread.
extern "C" fn forked() {
    crate::errno::kept(|| {
        COMPUTING.store(0, Relaxed);
        OPENERS.store(0, Relaxed);
        OPENERS_AT.store(0, Relaxed);
        WANTS.store(0, Relaxed);
        WANTED_BEFORE.store(0, Relaxed);
        NEXT.store(0, Relaxed);
        for sum in &SUMS {
            sum.store(0, Relaxed);
        }
        survey::forget();
        crate::blas::forked();
        page::take_slot();
    });
}
