//! System calls of the helper. None of them touches the program's descriptors or `errno` of
//! another thread.

use libc::{c_int, c_long, c_void};

/// Gives the calling thread an empty table of descriptors of its own. Returns whether that worked
/// (Linux 5.9).
pub(super) fn leave_descriptors() -> bool {
    const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
    // SAFETY: the kernel first gives this thread a table of its own, so that no other thread's
    // descriptor is closed.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, CLOSE_RANGE_UNSHARE) == 0 }
}

/// Opens a file by a path that ends with 0.
pub(super) fn open(path: &[u8], flags: c_int) -> Option<c_int> {
    debug_assert_eq!(path.last(), Some(&0));
    // SAFETY: a C string.
    let file: c_long =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0) };
    c_int::try_from(file).ok().filter(|&file| file >= 0)
}

/// Closes a descriptor of the helper.
pub(super) fn close(file: c_int) {
    // SAFETY: the caller's own descriptor, in the helper's own table.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

/// Reads from a position; returns how many bytes there were.
pub(super) fn read_at(file: c_int, to: &mut [u8], at: u64) -> usize {
    // SAFETY: at most as many bytes as there is room for.
    let count = unsafe { libc::syscall(libc::SYS_pread64, file, to.as_mut_ptr(), to.len(), at) };
    usize::try_from(count).unwrap_or(0)
}

/// Reads a small file as a whole, up to the room.
pub(super) fn read_file<'a>(path: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = open(path, libc::O_RDONLY)?;
    let count = read_at(file, room, 0);
    close(file);
    room.get(..count)
}

/// Writes to a position; returns whether all bytes were written.
pub(super) fn write_at(file: c_int, from: &[u8], at: u64) -> bool {
    // SAFETY: the bytes are ours to read.
    let count = unsafe { libc::syscall(libc::SYS_pwrite64, file, from.as_ptr(), from.len(), at) };
    usize::try_from(count) == Ok(from.len())
}

/// Maps memory of `bytes` bytes at an address, where nothing is mapped. Returns whether it did.
pub(super) fn map_at(address: u64, bytes: usize) -> bool {
    let wanted = std::ptr::without_provenance_mut::<c_void>(address as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel replaces no mapping. Kernels that do not know the flag may choose another
    // address.
    let made = unsafe { libc::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if made != libc::MAP_FAILED && made != wanted {
        // SAFETY: mapped just now.
        unsafe { libc::munmap(made, bytes) };
    }
    made == wanted
}

/// Makes a mapping of the helper executable and no longer writable.
pub(super) fn make_executable(address: u64, bytes: usize) -> bool {
    let at = std::ptr::without_provenance_mut::<c_void>(address as usize);
    // SAFETY: the caller's own mapping.
    unsafe { libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_EXEC) == 0 }
}

/// Lets all CPUs see code that was written, before this returns.
pub(super) fn synchronise_code() -> bool {
    const REGISTER: c_int = 1 << 6;
    const SYNCHRONISE: c_int = 1 << 5;
    // SAFETY: both commands concern the instruction streams of this process only.
    unsafe {
        libc::syscall(libc::SYS_membarrier, REGISTER, 0) == 0
            && libc::syscall(libc::SYS_membarrier, SYNCHRONISE, 0) == 0
    }
}

/// Sleeps for a time in microseconds.
pub(super) fn sleep_us(time: u64) {
    let time =
        libc::timespec { tv_sec: (time / 1_000_000) as i64, tv_nsec: (time % 1_000_000 * 1000) as i64 };
    // SAFETY: the structure is ours; no signal is handled in this thread.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>()) };
}

/// Returns how often threads of this process were switched out while they wanted to run.
pub(super) fn switches() -> u64 {
    // SAFETY: all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: ours to write.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_nivcsw as u64
}

/// Returns the mode in which system calls of this thread are filtered.
pub(super) fn filter_mode() -> c_int {
    // SAFETY: asks a question.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0) as c_int }
}

/// Calls `each` with the number of each thread of this process.
pub(super) fn for_each_thread(mut each: impl FnMut(u32)) {
    let Some(folder) = open(b"/proc/self/task\0", libc::O_RDONLY | libc::O_DIRECTORY) else { return };
    let mut room = [0u8; 4096];
    loop {
        // SAFETY: at most as many bytes as there is room for.
        let count = unsafe { libc::syscall(libc::SYS_getdents64, folder, room.as_mut_ptr(), room.len()) };
        let Some(mut rest) = usize::try_from(count).ok().and_then(|count| room.get(..count)) else { break };
        if rest.is_empty() {
            break;
        }
        // An entry: 16 bytes, its length in two, its kind in one, its name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let name = rest.get(19..length).and_then(|name| name.split(|&byte| byte == 0).next());
            let number = name.and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
            if let Some(number) = number {
                each(number);
            }
            rest = rest.get(length.max(19)..).unwrap_or_default();
        }
    }
    close(folder);
}
