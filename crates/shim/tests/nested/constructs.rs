//! Tests of every construct, size and depth.

use crate::common::{HostRun, skip};
use crate::runtimes::{CROSSED, Map, NOWHERE, Runtime, STACKED, checks, on, on_all};

#[test]
fn the_programs_are_right_about_a_run_without_the_guest() {
    for program in
        ["constructs.c", "sizes.c", "deep.c", "binds.c", "storm.c", "league.c", "threads.c", "signals.c"]
    {
        // Fewer rounds than usual, for the program that takes a number.
        on_all(&[program], 100, || [NOWHERE.expected(HostRun::native()).arg("20")]);
    }
    on(&Runtime::all_gnu(), &["oldabi.c"], 1000, || [NOWHERE.expected(HostRun::native())]);
}

#[test]
fn every_construct_of_c() {
    on_all(&["constructs.c"], 2000, || {
        [
            CROSSED.run(),
            STACKED.run().env("OMP_SCHEDULE", "guided,1"),
            CROSSED.run().env("OMP_CANCELLATION", "true"),
        ]
    });
}

#[test]
fn every_construct_of_c_compiled_as_cxx() {
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        let Some(program) = runtime.build_with(runtime.language[1], &["constructs.c"], &[]) else { continue };
        checks(runtime.name, CROSSED.run(), &program);
    }
}

#[test]
fn every_construct_optimized_and_not() {
    for runtime in [Runtime::gnu(), Runtime::llvm()] {
        for level in ["-O0", "-O3"] {
            let Some(program) = runtime.build(&["constructs.c"], &[level]) else { continue };
            checks(runtime.name, CROSSED.run(), &program);
        }
    }
}

#[test]
fn exceptions_iterators_and_lambdas() {
    on_all(&["cxx.cpp"], 1000, || [CROSSED.run()]);
}

#[test]
fn fortran() {
    let sources = ["../../../../include/trimtab/nesting.f90", "fortran.f90", "check_fortran.c"];
    for runtime in Runtime::all_gnu() {
        let Some(program) = runtime.build(&sources, &["-ftree-parallelize-loops=2"]) else { continue };
        for (run, good) in
            [(CROSSED.run(), "0"), (STACKED.run(), "0"), (NOWHERE.expected(HostRun::native()), "-1")]
        {
            checks(runtime.name, runtime.provide(run.arg(good)), &program);
        }
    }
}

#[test]
fn functions_that_old_compilers_called() {
    on(&Runtime::all_gnu(), &["oldabi.c"], 1000, || [CROSSED.run(), STACKED.run()]);
}

#[test]
fn teams_on_the_host() {
    on_all(&["league.c"], 200, || [CROSSED.run()]);
}

#[test]
fn sizes_that_were_not_declared() {
    on_all(&["sizes.c"], 2000, || [CROSSED.run().arg("even"), STACKED.run()]);
}

#[test]
fn levels_that_were_not_declared() {
    const TWO: Map = Map { nest: "2,scatter", shape: "2", masks: "B,A" };
    const ONE: Map = Map { nest: "1,scatter", shape: "1", masks: "B" };
    on_all(&["deep.c"], 100, || [CROSSED, TWO, ONE].map(Map::run));
}

#[test]
fn three_levels() {
    const THREE: Map =
        Map { nest: "2,scatter,2,scatter,2,scatter", shape: "2,2,2", masks: "B,A/B,A,A,B/B,A,A,B,A,B,B,A" };
    const CLOSER: Map = Map {
        nest: "2,scatter,2,subscatter,2,subcompact",
        shape: "2,2,2",
        masks: "B,A/B,B,A,A/B,B,B,B,A,A,A,A",
    };
    for program in ["deep.c", "constructs.c", "sizes.c"] {
        on_all(&[program], 500, || [THREE, CLOSER].map(Map::run));
    }
}

#[test]
fn more_threads_than_cpus() {
    const FOUR: Map = Map { nest: "1,compact,4,compact", shape: "1,4", masks: "B/B,B,A,A" };
    on_all(&["deep.c"], 100, || [FOUR.run()]);
}

#[test]
fn thousands_of_regions() {
    on_all(&["storm.c"], 10_000, || [CROSSED.run(), STACKED.run().env("KMP_HOT_TEAMS_MAX_LEVEL", "1")]);
    // Threads that busy-wait disturb each other on two CPUs: fewer rounds.
    on_all(&["storm.c"], 150, || [CROSSED.run().env("OMP_WAIT_POLICY", "active").arg("3")]);
}

#[test]
fn a_runtime_that_binds_threads_itself_is_overruled() {
    const SETTINGS: [&[(&str, &str)]; 5] = [
        &[("OMP_PROC_BIND", "false")],
        &[("OMP_PROC_BIND", "true"), ("OMP_PLACES", "threads")],
        &[("OMP_PROC_BIND", "spread,close"), ("OMP_PLACES", "cores")],
        &[("OMP_PROC_BIND", "close,master")],
        &[("OMP_PROC_BIND", "true"), ("GOMP_CPU_AFFINITY", "0-1"), ("KMP_AFFINITY", "compact")],
    ];
    on_all(&["binds.c"], 2000, || {
        SETTINGS
            .map(|settings| settings.iter().fold(CROSSED.run(), |run, (name, value)| run.env(name, value)))
    });
}

#[test]
fn helpers_of_the_runtime_are_left_alone() {
    for runtime in Runtime::all() {
        if runtime.is_llvm()
            && let Some(program) = runtime.program(&["hidden.c"])
        {
            checks(runtime.name, runtime.provide(CROSSED.run()), &program);
        }
    }
}

#[test]
fn a_static_runtime_is_out_of_reach() {
    for flags in [&["-static"][..], &["-Wl,-Bstatic", "-lgomp", "-Wl,-Bdynamic"]] {
        let Some(program) = Runtime::gnu().build(&["constructs.c"], flags) else { continue };
        checks("libgomp.a", Map { masks: "all", ..CROSSED }.run(), &program);
    }
}

#[test]
fn one_core_of_two_hardware_threads() {
    let told = "1 tree=[B+A] roots=alone report=no nest=2,scatter,1,subcompact";
    let map = Map { nest: "", shape: "2,1", masks: "B,A/B,A" };
    on(&[Runtime::gnu(), Runtime::llvm()], &["deep.c"], 100, || [map.run().nest(told)]);
}

#[test]
fn signals_in_a_storm_of_regions() {
    on_all(&["signals.c"], 1000, || [CROSSED.run()]);
}

#[test]
fn emulated_and_small_stacks() {
    let Some(program) = Runtime::gnu().program(&["storm.c"]) else { return skip("gcc is needed") };
    checks("libgomp", CROSSED.run().env("OMP_STACKSIZE", "64k").arg("20"), &program);
}
