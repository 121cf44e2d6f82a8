//! Resolution of a request's names: the process with its start and its users, the group's folder.

use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trimtab_core::tags::{Mark, Owner, Reach, Refusal, Requester, What};
use trimtab_linux::process::{self, Pid, State, Tid, may_move_others};
use trimtab_linux::text::ReadError;

/// Folders in which names are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
    pub(crate) cgroups: PathBuf,
}

/// Returns which users' threads this process may move.
pub(super) fn reach(proc: &Path) -> Reach {
    if may_move_others(proc) { Reach::All } else { Reach::User(geteuid().as_raw()) }
}

impl Resolver {
    /// Returns the mark for a request's name, and its owner. Virtual machines are looked up
    /// elsewhere, since that may take time. A group's processes may be very many and of any user,
    /// so the group itself must belong to the asking user, as the groups below a user's session do.
    pub(crate) fn mark(&self, what: &What, user: Requester) -> Result<(Mark, Option<Owner>), Refusal> {
        match what {
            What::Process { pid } => {
                let (owner, start) = self.process(*pid)?;
                Ok((Mark::Process { pid: *pid, start }, Some(owner)))
            }
            What::Thread { pid, tid } => {
                let (owner, _) = self.process(*pid)?;
                let stat = process::thread_stat(&self.proc, Pid(*pid), Tid(*tid))
                    .map_err(|_| Refusal::NoThread { pid: *pid, tid: *tid })?;
                Ok((Mark::Thread { pid: *pid, tid: *tid, start: stat.start.0 }, Some(owner)))
            }
            What::Cgroup(path) => {
                let folder = Path::new(path);
                let none = |why: &str| Refusal::NoCgroup { path: path.clone(), why: why.to_owned() };
                if !folder.starts_with(&self.cgroups) {
                    return Err(none(&format!("it is not below {}", self.cgroups.display())));
                }
                let stat = std::fs::symlink_metadata(folder).map_err(|error| none(&error.to_string()))?;
                if !stat.is_dir() {
                    return Err(none("it is not a folder"));
                }
                if !user.over_others() && stat.uid() != user.uid {
                    return Err(Refusal::NotYourGroup { path: path.clone(), uid: stat.uid() });
                }
                Ok((Mark::Cgroup(path.clone()), None))
            }
            What::Vm(name) => {
                Err(Refusal::NoVm { name: name.clone(), why: "it was not searched for".to_owned() })
            }
        }
    }

    /// Returns the owner and start time of a live, visible process.
    pub(crate) fn process(&self, pid: u32) -> Result<(Owner, u64), Refusal> {
        if Pid(pid) == Pid::own() {
            return Err(Refusal::Own(pid));
        }
        let none = |_: ReadError| Refusal::NoProcess(pid);
        let stat = process::stat(&self.proc, Pid(pid)).map_err(none)?;
        if stat.kernel_thread {
            return Err(Refusal::Kernel(pid));
        }
        if stat.state == State::Zombie && stat.threads <= 1 {
            return Err(Refusal::NoProcess(pid));
        }
        let ids = process::identity(&self.proc, Pid(pid)).map_err(none)?;
        if ids.process != Pid(pid) {
            return Err(Refusal::IsThread { thread: pid, process: ids.process.0 });
        }
        Ok((Owner { pid, real: ids.real, effective: ids.effective }, stat.start.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver() -> Resolver {
        Resolver { proc: "/proc".into(), sys: "/sys".into(), cgroups: "/sys/fs/cgroup".into() }
    }

    #[test]
    fn missing_and_immovable_objects_are_refused_with_their_kind() {
        let resolver = resolver();
        let user = Requester { uid: geteuid().as_raw() };
        let process = |pid| resolver.mark(&What::Process { pid }, user);
        assert_eq!(process(4_194_999), Err(Refusal::NoProcess(4_194_999)));
        assert_eq!(process(std::process::id()), Err(Refusal::Own(std::process::id())));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let (mark, owner) = process(pid).unwrap();
        assert!(matches!(mark, Mark::Process { pid: of, start } if of == pid && start > 0));
        assert!(owner.unwrap().is(geteuid().as_raw()));
        assert!(resolver.mark(&What::Thread { pid, tid: pid }, user).is_ok());
        let none = resolver.mark(&What::Thread { pid, tid: 1 }, user);
        assert_eq!(none, Err(Refusal::NoThread { pid, tid: 1 }));
        child.kill().unwrap();
        while process(pid).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(process(pid), Err(Refusal::NoProcess(pid)), "also before it is collected");
        child.wait().unwrap();
        let group = |path: &str| resolver.mark(&What::Cgroup(path.to_owned()), user);
        assert!(matches!(group("/etc"), Err(Refusal::NoCgroup { .. })));
        assert!(matches!(group("/sys/fs/cgroup/none-such"), Err(Refusal::NoCgroup { .. })));
    }

    #[test]
    fn a_group_is_its_users_and_roots_to_tag() {
        let folder = tempfile::tempdir().unwrap();
        let resolver =
            Resolver { proc: "/proc".into(), sys: "/sys".into(), cgroups: folder.path().to_owned() };
        let own = geteuid().as_raw();
        let path = folder.path().join("mine");
        std::fs::create_dir(&path).unwrap();
        let what = What::Cgroup(path.to_str().unwrap().to_owned());
        let mark = Ok((Mark::Cgroup(path.to_str().unwrap().to_owned()), None));
        assert_eq!(resolver.mark(&what, Requester { uid: own }), mark);
        assert_eq!(resolver.mark(&what, Requester { uid: 0 }), mark);
        let refused = resolver.mark(&what, Requester { uid: own + 1 }).unwrap_err();
        assert!(matches!(refused, Refusal::NotYourGroup { uid, .. } if uid == own), "{refused}");
    }
}
