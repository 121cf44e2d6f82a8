//! Names the shared libraries that cargo has made of the build-dependencies, so that the program
//! can contain them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

fn main() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    // Build-dependencies are built for this machine's processor.
    let (host, target) = (variable("HOST")?, variable("TARGET")?);
    if host != target {
        return Err(format!(
            "the preload libraries are built for {host} here, not for {target}: build the crate on such a machine, \
             or take a release archive of trimtab"
        ));
    }
    let own = std::env::current_exe().map_err(|error| format!("the build script's own path: {error}"))?;
    // TARGET_DIRECTORY/PROFILE/build/PACKAGE-HASH/build-script-build
    let folder = own.ancestors().nth(3).ok_or("the build script is not in a folder of cargo's")?.join("deps");
    for (library, variable) in
        [("libtrimtab_shim", "TRIMTAB_PRELOAD"), ("libtrimtab_shim_blas", "TRIMTAB_PRELOAD_BLAS")]
    {
        let path = newest(&folder, library)?;
        println!("cargo::rustc-env={variable}={}", path.display());
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Ok(())
}

/// Returns the newest file `NAME.so` or `NAME-HASH.so`: cargo adds a hash to libraries of crates
/// from a registry.
fn newest(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found: Option<(SystemTime, PathBuf)> = None;
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let rest = file.strip_prefix(name).and_then(|rest| rest.strip_suffix(".so"));
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
            continue;
        }
        let time =
            entry.metadata().and_then(|meta| meta.modified()).map_err(|error| format!("{file}: {error}"))?;
        if found.as_ref().is_none_or(|(newest, _)| time > *newest) {
            found = Some((time, entry.path()));
        }
    }
    let (_, path) = found.ok_or_else(|| {
        format!(
            "{name}.so is not in {}: this version of cargo puts shared libraries elsewhere",
            folder.display()
        )
    })?;
    Ok(path)
}
