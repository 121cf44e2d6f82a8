//! Planner: the steps from a request to a plan.
//!
//! Unit: cores; costs in thousandths of a core. Problem: give a run the requested cores at the best
//! locations, although other runs hold cores and other programs pin to them or keep them busy.
//! Idea: gather the candidates, filter them, and ask the strategy for its best answer (`choice`). A
//! slightly busy core is better than a second socket, and a free socket is better than a busy core.
//! Cores without local memory come after all cores with local memory, at equal load. Properties:
//! Plans are deterministic. Every slot is allowed, and no CPU has two slots. The requested shape is
//! kept, or the request is refused with the missing resource (`check` verifies all of this
//! independently).

use super::choice::{Chosen, cheapest, most};
use super::error::PlaceError;
use super::pool::{self, Pool};
use super::reasons;
use super::request::{Amount, KindChoice, Request, Smt};
use super::strategy::Strategy;
use super::taken::{BUSY_FROM, CpuState, Taken};
use super::{Plan, Reason, Slot, memory, shape};
use crate::ids::{CoreId, Id, OsCpu, Pu};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{KindId, Machine};

/// Largest cost of a core that `auto` uses, in thousandths: less than half of the core. On a
/// desktop every core has some load, and a request for the free cores should not get none.
const AUTO_COST_MAX: u32 = 499;

/// Makes the plan for a request.
///
/// # Errors
/// [`PlaceError`] names the request, the resources and the obstacle. With [`Request::or_fewer`],
/// counts that are too large are met as far as possible instead; a request that can get nothing is
/// still refused.
pub fn plan(machine: &Machine, request: &Request, taken: &Taken) -> Result<Plan, PlaceError> {
    let taken = &Taken { allowed: taken.allowed.intersection(&machine.cpus()), ..taken.clone() };
    if taken.allowed.is_empty() {
        return Err(PlaceError::NothingAllowed);
    }
    named_cpus(machine, request, taken)?;
    let restricted;
    let request = match &request.kind {
        KindChoice::LargestCache => {
            restricted = below_largest_cache(machine, request)?;
            &restricted
        }
        _ => request,
    };
    let mut found = Err(PlaceError::NothingAllowed);
    for kind in kinds_to_try(machine, request, taken)? {
        let pool = Pool::new(machine, request, taken, kind);
        let or_fewer = request.or_fewer && kind == last_resort(machine, request);
        match choose(&pool, request, taken, or_fewer) {
            Ok(chosen) => return finish(&pool, request, taken, kind, chosen),
            // The refusal for mixed kinds counts most cores, so the last refusal is kept.
            Err(error) => found = Err(error),
        }
    }
    found
}

/// Checks that CPUs named by the user exist, are allowed and are free.
fn named_cpus(machine: &Machine, request: &Request, taken: &Taken) -> Result<(), PlaceError> {
    let Some(cpus) = &request.cpus else {
        return if request.amount == Amount::Exact { Err(PlaceError::NoCpus) } else { Ok(()) };
    };
    if cpus.is_empty() {
        return Err(PlaceError::NoCpus);
    }
    let unknown = cpus.difference(&machine.cpus());
    if !unknown.is_empty() {
        let offline = unknown.intersection(machine.offline());
        return Err(PlaceError::NoSuchCpus { cpus: unknown, offline, known: machine.cpus() });
    }
    let out = cpus.difference(&taken.allowed);
    if !out.is_empty() {
        return Err(PlaceError::CpusNotAllowed { cpus: out, allowed: taken.allowed.clone() });
    }
    let held = cpus.intersection(&taken.held);
    if request.amount == Amount::Exact && !request.share && !held.is_empty() {
        return Err(PlaceError::CpusHeld { cpus: held });
    }
    Ok(())
}

/// Returns the request with the CPUs that have the largest last-level cache.
fn below_largest_cache(machine: &Machine, request: &Request) -> Result<Request, PlaceError> {
    let largest = machine.largest_cache().ok_or(PlaceError::CachesUnknown)?;
    let cpus = request.cpus.as_ref().map_or_else(|| largest.clone(), |named| named.intersection(&largest));
    if cpus.is_empty() {
        return Err(PlaceError::NoLargestCache { largest });
    }
    Ok(Request { cpus: Some(cpus), ..request.clone() })
}

/// Returns the core kinds to try, in order; `None` means any mixture.
fn kinds_to_try(
    machine: &Machine,
    request: &Request,
    taken: &Taken,
) -> Result<Vec<Option<KindId>>, PlaceError> {
    let kinds = machine.kinds();
    let id = |at: usize| KindId(u8::try_from(at).unwrap_or(u8::MAX));
    match &request.kind {
        KindChoice::Named(name) => match kinds.iter().position(|kind| kind.name.eq_ignore_ascii_case(name)) {
            Some(at) => Ok(vec![Some(id(at))]),
            None => Err(PlaceError::NoSuchKind {
                name: name.clone(),
                known: kinds.iter().map(|kind| kind.name.clone()).collect(),
            }),
        },
        KindChoice::Any | KindChoice::LargestCache => Ok(vec![None]),
        KindChoice::One if kinds.len() == 1 || request.amount == Amount::Exact => Ok(vec![None]),
        KindChoice::One => {
            let present = (0..kinds.len())
                .filter(|&at| kinds[at].cpus.intersects(&taken.allowed))
                .map(|at| Some(id(at)));
            Ok(present.chain([None]).collect())
        }
    }
}

/// Returns the kind for which `--or-fewer` accepts fewer cores: only after every kind was tried for
/// the whole request.
fn last_resort(machine: &Machine, request: &Request) -> Option<KindId> {
    match &request.kind {
        KindChoice::Named(name) => {
            let at = machine.kinds().iter().position(|kind| kind.name.eq_ignore_ascii_case(name));
            at.map(|at| KindId(u8::try_from(at).unwrap_or(u8::MAX)))
        }
        _ => None,
    }
}

fn choose(pool: &Pool<'_>, request: &Request, taken: &Taken, or_fewer: bool) -> Result<Chosen, PlaceError> {
    let exists = pool::usable_cores(pool.machine, request, taken);
    let mut reasons = Vec::new();
    let asked = match request.amount {
        Amount::Exact => {
            let members: Vec<usize> = (0..pool.candidates.len()).collect();
            let asked = u32::try_from(members.len()).unwrap_or(u32::MAX);
            return match request.cores_max.filter(|&max| asked > max) {
                Some(max) => Err(PlaceError::SiteMax { asked, max }),
                None => Ok(Chosen { members, asked: None, reasons }),
            };
        }
        Amount::Shape(wanted) => return shape::choose(pool, request, wanted, or_fewer),
        Amount::Cores(count) => count,
        Amount::Percent(percent) => {
            let share = (exists * percent as usize / 100).max(1);
            let cores = u32::try_from(share).unwrap_or(u32::MAX);
            reasons.push(Reason::Share { percent, of: exists, cores });
            cores
        }
        Amount::Auto => {
            let free = most(pool, request.strategy, &(0..pool.candidates.len()), AUTO_COST_MAX);
            let all = u32::try_from(free.max(1)).unwrap_or(u32::MAX);
            let site = [request.cores_auto, request.cores_max].into_iter().flatten().min();
            let cap = site.filter(|&cap| cap < all);
            reasons.push(Reason::Auto { free, cap });
            let below = cap.unwrap_or(all);
            match request.granted.as_ref().filter(|granted| granted.cores < below) {
                Some(granted) => {
                    reasons.push(Reason::Granted(granted.clone()));
                    granted.cores
                }
                None => below,
            }
        }
    };
    let wanted = asked;
    let asked = match request.cores_max.filter(|&max| asked > max) {
        Some(max) if request.or_fewer => {
            reasons.push(Reason::Fewer { asked, got: max });
            max
        }
        Some(max) => return Err(PlaceError::SiteMax { asked, max }),
        None => asked,
    };
    if let Some(members) = cheapest(pool, request.strategy, 0..pool.candidates.len(), asked as usize) {
        return Ok(Chosen { members, asked: Some(asked), reasons });
    }
    let can = most(pool, request.strategy, &(0..pool.candidates.len()), u32::MAX).min(asked as usize);
    let fewer = (can > 0).then(|| cheapest(pool, request.strategy, 0..pool.candidates.len(), can)).flatten();
    let got = u32::try_from(fewer.as_ref().map_or(0, Vec::len)).unwrap_or(u32::MAX);
    match fewer {
        Some(members) if or_fewer => {
            reasons.retain(|reason| !matches!(reason, Reason::Fewer { .. }));
            reasons.push(Reason::Fewer { asked: wanted, got });
            Ok(Chosen { members, asked: Some(asked), reasons })
        }
        _ if asked as usize > exists => Err(PlaceError::MoreThanExist { asked, exist: exists }),
        _ => Err(PlaceError::NotEnough {
            asked,
            free: got,
            held: held_of(pool, request, taken),
            strategy: request.strategy,
        }),
    }
}

fn held_of(pool: &Pool<'_>, request: &Request, taken: &Taken) -> CpuSet {
    let within = request.cpus.as_ref().map_or_else(|| pool.machine.cpus(), Clone::clone);
    taken.held.intersection(&taken.allowed).intersection(&within)
}

/// Turns chosen cores into slots, a mask, a hold, a memory policy and reasons.
fn finish(
    pool: &Pool<'_>,
    request: &Request,
    taken: &Taken,
    kind: Option<KindId>,
    chosen: Chosen,
) -> Result<Plan, PlaceError> {
    let machine = pool.machine;
    let slots = slots(pool, request, &chosen.members);
    let mask: CpuSet = slots.iter().map(|slot| slot.cpu).collect();
    let hold = hold(pool, request, taken, &chosen.members);
    let nodes: NodeSet = slots.iter().filter_map(|slot| slot.node).collect();
    let mut reasons = chosen.reasons;
    reasons.extend(reasons::of_kind(pool, request, kind, chosen.asked));
    reasons.extend(reasons::of_shape(pool, request, &chosen.members));
    reasons.extend(reasons::of_siblings(machine, taken, &mask, &hold, request));
    reasons.extend(reasons::of_taken(taken, &mask, &hold));
    reasons.extend(reasons::of_device(pool, request, &chosen.members));
    reasons.extend(reasons::of_remote(pool, request, taken, &chosen.members));
    let memory = memory::derive(machine, &request.memory, taken, &nodes)?;
    reasons.extend(memory.reasons);
    let threads = threads(slots.len(), taken.quota);
    if let (Some(quota), true) = (taken.quota, (threads as usize) < slots.len()) {
        reasons.push(Reason::Quota { quota, slots: slots.len(), threads });
    }
    Ok(Plan {
        amount: request.amount,
        strategy: request.strategy,
        slots,
        mask,
        hold,
        nodes,
        memory: memory.plan,
        memory_hold: memory.hold,
        huge_pages: request.huge_pages,
        threads,
        reasons,
    })
}

/// Returns the number of threads that a program should start: one per slot, but not more than the
/// quota can run at once.
fn threads(slots: usize, quota: Option<u32>) -> u32 {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    quota.map_or(slots, |quota| slots.min(quota.div_ceil(1000).max(1)))
}

fn slots(pool: &Pool<'_>, request: &Request, members: &[usize]) -> Vec<Slot> {
    let machine = pool.machine;
    let of = |cpu: OsCpu, core: CoreId| {
        let place = machine.core(core);
        Slot { cpu, core, llc: place.llc, node: place.node.map(|node| machine.nodes()[node.index()].os) }
    };
    let depth = match (request.amount, request.smt) {
        (Amount::Exact, _) | (_, Smt::All) => usize::MAX,
        (_, Smt::Threads(threads)) => threads as usize,
    };
    let cpus = |&at: &usize| {
        let candidate = &pool.candidates[at];
        candidate.cpus.iter().take(depth).map(|&cpu| of(cpu, candidate.core)).collect::<Vec<_>>()
    };
    let by_core: Vec<Vec<Slot>> = members.iter().map(cpus).collect();
    match request.strategy {
        // Scatter uses every core before any second hardware thread.
        Strategy::Scatter => {
            let rounds = by_core.iter().map(Vec::len).max().unwrap_or(0);
            (0..rounds)
                .flat_map(|round| by_core.iter().filter_map(move |core| core.get(round).cloned()))
                .collect()
        }
        _ => by_core.concat(),
    }
}

/// Returns the CPUs that the run reserves: every allowed hardware thread of its cores, and for
/// strides by unit the whole units.
fn hold(pool: &Pool<'_>, request: &Request, taken: &Taken, members: &[usize]) -> CpuSet {
    let machine = pool.machine;
    let of_core = |core: CoreId| machine.core(core).pus.clone().map(|pu| machine.os(Pu(pu)));
    let mut hold: CpuSet = members.iter().flat_map(|&at| of_core(pool.candidates[at].core)).collect();
    for unit in members.iter().filter_map(|&at| pool.strided_unit(pool.candidates[at].core)) {
        hold.extend(unit.clone().flat_map(|core| of_core(CoreId(core))));
    }
    let mut hold = hold.intersection(&taken.allowed);
    if !request.share {
        // A sibling of an explicitly named CPU may be held by another run; it stays with that run.
        hold = hold.difference(&taken.held);
    }
    hold
}

/// Returns the state of a CPU around a request, for pictures: [`Taken::state`] including the
/// siblings' load.
pub fn state(machine: &Machine, taken: &Taken, cpu: OsCpu) -> CpuState {
    let own = taken.state(cpu);
    if own != CpuState::Free {
        return own;
    }
    let Some(pu) = machine.pu(cpu) else { return own };
    let core = machine.core(machine.core_of(pu));
    let busiest = core.pus.clone().map(|pu| taken.load(machine.os(Pu(pu)))).max().unwrap_or(0);
    if busiest >= BUSY_FROM { CpuState::Busy } else { CpuState::Free }
}
