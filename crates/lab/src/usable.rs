//! The measured machine, and its CPUs that this process may use.

use anyhow::Result;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::process_env::World;
use trimtab_hold::site_facts::Situation;

/// The machine, and this process's part of it.
#[derive(Debug)]
pub(crate) struct Usable {
    /// The machine.
    pub(crate) machine: Machine,
    /// CPUs left by mask, cpuset and, if requested, the site's rules.
    pub(crate) allowed: CpuSet,
    /// Warnings for the user from the discovery of the machine.
    pub(crate) warnings: Vec<String>,
}

impl Usable {
    /// Discovers this machine. With `rules`, CPUs that the site reserves are left out.
    ///
    /// # Errors
    /// The machine cannot be discovered, or a rules file cannot be used.
    pub(crate) fn live(world: &World, rules: bool) -> Result<Self> {
        let Situation { machine, taken, warnings, .. } = Situation::live(world, rules)?;
        Ok(Self { machine, allowed: taken.allowed, warnings })
    }
}
