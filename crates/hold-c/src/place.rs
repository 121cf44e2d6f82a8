//! Environment of a call: the variables of the process at this moment, and the helper that belongs
//! to this library.

use crate::code::Failure;
use std::path::{Path, PathBuf};
use trimtab_core::handoff::bearer::LIBRARY;
use trimtab_front::process_env::World;
use trimtab_front::sibling::{LAB, find as find_program};

/// File name of the helper that discovers machines.
const HELPER: &str = "trimtab-discover";
/// Places of the helper, from the folder of the library: beside it (a build), and where `make
/// install` and packages put it.
const PLACES: [&str; 4] = ["", "../libexec/trimtab", "../../libexec/trimtab", "../bin"];

/// Places of the preload library, from the folder of this library.
const PRELOAD_PLACES: [&str; 3] = ["", "trimtab", "../trimtab"];
/// Places of the laboratory, which keeps holds for others, from the folder of the library.
const KEEPER_PLACES: [&str; 4] = ["", "../bin", "../../bin", "../../../bin"];

/// Returns the program that keeps a hold for another process: the one that belongs to this library,
/// else the one in `PATH`.
pub(crate) fn keeper() -> Result<PathBuf, Failure> {
    let folder = own_path().and_then(|own| Some(own.parent()?.to_owned()));
    let near = folder.iter().flat_map(|folder| KEEPER_PLACES.map(|place| folder.join(place).join(LAB)));
    match near.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => find_program(LAB).map_err(Failure::unread),
    }
}

/// Reads the environment of the process.
pub(crate) fn world() -> World {
    let helper = own_path().and_then(|own| find(&own));
    World::current().with_helper(helper)
}

/// Returns the preload library that belongs to this library, or the reason why there is none.
pub(crate) fn preload() -> Result<PathBuf, String> {
    let own = own_path().ok_or("the path of libtrimtab is unknown")?;
    find_preload(&own)
}

fn find_preload(library: &Path) -> Result<PathBuf, String> {
    let folder = library.parent().unwrap_or(Path::new("/"));
    let found =
        PRELOAD_PLACES.iter().map(|place| folder.join(place).join(LIBRARY)).find(|path| path.is_file());
    let path = found.ok_or_else(|| format!("{LIBRARY} is not installed beside {}", library.display()))?;
    let path = path.canonicalize().unwrap_or(path);
    // LD_PRELOAD is split at spaces and colons; the loader cannot quote them.
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(format!(
            "{} has a space or colon in its path, which LD_PRELOAD cannot name",
            path.display()
        ));
    }
    Ok(path)
}

/// Returns the helper beside a library.
fn find(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    PLACES.iter().map(|place| folder.join(place).join(HELPER)).find(|path| path.is_file())
}

/// Returns the path of the file that contains this code, from the mappings of the process.
fn own_path() -> Option<PathBuf> {
    let here = own_path as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| mapped_file(line, here))
}

/// Returns the file of a line of `/proc/PID/maps`, if its addresses contain this one.
fn mapped_file(line: &str, address: usize) -> Option<PathBuf> {
    let (range, rest) = line.split_once(' ')?;
    let (begin, end) = range.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let path = &rest[rest.find('/')?..];
    (number(begin)? <= address && address < number(end)?).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_code_is_found() {
        let own = own_path().unwrap();
        assert_eq!(own.canonicalize().unwrap(), std::env::current_exe().unwrap().canonicalize().unwrap());
    }

    #[test]
    fn a_line_of_the_mappings_gives_its_file() {
        let line = "7f0000001000-7f0000003000 r-xp 00001000 fe:00 11  /opt/a b/lib/libtrimtab.so.0";
        let file = |address| mapped_file(line, address);
        assert_eq!(file(0x7f00_0000_1000), Some(PathBuf::from("/opt/a b/lib/libtrimtab.so.0")));
        assert_eq!(file(0x7f00_0000_3000), None);
        for other in ["", "7f-80", "7f0000001000-7f0000003000 rw-p 0 0:0 0 ", "x-y r /a", "1-z r /a"] {
            assert_eq!(mapped_file(other, 0x7f00_0000_1000), None, "{other}");
        }
    }

    #[test]
    fn the_helper_is_found_where_it_is_installed() {
        for (library, helper) in [
            ("lib/libtrimtab.so.0", "libexec/trimtab/trimtab-discover"),
            ("lib/x86_64-linux-gnu/libtrimtab.so.0", "libexec/trimtab/trimtab-discover"),
            ("debug/libtrimtab_hold_c.so", "debug/trimtab-discover"),
        ] {
            let root = tempfile::tempdir().unwrap();
            for path in [library, helper] {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                assert_eq!(find(&root.path().join(library)), None);
                std::fs::write(path, "").unwrap();
            }
            let found = find(&root.path().join(library)).unwrap();
            assert_eq!(found.canonicalize().unwrap(), root.path().join(helper).canonicalize().unwrap());
        }
    }

    #[test]
    fn the_preload_library_is_found_where_it_is_installed() {
        for (library, preload) in [
            ("lib/libtrimtab.so.0", "lib/trimtab/libtrimtab_shim.so"),
            ("lib/x86_64-linux-gnu/libtrimtab.so.0", "lib/trimtab/libtrimtab_shim.so"),
            ("debug/libtrimtab_hold_c.so", "debug/libtrimtab_shim.so"),
        ] {
            let root = tempfile::tempdir().unwrap();
            for path in [library, preload] {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                assert!(find_preload(&root.path().join(library)).is_err());
                std::fs::write(path, "").unwrap();
            }
            let found = find_preload(&root.path().join(library)).unwrap();
            assert_eq!(found, root.path().join(preload).canonicalize().unwrap());
        }
    }
}
