//! `mpirun -n 2 trimtab run …`: the ranks of a job share one allotment.

use crate::util::{MASK, Orphan, Sandbox, cpus, eventually, installed, need, skip, text, two};
use rustix::process::geteuid;
use std::collections::BTreeSet;

/// Returns `mpirun` with its options.
fn open_mpi(ranks: &str, bind: &[&str]) -> Option<Vec<String>> {
    let mpirun = installed("mpirun.openmpi").or_else(|| installed("mpirun"))?;
    let mut words = vec![mpirun.display().to_string(), "--oversubscribe".to_owned()];
    words.extend(geteuid().is_root().then(|| "--allow-run-as-root".to_owned()));
    words.extend(bind.iter().chain(&["-n", ranks]).map(|word| (*word).to_owned()));
    Some(words)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_of_open_mpi_share_out_the_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi("2", &["--bind-to", "none"]), "Open MPI is not installed");
    let sandbox = Sandbox::new();
    let call = sandbox.run("-c 2").sh(&format!("{MASK}; echo threads $(nproc)")).through(mpirun);
    let said = call.ends().ok();
    assert_eq!(sorted(&said), [a.to_string(), b.to_string(), "threads 1".into(), "threads 1".into()]);
    sandbox.until_free();
}

#[test]
fn ranks_of_mpich_share_out_the_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let mpiexec =
        need!(installed("mpiexec.mpich").or_else(|| installed("mpiexec.hydra")), "MPICH is not installed");
    let sandbox = Sandbox::new();
    let call = sandbox.run("-c 2").sh(MASK).through([mpiexec.to_str().unwrap(), "-n", "2"]);
    assert_eq!(sorted(&call.ends_by_itself().ok()), [a.to_string(), b.to_string()]);
    // Without a request, all free cores.
    let call = sandbox.run("").sh(MASK).through([mpiexec.to_str().unwrap(), "-n", "2"]);
    assert_eq!(sorted(&call.ends_by_itself().ok()), [a.to_string(), b.to_string()]);
    sandbox.until_free();
}

#[test]
fn a_rank_that_its_launcher_bound_stays_there() {
    let [a, b] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi("2", &["--bind-to", "core"]), "Open MPI is not installed");
    let sandbox = Sandbox::new();
    let bare =
        std::process::Command::new(&mpirun[0]).args(&mpirun[1..]).args(["sh", "-c", MASK]).output().unwrap();
    let bare = String::from_utf8_lossy(&bare.stdout).into_owned();
    if sorted(&bare) != [a.to_string(), b.to_string()] {
        return skip(&format!("Open MPI binds otherwise here: {bare:?}"));
    }
    for options in ["-c 2", "-c 1", ""] {
        let outcome = sandbox.run(options).sh(MASK).through(mpirun.clone()).ends();
        assert_eq!(sorted(&outcome.out()), sorted(&bare), "{options}: {outcome}");
        assert_eq!(outcome.code, Some(0), "{outcome}");
    }
    sandbox.until_free();
}

/// The variables by which each launcher announces rank R of 2; `@` stands for a value that differs
/// between jobs.
const LAUNCHERS: [(&str, &str); 8] = [
    ("Slurm", "SLURM_LOCALID=R SLURM_STEP_TASKS_PER_NODE=2 SLURM_JOB_ID=@ SLURM_STEP_ID=0 SLURM_NODEID=0"),
    (
        "Slurm, several nodes",
        "SLURM_LOCALID=R SLURM_STEP_TASKS_PER_NODE='4,2(x3)' SLURM_JOB_ID=@ SLURM_STEP_ID=0 SLURM_NODEID=2",
    ),
    ("Flux", "FLUX_TASK_LOCAL_ID=R FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f@"),
    ("PALS", "PALS_LOCAL_RANKID=R PALS_LOCAL_SIZE=2 PALS_APID=@"),
    ("torchrun", "LOCAL_RANK=R LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=@"),
    ("torchrun without a name", "LOCAL_RANK=R LOCAL_WORLD_SIZE=2"),
    ("Hydra", "MPI_LOCALRANKID=R MPI_LOCALNRANKS=2"),
    ("Open MPI", "OMPI_COMM_WORLD_LOCAL_RANK=R OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=@"),
];

/// Returns a shell that starts ranks 0 and 1, each of which prints its mask and stays until the
/// input ends.
fn job(variables: &str, options: &str, name: &str) -> String {
    let rank = |rank: u32| {
        format!(
            "env {} \"$T\" run --survey none {options} -- sh -c '{}; while ! [ -e {name}.stop ]; do sleep 0.02; done' &",
            variables.replace("=R", &format!("={rank}")).replace('@', name),
            MASK.replace('\'', "'\\''"),
        )
    };
    format!("{} {} wait", rank(0), rank(1))
}

#[test]
fn ranks_of_every_known_launcher_share_out_the_cores() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (launcher, variables) in LAUNCHERS {
        let mut running = sandbox.shell(&job(variables, "-c 2", "77")).begins();
        let masks = running.lines(2).join("\n");
        assert_eq!(sorted(&masks), [a.to_string(), b.to_string()], "{launcher}");
        assert_eq!(sandbox.held(), BTreeSet::from([a, b]), "{launcher}");
        sandbox.run("-c 1").arg("true").ends().fails(124, &["held by"]);
        sandbox.write("77.stop", "");
        running.ends().ok();
        std::fs::remove_file(sandbox.path("77.stop")).unwrap();
        sandbox.until_free();
    }
}

#[test]
fn two_jobs_do_not_share() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (launcher, variables) in LAUNCHERS {
        let mut jobs = ["1", "2"].map(|name| sandbox.shell(&job(variables, "-c 1", name)).begins());
        let masks = jobs.each_mut().map(|job| job.lines(2));
        for masks in &masks {
            assert_eq!(masks[0], masks[1], "{launcher}: the ranks of a job with one core share it");
        }
        assert_eq!(
            sorted(&[masks[0][0].clone(), masks[1][0].clone()].join("\n")),
            [a.to_string(), b.to_string()],
            "{launcher}"
        );
        for name in ["1", "2"] {
            sandbox.write(&format!("{name}.stop"), "");
        }
        for job in jobs {
            job.ends().warns(&["2 ranks share 1 core in turn", "-c"]);
        }
        for name in ["1", "2"] {
            std::fs::remove_file(sandbox.path(&format!("{name}.stop"))).unwrap();
        }
        sandbox.until_free();
    }
}

#[test]
fn more_ranks_than_cores_take_turns() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script: String = (0..4)
        .map(|rank| {
            // Each rank lives until all have begun: a rank that begins after the others have ended
            // makes a hold of its own, and that hold prints the line again.
            format!(
                "MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=4 \"$T\" run --survey none -c 2 -- \
                 sh -c 'touch began.{rank}; until [ -e all ]; do sleep 0.02; done; {MASK}' & "
            )
        })
        .collect();
    let all =
        "until [ -e began.0 ] && [ -e began.1 ] && [ -e began.2 ] && [ -e began.3 ]; do sleep 0.02; done";
    let said = sandbox.shell(&format!("{script} {all}; touch all; wait")).ends();
    let masks = said.warns(&["4 ranks share 2 cores in turn", "-c"]);
    assert_eq!(sorted(&masks), [a.to_string(), a.to_string(), b.to_string(), b.to_string()]);
    sandbox.until_free();
}

#[test]
fn the_allotment_is_held_until_the_last_rank_ends() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let script = format!(
        "{0}=0 {1} run --survey none -c 2 -- sh -c 'touch zero; until [ -e one ]; do sleep 0.02; done' & \
         until [ -e zero ]; do sleep 0.02; done; \
         {0}=1 {1} run --survey none -c 2 -- sh -c 'touch one; echo $$; exec sleep 1000 >/dev/null 2>&1' & wait %1; echo first; wait",
        "MPI_LOCALNRANKS=2 MPI_LOCALRANKID", "\"$T\""
    );
    let mut running = sandbox.shell(&script).begins();
    let lines = running.lines(2);
    assert!(lines.contains(&"first".to_owned()), "{lines:?}");
    assert_eq!(sandbox.held(), BTreeSet::from([a, b]), "the second still runs");
    let last = lines.iter().find(|line| *line != "first").unwrap();
    drop(Orphan::of(last));
    running.ends();
    sandbox.until_free();
}

#[test]
fn ranks_without_room_are_refused_together() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let script: String = (0..2)
        .map(|rank| {
            format!("MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=2 \"$T\" run --survey none -c 2 -- true 2>said.{rank}; echo $?; ")
        })
        .collect();
    let said = sandbox.shell(&script).ends().ok();
    assert_eq!(said, "124\n124");
    for rank in 0..2 {
        let said = text(&sandbox.path(&format!("said.{rank}")));
        assert!(said.lines().count() == 1 && said.contains("held by"), "{said}");
    }
}

#[test]
fn ranks_wait_together() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let held = sandbox.hold(&format!("--cpus {a}"));
    let script = job("MPI_LOCALRANKID=R MPI_LOCALNRANKS=2", "-c 2 --wait", "w");
    let mut running = sandbox.shell(&script).begins();
    eventually("both stand in line", || sandbox.ps()["waiting"] == 2);
    held.ends().ok();
    let masks = running.lines(2).join("\n");
    assert_eq!(sorted(&masks), [a.to_string(), b.to_string()]);
    sandbox.write("w.stop", "");
    running.ends().ok();
}

#[test]
fn a_launcher_that_does_not_say_how_many_is_not_guessed_at() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let outcome = sandbox.run("-c 1").args(["echo", "ran"]).env("OMPI_COMM_WORLD_LOCAL_RANK", "1").ends();
    assert_eq!(outcome.warns(&["Open MPI", "how many ranks", "placed alone"]), "ran");
    // A batch script of Slurm, and a foreign variable of that name, are not ranks.
    for (name, value) in
        [("SLURM_LOCALID", "0"), ("LOCAL_RANK", "1"), ("MPI_LOCALRANKID", "x"), ("PALS_LOCAL_RANKID", "")]
    {
        assert_eq!(sandbox.run("-c 1").args(["echo", "ran"]).env(name, value).ends().ok(), "ran", "{name}");
    }
}

#[test]
fn a_launcher_behind_trimtab_gets_a_hint_and_the_mask() {
    let [a, _] = need!(two(), "two cores are needed");
    let mpirun = need!(open_mpi("2", &["--bind-to", "none"]), "Open MPI is not installed");
    let sandbox = Sandbox::new();
    let outcome = sandbox.run(&format!("--cpus {a}")).args(mpirun).args(["sh", "-c", MASK]).ends();
    assert!(outcome.stderr.lines().any(|line| line.contains("better put trimtab behind it")), "{outcome}");
    assert!(outcome.out().lines().all(|line| cpus(line) == BTreeSet::from([a])), "{outcome}");
}
