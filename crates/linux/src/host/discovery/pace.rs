//! Pace of the search: each user's processes and threads are searched for at a pace of their own.
//!
//! Unit: parts of a CPU, by user. Problem: if roots are tags of many users, a user with very many
//! processes, or with storms of new ones, would make the search expensive, or keep other users'
//! processes from being found. Idea: after a search for one user's processes the next search for
//! that user waits in proportion to its cost; a bounded number of processes and threads of each
//! user is watched.
//!
//! Properties: one user's debt delays no other user; clearing all tags and tagging again does not
//! cancel a debt.

use super::Discovery;
use super::listener::ThreadListener;
use super::roots::{Root, RootId};
use super::thread_table::Process;
use crate::host::clock::Clock;
use std::collections::BTreeSet;
use trimtab_core::sampling_budget::FINDING_PROCESSES;
use trimtab_core::time::Moment;

/// Maximal numbers of processes and threads of one user that are watched, if they are tagged.
/// Chosen: the number that a large machine runs at once.
const PROCESSES_OF_USER: usize = 1_024;
const THREADS_OF_USER: usize = 4_096;
/// The user for whose threads a search is limited; `None` for the threads of all users.
pub(super) type Owner = Option<u32>;

/// Schedule of the search for one user's processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Time at which all children and members were last known.
    pub(super) at: Option<Moment>,
    /// Earliest time of the next search for children and members.
    pub(super) next: Moment,
    /// Earliest time of the next listing of their threads.
    pub(super) threads_next: Moment,
    /// Whether a task was made since the last search for children.
    pub(super) made: bool,
}

impl Discovery {
    /// Returns the moment since which all children and members of all users' roots are known.
    pub fn searched(&self) -> Option<Moment> {
        self.search.rounds.values().map(|round| round.at).min().flatten()
    }
}

impl Discovery {
    /// Returns the user for whom a process is watched.
    pub(super) fn owner(&self, process: &Process) -> Owner {
        let roots = process.covers.keys().filter_map(|id| self.table.roots.get(id));
        roots.map(|root| root.only).min().flatten()
    }

    /// Returns whether no more processes of this user are added.
    pub(super) fn is_full(&self, owner: Owner) -> bool {
        owner.is_some() && {
            let theirs = self.table.processes.values().filter(|process| self.owner(process) == owner);
            theirs.count() >= PROCESSES_OF_USER
        }
    }

    /// Returns how many more threads of this user may be watched.
    pub(super) fn left(&self, owner: Owner) -> usize {
        if owner.is_none() {
            return usize::MAX;
        }
        let theirs = self.table.processes.values().filter(|process| self.owner(process) == owner);
        THREADS_OF_USER.saturating_sub(theirs.map(|process| process.threads.len()).sum())
    }

    /// Searches for children and members, for each user at that user's pace.
    pub(super) fn find_processes(&mut self, now: Moment, made: bool, listener: &mut dyn ThreadListener) {
        let all: BTreeSet<Owner> = self.table.roots.values().map(|root| root.only).collect();
        // A user without roots may still have a debt from earlier roots.
        self.search
            .rounds
            .retain(|owner, round| all.contains(owner) || round.next.max(round.threads_next) > now);
        for (owner, pid) in std::mem::take(&mut self.search.fresh) {
            let round = self.search.rounds.entry(owner).or_default();
            round.made = true;
            if round.at.is_some() && now >= round.next {
                self.paced(owner, now, |this| this.find_children_from(vec![pid], listener));
            }
        }
        for owner in all {
            let every = self.options.find_every;
            let round = self.search.rounds.entry(owner).or_default();
            round.made |= made || round.at.is_none();
            let due = now >= round.next && round.at.is_none_or(|at| now.since(at) >= every);
            if !due {
                continue;
            }
            // Processes can be moved into a group without being made.
            let children = std::mem::take(&mut round.made);
            round.at = Some(now);
            self.paced(owner, now, |this| {
                this.find_groups(owner, listener);
                if children {
                    this.find_children(owner, listener);
                }
            });
        }
    }

    /// Does work for a user; the next such work waits in proportion to its cost.
    fn paced(&mut self, owner: Owner, now: Moment, work: impl FnOnce(&mut Self)) {
        let begin = Clock::worked();
        work(self);
        let cost = Clock::worked().less(begin);
        if let Some(round) = self.search.rounds.get_mut(&owner) {
            round.next = now + FINDING_PROCESSES.payoff(cost);
        }
    }

    /// Schedules the search for a new root's processes for the next sample; other roots' searches
    /// stay due as before.
    pub fn find_next(&mut self, id: RootId) {
        let Some(watched) = self.table.roots.get(&id) else { return };
        match watched.root {
            Root::Tree(pid) => self.search.fresh.push((watched.only, pid)),
            // The members are known.
            Root::Cgroup(_) | Root::Thread(..) | Root::Vm(_) => {
                self.search.rounds.entry(watched.only).or_default().made = true;
            }
        }
    }

    /// Searches for children again at the next due time, even if no task was made.
    pub(super) fn find_again(&mut self) {
        for round in self.search.rounds.values_mut() {
            round.made = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::discovery::roots::Watched;
    use crate::host::discovery::{DiscoveryOptions, Silent};
    use crate::host::procfs::{DescriptorBudget, Procfs};
    use crate::process::{self, Pid};
    use std::path::Path;
    use std::sync::Arc;
    use trimtab_core::ids::ProgramId;
    use trimtab_core::time::Span;

    /// A process that is killed when dropped.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn new() -> Self {
            Self(std::process::Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn pid(&self) -> Pid {
            Pid(self.0.id())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn service() -> Discovery {
        let proc = Arc::new(Procfs::open(Path::new("/proc")).unwrap());
        let options = DiscoveryOptions { find_every: Span::from_ms(200), hands_off: false, tags: true };
        Discovery::new(proc, DescriptorBudget::of_this_process(None), options)
    }

    /// Adds a root of this process, for this user alone or for all.
    fn root(discovery: &mut Discovery, pid: Pid, only: Owner) -> RootId {
        let watched = discovery.examine(&Root::Tree(pid)).unwrap();
        discovery.table.add_root(Watched { only, ..watched })
    }

    #[test]
    fn of_one_user_so_many_processes_and_threads_and_of_others_none_fewer() {
        let sleeper = Sleeper::new();
        let (own, mut discovery) = (rustix::process::geteuid().as_raw(), service());
        let (mine, all) =
            (root(&mut discovery, sleeper.pid(), Some(own)), root(&mut discovery, sleeper.pid(), None));
        let add = |discovery: &mut Discovery, at: u32, id: RootId| {
            let pid = Pid(5_000_000 + at);
            discovery.table.add_process(pid, crate::process::StartTime(1), ProgramId(0));
            let process = discovery.table.processes.get_mut(&pid).unwrap();
            process.covers.insert(id, None);
            process.threads.insert(pid.main_thread(), trimtab_core::ids::ThreadId(at));
        };
        let most = u32::try_from(PROCESSES_OF_USER).unwrap();
        for at in 0..most {
            assert!(!discovery.is_full(Some(own)));
            add(&mut discovery, at, mine);
        }
        assert!(
            discovery.is_full(Some(own)) && !discovery.is_full(None) && !discovery.is_full(Some(own + 1))
        );
        assert_eq!(discovery.left(Some(own)), THREADS_OF_USER - PROCESSES_OF_USER);
        assert_eq!((discovery.left(Some(own + 1)), discovery.left(None)), (THREADS_OF_USER, usize::MAX));
        // A process that root covers too is not this user's alone.
        add(&mut discovery, 0, all);
        assert!(!discovery.is_full(Some(own)));
        // A thread without room is counted, and its process is not listed over and over for it.
        discovery.table.add_process(
            sleeper.pid(),
            process::stat(discovery.proc.path(), sleeper.pid()).unwrap().start,
            ProgramId(0),
        );
        discovery.list_threads(sleeper.pid(), 3, (&mut 9, &mut 0), &mut Silent);
        let process = &discovery.table.processes[&sleeper.pid()];
        assert_eq!((process.beyond, process.stale, process.threads.len()), (1, false, 0));
        discovery.list_threads(sleeper.pid(), 3, (&mut 0, &mut 9), &mut Silent);
        let process = &discovery.table.processes[&sleeper.pid()];
        assert_eq!((process.beyond, process.stale, process.threads.len()), (0, true, 0), "at the next look");
        let (mut room, mut theirs) = (9, 9);
        discovery.list_threads(sleeper.pid(), 3, (&mut room, &mut theirs), &mut Silent);
        assert_eq!((room, theirs, discovery.table.processes[&sleeper.pid()].threads.len()), (8, 8, 1));
    }

    #[test]
    fn a_user_beyond_the_budget_waits_and_others_do_not() {
        let sleeper = Sleeper::new();
        let (own, mut discovery) = (rustix::process::geteuid().as_raw(), service());
        let mine = root(&mut discovery, sleeper.pid(), Some(own));
        root(&mut discovery, sleeper.pid(), None);
        let (begin, later) = (Moment(1), Moment(2_000_000_000_000));
        discovery.find_processes(begin, true, &mut Silent);
        let round = |discovery: &Discovery, owner: Owner| discovery.search.rounds[&owner];
        assert_eq!([Some(own), None].map(|owner| round(&discovery, owner).at), [Some(begin); 2]);
        assert!(round(&discovery, None).next > begin, "what it cost is paid first");
        discovery.search.rounds.get_mut(&Some(own)).unwrap().next = Moment(u64::MAX);
        discovery.find_next(mine);
        discovery.find_processes(later, true, &mut Silent);
        let theirs = round(&discovery, Some(own));
        assert_eq!((theirs.at, theirs.made, round(&discovery, None).at), (Some(begin), true, Some(later)));
        assert_eq!(discovery.searched(), Some(begin));
        // Clearing all tags and tagging again pays no debt.
        discovery.unwatch(mine, &mut Silent);
        discovery.find_processes(later, true, &mut Silent);
        assert_eq!(round(&discovery, Some(own)).next, Moment(u64::MAX));
    }
}
