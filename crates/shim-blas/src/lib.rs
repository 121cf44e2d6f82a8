//! `libtrimtab_shim_blas.so`: the preload library of launches with a budget.
//!
//! It is `libtrimtab_shim.so` (the crate `trimtab-shim`, whose exports it has), and exports
//! functions of BLAS and LAPACK besides. A launch loads one of the two: this one with `--fit
//! budget` or `--fit limit`. [`trimtab_shim::blas`] says what the functions do, and why they are
//! apart.
//!
//! The crate is also an rlib so that Cargo builds the library before the tests that load it. Do not
//! link it into a program: it would export `pthread_create` there.
//!
//! # Example
//!
//! The variables with which a launcher starts a program in a budget of four threads. Descriptor 600
//! is the page that the processes of the run share:
//!
//! ```
//! use trimtab_core::budget::{Handoff, Rule, VARIABLE};
//!
//! assert_eq!(VARIABLE, "TRIMTAB_BUDGET");
//! let budget = Handoff::read("1 4711 600 4 unnumbered 0-3").expect("a hand-off");
//! assert_eq!((budget.cores, budget.rule), (4, Rule::Unnumbered));
//! // Beside it: LD_PRELOAD=/usr/lib/trimtab/libtrimtab_shim_blas.so
//! ```

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code)]
#![warn(missing_docs)]

use std::arch::naked_asm;
use trimtab_shim::blas::{BlasPosition, common};

/// Defines the exports. Each puts its position into a register that carries no argument.
macro_rules! export {
    ($($name:ident)*) => {
        $(
            /// Calls the library's function with the threads that the budget grants.
            ///
            /// # Safety
            /// As the library's function of that name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C-unwind" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!("mov r11d, {at}", "jmp {common}", at = const BlasPosition::$name as usize, common = sym common);
                #[cfg(target_arch = "aarch64")]
                naked_asm!("mov x16, #{at}", "b {common}", at = const BlasPosition::$name as usize, common = sym common);
            }
        )*
    };
}

trimtab_shim::blas_functions!(export);
