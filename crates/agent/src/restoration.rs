//! Masks that a killed balancer left behind, and the record that tells of them.

use crate::say::{self, Volume};
use crate::situation::location;
use crate::world::{LEDGER, World};
use std::fmt::Display;
use trimtab_core::words::plural;
use trimtab_linux::live::keeper::{LeftBehind, LeftEnd, restore_left_behind, stand};
use trimtab_linux::live::{Guard, Keeper, KeeperError, Live, Restored};
use trimtab_linux::process::Pid;
use trimtab_linux::users::Users;

/// Gives threads back what killed balancers left them without; of one process, or of all that are ours.
///
/// # Errors
/// There is no place for records, or it cannot be read.
pub fn give_back(world: &World, only: Option<Pid>) -> Result<Vec<LeftBehind>, KeeperError> {
    restore_left_behind(&location(world)?, &world.proc(), only)
}

/// The same before a run, where nobody asked: what was done is said only to those who want to hear.
pub fn tidy(world: &World, volume: Volume) {
    for LeftBehind { pid, end, .. } in give_back(world, None).unwrap_or_default() {
        if let LeftEnd::Restored { given_back, .. } = end
            && given_back > 0
        {
            say::note(
                volume,
                &format!("process {pid}, whose balancer was killed: {}", own_masks(given_back)),
            );
        }
    }
}

/// What keeps a record of the masks that are about to be set, with a guardian that gives them back if this process is killed.
pub fn keeper(world: &World, volume: Volume) -> Option<Keeper> {
    let opened =
        location(world).map_err(KeeperError::from).and_then(|place| Keeper::open(&place, &world.proc()));
    let ledger = world.raw(LEDGER).filter(|folder| !folder.is_empty());
    // The guardian has no folder of ours.
    let ledger = ledger.and_then(|folder| std::path::absolute(folder).ok());
    let variables = ledger.map(|folder| (LEDGER.into(), folder.into())).into_iter().collect();
    opened
        .map(|keeper| keeper.guarded(Guard::new(variables)))
        .map_err(|error| say::note(volume, &error.to_string()))
        .ok()
}

/// The work of a guardian: gives back what its balancer cannot when it is killed.
pub fn guard(world: &World, balancer: Pid) {
    if let Ok(location) = location(world) {
        stand(&location, &world.proc(), balancer);
    }
}

/// Why masks could not have been given back, had this process been killed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// No record of them was kept.
    pub record: Option<String>,
    /// Nothing would have given them back at once.
    pub guardian: Option<String>,
}

impl Faults {
    /// What this host tells.
    pub fn of(live: &Live) -> Self {
        let facts = live.facts();
        Self { record: facts.keeper_fault, guardian: facts.guard_fault }
    }
}

/// Says what became of the masks at the end, as far as that is worth a word.
pub fn tell(restored: Restored, faults: Faults, volume: Volume) {
    warn(restored, faults, volume);
    if restored.given_back > 0 {
        say::note(volume, &format!("  {}", own_masks(restored.given_back)));
    }
}

/// Says only what did not go well with them.
pub fn warn(restored: Restored, faults: Faults, volume: Volume) {
    if let Some(fault) = faults.record {
        say::warning(volume, &format!("killed, we could not have given masks back: {fault}"));
    }
    if let Some(fault) = faults.guardian {
        say::note(volume, &format!("killed, masks would have come back with the next trimtab only: {fault}"));
    }
    if restored.refused > 0 {
        let threads = plural(restored.refused, "thread");
        say::warning(volume, &format!("{threads} could not be given the mask back that was there before"));
    }
}

/// `1 thread has its own mask again`, `2 threads have their own masks again`.
pub fn own_masks<N: Display + PartialEq + From<u8>>(threads: N) -> String {
    if threads == N::from(1) {
        return "1 thread has its own mask again".to_owned();
    }
    format!("{threads} threads have their own masks again")
}

/// Who may act on what is a user's.
pub fn only(world: &World, uid: u32) -> String {
    if uid == 0 { "only root".to_owned() } else { format!("only {} and root", user(world, uid)) }
}

/// What a user is called.
pub fn user(world: &World, uid: u32) -> String {
    Users::read(&world.root.join("etc/passwd")).unwrap_or_default().name(uid)
}
