//! Whether and how the guest library goes along with a program.

use crate::args::PinMode;
use crate::site::Rule;
use crate::world::World;
use std::path::{Path, PathBuf};
use trimtab_core::handoff::{Handoff, Pin};
use trimtab_core::place::Plan;
use trimtab_core::set::CpuSet;
use trimtab_linux::program::{Family, Program, WordSize};

/// The library's file name.
pub const LIBRARY: &str = "libtrimtab_shim.so";

/// This program's own processor, as `e_machine` numbers it: the guest is built for the same.
const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

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
/// teams.
pub fn decide(program: &Program, mode: PinMode, rule: Option<&Rule>, openmp: bool) -> Guest {
    let stays = |why: &str| Guest::Stays(why.to_owned());
    match program.takes_preload() {
        Some(true) => {}
        Some(false) if program.secure_exec.is_some() => {
            return stays(
                "it runs with more privilege than its user, so the loader ignores preloads: threads float inside the mask",
            );
        }
        Some(false) => return stays("it is statically linked: threads float inside the mask"),
        None => return stays("its file cannot be read: threads float inside the mask"),
    }
    if program.binary.as_ref().is_some_and(|binary| binary.go) {
        return stays("Go moves its work between threads: they float inside the mask");
    }
    match program.family {
        Some(Family::Jvm) => return stays("the JVM manages its threads: they float inside the mask"),
        Some(Family::Node) => return stays("Node.js manages its threads: they float inside the mask"),
        Some(Family::Launcher) => return stays("it starts other programs: they share the mask"),
        _ => {}
    }
    if let Some(binary) = &program.binary {
        // Their runtimes insist on being the first library, and stop a program where they are not.
        let sanitized =
            |name: &String| ["libasan", "libtsan", "libhwasan"].iter().any(|word| name.starts_with(word));
        if binary.needed.iter().any(sanitized) {
            return stays(
                "it is built with a sanitizer, which bears no preload: threads float inside the mask",
            );
        }
        if (binary.machine, binary.word_size) != (OWN_MACHINE, WordSize::Bits64) {
            return stays(
                "it is for another processor or word size than this trimtab: threads float inside the mask",
            );
        }
    }
    let mask = mode == PinMode::Mask
        || rule.is_some_and(|rule| rule.mask_only)
        || matches!(program.family, Some(Family::Shell | Family::Make));
    Guest::Goes(match (mask, openmp) {
        (true, _) => Pin::Mask,
        // OpenMP's places cover the slots; a second thread on any of them would halve it.
        (_, true) => Pin::Float,
        _ => Pin::Born,
    })
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
    let ours = |path: &&str| Path::new(path).file_name().is_some_and(|name| name == LIBRARY);
    if !all.split([':', ' ']).any(|path| ours(&path)) {
        return Some(all);
    }
    let others: Vec<&str> = all.split([':', ' ']).filter(|path| !path.is_empty() && !ours(path)).collect();
    (!others.is_empty()).then(|| others.join(":"))
}
