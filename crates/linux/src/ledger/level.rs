//! Nesting depth of a hold.

use std::fmt;

/// Nesting depth of a hold. The machine is level 0; a run started inside a level-0 hold divides
/// that hold with locks of level 1, and so on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Level(u8);

impl Level {
    /// Number of levels.
    pub(super) const COUNT: u8 = 16;

    /// The whole machine.
    pub const MACHINE: Self = Self(0);

    /// Returns the level of this depth; `None` from depth 16 on.
    pub fn new(depth: u8) -> Option<Self> {
        (depth < Self::COUNT).then_some(Self(depth))
    }

    /// Returns the level inside this one; `None` inside the deepest.
    pub fn inner(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Returns the depth, from 0.
    pub fn depth(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
