//! Narrowing of a request to the cores that nested teams need.
//!
//! The declared teams of a program imply the number of cores it needs. A request without an amount
//! is therefore planned as if for all free cores, the teams are placed on those, and the request is
//! changed to the cores with a thread. If threads are far apart, the cores between them stay free
//! for others. Teams that need more cores than are free request their number of cores, including
//! busy ones, and accept fewer.

use super::{Map, Nest, Tree};
use crate::place::{Amount, PlaceError, Request, Taken, local, plan};
use crate::set::CpuSet;
use crate::topology::Machine;

/// Request with the size of nested teams.
#[derive(Clone, PartialEq, Debug)]
pub struct Narrowed {
    /// The request.
    pub request: Request,
    /// Available cores on which the teams were placed; `None` if the request was left unchanged.
    pub wide: Option<Tree>,
}

/// Returns the request for exactly the cores that `nest` uses, if the request leaves the number
/// open; else the request itself.
///
/// # Errors
/// Those of [`plan()`](crate::place::plan()).
pub fn narrow(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
    nest: &Nest,
) -> Result<Narrowed, PlaceError> {
    let unchanged = || Narrowed { request: request.clone(), wide: None };
    if request.amount != Amount::Auto || request.cpus.is_some() {
        return Ok(unchanged());
    }
    let all = plan(machine, request, taken)?;
    let Some(tree) = Tree::new(machine, &all.mask) else { return Ok(unchanged()) };
    let resolved = nest.resolve(&tree);
    if resolved.threads() > tree.cores() as u64 {
        // The free cores do not suffice: busy cores come after them, as for any count.
        let amount = Amount::Cores(u32::try_from(resolved.threads()).unwrap_or(u32::MAX));
        return Ok(Narrowed { request: Request { amount, or_fewer: true, ..request.clone() }, wide: None });
    }
    let (tree, resolved) = match local_tree(machine, taken, &all.mask) {
        Some(local) if resolved.threads() <= local.cores() as u64 => {
            let resolved = nest.resolve(&local);
            (local, resolved)
        }
        _ => (tree, resolved),
    };
    let Some(map) = Map::new(&tree, &resolved, &resolved.sizes()) else { return Ok(unchanged()) };
    let used = map.cpus();
    let mut cores = 0;
    let mut cpus = CpuSet::new();
    for core in machine.cores() {
        let of_core = machine.cpus_of(&core.pus).intersection(&taken.allowed);
        if of_core.intersects(&used) {
            cores += 1;
            cpus = cpus.union(&of_core);
        }
    }
    let request = Request { amount: Amount::Cores(cores), cpus: Some(cpus), ..request.clone() };
    Ok(Narrowed { request, wide: Some(tree) })
}

/// Returns the tree of the cores in `mask` with local memory; `None` if all cores have some.
fn local_tree(machine: &Machine, taken: &Taken, mask: &CpuSet) -> Option<Tree> {
    let remote = local::remote(machine, taken);
    let with_memory = machine.cores().iter().zip(remote).filter(|(_, remote)| !remote);
    let cpus = with_memory.fold(CpuSet::new(), |all, (core, _)| all.union(&machine.cpus_of(&core.pus)));
    let cpus = mask.intersection(&cpus);
    if cpus.len() == mask.len() { None } else { Tree::new(machine, &cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    #[test]
    fn only_cores_with_a_thread_are_asked_for() {
        let machine = parse_synthetic("pack:4 core:4 pu:2(far)").unwrap();
        let taken = Taken::nothing(machine.cpus());
        let narrowed = |nest: &str, request: &Request| {
            let request = narrow(&machine, request, &taken, &nest.parse().unwrap()).unwrap().request;
            let plan = plan(&machine, &request, &taken).unwrap();
            (plan.mask.to_string(), plan.slots.len())
        };
        let auto = Request::default();
        assert_eq!(narrowed("4,scatter", &auto), ("0,4,8,12".to_owned(), 4));
        assert_eq!(narrowed("2,scatter,2,subcompact", &auto), ("0-1,8-9".to_owned(), 4));
        assert_eq!(narrowed("*,scatter,2,subcompact", &auto).1, 16);
        assert_eq!(narrowed("64,compact", &auto).1, 16);
        let six = Request { amount: Amount::Cores(6), ..auto };
        assert_eq!(narrowed("4,scatter", &six).1, 6, "what was asked for stays");
    }
}
