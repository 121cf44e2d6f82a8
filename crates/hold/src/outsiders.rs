//! Programs outside of all holds to which a hold yields: their threads that want to compute.
//!
//! Unit: a thread that is on a CPU or ready for one. A program that is part of any hold does not
//! count: its run waits in the queue if it wants more. Neither do programs of users that were not
//! named, wherever they compute, nor threads that want only what others leave (`SCHED_IDLE`). A
//! thread that waits for the quota of its control group counts: the kernel shows it as ready.
//! [`trimtab_core::resize::outsiders`] counts the cores that these threads lack.

use crate::escapes::processes;
use crate::membership::{CGROUP_LABEL, is_part};
use crate::room::HoldRoom;
use crate::site_facts::is_in_group;
use anyhow::Result;
use std::path::Path;
use trimtab_core::resize::outsiders::{Outsider, OutsiderCores, outsider_cores};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::set::CpuSet;
use trimtab_front::process_env::World;
use trimtab_linux::ledger::{Hold, Holder, Level};
use trimtab_linux::process::{self, Pid, Stat, State, Tid};
use trimtab_linux::sys::{affinity, slice};

/// Threads of these programs, by their masks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outsiders(Vec<Outsider>);

impl Outsiders {
    /// Finds them. `holds` are all holds of the machine. `None` if the hold yields to none: only a
    /// hold of the machine does.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn look(room: &HoldRoom<'_>, holds: &[Hold], to: &YieldTo) -> Result<Option<Self>> {
        if *to == YieldTo::Runs || room.hold.level != Level::MACHINE {
            return Ok(None);
        }
        let proc = room.world.proc();
        // Threads elsewhere, such as those of other holds, need none of the cores that are counted.
        let reach = room.outside()?.union(&room.hold.cpus);
        // To ask whether a process is part of a hold is expensive. Most processes that compute here
        // are part of this one.
        let (own, others): (Vec<&Hold>, Vec<&Hold>) =
            holds.iter().partition(|hold| (hold.id, hold.level) == (room.hold.id, room.hold.level));
        let groups = Groups::of(holds.iter().map(|hold| &hold.holder));
        let mut found = Self(Vec::new());
        for stat in processes(&proc).iter().filter(|stat| Pid(stat.id) != Pid::own()) {
            let pid = Pid(stat.id);
            let is_one = stat.threads <= 1;
            if is_one && stat.state != State::Running {
                continue;
            }
            let Ok(status) = process::status(&proc, pid) else { continue };
            if !to.includes(status.uid) {
                continue;
            }
            let mut masks =
                if is_one { mask(pid.main_thread()).into_iter().collect() } else { wanting(room, stat) };
            masks.retain(|mask| mask.intersects(&reach));
            let is_member = |hold: &&Hold| is_part(&proc, room.ledger, pid, hold, holds);
            if masks.is_empty()
                || own.iter().any(is_member)
                || groups.include(&proc, pid, status.uid)
                || others.iter().any(is_member)
            {
                continue;
            }
            masks.into_iter().for_each(|mask| found.add(mask));
        }
        Ok(Some(found))
    }

    fn add(&mut self, mask: CpuSet) {
        match self.0.iter_mut().find(|known| known.mask == mask) {
            Some(known) => known.threads += 1,
            None => self.0.push(Outsider { mask, threads: 1 }),
        }
    }

    /// Returns their cores with the holds as they are now; `inside` is held by runs inside the
    /// hold, and `quiet` is the CPUs that the hold could take.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(crate) fn cores(
        &self,
        room: &HoldRoom<'_>,
        inside: &CpuSet,
        quiet: &CpuSet,
    ) -> Result<OutsiderCores> {
        let outside = room.outside()?;
        Ok(outsider_cores(room.machine, &outside, quiet, &room.hold.cpus, inside, &self.0))
    }
}

/// Control groups for which keepers have holds: the user of each, and its label. Nothing in a
/// process of such a group names its hold.
struct Groups<'a>(Vec<(u32, &'a str)>);

impl<'a> Groups<'a> {
    fn of(holders: impl Iterator<Item = &'a Holder>) -> Self {
        let keepers = holders.filter(|holder| holder.delegated && holder.label.starts_with(CGROUP_LABEL));
        Self(keepers.map(|holder| (holder.uid, &*holder.label)).collect())
    }

    /// Returns whether a process of a user is in one of them. What a user wrote into the ledger
    /// says nothing about processes of others, except root's.
    fn include(&self, proc: &Path, pid: Pid, uid: u32) -> bool {
        let mut labels = self.0.iter().filter(|(of, _)| [0, uid].contains(of));
        labels.any(|(_, label)| is_in_group(proc, &pid.to_string(), label))
    }
}

/// Returns the mask of a thread that competes for CPUs.
fn mask(tid: Tid) -> Option<CpuSet> {
    if slice::is_idle_policy(tid) { None } else { affinity::get(Some(tid)).ok() }
}

/// Returns the masks of the threads of a process that want to compute.
fn wanting(room: &HoldRoom<'_>, stat: &Stat) -> Vec<CpuSet> {
    let (proc, pid) = (room.world.proc(), Pid(stat.id));
    let threads = process::threads(&proc, pid).unwrap_or_default().into_iter();
    let wants =
        |tid: &Tid| process::thread_stat(&proc, pid, *tid).is_ok_and(|stat| stat.state == State::Running);
    threads.filter(wants).filter_map(mask).collect()
}

/// Returns the sentence about programs to which a run of this level is to yield and cannot; `None`
/// if it can. `private` is the reason why its ledger is that of a container only.
pub fn unseen(world: &World, level: Level, to: &YieldTo, private: Option<&str>) -> Option<String> {
    let own = rustix::process::getuid().as_raw();
    if *to == YieldTo::Runs {
        return None;
    }
    if level != Level::MACHINE {
        return Some("no cores are given back to programs of others by a run inside another hold".to_owned());
    }
    if *to != YieldTo::user(own) && process::hides_others(&world.proc()) {
        let text = "cores are given back to your own programs only: those of other users are hidden \
            from this run (/proc is mounted with hidepid)";
        return Some(text.to_owned());
    }
    private.map(|why| format!("cores are given back to programs of this container only: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn processes_of_a_group_that_has_a_hold_are_part_of_it() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, group) in [(12, "/user/job"), (20, "/user/job/below"), (14, "/user/other"), (15, "/")] {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cgroup"), format!("0::{group}\n")).unwrap();
        }
        let holder = |uid: u32, delegated: bool, folder: &str| Holder {
            pid: 12,
            start_ticks: 7,
            uid,
            pid_namespace: 5,
            job: 0,
            since: Duration::ZERO,
            label: format!("{CGROUP_LABEL}{folder}"),
            delegated,
            memory: std::collections::BTreeMap::new(),
        };
        let includes = |holder: &Holder, pid: u32, uid: u32| {
            Groups::of([holder].into_iter()).include(proc.path(), Pid(pid), uid)
        };
        let of = |uid, delegated| holder(uid, delegated, "/sys/fs/cgroup/user/job");
        assert!([12, 20].iter().all(|&pid| includes(&of(1000, true), pid, 1000)));
        assert!([14, 15, 99].iter().all(|&pid| !includes(&of(1000, true), pid, 1000)), "in no such group");
        assert!(!includes(&of(1000, true), 12, 1001), "another user's");
        assert!(includes(&of(0, true), 12, 1001), "root holds for others");
        assert!(!includes(&of(1000, false), 12, 1000), "a run with this label");
        // A label of a user names any folder, and nothing of it is read.
        let fifo = proc.path().join("cgroup.procs");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(!includes(&holder(1000, true, proc.path().to_str().unwrap()), 12, 1000));
    }
}
