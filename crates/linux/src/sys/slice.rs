//! The scheduler's slice of the calling thread: how long it may run before another's turn is looked at.
//!
//! Since Linux 6.12 a fair thread may ask for a slice of its own, from 0.1 to 100 ms. Threads and processes that it starts have the same, and exec keeps it.
//! Kernels before that take the call and ignore the number, which is why it is read back.

use super::errno;
use rustix::io::Errno;
use trimtab_core::time::Span;

/// `struct sched_attr`, as far as all kernels know it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Its size in the kernel's first version.
const SIZE: u32 = 48;
const _: () = assert!(size_of::<Attr>() == SIZE as usize);

/// The calling thread's slice; `None` where the kernel tells none.
///
/// # Errors
/// Whatever a system-call filter answers.
pub fn get() -> Result<Option<Span>, Errno> {
    Ok(Some(Span(attr()?.runtime)).filter(|slice| *slice != Span::ZERO))
}

/// Asks for a slice and answers what the kernel made of it; policy and niceness stay.
///
/// # Errors
/// `EINVAL` where the thread is not scheduled fairly; whatever a system-call filter answers.
pub fn set(slice: Span) -> Result<Option<Span>, Errno> {
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH];
    let now = attr()?;
    if !fair.iter().any(|policy| u32::try_from(*policy) == Ok(now.policy)) {
        return Err(Errno::INVAL);
    }
    let wanted = Attr { size: SIZE, runtime: slice.0, deadline: 0, period: 0, ..now };
    // SAFETY: the kernel reads as many bytes as `size` says, all of which are the structure's; it keeps no reference.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if answer < 0 { Err(errno::last()) } else { get() }
}

fn attr() -> Result<Attr, Errno> {
    let mut attr = Attr::default();
    // SAFETY: the kernel writes at most the given number of bytes, which is the structure's size; any bit pattern is a valid one.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    if answer < 0 { Err(errno::last()) } else { Ok(attr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_kept_by_threads_that_are_started_and_only_there() {
        let wanted = Span::from_ms(7);
        let made = std::thread::spawn(move || {
            let made = set(wanted).unwrap();
            (made, std::thread::spawn(get).join().unwrap().unwrap())
        });
        let (made, inner) = made.join().unwrap();
        let Some(made) = made else { return };
        assert_eq!((made, inner), (wanted, Some(wanted)));
        assert_ne!(get().unwrap(), Some(wanted));
    }
}
