//! Shared memory that no process can take away from the others: a memfd, sealed against shrinking,
//! mapped by each of them.
//!
//! **Problem.** If a peer truncates a file, every other peer's next access is a SIGBUS; so is an
//! access when memory is short.
//!
//! **Idea.** Space is reserved and filled when the segment is made, so lack of memory is an error
//! there; then the size is sealed. A descriptor from a peer is trusted only after its seals have
//! been read.
use crate::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bytes that are mapped of a peer's segment.
pub const BYTES_MAX: usize = 1 << 40;

/// Mapped pages, unmapped on drop.
#[derive(Debug)]
struct MappedPages {
    base: *mut u8,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; accesses to it argue their own case.
unsafe impl Send for MappedPages {}
// SAFETY: as above; only the address and the length are read through a shared reference.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    fn map(fd: &OwnedFd, len: usize, prot: ProtFlags) -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use by
        // Rust.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }
            .map_err(|e| Error::system("mmap of a segment", e))?;
        Ok(Self { base: base.cast(), len })
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; every user of its memory holds the owner of
        // these pages.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// A sealed memfd, mapped shared for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    pages: MappedPages,
    fd: OwnedFd,
}

/// Returns the bytes of a page.
fn page_bytes() -> usize {
    // SAFETY: a number in, a number out.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn memfd(bytes: usize) -> Result<(OwnedFd, usize)> {
    let lack = |why: String| Error::NoMemory { bytes, why };
    let page = page_bytes();
    let len = bytes.checked_next_multiple_of(page).filter(|&l| l > 0 && l <= BYTES_MAX);
    let len =
        len.ok_or_else(|| Error::Argument(format!("a segment has 1 to {BYTES_MAX} bytes, not {bytes}")))?;
    if let Some(room) = room().filter(|&room| (len as u64) > room) {
        return Err(lack(format!("{room} bytes are available")));
    }
    // Beyond this limit the kernel would end the program with SIGXFSZ.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if let Some(limit) = limit.filter(|&limit| len as u64 > limit) {
        return Err(lack(format!(
            "the limit of file sizes is {limit} bytes, and counts for shared memory: raise it (ulimit -f, RLIMIT_FSIZE)"
        )));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("trimtab-team", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create("trimtab-team", flags))
        .map_err(|e| Error::system("memfd_create", e))?;
    rustix::fs::ftruncate(&fd, len as u64).map_err(|e| lack(e.to_string()))?;
    // For shared memory, fallocate makes the pages themselves, and fails if there are none.
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len as u64)
        .map_err(|e| lack(e.to_string()))?;
    Ok((fd, len))
}

fn populate(pages: &MappedPages) -> Result<()> {
    // SAFETY: the range is a mapping of this process; the advice fills its page tables and changes
    // no content.
    let rc = unsafe { libc::madvise(pages.base.cast(), pages.len, libc::MADV_POPULATE_WRITE) };
    if rc == 0 {
        return Ok(());
    }
    let e = std::io::Error::last_os_error();
    match e.raw_os_error() {
        // Kernels before 5.14 do not have it: the pages exist, only their first use is slower.
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => Ok(()),
        _ => Err(Error::NoMemory { bytes: pages.len, why: e.to_string() }),
    }
}

impl Mapping {
    /// Makes a segment of at least `bytes` bytes, all zero, rounded up to pages, with its memory
    /// present and its size sealed.
    ///
    /// # Errors
    /// `NoMemory` if it does not fit in the machine or the control group; `Argument` for 0 or too
    /// many bytes.
    pub fn create(bytes: usize) -> Result<Self> {
        let (fd, len) = memfd(bytes)?;
        let pages = MappedPages::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        populate(&pages)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| Error::system("sealing a segment", e))?;
        Ok(Self { pages, fd })
    }

    /// Maps a segment that a peer passed.
    ///
    /// # Errors
    /// `NotATeam` unless it is a memfd with a sealed size, of 1 to [`BYTES_MAX`] bytes.
    pub fn adopt(fd: OwnedFd) -> Result<Self> {
        let len = sealed(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let pages = MappedPages::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { pages, fd })
    }

    /// Returns the address of the first byte; page-aligned.
    pub fn base(&self) -> *mut u8 {
        self.pages.base
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.pages.len
    }

    /// Returns the descriptor, to pass on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the size of a memfd that has these seals.
fn sealed(fd: &OwnedFd, wanted: SealFlags) -> Result<usize> {
    let no = |why: &str| Error::NotATeam(why.to_owned());
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| no("the descriptor is not a memfd"))?;
    if !seals.contains(wanted) {
        return Err(no("its size or content could still be changed"));
    }
    let stat = rustix::fs::fstat(fd).map_err(|e| Error::system("fstat of a segment", e))?;
    usize::try_from(stat.st_size)
        .ok()
        .filter(|&l| l > 0 && l <= BYTES_MAX && l.is_multiple_of(page_bytes()))
        .ok_or_else(|| no("its size is out of bounds"))
}

/// Memory that its owner writes and all other processes can only read.
#[derive(Debug)]
pub struct Published(Mapping);

impl Published {
    /// Makes at least `bytes` bytes, zero, writable by this mapping alone.
    ///
    /// # Errors
    /// As [`Mapping::create`]; `System` if the kernel (before 5.1) has no such seal.
    pub fn create(bytes: usize) -> Result<Self> {
        let (fd, len) = memfd(bytes)?;
        let pages = MappedPages::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        populate(&pages)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(|e| Error::system("sealing a view", e))?;
        Ok(Self(Mapping { pages, fd }))
    }

    /// Returns the address of the owner's first byte.
    pub fn base(&self) -> *mut u8 {
        self.0.base()
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the descriptor, to pass to readers.
    pub fn view_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// Memory that another process published, mapped for reading.
#[derive(Debug)]
pub struct View(MappedPages);

impl View {
    /// Maps published memory that a peer passed.
    ///
    /// # Errors
    /// `NotATeam` unless size and future writing are sealed.
    pub fn adopt(fd: OwnedFd) -> Result<Self> {
        let len = sealed(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        Ok(Self(MappedPages::map(&fd, len, ProtFlags::READ)?))
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> *const u8 {
        self.0.base
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }
}

fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the bytes that the machine and this process's control groups can still give, if these
/// are known. A group's file cache can be reclaimed and counts as free here: only clear cases are
/// refused.
fn room() -> Option<u64> {
    let mem = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut least = mem;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, limit, used) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            k if k.split(',').any(|k| k == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let mut at = path.trim_end_matches('/');
        loop {
            let dir = format!("{root}{at}");
            if let (Some(limit), Some(used)) =
                (number(&format!("{dir}/{limit}")), number(&format!("{dir}/{used}")))
            {
                let stat = std::fs::read_to_string(format!("{dir}/memory.stat")).unwrap_or_default();
                let cache = |name: &str| {
                    stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
                };
                let cache = cache("inactive_file ").saturating_add(cache("active_file "));
                let left = limit.saturating_sub(used.saturating_sub(cache));
                least = Some(least.map_or(left, |l| l.min(left)));
            }
            let Some(cut) = at.rfind('/') else { break };
            at = &at[..cut];
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_sizes_stay() {
        let m = Mapping::create(5000).unwrap();
        assert_eq!(m.len(), 8192);
        assert!(rustix::fs::ftruncate(m.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(m.fd(), 1 << 20).is_err());
        let other = Mapping::adopt(m.fd().try_clone_to_owned().unwrap()).unwrap();
        // SAFETY: both are mapped and no other thread has them.
        unsafe { m.base().write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { other.base().read() }, 7);
    }

    #[test]
    fn descriptors_of_other_files_are_refused() {
        let loose = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 4096).unwrap();
        assert!(matches!(Mapping::adopt(loose), Err(Error::NotATeam(_))));
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(matches!(Mapping::adopt(null), Err(Error::NotATeam(_))));
        assert!(matches!(Mapping::create(BYTES_MAX), Err(Error::NoMemory { .. })));
    }

    #[test]
    fn a_view_is_for_reading() {
        let p = Published::create(1).unwrap();
        let fd = p.view_fd().try_clone_to_owned().unwrap();
        assert!(MappedPages::map(&fd, p.len(), ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::io::write(&fd, b"x").is_err());
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(rustix::fs::ftruncate(&fd, 1 << 20).is_err());
        let v = View::adopt(fd).unwrap();
        // SAFETY: mapped for writing by its owner, and no other thread runs.
        unsafe { p.base().write(9) };
        // SAFETY: as above.
        assert_eq!(unsafe { v.base().read() }, 9);
    }
}
