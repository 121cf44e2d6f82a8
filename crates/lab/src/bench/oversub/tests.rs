//! Tests of the plan and of the order of runs.

use super::*;
use clap::{Args, Command as Clap, FromArgMatches};

/// Plans on two cores, with programs that exist by name only.
fn steps(options: &str) -> Vec<OversubStep> {
    planned(options).steps
}

fn planned(options: &str) -> OversubPlan {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cg", "ep", "lu", "balance_omp"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let words = ["oversub", "--programs", folder.path().to_str().unwrap()];
    let words = words.into_iter().chain(options.split_whitespace());
    let matches = OversubArgs::augment_args(Clap::new("oversub")).get_matches_from(words);
    let args = OversubArgs::from_arg_matches(&matches).unwrap();
    let tools = OversubTools::find(&args, class(&args), &kernels(&args), "trimtab".into()).unwrap();
    plan(&args, &tools, &"0-1".parse().unwrap())
}

/// Plans two commands of the user.
fn commands() -> Vec<OversubStep> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("balance_omp"), "").unwrap();
    let words = ["oversub", "--programs", folder.path().to_str().unwrap(), "--pairs", "./a 1 + ./b -x 2"];
    let matches = OversubArgs::augment_args(Clap::new("oversub")).get_matches_from(words);
    let args = OversubArgs::from_arg_matches(&matches).unwrap();
    let tools = OversubTools::find(&args, class(&args), &kernels(&args), "trimtab".into()).unwrap();
    let steps = plan(&args, &tools, &"0-1".parse().unwrap()).steps;
    for job in steps.iter().flat_map(|step| &step.jobs) {
        let start = tools.start(job.program, Class::W, &job.cell, &job.cpus, None);
        let words = super::harness::words(&start.words).join(" ");
        assert!(words.ends_with(&format!(" -- {}", job.program.word())), "{words}");
        assert_eq!(start.variables["OMP_NUM_THREADS"], Some(job.cell.threads.to_string()));
        assert!(!start.reports);
    }
    steps
}

#[test]
fn any_two_commands_are_run_shared_and_partitioned_and_timed_from_start_to_end() {
    let steps = commands();
    assert_eq!(steps.len(), 2, "shared and partitioned, and no program alone: {steps:?}");
    let names = |step: &OversubStep| step.jobs.iter().map(|job| job.cell.name()).collect::<Vec<_>>();
    assert!(steps.iter().all(|step| names(step) == ["./a 1", "./b -x 2"]), "{steps:?}");
    let ran = ProgramRun {
        ending: RunEnding::Well("any text".to_owned()),
        wall: 3.0,
        cpu: None,
        stderr: String::new(),
    };
    let beside = Some(Baseline { seconds: 2.0, wall: 2.0, serves: 1 });
    let sample = sample(&steps[0].jobs[0], Class::W, 1, &ran, beside);
    assert_eq!((sample.status, sample.slowdown()), (Status::Done, Some(1.5)));
}

#[test]
fn rounds_have_every_case_once_and_groups_together() {
    let steps = steps("--runtimes libgomp --kernels cg,ep,lu");
    let orders: Vec<Vec<usize>> = (1..4).map(|round| order(&steps, 7, round)).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..steps.len()).collect::<Vec<_>>());
        let mut groups: Vec<_> = order.iter().map(|at| steps[*at].group()).collect();
        groups.dedup();
        let changes = groups.len();
        groups.sort();
        groups.dedup();
        assert_eq!(groups.len(), changes, "a group is left once and for all");
    }
    assert!(orders[0] != orders[1] && orders[0] == order(&steps, 7, 1));
}

#[test]
fn no_case_is_planned_twice_and_threads_are_those_of_their_cores() {
    let steps = steps("--runtimes libgomp --kernels cg,ep --cross");
    let mut names = BTreeSet::new();
    for job in steps.iter().flat_map(|step| &step.jobs) {
        let OversubJob { cell, cpus, .. } = job;
        assert!(names.insert(cell.to_string()), "{cell} comes twice");
        assert_eq!((cell.threads, cell.cores as usize), (cell.cores * cell.per_core, cpus.len()), "{cell}");
        let half =
            cell.company.as_ref().is_some_and(|one| one.arrangement == study::Arrangement::Partitioned);
        assert_eq!(cpus.len(), if half { 1 } else { 2 }, "{cell}");
    }
    for pair in steps.iter().filter(|step| step.jobs.len() == 2) {
        let shared: CpuSet = pair.jobs[0].cpus.intersection(&pair.jobs[1].cpus);
        assert!(shared.len() == 2 || shared.is_empty(), "{pair}");
    }
}

#[test]
fn the_slowdown_of_a_stopped_program_is_that_of_its_whole_run() {
    let steps = steps("--runtimes libgomp --kernels cg --pairs none");
    let ran = ProgramRun { ending: RunEnding::Slower, wall: 30.0, cpu: None, stderr: String::new() };
    let beside = Some(Baseline { seconds: 0.5, wall: 2.0, serves: 1 });
    let sample = sample(&steps[0].jobs[0], Class::W, 1, &ran, beside);
    assert_eq!((sample.status, sample.slowdown()), (Status::Slower, Some(15.0)));
}

#[test]
fn schedules_are_cases_of_programs_whose_loops_any_thread_may_take() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("scheduled")).unwrap();
    for name in ["cg", "lu", "balance_omp", "scheduled/cg"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let options = "--kernels cg,lu --runtimes libgomp --pairs none --per-core 1,2 --schedules static,guided";
    let words = ["oversub", "--programs", folder.path().to_str().unwrap()];
    let matches = OversubArgs::augment_args(Clap::new("oversub"))
        .get_matches_from(words.into_iter().chain(options.split_whitespace()));
    let args = OversubArgs::from_arg_matches(&matches).unwrap();
    let tools = OversubTools::find(&args, class(&args), &kernels(&args), "trimtab".into()).unwrap();
    let plan = plan(&args, &tools, &"0-1".parse().unwrap());
    let scheduled: Vec<&OversubJob> =
        plan.steps.iter().flat_map(|step| &step.jobs).filter(|job| job.cell.schedule.is_some()).collect();
    let names: Vec<String> = scheduled.iter().map(|job| job.cell.to_string()).collect();
    let cell = |threads, schedule| format!("cg.W/libgomp/{threads}on2/floating/keep/{schedule}");
    assert_eq!(names, [cell(2, "static"), cell(2, "guided"), cell(4, "static"), cell(4, "guided")]);
    let start = tools.start(Program::Cg, Class::W, &scheduled[1].cell, &scheduled[1].cpus, None);
    assert_eq!(start.variables["OMP_SCHEDULE"], Some("guided".to_owned()));
    assert!(start.words.contains(&folder.path().join("scheduled/cg").into()), "{:?}", start.words);
    // The user's own variable would make all cases equal.
    let plain =
        plan.steps.iter().flat_map(|step| &step.jobs).find(|job| job.cell.schedule.is_none()).unwrap();
    let start = tools.start(Program::Cg, Class::W, &plain.cell, &plain.cpus, None);
    assert_eq!(start.variables["OMP_SCHEDULE"], None);
    let why = "lu with --schedules: its loops have a schedule of their own";
    assert!(plan.left_out.iter().any(|one| one == why), "{:?}", plan.left_out);
}

#[test]
fn a_pair_of_two_runtimes_does_not_depend_on_the_runtimes_asked_for() {
    let steps =
        steps("--runtimes libgomp --kernels cg --pairs cg@libomp+ep@libgomp,cg+lu --mixes 1:1 --waits keep");
    let pairs: Vec<&OversubStep> = steps.iter().filter(|step| step.jobs.len() == 2).collect();
    let runtimes = |step: &&OversubStep| step.jobs.iter().map(|job| job.cell.runtime).collect::<Vec<_>>();
    // Of clang's programs there are none, so the first pair is left out.
    assert!(pairs.iter().all(|step| runtimes(step) == [Runtime::Libgomp; 2]), "{pairs:?}");
    assert_eq!(pairs.len(), 2, "shared and partitioned");
    let company = |job: &OversubJob| job.cell.company.as_ref().map(|one| (one.program.clone(), one.runtime));
    let first = &pairs[0].jobs[0];
    assert_eq!(company(first), Some(("lu".to_owned(), Runtime::Libgomp)));
}

/// Makes a 64-bit program for x86-64 that needs one library. Only its tables can be read.
fn program_that_needs(library: &str) -> Vec<u8> {
    let names = format!("\0{library}\0");
    let (dynamic, strings) = (0x40 + 2 * 0x38, 0x40 + 2 * 0x38 + 4 * 16);
    let length = strings + names.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half =
        |file: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|one| file.extend(one.to_le_bytes()));
    let word =
        |file: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|one| file.extend(one.to_le_bytes()));
    let long =
        |file: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|one| file.extend(one.to_le_bytes()));
    half(&mut file, &[3, 62]);
    word(&mut file, &[1]);
    long(&mut file, &[0, 0x40, 0]);
    word(&mut file, &[0]);
    half(&mut file, &[0x40, 0x38, 2, 0, 0, 0]);
    // All of the file is loaded at its own offsets; its second part is the dynamic section.
    word(&mut file, &[1, 4]);
    long(&mut file, &[0, 0, 0, length, length, 0x1000]);
    word(&mut file, &[2, 4]);
    long(&mut file, &[dynamic, dynamic, dynamic, 64, 64, 8]);
    long(&mut file, &[1, 1, 5, strings, 10, names.len() as u64, 0, 0]);
    file.extend(names.as_bytes());
    file
}

#[test]
fn a_reference_program_of_a_runtime_that_is_not_named_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let npb = tempfile::tempdir().unwrap();
    let file = npb.path().join("cg.W.x");
    std::fs::write(&file, program_that_needs("libgomp.so.1")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let with = |runtimes: &str| {
        planned(&format!("--kernels cg --pairs none --npb {} --runtimes {runtimes}", npb.path().display()))
    };
    let references = |plan: &OversubPlan| {
        plan.steps.iter().filter(|step| matches!(step.jobs[0].program, Program::Npb(_))).count()
    };
    let (named, other) = (with("libgomp"), with("libomp"));
    let why = "npb-cg: it is linked with libgomp, which --runtimes does not name";
    assert!(references(&named) > 0 && !named.left_out.iter().any(|one| one == why), "{:?}", named.left_out);
    assert!(references(&other) == 0 && other.left_out.iter().any(|one| one == why), "{:?}", other.left_out);
}

#[test]
fn pairs_that_cannot_be_made_are_told() {
    let told = |options: &str, why: &str| {
        let plan = planned(&format!("--kernels cg --mixes 1:1 {options}"));
        assert!(!plan.steps.iter().any(|step| step.jobs.len() == 2), "{options}: {:?}", plan.steps);
        assert!(plan.left_out.iter().any(|one| one.contains(why)), "{options}: {:?}", plan.left_out);
    };
    told("--pairs cg@openmpi+ep --runtimes openmpi", "pairs of cg and ep: --runtimes names neither libgomp");
    told("--pairs cg+ep --runtimes libgomp --waits yield", "libgomp with --waits yield: it cannot yield");
    // With a core for each thread of a half, `auto` is `keep`.
    let plan = planned("--kernels cg --mixes 1:1 --pairs cg+ep --runtimes libgomp --waits auto");
    assert!(
        plan.left_out.iter().any(|one| one.starts_with("pairs with --waits auto")),
        "{:?}",
        plan.left_out
    );
}
