//! `trimtab hook`: hooks of engines of virtual machines.

use crate::args::HookArgs;
use crate::args::hook::Engine;
use anyhow::{Context, anyhow};
use rustix::process::getppid;
use std::ffi::OsString;
use std::fmt::Write;
use trimtab_front::diagnostics::Volume;
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_front::sibling::{LAB, TRIMTAB, find};
use trimtab_front::stdout::print;
use trimtab_hold::container::Pid;
use trimtab_hook::call::{HookCall, Verdict, caller};
use trimtab_hook::config::{GuestCores, HookConfig};
use trimtab_hook::engine::{HookEngine, usable};
use trimtab_hook::follow::{FollowOptions, follow};
use trimtab_hook::host::{ThisHost, configuration};
use trimtab_hook::install;
use trimtab_hook::note;
use trimtab_hook::write::write_domain;

/// Runs `trimtab hook`.
///
/// # Errors
/// The guest is refused, or the task fails.
pub fn run(world: &World, args: &HookArgs) -> Result<u8, Exit> {
    let engine = match args.engine {
        Engine::Libvirt => HookEngine::Libvirt,
        Engine::Proxmox => HookEngine::Proxmox,
        Engine::Incus => HookEngine::Incus,
    };
    let volume = Volume::of(args.quiet, args.verbose);
    let done = if args.install {
        installed(world, engine)
    } else if args.uninstall {
        uninstalled(world, engine)
    } else if args.check {
        configuration(world, args.config.as_deref()).map(|config| told(&config))
    } else if let Some(name) = &args.explain {
        explained(world, engine, name)
    } else if let Some(name) = &args.write {
        written(world, args, engine, name)
    } else if engine == HookEngine::Incus && args.words.is_empty() {
        followed(args, volume)
    } else {
        return called(args, engine, volume);
    };
    let text = done.map_err(|cause| Exit::new(exit::FAILED, cause))?;
    if !text.is_empty() {
        print(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    }
    Ok(exit::DONE)
}

/// Carries out one call of the engine.
fn called(args: &HookArgs, engine: HookEngine, volume: Volume) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let parent = || getppid().map(|pid| Pid(pid.as_raw_nonzero().get().unsigned_abs()));
    let given = args.engine_pid.map(Pid).or_else(parent);
    let engine_pid = given.context("the engine's process is not visible here").map_err(failed)?;
    let call = HookCall {
        engine,
        words: args.words.clone(),
        engine_pid: caller(&World::current().proc(), engine, engine_pid),
        config: args.config.clone(),
        keeper: find(LAB).map_err(failed)?,
        limit: args.limit.into(),
    };
    Ok(match call.run(&World::current, &volume) {
        Verdict::GoOn => exit::DONE,
        Verdict::Refuse => exit::NO,
    })
}

fn followed(args: &HookArgs, volume: Volume) -> anyhow::Result<String> {
    let options = FollowOptions {
        client: args.client.clone().unwrap_or_else(|| "incus".into()),
        config: args.config.clone(),
        keeper: find(LAB)?,
        limit: args.limit.into(),
        once: args.once,
    };
    follow(&World::current, &options, &volume)?;
    Ok(String::new())
}

fn installed(world: &World, engine: HookEngine) -> anyhow::Result<String> {
    let path = install::install(&world.root, engine, &find(TRIMTAB)?)?;
    let next = match engine {
        HookEngine::Libvirt => {
            "libvirt looks for hooks when it starts: restart libvirtd (or virtqemud); guests run on meanwhile"
        }
        _ => "for each guest: qm set VMID --hookscript local:snippets/trimtab",
    };
    Ok(format!("{} is written\n{next}", path.display()))
}

fn uninstalled(world: &World, engine: HookEngine) -> anyhow::Result<String> {
    Ok(match install::uninstall(&world.root, engine)? {
        Some(path) => format!("{} is removed", path.display()),
        None => "there is no hook of trimtab".to_owned(),
    })
}

fn explained(world: &World, engine: HookEngine, name: &str) -> anyhow::Result<String> {
    usable(name).map_err(|cause| anyhow!(cause))?;
    let text = note::read(&world.root, engine, name).context("the explanation cannot be read")?;
    text.map(|text| text.trim_end().to_owned()).with_context(|| {
        format!("no hook of {} has seen this guest since the machine was booted", engine.word())
    })
}

fn written(world: &World, args: &HookArgs, engine: HookEngine, name: &str) -> anyhow::Result<String> {
    if engine != HookEngine::Libvirt {
        anyhow::bail!("only domains of libvirt can be written");
    }
    usable(name).map_err(|cause| anyhow!(cause))?;
    let config = configuration(world, args.config.as_deref())?;
    let host = ThisHost::new(world, find(LAB)?, engine, config)?;
    let virsh: OsString = args.client.clone().unwrap_or_else(|| "virsh".into());
    let done = write_domain(&host, &virsh, name)?;
    Ok(done.iter().map(|line| format!("virsh {line}")).collect::<Vec<_>>().join("\n"))
}

/// Returns what a configuration means.
fn told(config: &HookConfig) -> String {
    let mut text = String::new();
    for rule in &config.guest {
        let cores = match &rule.cores {
            GuestCores::Vcpus => "a core for each vCPU".to_owned(),
            GuestCores::None => "no cores of their own".to_owned(),
            GuestCores::Amount(amount) => format!("cores: {amount}"),
        };
        let settings = rule.settings.iter().map(|settings| format!(", {settings}"));
        let near = rule.near.iter().map(|device| format!(", near {device}"));
        let more: String = settings.chain(near).collect();
        let required = if rule.required { ", or no start" } else { "" };
        let _ = writeln!(text, "guests {}: {cores}{more}{required}", rule.name);
    }
    text + "all other guests: a core for each vCPU"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_told_in_words() {
        let text = "[[guest]]\nname = \"db-*\"\ncores = \"4\"\nsettings = \"memory=bind\"\nnear = \"gpu:0\"\n\
                    required = true\n[[guest]]\nname = \"test\"\ncores = \"none\"\n";
        let expected = "guests db-*: cores: 4, memory=bind, near gpu:0, or no start\n\
                        guests test: no cores of their own\n\
                        all other guests: a core for each vCPU";
        assert_eq!(told(&text.parse().unwrap()), expected);
        assert_eq!(told(&HookConfig::default()), "all other guests: a core for each vCPU");
    }
}
