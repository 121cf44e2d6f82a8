//! `trimtab status`: the state of the service.

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
use trimtab_core::enforce::EnforcementStatus;
use trimtab_core::tags::{By, PortState, Status, TagStatus};
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::units::percent_apart;
use trimtab_linux::text::printable;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.status/1";

/// The JSON document.
#[derive(Serialize)]
struct StatusDocument<'s> {
    schema: &'static str,
    #[serde(flatten)]
    status: &'s Status,
}

/// Runs the command.
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
        serde_json::to_string_pretty(&StatusDocument { schema: SCHEMA, status: &status })?
    } else {
        words(&paths, &status, args.why)
    };
    Ok(print(&text)?)
}

fn words(paths: &Paths, status: &Status, why: bool) -> String {
    let mut text = String::new();
    let up = status.up.seconds();
    let _ = writeln!(
        text,
        "process {} of {} {} with policy {} on CPUs {}, up {up:.0} s",
        status.pid,
        user(paths, status.uid),
        if status.observe { "only observes" } else { "balances" },
        printable(status.policy.as_bytes()),
        status.usable
    );
    let mut refused =
        if status.refused > 0 { format!(", {} refused", status.refused) } else { String::new() };
    if status.withheld > 0 {
        let _ = write!(refused, ", {} only observed", status.withheld);
    }
    let _ = writeln!(
        text,
        "{} tagged, {}{refused}, {}",
        plural(status.threads, "thread"),
        plural(status.moves, "move"),
        plural(status.looks, "sample")
    );
    let cost = status.cost;
    let share = cost.share.map_or_else(|| "unknown".to_owned(), |share| percent_apart(share, 2));
    let slowed = match cost.slowed {
        0 => String::new(),
        slowed => format!(", kept by delaying {}", plural(slowed, "sample")),
    };
    let _ = writeln!(
        text,
        "cost: {share} of a core, limit {}{slowed}; CPU time in total {}",
        percent_apart(cost.budget, 2),
        cost.total
    );
    if !status.tags.is_empty() {
        let _ = write!(text, "\n{}", tagged(paths, &status.tags));
    }
    if why {
        status.tags.iter().for_each(|tag| reasons(&mut text, paths, tag));
    }
    if status.others > 0 {
        let _ = writeln!(text, "\n{} of other users", plural(status.others, "tag"));
    }
    for guest in &status.guests {
        let state = match guest.state {
            PortState::Open => "connected",
            PortState::Closed => "not connected",
            PortState::Ignored => "ignored after too many faults",
        };
        let _ = writeln!(
            text,
            "\nguest {} at {}: {state}; {}, {} invalid, {} dropped as too fast, {} about unknown CPUs",
            printable(guest.vm.as_bytes()),
            printable(guest.channel.as_bytes()),
            plural(guest.lines, "line"),
            guest.garbage,
            guest.dropped,
            guest.unknown
        );
    }
    if let Some(enforcement) = &status.enforcement {
        enforced(&mut text, paths, enforcement);
    }
    for fault in &status.faults {
        let _ = writeln!(text, "\nwarning: {}", printable(fault.as_bytes()));
    }
    text
}

/// Writes the holds of a service that enforces them.
fn enforced(text: &mut String, paths: &Paths, enforcement: &EnforcementStatus) {
    let count = plural(enforcement.holds.len(), "hold");
    let verb = if enforcement.observe { "only observes" } else { "enforces" };
    let _ = writeln!(text, "\n{verb} holds, as partitions ({}): {count}", enforcement.kind.word());
    for hold in &enforcement.holds {
        let user = user(paths, hold.uid);
        let fault = hold.fault.as_deref().map(|fault| format!("; {}", printable(fault.as_bytes())));
        let outcome = printable(hold.outcome.as_bytes());
        let _ = writeln!(text, "  CPUs {} of {user}: {outcome}{}", hold.cpus, fault.unwrap_or_default());
    }
    if let Some(fault) = &enforcement.fault {
        let _ = writeln!(text, "  warning: the holds cannot be read: {}", printable(fault.as_bytes()));
    }
}

/// Writes the last decision about a tag's threads, and the reason why nothing is done now.
fn reasons(text: &mut String, paths: &Paths, tag: &TagStatus) {
    let seconds = |span: Span| format!("{:.0} s", span.seconds());
    let named = printable(tag.mark.to_string().as_bytes());
    let _ = writeln!(text, "\n{named}, tagged by {}", requester(paths, tag));
    match &tag.why.last {
        Some(last) => {
            let _ = writeln!(
                text,
                "  last, {} ago: thread {} ({}) of process {} {}: {} ({})",
                seconds(last.age),
                last.tid,
                printable(last.thread.as_bytes()),
                last.pid,
                printable(last.act.as_bytes()),
                printable(last.reason.as_bytes()),
                printable(last.end.as_bytes())
            );
        }
        None => text.push_str("  no decision so far\n"),
    }
    let still_for = tag.why.still_for.map(|span| format!(", for {}", seconds(span))).unwrap_or_default();
    let _ = match (&tag.fault, &tag.why.still) {
        (Some(fault), _) => writeln!(text, "  not watched: {}", printable(fault.as_bytes())),
        (None, Some(why)) => writeln!(text, "  now{still_for}: {}", printable(why.as_bytes())),
        (None, None) => writeln!(text, "  now: its threads are being moved"),
    };
}

/// Names the requester of a tag.
fn requester(paths: &Paths, tag: &TagStatus) -> String {
    match &tag.by {
        By::User(uid) => user(paths, *uid),
        by => printable(by.to_string().as_bytes()),
    }
}

/// Returns the table of tags.
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
        let by = requester(paths, tag);
        let observed = if tag.observe { "only observed" } else { "" };
        let fault = tag.fault.as_deref().unwrap_or(observed);
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
