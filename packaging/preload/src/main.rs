//! `trimtab-preload`: puts trimtab's preload libraries where an installation by cargo finds them.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Libraries by their file names. `build.rs` names the files.
const LIBRARIES: [(&str, &[u8]); 2] = [
    ("libtrimtab_shim.so", include_bytes!(env!("TRIMTAB_PRELOAD"))),
    ("libtrimtab_shim_blas.so", include_bytes!(env!("TRIMTAB_PRELOAD_BLAS"))),
];

const HELP: &str = "\
Puts trimtab's preload libraries where `trimtab` finds them: in lib/trimtab beside the folder of this program.

Usage: trimtab-preload [--to DIR] [--check | --remove]

Options:
      --to DIR   the folder for the libraries [default: ../lib/trimtab, from the folder of this program]
      --check    only say whether they are there and are those of this version; exit status 1 if not
      --remove   remove them, and their folder if it is then empty
  -h, --help     print this
  -V, --version  print the version
";

/// What to do with the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Put,
    Check,
    Remove,
}

/// What the arguments say.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Prints a text.
    Say(&'static str),
    /// Does something in a folder; without one in that of the installation.
    Do(Task, Option<PathBuf>),
}

/// Reads the arguments.
///
/// # Errors
///
/// An unknown argument, a folder that is missing, or two tasks.
fn request(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Request, String> {
    let (mut task, mut folder, mut arguments) = (None, None, arguments.into_iter());
    while let Some(word) = arguments.next() {
        match word.to_str() {
            Some("-h" | "--help") => return Ok(Request::Say(HELP)),
            Some("-V" | "--version") => {
                return Ok(Request::Say(concat!("trimtab-preload ", env!("CARGO_PKG_VERSION"), "\n")));
            }
            Some("--to") => folder = Some(PathBuf::from(arguments.next().ok_or("--to needs a folder")?)),
            Some(name @ ("--check" | "--remove")) if task.is_none() => {
                task = Some(if name == "--check" { Task::Check } else { Task::Remove });
            }
            _ => return Err(format!("unexpected argument {word:?} (trimtab-preload --help)")),
        }
    }
    Ok(Request::Do(task.unwrap_or(Task::Put), folder))
}

/// Returns where `trimtab` looks, which lies beside this program.
fn folder_of_installation() -> Result<PathBuf, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let root =
        own.parent().and_then(Path::parent).ok_or("this program lies in no folder of an installation")?;
    Ok(root.join("lib/trimtab"))
}

/// Puts a file in place when it is whole: programs that run keep the one that they have loaded.
fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    let written =
        write_new(&unfinished, content).and_then(|()| std::fs::rename(&unfinished, folder.join(name)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    // Never through a link that is there.
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(content)?;
    // Other users of the machine may use the installation, whatever mask this user has.
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()
}

/// Says whether a file is the library of this version.
fn check(folder: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(found) if found == content => Ok(()),
        Ok(_) => Err(format!(
            "{} is not that of {}: run trimtab-preload",
            path.display(),
            env!("CARGO_PKG_VERSION")
        )),
        Err(error) => Err(format!("{}: {error}: run trimtab-preload", path.display())),
    }
}

/// Carries out a task, and returns the lines to print.
fn carry_out(task: Task, folder: &Path) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for (name, content) in LIBRARIES {
        let path = folder.join(name);
        let remedy = |error: io::Error| format!("{}: {error}: name another folder with --to", path.display());
        match task {
            Task::Put => put(folder, name, content).map_err(remedy)?,
            Task::Check => check(folder, name, content)?,
            Task::Remove => match std::fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                removed => removed.map_err(remedy)?,
            },
        }
        lines.push(match task {
            Task::Put => format!("installed {}", path.display()),
            Task::Check => format!("{} is that of {}", path.display(), env!("CARGO_PKG_VERSION")),
            Task::Remove => format!("removed {}", path.display()),
        });
    }
    if task == Task::Remove {
        // It stays if something else is in it.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(lines)
}

fn main() -> ExitCode {
    let request = match request(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("trimtab-preload: {message}");
            return ExitCode::from(2);
        }
    };
    let done = match request {
        Request::Say(text) => Ok(vec![text.trim_end().to_owned()]),
        Request::Do(task, folder) => {
            folder.map_or_else(folder_of_installation, Ok).and_then(|folder| carry_out(task, &folder))
        }
    };
    match done {
        Ok(lines) => {
            for line in lines {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("trimtab-preload: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Request, String> {
        request(text.split_whitespace().map(Into::into))
    }

    #[test]
    fn arguments_are_read_or_refused() {
        assert_eq!(words(""), Ok(Request::Do(Task::Put, None)));
        assert_eq!(words("--remove --to /a"), Ok(Request::Do(Task::Remove, Some("/a".into()))));
        assert_eq!(words("--check"), Ok(Request::Do(Task::Check, None)));
        assert!(matches!(words("-V"), Ok(Request::Say(text)) if text.contains(env!("CARGO_PKG_VERSION"))));
        for wrong in ["--to", "--check --remove", "install", "--to=/a"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn libraries_are_put_checked_and_removed() {
        let folder =
            std::env::temp_dir().join(format!("trimtab-preload-{}", std::process::id())).join("lib/trimtab");
        assert!(carry_out(Task::Check, &folder).is_err());
        assert_eq!(carry_out(Task::Remove, &folder), Ok(Vec::new()));
        for _ in 0..2 {
            assert_eq!(carry_out(Task::Put, &folder).map(|lines| lines.len()), Ok(2));
            assert!(carry_out(Task::Check, &folder).is_ok());
        }
        for (name, content) in LIBRARIES {
            assert!(content.starts_with(b"\x7fELF"), "{name}");
            let path = folder.join(name);
            assert_eq!(
                std::fs::metadata(&path).map(|meta| meta.permissions().mode() & 0o777).ok(),
                Some(0o644)
            );
            std::fs::write(&path, "another").expect("the file of the test");
            assert!(carry_out(Task::Check, &folder).is_err_and(|message| message.contains(name)));
            assert!(put(&folder, name, content).is_ok());
        }
        assert_eq!(carry_out(Task::Remove, &folder).map(|lines| lines.len()), Ok(2));
        assert!(!folder.exists());
        let root = folder.ancestors().nth(2).expect("the folder of the test");
        std::fs::remove_dir_all(root).expect("the folder of the test");
    }
}
