//! Runtimes that come with libraries opened at run time: plug-ins, second runtimes, wheels.

use crate::common::wheel;
use crate::common::{HostProgram, HostRun, skip};
use crate::runtimes::{CROSSED, Map, Runtime, checks};

fn plugin(runtime: &Runtime) -> Option<HostProgram> {
    runtime.build(&["plug.c"], &["-shared", "-fPIC"])
}

fn host() -> Option<HostProgram> {
    HostProgram::built_of("cc", &["nested/host.c"], &["-O1", "-pthread", "-ldl"])
}

#[test]
fn a_plug_in_brings_its_runtime() {
    let Some(host) = host() else { return };
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        let Some(plugin) = plugin(&runtime) else { continue };
        for way in ["local", "global"] {
            checks(runtime.name, CROSSED.run().arg(way).arg(plugin.path.to_str().unwrap()), &host);
        }
    }
}

#[test]
fn a_plug_in_that_binds_deeply_is_left_alone() {
    let (Some(host), Some(plugin)) = (host(), plugin(&Runtime::gnu())) else { return };
    let run = Map { masks: "all", ..CROSSED }.run();
    checks("libgomp", run.arg("deep").arg(plugin.path.to_str().unwrap()), &host);
}

#[test]
fn plug_ins_bring_different_runtimes() {
    let (Some(host), Some(gnu), Some(llvm)) = (host(), plugin(&Runtime::gnu()), plugin(&Runtime::llvm()))
    else {
        return;
    };
    for order in [[&gnu, &llvm], [&llvm, &gnu]] {
        let run =
            order.iter().fold(CROSSED.run(), |run, one| run.arg("local").arg(one.path.to_str().unwrap()));
        checks("libgomp and libomp", run, &host);
    }
}

/// Two copies of libgomp in one process, under different names, as two wheels have them.
#[test]
fn plug_ins_bring_copies_of_one_runtime() {
    let (Some(host), Some(first)) = (host(), plugin(&Runtime::gnu())) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("gcc").arg("-print-file-name=libgomp.so.1").output().unwrap();
    let original = String::from_utf8(output.stdout).unwrap();
    let Ok(mut bytes) = std::fs::read(original.trim()) else {
        return skip("libgomp.so.1 is not where gcc says");
    };
    let name = b"libgomp.so.1\0";
    let Some(at) = bytes.windows(name.len()).position(|window| window == name) else {
        return skip("libgomp.so.1 does not have its name in it");
    };
    bytes[at..at + name.len()].copy_from_slice(b"libgomq.so.1\0");
    let copy = folder.path().join("libgomq.so.1");
    std::fs::write(&copy, bytes).unwrap();
    // The copy first on the command line: the plug-in then needs it, and not the other, which comes
    // after.
    let flags = ["-shared", "-fPIC", copy.to_str().unwrap(), "-Wl,--as-needed"];
    let Some(second) = Runtime::gnu().build(&["plug.c"], &flags) else { return };
    let run = CROSSED.run().env("LD_LIBRARY_PATH", folder.path().to_str().unwrap());
    let run = [&first, &second].iter().fold(run, |run, one| run.arg("local").arg(one.path.to_str().unwrap()));
    checks("two libgomps", run, &host);
}

#[test]
fn a_second_runtime_sees_every_cpu() {
    let (gnu, llvm) = (Runtime::gnu(), Runtime::llvm());
    for (first, second) in [(&gnu, &llvm), (&llvm, &gnu)] {
        let (Some(program), Some(plugin)) = (first.program(&["two.c"]), plugin(second)) else { continue };
        for when in ["after", "inside"] {
            let what = format!("{} then {}, {when}", first.name, second.name);
            let arguments = |run: HostRun| run.arg(plugin.path.to_str().unwrap()).arg(when);
            checks(&what, arguments(CROSSED.run()), &program);
            checks(&what, arguments(Map { masks: "all", ..CROSSED }.expected(HostRun::native())), &program);
        }
    }
}

#[test]
fn a_wheel_brings_its_runtime() {
    let Some(wheel) = wheel("scikit-learn") else {
        return skip("scikit-learn's wheel is not here (scripts/wheels fetches it)");
    };
    let Some(python) = HostProgram::installed("python3") else { return };
    let script = format!("{}/tests/nested/wheel.py", env!("CARGO_MANIFEST_DIR"));
    let with = |run: HostRun| {
        run.env("PYTHONPATH", wheel.to_str().unwrap()).env("OMP_NUM_THREADS", "2").arg(&script)
    };
    let Some(native) = with(HostRun::native()).run(&python) else { return };
    if native.code != Some(0) {
        return skip("scikit-learn's wheel does not fit this Python");
    }
    let map = Map { nest: "2,scatter", shape: "2", masks: "B,A" };
    let Some(outcome) = with(map.run()).run(&python) else { return };
    let results = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(results(&outcome.stdout), results(&native.stdout));
    assert_eq!(
        (outcome.code, outcome.stdout.lines().nth(1)),
        (Some(0), Some("initial AB narrow A")),
        "{outcome:?}"
    );
}

/// BOLT's OpenMP threads are not kernel threads: a mask would bind something else.
#[test]
fn a_runtime_on_user_level_threads_is_left_alone() {
    let runtime = Runtime::llvm();
    let argobots = HostProgram::built_of("cc", &["nested/user_level.c"], &["-shared", "-fPIC"]);
    let (Some(program), Some(argobots)) = (runtime.program(&["deep.c"]), argobots) else { return };
    let run = Map { masks: "all", ..CROSSED }.run().preload(&argobots.path);
    checks(runtime.name, run.arg("20"), &program);
    checks(runtime.name, CROSSED.run().arg("20"), &program);
}

/// A runtime has one tool, and the user chose another.
#[test]
fn another_tool_of_the_users_keeps_its_place() {
    let runtime = Runtime::llvm();
    let Some(program) = runtime.program(&["deep.c"]) else { return };
    let run = Map { masks: "all", ..CROSSED }.run().env("OMP_TOOL_LIBRARIES", "/opt/tools/libprofiler.so");
    checks(runtime.name, run.arg("20"), &program);
    // The launcher names the shim itself there.
    let own = format!(":{}", crate::common::library().display());
    checks(runtime.name, CROSSED.run().env("OMP_TOOL_LIBRARIES", &own).arg("20"), &program);
}
