//! Link settings of the shared library.

/// Version of the interface that programs need. It is incremented when an entry or a structure of
/// `trimtab.h` changes in a way that breaks programs built before. The same as `cores_soversion` in
/// `scripts/install`.
const SOVERSION: u32 = 0;

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libtrimtab.so.{SOVERSION}");
    println!("cargo::rerun-if-changed=build.rs");
}
