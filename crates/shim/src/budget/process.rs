//! State of a process, from the kernel: its start, its CPU time, its mask, whether it lives.
//!
//! All are system calls on memory of the stack. They work for processes of this pid namespace only;
//! others do not count.

use crate::cpus::Cpus;
use libc::{c_int, c_long, clockid_t, pid_t};
use trimtab_core::budget::page::Owner;

/// Bytes of `/proc/PID/stat` that are read: the start time is field 22, and a name has at most 64
/// bytes.
const STAT_BYTES: usize = 512;

/// Returns this process.
pub(super) fn own() -> Option<Owner> {
    Some(Owner { pid: number()?, started: started(b"self")? })
}

/// Returns the number of this process.
pub(super) fn number() -> Option<u32> {
    // SAFETY: no preconditions.
    u32::try_from(unsafe { libc::getpid() }).ok()
}

/// Returns whether a process lives. One whose number was given to another process does, too.
pub(super) fn has_number(pid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    let result = unsafe { libc::kill(pid as pid_t, 0) };
    // SAFETY: the location is valid in the calling thread.
    result == 0 || unsafe { *libc::__errno_location() } == libc::EPERM
}

/// Returns whether an owner is the present process of its number.
pub(super) fn is(owner: Owner) -> bool {
    let mut digits = [0; 10];
    started(decimal(owner.pid, &mut digits)) == Some(owner.started)
}

/// Returns whether the initial thread of a process is confined to these CPUs.
pub(super) fn is_confined_to(pid: u32, cpus: &Cpus) -> bool {
    let mut mask = Cpus::new();
    mask.read(pid as pid_t) && (mask == *cpus || mask.is_within(cpus))
}

/// Returns whether the initial thread of a process is on a CPU or ready for one.
pub(super) fn is_ready(pid: u32) -> bool {
    let mut digits = [0; 10];
    let mut room = [0; STAT_BYTES];
    stat(decimal(pid, &mut digits), &mut room)
        .and_then(after_name)
        .is_some_and(|rest| rest.first() == Some(&b'R'))
}

/// Returns the CPU time of all threads of a process in nanoseconds; `None` if it has ended.
pub(super) fn cpu_time(pid: u32) -> Option<u64> {
    /// Kind of a clock: the time that the scheduler counted, for a process.
    const SCHEDULED: clockid_t = 2;
    let clock = (!(pid as clockid_t)) << 3 | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to write; a process that does not exist is an error.
    (unsafe { libc::clock_gettime(clock, &raw mut time) } == 0)
        .then(|| (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// Returns the low half of the start time of a process.
fn started(process: &[u8]) -> Option<u32> {
    start_time(stat(process, &mut [0; STAT_BYTES])?)
}

/// Reads the `stat` file of a process.
fn stat<'a>(process: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 32];
    let mut end = 0;
    for part in [b"/proc/".as_slice(), process, b"/stat\0"] {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    read_file(path.as_ptr().cast(), room)
}

fn read_file(path: *const libc::c_char, room: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a C string that the caller made.
    let file: c_long =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    let file = c_int::try_from(file).ok().filter(|&file| file >= 0)?;
    // SAFETY: our own descriptor, and at most as many bytes as there is room for.
    let read = unsafe { libc::syscall(libc::SYS_read, file, room.as_mut_ptr(), room.len()) };
    // SAFETY: our own descriptor.
    unsafe { libc::syscall(libc::SYS_close, file) };
    room.get(..usize::try_from(read).ok()?)
}

/// Returns a `stat` file from field 3 on. The name, field 2, may contain spaces and brackets.
fn after_name(stat: &[u8]) -> Option<&[u8]> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2..)
}

/// Reads field 22 of a `stat` file.
fn start_time(stat: &[u8]) -> Option<u32> {
    let field = after_name(stat)?.split(|&byte| byte == b' ').nth(22 - 3)?;
    let ticks: u64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    Some(ticks as u32)
}

fn decimal(number: u32, room: &mut [u8; 10]) -> &[u8] {
    let (mut rest, mut first) = (number, room.len());
    loop {
        first -= 1;
        room[first] = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            return &room[first..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let own = own().unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(is(own) && has_number(own.pid));
        assert!(!is(Owner { started: own.started ^ 1, ..own }));
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        assert_eq!(fields[19].parse::<u64>().unwrap() as u32, own.started);
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id();
        assert!(cpu_time(pid).is_some() && has_number(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(cpu_time(pid), None);
        assert!(!has_number(pid));
    }

    #[test]
    fn cpu_time_grows_while_a_process_computes() {
        let before = cpu_time(std::process::id()).unwrap();
        while cpu_time(std::process::id()).unwrap() < before + 1_000_000 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn names_do_not_hide_the_start() {
        let rest = "S 1 1 1 0 -1 4 0 0 0 0 1 1 0 0 20 0 1 0 4711 1 1";
        for name in ["a", "a b", "x) S 1 2", "((", ")"] {
            assert_eq!(start_time(format!("5 ({name}) {rest}").as_bytes()), Some(4711), "{name}");
        }
        for text in ["", "5", "5 (a)", "5 (a) S 1"] {
            assert_eq!(start_time(text.as_bytes()), None);
        }
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 7, 10, 4_294_967_295] {
            assert_eq!(decimal(number, &mut [0; 10]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_mask_is_compared_with_the_holds() {
        let own = std::process::id();
        let mut all = Cpus::new();
        assert!(all.read_this_thread());
        assert!(!is_confined_to(own, &Cpus::new()));
        let mut own_mask = Cpus::new();
        assert!(own_mask.read(own as pid_t) && is_confined_to(own, &own_mask));
    }
}
