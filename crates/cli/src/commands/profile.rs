//! `trimtab profile`: runs a program under the monitor and reports its profile.

use super::run;
use crate::args::{ProfileArgs, RunArgs, RunOnly};
use crate::exit::Exit;
use crate::profile::Ask;
use crate::world::World;
use trimtab_core::place::Fit;

/// Runs the command.
///
/// # Errors
/// The errors of `trimtab run`.
pub fn run(world: World, args: ProfileArgs) -> Result<u8, Exit> {
    let ProfileArgs { place, json, output, set, wait_policy, pin, counting, verbose, quiet, command } = args;
    let setting = set.unwrap_or_default();
    let only = RunOnly {
        pin,
        wait_policy,
        verbose,
        quiet,
        // The program is measured as the user runs it.
        no_tuning: true,
        fit: Some(Fit::Keep),
        set: setting.clone(),
        profile: Some(Ask { json, output, setting }),
        ..RunOnly::default()
    };
    let mut args = RunArgs { place, run: only, command };
    args.run.watch.counting = counting;
    run::run(&world, &args)
}
