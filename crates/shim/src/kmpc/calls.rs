//! Calls that open a team, and those that state its number of threads.
//!
//! All arguments of these calls are integers or pointers of one word. `__kmpc_fork_call` takes a
//! place in the source, the number of further arguments, the function of the region, and as many
//! words as the number says.

use super::library::{
    self, FORK, FORK_IF, Library, PUSH, PUSH_LIST, PUSH_LIST_STRICT, PUSH_STRICT, SERIAL, THREAD,
};
use crate::blas;
use crate::budget::{self, Team, Wanted};
use libc::{c_int, c_uint, c_void};
use std::cell::Cell;

/// Number of threads that the program has stated for the next team of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stated {
    Nothing,
    Number(u32),
    /// A number that the program demands strictly.
    Strictly(u32),
}

thread_local! {
    static STATED: Cell<Stated> = const { Cell::new(Stated::Nothing) };
}

/// Words of a call in registers, as the functions in assembly store them: the first six arguments
/// on x86-64, the first eight on aarch64.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 8;

const PLACE: usize = 0;
const MICROTASK: usize = 2;

/// Decides about a team. Returns the address of the real function; 0 if no runtime is loaded.
/// Stores in `counted` the team as a word; 0 if the call is passed on unchanged.
///
/// # Safety
/// As the functions in assembly call it.
unsafe extern "C" fn before_fork(
    words: *const [usize; REGISTERS],
    caller: usize,
    counted: *mut u64,
    which: usize,
) -> usize {
    // SAFETY: the caller's contract.
    let (words, counted) = unsafe { (&*words, &mut *counted) };
    *counted = 0;
    let Some(library) = library::of(words[MICROTASK]) else { return 0 };
    let real = library.function(which);
    // A region of BLAS is a part of the call that counts.
    if !budget::is_on() || library.own.contains(&caller) || blas::is_inside() {
        return real;
    }
    // The condition of an `if` clause, in `__kmpc_fork_call_if`.
    if which == FORK_IF && words[3] as u32 == 0 {
        STATED.set(Stated::Nothing);
        return real;
    }
    *counted = open(library, words[PLACE] as *mut c_void).word();
    real
}

/// Counts a team, and states its number of threads if it is to be smaller.
fn open(library: &Library, place: *mut c_void) -> Team {
    let (threads, is_strict) = match STATED.replace(Stated::Nothing) {
        Stated::Nothing => (0, false),
        Stated::Number(threads) => (threads, false),
        Stated::Strictly(threads) => (threads, true),
    };
    let wanted = library.queries.wanted(threads).of_library(library.count);
    let team = budget::open(Wanted { is_exact: wanted.is_exact || is_strict, ..wanted });
    if let Some(threads) = team.threads {
        state(library, place, threads);
    }
    team
}

/// States the number of threads of the calling thread's next team.
fn state(library: &Library, place: *mut c_void, threads: u32) {
    type ThreadNumber = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    type Push = unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int);
    // SAFETY: the addresses of the functions of these names and types, or 0, which is `None`.
    let (number, push) = unsafe {
        (
            std::mem::transmute::<usize, Option<ThreadNumber>>(library.function(THREAD)),
            std::mem::transmute::<usize, Option<Push>>(library.function(PUSH)),
        )
    };
    if let Some((number, push)) = number.zip(push) {
        // SAFETY: the place in the source that the program's own call states.
        unsafe { push(place, number(place), threads as c_int) };
    }
}

/// Counts the end of a team.
extern "C" fn after_fork(counted: u64) {
    Team::close_word(counted);
}

/// Stores a stated number. Returns the address of the real function.
///
/// # Safety
/// As the functions in assembly call it: the arguments are those of the function `which`.
unsafe extern "C" fn before_statement(
    words: *const [usize; REGISTERS],
    caller: usize,
    which: usize,
) -> usize {
    // SAFETY: the caller's contract.
    let words = unsafe { &*words };
    let Some(library) = library::of(caller) else { return 0 };
    if budget::is_on() {
        let list = || {
            let (length, list) = (words[2] as c_uint, words[3] as *const c_int);
            // SAFETY: a list of that length, by the contract of the function.
            if length > 0 && !list.is_null() { unsafe { *list } } else { 0 }
        };
        let threads = |number: c_int| u32::try_from(number).ok().filter(|&number| number > 0);
        let number = match which {
            PUSH | PUSH_STRICT => threads(words[2] as c_int),
            PUSH_LIST | PUSH_LIST_STRICT => threads(list()),
            _ => None,
        };
        STATED.set(match (number, which) {
            (None, _) => Stated::Nothing,
            (Some(number), PUSH_STRICT | PUSH_LIST_STRICT) => Stated::Strictly(number),
            (Some(number), _) => Stated::Number(number),
        });
    }
    library.function(which)
}

/// Defines calls that open a team. If it counts, the arguments on the stack are copied for the real
/// call, and the frame describes itself to unwinders by its frame pointer; else the call is passed
/// on as it came.
#[cfg(target_arch = "x86_64")]
macro_rules! forks {
    ($($name:ident $which:path;)*) => {$(
        /// Passes on a call to the OpenMP runtime.
        ///
        /// # Safety
        /// As the runtime's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi",
            "sub rsp, 16",
            "lea rdi, [rbp - 48]",
            "mov rsi, [rbp + 8]",
            "lea rdx, [rbp - 56]",
            "mov ecx, {which}",
            "call {before}",
            "mov r11, rax",
            "cmp qword ptr [rbp - 56], 0",
            "jne 2f",
            "mov rdi, [rbp - 48]", "mov rsi, [rbp - 40]", "mov rdx, [rbp - 32]",
            "mov rcx, [rbp - 24]", "mov r8, [rbp - 16]", "mov r9, [rbp - 8]",
            "xor eax, eax",
            ".cfi_remember_state",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "jmp r11",
            ".cfi_restore_state",
            // Three of the further arguments are in registers.
            "2: mov ecx, dword ptr [rbp - 40]",
            "sub ecx, 3",
            "jle 3f",
            "lea edx, [rcx + 1]",
            "and edx, -2",
            "shl rdx, 3",
            "sub rsp, rdx",
            "mov rdi, rsp",
            "lea rsi, [rbp + 16]",
            "rep movsq",
            "3: mov rdi, [rbp - 48]", "mov rsi, [rbp - 40]", "mov rdx, [rbp - 32]",
            "mov rcx, [rbp - 24]", "mov r8, [rbp - 16]", "mov r9, [rbp - 8]",
            "xor eax, eax",
            "call r11",
            "mov rdi, [rbp - 56]",
            "call {after}",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            which = const $which,
            before = sym before_fork,
            after = sym after_fork,
            )
        }
    )*};
}

/// Defines calls that are passed on unchanged after their number is known.
#[cfg(target_arch = "x86_64")]
macro_rules! statements {
    ($($name:ident $which:path;)*) => {$(
        /// Passes on a call to the OpenMP runtime.
        ///
        /// # Safety
        /// As the runtime's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi",
            "mov rdi, rsp",
            "mov rsi, [rbp + 8]",
            "mov edx, {which}",
            "call {before}",
            "mov r11, rax",
            "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop r8", "pop r9",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "jmp r11",
            ".cfi_endproc",
            which = const $which,
            before = sym before_statement,
            )
        }
    )*};
}

/// Does the same for aarch64: five of the further arguments are in registers.
#[cfg(target_arch = "aarch64")]
macro_rules! forks {
    ($($name:ident $which:path;)*) => {$(
        /// Passes on a call to the OpenMP runtime.
        ///
        /// # Safety
        /// As the runtime's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-96]!",
            ".cfi_def_cfa_offset 96",
            ".cfi_offset x29, -96",
            ".cfi_offset x30, -88",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            "stp x0, x1, [x29, #16]", "stp x2, x3, [x29, #32]",
            "stp x4, x5, [x29, #48]", "stp x6, x7, [x29, #64]",
            "add x0, x29, #16",
            "mov x1, x30",
            "add x2, x29, #80",
            "mov x3, #{which}",
            "bl {before}",
            "mov x16, x0",
            "ldr x9, [x29, #80]",
            "cbz x9, 4f",
            "ldr w10, [x29, #24]",
            "subs w10, w10, #5",
            "b.le 3f",
            "add w11, w10, #1",
            "and w11, w11, #0xfffffffe",
            "sub sp, sp, x11, lsl #3",
            "add x12, x29, #96",
            "mov x13, sp",
            "2: ldr x14, [x12], #8",
            "str x14, [x13], #8",
            "subs w10, w10, #1",
            "b.ne 2b",
            "3: ldp x0, x1, [x29, #16]", "ldp x2, x3, [x29, #32]",
            "ldp x4, x5, [x29, #48]", "ldp x6, x7, [x29, #64]",
            "blr x16",
            "ldr x0, [x29, #80]",
            "bl {after}",
            "mov sp, x29",
            ".cfi_remember_state",
            "ldp x29, x30, [sp], #96",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_restore_state",
            "4: ldp x0, x1, [x29, #16]", "ldp x2, x3, [x29, #32]",
            "ldp x4, x5, [x29, #48]", "ldp x6, x7, [x29, #64]",
            "ldp x29, x30, [sp], #96",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            which = const $which,
            before = sym before_fork,
            after = sym after_fork,
            )
        }
    )*};
}

/// Does the same for aarch64.
#[cfg(target_arch = "aarch64")]
macro_rules! statements {
    ($($name:ident $which:path;)*) => {$(
        /// Passes on a call to the OpenMP runtime.
        ///
        /// # Safety
        /// As the runtime's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-80]!",
            ".cfi_def_cfa_offset 80",
            ".cfi_offset x29, -80",
            ".cfi_offset x30, -72",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
            "add x0, sp, #16",
            "mov x1, x30",
            "mov x2, #{which}",
            "bl {before}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            which = const $which,
            before = sym before_statement,
            )
        }
    )*};
}

forks! {
    __kmpc_fork_call FORK;
    __kmpc_fork_call_if FORK_IF;
}

statements! {
    __kmpc_push_num_threads PUSH;
    __kmpc_push_num_threads_strict PUSH_STRICT;
    __kmpc_push_num_threads_list PUSH_LIST;
    __kmpc_push_num_threads_list_strict PUSH_LIST_STRICT;
    __kmpc_serialized_parallel SERIAL;
}
