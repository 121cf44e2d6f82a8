//! `trimtab sim machines`: the machines that come with trimtab.

use crate::args::MachinesArgs;
use anyhow::{Result, anyhow};
use trimtab_core::topology::draw;
use trimtab_front::exit::{self, Exit};
use trimtab_front::print;
use trimtab_front::table::{Align, Table};
use trimtab_sim::model::shipped::SHIPPED;

/// Lists the machines, or prints the file of one.
///
/// # Errors
/// [`exit::FAILED`] if no machine has that name.
pub(super) fn run(args: &MachinesArgs) -> Result<u8, Exit> {
    show(args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn show(args: &MachinesArgs) -> Result<()> {
    let Some(name) = &args.name else {
        let mut table = Table::new(&[("machine", Align::Left), ("hardware", Align::Left)]);
        for shipped in SHIPPED {
            table.row([shipped.name.to_owned(), draw::summary(&shipped.model()?.machine)]);
        }
        return Ok(print(&table.to_string())?);
    };
    let known = || SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ");
    let found = SHIPPED.iter().find(|shipped| shipped.name == name);
    let shipped = found.ok_or_else(|| anyhow!("trimtab has no machine \"{name}\" (known: {})", known()))?;
    Ok(print(shipped.text)?)
}
