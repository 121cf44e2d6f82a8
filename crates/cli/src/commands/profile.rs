//! `trimtab profile`: a run that is watched, and what was seen of it as a profile.

use super::run;
use crate::args::{ProfileArgs, RunArgs, RunOnly};
use crate::exit::{self, Exit};
use crate::profile::Ask;
use crate::tuned;
use crate::world::World;
use anyhow::{Result, bail};
use trimtab_core::place::Fit;
use trimtab_core::setting::{Knob, Setting};

/// Runs the command.
///
/// # Errors
/// As of `trimtab run`.
pub fn run(world: World, args: ProfileArgs) -> Result<u8, Exit> {
    let ProfileArgs { place, json, output, set, wait_policy, pin, counting, verbose, quiet, command } = args;
    let setting = set.unwrap_or_default();
    let only = RunOnly {
        pin,
        wait_policy,
        verbose,
        quiet,
        // The program is measured as the user runs it.
        no_profile: true,
        fit: Some(Fit::Keep),
        profile: Some(Ask { json, output, setting: setting.clone() }),
        ..RunOnly::default()
    };
    let mut args = RunArgs { place, run: only, command };
    args.run.watch.counting = counting;
    put(&setting, &mut args).map_err(|cause| Exit::new(exit::RUN_FAILED, cause))?;
    run::run(&world, &args)
}

/// A setting as options of `trimtab run`.
fn put(setting: &Setting, args: &mut RunArgs) -> Result<()> {
    for (knob, value) in setting.iter().filter(|set| *set != (Knob::Balance, "none")) {
        if !tuned::put(args, knob, value) {
            bail!("{knob}={value} is for what another option says already: give one of them");
        }
    }
    Ok(())
}
