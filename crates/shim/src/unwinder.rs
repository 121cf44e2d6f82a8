//! Unwinder, found at run time.
//!
//! This library catches its own faults by unwinding, and a host may unwind through it. The unwinder
//! is a separate library, `libgcc_s.so.1`, which musl's programs lack and few C programs have
//! loaded before they end threads. So it is not linked: the standard library's calls reach the
//! jumps below, which go on to functions that [`find`] puts into a table.
//!
//! In the planned process it is found when this library is loaded, since a thread that is cancelled
//! at any moment may unwind through [`birth`](crate::birth) and can open no library then. Elsewhere
//! it is found with the first fault. Without an unwinder, the shim has no plan.

#![cfg_attr(test, allow(dead_code))]

use libc::c_void;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// Functions that the standard library calls.
const NAMES: [&CStr; 12] = [
    c"_Unwind_Backtrace",
    c"_Unwind_DeleteException",
    c"_Unwind_GetDataRelBase",
    c"_Unwind_GetIP",
    c"_Unwind_GetIPInfo",
    c"_Unwind_GetLanguageSpecificData",
    c"_Unwind_GetRegionStart",
    c"_Unwind_GetTextRelBase",
    c"_Unwind_RaiseException",
    c"_Unwind_Resume",
    c"_Unwind_SetGR",
    c"_Unwind_SetIP",
];

/// Addresses of the functions, in the order of [`NAMES`]; null before they are found.
static TABLE: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// Finds the unwinder; false if there is none. Opens a library, so it must not be called at moments
/// at which the C library cannot do that.
pub(crate) fn find() -> bool {
    let last = &TABLE[NAMES.len() - 1];
    if !last.load(Acquire).is_null() {
        return true;
    }
    // SAFETY: a C string. The library is the one that the C library itself opens to end threads,
    // and is never closed.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() || library.addr() == usize::MAX {
        return false;
    }
    for (name, place) in NAMES.iter().zip(&TABLE) {
        // SAFETY: an open library and a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() {
            return false;
        }
        place.store(found, Release);
    }
    true
}

/// Fills the table for the jumps, if there is an unwinder.
#[cfg(not(test))]
extern "C" fn find_for_jump() {
    find();
}

/// Defines hidden functions that jump to the functions of the table, with all registers as they
/// were. Without an unwinder they return "end of the stack", which makes the standard library stop.
#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! jumps {
    ($($name:literal $at:literal;)*) => {$(
        std::arch::global_asm!(
            ".pushsection .text.trimtab_unwinder,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            concat!("mov r11, qword ptr [rip + {table} + 8 * ", $at, "]"),
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2:",
            "push rdi", "push rsi", "push rdx", "push rcx", "push rax",
            "call {find}",
            "pop rax", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            concat!("mov r11, qword ptr [rip + {table} + 8 * ", $at, "]"),
            "test r11, r11",
            "jz 3f",
            "jmp r11",
            "3: mov eax, 5",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            table = sym TABLE,
            find = sym find_for_jump,
        );
    )*};
}

/// Defines the same functions for aarch64.
#[cfg(all(not(test), target_arch = "aarch64"))]
macro_rules! jumps {
    ($($name:literal $at:literal;)*) => {$(
        std::arch::global_asm!(
            ".pushsection .text.trimtab_unwinder,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            "adrp x16, {table}",
            "add x16, x16, :lo12:{table}",
            concat!("ldr x16, [x16, #(8 * ", $at, ")]"),
            "cbz x16, 2f",
            "br x16",
            "2:",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "bl {find}",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "adrp x16, {table}",
            "add x16, x16, :lo12:{table}",
            concat!("ldr x16, [x16, #(8 * ", $at, ")]"),
            "cbz x16, 3f",
            "br x16",
            "3: mov x0, #5",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            table = sym TABLE,
            find = sym find_for_jump,
        );
    )*};
}

#[cfg(not(test))]
jumps! {
    "_Unwind_Backtrace" "0";
    "_Unwind_DeleteException" "1";
    "_Unwind_GetDataRelBase" "2";
    "_Unwind_GetIP" "3";
    "_Unwind_GetIPInfo" "4";
    "_Unwind_GetLanguageSpecificData" "5";
    "_Unwind_GetRegionStart" "6";
    "_Unwind_GetTextRelBase" "7";
    "_Unwind_RaiseException" "8";
    "_Unwind_Resume" "9";
    "_Unwind_SetGR" "10";
    "_Unwind_SetIP" "11";
}
