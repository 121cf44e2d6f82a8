//! The script of a hook in the engine's folder.

use crate::engine::HookEngine;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Second line of a script that this program wrote.
const MARK: &str = "# Written by `trimtab hook --install`. It is replaced by the next one.";
/// Most bytes that are read of a file to learn whether it is this program's.
const HEAD: u64 = 4_096;

/// Returns the file of an engine's hook.
///
/// # Errors
/// The engine calls no hook.
pub fn place(root: &Path, engine: HookEngine) -> Result<PathBuf> {
    match engine {
        HookEngine::Libvirt => Ok(root.join("etc/libvirt/hooks/qemu.d/trimtab")),
        HookEngine::Proxmox => Ok(root.join("var/lib/vz/snippets/trimtab")),
        HookEngine::Incus => {
            bail!("Incus calls no hook: run `trimtab hook incus` as a service, which follows its events")
        }
    }
}

/// Returns the script. It starts `trimtab` and lets the guest start whatever happens to it; only
/// the refusal of a guest whose cores are required stops the guest.
///
/// # Errors
/// The path of the program cannot be part of a script.
pub fn script(engine: HookEngine, program: &Path) -> Result<String> {
    let path = program.to_str().filter(|path| !path.contains(['\'', '\n']));
    let path = path.with_context(|| format!("{} cannot be named in a script", program.display()))?;
    Ok(format!(
        "#!/bin/sh\n{MARK}\n\
         # A guest starts without cores of its own if trimtab is missing or fails. Status 1 is the\n\
         # refusal of a guest whose cores are required (hook.toml).\n\
         [ -x '{path}' ] || exit 0\n\
         '{path}' hook {} --engine-pid \"$PPID\" -- \"$@\"\n\
         [ $? -ne 1 ]\n",
        engine.word()
    ))
}

/// Writes the script, and returns its file.
///
/// # Errors
/// It cannot be written, or the file there is not this program's.
pub fn install(root: &Path, engine: HookEngine, program: &Path) -> Result<PathBuf> {
    let (path, text) = (place(root, engine)?, script(engine, program)?);
    if is_own(&path)? == Some(false) {
        bail!("{} is not trimtab's, and is left as it is: move it away first", path.display());
    }
    let folder = path.parent().context("the hook has no folder")?;
    let written = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        // libvirt runs the executable files of the folder: this one when it is complete.
        let new = folder.join(format!(".trimtab.{}", std::process::id()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        let done = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, &path));
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done.and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o755)))
    };
    written().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Removes the script, and returns its file; `None` if there is none.
///
/// # Errors
/// It cannot be removed, or is not this program's.
pub fn uninstall(root: &Path, engine: HookEngine) -> Result<Option<PathBuf>> {
    let path = place(root, engine)?;
    match is_own(&path)? {
        None => Ok(None),
        Some(false) => bail!("{} is not trimtab's, and is left as it is", path.display()),
        Some(true) => {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            Ok(Some(path))
        }
    }
}

/// Returns whether a file is this program's; `None` if there is none.
fn is_own(path: &Path) -> Result<Option<bool>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(about) if !about.is_file() => return Ok(Some(false)),
        _ => {}
    }
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(String::from_utf8_lossy(&head).lines().nth(1) == Some(MARK)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_written_replaced_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for engine in [HookEngine::Libvirt, HookEngine::Proxmox] {
            for program in ["/usr/bin/trimtab", "/opt/a b/trimtab"] {
                let path = install(root, engine, Path::new(program)).unwrap();
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.contains(&format!("'{program}' hook {}", engine.word())), "{text}");
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
            }
            assert_eq!(uninstall(root, engine).unwrap(), Some(place(root, engine).unwrap()));
            assert_eq!(uninstall(root, engine).unwrap(), None);
        }
        assert!(install(root, HookEngine::Incus, Path::new("/usr/bin/trimtab")).is_err());
        assert!(script(HookEngine::Libvirt, Path::new("/a'b")).is_err());
    }

    #[test]
    fn a_file_of_others_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = place(root.path(), HookEngine::Libvirt).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let tell = |path: &Path| {
            let written = install(root.path(), HookEngine::Libvirt, Path::new("/usr/bin/trimtab"));
            let removed = uninstall(root.path(), HookEngine::Libvirt);
            assert!(written.is_err() && removed.is_err(), "{}", path.display());
        };
        fs::write(&path, "#!/bin/sh\necho mine\n").unwrap();
        tell(&path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "#!/bin/sh\necho mine\n");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        tell(&path);
    }
}
