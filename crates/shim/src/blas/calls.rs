//! One call of BLAS: the registers kept, the budget asked, the library told.

use super::control::Control;
use super::library;
use crate::budget::{self, Team, Wanted};
use crate::{gomp, kmpc};
use std::cell::Cell;
use std::ptr::null;

/// Call that counts, in the frame of [`common`].
#[derive(Clone, Copy)]
#[repr(C)]
struct BlasCall {
    /// Null if the call is passed on unchanged.
    control: *const Control,
    entered: u32,
    counted: u64,
}

impl BlasCall {
    const NONE: Self = Self { control: null(), entered: 0, counted: 0 };

    fn end(self) {
        // SAFETY: controls are leaked.
        if let Some(control) = unsafe { self.control.as_ref() } {
            control.leave(self.entered);
        }
        Team::close_word(self.counted);
    }
}

thread_local! {
    /// The call that counts and in which the thread is, and its place on the stack; 0 if there is
    /// none.
    static INSIDE: Cell<(usize, BlasCall)> = const { Cell::new((0, BlasCall::NONE)) };
}

/// Returns whether the calling thread is in a call of BLAS that counts as a team.
pub(crate) fn is_inside() -> bool {
    INSIDE.get().0 != 0
}

/// Does the same for a call with this place on the stack. A call that the program has left by a
/// jump (`longjmp`, after an error in an argument) is ended here.
fn is_inside_at(place: usize) -> bool {
    let (outer, call) = INSIDE.get();
    if outer == 0 || place < outer {
        return outer != 0;
    }
    INSIDE.set((0, BlasCall::NONE));
    call.end();
    false
}

/// Decides about a call. Returns the address of the real function; 0 if no library defines it.
///
/// # Safety
/// As [`common`] calls it.
unsafe extern "C" fn before(at: usize, caller: usize, call: *mut BlasCall) -> usize {
    // SAFETY: the caller's contract.
    let call = unsafe { &mut *call };
    *call = BlasCall::NONE;
    let Some(entry) = library::of(caller, at) else { return 0 };
    if budget::is_on()
        && let Some(control) = entry.control()
        && !is_inside_at(std::ptr::from_ref(call).addr())
    {
        open(control, call);
    }
    entry.address()
}

fn open(control: &'static Control, call: &mut BlasCall) {
    let threads = control.threads();
    if threads < 2 {
        return;
    }
    // No thread is inside a team if none is open.
    let inside = budget::has_teams().then(|| gomp::inside().or_else(kmpc::inside)).flatten();
    let team = budget::open(Wanted { threads, numbered: false, dynamic: true, inside, is_exact: false });
    let entered = control.enter(team.threads.unwrap_or(threads), threads);
    *call = BlasCall { control, entered, counted: team.word() };
    INSIDE.set((std::ptr::from_ref(call).addr(), *call));
}

/// Ends a call that counts.
///
/// # Safety
/// As [`common`] calls it, with what [`before`] stored.
unsafe extern "C" fn after(call: *const BlasCall) {
    INSIDE.set((0, BlasCall::NONE));
    // SAFETY: the caller's contract.
    unsafe { *call }.end();
}

/// Calls the function at the position in a register that carries no argument. The functions have at
/// most 16 arguments of a word, hidden lengths of Fortran's texts included; those on the stack are
/// copied if the call counts. They return nothing or an integer.
///
/// # Safety
/// Code of an export jumps here, with the registers and the stack of its caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn common() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi",
        "sub rsp, 96",
        "movsd [rsp], xmm0", "movsd [rsp + 8], xmm1", "movsd [rsp + 16], xmm2", "movsd [rsp + 24], xmm3",
        "movsd [rsp + 32], xmm4", "movsd [rsp + 40], xmm5", "movsd [rsp + 48], xmm6", "movsd [rsp + 56], xmm7",
        "mov edi, r11d",
        "mov rsi, [rbp + 8]",
        "lea rdx, [rbp - 72]",
        "call {before}",
        "mov r11, rax",
        "movsd xmm0, [rsp]", "movsd xmm1, [rsp + 8]", "movsd xmm2, [rsp + 16]", "movsd xmm3, [rsp + 24]",
        "movsd xmm4, [rsp + 32]", "movsd xmm5, [rsp + 40]", "movsd xmm6, [rsp + 48]", "movsd xmm7, [rsp + 56]",
        "cmp qword ptr [rbp - 72], 0",
        "jne 2f",
        "mov rdi, [rbp - 48]", "mov rsi, [rbp - 40]", "mov rdx, [rbp - 32]",
        "mov rcx, [rbp - 24]", "mov r8, [rbp - 16]", "mov r9, [rbp - 8]",
        ".cfi_remember_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "jmp r11",
        ".cfi_restore_state",
        "2: sub rsp, 80",
        "mov rdi, rsp",
        "lea rsi, [rbp + 16]",
        "mov ecx, 10",
        "rep movsq",
        "mov rdi, [rbp - 48]", "mov rsi, [rbp - 40]", "mov rdx, [rbp - 32]",
        "mov rcx, [rbp - 24]", "mov r8, [rbp - 16]", "mov r9, [rbp - 8]",
        "call r11",
        "mov [rsp], rax",
        "lea rdi, [rbp - 72]",
        "call {after}",
        "mov rax, [rsp]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        before = sym before,
        after = sym after,
    )
}

/// Does the same for aarch64.
///
/// # Safety
/// Code of an export jumps here, with the registers and the stack of its caller.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn common() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-176]!",
        ".cfi_def_cfa_offset 176",
        ".cfi_offset x29, -176",
        ".cfi_offset x30, -168",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "stp x0, x1, [x29, #16]", "stp x2, x3, [x29, #32]",
        "stp x4, x5, [x29, #48]", "stp x6, x7, [x29, #64]",
        "stp d0, d1, [x29, #80]", "stp d2, d3, [x29, #96]",
        "stp d4, d5, [x29, #112]", "stp d6, d7, [x29, #128]",
        "mov x0, x16",
        "mov x1, x30",
        "add x2, x29, #144",
        "bl {before}",
        "mov x16, x0",
        "ldp d0, d1, [x29, #80]", "ldp d2, d3, [x29, #96]",
        "ldp d4, d5, [x29, #112]", "ldp d6, d7, [x29, #128]",
        "ldr x9, [x29, #144]",
        "cbz x9, 3f",
        "sub sp, sp, #64",
        "add x12, x29, #176",
        "mov x13, sp",
        "mov x10, #8",
        "2: ldr x14, [x12], #8",
        "str x14, [x13], #8",
        "subs x10, x10, #1",
        "b.ne 2b",
        "ldp x0, x1, [x29, #16]", "ldp x2, x3, [x29, #32]",
        "ldp x4, x5, [x29, #48]", "ldp x6, x7, [x29, #64]",
        "blr x16",
        "str x0, [sp]",
        "add x0, x29, #144",
        "bl {after}",
        "ldr x0, [sp]",
        "mov sp, x29",
        ".cfi_remember_state",
        "ldp x29, x30, [sp], #176",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_restore_state",
        "3: ldp x0, x1, [x29, #16]", "ldp x2, x3, [x29, #32]",
        "ldp x4, x5, [x29, #48]", "ldp x6, x7, [x29, #64]",
        "ldp x29, x30, [sp], #176",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        before = sym before,
        after = sym after,
    )
}
