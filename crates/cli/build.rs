//! Build script: links `trimtab` statically and at fixed addresses, where the linker can.
//!
//! Problem: every launch pays for `trimtab` being a process. As a dynamic program it maps four
//! libraries and writes 12,000 addresses into 58 pages before `main`; that is a third of a launch.
//! Idea: a static program at fixed addresses does neither, and runs on machines with any C library.
//! Nothing here looks up users or host names, or loads a library, which a static C library does
//! badly.
//!
//! `TRIMTAB_LINK=dynamic` keeps the compiler's default, as does a machine without the C library's
//! archives (Debian: libc6-dev; Fedora: glibc-static).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Libraries that the standard library names, of which the C library has archives.
const LIBRARIES: [&str; 6] = ["c", "dl", "m", "pthread", "rt", "util"];

/// Linker script in the place of `libgcc_s`, which exists as a shared library only.
const UNWINDER: &str = "INPUT ( -lgcc_eh -lgcc )\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TRIMTAB_LINK");
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if !is_wanted() || !write_scripts(&output) || !links(&output) {
        return;
    }
    let directory = format!("-L{}", output.display());
    let end = ["-Wl,--start-group", "-lgcc_s", "-lc", "-Wl,--end-group"];
    for argument in [directory.as_str(), "-static", "-no-pie"].into_iter().chain(end) {
        println!("cargo:rustc-link-arg-bin=trimtab={argument}");
    }
}

/// Returns whether the build is for this machine's GNU C library, and a static program is not
/// refused.
fn is_wanted() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && variable("HOST") == variable("TARGET")
        && variable("TRIMTAB_LINK") != "dynamic"
}

fn linker() -> Command {
    Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| OsString::from("cc")))
}

/// Writes linker scripts that name the archives. The compiler makes the linker prefer shared
/// libraries; in a directory without any, the linker finds these scripts.
fn write_scripts(output: &Path) -> bool {
    let write = |name: &str, text: &str| fs::write(output.join(format!("lib{name}.a")), text).is_ok();
    let archive = |name: &str| {
        let said = linker().arg(format!("-print-file-name=lib{name}.a")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
        path.is_absolute().then_some(path)
    };
    write("gcc_s", UNWINDER)
        && LIBRARIES.iter().all(|name| {
            archive(name).is_some_and(|path| write(name, &format!("INPUT ( \"{}\" )\n", path.display())))
        })
}

/// Returns whether a small program can be linked in this way.
fn links(output: &Path) -> bool {
    let program = output.join("probe.c");
    let mut directory = OsString::from("-L");
    directory.push(output);
    fs::write(&program, "int main(void) { return 0; }\n").is_ok()
        && linker()
            .arg(program)
            .args(["-static", "-no-pie", "-nodefaultlibs", "-o"])
            .arg(output.join("probe"))
            .arg(directory)
            .args(["-Wl,-Bdynamic", "-lm", "-Wl,--start-group", "-lgcc_s", "-lc", "-Wl,--end-group"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
