//! Functions that start programs, with a mask that the program may inherit ([`wide`]), and without
//! this library if the program cannot load it ([`leave`]).

use crate::carry::Target;
use crate::leave::{self, List, Successor};
use crate::real::Symbol;
use crate::wide;
use libc::{c_char, c_int, c_void, pid_t};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

type Text = *const c_char;

/// Defines functions of the C library by their names, with a Rust function that calls each.
macro_rules! functions {
    ($($symbol:ident = $text:literal: $call:ident($($argument:ident: $type:ty),*) -> $result:ty, or $none:expr;)*) => {
        /// Resolves all functions, as [`real::resolve`](crate::real::resolve) does.
        pub(crate) fn resolve() {
            for symbol in [$(&$symbol),*] {
                symbol.look_up();
            }
            #[cfg(target_arch = "x86_64")]
            many::resolve();
        }

        $(
            static $symbol: Symbol = Symbol::new($text);

            /// Calls the C library's function; an error if there is none.
            ///
            /// # Safety
            /// As the C library's function of that name.
            unsafe fn $call($($argument: $type),*) -> $result {
                type LibcFunction = unsafe extern "C-unwind" fn($($type),*) -> $result;
                let Some(real) = $symbol.found().or_else(|| $symbol.look_up()) else { return $none };
                // SAFETY: the symbol of that name has that type.
                let real = unsafe { transmute::<NonNull<c_void>, LibcFunction>(real) };
                // SAFETY: the caller's contract.
                unsafe { real($($argument),*) }
            }
        )*
    };
}

functions! {
    EXECVE = c"execve": real_execve(path: Text, arguments: List, environment: List) -> c_int, or -1;
    EXECV = c"execv": real_execv(path: Text, arguments: List) -> c_int, or -1;
    EXECVP = c"execvp": real_execvp(file: Text, arguments: List) -> c_int, or -1;
    EXECVPE = c"execvpe": real_execvpe(file: Text, arguments: List, environment: List) -> c_int, or -1;
    FEXECVE = c"fexecve": real_fexecve(file: c_int, arguments: List, environment: List) -> c_int, or -1;
    EXECVEAT = c"execveat":
        real_execveat(folder: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int, or -1;
    POSIX_SPAWN = c"posix_spawn":
        real_posix_spawn(pid: *mut pid_t, path: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        or libc::ENOSYS;
    POSIX_SPAWNP = c"posix_spawnp":
        real_posix_spawnp(pid: *mut pid_t, file: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        or libc::ENOSYS;
    SYSTEM = c"system": real_system(command: Text) -> c_int, or -1;
    POPEN = c"popen": real_popen(command: Text, mode: Text) -> *mut c_void, or null_mut();
}

/// Returns the program's own environment.
fn own() -> List {
    // SAFETY: the C library's own.
    unsafe { libc::environ }.cast_const().cast()
}

/// Defines functions that start a program by one call of the C library, or by another call if the
/// environment has to change.
macro_rules! starters {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $way:ident,
        $target:expr, with $environment:expr => $plain:expr, else |$list:ident| $changed:expr;)*) => {$(
        /// Starts a program.
        ///
        /// # Safety
        /// As the C library's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::too_many_arguments, reason = "the C library's")]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            $way(|successor| {
                // SAFETY: the caller's contract, with an environment that differs only in this
                // library.
                let changed = leave::without(successor, $target, $environment, 0, |$list, _| unsafe { $changed });
                // SAFETY: the caller's contract.
                changed.unwrap_or_else(|| unsafe { $plain })
            })
        }
    )*};
}

/// Wraps `execve` and the other functions that replace this program.
fn before<T>(exec: impl FnOnce(Successor) -> T) -> T {
    wide::for_good();
    exec(Successor::Replacement)
}

/// Wraps functions after which this program continues.
fn around<T>(start: impl FnOnce(Successor) -> T) -> T {
    wide::around(|| start(Successor::Child))
}

starters! {
    fn execve(path: Text, arguments: List, environment: List) -> c_int, before,
        Target::Path(path), with environment => real_execve(path, arguments, environment),
        else |list| real_execve(path, arguments, list);
    fn execv(path: Text, arguments: List) -> c_int, before,
        Target::Path(path), with own() => real_execv(path, arguments),
        else |list| real_execve(path, arguments, list);
    fn execvp(file: Text, arguments: List) -> c_int, before,
        Target::Name(file), with own() => real_execvp(file, arguments),
        else |list| real_execvpe(file, arguments, list);
    fn execvpe(file: Text, arguments: List, environment: List) -> c_int, before,
        Target::Name(file), with environment => real_execvpe(file, arguments, environment),
        else |list| real_execvpe(file, arguments, list);
    fn fexecve(file: c_int, arguments: List, environment: List) -> c_int, before,
        Target::Open(file), with environment => real_fexecve(file, arguments, environment),
        else |list| real_fexecve(file, arguments, list);
    fn execveat(folder: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int, before,
        Target::At(folder, path), with environment => real_execveat(folder, path, arguments, environment, flags),
        else |list| real_execveat(folder, path, arguments, list, flags);
    fn posix_spawn(pid: *mut pid_t, path: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int, around,
        Target::Path(path), with environment => real_posix_spawn(pid, path, actions, attributes, arguments, environment),
        else |list| real_posix_spawn(pid, path, actions, attributes, arguments, list);
    fn posix_spawnp(pid: *mut pid_t, file: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int, around,
        Target::Name(file), with environment => real_posix_spawnp(pid, file, actions, attributes, arguments, environment),
        else |list| real_posix_spawnp(pid, file, actions, attributes, arguments, list);
}

/// Runs a command in a shell. The shell has loaded the library, and removes it from its children's
/// environment.
///
/// # Safety
/// As the C library's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn system(command: Text) -> c_int {
    leave::for_good_if_missing();
    // SAFETY: the caller's contract.
    around(|_| unsafe { real_system(command) })
}

/// Runs a command in a shell, at the other end of a pipe.
///
/// # Safety
/// As the C library's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn popen(command: Text, mode: Text) -> *mut c_void {
    leave::for_good_if_missing();
    // SAFETY: the caller's contract.
    around(|_| unsafe { real_popen(command, mode) })
}

/// Functions with a variable number of arguments.
#[cfg(target_arch = "x86_64")]
mod many {
    use super::{List, Successor, Symbol, Target, Text, leave, own, real_execve, real_execvpe};
    use crate::wide;
    use libc::c_int;
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

    /// Arguments of a call: those in registers as `jumps!` pushed them, and those on the stack.
    #[derive(Clone, Copy)]
    struct VariadicCall {
        registers: *const Text,
        stack: *const Text,
    }

    impl VariadicCall {
        /// Number of registers that hold arguments.
        const ARGUMENT_REGISTERS: usize = 6;

        /// # Safety
        /// The call has more than `at` arguments.
        unsafe fn argument(self, at: usize) -> Text {
            // SAFETY: the first was pushed first, and so lies highest; the register below all of
            // them holds no argument.
            unsafe {
                if at < Self::ARGUMENT_REGISTERS {
                    *self.registers.add(Self::ARGUMENT_REGISTERS - at)
                } else {
                    *self.stack.add(at - Self::ARGUMENT_REGISTERS)
                }
            }
        }
    }

    /// Widens the thread's mask, and does the exec itself if the program cannot load this library.
    /// Returns 1 only if it tried the exec and the exec failed.
    unsafe extern "C" fn before_list(registers: *const Text, stack: *const Text) -> c_int {
        // SAFETY: as `jumps` calls it.
        unsafe { start(VariadicCall { registers, stack }, Target::Path, |_| own(), real_execve) }
    }

    unsafe extern "C" fn before_named(registers: *const Text, stack: *const Text) -> c_int {
        // SAFETY: as above.
        unsafe { start(VariadicCall { registers, stack }, Target::Name, |_| own(), real_execvpe) }
    }

    unsafe extern "C" fn before_environment(registers: *const Text, stack: *const Text) -> c_int {
        // SAFETY: the environment follows the null behind the last argument, by the contract of
        // `execle`.
        let environment = |call: VariadicCall| move |count: usize| unsafe { call.argument(count + 2) }.cast();
        let call = VariadicCall { registers, stack };
        // SAFETY: as above.
        unsafe { start(call, Target::Path, environment(call), real_execve) }
    }

    /// Returns 0 if the real function is to continue.
    ///
    /// # Safety
    /// The call is one of `execl`, `execlp` and `execle`.
    unsafe fn start(
        call: VariadicCall,
        target: fn(Text) -> Target,
        environment: impl FnOnce(usize) -> List,
        exec: unsafe fn(Text, List, List) -> c_int,
    ) -> c_int {
        wide::for_good();
        // SAFETY: the file comes first, then the words up to a null pointer.
        let (file, word) = (unsafe { call.argument(0) }, |at: usize| unsafe { call.argument(1 + at) });
        let count = (0..).take_while(|&at| !word(at).is_null()).count();
        let successor = Successor::Replacement;
        let tried = leave::without(successor, target(file), environment(count), count + 1, |list, words| {
            for (at, place) in words.iter_mut().enumerate() {
                *place = word(at).addr();
            }
            // SAFETY: the caller's contract, with an environment that differs only in this library.
            unsafe { exec(file, words.as_ptr().cast(), list) }
        });
        c_int::from(tried.is_some())
    }

    /// Jumps to the real function with unchanged registers and stack. The seven pushed words align
    /// the stack for the call. The function answers -1 if the exec was done here and failed, or if
    /// there is no real function, as before a library is loaded that the program starts with.
    macro_rules! jumps {
        ($($name:ident, $real:ident, $before:ident;)*) => {$(
            /// Starts a program.
            ///
            /// # Safety
            /// As the C library's function of that name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "mov rdi, rsp",
                    "lea rsi, [rsp + 64]",
                    "call {before}",
                    "test eax, eax",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jnz 2f",
                    "mov r11, qword ptr [rip + {real}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2:",
                    "mov eax, -1",
                    "ret",
                    before = sym $before,
                    real = sym $real,
                )
            }
        )*};
    }

    jumps! {
        execl, EXECL, before_list;
        execlp, EXECLP, before_named;
        execle, EXECLE, before_environment;
    }
}
