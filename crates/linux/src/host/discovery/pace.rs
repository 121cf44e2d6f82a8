//! How often is looked for what is new, for whom: each user's threads by a pace of their own.
//!
//! Unit: parts of a CPU, by user. Problem: where roots are tags of many users, one whose processes are many or come in storms would make
//! looking dear, or keep others' from being found. Idea: what looking for somebody's cost is paid for by waiting before it is done
//! for them again; of each user so many processes and threads are watched at most.
//!
//! Properties: nobody's debt delays anybody else; to clear all and tag anew pays nothing.

use crate::host::clock::Clock;
use crate::host::discovery::Finder;
use crate::host::discovery::roots::RootId;
use crate::host::discovery::thread_table::Process;
use crate::host::{Live, Root};
use std::collections::BTreeSet;
use trimtab_core::time::{Moment, Span};

/// Of one user's processes and threads, where they are tagged, so many. Chosen: what a large machine runs at once.
const PROCESSES_OF_USER: usize = 1_024;
const THREADS_OF_USER: usize = 4_096;
/// Listing one user's threads takes at most one part in this many of a CPU.
pub(in crate::host) const LIST_SHARE: u64 = 20;
/// Looking for children takes at most one part in this many of a CPU.
const SHARE: u64 = 1_000;
/// Whose threads: the only user whose are meant, or anybody's.
pub(in crate::host) type Whose = Option<u32>;

/// When somebody's processes were looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct Round {
    /// When all children and members were known last.
    pub(in crate::host) at: Option<Moment>,
    /// No earlier than this they are looked for again,
    pub(in crate::host) next: Moment,
    /// and their threads are listed again.
    pub(in crate::host) threads_next: Moment,
    /// Something was made since children were looked for.
    pub(in crate::host) made: bool,
}

impl Finder {
    /// Since when all children and members of all are known.
    pub(in crate::host) fn searched(&self) -> Option<Moment> {
        self.rounds.values().map(|round| round.at).min().flatten()
    }
}

impl Live {
    /// Whose a process is meant to be.
    pub(in crate::host) fn whose(&self, process: &Process) -> Whose {
        let roots = process.covers.keys().filter_map(|id| self.roots.get(id));
        roots.map(|root| root.only).min().flatten()
    }

    /// Whether no more processes of theirs are taken in.
    pub(in crate::host) fn is_full(&self, whose: Whose) -> bool {
        whose.is_some() && {
            let theirs = self.table.processes.values().filter(|process| self.whose(process) == whose);
            theirs.count() >= PROCESSES_OF_USER
        }
    }

    /// How many more threads of theirs may be watched.
    pub(in crate::host) fn left(&self, whose: Whose) -> usize {
        if whose.is_none() {
            return usize::MAX;
        }
        let theirs = self.table.processes.values().filter(|process| self.whose(process) == whose);
        THREADS_OF_USER.saturating_sub(theirs.map(|process| process.threads.len()).sum())
    }

    /// Looks for children and members, of each user's as often as their pace lets.
    pub(in crate::host) fn find_processes(&mut self, now: Moment, made: bool) {
        let all: BTreeSet<Whose> = self.roots.values().map(|root| root.only).collect();
        // Who has no root any more has not paid yet for those that were.
        self.finder
            .rounds
            .retain(|whose, round| all.contains(whose) || round.next.max(round.threads_next) > now);
        for (whose, pid) in std::mem::take(&mut self.finder.fresh) {
            let round = self.finder.rounds.entry(whose).or_default();
            round.made = true;
            if round.at.is_some() && now >= round.next {
                self.paced(whose, now, |live| live.find_children_from(vec![pid]));
            }
        }
        for whose in all {
            let every = self.options.find_every;
            let round = self.finder.rounds.entry(whose).or_default();
            round.made |= made || round.at.is_none();
            let due = now >= round.next && round.at.is_none_or(|at| now.since(at) >= every);
            if !due {
                continue;
            }
            // Processes can be moved into a group without being made.
            let children = std::mem::take(&mut round.made);
            round.at = Some(now);
            self.paced(whose, now, |live| {
                live.find_groups(whose);
                if children {
                    live.find_children(whose);
                }
            });
        }
    }

    /// Does something for somebody, that is not done again before it has been paid for.
    fn paced(&mut self, whose: Whose, now: Moment, work: impl FnOnce(&mut Self)) {
        let begin = Clock::worked();
        work(self);
        let cost = Clock::worked().less(begin);
        if let Some(round) = self.finder.rounds.get_mut(&whose) {
            round.next = now + Span(cost.0.saturating_mul(SHARE));
        }
    }

    /// A root is new: what belongs to it is looked for at the next look, and of others nothing for its sake.
    pub(in crate::host) fn find_next(&mut self, id: RootId) {
        let Some(watched) = self.roots.get(&id) else { return };
        match watched.root {
            Root::Tree(pid) => self.finder.fresh.push((watched.only, pid)),
            // Its members are known.
            Root::Cgroup(_) | Root::Thread(..) | Root::Vm(_) => {
                self.finder.rounds.entry(watched.only).or_default().made = true;
            }
        }
    }

    /// Looks for children again when their time has come, though nothing was made.
    pub(in crate::host) fn find_again(&mut self) {
        for round in self.finder.rounds.values_mut() {
            round.made = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, Pid};
    use crate::sys::affinity;
    use std::path::Path;
    use trimtab_core::ids::ProgramId;
    use trimtab_core::observe::Sample;

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

    fn service() -> Live {
        let options = crate::host::Options { tags: true, ..Default::default() };
        let usable = affinity::get(None).unwrap();
        Live::with(Path::new("/proc"), &[], &usable, options).unwrap()
    }

    /// A root of this process, for this user alone or for all.
    fn root(live: &mut Live, pid: Pid, only: Whose) -> RootId {
        let watched =
            crate::host::discovery::roots::Watched::new(&live.proc, &Root::Tree(pid), true, false).unwrap();
        live.add_root(crate::host::discovery::roots::Watched { only, ..watched })
    }

    #[test]
    fn of_one_user_so_many_processes_and_threads_and_of_others_none_fewer() {
        let sleeper = Sleeper::new();
        let (own, mut live) = (rustix::process::geteuid().as_raw(), service());
        let (mine, all) = (root(&mut live, sleeper.pid(), Some(own)), root(&mut live, sleeper.pid(), None));
        let add = |live: &mut Live, at: u32, id: RootId| {
            let pid = Pid(5_000_000 + at);
            live.table.add_process(pid, crate::process::StartTime(1), ProgramId(0));
            let process = live.table.processes.get_mut(&pid).unwrap();
            process.covers.insert(id, None);
            process.threads.insert(pid.main_thread(), trimtab_core::ids::ThreadId(at));
        };
        let most = u32::try_from(PROCESSES_OF_USER).unwrap();
        for at in 0..most {
            assert!(!live.is_full(Some(own)));
            add(&mut live, at, mine);
        }
        assert!(live.is_full(Some(own)) && !live.is_full(None) && !live.is_full(Some(own + 1)));
        assert_eq!(live.left(Some(own)), THREADS_OF_USER - PROCESSES_OF_USER);
        assert_eq!((live.left(Some(own + 1)), live.left(None)), (THREADS_OF_USER, usize::MAX));
        // What root means too is not theirs alone.
        add(&mut live, 0, all);
        assert!(!live.is_full(Some(own)));
        // A thread for which there is no room is counted, and its process not listed over and over for it.
        live.table.add_process(
            sleeper.pid(),
            process::stat(&live.proc, sleeper.pid()).unwrap().start,
            ProgramId(0),
        );
        let mut sample = Sample::default();
        live.list_threads(sleeper.pid(), 3, (&mut 9, &mut 0), &mut sample);
        let process = &live.table.processes[&sleeper.pid()];
        assert_eq!((process.beyond, process.stale, process.threads.len()), (1, false, 0));
        live.list_threads(sleeper.pid(), 3, (&mut 0, &mut 9), &mut sample);
        let process = &live.table.processes[&sleeper.pid()];
        assert_eq!((process.beyond, process.stale, process.threads.len()), (0, true, 0), "at the next look");
        let (mut room, mut theirs) = (9, 9);
        live.list_threads(sleeper.pid(), 3, (&mut room, &mut theirs), &mut sample);
        assert_eq!((room, theirs, live.table.processes[&sleeper.pid()].threads.len()), (8, 8, 1));
    }

    #[test]
    fn whoever_has_spent_too_much_waits_and_others_do_not() {
        let sleeper = Sleeper::new();
        let (own, mut live) = (rustix::process::geteuid().as_raw(), service());
        let mine = root(&mut live, sleeper.pid(), Some(own));
        root(&mut live, sleeper.pid(), None);
        let (begin, later) = (Moment(1), Moment(2_000_000_000_000));
        live.find_processes(begin, true);
        let round = |live: &Live, whose: Whose| live.finder.rounds[&whose];
        assert_eq!([Some(own), None].map(|whose| round(&live, whose).at), [Some(begin); 2]);
        assert!(round(&live, None).next > begin, "what it cost is paid first");
        live.finder.rounds.get_mut(&Some(own)).unwrap().next = Moment(u64::MAX);
        live.find_next(mine);
        live.find_processes(later, true);
        let theirs = round(&live, Some(own));
        assert_eq!((theirs.at, theirs.made, round(&live, None).at), (Some(begin), true, Some(later)));
        assert_eq!(live.finder.searched(), Some(begin));
        // To clear all and to tag anew pays nothing.
        live.unwatch(mine);
        live.find_processes(later, true);
        assert_eq!(round(&live, Some(own)).next, Moment(u64::MAX));
    }
}
