//! Upkeep: follows the ledger between the runtime's calls.
//!
//! The shared pool shrinks when programs outside of Kubernetes take cores and grows when cores are
//! given back, and a container gets its hold again if its keeper was killed. The ledger announces
//! no change, so it is read at an interval.

use crate::containers::{Cores, Known, Own, messages};
use crate::message::{Empty, Updates};
use crate::node::Subject;
use crate::session::Session;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_launch::Environment;

/// Time between two readings of the ledger. Chosen: a shared container runs at most that long on a
/// core that a program outside has just taken; a reading costs about a millisecond.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for the runtime to change containers.
const UPDATE_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts to make a hold again.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until the session ends.
pub fn run(session: &Session) {
    let mut retries: BTreeMap<String, Instant> = BTreeMap::new();
    while session.wait(INTERVAL) {
        let (synchronized, containers) = {
            let state = session.state();
            (state.synchronized, state.containers.clone())
        };
        if !synchronized {
            continue;
        }
        // The containers were copied before: a hold that is made meanwhile is not missed.
        if let Ok(claims) = session.node.claims() {
            retries.retain(|id, _| containers.get(id).is_some());
            for id in containers.lost(&claims.held) {
                let due = retries.get(&id).is_none_or(|at| at.elapsed() >= RETRY);
                if let Some(known) = containers.get(&id).filter(|known| due && lives(session, known)) {
                    retries.insert(id.clone(), Instant::now());
                    renew(session, &id, known);
                }
            }
        }
        update(session);
        session.show();
    }
}

/// Returns whether a container has a process.
fn lives(session: &Session, known: &Known) -> bool {
    known.pid != 0 && session.node.world.proc().join(known.pid.to_string()).exists()
}

/// Makes the hold of a container that lives again.
fn renew(session: &Session, id: &str, known: &Known) {
    let (wanted, cpus) = match &known.cores {
        Cores::Own(Own { cpus, wanted, .. }) => (wanted.clone(), Some(cpus)),
        Cores::Without(wanted) => (wanted.clone(), known.told.as_ref()),
        Cores::Alone | Cores::Shared => return,
    };
    let subject = Subject {
        id: id.to_owned(),
        label: known.label.clone(),
        environment: Environment::default(),
        quota: None,
    };
    let cores = session.renewed(&subject, wanted, known.pid, cpus);
    let is_known = {
        let mut state = session.state();
        state.containers.get_mut(id).map(|known| known.cores = cores).is_some()
    };
    if !is_known {
        session.forget(id); // it ended meanwhile
    }
}

/// Asks the runtime for the changes of containers that are due.
fn update(session: &Session) {
    let pool = session.pool();
    let updates = session.state().containers.updates(pool.as_ref());
    if updates.is_empty() {
        return;
    }
    let argument = Updates { update: messages(&updates) };
    match session.link.call::<Empty>("UpdateContainers", &argument, UPDATE_MAX) {
        Ok(Empty {}) => session.state().containers.told(&updates),
        Err(error) => session.narrator.warning(&format!("containers keep their CPUs for now: {error}")),
    }
    tell_pool(session, pool.as_ref());
}

fn tell_pool(session: &Session, pool: Option<&CpuSet>) {
    if let Some(pool) = pool {
        session.narrator.detail(&format!("shared pool: CPUs {pool}"));
    }
}
