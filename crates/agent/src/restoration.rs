//! Restoration of masks: the record that a balancer keeps of them, its guardian, and what a killed
//! balancer left behind.

use crate::narrator::Narrator;
use crate::paths::{LEDGER, Paths};
use std::fmt::Display;
use trimtab_core::words::plural;
use trimtab_linux::host::affinity_journal::{LeftBehind, LeftEnd, restore_left_behind, stand};
use trimtab_linux::host::{AffinityJournal, Guard, JournalError, Live, Restored};
use trimtab_linux::process::Pid;
use trimtab_linux::users::Users;

/// Gives threads back what killed balancers left them without; of one process, or of all that are
/// ours.
///
/// # Errors
/// There is no place for records, or it cannot be read.
pub fn give_back(paths: &Paths, only: Option<Pid>) -> Result<Vec<LeftBehind>, JournalError> {
    restore_left_behind(&paths.location()?, &paths.proc(), only)
}

/// The same before a run, where it was not asked for: what was done is a detail.
pub fn tidy(paths: &Paths, narrator: &dyn Narrator) {
    for LeftBehind { pid, end, .. } in give_back(paths, None).unwrap_or_default() {
        if let LeftEnd::Restored { given_back, .. } = end
            && given_back > 0
        {
            narrator.detail(&format!("process {pid}, whose balancer was killed: {}", own_masks(given_back)));
        }
    }
}

/// What keeps a record of the masks that are about to be set, with a guardian that gives them back
/// if this process is killed.
pub fn keeper(paths: &Paths, narrator: &dyn Narrator) -> Option<AffinityJournal> {
    let opened = paths
        .location()
        .map_err(JournalError::from)
        .and_then(|place| AffinityJournal::open(&place, &paths.proc()));
    // The guardian has no folder of ours.
    let ledger = paths.ledger.as_ref().and_then(|folder| std::path::absolute(folder).ok());
    let variables = ledger.map(|folder| (LEDGER.into(), folder.into())).into_iter().collect();
    opened
        .map(|keeper| keeper.guarded(Guard::new(variables)))
        .map_err(|error| narrator.detail(&error.to_string()))
        .ok()
}

/// The work of a guardian: gives back what its balancer cannot when it is killed.
pub fn guard(paths: &Paths, balancer: Pid) {
    if let Ok(location) = paths.location() {
        stand(&location, &paths.proc(), balancer);
    }
}

/// Why masks could not have been given back, had this process been killed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestorationFaults {
    /// No record of them was kept.
    pub record: Option<String>,
    /// Nothing would have given them back at once.
    pub guardian: Option<String>,
}

impl RestorationFaults {
    /// What this host tells.
    pub fn of(live: &Live) -> Self {
        let facts = live.facts();
        Self { record: facts.keeper_fault, guardian: facts.guard_fault }
    }
}

/// Says what became of the masks at the end, as far as that is worth a word.
pub fn tell(restored: Restored, faults: RestorationFaults, narrator: &dyn Narrator) {
    warn(restored, faults, narrator);
    if restored.given_back > 0 {
        narrator.detail(&format!("  {}", own_masks(restored.given_back)));
    }
}

/// Says only what did not go well with them.
pub fn warn(restored: Restored, faults: RestorationFaults, narrator: &dyn Narrator) {
    if let Some(fault) = faults.record {
        narrator.warning(&format!("killed, we could not have given masks back: {fault}"));
    }
    if let Some(fault) = faults.guardian {
        narrator.detail(&format!("killed, masks would have come back with the next trimtab only: {fault}"));
    }
    if restored.refused > 0 {
        let threads = plural(restored.refused, "thread");
        narrator.warning(&format!("{threads} could not be given the mask back that was there before"));
    }
}

/// `1 thread has its own mask again`, `2 threads have their own masks again`.
pub fn own_masks<N: Display + PartialEq + From<u8>>(threads: N) -> String {
    if threads == N::from(1) {
        return "1 thread has its own mask again".to_owned();
    }
    format!("{threads} threads have their own masks again")
}

/// The users that may act on what is a user's, in words.
pub fn only(paths: &Paths, uid: u32) -> String {
    if uid == 0 { "only root".to_owned() } else { format!("only {} and root", user(paths, uid)) }
}

/// What a user is called.
pub fn user(paths: &Paths, uid: u32) -> String {
    Users::read(&paths.root.join("etc/passwd")).unwrap_or_default().name(uid)
}
