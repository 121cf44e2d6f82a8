//! Build script of the programs: links them statically and at fixed addresses, and puts the
//! functions of a launch side by side. `crates/lab` and `crates/discover` have links to this file.
//!
//! Problem: every launch pays for `trimtab` being a process. As a dynamic program it maps four
//! libraries and writes 12,000 addresses into 58 pages before `main`; that is a third of a launch.
//! Idea: a static program at fixed addresses does neither, and runs on machines with any C library.
//! Nothing here looks up users or host names, or loads a library, which a static C library does
//! badly.
//!
//! The functions that a launch runs are a fifth of the program's code, and the compiler scatters
//! them over all of it: a launch touched 72 of its 80 pieces of 64 KiB, with a page fault for each.
//! The file `start-order` names them, and a linker script puts them first. It changes the order
//! alone, so a name that is missing, or too many, costs time only. `scripts/start-order` makes the
//! file.
//!
//! `TRIMTAB_LINK=dynamic` keeps the compiler's default for all. Otherwise `trimtab` is static where
//! the C library has archives (Debian: libc6-dev; Fedora: glibc-static). `TRIMTAB_LINK=static` is
//! for releases (scripts/dist): all three programs are static, hwloc in the helper too, or the
//! build fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Libraries that the standard library names, of which the C library has archives.
const LIBRARIES: [&str; 6] = ["c", "dl", "m", "pthread", "rt", "util"];

/// Linker script in the place of `libgcc_s`, which exists as a shared library only.
const UNWINDER: &str = "INPUT ( -lgcc_eh -lgcc )\n";

/// The helper's package, the only one that links hwloc.
const HELPER: &str = "trimtab-discover";

/// Functions in the place of libudev's, which exists as a shared library only, and of `dlopen`.
/// Without udev's library hwloc reads udev's files itself. Its plugins belong to a shared hwloc,
/// and a static program can load no library safely; the helper wants none that asks vendors'
/// libraries.
const STAND_INS: &str = "\
void *udev_new(void) { return 0; }
void *udev_unref(void *udev) { (void)udev; return 0; }
void *udev_device_new_from_subsystem_sysname(void *udev, const char *subsystem, const char *name) {
    (void)udev; (void)subsystem; (void)name; return 0;
}
const char *udev_device_get_property_value(void *device, const char *key) { (void)device; (void)key; return 0; }
void *udev_device_unref(void *device) { (void)device; return 0; }
void *dlopen(const char *file, int mode) { (void)file; (void)mode; return 0; }
";

/// Names of the functions that a launch runs.
const START_ORDER: &str = "start-order";

/// The package of the program that launches.
const LAUNCHER: &str = "trimtab";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TRIMTAB_LINK");
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let package = variable("CARGO_PKG_NAME");
    let must = variable("TRIMTAB_LINK") == "static";
    if !must && package != LAUNCHER {
        return;
    }
    if package == LAUNCHER {
        println!("cargo:rerun-if-changed={START_ORDER}");
    }
    match prepare(&output, &package) {
        Ok(()) => link(&output, &package),
        Err(reason) if must => println!("cargo::error={package} cannot be linked statically: {reason}"),
        Err(_) => {}
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// Makes what a static link needs, and tries it; the error says what is missing.
fn prepare(output: &Path, package: &str) -> Result<(), String> {
    if !is_wanted() {
        return Err("this is for builds with the GNU C library, and for another processor with a linker that cargo is told (scripts/cross)".to_owned());
    }
    write_scripts(output)?;
    if package == HELPER {
        write_hwloc(output)?;
    }
    if links(output, &[]) {
        return Ok(());
    }
    Err("the linker fails with the C library's archives (Debian: libc6-dev; Fedora: glibc-static)".to_owned())
}

/// Tells cargo the linker's options.
fn link(output: &Path, package: &str) {
    let directory = format!("-L{}", output.display());
    let end = ["-Wl,--start-group", "-lgcc_s", "-lc", "-Wl,--end-group"];
    for argument in [directory.as_str(), "-static", "-no-pie"].into_iter().chain(end) {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    if package == HELPER {
        // Before the directory of the shared hwloc, which hwloc's binding names.
        println!("cargo:rustc-link-search=native={}", output.display());
    }
    if package == LAUNCHER
        && let Some(script) = write_order(output)
        && links(output, &[&script])
    {
        println!("cargo:rustc-link-arg-bins={script}");
    }
}

/// Writes the linker script that puts the functions of a launch first, and returns the option that
/// names it.
fn write_order(output: &Path) -> Option<String> {
    let names = fs::read_to_string(START_ORDER).ok()?;
    let mut script = "SECTIONS {\n  .text.start : {\n".to_owned();
    for name in names.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        script += &match name.ends_with(".o") {
            true => format!("    *libc.a:{name}(.text .text.*)\n"),
            false => format!("    *(.text.{name} .text.*.{name})\n"),
        };
    }
    script += "  }\n}\nINSERT BEFORE .text;\n";
    let path = output.join("start-order.ld");
    fs::write(&path, script).ok()?;
    Some(format!("-Wl,-T,{}", path.display()))
}

/// Returns whether the build is for the GNU C library, with a linker that knows the processor, and
/// a static program is not refused.
fn is_wanted() -> bool {
    variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && (variable("HOST") == variable("TARGET") || env::var_os("RUSTC_LINKER").is_some())
        && variable("TRIMTAB_LINK") != "dynamic"
}

fn linker() -> Command {
    Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| OsString::from("cc")))
}

/// Returns the path of an archive, if the compiler finds it.
fn archive(name: &str) -> Result<PathBuf, String> {
    let said = linker().arg(format!("-print-file-name=lib{name}.a")).output();
    let said = said.map_err(|error| format!("the C compiler does not start: {error}"))?;
    let path = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    if path.is_absolute() { Ok(path) } else { Err(format!("there is no lib{name}.a")) }
}

/// Writes the file that the linker finds for `-lNAME`.
fn write(output: &Path, name: &str, text: &str) -> Result<(), String> {
    fs::write(output.join(format!("lib{name}.a")), text).map_err(|error| format!("a linker script: {error}"))
}

/// Writes linker scripts that name the archives. The compiler makes the linker prefer shared
/// libraries; in a directory without any, the linker finds these scripts.
fn write_scripts(output: &Path) -> Result<(), String> {
    write(output, "gcc_s", UNWINDER)?;
    for name in LIBRARIES {
        let path = archive(name).map_err(|reason| {
            format!("{reason} of the C library (Debian: libc6-dev; Fedora: glibc-static)")
        })?;
        write(output, name, &format!("INPUT ( \"{}\" )\n", path.display()))?;
    }
    Ok(())
}

/// Does the same for hwloc, and compiles the stand-ins for what it names besides.
fn write_hwloc(output: &Path) -> Result<(), String> {
    let path = archive("hwloc")
        .map_err(|reason| format!("{reason} (Debian: libhwloc-dev; else hwloc --enable-static)"))?;
    write(output, "hwloc", &format!("INPUT ( \"{}\" )\n", path.display()))?;
    let (source, object) = (output.join("stand_ins.c"), output.join("stand_ins.o"));
    let compiled = fs::write(&source, STAND_INS).is_ok()
        && linker().args(["-O", "-c", "-o"]).arg(&object).arg(&source).status().is_ok_and(|it| it.success());
    if !compiled {
        return Err("the C compiler fails".to_owned());
    }
    write(output, "udev", &format!("INPUT ( \"{}\" )\n", object.display()))
}

/// Returns whether a small program can be linked in this way, and with further options.
fn links(output: &Path, more: &[&str]) -> bool {
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
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
