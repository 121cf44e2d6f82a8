//! Teams on the cores of a plan, with the map that chose those cores.
//!
//! Problem: a plan that is as small as its teams has been narrowed to the cores of a map, and the tree of what is left is
//! another tree: groups are smaller, rows of cores have closed up, and a map made on it is another map, in which close
//! teams may lie far apart. Idea: the map is made once, on the wide tree of all cores that could have been had, and
//! restricted to the cores that are left. Teams that a program opens in other sizes than declared are placed below the
//! levels that are as declared, on the cores of the plan alone.
//!
//! Properties: narrowing does not move a thread; every place lies in the plan; the map of some outer levels is the beginning
//! of the map of all.

use super::advice::{Advice, advise};
use super::map::{Map, Place};
use super::spec::{Nest, Resolved};
use super::tree::Tree;

/// Nested teams and the cores they are placed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Teams {
    tree: Tree,
    resolved: Resolved,
    /// The cores that the plan was narrowed from, and the map made on them, told in cores of `tree`.
    first: Option<(Tree, Map)>,
}

impl Teams {
    /// Teams on `tree`, which holds the cores of a map of `nest` on `wide`. Where it does not (there is no wide tree, the
    /// program asks for other teams than the plan was made for) the map is made on `tree`.
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

    /// The cores of the plan.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The teams, every size a number.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The places of teams of `sizes`, outermost first; see [`Map::new`]. Cores are those of [`Self::tree`].
    pub fn map(&self, sizes: &[u32]) -> Option<Map> {
        let declared = self.resolved.levels().iter().map(|(threads, _)| threads);
        let same = declared.zip(sizes).take_while(|(declared, size)| declared == size).count();
        let levels = self.first.as_ref().map_or(&[][..], |(_, map)| &map.levels()[..same]);
        Map::below(&self.tree, &self.resolved, sizes, levels)
    }

    /// The places of the teams as they were declared.
    pub fn declared(&self) -> Option<Map> {
        self.map(&self.resolved.sizes())
    }

    /// What there is to know about them.
    pub fn advice(&self) -> Vec<Advice> {
        let tree = self.first.as_ref().map_or(&self.tree, |(wide, _)| wide);
        advise(tree, &self.resolved)
    }
}

/// A map on `wide`, told in the cores of `tree`; none when a thread is outside of them.
fn restricted(map: &Map, wide: &Tree, tree: &Tree) -> Option<Map> {
    let mut numbers = std::collections::BTreeMap::new();
    for core in 0..tree.len() {
        numbers.extend(tree.cpus(core).iter().map(|&cpu| (cpu, core)));
    }
    let number = |core: u32| wide.cpus(core).iter().find_map(|cpu| numbers.get(cpu)).copied();
    let place = |place: &Place| {
        let core = numbers.get(&place.cpu).copied()?;
        let share = place.share.iter().filter_map(|&core| number(core)).collect();
        Some(Place { core, cpu: place.cpu, share })
    };
    let levels = map.levels().iter().map(|level| level.iter().map(place).collect::<Option<Vec<_>>>());
    Some(Map::of(map.sizes().to_vec(), levels.collect::<Option<Vec<_>>>()?))
}
