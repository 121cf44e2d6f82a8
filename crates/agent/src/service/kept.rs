//! Tags by hand, kept in a file beside the socket, so that they survive a restart, an upgrade or a
//! kill of the service. They end with the boot: process numbers mean nothing after it.
//!
//! A kept tag is requested again on behalf of its user and checked as any request: its process must
//! be the same and still be the user's to tag. Tags of guests, of bound threads and of declarations
//! are not kept, since they come back by themselves.
//!
//! Properties: the file is written whole or not at all, and only its owner can write it. A file of
//! another user or of another boot, or one that does not parse, is not used.

use super::resolve::Resolver;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trimtab_core::tags::{By, Mark, Registry, Requester, What};

/// Longest file that is read. Chosen: all tags of a machine, with long paths.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Version of the file.
const VERSION: u32 = 1;

/// A tag by hand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeptTag {
    pub(super) mark: Mark,
    pub(super) uid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct KeptFile {
    version: u32,
    boot: String,
    tags: Vec<KeptTag>,
}

/// The file of tags by hand.
#[derive(Debug)]
pub(super) struct KeptTags {
    path: PathBuf,
    boot: String,
    /// State of the registry that was written last.
    generation: Option<u64>,
    /// The tags that were written; `None` before the first time.
    written: Option<Vec<KeptTag>>,
}

impl KeptTags {
    /// Makes the file of the service at this socket, without reading or writing it yet.
    pub(super) fn beside(socket: &Path, proc: &Path) -> Self {
        let mut name = socket.file_name().unwrap_or_default().to_owned();
        name.push(".tags");
        let boot = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let boot = boot.trim().to_owned();
        Self { path: socket.with_file_name(name), boot, generation: None, written: None }
    }

    /// Reads the tags of an earlier service of this boot and user.
    pub(super) fn read(&self) -> Vec<KeptTag> {
        let read = || -> io::Result<Vec<u8>> {
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let flags = i32::try_from(flags.bits()).unwrap_or(0);
            let file = File::options().read(true).custom_flags(flags).open(&self.path)?;
            let about = file.metadata()?;
            let own = rustix::process::geteuid().as_raw();
            if !about.is_file() || about.uid() != own || about.mode() & 0o022 != 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let mut text = Vec::new();
            file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
            Ok(text)
        };
        let kept = read().ok().and_then(|text| serde_json::from_slice::<KeptFile>(&text).ok());
        let kept = kept.filter(|kept| kept.version == VERSION && kept.boot == self.boot);
        kept.map(|kept| kept.tags).unwrap_or_default()
    }

    /// Returns the tags by hand, if they may have changed since they were last returned.
    pub(super) fn changed(&mut self, registry: &Registry) -> Option<Vec<KeptTag>> {
        if self.generation == Some(registry.generation()) {
            return None;
        }
        self.generation = Some(registry.generation());
        Some(registry.tags().filter_map(|(_, tag)| by_hand(tag)).collect())
    }

    /// Writes the tags by hand, if they differ from those in the file.
    ///
    /// # Errors
    /// The file cannot be written; it is tried again after the next change.
    pub(super) fn write(&mut self, tags: Vec<KeptTag>) -> io::Result<()> {
        if self.written.as_ref() == Some(&tags) {
            return Ok(());
        }
        let file = KeptFile { version: VERSION, boot: self.boot.clone(), tags };
        if file.tags.is_empty() {
            self.remove();
        } else {
            let text = serde_json::to_vec(&file).map_err(io::Error::other)?;
            self.replace(&text)?;
        }
        self.written = Some(file.tags);
        Ok(())
    }

    /// Removes the file: the tags are not meant to come back.
    pub(super) fn remove(&mut self) {
        self.written = None;
        // A file that does not exist need not be removed.
        let _ = fs::remove_file(&self.path);
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.path.with_file_name(name);
        // Left by a service that was killed while it wrote.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(text).and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// Returns a tag as it is kept; `None` if no user made it.
fn by_hand(tag: &trimtab_core::tags::Tag) -> Option<KeptTag> {
    match tag.by {
        By::User(uid) => Some(KeptTag { mark: tag.mark.clone(), uid, group: tag.group.clone() }),
        By::Guest(_) | By::Pinned | By::Declared(_) => None,
    }
}

impl KeptTag {
    /// Returns the request that made the tag, if its object still exists: the same process, thread
    /// or group, and still the user's to tag.
    pub(super) fn wanted(&self, resolver: &Resolver) -> Option<(Requester, What)> {
        let user = Requester { uid: self.uid };
        let what = match &self.mark {
            Mark::Process { pid, .. } => What::Process { pid: *pid },
            Mark::Thread { pid, tid, .. } => What::Thread { pid: *pid, tid: *tid },
            Mark::Cgroup(path) => What::Cgroup(path.clone()),
            Mark::Vm { pid, .. } | Mark::Vcpu { pid, .. } => What::Vm(pid.to_string()),
        };
        let same = match &self.mark {
            Mark::Vm { pid, start, .. } | Mark::Vcpu { pid, start, .. } => {
                resolver.process(*pid).is_ok_and(|(_, now)| now == *start)
            }
            mark => resolver.mark(&what, user).is_ok_and(|(now, _)| now == *mark),
        };
        same.then_some((user, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use trimtab_core::tags::{Owner, Reach};
    use trimtab_core::time::Moment;

    fn tagged(registry: &mut Registry, uid: u32, pid: u32, start: u64) {
        let owner = Some(Owner { pid, real: uid, effective: uid });
        let mark = Mark::Process { pid, start };
        registry.tag(Requester { uid }, mark, owner, None, Moment(1)).unwrap();
    }

    fn kept_of(registry: &Registry) -> Vec<KeptTag> {
        registry.tags().filter_map(|(_, tag)| by_hand(tag)).collect()
    }

    #[test]
    fn tags_by_hand_are_read_back_and_others_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut kept = KeptTags::beside(&socket, Path::new("/proc"));
        assert_eq!(kept.read(), []);
        let mut registry = Registry::new(Reach::All);
        tagged(&mut registry, 1_000, 7, 3);
        let by = By::Guest("web".to_owned());
        let vcpu = Mark::Vcpu { vm: "web".to_owned(), pid: 9, start: 1, index: 0 };
        registry.tag_by(by, vcpu, Moment(1)).unwrap();
        kept.write(kept_of(&registry)).unwrap();
        let mark = Mark::Process { pid: 7, start: 3 };
        let tags = [KeptTag { mark, uid: 1_000, group: None }];
        assert_eq!(KeptTags::beside(&socket, Path::new("/proc")).read(), tags);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Another boot.
        let other = KeptTags { boot: "other".to_owned(), ..KeptTags::beside(&socket, Path::new("/proc")) };
        assert_eq!(other.read(), []);
        // Without tags there is no file.
        registry.clear(Requester { uid: 1_000 }, None, Moment(2));
        kept.write(kept_of(&registry)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_that_others_could_write_and_links_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut kept = KeptTags::beside(&socket, Path::new("/proc"));
        let mut registry = Registry::new(Reach::All);
        tagged(&mut registry, 1_000, 7, 3);
        kept.write(kept_of(&registry)).unwrap();
        let path = folder.path().join("socket.tags");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(kept.read(), []);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(kept.read().len(), 1);
        let moved = folder.path().join("elsewhere");
        fs::rename(&path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        assert_eq!(kept.read(), []);
        fs::remove_file(&path).unwrap();
        for rubbish in ["", "{}", "[[[[", "{\"version\":9,\"boot\":\"\",\"tags\":[]}"] {
            fs::write(&path, rubbish).unwrap();
            assert_eq!(kept.read(), [], "{rubbish}");
        }
    }

    #[test]
    fn only_the_same_process_is_tagged_again() {
        let resolver =
            Resolver { proc: "/proc".into(), sys: "/sys".into(), cgroups: "/sys/fs/cgroup".into() };
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let (_, start) = resolver.process(pid).unwrap();
        let tag = |start| KeptTag { mark: Mark::Process { pid, start }, uid: 0, group: None };
        assert_eq!(tag(start).wanted(&resolver), Some((Requester { uid: 0 }, What::Process { pid })));
        assert_eq!(tag(start + 1).wanted(&resolver), None, "another process with its number");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tag(start).wanted(&resolver), None);
    }
}
