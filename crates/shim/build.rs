//! Link settings of the shared library.

fn main() {
    // New threads carry a destructor of ours (`slots`) and the C library a fork handler (`fork`): were a host to open
    // the library itself and close it again, both would be called after their code is gone.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
