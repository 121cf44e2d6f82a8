//! The machine that is measured, and the CPUs of it that this process may use.

use anyhow::Result;
use trimtab_cli::situation::Situation;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_front::process_env::World;

/// The machine and this process's part of it.
#[derive(Debug)]
pub(crate) struct Usable {
    /// The machine.
    pub(crate) machine: Machine,
    /// The CPUs that mask, cpuset and, if they were asked for, the site's rules leave.
    pub(crate) allowed: CpuSet,
    /// What the user should know of how the machine was found.
    pub(crate) warnings: Vec<String>,
}

impl Usable {
    /// This machine. With `rules`, CPUs that the site reserves are left out.
    ///
    /// # Errors
    /// The machine cannot be discovered, or a rules file cannot be used.
    pub(crate) fn live(world: &World, rules: bool) -> Result<Self> {
        let Situation { machine, taken, warnings, .. } = Situation::live(world, rules)?;
        Ok(Self { machine, allowed: taken.allowed, warnings })
    }
}
