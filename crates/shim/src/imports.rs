//! Bindings to functions that not every C library has, or has under another version.
//!
//! Problem: the loader stops a program if a preloaded library needs a symbol or a version that does
//! not exist. musl has no unwinder, no `__register_atfork`, no affinity of thread attributes. A
//! library that is linked against glibc 2.34 needs the version 2.34 of every function that was
//! moved into `libc.so.6` in that release. Before, `dlsym` and most of POSIX threads were separate
//! libraries, which a program need not have. The shim reaches such programs if a child's
//! environment cannot be cleaned ([`leave`](crate::leave)): from statically linked shells, or by
//! hand.
//!
//! Idea: this library defines these names itself, hidden, for its own code and for the standard
//! library's code in it. Each is a jump to the C library's function, which is bound weakly and by
//! the oldest version that it ever had. If the function is missing, the jump answers -1, and the
//! shim is without a plan ([`is_home`]). Functions of later versions are system calls here, or
//! resolved by name. The unwinder is in [`unwinder`](crate::unwinder).
//!
//! One library of this kind was chosen over a small one that opens a large one: two libraries need
//! a jump for each of some 200 exports, calls before the small one's constructor would be passed on
//! without the plan, and a library that is opened late has no thread-local storage without
//! allocating. `tests/exports.rs` checks the versions, and the names against musl's.

#![cfg_attr(test, allow(dead_code, unused_macros))]

use crate::real::Symbol;
use libc::{c_char, c_int, c_uint, c_void, pid_t};
use std::mem::transmute;
use std::ptr::NonNull;

/// Defines hidden functions that jump to the C library's, bound weakly by their oldest version, and
/// for each a hidden function `trimtab_found_...` that returns the address. All of them are in one
/// piece of assembly: a weak name is weak only in the compiler's unit that says so.
#[cfg(target_arch = "x86_64")]
macro_rules! weakly {
    ($($name:literal $version:literal;)*) => {$(
        std::arch::global_asm!(
            concat!(".weak trimtab_weak_", $name),
            concat!(".symver trimtab_weak_", $name, ",", $name, "@", $version),
            ".pushsection .text.trimtab_imports,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            concat!("mov r11, qword ptr [rip + trimtab_weak_", $name, "@GOTPCREL]"),
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2: mov rax, -1",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            concat!(".globl trimtab_found_", $name),
            concat!(".hidden trimtab_found_", $name),
            concat!(".type trimtab_found_", $name, ",@function"),
            concat!("trimtab_found_", $name, ":"),
            concat!("mov rax, qword ptr [rip + trimtab_weak_", $name, "@GOTPCREL]"),
            "ret",
            concat!(".size trimtab_found_", $name, ", . - trimtab_found_", $name),
            ".popsection",
        );
    )*};
}

/// Does the same for aarch64; all its versions begin with 2.17.
#[cfg(target_arch = "aarch64")]
macro_rules! weakly {
    ($($name:literal $version:literal;)*) => {$(
        std::arch::global_asm!(
            concat!(".weak trimtab_weak_", $name),
            concat!(".symver trimtab_weak_", $name, ",", $name, "@GLIBC_2.17"),
            ".pushsection .text.trimtab_imports,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            concat!("adrp x16, :got:trimtab_weak_", $name),
            concat!("ldr x16, [x16, :got_lo12:trimtab_weak_", $name, "]"),
            "cbz x16, 2f",
            "br x16",
            "2: mov x0, #-1",
            "ret",
            concat!(".size ", $name, ", . - ", $name),
            concat!(".globl trimtab_found_", $name),
            concat!(".hidden trimtab_found_", $name),
            concat!(".type trimtab_found_", $name, ",@function"),
            concat!("trimtab_found_", $name, ":"),
            concat!("adrp x0, :got:trimtab_weak_", $name),
            concat!("ldr x0, [x0, :got_lo12:trimtab_weak_", $name, "]"),
            "ret",
            concat!(".size trimtab_found_", $name, ", . - trimtab_found_", $name),
            ".popsection",
        );
    )*};
}

#[cfg(not(test))]
weakly! {
    "dlopen" "GLIBC_2.2.5";
    "dlsym" "GLIBC_2.2.5";
    "dlerror" "GLIBC_2.2.5";
    "pthread_key_create" "GLIBC_2.2.5";
    "pthread_key_delete" "GLIBC_2.2.5";
    "pthread_getspecific" "GLIBC_2.2.5";
    "pthread_setspecific" "GLIBC_2.2.5";
    "pthread_attr_getguardsize" "GLIBC_2.2.5";
    "pthread_attr_setguardsize" "GLIBC_2.2.5";
    "pthread_attr_getstack" "GLIBC_2.2.5";
    "pthread_attr_setstack" "GLIBC_2.2.5";
    "pthread_attr_setstacksize" "GLIBC_2.2.5";
    "pthread_attr_getdetachstate" "GLIBC_2.2.5";
    "pthread_attr_setdetachstate" "GLIBC_2.2.5";
    "pthread_attr_getinheritsched" "GLIBC_2.2.5";
    "pthread_attr_setinheritsched" "GLIBC_2.2.5";
    "pthread_attr_getschedpolicy" "GLIBC_2.2.5";
    "pthread_attr_setschedpolicy" "GLIBC_2.2.5";
    "pthread_attr_getschedparam" "GLIBC_2.2.5";
    "pthread_attr_setschedparam" "GLIBC_2.2.5";
    "pthread_attr_getaffinity_np" "GLIBC_2.3.4";
    "pthread_attr_setaffinity_np" "GLIBC_2.3.4";
    "__register_atfork" "GLIBC_2.3.2";
    "__sysconf" "GLIBC_2.2.5";
    "gnu_get_libc_version" "GLIBC_2.2.5";
}

// If thread-local storage is addressed by a call, the C library's function is in the loader, whose
// name musl does not have. A library that the program starts with has its storage at a fixed
// distance from the thread pointer, which a variable of this library shows. So no call of this
// library allocates on a thread's first use, as the C library's may.
#[cfg(all(not(test), target_arch = "x86_64"))]
std::arch::global_asm!(
    ".pushsection .tbss.trimtab_anchor,\"awT\",@nobits",
    ".balign 8",
    "trimtab_anchor: .zero 8",
    ".popsection",
    ".pushsection .text.trimtab_imports,\"ax\",@progbits",
    ".globl __tls_get_addr",
    ".hidden __tls_get_addr",
    ".type __tls_get_addr,@function",
    "__tls_get_addr:",
    "mov rax, qword ptr fs:[0]",
    "add rax, qword ptr [rip + trimtab_anchor@GOTTPOFF]",
    "xor ecx, ecx",
    "lea rcx, [rcx + trimtab_anchor@DTPOFF]",
    "sub rax, rcx",
    "add rax, qword ptr [rdi + 8]",
    "ret",
    ".size __tls_get_addr, . - __tls_get_addr",
    ".popsection",
);

/// Jump to a function of this library.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// Jump to a function of this library.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// Defines hidden functions of these names that jump to functions of this library.
#[cfg(not(test))]
macro_rules! ours {
    ($($name:literal = $function:path;)*) => {$(
        std::arch::global_asm!(
            ".pushsection .text.trimtab_imports,\"ax\",%progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",%function"),
            concat!($name, ":"),
            jump!(),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    )*};
}

#[cfg(not(test))]
ours! {
    "fstat" = fstat;
    "fstat64" = fstat;
    "stat64" = stat;
    "statx" = statx;
    "gettid" = gettid;
    "__cxa_thread_atexit_impl" = thread_atexit;
}

// On 64-bit processors the C library's `stat` is the kernel's.
unsafe extern "C" fn fstat(file: c_int, to: *mut c_void) -> c_int {
    // SAFETY: the caller's contract, passed on.
    unsafe { libc::syscall(libc::SYS_fstat, file, to) as c_int }
}

unsafe extern "C" fn stat(path: *const c_char, to: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, to, 0) as c_int }
}

unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_statx, folder, path, flags, mask, to) as c_int }
}

extern "C" fn gettid() -> pid_t {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as pid_t }
}

/// Available since glibc 2.18.
static THREAD_ATEXIT: Symbol = Symbol::new(c"__cxa_thread_atexit_impl");
/// Available since glibc 2.18.
static GETATTR_DEFAULT: Symbol = Symbol::new(c"pthread_getattr_default_np");

/// Registers a destructor. If the C library lacks the function, the value is not destroyed with its
/// thread.
unsafe extern "C" fn thread_atexit(
    destructor: *const c_void,
    value: *mut c_void,
    object: *mut c_void,
) -> c_int {
    type Register = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void) -> c_int;
    match THREAD_ATEXIT.found().or_else(|| THREAD_ATEXIT.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(register) => unsafe {
            transmute::<NonNull<c_void>, Register>(register)(destructor, value, object)
        },
        None => -1,
    }
}

/// Reads the default attribute of threads; the plain attribute if the default cannot be changed.
pub(crate) unsafe extern "C" fn pthread_getattr_default_np(attr: *mut libc::pthread_attr_t) -> c_int {
    type Get = unsafe extern "C" fn(*mut libc::pthread_attr_t) -> c_int;
    match GETATTR_DEFAULT.found().or_else(|| GETATTR_DEFAULT.look_up()) {
        // SAFETY: the symbol of that name has that type, and the caller keeps the contract.
        Some(get) => unsafe { transmute::<NonNull<c_void>, Get>(get)(attr) },
        // SAFETY: the caller keeps the contract.
        None => unsafe { libc::pthread_attr_init(attr) },
    }
}

/// Resolves the functions that are found by name.
pub(crate) fn resolve() {
    THREAD_ATEXIT.look_up();
    GETATTR_DEFAULT.look_up();
}

/// Addresses of the C library's functions; 0 if it has none of that name.
#[cfg(not(test))]
mod found {
    unsafe extern "C" {
        pub(super) safe fn trimtab_found_gnu_get_libc_version() -> usize;
        pub(super) safe fn trimtab_found_dlsym() -> usize;
        pub(super) safe fn trimtab_found_pthread_key_create() -> usize;
    }
}

/// Returns whether this process has a C library that the shim supports: glibc, with threads and a
/// loader that finds functions. In all others the shim has no plan.
#[cfg(not(test))]
pub(crate) fn is_home() -> bool {
    found::trimtab_found_gnu_get_libc_version() != 0
        && found::trimtab_found_dlsym() != 0
        && found::trimtab_found_pthread_key_create() != 0
}

/// Returns whether functions can be resolved by name, as in musl too.
#[cfg(not(test))]
pub(crate) fn can_look_up() -> bool {
    found::trimtab_found_dlsym() != 0
}

/// A test is linked to the C library like any program.
#[cfg(test)]
pub(crate) fn is_home() -> bool {
    true
}

/// As above.
#[cfg(test)]
pub(crate) fn can_look_up() -> bool {
    true
}
