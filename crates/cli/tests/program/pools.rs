//! Pools of libraries under a budget: those that it bounds, and those that are sized once, by the
//! mask. Numba and its layers come from the corpus (`corpus/run --install --provide 'numba-*'`).

use crate::util::{Sandbox, built, installed, need, skip, trimtab, two};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Divides a loop among the threads of a layer. Prints the layer, the threads that it has, the
/// number of threads that had a part, and whether all parts were done.
const LOOP: &str = "import numba, numpy
@numba.njit(parallel=True)
def ids(found):
    for at in numba.prange(found.size):
        found[at] = numba.get_thread_id()
found = numpy.full(64, -1)
ids(found)
print(numba.threading_layer(), numba.get_num_threads(), len(set(found.tolist())), found.min() >= 0)
";

/// Runs a program beside a team that computes with all cores of the run.
const BESIDE: &str = "\"$COMPUTES\" >\"$ON\" & team=$!
while ! grep -q on \"$ON\"; do sleep 0.02; done
\"$PYTHON\" \"$LOOP\"; status=$?; kill $team; exit $status";

/// Returns the corpus's environment of Python, if it has numba.
fn corpus() -> Option<PathBuf> {
    let folders = trimtab().ancestors().map(|folder| folder.join("corpus/venv/new"));
    let found = folders.into_iter().find(|folder| folder.join("bin/python").exists())?;
    let output = Command::new(found.join("bin/python")).args(["-c", "import numba"]).output().ok()?;
    output.status.success().then_some(found)
}

/// Runs the loop with this layer in a run with these options, beside a team. Returns its line.
fn numba(environment: &Path, computes: &Path, layer: &str, options: &str) -> String {
    let sandbox = Sandbox::new();
    let script = sandbox.write("loop.py", LOOP);
    let call = sandbox.run(options).sh(BESIDE).env("COMPUTES", computes).env("LOOP", script);
    let call = call.env("ON", sandbox.path("on")).env("PYTHON", environment.join("bin/python"));
    let call = call.env("NUMBA_THREADING_LAYER", layer).env("LD_LIBRARY_PATH", environment.join("lib"));
    call.ends().ok()
}

#[test]
fn numbas_layer_omp_states_its_numbers_and_computes_right_with_fewer_threads() {
    need!(two(), "two cores are needed");
    let environment = need!(corpus(), "the corpus's environment with numba is not here");
    let computes = need!(built("gcc", "computes.c", &["-O1", "-fopenmp"]), "gcc with OpenMP is needed");
    for (fit, parts) in [("budget", 2), ("limit", 1)] {
        let line = numba(&environment, &computes, "omp", &format!("-c 2 --fit {fit}"));
        assert_eq!(line, format!("omp 2 {parts} True"), "{fit}");
    }
}

#[test]
fn numbas_other_layers_have_as_many_threads_as_the_mask() {
    need!(two(), "two cores are needed");
    let environment = need!(corpus(), "the corpus's environment with numba is not here");
    let computes = need!(built("gcc", "computes.c", &["-O1", "-fopenmp"]), "gcc with OpenMP is needed");
    for layer in ["workqueue", "tbb"] {
        if layer == "tbb" && !environment.join("lib/libtbb.so.12").exists() {
            skip("the corpus's environment has no oneTBB (tbb)");
            continue;
        }
        for cores in [1, 2] {
            let line = numba(&environment, &computes, layer, &format!("-c {cores} --fit limit"));
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[..2], [layer, &cores.to_string()], "{line}");
            assert_eq!(words[3], "True", "{line}");
        }
    }
}

#[test]
fn the_pool_of_onetbb_has_as_many_threads_as_the_mask() {
    need!(two(), "two cores are needed");
    let compiler = need!(installed("g++"), "g++ is not installed");
    let sandbox = Sandbox::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/sources/reduce.cpp");
    let program = sandbox.path("reduce");
    let build = Command::new(compiler).args(["-O2", "-o"]).arg(&program).arg(source).arg("-ltbb").output();
    need!(build.ok().filter(|built| built.status.success()), "oneTBB is not installed");
    let mut totals = Vec::new();
    for (options, threads) in
        [("-c 1 --fit budget", "1"), ("-c 2 --fit budget", "2"), ("-c 2 --fit limit", "2")]
    {
        let said = sandbox.run(options).arg(&program).ends().ok();
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words[..2], ["concurrency", threads], "{options}: {said}");
        totals.push(words[3].to_owned());
    }
    assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
}
