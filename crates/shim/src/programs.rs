//! The functions that start programs, with a mask that the program may inherit: see `wide`.

use crate::real::Symbol;
use crate::wide;
use libc::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

type Text = *const c_char;
type List = *const *const c_char;

/// Looks all functions up, as [`real::resolve`](crate::real::resolve) does.
pub(crate) fn resolve() {
    for symbol in [
        &EXECVE,
        &EXECV,
        &EXECVP,
        &EXECVPE,
        &FEXECVE,
        &EXECVEAT,
        &POSIX_SPAWN,
        &POSIX_SPAWNP,
        &SYSTEM,
        &POPEN,
    ] {
        symbol.look_up();
    }
    #[cfg(target_arch = "x86_64")]
    many::resolve();
}

/// A function that starts a program: `before` replaces this one, `around` goes on behind it.
macro_rules! starters {
    ($($symbol:ident = $text:literal: fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $way:ident, or $none:expr;)*) => {$(
        static $symbol: Symbol = Symbol::new($text);

        /// Starts a program, with the mask of the run.
        ///
        /// # Safety
        /// As the C library's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            let Some(real) = $symbol.found().or_else(|| $symbol.look_up()) else { return $none };
            // SAFETY: the symbol of that name has that type.
            let real = unsafe { transmute::<NonNull<c_void>, Function>(real) };
            // SAFETY: the caller's contract.
            $way(|| unsafe { real($($argument),*) })
        }
    )*};
}

/// `execve` and its kin.
fn before<T>(exec: impl FnOnce() -> T) -> T {
    wide::before_exec();
    exec()
}

/// What goes on in this program.
fn around<T>(start: impl FnOnce() -> T) -> T {
    wide::around(start)
}

starters! {
    EXECVE = c"execve": fn execve(path: Text, arguments: List, environment: List) -> c_int, before, or -1;
    EXECV = c"execv": fn execv(path: Text, arguments: List) -> c_int, before, or -1;
    EXECVP = c"execvp": fn execvp(file: Text, arguments: List) -> c_int, before, or -1;
    EXECVPE = c"execvpe": fn execvpe(file: Text, arguments: List, environment: List) -> c_int, before, or -1;
    FEXECVE = c"fexecve": fn fexecve(file: c_int, arguments: List, environment: List) -> c_int, before, or -1;
    EXECVEAT = c"execveat":
        fn execveat(folder: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int,
        before, or -1;
    POSIX_SPAWN = c"posix_spawn":
        fn posix_spawn(pid: *mut libc::pid_t, path: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        around, or libc::ENOSYS;
    POSIX_SPAWNP = c"posix_spawnp":
        fn posix_spawnp(pid: *mut libc::pid_t, file: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        around, or libc::ENOSYS;
    SYSTEM = c"system": fn system(command: Text) -> c_int, around, or -1;
    POPEN = c"popen": fn popen(command: Text, mode: Text) -> *mut c_void, around, or null_mut();
}

/// Functions of any number of arguments.
#[cfg(target_arch = "x86_64")]
mod many {
    use super::Symbol;
    use crate::wide;
    use std::arch::naked_asm;
    use std::ffi::CStr;
    use std::sync::atomic::{AtomicUsize, Ordering::*};

    static EXECL: AtomicUsize = AtomicUsize::new(0);
    static EXECLP: AtomicUsize = AtomicUsize::new(0);
    static EXECLE: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn resolve() {
        let all: [(&AtomicUsize, &'static CStr); 3] =
            [(&EXECL, c"execl"), (&EXECLP, c"execlp"), (&EXECLE, c"execle")];
        for (found, name) in all {
            found.store(Symbol::new(name).look_up().map_or(0, |symbol| symbol.as_ptr() as usize), Relaxed);
        }
    }

    extern "C" fn before() {
        wide::before_exec();
    }

    /// Widens the thread, and goes on in the real function with the registers and the stack as they were: seven words
    /// pushed align the stack for the call. Where there is no real function, as before a library is loaded that the
    /// program starts with, it answers -1.
    macro_rules! jumps {
        ($($name:ident, $real:ident;)*) => {$(
            /// Starts a program, with the mask of the run.
            ///
            /// # Safety
            /// As the C library's function of that name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "call {before}",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "mov r11, qword ptr [rip + {real}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2:",
                    "mov eax, -1",
                    "ret",
                    before = sym before,
                    real = sym $real,
                )
            }
        )*};
    }

    jumps! {
        execl, EXECL;
        execlp, EXECLP;
        execle, EXECLE;
    }
}
