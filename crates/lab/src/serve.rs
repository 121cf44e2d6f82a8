//! `trimtab serve`: the service that balances all tagged threads of the machine.

use anyhow::Result;
use rustix::process::geteuid;
use std::path::PathBuf;
use std::sync::Arc;
use trimtab_agent::narrator::Narrator;
use trimtab_agent::recorder::Recorder;
use trimtab_agent::service::enforcer::{self, EnforceOptions};
use trimtab_agent::service::{self, ServiceEnd, ServiceOptions};
use trimtab_cli::args::ServeArgs;
use trimtab_core::balance::Settings;
use trimtab_core::enforce::PartitionKind;
use trimtab_front::diagnostics::Volume;
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_hold::site::Policy;
use trimtab_hold::site_facts::Situation;

/// Exit status of a service after its terminal was closed: that of a program ended by SIGHUP.
const STATUS_HUNG_UP: u8 = 128 + 1;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: the service cannot run.
pub fn run(world: &World, args: &ServeArgs) -> Result<u8, Exit> {
    serve(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn serve(world: &World, args: &ServeArgs) -> Result<u8> {
    let narrator: Arc<dyn Narrator> = Arc::new(Volume::of(args.quiet, args.verbose));
    if args.give_back {
        enforcer::give_back(&world.paths(), &*narrator)?;
        return Ok(exit::DONE);
    }
    let recorder = args.trace.as_ref().map(|path| Recorder::open("--trace", path)).transpose()?;
    let options = ServiceOptions {
        policy: args.policy,
        settings: args.settings.over(Settings::of(args.policy)),
        counting: args.counting.choice(),
        socket: args.socket.clone(),
        cpus: args.cpus.clone(),
        pinned: args.pinned,
        guests: args.guest.clone(),
        declared: args.declared.clone().or_else(|| declared_folder(world)),
        observe: args.observe,
        enforce: args.enforce.map(|kind| enforcement(world, kind)).transpose()?,
        metrics: args.metrics.clone(),
    };
    let machine = || Ok(Situation::live(world, false)?.machine);
    Ok(match service::serve(&world.paths(), options, recorder, machine, &narrator)? {
        ServiceEnd::Stopped => exit::DONE,
        ServiceEnd::HungUp => STATUS_HUNG_UP,
    })
}

/// Returns the settings of enforcement: the limits of the site's own file. Those of root's folder
/// are for runs of root.
fn enforcement(world: &World, kind: PartitionKind) -> Result<EnforceOptions> {
    let folders = world.config();
    let site = Policy::read(folders.get(..1).unwrap_or_default())?.site;
    Ok(EnforceOptions { limits: site.enforced(kind) })
}

/// Returns the folder with the files of declared tags: the site's for a service of root, the user's
/// for another one.
fn declared_folder(world: &World) -> Option<PathBuf> {
    let folders = world.config();
    let folder = if geteuid().is_root() { folders.first() } else { folders.last() };
    folder.map(|folder| folder.join("serve.d"))
}
