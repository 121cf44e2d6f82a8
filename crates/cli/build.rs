//! Links `trimtab` at a fixed address. At any address, a start would first write 12,000 pointers
//! into 230 kB of tables, page by page, and the list of these pointers would be 290 kB of the file.
//! The libraries, the heap and the stack stay where the kernel's randomisation puts them.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    // Static programs have start files for one way of linking only.
    let is_static =
        var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.split(',').any(|one| one == "crt-static"));
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo::rustc-link-arg-bin=trimtab=-no-pie");
    }
}
