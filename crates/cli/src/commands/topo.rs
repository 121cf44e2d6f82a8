//! `trimtab topo`: a picture of the machine with the CPUs that are taken.

use crate::args::TopoArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::world::World;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use trimtab_core::place::Taken;
use trimtab_core::topology::{Marks, Parts, draw, svg};
use trimtab_hold::facts::granted;
use trimtab_hold::foreign_load::Surroundings;
use trimtab_hold::site_facts::{LedgerPosition, Situation, location};
use trimtab_linux::ledger::LedgerView;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.topo/1";

#[derive(Serialize)]
struct TopoJson<'a> {
    schema: &'static str,
    summary: String,
    machine: &'a Parts,
    taken: &'a Taken,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the machine cannot be loaded or the picture cannot be written.
pub fn run(world: &World, args: &TopoArgs) -> Result<u8, Exit> {
    draw_machine(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn draw_machine(world: &World, args: &TopoArgs) -> Result<()> {
    let which = Which::of(args.machine.as_deref());
    let (situation, taken) = match which {
        Which::Live => live(world, args)?,
        _ => {
            let situation = Situation::elsewhere(world, &which)?;
            let taken = situation.taken.clone();
            (situation, taken)
        }
    };
    let machine = &situation.machine;
    if args.json {
        let document = TopoJson {
            schema: SCHEMA,
            summary: draw::summary(machine),
            machine: machine.parts(),
            taken: &taken,
        };
        return Ok(print(&serde_json::to_string_pretty(&document)?)?);
    }
    let marks = Marks::around(machine, &taken);
    if let Some(file) = &args.svg {
        return write_picture(file, &svg::picture(machine, &marks));
    }
    let title = format!("{}: {}", machine.name(), draw::summary(machine));
    Ok(print(&format!("{title}\n\n{}", draw::grid(machine, &marks, width())))?)
}

fn live(world: &World, args: &TopoArgs) -> Result<(Situation, Taken)> {
    let situation = Situation::with_devices(world, true)?;
    let machine = &situation.machine;
    let seen = Surroundings::look(world, args.survey, machine, &situation.taken.allowed, None);
    let mut taken = Taken { busy: seen.busy, pinned: seen.pinned, ..situation.taken.clone() };
    if let Ok(Some(view)) = location(world).and_then(|location| LedgerView::open(&location)) {
        let stand = LedgerPosition::find(world, &view, machine);
        taken.held = view.map(stand.level, &stand.within).context("cannot read the ledger")?.held();
    }
    for grant in granted(world, machine, &situation.taken.allowed).grants {
        taken.held = taken.held.union(&grant.cpus);
    }
    Ok((situation, taken))
}

fn write_picture(file: &Path, picture: &str) -> Result<()> {
    if file.as_os_str() == "-" {
        return Ok(print(picture)?);
    }
    std::fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the width of the terminal, or of a page.
pub fn width() -> usize {
    let columns =
        rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col)).unwrap_or(0);
    if columns >= 40 { columns } else { 80 }
}
