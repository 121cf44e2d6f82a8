//! Application of a launch plan to this process, and exec of the program.
//!
//! Everything is set on this process before exec, so that the loader, the interpreter and the
//! allocator of the program already run on the program's CPUs and memory nodes. No setting is half
//! applied to a running program, and no parent process stays. This module decides nothing: the
//! values come from a [`LaunchPlan`] and are read back after they were set.

use crate::memory;
use crate::program::{FileKind, Program};
use crate::sys::exec::execve;
use crate::sys::inherited::copy_from;
use crate::sys::{affinity, slice};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::handoff::bearer::{BLAS_LIBRARY, LIBRARY};
use trimtab_core::place::{HugePages, MemoryPlan};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_launch::LaunchPlan;

/// Lowest number for descriptors that the launcher inherits. Scripts do not use such numbers.
const KEPT_FROM: i32 = 600;

/// Reason why a plan is not applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The mask cannot be set or read back.
    #[error("cannot bind to CPUs {cpus}: {source}")]
    Mask {
        /// The mask.
        cpus: CpuSet,
        /// The cause.
        source: io::Error,
    },
    /// Another mask is in force.
    #[error("asked for CPUs {asked}, got {got}: the cpuset changed meanwhile; try again")]
    Differs {
        /// The mask of the plan.
        asked: CpuSet,
        /// The mask in force.
        got: CpuSet,
    },
    /// A setting is not available, and `--strict` makes this an error.
    #[error("{0} (--strict)")]
    Strict(String),
}

/// Settings of a process that its program inherits over exec.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSettings<'a> {
    /// CPUs on which it may run.
    pub mask: &'a CpuSet,
    /// Memory policy.
    pub memory: &'a MemoryPlan,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// Scheduler slice in milliseconds.
    pub slice_ms: Option<f64>,
    /// Whether a setting that is not available is an error.
    pub strict: bool,
}

impl<'a> ProcessSettings<'a> {
    /// Returns the settings of a plan.
    pub fn of(launch: &'a LaunchPlan) -> Self {
        let plan = &launch.placement;
        Self {
            mask: &plan.mask,
            memory: &plan.memory,
            huge_pages: plan.huge_pages,
            slice_ms: launch.slice.value,
            strict: launch.strict,
        }
    }

    /// Sets affinity, memory policy, huge pages and slice of this process, and reads each back.
    /// Returns messages on the settings that are not available and were left unchanged.
    ///
    /// # Errors
    /// The mask cannot be set. If they are strict: any setting is not available.
    pub fn apply(&self) -> Result<Vec<String>, ApplyError> {
        bind(self.mask)?;
        let huge_pages = match self.huge_pages {
            HugePages::Inherit => None,
            asked => memory::apply_huge_pages(asked).refused,
        };
        let steps = [
            apply_memory(self.memory),
            huge_pages.map(|refusal| (refusal.to_string(), "huge pages stay as they were".to_owned())),
            self.slice_ms.and_then(|ms| ask_for_slice(ms).err()).map(|why| (why, String::new())),
        ];
        let mut missing = Vec::new();
        for (why, instead) in steps.into_iter().flatten() {
            if self.strict {
                return Err(ApplyError::Strict(why));
            }
            missing.push(if instead.is_empty() { why } else { format!("{why}; {instead}") });
        }
        Ok(missing)
    }
}

/// Applies the settings of a plan to this process, as [`ProcessSettings::apply`].
///
/// # Errors
/// As [`ProcessSettings::apply`].
pub fn apply(launch: &LaunchPlan) -> Result<Vec<String>, ApplyError> {
    ProcessSettings::of(launch).apply()
}

/// Binds this process to CPUs.
fn bind(cpus: &CpuSet) -> Result<(), ApplyError> {
    let failed = |source: io::Error| ApplyError::Mask { cpus: cpus.clone(), source };
    affinity::set(None, cpus).map_err(|error| failed(error.into()))?;
    let got = affinity::get(None).map_err(|error| failed(error.into()))?;
    if got == *cpus { Ok(()) } else { Err(ApplyError::Differs { asked: cpus.clone(), got }) }
}

/// Sets the memory policy. If the result differs from the plan, returns the reason and the policy
/// in force.
fn apply_memory(plan: &MemoryPlan) -> Option<(String, String)> {
    let outcome = memory::apply(plan);
    if outcome.is_as_asked() {
        return None;
    }
    // Weaker policies are mostly refused for the same reason, which is reported once.
    let mut refusals: Vec<String> = Vec::new();
    for (at, refusal) in outcome.refused.iter().enumerate() {
        if at == 0 || refusal.cause != outcome.refused[at - 1].cause {
            refusals.push(refusal.to_string());
        }
    }
    let instead = match outcome.applied.policy {
        policy if policy.takes_nodes() => format!("{policy} on node {} instead", outcome.applied.nodes),
        _ => "the inherited policy stays (trimtab doctor names remedies)".to_owned(),
    };
    let text = if refusals.is_empty() { instead } else { format!("{}; {instead}", refusals.join("; ")) };
    Some((text, String::new()))
}

/// Requests the scheduler slice for this process and the program that it becomes; the error
/// contains the reason why it is not available.
fn ask_for_slice(ms: f64) -> Result<(), String> {
    let wanted = Span((ms * 1e6).round() as u64);
    match slice::set(wanted) {
        Ok(Some(now)) if now == wanted => Ok(()),
        Ok(Some(now)) => Err(format!("a slice of {ms} ms was asked for, and the kernel gives {now}")),
        Ok(None) => Err("this kernel takes no slices: --slice needs Linux 6.12".to_owned()),
        Err(error) => Err(format!("the scheduler's slice cannot be set: {error}")),
    }
}

/// Returns the path of the preload library, next to this program or where `make install` puts it;
/// the error lists the places searched.
pub fn preload_library() -> Result<PathBuf, String> {
    // The kernel's link is already without symbolic links.
    let own = std::fs::read_link("/proc/self/exe")
        .map_err(|error| format!("this program's own path is unknown: {error}"))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let above = folder.parent().unwrap_or(folder);
    let places = [folder.join(LIBRARY), above.join("lib/trimtab").join(LIBRARY)];
    let is_file_or_link = |path: &PathBuf| {
        let meta = std::fs::symlink_metadata(path).ok()?;
        let is_link = meta.is_symlink();
        (meta.is_file() || is_link && path.is_file()).then(|| (path.clone(), is_link))
    };
    match places.iter().find_map(is_file_or_link) {
        // LD_PRELOAD is split at spaces and colons; the loader cannot quote them.
        Some((path, _)) if path.to_string_lossy().contains([' ', ':']) => {
            Err(format!("{} has a space or colon in its path, which LD_PRELOAD cannot name", path.display()))
        }
        Some((path, false)) => Ok(path),
        Some((path, true)) => Ok(std::fs::canonicalize(&path).unwrap_or(path)),
        None => {
            let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
            Err(format!(
                "{LIBRARY} is not installed (looked for {}): make install, packages and wheels bring it; \
                 beside what cargo installs, `trimtab-preload` puts it (cargo install trimtab-preload)",
                places.join(", ")
            ))
        }
    }
}

/// Returns the path of the preload library that also exports functions of BLAS, which lies beside
/// the preload library.
pub fn preload_library_with_blas(library: &Path) -> Result<PathBuf, String> {
    let path = library.with_file_name(BLAS_LIBRARY);
    if path.is_file() { Ok(path) } else { Err(format!("{} is not installed", path.display())) }
}

/// A program that could not be started.
#[derive(Debug, Error)]
#[error("{what}: {source}")]
pub struct StartError {
    what: String,
    source: io::Error,
}

impl StartError {
    /// Whether the program, its interpreter or its loader is missing.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Replaces this process's program, with this environment. Returns only if that fails.
pub fn become_program(program: &Program, command: &[OsString], environment: &[OsString]) -> StartError {
    let path = program.path.as_path();
    let mut error = exec(path, command, environment);
    // As shells do: a text file without a first line that names its interpreter is run by the
    // shell. A damaged binary is not a text file.
    if error == Errno::NOEXEC && program.kind != FileKind::Elf {
        let script = [OsString::from("sh"), path.as_os_str().to_owned()];
        let shell: Vec<OsString> = script.into_iter().chain(command.iter().skip(1).cloned()).collect();
        error = exec(Path::new("/bin/sh"), &shell, environment);
    }
    let source = io::Error::from(error);
    StartError { what: explain(path, &source), source }
}

fn exec(path: &Path, command: &[OsString], environment: &[OsString]) -> Errno {
    let text = |text: &OsStr| CString::new(text.as_bytes());
    let arguments: Result<Vec<CString>, _> = command.iter().map(|word| text(word)).collect();
    let environment: Result<Vec<CString>, _> = environment.iter().map(|entry| text(entry)).collect();
    match (text(path.as_os_str()), arguments, environment) {
        (Ok(path), Ok(arguments), Ok(environment)) => execve(&path, &arguments, &environment),
        // Strings that came through an exec cannot hold a zero byte.
        _ => Errno::INVAL,
    }
}

fn explain(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("cannot start {path}: its interpreter or loader is missing"),
        io::ErrorKind::ArgumentListTooLong => {
            format!("cannot start {path}: arguments and environment are too long")
        }
        _ => format!("cannot start {path}"),
    }
}

/// Makes a picture (hwloc XML) of the machine that has only these CPUs. The name returned works as
/// long as this process, which is about to become the launcher, lives, so nothing is left behind.
/// The error contains the reason why there is no picture.
pub fn picture(cpus: &CpuSet) -> Result<String, String> {
    let text = crate::machine::picture(cpus, None).map_err(|error| error.to_string())?;
    let descriptor = keep(&text).map_err(|error| error.to_string())?;
    Ok(format!("/proc/{}/fd/{}", std::process::id(), descriptor.into_raw_fd()))
}

/// Puts the content into sealed memory, for this process and the program it becomes.
fn keep(content: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("trimtab-picture", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(content)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    inherited(&file)
}

/// Returns a copy of a file's descriptor that the program inherits, at a high number if there is
/// one.
pub(crate) fn inherited(file: &File) -> io::Result<OwnedFd> {
    Ok(copy_from(file, KEPT_FROM).or_else(|_| copy_from(file, 3))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_is_read_by_its_name_and_cannot_be_changed() {
        let kept = keep(b"<topology>").unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), kept.into_raw_fd());
        assert_eq!(std::fs::read(&path).unwrap(), b"<topology>");
        assert!(std::fs::write(&path, b"x").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"<topology>");
    }
}
