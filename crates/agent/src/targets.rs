//! Virtual machines that people name: found, and told.

use crate::say::{self, Volume};
use crate::world::World;
use anyhow::{Result, bail};
use trimtab_core::words::plural;
use trimtab_linux::live::Root;
use trimtab_linux::process::Pid;
use trimtab_linux::text;
use trimtab_linux::vcpus::{VirtualMachine, VmName, Vms};

/// What can be typed to name a virtual machine.
pub fn name(text: &str) -> Result<VmName, String> {
    if text.is_empty() {
        return Err("a name, a process or a QMP socket is needed".to_owned());
    }
    text.parse().map_err(|never: std::convert::Infallible| match never {})
}

/// The virtual machines of these names, each once, besides processes that are watched as a whole.
///
/// # Errors
/// One cannot be found, or its process is watched as a whole.
pub fn roots(world: &World, names: &[VmName], whole: &[u32], volume: Volume) -> Result<Vec<Root>> {
    let vms = Vms::new(&world.proc());
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
            say::note(volume, &format!("  {name}: {tried}"));
        }
        if !found.iter().any(|known| known.pid == vm.pid) {
            found.push(Box::new(vm));
        }
    }
    Ok(found.into_iter().map(Root::Vm).collect())
}

/// A virtual machine, for people.
pub fn label(vm: &VirtualMachine) -> String {
    let name = text::printable(vm.name.as_bytes());
    let cpus = plural(vm.vcpus.len(), "CPU");
    format!("virtual machine {name} (process {}, {}, {cpus} found by {})", vm.pid, vm.monitor, vm.found)
}

/// Whether a process is watched for its virtual CPUs.
pub fn is_one(roots: &[Root], pid: Pid) -> bool {
    roots.iter().any(|root| matches!(root, Root::Vm(vm) if vm.pid == pid))
}
