//! Marks: the state of every CPU in a picture, before and after a plan.
//!
//! Unit: CPUs. Marks are plain data between the occupancy and a plan, of which `place::marks` makes
//! them, and the two pictures (`draw`, `svg`), so that both pictures show the same and neither
//! decides anything. A core's mark is the strongest mark of its CPUs. Marks of a plan outrank marks
//! of the occupancy, and obstacles outrank free.

use super::Machine;
use crate::ids::{OsCpu, Pu};
use std::collections::BTreeMap;

/// Mark of one CPU, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CpuMark {
    /// Outside the CPUs that this process may use.
    Disallowed,
    /// Unused, or nothing is known about it.
    Free,
    /// Load of other programs runs on it or on its core.
    Busy,
    /// A task of another program is bound to it.
    Pinned,
    /// Another run holds it.
    Held,
    /// The plan reserves it and keeps it idle.
    Idle,
    /// The plan runs a thread on it.
    Chosen,
    /// The plan runs a thread on it although it is not free.
    Contested,
}

impl CpuMark {
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

    /// Returns the words for a legend.
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

    /// Returns the character for a CPU, or for a core with this mark on all CPUs.
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

    /// Returns the character for a core with this mark on some CPUs and a weaker one on the others.
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

/// Mark of a whole core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoreMark {
    /// Strongest mark of its CPUs.
    pub mark: CpuMark,
    /// Whether only some of its CPUs have it.
    pub part: bool,
}

impl CoreMark {
    /// Returns the character that represents the core.
    pub fn glyph(self) -> char {
        if self.part { self.mark.part_glyph() } else { self.mark.glyph() }
    }

    /// Returns the words for a legend.
    pub fn words(self) -> String {
        let part = self.part && self.mark.part_glyph() != self.mark.glyph();
        format!("{}{}", if part { "partly " } else { "" }, self.mark.words())
    }
}

/// Marks of all CPUs. The default marks nothing: the bare machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    pub(crate) of: BTreeMap<OsCpu, CpuMark>,
    pub(crate) threads: BTreeMap<OsCpu, usize>,
}

impl Marks {
    /// Returns whether nothing is marked.
    pub fn is_bare(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns the mark of a CPU; free if none was given.
    pub fn of(&self, cpu: OsCpu) -> CpuMark {
        self.of.get(&cpu).copied().unwrap_or(CpuMark::Free)
    }

    /// Returns the number of the plan's thread that runs on a CPU.
    pub fn thread_on(&self, cpu: OsCpu) -> Option<usize> {
        self.threads.get(&cpu).copied()
    }

    /// Returns the mark of a core, by its index in the model.
    ///
    /// # Panics
    /// If the machine has no core with this index.
    pub fn of_core(&self, machine: &Machine, core: u32) -> CoreMark {
        let pus = machine.cores()[core as usize].pus.clone();
        let marks = pus.map(|pu| self.of(machine.os(Pu(pu))));
        let mark = marks.clone().max().unwrap_or(CpuMark::Free);
        CoreMark { mark, part: marks.clone().any(|other| other != mark) }
    }
}
