//! Files of declared tags: `*.toml` in one folder, read whole or not at all.
//!
//! The service acts on them with its own rights, so the folder and each file must belong to root or
//! to the service's user, and no one else may write to them.

use glob::Pattern;
use serde::Deserialize;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_linux::users::Users;

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most declarations of all files. Chosen: each is compared with each process.
const DECLARATIONS_MAX: usize = 256;

/// Why the files were not used.
#[derive(Debug, Error)]
pub(crate) enum DeclaredError {
    /// A file or the folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Others could change a file.
    #[error(
        "{} belongs to user {uid} with mode {mode:04o}: it must belong to root or to the service's user, and not be writable by others",
        path.display()
    )]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its mode.
        mode: u32,
    },
    /// A file does not parse.
    #[error("{}, line {line}: {problem}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// Description of the fault.
        problem: String,
    },
    /// There are too many declarations.
    #[error("{} has more than {DECLARATIONS_MAX} declarations in all its files", folder.display())]
    TooMany {
        /// The folder.
        folder: PathBuf,
    },
}

/// A declaration: the processes or virtual machines that are tagged without a request. All stated
/// conditions must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Declaration {
    /// Its place, for people: `solver.toml, line 3`.
    pub(crate) place: String,
    /// Pattern of the program's name, or of its path if the pattern has a slash.
    pub(crate) program: Option<Pattern>,
    /// Its user.
    pub(crate) user: Option<u32>,
    /// Pattern of its control group.
    pub(crate) cgroup: Option<Pattern>,
    /// Pattern of the name of a virtual machine; the other conditions are then about its monitor.
    pub(crate) vm: Option<Pattern>,
    /// The group of the tags.
    pub(crate) group: Option<String>,
    /// Whether the threads are only observed.
    pub(crate) observe: bool,
}

/// A process, as far as declarations ask for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Candidate {
    /// Name of its program, at most 15 bytes, as the kernel keeps it.
    pub(crate) name: String,
    /// Path of its program; `None` if it was not read.
    pub(crate) path: Option<String>,
    /// Its effective user.
    pub(crate) user: u32,
    /// Its control groups, one for each hierarchy.
    pub(crate) cgroups: Vec<String>,
}

impl fmt::Display for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.place)?;
        let patterns = [("program", &self.program), ("cgroup", &self.cgroup), ("vm", &self.vm)];
        for (key, pattern) in patterns {
            if let Some(pattern) = pattern {
                write!(f, " {key} {pattern}")?;
            }
        }
        if let Some(user) = self.user {
            write!(f, " user {user}")?;
        }
        if let Some(group) = &self.group {
            write!(f, ", group {group}")?;
        }
        f.write_str(if self.observe { ", only observed" } else { "" })
    }
}

impl Declaration {
    /// Returns whether two declarations differ at most in their places.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Self { place: other.place.clone(), ..self.clone() } == *other
    }

    /// Returns whether a process meets all conditions but the one about virtual machines.
    pub(crate) fn means(&self, process: &Candidate) -> bool {
        let named = |pattern: &Pattern| match (pattern.as_str().contains('/'), &process.path) {
            (true, path) => path.as_ref().is_some_and(|path| pattern.matches(path)),
            (false, Some(path)) => pattern.matches(path.rsplit('/').next().unwrap_or_default()),
            (false, None) => pattern.matches(&process.name),
        };
        self.program.as_ref().is_none_or(named)
            && self.user.is_none_or(|user| user == process.user)
            && self
                .cgroup
                .as_ref()
                .is_none_or(|pattern| process.cgroups.iter().any(|group| pattern.matches(group)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TagsFile {
    #[serde(default)]
    tag: Vec<toml::Spanned<TagText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TagText {
    program: Option<String>,
    user: Option<toml::Value>,
    cgroup: Option<String>,
    vm: Option<String>,
    group: Option<String>,
    #[serde(default)]
    observe: bool,
}

/// Reads all files of a folder, in the order of their names. A folder that does not exist has none.
/// `own` is the service's user.
///
/// # Errors
/// The first file that cannot be used; then none is.
pub(crate) fn read(folder: &Path, users: &Users, own: u32) -> Result<Vec<Declaration>, DeclaredError> {
    let failed = |path: &Path, source| DeclaredError::Read { path: path.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, error)),
    };
    check(folder, own)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let about = check(&path, own)?;
        if !about.is_file() || about.len() > FILE_BYTES_MAX {
            return Err(failed(&path, std::io::Error::other("it is no file of declared tags")));
        }
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        all.extend(parse(&text, &path, users)?);
        if all.len() > DECLARATIONS_MAX {
            return Err(DeclaredError::TooMany { folder: folder.to_owned() });
        }
    }
    Ok(all)
}

/// Checks that only root and the service's user can change a file or a folder.
fn check(path: &Path, own: u32) -> Result<fs::Metadata, DeclaredError> {
    let about = fs::metadata(path).map_err(|source| DeclaredError::Read { path: path.to_owned(), source })?;
    let (uid, mode) = (about.uid(), about.mode() & 0o7777);
    if (uid != 0 && uid != own) || mode & 0o022 != 0 {
        return Err(DeclaredError::Unsafe { path: path.to_owned(), uid, mode });
    }
    Ok(about)
}

/// Parses the text of a file.
///
/// # Errors
/// [`DeclaredError::Parse`] with the line.
pub(crate) fn parse(text: &str, path: &Path, users: &Users) -> Result<Vec<Declaration>, DeclaredError> {
    let fault = |at: usize, problem: String| DeclaredError::Parse {
        path: path.to_owned(),
        line: line(text, at),
        problem,
    };
    let file: TagsFile = toml::from_str(text)
        .map_err(|error| fault(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut declared = Vec::new();
    for spanned in file.tag {
        let at = spanned.span().start;
        let TagText { program, user, cgroup, vm, group, observe } = spanned.into_inner();
        let pattern = |key: &str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) if text.is_empty() => Err(fault(at, format!("{key} is empty"))),
            Some(text) => Pattern::new(&text)
                .map(Some)
                .map_err(|error| fault(at, format!("{key} {text:?} is not a valid pattern: {}", error.msg))),
        };
        let one = Declaration {
            place: format!("{name}, line {}", line(text, at)),
            program: pattern("program", program)?,
            user: user
                .map(|user| number_of(&user, users).map_err(|problem| fault(at, problem)))
                .transpose()?,
            cgroup: pattern("cgroup", cgroup)?,
            vm: pattern("vm", vm)?,
            group,
            observe,
        };
        if one.program.is_none() && one.user.is_none() && one.cgroup.is_none() && one.vm.is_none() {
            let known = "program, user, cgroup, vm";
            return Err(fault(at, format!("a tag needs at least one condition ({known})")));
        }
        declared.push(one);
    }
    Ok(declared)
}

/// Returns the number of a user that a file names or numbers.
fn number_of(user: &toml::Value, users: &Users) -> Result<u32, String> {
    let number = match user {
        toml::Value::Integer(number) => u32::try_from(*number).ok(),
        toml::Value::String(name) => users.number(name).or_else(|| name.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| format!("user {user} is neither a user of /etc/passwd nor a number"))
}

/// Returns the line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::os::unix::fs::PermissionsExt;

    fn users() -> Users {
        Users::parse(b"root:x:0:0::/:\nann:x:1000:1000::/:\n")
    }

    fn parsed(text: &str) -> Result<Vec<Declaration>, String> {
        parse(text, Path::new("/x/a.toml"), &users()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_conditions_of_a_declaration_must_hold() {
        let text = "[[tag]]\nprogram = 'solver*'\nuser = 'ann'\n\n[[tag]]\ncgroup = '/batch/*'\ngroup = 'b'\n\
                    [[tag]]\nprogram = '/opt/*/run'\n";
        let declared = parsed(text).unwrap();
        let places: Vec<&str> = declared.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["a.toml, line 1", "a.toml, line 5", "a.toml, line 8"]);
        let process = |path: &str, user, group: &str| Candidate {
            name: path.rsplit('/').next().unwrap().chars().take(15).collect(),
            path: Some(path.to_owned()),
            user,
            cgroups: vec!["/".to_owned(), group.to_owned()],
        };
        for (process, expected) in [
            (process("/usr/bin/solver-2", 1000, "/"), [true, false, false]),
            (process("/usr/bin/solver-2", 0, "/"), [false, false, false]),
            (process("/usr/bin/other", 1000, "/batch/7"), [false, true, false]),
            (process("/opt/solver/run", 1000, "/batch"), [false, false, true]),
            (process("/usr/bin/a-solver", 1000, "/x/batch/7"), [false, false, false]),
        ] {
            let means: Vec<bool> = declared.iter().map(|one| one.means(&process)).collect();
            assert_eq!(means, expected, "{process:?}");
        }
        // Without its path, a program has its short name.
        let unread = Candidate { name: "solver".to_owned(), user: 1000, ..Candidate::default() };
        assert!(declared[0].means(&unread) && !declared[2].means(&unread));
    }

    #[test]
    fn faults_are_named_with_file_and_line() {
        for (text, words) in [
            ("[[tag]]\n\n[[tag]]\nprogram = 'x'\n", "line 1: a tag needs at least one condition"),
            ("[[tag]]\nprogram = 'x'\nprogramm = 'y'\n", "line 3: unknown field `programm`"),
            ("\n[[tag]]\nprogram = '[x'\n", "line 2: program \"[x\" is not a valid pattern"),
            ("[[tag]]\nvm = ''\n", "line 1: vm is empty"),
            ("[[tag]]\nuser = 'nobody-here'\n", "line 1: user \"nobody-here\" is neither"),
            ("[[tag]]\nuser = -1\n", "line 1: user -1 is neither"),
            ("[[tag]\n", "line 1"),
            ("tag = 3\n", "line 1"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with("/x/a.toml, ") && error.contains(words), "{text}: {error}");
        }
        assert_eq!(parsed(""), Ok(Vec::new()));
        assert_eq!(parsed("[[tag]]\nuser = 7\n").unwrap()[0].user, Some(7));
        assert_eq!(parsed("[[tag]]\nuser = '7'\n").unwrap()[0].user, Some(7));
    }

    #[test]
    fn only_files_that_no_one_else_can_change_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let own = geteuid().as_raw();
        let read = || read(folder.path(), &users(), own).map_err(|error| error.to_string());
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(folder.path(), 0o755);
        assert_eq!(read(), Ok(Vec::new()));
        let (one, two) = (folder.path().join("2.toml"), folder.path().join("10.toml"));
        fs::write(&one, "[[tag]]\nprogram = 'b'\n").unwrap();
        fs::write(&two, "[[tag]]\nprogram = 'a'\n").unwrap();
        fs::write(folder.path().join("note.txt"), "[[").unwrap();
        let programs: Vec<String> =
            read().unwrap().iter().map(|one| one.program.as_ref().unwrap().to_string()).collect();
        assert_eq!(programs, ["a", "b"]);
        for path in [folder.path(), &one] {
            mode(path, 0o777);
            assert!(read().unwrap_err().contains("writable by others"), "{}", path.display());
            mode(path, 0o755);
        }
        fs::remove_file(&one).unwrap();
        fs::create_dir(&one).unwrap();
        assert!(read().unwrap_err().contains("no file of declared tags"));
        assert_eq!(super::read(&folder.path().join("none"), &users(), own).unwrap(), []);
    }
}
