//! `trimtab status`: what the service does.

use crate::args::StatusArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::table::{Align, Table};
use crate::world::World;
use serde::Serialize;
use std::fmt::Write as _;
use trimtab_agent::paths::Paths;
use trimtab_agent::restoration::user;
use trimtab_agent::service::client::Client;
use trimtab_agent::service::removal;
use trimtab_core::tags::{By, PortState, Status, TagStatus};
use trimtab_core::words::plural;
use trimtab_linux::text::printable;

/// The schema of the JSON.
const SCHEMA: &str = "trimtab.status/1";

/// The JSON.
#[derive(Serialize)]
struct Told<'s> {
    schema: &'static str,
    #[serde(flatten)]
    status: &'s Status,
}

/// Shows.
///
/// # Errors
/// [`exit::FAILED`]: no service runs.
pub fn run(world: &World, args: &StatusArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn show(world: &World, args: &StatusArgs) -> Result<(), anyhow::Error> {
    let paths = world.paths();
    let mut service = Client::find(&paths, args.socket.as_deref(), &Volume::Normal)?;
    let status = removal::status(&mut service)?;
    let text = if args.json {
        serde_json::to_string_pretty(&Told { schema: SCHEMA, status: &status })?
    } else {
        words(&paths, &status)
    };
    Ok(print(&text)?)
}

fn words(paths: &Paths, status: &Status) -> String {
    let mut text = String::new();
    let up = status.up.seconds();
    let _ = writeln!(
        text,
        "process {} of {} balances by {} on CPUs {} for {up:.0} s",
        status.pid,
        user(paths, status.uid),
        printable(status.policy.as_bytes()),
        status.usable
    );
    let refused = if status.refused > 0 { format!(", {} refused", status.refused) } else { String::new() };
    let _ = writeln!(
        text,
        "{} tagged, {}{refused}, {}",
        plural(status.threads, "thread"),
        plural(status.moves, "move"),
        plural(status.looks, "look")
    );
    let cost = status.cost;
    let share =
        cost.share.map_or_else(|| "not known yet".to_owned(), |share| format!("{:.2} %", 100.0 * share));
    let slowed = match cost.slowed {
        0 => String::new(),
        slowed => format!(", kept by {}", plural(slowed, "later look")),
    };
    let _ = writeln!(
        text,
        "cost: {share} of a core of {:.2} % allowed{slowed}; {} of CPU time in all",
        100.0 * cost.budget,
        cost.total
    );
    if !status.tags.is_empty() {
        let _ = write!(text, "\n{}", tagged(paths, &status.tags));
    }
    if status.others > 0 {
        let _ = writeln!(text, "\n{} of other users", plural(status.others, "tag"));
    }
    for guest in &status.guests {
        let state = match guest.state {
            PortState::Open => "heard",
            PortState::Closed => "nobody answers",
            PortState::Ignored => "not listened to any more",
        };
        let _ = writeln!(
            text,
            "\nguest {} at {}: {state}; {}, {} meant nothing, {} too fast, {} about CPUs that it has not",
            printable(guest.vm.as_bytes()),
            printable(guest.channel.as_bytes()),
            plural(guest.lines, "line"),
            guest.garbage,
            guest.dropped,
            guest.unknown
        );
    }
    for fault in &status.faults {
        let _ = writeln!(text, "\nwarning: {}", printable(fault.as_bytes()));
    }
    text
}

/// What is tagged, a row each.
fn tagged(paths: &Paths, tags: &[TagStatus]) -> Table {
    let mut table = Table::new(&[
        ("TAGGED", Align::Left),
        ("BY", Align::Left),
        ("GROUP", Align::Left),
        ("AGE", Align::Right),
        ("THREADS", Align::Right),
        ("MOVES", Align::Right),
        ("", Align::Left),
    ]);
    for tag in tags {
        let by = match &tag.by {
            By::User(uid) => user(paths, *uid),
            by => printable(by.to_string().as_bytes()),
        };
        let fault = tag.fault.as_deref().unwrap_or_default();
        table.row(vec![
            printable(tag.mark.to_string().as_bytes()),
            by,
            printable(tag.group.as_deref().unwrap_or("-").as_bytes()),
            format!("{:.0} s", tag.age.seconds()),
            tag.threads.to_string(),
            tag.moves.to_string(),
            printable(fault.as_bytes()),
        ]);
    }
    table
}
