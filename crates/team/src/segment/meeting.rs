//! Meeting: the places at which the ranks of a job find their host, derived from the job's name.
//!
//! **Problem.** A path in the folder for temporary files depends on `TMPDIR`, which ranks may have
//! set differently, and another user can take its name first. An abstract socket (a name without a
//! file) depends on neither, but belongs to a network namespace, and any user can take its name.
//!
//! **Idea.** The host listens at the path and at an abstract name, and a rank tries both. Each
//! checks that the other is of its user. If another user has the folder or a name, the other places
//! remain; of abstract names there are several. An abstract name includes the PID namespace, so
//! that jobs of containers that share a network stay apart.

use super::memfd::Mapping;
use super::socket::{Host, connect, join_any, ours_alone, same_user};
use crate::{Error, Result};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_core::hash::fnv1a_hex;

/// Abstract names of a job, used in turn if another user has one.
const NAMES: usize = 4;

/// The places at which ranks find their host.
///
/// # Examples
/// ```
/// use trimtab_team::segment::meeting::Meeting;
///
/// let key = format!("example-{}", std::process::id());
/// let meeting = Meeting::of_job(&key);
/// assert!(!meeting.is_hosted());
/// let host = meeting.listen()?;
/// assert!(meeting.is_hosted());
/// assert!(meeting.listen().is_err()); // One host for each job.
/// # Ok::<(), trimtab_team::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The path, or the reason why there is none.
    path: Result<PathBuf>,
    names: Vec<String>,
}

impl Meeting {
    /// Returns the meeting at a path alone.
    pub fn at(path: &Path) -> Self {
        Self { path: Ok(path.to_owned()), names: Vec::new() }
    }

    /// Returns the meeting of the job of this name. Makes this user's folder for it.
    pub fn of_job(key: &str) -> Self {
        let (user, name) = (rustix::process::geteuid().as_raw(), fnv1a_hex(key.as_bytes()));
        // Containers on one network may have jobs of the same name.
        let whose = format!("trimtab-team-{user}-{}", crate::liveness::namespace());
        let names = (0..NAMES).map(|number| format!("{whose}-{name}-{number}")).collect();
        Self { path: place(&name), names }
    }

    /// Listens at these places.
    ///
    /// # Errors
    /// `Refused` if a host listens there already, or there is no place at which this user can
    /// listen.
    pub fn listen(&self) -> Result<Host> {
        let mut host = match &self.path {
            Ok(path) => Some(Host::listen(path)?),
            Err(_) => None,
        };
        for name in &self.names {
            match bind(name) {
                Ok(listener) => {
                    match &mut host {
                        Some(host) => host.also(listener),
                        None => host = Some(Host::of(listener)),
                    }
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    if self.is_own(name) {
                        return Err(Error::Refused(format!("a host listens at {self} already")));
                    }
                }
                // A filter may forbid it.
                Err(_) => break,
            }
        }
        host.ok_or_else(|| match &self.path {
            Err(why) => Error::Refused(format!("{why}; the abstract sockets of this job are taken, too")),
            Ok(_) => Error::Refused("no place to listen at".to_owned()),
        })
    }

    /// Returns whether a host of this user listens at a name.
    fn is_own(&self, name: &str) -> bool {
        address(name).is_ok_and(|at| connect(&at).is_ok_and(|stream| same_user(&stream).is_ok()))
    }

    /// Returns whether a host listens. The connection that is made for it is closed at once, which
    /// costs the host nothing.
    pub fn is_hosted(&self) -> bool {
        self.addresses()
            .is_ok_and(|all| all.iter().any(|at| connect(at).is_ok_and(|peer| same_user(&peer).is_ok())))
    }

    /// Gets the segment, and a rank in it, from the host; waits for the host to begin.
    ///
    /// # Errors
    /// As [`join`](super::socket::join).
    pub fn join(&self, wanted: Option<u32>, limit: Duration) -> Result<(Mapping, u32)> {
        join_any(&self.addresses()?, &self.to_string(), wanted, limit)
    }

    fn addresses(&self) -> Result<Vec<SocketAddrUnix>> {
        let failed = |e: Errno| Error::system("making an address to meet at", e);
        let path = self.path.iter().map(|path| SocketAddrUnix::new(path.as_path()));
        path.chain(self.names.iter().map(|name| address(name)))
            .collect::<std::result::Result<_, Errno>>()
            .map_err(failed)
    }
}

impl std::fmt::Display for Meeting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.path, self.names.first()) {
            (Ok(path), None) => write!(out, "{}", path.display()),
            (Ok(path), Some(name)) => write!(out, "{} and the abstract socket {name}", path.display()),
            (Err(_), Some(name)) => write!(out, "the abstract socket {name}"),
            (Err(why), None) => write!(out, "no place ({why})"),
        }
    }
}

fn address(name: &str) -> std::result::Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

fn bind(name: &str) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the folder in which this user's jobs meet: in the session's runtime folder, which other
/// users cannot enter, else in the folder for temporary files, where they could take the name.
fn folder(runtime: Option<PathBuf>, temporary: &Path, user: u32) -> PathBuf {
    let runtime = runtime.filter(|runtime| runtime.is_absolute()).map(|runtime| runtime.join("trimtab-team"));
    match runtime.filter(|folder| ours_alone(folder).is_ok()) {
        Some(folder) => folder,
        None => temporary.join(format!("trimtab-team-{user}")),
    }
}

/// Returns the path of this name in this user's own folder, which is made if it is missing.
fn place(name: &str) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let own = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder(runtime, &std::env::temp_dir(), own);
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::System { what: "making a folder to meet in", why: e.to_string() });
        }
        _ => {}
    }
    let path = folder.join(name);
    ours_alone(&path)?;
    Ok(path)
}

#[cfg(all(test, not(any(trimtab_model, miri))))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_of_jobs_is_closed_to_other_users() {
        let temporary = Path::new("/tmp");
        let own = tempfile::tempdir().unwrap();
        let set = |mode| std::fs::set_permissions(own.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let chosen = |runtime: &Path| folder(Some(runtime.to_owned()), temporary, 7);
        let usual = temporary.join("trimtab-team-7");
        set(0o700);
        assert_eq!(chosen(own.path()), own.path().join("trimtab-team"));
        // Other users can enter it.
        set(0o755);
        assert_eq!(chosen(own.path()), usual);
        assert_eq!(chosen(&own.path().join("missing")), usual);
        assert_eq!(chosen(Path::new("relative")), usual);
        assert_eq!(folder(None, temporary, 7), usual);
    }

    fn meeting(name: &str, path: Result<PathBuf>) -> Meeting {
        let names = (0..2).map(|number| format!("{name}-{}-{number}", std::process::id())).collect();
        Meeting { path, names }
    }

    fn refused() -> Error {
        Error::Refused("another user has the folder".to_owned())
    }

    #[test]
    fn a_host_without_a_folder_is_found_by_its_name() {
        let meeting = meeting("trimtab-test-nameless", Err(refused()));
        let host = meeting.listen().unwrap();
        assert!(meeting.is_hosted());
        let second = meeting.listen().map(|_| ()).unwrap_err().to_string();
        assert!(second.contains("already") && second.contains("abstract socket"), "{second}");
        drop(host);
        assert!(!meeting.is_hosted());
    }

    #[test]
    fn ranks_with_different_folders_find_each_other() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |folder: &tempfile::TempDir| meeting("trimtab-test-folders", Ok(folder.path().join("team")));
        for folder in [&one, &two] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let host = at(&one).listen().unwrap();
        assert!(at(&two).is_hosted());
        assert!(at(&two).listen().is_err());
        // By the path alone, as from another network namespace.
        let by_path = Meeting::at(&one.path().join("team"));
        assert!(by_path.is_hosted() && !Meeting::at(&two.path().join("team")).is_hosted());
        drop(host);
        // A child that another test has just forked has the sockets until it executes its program.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while at(&two).is_hosted() || by_path.is_hosted() {
            assert!(std::time::Instant::now() < limit, "the meeting is still hosted");
            std::thread::yield_now();
        }
    }
}
