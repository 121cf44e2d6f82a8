//! Location of the program's parts, and the messages about a missing one.

use crate::util::{MASK, Sandbox, need, trimtab, two};
use std::path::PathBuf;
use std::process::Command;

/// Copies parts of the program to these places of the sandbox.
fn copy(sandbox: &Sandbox, parts: &[(&str, &str)]) -> PathBuf {
    for (part, place) in parts {
        let place = sandbox.path(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg(trimtab().with_file_name(part)).arg(&place).status();
        assert!(copied.unwrap().success());
    }
    sandbox.path(parts[0].1)
}

#[test]
fn an_installed_tree_works() {
    let sandbox = Sandbox::new();
    let program = copy(
        &sandbox,
        &[
            ("trimtab", "prefix/bin/trimtab"),
            ("trimtab-discover", "prefix/libexec/trimtab/trimtab-discover"),
            ("libtrimtab_shim.so", "prefix/lib/trimtab/libtrimtab_shim.so"),
            ("libtrimtab_shim_blas.so", "prefix/lib/trimtab/libtrimtab_shim_blas.so"),
        ],
    );
    let call = sandbox.run("-c 1").args(["printenv", "LD_PRELOAD"]).copy(&program);
    let guest = std::fs::canonicalize(sandbox.path("prefix/lib/trimtab/libtrimtab_shim.so")).unwrap();
    let said = call.env("XDG_CACHE_HOME", sandbox.path("cache")).ends().ok();
    assert_eq!(said, guest.display().to_string());
    // By a link elsewhere, as in a user's own ~/bin.
    let link = sandbox.path("link");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let said = sandbox.run("-c 1").args(["printenv", "LD_PRELOAD"]).copy(&link).ends().ok();
    assert_eq!(said, guest.display().to_string());
}

#[test]
fn a_budget_loads_the_library_with_blas_and_says_if_there_is_none() {
    let sandbox = Sandbox::new();
    let folder = [
        ("trimtab", "a/trimtab"),
        ("trimtab-discover", "a/trimtab-discover"),
        ("libtrimtab_shim.so", "a/libtrimtab_shim.so"),
        ("libtrimtab_shim_blas.so", "a/libtrimtab_shim_blas.so"),
    ];
    let program = copy(&sandbox, &folder);
    let with_blas = std::fs::canonicalize(sandbox.path("a/libtrimtab_shim_blas.so")).unwrap();
    let preloaded = |words: &str| {
        let call = sandbox.run(words).args(["printenv", "LD_PRELOAD"]).copy(&program);
        call.env("XDG_CACHE_HOME", sandbox.path("cache")).ends()
    };
    for fit in ["budget", "limit"] {
        assert_eq!(preloaded(&format!("-c 1 --fit {fit}")).ok(), with_blas.display().to_string());
    }
    // A run inside a run with a budget keeps its library; no library is listed twice.
    let inner = program.display().to_string();
    let nested =
        sandbox.run("-c 1 --fit budget").args(["env", &inner, "run", "--share", "printenv", "LD_PRELOAD"]);
    assert_eq!(nested.copy(&program).ends().ok(), with_blas.display().to_string());
    let plain = preloaded("-c 1").ok();
    assert!(plain.ends_with("/libtrimtab_shim.so"), "{plain}");

    std::fs::remove_file(&with_blas).unwrap();
    let missing = [
        "--fit budget does not bound calls of OpenBLAS, MKL and BLIS",
        "libtrimtab_shim_blas.so is not installed",
    ];
    assert_eq!(preloaded("-c 1 --fit budget").warns(&missing), plain);
    preloaded("-c 1 --fit budget --strict").fails(125, &missing);
}

#[test]
fn without_the_guest_threads_float_and_a_warning_says_so() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let program = copy(&sandbox, &[("trimtab", "a/trimtab"), ("trimtab-discover", "a/trimtab-discover")]);
    let said = sandbox
        .run(&format!("--cpus {a}"))
        .args(["env", "sh", "-c"])
        .arg(format!("{MASK}; echo $LD_PRELOAD"));
    let said = said.copy(&program).ends();
    assert_eq!(
        said.warns(&["threads are not pinned at birth", "libtrimtab_shim.so is not installed"]),
        a.to_string()
    );
    let doctor = sandbox.trimtab("doctor").copy(&program).ends();
    assert!(doctor.code == Some(1) && doctor.out().contains("FAULT preload library"), "{doctor}");
}

#[test]
fn a_path_that_no_preload_can_name_is_said() {
    let sandbox = Sandbox::new();
    let program = copy(
        &sandbox,
        &[
            ("trimtab", "a b/trimtab"),
            ("trimtab-discover", "a b/trimtab-discover"),
            ("libtrimtab_shim.so", "a b/libtrimtab_shim.so"),
        ],
    );
    let call = sandbox.run("-c 1").args(["env", "sh", "-c", "echo \"ran$LD_PRELOAD\""]);
    let said = call.copy(&program).ends();
    assert_eq!(said.warns(&["threads are not pinned at birth", "space or colon"]), "ran");
}

#[test]
fn without_discovery_nothing_is_guessed() {
    let sandbox = Sandbox::new();
    let program = copy(&sandbox, &[("trimtab", "a/trimtab"), ("libtrimtab_shim.so", "a/libtrimtab_shim.so")]);
    let call =
        |words: &str| sandbox.trimtab(words).copy(&program).env("XDG_CACHE_HOME", sandbox.path("cache"));
    call("run -c 1 -- true").ends().fails(125, &["trimtab-discover is missing", "reinstall"]);
    call("plan -c 1").ends().fails(2, &["trimtab-discover is missing"]);
    // Plans for other machines do not need the discovery of this one.
    call("plan -c 1 --machine core:4").ends().ok();
    let doctor = call("doctor").ends();
    assert!(doctor.code == Some(1) && doctor.out().contains("FAULT machine"), "{doctor}");
    // The earlier discovery is still valid.
    sandbox.run("-c 1").arg("true").copy(&program).ends().ok();
}

#[test]
fn doctor_says_which_parts_are_installed_and_finds_one_of_another_release() {
    let sandbox = Sandbox::new();
    let own = env!("CARGO_PKG_VERSION");
    let program = copy(
        &sandbox,
        &[
            ("trimtab", "p/bin/trimtab"),
            ("trimtab-lab", "p/bin/trimtab-lab"),
            ("trimtab-discover", "p/libexec/trimtab/trimtab-discover"),
            ("libtrimtab_shim.so", "p/lib/trimtab/libtrimtab_shim.so"),
            ("libtrimtab_shim_blas.so", "p/lib/trimtab/libtrimtab_shim_blas.so"),
        ],
    );
    let installation = || {
        let said = sandbox.trimtab("doctor").copy(&program).ends().out();
        said.lines().filter(|line| line.contains("installation:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = installation();
    assert_eq!(whole.len(), 1, "{whole:?}");
    let library = "libtrimtab_shim.so, libtrimtab_shim_blas.so in";
    for part in [own, "trimtab, trimtab-lab in", "trimtab-discover in", library] {
        assert!(whole[0].starts_with("ok ") && whole[0].contains(part), "{part}: {whole:?}");
    }

    // The library of another release, and a laboratory that is something else.
    let shim = sandbox.path("p/lib/trimtab/libtrimtab_shim.so");
    let mut bytes = std::fs::read(&shim).unwrap();
    let mark = format!("trimtab-part:libtrimtab_shim.so={own};").into_bytes();
    let at = bytes.windows(mark.len()).position(|window| window == mark).expect("the library has its mark");
    let version = at + mark.len() - 1 - own.len();
    bytes[version] = b'9';
    std::fs::write(&shim, bytes).unwrap();
    std::fs::write(sandbox.path("p/bin/trimtab-lab"), "#!/bin/sh\n").unwrap();
    std::fs::remove_file(sandbox.path("p/lib/trimtab/libtrimtab_shim_blas.so")).unwrap();
    let mixed = installation();
    assert_eq!(mixed.len(), 4, "{mixed:?}");
    assert!(mixed[3].starts_with("note ") && mixed[3].contains("libtrimtab_shim_blas.so is not installed"));
    let says = |text: &str| mixed.iter().any(|line| line.starts_with("FAULT") && line.contains(text));
    assert!(says(&format!("libtrimtab_shim.so is of version 9{}", &own[1..])), "{mixed:?}");
    assert!(says("trimtab-lab does not say its version"), "{mixed:?}");
}

#[test]
fn teams_of_mpi_programs_are_prepared_by_a_program_of_the_installation() {
    let sandbox = Sandbox::new();
    let parts = [
        ("trimtab", "prefix/bin/trimtab"),
        ("trimtab-discover", "prefix/libexec/trimtab/trimtab-discover"),
        ("libtrimtab_shim.so", "prefix/lib/trimtab/libtrimtab_shim.so"),
        ("libtrimtab_shim_blas.so", "prefix/lib/trimtab/libtrimtab_shim_blas.so"),
    ];
    let program = copy(&sandbox, &parts);
    let teams = |options: &str| {
        sandbox.run(options).args(["echo", "ran"]).copy(&program).env("PATH", "/usr/bin:/bin")
    };
    teams("-c 1 --teams")
        .ends()
        .fails(2, &["--teams is carried out by a program of its own", "make install"]);
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/mpi");
    let place = sandbox.path("prefix/lib/trimtab/mpi");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(format!("{tree}/trimtab-teams"), place.join("trimtab-teams")).unwrap();
    std::fs::create_dir(place.join("src")).unwrap();
    for file in std::fs::read_dir(format!("{tree}/src")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), place.join("src").join(file.file_name())).unwrap();
    }
    let no_mpi = "the command names neither a program with an MPI library nor an MPI launcher";
    let outcome = teams("-c 1 --teams").ends();
    assert_eq!((outcome.code, outcome.out()), (Some(0), "ran".to_owned()), "{outcome}");
    assert!(outcome.stderr.contains(no_mpi) && outcome.stderr.contains("MPI carries out all"), "{outcome}");
    teams("-c 1 --teams --strict").ends().fails_with(125, no_mpi);
    // Within a run that has prepared it, nothing is prepared again.
    let again = teams("-c 1 --teams").env("TRIMTAB_TEAMS", "started").ends();
    assert_eq!(again.ok(), "ran");
    std::fs::remove_file(place.join("src/trimtab_mpi.h")).unwrap();
    teams("-c 1 --teams --strict").ends().fails_with(125, "trimtab_mpi.h is not in");
}
