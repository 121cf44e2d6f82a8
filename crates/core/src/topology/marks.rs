//! What a picture says of every CPU: what stands in the way there, and what a plan made of it.
//!
//! Unit: CPUs. Marks are plain data between the surroundings ([`Taken`]), a [`Plan`] and the two pictures (`draw`, `svg`),
//! so that both show the same and neither decides anything. A core's mark is the strongest of its CPUs' marks: what a
//! plan did outranks what was there, and what stands in the way outranks what is free.

use super::Machine;
use crate::ids::{OsCpu, Pu};
use crate::place::{Plan, State, Taken, state};
use std::collections::BTreeMap;

/// What a picture says of one CPU, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mark {
    /// Outside what this process may use.
    Disallowed,
    /// Nobody uses it, or nothing is known of it.
    Free,
    /// Foreign load on it or on its core.
    Busy,
    /// A foreign task is bound to it.
    Pinned,
    /// Another run holds it.
    Held,
    /// The plan reserves it and keeps it idle.
    Idle,
    /// The plan runs a thread on it.
    Chosen,
    /// The plan runs a thread on it although something stands in the way.
    Contested,
}

impl Mark {
    /// All marks, weakest first.
    pub const ALL: [Self; 8] = [
        Self::Disallowed,
        Self::Free,
        Self::Busy,
        Self::Pinned,
        Self::Held,
        Self::Idle,
        Self::Chosen,
        Self::Contested,
    ];

    /// The words of a legend.
    pub fn words(self) -> &'static str {
        match self {
            Self::Disallowed => "not allowed",
            Self::Free => "free",
            Self::Busy => "busy",
            Self::Pinned => "pinned by others",
            Self::Held => "held by another run",
            Self::Idle => "kept idle",
            Self::Chosen => "chosen",
            Self::Contested => "chosen although not free",
        }
    }

    /// The character for a CPU, or for a core of which every CPU has this mark.
    pub fn glyph(self) -> char {
        match self {
            Self::Disallowed => '-',
            Self::Free => '.',
            Self::Busy => 'B',
            Self::Pinned => 'P',
            Self::Held => 'H',
            Self::Idle => '_',
            Self::Chosen => '#',
            Self::Contested => '!',
        }
    }

    /// The character for a core of which only some CPUs have this mark and the others a weaker one.
    pub fn part_glyph(self) -> char {
        match self {
            Self::Free => ',',
            Self::Busy => 'b',
            Self::Pinned => 'p',
            Self::Held => 'h',
            Self::Chosen => '+',
            Self::Disallowed | Self::Idle | Self::Contested => self.glyph(),
        }
    }
}

impl From<State> for Mark {
    fn from(state: State) -> Self {
        match state {
            State::Free => Self::Free,
            State::Busy => Self::Busy,
            State::Pinned => Self::Pinned,
            State::Held => Self::Held,
            State::Disallowed => Self::Disallowed,
        }
    }
}

/// The mark of a whole core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoreMark {
    /// The strongest mark of its CPUs.
    pub mark: Mark,
    /// Whether only some of its CPUs have it.
    pub part: bool,
}

impl CoreMark {
    /// The one character that stands for the core.
    pub fn glyph(self) -> char {
        if self.part { self.mark.part_glyph() } else { self.mark.glyph() }
    }

    /// The words of a legend.
    pub fn words(self) -> String {
        let part = self.part && self.mark.part_glyph() != self.mark.glyph();
        format!("{}{}", if part { "partly " } else { "" }, self.mark.words())
    }
}

/// A mark for every CPU. The default marks nothing: the bare machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    of: BTreeMap<OsCpu, Mark>,
    threads: BTreeMap<OsCpu, usize>,
}

impl Marks {
    /// What stands in the way on each CPU of a machine.
    pub fn around(machine: &Machine, taken: &Taken) -> Self {
        let mark = |cpu| (cpu, state(machine, taken, cpu).into());
        Self { of: machine.parts().pus.iter().copied().map(mark).collect(), threads: BTreeMap::new() }
    }

    /// The same, with what a plan chose and what it keeps idle marked over it.
    #[must_use]
    pub fn with_plan(mut self, plan: &Plan) -> Self {
        for cpu in plan.hold.difference(&plan.mask).iter() {
            self.of.insert(cpu, Mark::Idle);
        }
        for (thread, slot) in plan.slots.iter().enumerate() {
            let mark = match self.of(slot.cpu) {
                Mark::Free | Mark::Idle | Mark::Chosen => Mark::Chosen,
                _ => Mark::Contested,
            };
            self.of.insert(slot.cpu, mark);
            self.threads.insert(slot.cpu, thread);
        }
        self
    }

    /// Whether nothing is marked.
    pub fn is_bare(&self) -> bool {
        self.of.is_empty()
    }

    /// The mark of a CPU; free where none was given.
    pub fn of(&self, cpu: OsCpu) -> Mark {
        self.of.get(&cpu).copied().unwrap_or(Mark::Free)
    }

    /// The number of the plan's thread that runs on a CPU.
    pub fn thread_on(&self, cpu: OsCpu) -> Option<usize> {
        self.threads.get(&cpu).copied()
    }

    /// The mark of a core by its place in the model.
    ///
    /// # Panics
    /// When the machine has no such core.
    pub fn of_core(&self, machine: &Machine, core: u32) -> CoreMark {
        let pus = machine.cores()[core as usize].pus.clone();
        let marks = pus.map(|pu| self.of(machine.os(Pu(pu))));
        let mark = marks.clone().max().unwrap_or(Mark::Free);
        CoreMark { mark, part: marks.clone().any(|other| other != mark) }
    }
}
