//! Barriers of a libgomp team besides the end of its region: explicit barriers, and the ends of
//! loops, sections and copies.
//!
//! These calls take no function that would identify the right libgomp. So each is entered by two
//! instructions that pass on its return address, which identifies the caller. If nothing is
//! counted, the call is passed to that libgomp at once.

use super::calls::position;
use super::library::{self, Library};
use crate::meter::{self, Lead};
use libc::c_void;
use std::arch::naked_asm;
use std::mem::transmute;
use std::ptr::null_mut;
use trimtab_core::place::runtimes::Runtime;

/// Returns the libgomp of a caller, and its function `at`.
fn behind(caller: usize, at: usize) -> Option<(&'static Library, usize)> {
    let library = library::of_address(caller)?;
    Some(library).zip(Some(library.function(at)).filter(|&function| function != 0))
}

/// Counts a barrier of libgomp. Other runtimes report their own barriers.
fn count_barrier<T>(library: &'static Library, work: impl FnOnce() -> T) -> T {
    match library.is_gnu {
        true => meter::count_team_barrier(Runtime::Libgomp, work, |_, _| {
            Lead::if_first(library.queries.thread_number() == 0)
        }),
        false => work(),
    }
}

/// Defines functions that take no argument and may return a value.
macro_rules! barriers {
    ($($name:ident, $from:ident $(-> $result:ty, or $none:expr)?;)*) => {$(
        /// Waits at a barrier of a team.
        ///
        /// # Safety
        /// As libgomp's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[allow(non_snake_case, reason = "libgomp's names")]
        pub(crate) unsafe extern "C-unwind" fn $name() $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("mov rdi, qword ptr [rsp]", "jmp {from}", from = sym $from);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("mov x0, x30", "b {from}", from = sym $from);
        }

        unsafe extern "C-unwind" fn $from(caller: usize) $(-> $result)? {
            type GompFunction = unsafe extern "C-unwind" fn() $(-> $result)?;
            let Some((library, function)) = behind(caller, const { position(stringify!($name)) }) else {
                return $($none)?;
            };
            // SAFETY: the address of the function of that name and type, and not 0.
            let real = unsafe { transmute::<usize, GompFunction>(function) };
            // SAFETY: the caller's contract.
            count_barrier(library, || unsafe { real() })
        }
    )*};
}

barriers! {
    GOMP_barrier, barrier;
    GOMP_barrier_cancel, barrier_cancel -> bool, or false;
    GOMP_loop_end, loop_end;
    GOMP_loop_end_cancel, loop_end_cancel -> bool, or false;
    GOMP_sections_end, sections_end;
    GOMP_sections_end_cancel, sections_end_cancel -> bool, or false;
    GOMP_single_copy_start, single_copy_start -> *mut c_void, or null_mut();
}

/// Hands one thread's data to all threads of the team.
///
/// # Safety
/// As libgomp's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
#[allow(non_snake_case, reason = "libgomp's names")]
pub(crate) unsafe extern "C-unwind" fn GOMP_single_copy_end(data: *mut c_void) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rsi, qword ptr [rsp]", "jmp {from}", from = sym single_copy_end);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x1, x30", "b {from}", from = sym single_copy_end);
}

unsafe extern "C-unwind" fn single_copy_end(data: *mut c_void, caller: usize) {
    type GompFunction = unsafe extern "C-unwind" fn(*mut c_void);
    let Some((library, function)) = behind(caller, const { position("GOMP_single_copy_end") }) else {
        return;
    };
    // SAFETY: the address of the function of that name and type, and not 0.
    let real = unsafe { transmute::<usize, GompFunction>(function) };
    // SAFETY: the caller's contract.
    count_barrier(library, || unsafe { real(data) });
}
