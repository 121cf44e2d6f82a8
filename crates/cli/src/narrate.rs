//! Narration: the reasons of a launch, printed once on stderr, and its variables as a table.

use crate::say::{self, Volume};
use crate::table::{Align, Table};
use trimtab_core::place::{Action, Variable};
use trimtab_launch::reason::Topic;
use trimtab_launch::{LaunchReason, Level};

/// Prints the reasons of a launch.
pub fn narrate(reasons: &[LaunchReason], volume: Volume) {
    for LaunchReason { topic, level, text } in reasons {
        match level {
            // Cores without a reservation are reported even by a quiet run.
            Level::Warning if *topic == Topic::Ledger => say::warning(Volume::Normal, text),
            Level::Warning => say::warning(volume, text),
            Level::Notice => say::notice(volume, text),
            Level::Headline => say::headline(volume, text),
            // Causes are printed below the headline.
            Level::Note if matches!(topic, Topic::Placement | Topic::Threads | Topic::Waiting) => {
                say::note(volume, &format!("  {text}"));
            }
            Level::Note => say::note(volume, text),
            Level::Detail => say::note(volume, &format!("    {text}")),
        }
    }
}

/// Returns the table of the variables and the action on each.
pub fn environment_table(environment: &[Variable]) -> String {
    let mut table =
        Table::new(&[("VARIABLE", Align::Left), ("READ BY", Align::Left), ("ACTION", Align::Left)]);
    for Variable { name, reader, action } in environment {
        let action = match action {
            Action::Set { value } => format!("set to {value}"),
            Action::Kept { value } => format!("unchanged, set by you: {value}"),
            Action::Fitted { value, from } => {
                format!(
                    "reduced to {value}: you set {from}, which exceeds the CPUs of the run (--fit keep leaves it)"
                )
            }
            Action::Removed { value, why } => format!("removed (you set it to {value}): {why}"),
            Action::Unset { why } => format!("not set: {why}"),
        };
        table.row([name.clone(), (*reader).to_owned(), action]);
    }
    table.to_string()
}
