//! Launchers behind `trimtab run`: which one a program is, and what it is given so that its ranks stay in the hold.

use crate::args::{EnvMode, RunArgs};
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::anyhow;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::Path;
use trimtab_core::place::launchers::{Launcher, PICTURE, Start, Told, picture, tell, unbound};
use trimtab_core::place::{Plan, Reason, Variable, local_rank};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::machine;
use trimtab_linux::program::{Family, Kind, Program, resolve};

/// How much of a launcher is searched for the names of its libraries and variables. Intel's, the largest, has 5 MB.
const SEARCHED: usize = 32 << 20;

/// Where descriptors that the launcher inherits are put: numbers that scripts do not use.
const KEPT_FROM: i32 = 600;

/// Programs that become another, or wait for one other, which their words name.
const WRAPPERS: [&str; 10] =
    ["env", "time", "nice", "ionice", "chrt", "timeout", "stdbuf", "setsid", "nohup", "strace"];

/// What keeps the ranks of a launcher in the hold, or of launchers that a program may start, as variables.
///
/// # Errors
/// With `strict`, where ranks of a launcher may leave the hold.
pub fn variables(
    world: &World,
    program: &Program,
    args: &RunArgs,
    machine: &Machine,
    plan: &mut Plan,
    volume: Volume,
) -> Result<Vec<Variable>, Exit> {
    let command = &args.command[..];
    let user = |name: &str| world.of_user(name);
    let rank = local_rank(&|name| world.text(name)).is_some();
    let wrapped = wrapped(world, program, command);
    let (program, command) =
        wrapped.as_ref().map_or((program, command), |(program, words)| (program, *words));
    let Some(launcher) = launcher(program) else {
        let starts = matches!(program.family, Some(Family::Shell | Family::Make | Family::Python))
            || program.kind == Kind::Script;
        return Ok(if starts { unbound(&plan.mask, machine, &user, rank) } else { Vec::new() });
    };
    let words: Vec<_> = command.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let told = tell(&Start { launcher, words: &words, cpus: &plan.mask, machine, user: &user, rank });
    let Told { mut variables, mut leaves, caution, .. } = told;
    if told.picture && args.run.env == EnvMode::Keep {
        leaves = Some(format!("{launcher} is told where they belong by variables, and --env keep sets none"));
    } else if told.picture {
        match draw(&plan.mask) {
            Ok(path) => variables.extend(picture(&path)),
            Err(why) => {
                variables = unbound(&plan.mask, machine, &user, rank);
                leaves = Some(format!("no picture of these CPUs can be had for {launcher}: {why}"));
            }
        }
    }
    let name = program.path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(why) = leaves {
        let text = format!("ranks of {name} may leave CPUs {}: {why}", plan.mask);
        if args.place.strict {
            let error = anyhow!("{text}; put trimtab behind it: {name} … trimtab run … ./app (--strict)");
            return Err(Exit::new(exit::RUN_FAILED, error));
        }
        say::warning(volume, &text);
    }
    if let Some(caution) = caution {
        say::warning(volume, &caution);
    }
    if variables.iter().any(|variable| variable.name == PICTURE) {
        let text = format!("{name} sees only CPUs {}, so that its ranks stay there", plan.mask);
        plan.reasons.push(Reason::Note { text });
    }
    Ok(variables)
}

/// The launcher that a wrapper such as `env` or `timeout` starts, and its command line.
fn wrapped<'a>(
    world: &World,
    program: &Program,
    command: &'a [OsString],
) -> Option<(Program, &'a [OsString])> {
    let name = program.path.file_name()?.to_str()?;
    if !WRAPPERS.contains(&name) {
        return None;
    }
    let search = world.raw("PATH");
    (1..command.len()).find_map(|at| {
        let path = Path::new(&command[at]);
        Family::of_name(path.file_name()?.to_str()?).filter(|family| *family == Family::Launcher)?;
        let found = Program::look(&resolve(&command[at], search).ok()?, search).ok()?;
        Some((found, &command[at..]))
    })
}

/// The launcher that a program is. Many are called `mpirun` and `mpiexec`: what is in the file tells them apart.
fn launcher(program: &Program) -> Option<Launcher> {
    if program.family != Some(Family::Launcher) {
        return None;
    }
    let real = std::fs::canonicalize(&program.path).unwrap_or_else(|_| program.path.clone());
    let called = |names: &[&str]| {
        [&program.path, &real].iter().any(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            names.iter().any(|wanted| name == *wanted || name.starts_with(&format!("{wanted}.")))
        })
    };
    for (names, launcher) in [
        (&["srun"][..], Launcher::Slurm),
        (&["flux"], Launcher::Flux),
        (&["aprun"], Launcher::Pals),
        (&["jsrun"], Launcher::Jsm),
        (&["torchrun"], Launcher::Torchrun),
        (&["prterun", "prte"], Launcher::OpenMpi5),
    ] {
        if called(names) {
            return Some(launcher);
        }
    }
    let mentions = |word: &str| program.mentions(word, SEARCHED) == Some(true);
    Some(if mentions("I_MPI_") {
        Launcher::IntelMpi
    } else if mentions("libopen-rte.so") {
        Launcher::OpenMpi4
    } else if mentions("HYDRA_") {
        Launcher::Hydra
    } else if mentions("prterun") || beside(&real, "prterun") {
        Launcher::OpenMpi5
    } else {
        Launcher::Unknown
    })
}

fn beside(path: &Path, name: &str) -> bool {
    path.parent().is_some_and(|folder| folder.join(name).is_file())
}

/// A picture of the machine that has only these CPUs, under a name that works as long as this process, which is about to
/// become the launcher, lives: nothing is left behind.
fn draw(cpus: &CpuSet) -> Result<String, String> {
    let text = machine::picture(cpus, None).map_err(|error| error.to_string())?;
    let descriptor = keep(&text).map_err(|error| error.to_string())?;
    Ok(format!("/proc/{}/fd/{}", std::process::id(), descriptor.into_raw_fd()))
}

/// Memory with this content, which nobody can change, for this process and what it becomes.
fn keep(content: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("trimtab-picture", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(content)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    let kept = fcntl_dupfd_cloexec(&file, KEPT_FROM).or_else(|_| fcntl_dupfd_cloexec(&file, 3))?;
    fcntl_setfd(&kept, FdFlags::empty())?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// The launcher that a file is, by its name, its content and what lies beside it.
    fn of(name: &str, content: &str, beside: &[&str]) -> Option<Launcher> {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        for name in beside {
            put(name, "");
        }
        launcher(&Program::look(&put(name, content), None).unwrap())
    }

    #[test]
    fn launchers_of_one_name_are_told_apart_by_what_is_in_them() {
        assert_eq!(of("mpirun", "..libopen-rte.so.40..", &[]), Some(Launcher::OpenMpi4));
        assert_eq!(of("mpirun", "..libopen-pal.so.80..", &["prterun"]), Some(Launcher::OpenMpi5));
        assert_eq!(of("mpirun", "..exec prterun..", &[]), Some(Launcher::OpenMpi5));
        assert_eq!(of("mpiexec.hydra", "..HYDRA_BINDING..", &[]), Some(Launcher::Hydra));
        assert_eq!(of("mpiexec.hydra", "..HYDRA_BINDING..I_MPI_PIN..", &[]), Some(Launcher::IntelMpi));
        assert_eq!(of("mpirun", "#!/bin/sh\nexport I_MPI_MPIRUN=mpirun\n", &[]), Some(Launcher::IntelMpi));
        assert_eq!(of("mpirun", "MVAPICH", &[]), Some(Launcher::Unknown));
        assert_eq!(of("srun", "", &[]), Some(Launcher::Slurm));
        assert_eq!(of("torchrun", "#!/usr/bin/python3\n", &[]), Some(Launcher::Torchrun));
        assert_eq!(of("a.out", "libopen-rte.so.40", &[]), None);
    }

    #[test]
    fn what_is_kept_is_read_by_its_name_and_cannot_be_changed() {
        let kept = keep(b"<topology>").unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), kept.into_raw_fd());
        assert_eq!(std::fs::read(&path).unwrap(), b"<topology>");
        assert!(std::fs::write(&path, b"x").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"<topology>");
    }
}
