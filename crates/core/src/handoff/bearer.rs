//! Properties of a program's file that decide whether the shim can be preloaded into it.
//!
//! The launcher checks the program that it becomes, and the shim checks each program that its
//! process starts. Each reads the file in its own way: the launcher may allocate, the shim may not.

/// File name of the shim.
pub const LIBRARY: &str = "libtrimtab_shim.so";

/// File name of the shim that also exports functions of BLAS and LAPACK. Launches with a budget
/// load it in place of [`LIBRARY`].
pub const BLAS_LIBRARY: &str = "libtrimtab_shim_blas.so";

/// Processor that the shim is built for, as `e_machine` of an executable numbers it.
pub const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// File name of glibc's dynamic loader on that processor. Other loaders (musl's, those of other
/// word sizes) cannot load the shim, or need not be able to.
const LOADER: &[u8] =
    if cfg!(target_arch = "aarch64") { b"ld-linux-aarch64.so.1" } else { b"ld-linux-x86-64.so.2" };

/// First bytes of the names of libraries that stop a program if another library was loaded before
/// them. AddressSanitizer's two names, GCC's and clang's, do so; the others replace functions that
/// the shim wraps.
const FIRST: [&[u8]; 6] = [
    b"libasan.so",
    b"libtsan.so",
    b"libhwasan.so",
    b"libclang_rt.asan",
    b"libclang_rt.tsan",
    b"libclang_rt.hwasan",
];

/// Bytes at the beginning of a library's name that [`must_be_first`] compares, at most.
pub const NAME_BYTES: usize = 24;

/// Returns whether the dynamic loader that an executable names is the one that can load the shim.
pub fn is_loader(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next() == Some(LOADER)
}

/// Returns whether a library that an executable needs must be loaded before all others.
pub fn must_be_first(library: &[u8]) -> bool {
    FIRST.iter().any(|name| library.starts_with(name))
}

/// Returns whether an entry of `LD_PRELOAD` is the shim, of any installation, with or without BLAS.
pub fn is_library(path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next();
    [LIBRARY, BLAS_LIBRARY].iter().any(|name| file == Some(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_are_distinguished() {
        let own = String::from_utf8_lossy(LOADER);
        for (path, ours) in [
            (format!("/lib64/{own}"), true),
            (format!("/nix/store/x-glibc-2.38/lib/{own}"), true),
            (own.to_string(), true),
            ("/lib/ld-musl-x86_64.so.1".to_owned(), false),
            ("/lib/ld-linux.so.2".to_owned(), false),
            ("/system/bin/linker64".to_owned(), false),
            (format!("/{own}/ld"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_loader(path.as_bytes()), ours, "{path}");
        }
    }

    #[test]
    fn libraries_that_must_be_first_are_known_by_how_they_begin() {
        for (name, first) in [
            ("libasan.so.8", true),
            ("libclang_rt.asan-x86_64.so", true),
            ("libtsan.so.2", true),
            ("libubsan.so.1", false),
            ("libasound.so.2", false),
            ("libc.so.6", false),
        ] {
            assert_eq!(must_be_first(name.as_bytes()), first, "{name}");
        }
        assert!(FIRST.iter().all(|name| name.len() <= NAME_BYTES));
    }

    #[test]
    fn the_library_is_known_in_every_folder() {
        assert!(is_library(b"/usr/lib/trimtab/libtrimtab_shim.so") && is_library(b"libtrimtab_shim.so"));
        assert!(is_library(b"/usr/lib/trimtab/libtrimtab_shim_blas.so"));
        assert!(!is_library(b"/libtrimtab_shim.so/other.so") && !is_library(b""));
    }
}
