//! `trimtab profile`: a run that is watched, and what was seen of it as a profile.

use super::run;
use crate::args::{PinMode, ProfileArgs, RunArgs, RunOnly, Thp};
use crate::exit::{self, Exit};
use crate::profile::Ask;
use crate::world::World;
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use trimtab_core::place::Amount;
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
        profile: Some(Ask { json, output, setting: setting.clone() }),
        ..RunOnly::default()
    };
    let mut args = RunArgs { place, run: only, command };
    args.run.watch.counting = counting;
    let world = put(world, &setting, &mut args).map_err(|cause| Exit::new(exit::RUN_FAILED, cause))?;
    run::run(&world, &args)
}

/// A setting as options of `trimtab run`, and as variables.
fn put(mut world: World, setting: &Setting, args: &mut RunArgs) -> Result<World> {
    for (knob, value) in setting.iter() {
        let wrong = |why: String| anyhow!("{knob}={value}: {why}");
        match knob {
            Knob::Threads => world = world.with("OMP_NUM_THREADS", value),
            Knob::Cores => {
                args.place.cores =
                    Some(value.parse::<Amount>().map_err(|why| anyhow!("cores={value}: {why}"))?)
            }
            Knob::Smt => args.place.smt = Some(value.parse().map_err(|why| anyhow!("smt={value}: {why}"))?),
            Knob::Strategy => args.place.strategy = Some(value.parse().map_err(wrong)?),
            Knob::Memory => args.place.mem = Some(value.parse().map_err(wrong)?),
            Knob::Thp => match Thp::from_str(value, false) {
                Ok(mode) => args.place.thp = Some(mode),
                Err(_) => bail!("thp={value} cannot be set here: inherit, off and advised can"),
            },
            Knob::Wait => args.run.wait_policy = value.parse().map_err(wrong)?,
            Knob::Pin => args.run.pin = PinMode::from_str(value, false).map_err(wrong)?,
            Knob::Balance if value == "none" => {}
            Knob::Balance => {
                args.run.watch.balance =
                    Some(value.parse().map_err(|why| anyhow!("balance={value}: {why}"))?);
            }
            Knob::Slice => bail!(
                "slice={value} cannot be set here: the scheduler's slice is not an option of this command"
            ),
        }
    }
    Ok(world)
}
