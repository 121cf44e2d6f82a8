//! Link settings of the shared library.

/// Which version of the interface programs need: one more where an entry or a structure of `team.h` changes in a way that programs built
/// before do not survive. The same as `SOVERSION` in the Makefile.
const SOVERSION: u32 = 0;

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libtrimtab_team.so.{SOVERSION}");
    // The C library calls fork handlers and threads' destructors of ours: their code must not go before them.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
