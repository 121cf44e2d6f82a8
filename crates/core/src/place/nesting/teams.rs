//! Teams on the cores of a plan, with the map that chose those cores.
//!
//! Problem: a plan with the size of its teams has been narrowed to the cores of a map, and the tree
//! of these cores is a different tree: groups are smaller, gaps between cores are gone, and a map
//! made on it differs, so that close teams may be far apart. Idea: the map is made once, on the
//! wide tree of all available cores, and restricted to the remaining cores. Teams that a program
//! opens with other sizes than declared are placed below the levels that match the declaration, on
//! the cores of the plan alone.
//!
//! Properties: Narrowing does not move a thread. Every place is in the plan. The map of some outer
//! levels is the beginning of the map of all levels.

use super::advice::{Advice, advise};
use super::map::Map;
use super::spec::{Nest, Resolved};
use super::thread_place::ThreadPlace;
use super::tree::Tree;

/// Nested teams and the cores on which they are placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Teams {
    tree: Tree,
    resolved: Resolved,
    /// Cores from which the plan was narrowed, and the map made on them, expressed in cores of
    /// `tree`.
    first: Option<(Tree, Map)>,
}

impl Teams {
    /// Creates teams on `tree`, which contains the cores of a map of `nest` on `wide`. If it does
    /// not (there is no wide tree, or the program asks for other teams than the plan was made for),
    /// the map is made on `tree`.
    pub fn new(tree: Tree, wide: Option<&Tree>, nest: &Nest) -> Self {
        if let Some(wide) = wide {
            let resolved = nest.resolve(wide);
            let map = Map::new(wide, &resolved, &resolved.sizes());
            if let Some(map) = map.and_then(|map| restricted(&map, wide, &tree)) {
                return Self { tree, resolved, first: Some((wide.clone(), map)) };
            }
        }
        Self { resolved: nest.resolve(&tree), tree, first: None }
    }

    /// Returns the cores of the plan.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the teams with every size resolved to a number.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Returns the places of teams of `sizes`, outermost first; see [`Map::new`]. Cores are those
    /// of [`Self::tree`].
    pub fn map(&self, sizes: &[u32]) -> Option<Map> {
        let declared = self.resolved.levels().iter().map(|(threads, _)| threads);
        let same = declared.zip(sizes).take_while(|(declared, size)| declared == size).count();
        let levels = self.first.as_ref().map_or(&[][..], |(_, map)| &map.levels()[..same]);
        Map::below(&self.tree, &self.resolved, sizes, levels)
    }

    /// Returns the places of the teams as declared.
    pub fn declared(&self) -> Option<Map> {
        self.map(&self.resolved.sizes())
    }

    /// Returns the advice about the teams.
    pub fn advice(&self) -> Vec<Advice> {
        let tree = self.first.as_ref().map_or(&self.tree, |(wide, _)| wide);
        advise(tree, &self.resolved)
    }
}

/// Converts a map on `wide` to the cores of `tree`; `None` if a thread is outside of them.
fn restricted(map: &Map, wide: &Tree, tree: &Tree) -> Option<Map> {
    let mut numbers = std::collections::BTreeMap::new();
    for core in 0..tree.len() {
        numbers.extend(tree.cpus(core).iter().map(|&cpu| (cpu, core)));
    }
    let number = |core: u32| wide.cpus(core).iter().find_map(|cpu| numbers.get(cpu)).copied();
    let place = |place: &ThreadPlace| {
        let core = numbers.get(&place.cpu).copied()?;
        let share = place.share.iter().filter_map(|&core| number(core)).collect();
        Some(ThreadPlace { core, cpu: place.cpu, share })
    };
    let levels = map.levels().iter().map(|level| level.iter().map(place).collect::<Option<Vec<_>>>());
    Some(Map::of(map.sizes().to_vec(), levels.collect::<Option<Vec<_>>>()?))
}
