//! Names that the library exports and imports.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

fn both() -> [PathBuf; 2] {
    [common::library(), common::library_with_blas()]
}

#[test]
fn exactly_the_intended_symbols_are_exported() {
    let Some(symbols) = exported(&common::library()) else { return };
    let mut expected = expected();
    expected.sort_unstable();
    assert_eq!(symbols, expected);
    let mut with_blas = expected;
    with_blas.extend(blas());
    with_blas.sort_unstable();
    assert_eq!(exported(&common::library_with_blas()).unwrap(), with_blas);
}

fn exported(library: &Path) -> Option<Vec<String>> {
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        common::skip("nm is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.lines().filter_map(|line| line.split_whitespace().last());
    let mut symbols: Vec<_> = words.map(str::to_owned).collect();
    symbols.sort_unstable();
    Some(symbols)
}

/// Returns the names that both libraries export.
fn expected() -> Vec<String> {
    let loops = ["dynamic", "guided", "runtime", "static"];
    let old = loops.map(|kind| format!("GOMP_parallel_loop_{kind}_start"));
    let new = ["dynamic", "guided", "runtime"].map(|kind| format!("GOMP_parallel_loop_nonmonotonic_{kind}"));
    let mut expected: Vec<&str> = [
        // Threads, and the number of CPUs for them.
        "get_nprocs get_nprocs_conf pthread_create sysconf",
        // Teams: the old and the new calls of GNU's runtime, the tool of LLVM's, and calls for
        // programs.
        "GOMP_parallel GOMP_parallel_reductions GOMP_parallel_sections GOMP_parallel_loop_maybe_nonmonotonic_runtime",
        "GOMP_parallel_start GOMP_parallel_sections_start GOMP_parallel_end ompt_start_tool dlclose",
        "omp_set_nesting_info omp_set_nesting_info_ trimtab_set_nesting_info trimtab_meter",
        // The calls of Clang's and Intel's programs.
        "__kmpc_fork_call __kmpc_fork_call_if __kmpc_push_num_threads __kmpc_push_num_threads_strict",
        "__kmpc_push_num_threads_list __kmpc_push_num_threads_list_strict __kmpc_serialized_parallel",
        // A thread's own mask, for itself and for the programs it starts.
        "sched_getaffinity pthread_getaffinity_np sched_setaffinity pthread_setaffinity_np",
        "execve execv execvp execvpe fexecve execveat",
        "posix_spawn posix_spawnp system popen",
        // Barriers and waits: GNU's runtime, and the C library.
        "GOMP_barrier GOMP_barrier_cancel GOMP_loop_end GOMP_loop_end_cancel GOMP_sections_end GOMP_sections_end_cancel",
        "GOMP_single_copy_start GOMP_single_copy_end pthread_barrier_wait sched_yield",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .collect();
    // MPI's, for C and for Fortran.
    let mpi = "Barrier Bcast Reduce Allreduce Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Reduce_scatter \
               Scan Recv Sendrecv Wait Waitall Waitany Probe";
    let mpi: Vec<String> = mpi
        .split_whitespace()
        .flat_map(|name| {
            let low = name.to_lowercase();
            // With buffers, which MPICH passes as descriptors to functions of another name.
            let buffers = !["Barrier", "Wait", "Waitall", "Waitany", "Probe"].contains(&name);
            let described = buffers.then(|| format!("mpi_{low}_f08ts_"));
            [format!("MPI_{name}"), format!("mpi_{low}_"), format!("mpi_{low}_f08_")]
                .into_iter()
                .chain(described)
        })
        .collect();
    let plain = loops.map(|kind| format!("GOMP_parallel_loop_{kind}"));
    expected.extend(old.iter().chain(&new).chain(&plain).chain(&mpi).map(String::as_str));
    if cfg!(target_arch = "x86_64") {
        expected.extend(["execl", "execle", "execlp"]);
    }
    expected.into_iter().map(str::to_owned).collect()
}

/// Returns the names of BLAS and LAPACK in all their forms.
fn blas() -> Vec<String> {
    // Types, and what they have.
    let blas = [("sdcz", "gemm gemv symm syrk syr2k trmm trsm"), ("cz", "hemm herk her2k")];
    let lapack = [
        ("sdcz", "gesv getrf getri potrf geqrf gesdd gelsd geev"),
        ("sd", "syevd orgqr"),
        ("cz", "heevd ungqr"),
    ];
    let typed = |rows: &[(&'static str, &'static str)]| -> Vec<String> {
        rows.iter()
            .flat_map(|(types, names)| {
                names.split(' ').flat_map(|name| types.chars().map(move |kind| format!("{kind}{name}")))
            })
            .collect()
    };
    let c = typed(&blas).into_iter().map(|name| format!("cblas_{name}"));
    let fortran = typed(&blas).into_iter().chain(typed(&lapack)).map(|name| format!("{name}_"));
    c.chain(fortran)
        .flat_map(|name| ["", "scipy_"].map(|prefix| format!("{prefix}{name}")))
        .flat_map(|name| ["", "64_"].map(|suffix| format!("{name}{suffix}")))
        .collect()
}

#[test]
fn the_libraries_are_never_unloaded() {
    for library in both() {
        let Ok(output) = Command::new("readelf").arg("-d").arg(library).output() else {
            return common::skip("readelf is not installed");
        };
        assert!(String::from_utf8(output.stdout).unwrap().contains("NODELETE"));
    }
}

/// Lists the imports of both libraries from the C library: name, version if it is bound to one, and
/// whether it is weak.
fn imports() -> Option<Vec<(String, Option<String>, bool)>> {
    let output = Command::new("nm").args(["-D", "--undefined-only"]).args(both()).output();
    let Ok(output) = output else {
        common::skip("nm is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (kind, symbol) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (name, version) =
            symbol.split_once('@').map_or((symbol, None), |(name, version)| (name, Some(version)));
        (name.to_owned(), version.map(|version| version.trim_start_matches('@').to_owned()), kind != "U")
    };
    // The name of each file stands above its lines.
    let lines = text.lines().filter(|line| !line.is_empty() && !line.ends_with(':'));
    Some(lines.map(line).collect())
}

/// Returns the names and versions that a library defines.
fn defined(library: &str) -> Option<Vec<String>> {
    let output = Command::new("nm").args(["-D", "--defined-only", library]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.replace("@@", "@"))
        .collect();
    (!names.is_empty()).then_some(names)
}

#[test]
fn no_version_above_2_17_is_asked_for() {
    for (name, version, _) in imports().unwrap_or_default() {
        let Some(version) = version else { continue };
        let numbers = version.strip_prefix("GLIBC_2.").unwrap_or_else(|| panic!("{name} of {version}"));
        let minor: u32 = numbers.split('.').next().unwrap().parse().unwrap();
        assert!(minor <= 17, "{name} needs {version}");
    }
}

#[test]
fn weakly_bound_functions_are_in_this_c_library() {
    let places = ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib"];
    let Some(here) = places.iter().find_map(|place| defined(&format!("{place}/libc.so.6"))) else {
        return common::skip("libc.so.6 is in none of the usual places");
    };
    for (name, version, weak) in imports().unwrap_or_default() {
        if let Some(version) = version.filter(|_| weak) {
            assert!(here.contains(&format!("{name}@{version}")), "there is no {name} of {version}");
        }
    }
}

#[test]
fn indispensable_functions_are_in_musl() {
    let loader = format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    let Some(musl) = defined(&loader) else { return common::skip("musl is not installed") };
    for (name, _, weak) in imports().unwrap_or_default() {
        assert!(weak || musl.contains(&name), "musl has no {name}");
    }
}

#[test]
fn no_library_is_needed_but_the_c_librarys() {
    for library in both() {
        let Ok(output) = Command::new("readelf").arg("-d").arg(library).output() else {
            return common::skip("readelf is not installed");
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let needed: Vec<_> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
        // Before 2.34, threads and loading were separate libraries.
        let known = ["[libc.so.6]", "[libdl.so.2]", "[libpthread.so.0]"];
        assert!(needed.iter().all(|line| known.iter().any(|name| line.ends_with(name))), "{needed:?}");
        assert!(needed.iter().any(|line| line.ends_with(known[0])), "{needed:?}");
    }
}
