//! Packages, dies, groups, caches and cores.

use crate::runs::{Runs, cpus_of};
use hwlocality::Topology;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use trimtab_core::topology::{CachePart, Domain, Level, Machine, MachineError, Parts};

/// Returns every object with a level of the model, as runs of PUs.
pub(crate) fn domains(topology: &Topology, runs: &Runs) -> Vec<Domain> {
    let mut domains = Vec::new();
    for object in topology.normal_objects() {
        let Some(level) = level(object.object_type()) else { continue };
        let os = object.os_index().and_then(|os| u32::try_from(os).ok());
        // More than one run only if the tree is malformed: each run is then a domain of its own.
        domains.extend(runs.split(&cpus_of(object)).into_iter().map(|run| Domain {
            level,
            os,
            first: run.start,
            count: run.end - run.start,
        }));
    }
    domains
}

/// Returns the sizes of the last-level caches, as far as they are known: the third-level caches,
/// and the second-level ones outside of these. Each start reads them, so there are no others.
pub(crate) fn caches(topology: &Topology, runs: &Runs) -> Vec<CachePart> {
    let mut caches = Vec::new();
    for object in topology.normal_objects() {
        let Some(level @ (Level::L3 | Level::L2)) = level(object.object_type()) else { continue };
        let inside = object.ancestors().any(|above| above.object_type() == ObjectType::L3Cache);
        if level == Level::L2 && inside {
            continue;
        }
        let Some(ObjectAttributes::Cache(about)) = object.attributes() else { continue };
        let Some(bytes) = about.size().map(u64::from) else { continue };
        if let [run] = runs.split(&cpus_of(object)).as_slice() {
            caches.push(CachePart { level, first: run.start, count: run.end - run.start, bytes });
        }
    }
    caches
}

/// Returns the model's level for one of hwloc's types. First-level caches are as private as cores,
/// and caches beyond the third (s390, eDRAM) join larger parts of a machine, as groups do.
fn level(of: ObjectType) -> Option<Level> {
    Some(match of {
        ObjectType::Package => Level::Package,
        ObjectType::Die => Level::Die,
        ObjectType::Group | ObjectType::L4Cache | ObjectType::L5Cache => Level::Group,
        ObjectType::L3Cache => Level::L3,
        ObjectType::L2Cache => Level::L2,
        ObjectType::Core => Level::Core,
        _ => return None,
    })
}

/// Levels by importance, least important first: if two levels cross, the first of them in this list
/// is dropped.
const DISPENSABLE: [Level; 6] = [Level::Group, Level::Die, Level::L2, Level::L3, Level::Package, Level::Core];

/// Returns the parts without the levels whose objects cross others. hwloc's own trees have no
/// crossing; files from elsewhere and nodes that hwloc could not place may.
pub(crate) fn without_crossings(mut parts: Parts) -> Result<Parts, MachineError> {
    loop {
        let (a, b) = match Machine::build(parts.clone()) {
            Err(MachineError::Crossing(a, b)) => (a, b),
            Err(other) => return Err(other),
            Ok(_) => return Ok(parts),
        };
        let Some(least) = DISPENSABLE.into_iter().find(|&level| level == a || level == b) else {
            return Err(MachineError::Crossing(a, b));
        };
        parts.domains.retain(|domain| domain.level != least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::ids::{OsCpu, OsNode};
    use trimtab_core::topology::{NodePart, Tier};

    #[test]
    fn crossing_levels_go_and_the_machine_stays() {
        let domain = |level, first, count| Domain { level, os: None, first, count };
        let node = |os, first, count| NodePart {
            os: OsNode(os),
            first,
            count,
            bytes: None,
            tier: Tier::Dram,
            has_cpus: true,
        };
        let crossed = Parts {
            pus: (0..8).map(OsCpu).collect(),
            domains: vec![
                domain(Level::Package, 0, 4),
                domain(Level::Package, 4, 4),
                domain(Level::L3, 2, 4),
                domain(Level::Group, 1, 4),
                domain(Level::Core, 0, 3),
                domain(Level::Core, 2, 3),
            ],
            nodes: vec![node(0, 0, 3), node(1, 3, 5)],
            ..Parts::default()
        };
        let parts = without_crossings(crossed).unwrap();
        let machine = Machine::build(parts).unwrap();
        assert_eq!((machine.pu_count(), machine.nodes().len()), (8, 2));
    }
}
