//! Nesting depth of a hold.

use std::fmt;

/// How deep a hold is nested. The machine is level 0; a run started inside a level-0 hold divides that hold with locks
/// of level 1, and so on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Level(u8);

impl Level {
    /// How many levels there are.
    pub(super) const COUNT: u8 = 16;

    /// The whole machine.
    pub const MACHINE: Self = Self(0);

    /// The level this deep, if there is one: 16 are kept.
    pub fn new(depth: u8) -> Option<Self> {
        (depth < Self::COUNT).then_some(Self(depth))
    }

    /// The level inside this one, if there is one.
    pub fn inner(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// How deep, from 0.
    pub fn depth(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
