//! Whether and how the guest library goes along with a program.

use crate::args::PinMode;
use crate::site::Rule;
use crate::world::World;
use std::path::{Path, PathBuf};
use trimtab_core::handoff::bearer::{self, LIBRARY, MACHINE};
use trimtab_core::handoff::{Handoff, Pin};
use trimtab_core::place::Plan;
use trimtab_core::set::CpuSet;
use trimtab_linux::program::{Family, Program, WordSize};

/// What the guest does for a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guest {
    /// It is preloaded and pins threads in this way.
    Goes(Pin),
    /// It stays out, for this reason.
    Stays(String),
}

impl Guest {
    /// Why it stays out, if it does.
    pub fn stays_out(&self) -> Option<&str> {
        match self {
            Self::Stays(why) => Some(why),
            Self::Goes(_) => None,
        }
    }
}

/// Decides by what the program is. `openmp` says whether OpenMP threads have places: the runtime's own, or those of nested
/// teams. `asked` says whether the library has something to do beside placing threads at their birth: nested teams, or to answer with fewer threads
/// than there are CPUs. Without that, it stays out of programs whose threads share the mask, and so out of all programs that these start.
pub fn decide(program: &Program, mode: PinMode, rule: Option<&Rule>, openmp: bool, asked: bool) -> Guest {
    if let Err(why) = bears(program) {
        return Guest::Stays(format!("{why}: threads float inside the mask"));
    }
    match program.family {
        Some(Family::Jvm) => return stays("the JVM manages its threads: they float inside the mask"),
        Some(Family::Node) => return stays("Node.js manages its threads: they float inside the mask"),
        Some(Family::Launcher) => return stays("it starts other programs: they share the mask"),
        _ => {}
    }
    if program.binary.as_ref().is_some_and(|binary| binary.go) {
        return stays("Go moves its work between threads: they float inside the mask");
    }
    let mask = mode == PinMode::Mask
        || rule.is_some_and(|rule| rule.mask_only)
        || matches!(program.family, Some(Family::Shell | Family::Make));
    match (mask, openmp) {
        (true, _) if !asked => stays("threads float inside the mask"),
        (true, _) => Guest::Goes(Pin::Mask),
        // OpenMP's places cover the slots; a second thread on any of them would halve it.
        (_, true) => Guest::Goes(Pin::Float),
        _ => Guest::Goes(Pin::Born),
    }
}

fn stays(why: &str) -> Guest {
    Guest::Stays(why.to_owned())
}

/// Whether the library can be preloaded into a program at all; the error says why not. The guest asks the same of the files of
/// programs that its host starts.
pub fn bears(program: &Program) -> Result<(), String> {
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
        return Err("it is built with a sanitizer, which bears no preload".to_owned());
    }
    if (binary.machine, binary.word_size) != (MACHINE, WordSize::Bits64) {
        return Err("it is for another processor or word size than this trimtab".to_owned());
    }
    match &binary.loader {
        Some(loader) if !bearer::is_loader(loader.as_bytes()) => {
            let loader = loader.rsplit('/').next().unwrap_or(loader);
            Err(format!("its loader is {loader}, and the guest library is glibc's"))
        }
        _ => Ok(()),
    }
}

/// What the launcher hands to the guest.
pub fn handoff(plan: &Plan, pin: Pin) -> Handoff {
    let slots = plan.slots.iter().map(|slot| [slot.cpu].into_iter().collect::<CpuSet>()).collect();
    let threads = ((plan.threads as usize) < plan.mask.len()).then_some(plan.threads);
    Handoff { pid: std::process::id(), mask: plan.mask.clone(), slots, pin, threads }
}

/// The library, next to this program or where `make install` puts it; the error lists the places looked at.
pub fn library() -> Result<PathBuf, String> {
    let own = std::fs::canonicalize("/proc/self/exe")
        .map_err(|error| format!("this program's own path is unknown: {error}"))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/trimtab").join(LIBRARY)];
    match places.iter().find(|path| path.is_file()) {
        // LD_PRELOAD is split at spaces and colons; the loader has no way to quote them.
        Some(path) if path.to_string_lossy().contains([' ', ':']) => {
            Err(format!("{} has a space or colon in its path, which LD_PRELOAD cannot name", path.display()))
        }
        Some(path) => Ok(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())),
        None => {
            let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
            Err(format!("{LIBRARY} is not installed (looked for {})", places.join(", ")))
        }
    }
}

/// `LD_PRELOAD` with the library behind whatever the user preloads, so that the user's libraries are asked first.
pub fn preload(world: &World, library: &Path) -> String {
    let ours = library.display().to_string();
    match world.text("LD_PRELOAD") {
        None => ours,
        Some(theirs) if theirs.split([':', ' ']).any(|path| path == ours) => theirs,
        Some(theirs) if theirs.trim_matches([':', ' ']).is_empty() => ours,
        Some(theirs) => format!("{theirs}:{ours}"),
    }
}

/// `LD_PRELOAD` without the library, which an enclosing run put there; `None` when nothing is left.
pub fn preload_of_others(world: &World) -> Option<String> {
    let all = world.text("LD_PRELOAD")?;
    let ours = |path: &&str| bearer::is_library(path.as_bytes());
    if !all.split([':', ' ']).any(|path| ours(&path)) {
        return Some(all);
    }
    let others: Vec<&str> = all.split([':', ' ']).filter(|path| !path.is_empty() && !ours(path)).collect();
    (!others.is_empty()).then(|| others.join(":"))
}
