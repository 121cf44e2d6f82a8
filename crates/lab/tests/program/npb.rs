//! `trimtab bench oversub` with programs that the user brings: reference programs of the NAS
//! Parallel Benchmarks, here small programs with their report, linked with real runtimes; and pairs
//! of two runtimes.

use crate::oversub::bench;
use crate::util::{Sandbox, built, installed, need, text, two};
use std::path::Path;
use trimtab_core::study::{self, Runtime, Sample, Status};

/// Puts the program under these names into the folder of `--npb`.
fn put(sandbox: &Sandbox, program: &Path, names: &[&str]) {
    std::fs::create_dir_all(sandbox.path("npb")).unwrap();
    for name in names {
        std::fs::copy(program, sandbox.path(&format!("npb/{name}"))).unwrap();
    }
}

/// Returns the runs beside a baseline of programs whose name has this beginning.
fn runs(sandbox: &Sandbox, begins: &str) -> Vec<Sample> {
    let all = study::read(&text(&sandbox.path("record"))).unwrap().samples;
    let wanted = |one: &Sample| one.beside.is_some() && one.cell.program.starts_with(begins);
    all.into_iter().filter(wanted).collect()
}

const FEW: &str = "--waits keep --grips floating --pairs none --rounds 1 --per-core 1,2";

#[test]
fn reference_programs_run_beside_ours_and_only_verified_times_count() {
    let cpus = need!(two(), "two cores are needed");
    let program = need!(built("gcc", "npb_report.c", &["-fopenmp"]), "gcc with OpenMP is needed");
    let sandbox = Sandbox::new();
    put(&sandbox, &program, &["cg.W.x", "ep.A.x"]);
    sandbox.script("npb/is.W.x", "#!/bin/sh\nexit 0\n");
    let options = format!("--kernels cg,ep,is --npb npb --runtimes libgomp {FEW} --json record");
    let page = bench(&sandbox, cpus, &options).ends().out();
    assert!(page.contains("left out: npb-ep: ") && page.contains("npb/ep.W.x does not exist"), "{page}");
    assert!(page.contains("npb/is.W.x is linked with no known MPI or OpenMP"), "{page}");
    let found = runs(&sandbox, "npb-");
    let times: Vec<_> = found.iter().map(|one| (one.cell.to_string(), one.seconds, one.beside)).collect();
    let cell = |threads| format!("npb-cg.W/libgomp/{threads}on2/floating/keep");
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times.contains(&(cell(2), Some(0.5), Some(0.5))), "{times:?}");
    assert!(times.contains(&(cell(4), Some(1.0), Some(0.5))), "{times:?}");
    assert_eq!(runs(&sandbox, "cg").len(), 2, "ours is run too");
    // A wrong result is a failure, whatever time it took.
    sandbox.write("wrong", "");
    let outcome = bench(&sandbox, cpus, &options.replace("record", "again")).ends();
    let said = &outcome.stderr;
    assert!(outcome.code == Some(2) && said.contains("its result is not verified"), "{outcome}");
    bench(&sandbox, cpus, "--npb none").ends().fails(2, &["none is not a folder: --npb needs"]);
}

#[test]
fn ranks_of_reference_programs_are_started_by_their_launcher_in_numbers_that_they_take() {
    let cpus = need!(two(), "two cores are needed");
    need!(installed("mpirun.openmpi"), "Open MPI's launcher is needed");
    let flags = ["-DREPORTS_MPI"];
    let program = need!(built("mpicc.openmpi", "npb_report.c", &flags), "mpicc.openmpi is needed");
    let sandbox = Sandbox::new();
    put(&sandbox, &program, &["mg.S.x", "sp.S.x"]);
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/team/peer");
    let options =
        format!("--kernels mg,sp --class S --npb npb --runtimes openmpi {FEW} --json record --peer");
    let call = |more: &str| bench(&sandbox, cpus, &format!("{options} {} {more}", peer.display()));
    let page = call("").ends().out();
    let refused = "npb-sp with openmpi and 2 ranks: its number of ranks must be a square";
    assert!(page.contains(refused), "{page}");
    let found = runs(&sandbox, "npb-");
    let times: Vec<_> = found.iter().map(|one| (one.cell.threads, one.seconds, one.status)).collect();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(times.contains(&(2, Some(0.5), Status::Done)), "{times:?}");
    assert!(times.contains(&(4, Some(1.0), Status::Done)), "{times:?}");
    assert!(found.iter().all(|one| one.cell.runtime == Runtime::OpenMpi));
    let pinned = call("--list").ends().ok().replace("floating", "");
    assert!(pinned.contains(" start -n 4 ") && pinned.contains("npb/mg.S.x"), "{pinned}");
}

#[test]
fn a_pair_may_have_two_runtimes() {
    let cpus = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for name in ["cg", "ep"] {
        let said = r#"echo "{\"kernel\":\"${0##*/}\",\"threads\":$OMP_NUM_THREADS,\"seconds\":0.5,\"verified\":true}""#;
        sandbox.script(&format!("programs/clang/{name}"), format!("#!/bin/sh\n{said}\n"));
    }
    let options = "--kernels cg --per-core 1 --grips floating --waits keep --class S --runtimes libgomp --pairs cg@libomp+ep@libgomp --mixes 1:1 --rounds 1 --json record";
    let page = bench(&sandbox, cpus, options).ends().out();
    assert!(page.contains("libomp+libgomp"), "{page}");
    let all = study::read(&text(&sandbox.path("record"))).unwrap();
    let pairs = study::pairs(&all.samples, 1);
    assert_eq!(pairs.len(), 2, "shared and partitioned: {pairs:?}");
    for pair in &pairs {
        assert_eq!((pair.first.runtime, pair.second.runtime), (Runtime::Libomp, Runtime::Libgomp));
        assert_eq!((pair.rounds, study::sharing(&pairs, 1).len()), (1, 1));
    }
    // The baseline of each is that of its own runtime.
    let baselines = all.samples.iter().filter(|one| one.beside.is_none()).map(|one| one.cell.to_string());
    let baselines: std::collections::BTreeSet<String> = baselines.collect();
    assert!(baselines.contains("cg.S/libomp/2on2/floating/keep"), "{baselines:?}");
    assert!(baselines.contains("ep.S/libgomp/2on2/floating/keep"), "{baselines:?}");
}
