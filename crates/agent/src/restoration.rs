//! Restoration of masks: the journal that a balancer keeps of them, its guardian, and the masks
//! that a killed balancer left behind.

use crate::narrator::Narrator;
use crate::paths::{LEDGER, Paths};
use std::fmt::Display;
use std::path::Path;
use trimtab_core::words::plural;
use trimtab_linux::host::affinity_journal::{
    LeftBehind, LeftEnd, restore_beside, restore_left_behind, stand,
};
use trimtab_linux::host::{AffinityJournal, Guard, JournalError, Live, Restored};
use trimtab_linux::ledger::{LedgerView, Location};
use trimtab_linux::process::Pid;
use trimtab_linux::users::Users;

/// Gives threads of killed balancers their own masks back; of one process, or of all of this
/// user's.
///
/// # Errors
/// There is no place for the journal, or it cannot be read.
pub fn give_back(paths: &Paths, only: Option<Pid>) -> Result<Vec<LeftBehind>, JournalError> {
    restore_left_behind(&paths.location()?, &paths.proc(), only)
}

/// Does the same before a run, without a request: the result is a detail.
pub fn tidy(paths: &Paths, narrator: &dyn Narrator) {
    detail(give_back(paths, None).unwrap_or_default(), narrator);
}

/// Does the same for a run that has the ledger open.
pub fn tidy_beside(ledger: &LedgerView, location: &Location, proc: &Path, narrator: &dyn Narrator) {
    detail(restore_beside(ledger, location, proc).unwrap_or_default(), narrator);
}

fn detail(left: Vec<LeftBehind>, narrator: &dyn Narrator) {
    for LeftBehind { pid, end, .. } in left {
        if let LeftEnd::Restored { given_back, .. } = end
            && given_back > 0
        {
            narrator.detail(&format!("process {pid}, whose balancer was killed: {}", own_masks(given_back)));
        }
    }
}

/// Opens the journal for the masks that are about to be set, with a guardian that gives them back
/// if this process is killed. `None`, with a detail, if it cannot be opened.
pub fn keeper(paths: &Paths, narrator: &dyn Narrator) -> Option<AffinityJournal> {
    let opened = paths
        .location()
        .map_err(JournalError::from)
        .and_then(|place| AffinityJournal::open(&place, &paths.proc()));
    // The guardian has another working folder.
    let ledger = paths.ledger.as_ref().and_then(|folder| std::path::absolute(folder).ok());
    let variables = ledger.map(|folder| (LEDGER.into(), folder.into())).into_iter().collect();
    opened
        .map(|keeper| keeper.guarded(Guard::new(variables)))
        .map_err(|error| narrator.detail(&error.to_string()))
        .ok()
}

/// Runs a guardian, which gives masks back for its balancer when the balancer is killed.
pub fn guard(paths: &Paths, balancer: Pid) {
    if let Ok(location) = paths.location() {
        stand(&location, &paths.proc(), balancer);
    }
}

/// Reasons why masks could not have been given back, had this process been killed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestorationFaults {
    /// Reason why the journal has no record of them.
    pub record: Option<String>,
    /// Reason why no guardian would have given them back at once.
    pub guardian: Option<String>,
}

impl RestorationFaults {
    /// Reads the faults of this host.
    pub fn of(live: &Live) -> Self {
        let facts = live.facts();
        Self { record: facts.keeper_fault, guardian: facts.guard_fault }
    }
}

/// Reports the masks at the end: failures as warnings, the rest as details.
pub fn tell(restored: Restored, faults: RestorationFaults, narrator: &dyn Narrator) {
    warn(restored, faults, narrator);
    if restored.given_back > 0 {
        narrator.detail(&format!("  {}", own_masks(restored.given_back)));
    }
}

/// Reports only failures of giving masks back.
pub fn warn(restored: Restored, faults: RestorationFaults, narrator: &dyn Narrator) {
    if let Some(fault) = faults.record {
        narrator
            .warning(&format!("if trimtab had been killed, masks could not have been given back: {fault}"));
    }
    if let Some(fault) = faults.guardian {
        narrator.detail(&format!(
            "if trimtab had been killed, masks would have come back only with its next run: {fault}"
        ));
    }
    if restored.refused > 0 {
        let threads = plural(restored.refused, "thread");
        narrator.warning(&format!("{threads} could not be given the earlier mask back"));
    }
}

/// `1 thread has its own mask again`, `2 threads have their own masks again`.
pub fn own_masks<N: Display + PartialEq + From<u8>>(threads: N) -> String {
    if threads == N::from(1) {
        return "1 thread has its own mask again".to_owned();
    }
    format!("{threads} threads have their own masks again")
}

/// Describes the users that may act on a user's objects.
pub fn only(paths: &Paths, uid: u32) -> String {
    if uid == 0 { "only root".to_owned() } else { format!("only {} and root", user(paths, uid)) }
}

/// Returns a user's name.
pub fn user(paths: &Paths, uid: u32) -> String {
    Users::read(&paths.root.join("etc/passwd")).unwrap_or_default().name(uid)
}
