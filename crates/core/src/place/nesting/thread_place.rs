//! Place of one thread of nested teams: its core, its CPU, and its share of the machine.

use super::tree::Tree;
use crate::ids::OsCpu;
use crate::set::CpuSet;

/// Place of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadPlace {
    /// Core, as a position in the tree.
    pub core: u32,
    /// CPU of the thread.
    pub cpu: OsCpu,
    /// Cores that the thread and the teams it opens may use, ascending, with its own core first.
    pub share: Vec<u32>,
}

impl ThreadPlace {
    /// Returns the CPUs for a team that this thread opens below the last listed level: its share,
    /// or its memory domain if the share is a single core, to avoid stacking all threads on that
    /// core.
    pub fn room(&self, tree: &Tree) -> CpuSet {
        let cpus = |core: u32| tree.cpus(core).iter().copied();
        match self.share.as_slice() {
            [_, _, ..] => self.share.iter().flat_map(|&core| cpus(core)).collect(),
            _ => tree.domain(self.core).flat_map(cpus).collect(),
        }
    }
}
