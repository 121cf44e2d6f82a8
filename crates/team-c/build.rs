//! Link settings of the shared library.

/// Version of the interface that programs need. It is incremented when an entry or a structure of
/// `team.h` changes in a way that breaks programs built before. The same as `soversion` in
/// `scripts/install`.
const SOVERSION: u32 = 0;

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libtrimtab_team.so.{SOVERSION}");
    // The C library calls fork handlers and thread destructors of this library: their code must not
    // be unloaded before them.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
