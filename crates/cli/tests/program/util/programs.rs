//! Programs that tests run: the program under test, installed ones, and those built for the test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Returns the program that users run, with its siblings beside it.
pub(crate) fn trimtab() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join("trimtab"))
}

/// Returns the laboratory, with its siblings beside it.
pub(crate) fn lab() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join("trimtab-lab"))
}

/// Returns the folder in which Cargo puts the programs. Missing programs are built.
fn folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = option_env!("CARGO_BIN_EXE_trimtab").or(option_env!("CARGO_BIN_EXE_trimtab-lab"));
        let folder = Path::new(own.unwrap()).parent().unwrap().to_owned();
        let missing = || PARTS.iter().any(|(file, _)| !folder.join(file).exists());
        if missing() {
            let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
            cargo.args(["build", "--quiet", "--target-dir"]).arg(folder.parent().unwrap());
            cargo.args(PARTS.iter().flat_map(|(_, package)| ["-p", package]));
            cargo.args((!cfg!(debug_assertions)).then_some("--release"));
            let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
            let files = PARTS.map(|(file, _)| file);
            let shown = folder.display();
            assert!(!missing(), "{files:?} should lie in {shown}: run cargo build --workspace ({built:?})");
        }
        folder
    })
}

/// The files that must lie beside each other, with the packages that they are built from.
pub(super) const PARTS: [(&str, &str); 5] = [
    ("trimtab", "trimtab"),
    ("trimtab-lab", "trimtab-lab"),
    ("trimtab-discover", "trimtab-discover"),
    ("libtrimtab_shim.so", "trimtab-shim"),
    ("libtrimtab_shim_blas.so", "trimtab-shim-blas"),
];

/// Returns an installed program.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns Python itself, not a script that searches for it.
pub(crate) fn python() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let output =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        (output.status.success() && path.is_file()).then_some(path)
    };
    FOUND.get_or_init(find).clone()
}

/// Returns the search path of programs, limited to directories that this user may read: closed
/// directories are another test's topic.
pub(super) fn search_path() -> OsString {
    let all = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::join_paths(std::env::split_paths(&all).filter(|folder| fs::read_dir(folder).is_ok())).unwrap()
}

/// Builds a program of `c/` with this compiler and these flags, if an empty program can be built.
pub(crate) fn built(compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/program/c").join(source);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    fs::create_dir_all(&folder).unwrap();
    let name = format!("{}-{compiler}{}", source.file_stem().unwrap().to_string_lossy(), flags.concat());
    let built = folder.join(name.replace('/', "_"));
    let age = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    // A key of all sources, since some include others.
    let sources = fs::read_dir(source.parent().unwrap()).unwrap();
    if age(&built) > sources.map(|entry| age(&entry.unwrap().path())).max().flatten() {
        return Some(built);
    }
    let draft = folder.join(format!("draft-{}", std::process::id()));
    let build = |source: &Path| Command::new(compiler).arg("-o").arg(&draft).arg(source).args(flags).output();
    let output = build(&source).ok()?;
    if !output.status.success() {
        let language = source.extension().unwrap().to_string_lossy();
        let nothing = if language == "f90" { "end program" } else { "int main(void) { return 0; }" };
        let empty = folder.join(format!("empty-{}.{language}", std::process::id()));
        fs::write(&empty, nothing).unwrap();
        let probe = build(&empty).unwrap();
        assert!(!probe.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    fs::rename(&draft, &built).unwrap();
    Some(built)
}

/// Builds a C program with threads.
pub(crate) fn c(source: &str) -> Option<PathBuf> {
    built("cc", source, &["-O1", "-pthread"])
}

/// Returns the folder in which all tests keep the machine's model, so that it is discovered once.
pub(super) fn cache() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}
