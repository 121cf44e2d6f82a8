//! `trimtab attach`: balances programs that already run.

use crate::args::{AttachArgs, distinct};
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::world::World;
use anyhow::{Result, anyhow};
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::Path;
use std::sync::Arc;
use trimtab_agent::attach::{AttachOptions, Attached, whole_machine};
use trimtab_agent::narrator::Narrator;
use trimtab_agent::recorder::TraceTarget;
use trimtab_core::balance::Settings;
use trimtab_core::telemetry::account::Tally;
use trimtab_core::words::plural;
use trimtab_front::status_line::StatusLine;
use trimtab_hold::site_facts::Situation;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: the programs cannot be watched, or an output cannot be written.
pub fn run(world: &World, args: &AttachArgs) -> Result<u8, Exit> {
    attach(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn attach(world: &World, args: &AttachArgs) -> Result<u8> {
    if let Some(why) = args.policy.unfit(args.balance) {
        return Err(anyhow!("{why}"));
    }
    let volume = Volume::of(args.quiet, args.verbose);
    let mut options = options(args);
    if let Some(effect) = whole_machine(&world.paths(), &options.pids, options.policy)
        && !options.whole_machine
        && stdin().is_terminal()
        && stderr().is_terminal()
    {
        if !is_confirmed(&effect, &mut stdin().lock(), &mut stderr())? {
            return Err(anyhow!("not confirmed: nothing was moved"));
        }
        options.whole_machine = true;
    }
    // Verbose messages and a changing line would disturb each other.
    let mut line = StatusLine::new(volume != Volume::Normal || options.trace == Some(TraceTarget::Stdout));
    let narrator: Arc<dyn Narrator> = Arc::new(volume);
    let machine = || Ok(Situation::live(world, false)?.machine);
    let mut attached = Attached::begin(&world.paths(), options, machine, &narrator)?;
    let watched = attached.watch(&mut |tally| line.set(&status(tally)));
    drop(line);
    attached.finish(watched)?;
    Ok(exit::DONE)
}

/// Asks whether an effect is wanted. Anything but `y` or `yes` declines.
fn is_confirmed(effect: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<bool> {
    write!(output, "trimtab: {effect}. Move them? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

fn options(args: &AttachArgs) -> AttachOptions {
    let trace = match &args.trace {
        _ if args.json => Some(TraceTarget::Stdout),
        Some(path) if path.as_path() == Path::new("-") => Some(TraceTarget::Stdout),
        Some(path) => Some(TraceTarget::File(path.clone())),
        None => None,
    };
    AttachOptions {
        pids: distinct(&args.pids),
        vms: args.vm.clone(),
        cgroup: args.cgroup.clone(),
        policy: args.balance,
        settings: args.policy.over(Settings::of(args.balance)),
        counting: args.counting.options(),
        cpus: args.cpus.clone(),
        respect_masks: args.respect_masks,
        whole_machine: args.yes,
        time: args.time,
        trace,
        metrics: args.metrics.clone(),
    }
}

fn status(tally: &Tally) -> String {
    let speeds = tally.speeds.map_or_else(String::new, |(slowest, fastest)| {
        format!(", speed {:.0} to {:.0} %", 100.0 * slowest, 100.0 * fastest)
    });
    let finding = tally.findings.first().map_or_else(String::new, |finding| format!("; {finding}"));
    let (threads, moves) = (plural(tally.alive, "thread"), plural(tally.applied, "move"));
    format!("{threads}, {moves}{speeds}{finding}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_confirms() {
        for (answer, wanted) in [
            ("y\n", true),
            ("YES\n", true),
            (" yes \n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("1\n", false),
        ] {
            let mut said = Vec::new();
            assert_eq!(is_confirmed("all would move", &mut answer.as_bytes(), &mut said).unwrap(), wanted);
            assert_eq!(said, b"trimtab: all would move. Move them? [y/N] ");
        }
    }
}
