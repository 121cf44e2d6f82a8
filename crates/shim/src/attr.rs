//! Copy of the caller's thread attribute, with a CPU set added.
//!
//! The attribute is copied setting by setting through the C library's functions, never as bytes:
//! the object holds pointers that it owns. If a setting that was set cannot be distinguished from
//! one that was not, and the difference would change the thread, no copy is made, and the caller's
//! attribute is used unchanged.

use crate::cpus::Cpus;
use crate::{imports, real};
use libc::{c_int, pthread_attr_t};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

unsafe extern "C" {
    // Missing from the libc crate.
    fn pthread_attr_getdetachstate(attr: *const pthread_attr_t, state: *mut c_int) -> c_int;
}

/// Initialised attribute, destroyed with the value.
pub(crate) struct Attr(pthread_attr_t);

impl Attr {
    /// Copies the program's attribute. Returns `None` if the attribute names CPUs or cannot be
    /// copied faithfully. Null is the default attribute, which `pthread_setattr_default_np` may
    /// have changed.
    ///
    /// # Safety
    /// `attr` is null or points to an initialised attribute.
    pub(crate) unsafe fn without_cpus(attr: *const pthread_attr_t) -> Option<Self> {
        if attr.is_null() {
            let copy = Self::default_copy()?;
            // SAFETY: just initialised.
            return (!unsafe { names_cpus(&raw const copy.0) }).then_some(copy);
        }
        // SAFETY: initialised, by the caller's promise.
        if unsafe { names_cpus(attr) } {
            return None;
        }
        // SAFETY: as above.
        unsafe { Self::whatever_cpus(attr) }
    }

    /// Copies all settings of the program's attribute but the CPUs. Returns `None` if they cannot
    /// be copied faithfully.
    ///
    /// # Safety
    /// `attr` is null or points to an initialised attribute.
    pub(crate) unsafe fn whatever_cpus(attr: *const pthread_attr_t) -> Option<Self> {
        if attr.is_null() {
            return Self::default_copy();
        }
        // SAFETY: the function initialises the attribute it is given.
        let mut copy = Self::made_by(|copy| unsafe { libc::pthread_attr_init(copy) })?;
        // SAFETY: both are initialised.
        unsafe {
            copy.take_detach_and_guard(attr)?;
            copy.take_stack(attr)?;
            copy.take_scheduling(attr)?;
            copy.take_signals(attr)?;
        }
        Some(copy)
    }

    fn default_copy() -> Option<Self> {
        // SAFETY: the function initialises the attribute it is given.
        Self::made_by(|copy| unsafe { imports::pthread_getattr_default_np(copy) })
    }

    /// Restricts the thread to these CPUs. The C library allocates room for the set and frees it
    /// with the attribute; its `pthread_create` allocates too, so an allocator that creates threads
    /// is prepared for it.
    pub(crate) fn set_cpus(&mut self, cpus: &Cpus) -> Option<()> {
        let (mask, bytes) = cpus.raw();
        // SAFETY: the attribute is initialised and `mask` is valid for `bytes` bytes, which are
        // copied.
        done(unsafe { libc::pthread_attr_setaffinity_np(&raw mut self.0, bytes, mask.cast()) })
    }

    pub(crate) fn as_ptr(&self) -> *const pthread_attr_t {
        &raw const self.0
    }

    fn made_by(init: impl FnOnce(*mut pthread_attr_t) -> c_int) -> Option<Self> {
        let mut attr = MaybeUninit::uninit();
        done(init(attr.as_mut_ptr()))?;
        // SAFETY: `init` reported success, so the attribute is initialised.
        Some(Self(unsafe { attr.assume_init() }))
    }

    // Contention scope is not copied: Linux has one, and refuses to set another.

    /// # Safety
    /// `from` is initialised.
    unsafe fn take_detach_and_guard(&mut self, from: *const pthread_attr_t) -> Option<()> {
        let (mut state, mut guard) = (0, 0);
        // SAFETY: both attributes are initialised, and the results are ours to write.
        unsafe {
            done(pthread_attr_getdetachstate(from, &raw mut state))?;
            done(libc::pthread_attr_setdetachstate(&raw mut self.0, state))?;
            done(libc::pthread_attr_getguardsize(from, &raw mut guard))?;
            done(libc::pthread_attr_setguardsize(&raw mut self.0, guard))
        }
    }

    /// Copies the stack. `pthread_attr_getstack` gives address and size as stored, 0 if unset: the
    /// stored address is the end of the stack, and the reported address is the end less the size.
    /// `pthread_attr_getstacksize` would fill in a default.
    ///
    /// # Safety
    /// `from` is initialised.
    unsafe fn take_stack(&mut self, from: *const pthread_attr_t) -> Option<()> {
        let (mut start, mut size) = (null_mut(), 0);
        // SAFETY: both attributes are initialised, and the results are ours to write; the stack is
        // passed on unchanged.
        unsafe {
            done(libc::pthread_attr_getstack(from, &raw mut start, &raw mut size))?;
            match (start.addr().wrapping_add(size), size) {
                (0, 0) => Some(()),
                (0, _) => done(libc::pthread_attr_setstacksize(&raw mut self.0, size)),
                (_, 0) => None, // an address alone: only the withdrawn pthread_attr_setstackaddr sets it
                (_, _) => done(libc::pthread_attr_setstack(&raw mut self.0, start, size)),
            }
        }
    }

    /// Copies policy and parameter, which count only for a thread that does not inherit them. For
    /// such a thread, "not set" takes the creator's policy and cannot be distinguished from the
    /// ordinary policy. The two are the same while the creator itself is ordinary.
    ///
    /// # Safety
    /// `from` is initialised.
    unsafe fn take_scheduling(&mut self, from: *const pthread_attr_t) -> Option<()> {
        // SAFETY: `sched_param` is plain data.
        let (mut inherit, mut policy, mut param) = (0, 0, unsafe { std::mem::zeroed::<libc::sched_param>() });
        // SAFETY: both attributes are initialised, and the results are ours to write.
        unsafe {
            done(libc::pthread_attr_getinheritsched(from, &raw mut inherit))?;
            done(libc::pthread_attr_setinheritsched(&raw mut self.0, inherit))?;
            if inherit == libc::PTHREAD_INHERIT_SCHED {
                return Some(());
            }
            done(libc::pthread_attr_getschedpolicy(from, &raw mut policy))?;
            done(libc::pthread_attr_getschedparam(from, &raw mut param))?;
            let ordinary = libc::sched_getscheduler(0) == libc::SCHED_OTHER;
            match (policy, param.sched_priority) {
                (libc::SCHED_OTHER, 0) if ordinary => Some(()),
                (libc::SCHED_OTHER, _) | (_, 0) if !ordinary => None,
                _ => {
                    done(libc::pthread_attr_setschedpolicy(&raw mut self.0, policy))?;
                    done(libc::pthread_attr_setschedparam(&raw mut self.0, &raw const param))
                }
            }
        }
    }

    /// # Safety
    /// `from` is initialised.
    unsafe fn take_signals(&mut self, from: *const pthread_attr_t) -> Option<()> {
        let Some(signals) = real::attr_signals() else { return Some(()) }; // a C library without the setting
        let mut mask = MaybeUninit::uninit();
        // SAFETY: both attributes are initialised; 0 means that the mask was set and has been
        // written.
        unsafe {
            match (signals.get)(from, mask.as_mut_ptr()) {
                0 => done((signals.set)(&raw mut self.0, mask.as_ptr())),
                _ => Some(()),
            }
        }
    }
}

impl Drop for Attr {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used again.
        unsafe { libc::pthread_attr_destroy(&raw mut self.0) };
    }
}

/// Returns whether an attribute names CPUs.
///
/// For an attribute without CPUs, glibc answers "all ones, at any length". It answers `EINVAL` when
/// asked for fewer bytes than the set needs. So a request for 0 bytes detects every set that has a
/// member. The first byte distinguishes the empty set (all zeros) from no set (all ones).
///
/// # Safety
/// `attr` is initialised.
pub(crate) unsafe fn names_cpus(attr: *const pthread_attr_t) -> bool {
    let mut byte = 0u8;
    // SAFETY: at most `length` bytes are written, and `length` is at most 1.
    let mut ask = |length| unsafe { libc::pthread_attr_getaffinity_np(attr, length, (&raw mut byte).cast()) };
    ask(0) != 0 || ask(1) != 0 || byte != u8::MAX
}

fn done(status: c_int) -> Option<()> {
    (status == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;
    use trimtab_core::ids::OsCpu;

    fn attr(set: impl FnOnce(*mut pthread_attr_t)) -> Attr {
        // SAFETY: the function initialises the attribute it is given.
        let mut attr = Attr::made_by(|attr| unsafe { libc::pthread_attr_init(attr) }).unwrap();
        set(&raw mut attr.0);
        attr
    }

    fn copy(of: &Attr) -> Option<Attr> {
        // SAFETY: initialised.
        unsafe { Attr::without_cpus(of.as_ptr()) }
    }

    fn stack(of: &Attr) -> (usize, usize) {
        let (mut start, mut size) = (null_mut(), 0);
        // SAFETY: initialised, and the results are ours.
        unsafe { libc::pthread_attr_getstack(of.as_ptr(), &raw mut start, &raw mut size) };
        (start.addr(), size)
    }

    #[test]
    fn cpus_are_told_from_no_cpus() {
        let with = |list: &'static [u8]| {
            attr(|attr| {
                // SAFETY: initialised, and the list has the length given.
                let status =
                    unsafe { libc::pthread_attr_setaffinity_np(attr, list.len(), list.as_ptr().cast()) };
                assert_eq!(status, 0);
            })
        };
        assert!(copy(&attr(|_| ())).is_some());
        for set in
            [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[0xff; 8], &[0xff; 1024], &[0, 0, 0, 0, 0, 0, 0, 1]]
        {
            assert!(copy(&with(set)).is_none(), "{set:?}");
        }
        assert!(copy(&with(&[])).is_some(), "a set taken back");
    }

    #[test]
    fn a_copy_of_nothing_is_the_default() {
        // SAFETY: null is allowed.
        let copied = unsafe { Attr::without_cpus(null()) }.unwrap();
        assert_ne!(stack(&copied).1, 0, "the default names its stack size");
    }

    #[test]
    fn stacks_are_copied_as_set() {
        assert_eq!(stack(&copy(&attr(|_| ())).unwrap()), (0, 0));
        // SAFETY: initialised.
        let sized = attr(|attr| assert_eq!(unsafe { libc::pthread_attr_setstacksize(attr, 1 << 20) }, 0));
        assert_eq!(stack(&copy(&sized).unwrap()).1, 1 << 20);
        assert_eq!(stack(&copy(&sized).unwrap()), stack(&sized));
        let mut room = vec![0u8; 1 << 20];
        let own = attr(|attr| {
            // SAFETY: initialised, and the stack has the length given.
            assert_eq!(unsafe { libc::pthread_attr_setstack(attr, room.as_mut_ptr().cast(), room.len()) }, 0);
        });
        assert_eq!(stack(&copy(&own).unwrap()), (room.as_ptr().addr(), 1 << 20));
    }

    #[test]
    fn a_set_makes_the_attribute_the_programs_own() {
        let mut cpus = Cpus::new();
        cpus.insert((OsCpu(3), OsCpu(5)));
        let mut attr = attr(|_| ());
        attr.set_cpus(&cpus).unwrap();
        assert!(copy(&attr).is_none());
    }
}
