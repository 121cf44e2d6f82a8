//! Targets: the processes, virtual machines and control groups that attach and the service balance
//! on request.

use crate::narrator::Narrator;
use crate::paths::Paths;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use trimtab_core::words::plural;
use trimtab_linux::host::Root;
use trimtab_linux::process::Pid;
use trimtab_linux::text;
use trimtab_linux::vcpus::{VirtualMachine, VmName, Vms};

/// Parses the name of a virtual machine as a user types it.
pub fn vm_name(text: &str) -> Result<VmName, String> {
    if text.is_empty() {
        return Err("a name, a process or a QMP socket is needed".to_owned());
    }
    text.parse().map_err(|never: std::convert::Infallible| match never {})
}

/// Returns the virtual machines of these names, each once, besides processes that are watched as a
/// whole.
///
/// # Errors
/// A machine cannot be found, or its process is watched as a whole.
pub fn vm_roots(
    paths: &Paths,
    names: &[VmName],
    whole: &[u32],
    narrator: &dyn Narrator,
) -> Result<Vec<Root>> {
    let vms = Vms::new(&paths.proc());
    let mut found: Vec<Box<VirtualMachine>> = Vec::new();
    for name in names {
        let vm = vms.find(name)?;
        if whole.contains(&vm.pid.0) {
            bail!(
                "process {} runs the virtual machine {name}: name it once, with --vm for its CPUs alone or without for all its threads",
                vm.pid
            );
        }
        for tried in &vm.tried {
            narrator.detail(&format!("  {name}: {tried}"));
        }
        if !found.iter().any(|known| known.pid == vm.pid) {
            found.push(Box::new(vm));
        }
    }
    Ok(found.into_iter().map(Root::Vm).collect())
}

/// Describes a virtual machine for people.
pub fn vm_label(vm: &VirtualMachine) -> String {
    let name = text::printable(vm.name.as_bytes());
    let cpus = plural(vm.vcpus.len(), "CPU");
    format!("virtual machine {name} (process {}, {}, {cpus} found by {})", vm.pid, vm.monitor, vm.found)
}

/// Returns whether a process is watched for its virtual CPUs.
pub fn is_vm(roots: &[Root], pid: Pid) -> bool {
    roots.iter().any(|root| matches!(root, Root::Vm(vm) if vm.pid == pid))
}

/// Returns the folder of a control group that is named by it, or by the kernel's path.
pub fn cgroup(paths: &Paths, path: &Path) -> PathBuf {
    let mounted = paths.cgroups();
    if path.starts_with(&mounted) {
        return path.to_owned();
    }
    // As the kernel writes it, from the root of the groups; and relative to it.
    mounted.join(path.strip_prefix("/").unwrap_or(path))
}
