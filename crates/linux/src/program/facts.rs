//! Facts of a command on which a launch is decided: whether a library can be preloaded into it, its
//! OpenMP runtime, the threads it may start, and the MPI launcher that it is or becomes.
//!
//! Files are searched for words only if a decision depends on them: programs that link OpenMP, and
//! launchers.

use super::{Family, FileKind, Program, SecureExec, WordSize, resolve};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use trimtab_core::handoff::bearer::{self, MACHINE};
use trimtab_core::place::launchers::Launcher;
use trimtab_launch::facts::{LauncherFacts, ProgramFacts};

/// Bytes of a launcher that are searched for the names of its libraries and variables. Intel's, the
/// largest, has 5 MB.
const LAUNCHER_BYTES_MAX: usize = 32 << 20;

/// Longest program that is searched for functions, in bytes: reading takes about 0.1 ms a megabyte.
/// Longer programs are assumed to call them.
const PROGRAM_BYTES_MAX: usize = 16 << 20;

/// Functions by which programs start threads: of POSIX, of C++'s library and of C11.
const STARTS_THREADS: [&str; 3] = ["pthread_create", "_M_start_thread", "thrd_create"];

/// Common part of the names of the function by which a program sets its teams, in C, C++ and
/// Fortran, and of the function that our header looks up.
const SETS_TEAMS: &str = "_set_nesting_info";

/// Programs that become another program, or wait for one other, which their arguments name.
const WRAPPERS: [&str; 10] =
    ["env", "time", "nice", "ionice", "chrt", "timeout", "stdbuf", "setsid", "nohup", "strace"];

impl Program {
    /// Returns the facts for a launch of this program by a command line. `search_path` is the text
    /// of `PATH`.
    pub fn facts(&self, command: &[OsString], search_path: Option<&OsStr>) -> ProgramFacts {
        let binary = self.binary.as_ref();
        let openmp = binary.and_then(|binary| binary.openmp);
        let meet = openmp.is_some_and(|runtime| runtime.row().reuses_first_places);
        let may_call = |word: &str| openmp.is_some() && self.mentions(word, PROGRAM_BYTES_MAX) != Some(false);
        ProgramFacts {
            path: self.path.clone(),
            family: self.family,
            script: self.kind == FileKind::Script,
            go: binary.is_some_and(|binary| binary.go),
            openmp,
            preload: bears(self),
            closed: closed(self),
            // Only some runtimes give every thread that opens a team the same places.
            starts_threads: meet && STARTS_THREADS.into_iter().any(may_call),
            sets_teams: may_call(SETS_TEAMS),
            launcher: launched(self, command, search_path),
        }
    }
}

/// Returns whether the preload library can be preloaded into a program; the error gives the reason.
/// The library makes the same checks on the files of programs that its host process starts.
fn bears(program: &Program) -> Result<(), String> {
    match program.takes_preload() {
        Some(true) => {}
        Some(false) if program.secure_exec.is_some() => {
            return Err(
                "it runs with more privilege than its user, so the loader ignores preloads".to_owned()
            );
        }
        Some(false) => return Err("it is statically linked".to_owned()),
        None => return Err("its file cannot be read".to_owned()),
    }
    let Some(binary) = &program.binary else { return Ok(()) };
    if binary.needed.iter().any(|name| bearer::must_be_first(name.as_bytes())) {
        return Err("it is built with a sanitizer, which does not tolerate a preload".to_owned());
    }
    if (binary.machine, binary.word_size) != (MACHINE, WordSize::Bits64) {
        return Err("it is for another processor or word size than this trimtab".to_owned());
    }
    match &binary.loader {
        Some(loader) if !bearer::is_loader(loader.as_bytes()) => {
            let loader = loader.rsplit('/').next().unwrap_or(loader);
            Err(format!("its loader is {loader}, and the preload library is built for glibc"))
        }
        _ => Ok(()),
    }
}

/// Returns the reason why no library at all can be preloaded into a program.
fn closed(program: &Program) -> Option<String> {
    let why = match (program.secure_exec, program.takes_preload()) {
        (Some(SecureExec::SetUid | SecureExec::SetGid | SecureExec::Capabilities), _) => {
            "it runs with more privilege than its user, so the loader ignores preloads"
        }
        (None, Some(false)) => "it is statically linked, so that nothing can be preloaded",
        (None, None) => "its file cannot be read",
        (None, Some(true)) => return None,
    };
    Some(why.to_owned())
}

/// Returns the launcher that a program is, or that it starts as a wrapper.
fn launched(program: &Program, command: &[OsString], search: Option<&OsStr>) -> Option<LauncherFacts> {
    let of = |program: &Program, at: usize| {
        let name = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(LauncherFacts { launcher: launcher(program)?, name, at })
    };
    match wrapped(program, command, search) {
        Some((program, at)) => of(&program, at),
        None => of(program, 0),
    }
}

/// Returns the launcher that a wrapper such as `env` or `timeout` starts, and its index among the
/// words.
fn wrapped(program: &Program, command: &[OsString], search: Option<&OsStr>) -> Option<(Program, usize)> {
    let name = program.path.file_name()?.to_str()?;
    if !WRAPPERS.contains(&name) {
        return None;
    }
    (1..command.len()).find_map(|at| {
        let path = Path::new(&command[at]);
        Family::of_name(path.file_name()?.to_str()?).filter(|family| *family == Family::Launcher)?;
        let found = Program::look(&resolve(&command[at], search).ok()?, search).ok()?;
        Some((found, at))
    })
}

/// Returns the launcher that a program is. Many are called `mpirun` and `mpiexec`: the file's
/// content distinguishes them.
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
    let mentions = |word: &str| program.mentions(word, LAUNCHER_BYTES_MAX) == Some(true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Returns the launcher that a file is, by its name, its content and the files beside it.
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
    fn launchers_of_one_name_are_distinguished_by_their_contents() {
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
}
