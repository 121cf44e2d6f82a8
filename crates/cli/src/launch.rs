//! Carrying a plan out on this process, and becoming the program.
//!
//! Everything is set on this process before exec, so that the loader, the interpreter and the allocator of the program
//! already live where it will: nothing is half applied to a running program, and no parent stays.

use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use trimtab_core::place::{MemoryPolicy, Plan, Reason};
use trimtab_linux::memory;
use trimtab_linux::program::{Kind, Program};
use trimtab_linux::sys::affinity;
use trimtab_linux::sys::exec::execve;

/// Sets affinity, memory policy and huge pages, each read back. What cannot be had is said, or with `strict` an error;
/// so is a memory policy that was `asked` for and that the plan is without.
///
/// # Errors
/// The mask cannot be set; with `strict` also a memory policy or huge-page mode that was refused.
pub fn apply(plan: &Plan, asked: Option<MemoryPolicy>, strict: bool, volume: Volume) -> Result<(), Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::RUN_FAILED, cause);
    affinity::set(None, &plan.mask)
        .with_context(|| format!("cannot bind to CPUs {}", plan.mask))
        .map_err(failed)?;
    let now = affinity::get(None).context("cannot read the CPU mask back").map_err(failed)?;
    if now != plan.mask {
        return Err(failed(anyhow!(
            "asked for CPUs {}, got {now}: the cpuset changed meanwhile; try again",
            plan.mask
        )));
    }
    if asked.is_some_and(MemoryPolicy::takes_nodes) && plan.memory.policy == MemoryPolicy::None {
        let why = plan.reasons.iter().find_map(|reason| match reason {
            Reason::Memory { why, .. } => Some(why.as_str()),
            _ => None,
        });
        let text = why.unwrap_or("the memory policy asked for cannot be had");
        if strict {
            return Err(failed(anyhow!("{text} (--strict)")));
        }
        say::warning(volume, &format!("{text}; the inherited policy stays"));
    }
    let outcome = memory::apply(&plan.memory);
    if !outcome.is_as_asked() {
        // What is weaker is refused for the same reason, mostly, and that is said once.
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
        if strict {
            return Err(failed(anyhow!("{text} (--strict)")));
        }
        say::warning(volume, &text);
    }
    let outcome = memory::apply_huge_pages(plan.huge_pages);
    if let Some(refusal) = outcome.refused {
        if strict {
            return Err(failed(anyhow!("{refusal} (--strict)")));
        }
        say::warning(volume, &format!("{refusal}; huge pages stay as they were"));
    }
    Ok(())
}

/// Becomes the program. Returns only when that fails.
pub fn become_program(program: &Program, command: &[OsString], world: &World, variables: &Variables) -> Exit {
    let path = program.path.as_path();
    let mut error = exec(path, command, world, variables);
    // As shells do: a text without a first line that names its interpreter is theirs. A damaged binary is not a text.
    if error == Errno::NOEXEC && program.kind != Kind::Elf {
        let script = [OsString::from("sh"), path.as_os_str().to_owned()];
        let shell: Vec<OsString> = script.into_iter().chain(command.iter().skip(1).cloned()).collect();
        error = exec(Path::new("/bin/sh"), &shell, world, variables);
    }
    let error = io::Error::from(error);
    let status = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::CANNOT_EXECUTE,
    };
    let what = explain(path, &error);
    Exit::new(status, anyhow::Error::from(error).context(what))
}

fn exec(path: &Path, command: &[OsString], world: &World, variables: &Variables) -> Errno {
    let text = |text: &OsStr| CString::new(text.as_bytes());
    let arguments: Result<Vec<CString>, _> = command.iter().map(|word| text(word)).collect();
    let environment: Result<Vec<CString>, _> =
        world.changed(variables).iter().map(|entry| text(entry)).collect();
    match (text(path.as_os_str()), arguments, environment) {
        (Ok(path), Ok(arguments), Ok(environment)) => execve(&path, &arguments, &environment),
        // What came from an exec cannot hold a zero byte.
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

/// Changes to the environment: a name set to what, or taken away.
pub type Variables = BTreeMap<String, Option<OsString>>;

/// Notes that a variable is to be set.
pub fn set(variables: &mut Variables, name: &str, value: impl AsRef<OsStr>) {
    variables.insert(name.to_owned(), Some(value.as_ref().to_owned()));
}
