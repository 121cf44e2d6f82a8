//! Thread counts that other runtimes derive.

use crate::util::{Sandbox, built, installed, need, python, two};
use std::path::Path;
use std::process::Command;

#[test]
fn coreutils_count_the_cores() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        let options = format!("-c {cores}");
        assert_eq!(sandbox.run(&options).arg("nproc").ends().ok(), cores);
        assert_eq!(sandbox.run(&options).args(["env", "-u", "OMP_NUM_THREADS", "nproc"]).ends().ok(), cores);
        assert_eq!(sandbox.run(&options).args(["nproc", "--all"]).ends().ok(), cores);
    }
}

#[test]
fn python_counts_the_cores() {
    need!(two(), "two cores are needed");
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let script =
        "import os, multiprocessing as m; print(len(os.sched_getaffinity(0)), os.cpu_count(), m.cpu_count())";
    for cores in ["1", "2"] {
        let said = sandbox.run(&format!("-c {cores}")).python(script).ends().ok();
        assert_eq!(said, [cores; 3].join(" "));
    }
    // Threads and processes of a pool run on the planned CPUs.
    let script = "import os, concurrent.futures as f\n\
                  with f.ProcessPoolExecutor(2) as p: print(set(map(len, p.map(os.sched_getaffinity, [0] * 8))))\n\
                  with f.ThreadPoolExecutor(2) as p: print(set(map(len, p.map(os.sched_getaffinity, [0] * 8))))";
    assert_eq!(sandbox.run("-c 2").python(script).ends().ok(), "{2}\n{2}");
}

#[test]
fn node_counts_the_cores() {
    need!(two(), "two cores are needed");
    let node = need!(installed("node"), "Node.js is not installed");
    let sandbox = Sandbox::new();
    let script =
        "const os = require('os'); console.log((os.availableParallelism ?? (() => os.cpus().length))())";
    for cores in ["1", "2"] {
        assert_eq!(sandbox.run(&format!("-c {cores}")).arg(&node).args(["-e", script]).ends().ok(), cores);
    }
}

#[test]
fn java_counts_the_cores() {
    need!(two(), "two cores are needed");
    let java = need!(installed("java"), "Java is not installed");
    let sandbox = Sandbox::new();
    let source = sandbox.write(
        "Count.java",
        "class Count { public static void main(String[] a) { System.out.println(Runtime.getRuntime().availableProcessors()); } }",
    );
    let outcome = sandbox.run("-c 1").arg(&java).arg(&source).ends();
    if outcome.stderr.contains("jdk.compiler") {
        return crate::util::skip("this Java cannot run a source file");
    }
    assert_eq!(outcome.ok(), "1", "with nothing on stderr");
}

#[test]
fn go_counts_the_cores() {
    need!(two(), "two cores are needed");
    let go = need!(installed("go"), "Go is not installed");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs/go");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("count.go"), folder.join("count"));
    let text = "package main\nimport (\"fmt\"; \"os\"; \"runtime\")\n\
                func main() { fmt.Println(runtime.NumCPU(), runtime.GOMAXPROCS(0), os.Getenv(\"LD_PRELOAD\") == \"\") }\n";
    if std::fs::read_to_string(&source).ok().as_deref() != Some(text) || !program.exists() {
        std::fs::write(&source, text).unwrap();
        let built = Command::new(&go)
            .args(["build", "-o"])
            .args([&program, &source])
            .env("GOFLAGS", "-mod=mod")
            .output();
        let built = built.unwrap();
        need!(
            built.status.success().then_some(()),
            "Go does not build: {}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        assert_eq!(
            sandbox.run(&format!("-c {cores}")).arg(&program).ends().ok(),
            format!("{cores} {cores} true")
        );
    }
}

#[test]
fn rust_counts_the_cores() {
    need!(two(), "two cores are needed");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs/rust");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("count.rs"), folder.join("count"));
    std::fs::write(
        &source,
        "use std::thread;\nfn main() {\n    let count = || thread::available_parallelism().unwrap();\n    \
         println!(\"{} {}\", count(), thread::spawn(count).join().unwrap());\n}\n",
    )
    .unwrap();
    let built = Command::new("rustc").arg("-o").args([&program, &source]).output();
    need!(built.ok().filter(|built| built.status.success()), "rustc does not run");
    let sandbox = Sandbox::new();
    for cores in ["1", "2"] {
        // A thread on its slot gets the same count as the initial one.
        assert_eq!(sandbox.run(&format!("-c {cores}")).arg(&program).ends().ok(), format!("{cores} {cores}"));
    }
}

#[test]
fn openmp_starts_as_many_threads() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for compiler in ["gcc", "clang"] {
        let program = need!(built(compiler, "openmp.c", &["-O1", "-fopenmp"]), "no {compiler} with OpenMP");
        for cores in [1, 2] {
            let said = sandbox.run(&format!("-c {cores}")).arg(&program).ends().ok();
            assert_eq!(said.matches("thread").count(), 2 * cores, "{compiler}: {said}");
        }
    }
}
