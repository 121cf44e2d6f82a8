//! Scheduler slice of a thread: how long the thread may run before the scheduler considers another
//! one.
//!
//! Since Linux 6.12 a fair thread may request a slice of its own, from 0.1 to 100 ms. Threads and
//! processes that it starts inherit the slice, and exec keeps it. Older kernels accept the call and
//! ignore the number, so the module reads the slice back.

use super::errno;
use crate::process::Tid;
use rustix::io::Errno;
use trimtab_core::time::Span;

/// `struct sched_attr`, with the fields that all kernels have.
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

/// Size of the structure in the kernel's first version.
const ATTR_BYTES: u32 = 48;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);

/// Returns the calling thread's slice; `None` if the kernel does not report one.
///
/// # Errors
/// Any error of a system-call filter.
pub fn get() -> Result<Option<Span>, Errno> {
    Ok(Some(Span(attr(OWN)?.runtime)).filter(|slice| *slice != Span::ZERO))
}

/// Returns whether the calling thread is scheduled in the usual way (`SCHED_OTHER`), as threads
/// that it starts are then.
pub fn is_usual_policy() -> bool {
    attr(OWN).is_ok_and(|attr| i32::try_from(attr.policy) == Ok(libc::SCHED_OTHER))
}

/// Returns whether a thread gets only the time that others leave (`SCHED_IDLE`).
pub fn is_idle_policy(tid: Tid) -> bool {
    attr(tid).is_ok_and(|attr| i32::try_from(attr.policy) == Ok(libc::SCHED_IDLE))
}

/// Asks for a slice and returns the one that the kernel set; policy and niceness stay.
///
/// # Errors
/// `EINVAL` if the thread is not scheduled fairly; any error of a system-call filter.
pub fn set(slice: Span) -> Result<Option<Span>, Errno> {
    let now = attr(OWN)?;
    ask(OWN, &Attr { runtime: slice.0, ..now })?;
    get()
}

/// Asks for a slice of a thread of this process. Threads and processes that it starts have the
/// usual slice, and no other policy or niceness than usual.
///
/// # Errors
/// As [`set`]; `ESRCH` if the thread has ended.
pub fn set_alone(tid: Tid, slice: Span) -> Result<(), Errno> {
    let now = attr(tid)?;
    let flags = now.flags | u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
    ask(tid, &Attr { runtime: slice.0, flags, ..now })
}

/// The number by which the kernel means the calling thread.
const OWN: Tid = Tid(0);

fn ask(tid: Tid, wanted: &Attr) -> Result<(), Errno> {
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH];
    if !fair.iter().any(|policy| u32::try_from(*policy) == Ok(wanted.policy)) {
        return Err(Errno::INVAL);
    }
    let wanted = Attr { size: ATTR_BYTES, deadline: 0, period: 0, ..*wanted };
    // SAFETY: the kernel reads as many bytes as `size` says, all of which are the structure's; it
    // keeps no reference.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, tid.0, &raw const wanted, 0) };
    if answer < 0 { Err(errno::last()) } else { Ok(()) }
}

fn attr(tid: Tid) -> Result<Attr, Errno> {
    let mut attr = Attr::default();
    // SAFETY: the kernel writes at most the given number of bytes, which is the structure's size;
    // any bit pattern is a valid one.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, tid.0, &raw mut attr, ATTR_BYTES, 0) };
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

    #[test]
    fn an_idle_thread_is_told_from_others() {
        let own = || Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let seen = std::thread::spawn(move || {
            let before = is_idle_policy(own());
            let idle = Attr { size: ATTR_BYTES, policy: libc::SCHED_IDLE.cast_unsigned(), ..Attr::default() };
            // SAFETY: as in `ask`.
            let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const idle, 0) };
            (before, answer, is_idle_policy(own()))
        });
        assert_eq!(seen.join().unwrap(), (false, 0, true));
        assert!(!is_idle_policy(own()));
    }

    #[test]
    fn a_slice_of_one_thread_alone_is_not_inherited() {
        let wanted = Span::from_ms(7);
        let own = || Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let seen = std::thread::spawn(move || {
            set_alone(own(), wanted).unwrap();
            (get().unwrap(), std::thread::spawn(get).join().unwrap().unwrap())
        });
        let (made, inner) = seen.join().unwrap();
        let Some(made) = made else { return };
        assert_eq!(made, wanted);
        assert_ne!(inner, Some(wanted));
        assert_eq!(set_alone(Tid(u32::MAX >> 1), wanted), Err(Errno::SRCH));
    }
}
