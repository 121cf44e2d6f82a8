//! Page file of a run's budget ([`trimtab_core::budget`]): made by the launcher, inherited by the
//! program and all processes that it starts, read by reports.
//!
//! It is a memory file without a name in any folder, so that nothing is left behind and only
//! processes that inherit the descriptor, or that may read this user's `/proc/PID/fd`, find it. Its
//! length is sealed: no process can shorten it while others use it.

use crate::launch::inherited;
use crate::process::{self, Pid};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstatfs, ftruncate, memfd_create};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use trimtab_core::budget::nproc::BudgetBound;
use trimtab_core::budget::page::{BYTES, COUNT_MAX, Content, NAME, Owner, fresh, header, read};
use trimtab_core::budget::{Handoff, Rule, VARIABLE, handoff};
use trimtab_core::set::CpuSet;

/// Largest part of an environment that is searched, in bytes.
const ENVIRONMENT_MAX: u64 = 2 << 20;

/// Page file of a budget.
#[derive(Debug)]
pub struct BudgetPage(File);

impl BudgetPage {
    /// Creates a page in which no process takes part.
    ///
    /// # Errors
    /// The kernel gives no memory or no descriptor.
    pub fn create() -> io::Result<Self> {
        let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self(file))
    }

    /// Hands the page to the program that this process becomes, and returns the value of the
    /// variable [`trimtab_core::budget::VARIABLE`].
    ///
    /// # Errors
    /// No descriptor is left, or the page cannot be written.
    pub fn hand_over(&self, cores: u32, rule: Rule, cpus: &CpuSet) -> io::Result<String> {
        self.0.write_all_at(&fresh(cores), 0)?;
        let kept = inherited(&self.0)?;
        Ok(handoff(std::process::id(), kept.into_raw_fd(), cores, rule, cpus))
    }

    /// Opens the page that a run handed over to the calling process: as a descriptor of the process
    /// that the launcher became, or else as the inherited descriptor. `None` if it is gone, or if
    /// the descriptor is not a memory file of the budget's name; such a descriptor is not opened.
    pub fn inherited(proc: &Path, handoff: &Handoff<'_>) -> Option<Self> {
        let descriptor = |process: &str| proc.join(process).join(format!("fd/{}", handoff.descriptor));
        let open = |path: &Path| {
            let target = std::fs::read_link(path).ok()?;
            let name = target.as_os_str().as_bytes().strip_prefix(b"/memfd:")?;
            name.starts_with(NAME.as_bytes()).then(|| File::open(path).ok()).flatten()
        };
        open(&descriptor(&handoff.pid.to_string())).or_else(|| open(&descriptor("self"))).map(Self)
    }

    /// Opens the page of the run that began with this process, from outside. `None` if it has none,
    /// or if this process may not read another's descriptors.
    pub fn of_run(proc: &Path, holder: Pid) -> Option<Self> {
        let mut environment = Vec::new();
        let file = File::open(proc.join(format!("{holder}/environ"))).ok()?;
        file.take(ENVIRONMENT_MAX).read_to_end(&mut environment).ok()?;
        let value = environment.split(|&byte| byte == 0).find_map(|variable| {
            std::str::from_utf8(variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?).ok()
        })?;
        let handoff = Handoff::read(value).filter(|handoff| handoff.pid == holder.0)?;
        let path = proc.join(format!("{holder}/fd/{}", handoff.descriptor));
        let target = std::fs::read_link(&path).ok()?;
        let name = target.as_os_str().as_bytes().strip_prefix(b"/memfd:")?;
        if !name.starts_with(NAME.as_bytes()) {
            return None;
        }
        // Another user can have any file under this name, and put another there meanwhile. To open
        // a device or a file system in user space has effects, so the file is examined before it is
        // opened: a memory file has no name, and lies in memory.
        let place = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
        let about = place.metadata().ok()?;
        let is_memory = fstatfs(&place).is_ok_and(|system| system.f_type == libc::TMPFS_MAGIC);
        if !about.is_file() || about.nlink() != 0 || !is_memory {
            return None;
        }
        let same = format!("/proc/self/fd/{}", place.as_raw_fd());
        File::options().read(true).write(true).open(same).ok().map(Self)
    }

    /// Tells the processes of the run its cores, after they changed. It takes effect when they next
    /// examine the page.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn set_cores(&self, cores: u32) -> io::Result<()> {
        let word = u64::from(cores.clamp(1, COUNT_MAX));
        self.0.write_all_at(&word.to_ne_bytes(), 8 * header::CORES as u64)
    }

    /// Returns the threads that other processes leave of the budget to the process `own`.
    pub fn bound(&self, proc: &Path, own: Pid) -> Option<BudgetBound> {
        let content = self.read()?;
        Some(BudgetBound::of(&content, own.0, |owner| lives(proc, owner)))
    }

    /// Returns the content; `None` if it cannot be read, or was not handed over.
    pub fn read(&self) -> Option<Content> {
        let mut bytes = vec![0; BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        read(&bytes)
    }
}

/// Returns whether the owner of a slot lives.
pub fn lives(proc: &Path, owner: Owner) -> bool {
    // A page holds the low half of the start time.
    process::stat(proc, Pid(owner.pid)).is_ok_and(|stat| stat.start.0 as u32 == owner.started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::budget::Handoff;

    #[test]
    fn a_page_is_handed_over_found_by_its_process_and_keeps_its_length() {
        let page = BudgetPage::create().unwrap();
        assert_eq!(page.read(), None, "not handed over");
        let text = page.hand_over(3, Rule::All, &"0-1".parse().unwrap()).unwrap();
        let read = Handoff::read(&text).unwrap();
        assert_eq!((read.pid, read.cores, read.rule), (std::process::id(), 3, Rule::All));
        let content = page.read().unwrap();
        assert_eq!((content.cores, content.members.len(), content.programs), (3, 0, 0));
        let path = format!("/proc/{}/fd/{}", read.pid, read.descriptor);
        let same = File::options().read(true).write(true).open(path).unwrap();
        assert!(same.set_len(0).is_err() && same.set_len(1 << 20).is_err());
        assert_ne!(same.as_raw_fd(), read.descriptor);
        let proc = Path::new("/proc");
        let found = BudgetPage::inherited(proc, &read).unwrap();
        assert_eq!(found.bound(proc, Pid::own()), Some(BudgetBound { threads: 3, computing: 0 }));
        // A descriptor of another kind of file, as after a program closed the page and opened it.
        let file = tempfile::tempfile().unwrap();
        let own = std::process::id();
        let other =
            text.replacen(&format!("{own} {} ", read.descriptor), &format!("{own} {} ", file.as_raw_fd()), 1);
        assert!(BudgetPage::inherited(proc, &Handoff::read(&other).unwrap()).is_none());
    }
}
