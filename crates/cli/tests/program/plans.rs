//! `trimtab plan` and `trimtab check`.

use crate::bounds::Group;
use crate::util::{Sandbox, built, installed, need, skip, text, two};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trimtab_core::set::CpuSet;

const SERVER: &str = "pack:2 numa:2 l3:2 core:4 pu:2";

fn plan(sandbox: &Sandbox, machine: &str, options: &str) -> String {
    sandbox.trimtab("plan --machine").arg(machine).args(options.split_whitespace()).ends().ok()
}

/// Returns the captured machines, if they are present.
fn topologies() -> Option<Vec<PathBuf>> {
    let folder = std::env::var_os("TRIMTAB_TOPOLOGIES").map(PathBuf::from);
    let folder =
        folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies"));
    let files = std::fs::read_dir(&folder).ok()?.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|kind| kind == "xml")).collect();
    files.sort();
    (!files.is_empty()).then_some(files)
}

#[test]
fn a_plan_has_its_reasons_and_passes_the_check() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 1");
    for options in [
        "",
        "-c 1",
        "-c 50%",
        "-c 1 --smt all --mem interleave --thp off",
        "--share -c 2",
        "-c 2 --or-fewer -s scatter",
    ] {
        let text = sandbox.trimtab(&format!("plan --survey none --json {options}")).ends().ok();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["schema"], "trimtab.plan/2");
        assert_eq!(document["machine"]["from"], "live");
        for part in ["request", "taken", "plan"] {
            assert!(document[part].is_object(), "{part}: {text}");
        }
        let reasons = document["plan"]["reasons"].as_array().unwrap().len();
        assert_eq!(document["explanation"].as_array().unwrap().len(), reasons, "{text}");
        assert_eq!(sandbox.trimtab("check -").input(&text).ends().ok(), "");
        let file = sandbox.write("plan.json", &text);
        assert_eq!(sandbox.trimtab("check").arg(file).ends().ok(), "");
        // The version before has the same placement.
        let earlier = text.replace("trimtab.plan/2", "trimtab.plan/1");
        assert_eq!(sandbox.trimtab("check -").input(&earlier).ends().ok(), "");
    }
}

#[test]
fn plans_for_other_machines_pass_the_check() {
    let sandbox = Sandbox::new();
    for machine in
        [SERVER, "core:1", "pack:2 core:4 pu:2(far)", "numa:8 l3:4 l2:4 core:1 pu:2", "node:3 core:5"]
    {
        for options in [
            "",
            "-c 1",
            "-c 33%",
            "-c 2xcore",
            "-s scatter -c 3",
            "-s balanced --smt all",
            "-s stride:2",
            "-c node",
        ] {
            let text =
                sandbox.trimtab("plan --json --machine").arg(machine).args(options.split_whitespace()).ends();
            if text.code == Some(1) {
                continue; // too small for it
            }
            let text = text.ok();
            assert_eq!(sandbox.trimtab("check -").input(&text).ends().ok(), "", "{machine}, {options}");
        }
    }
}

#[test]
fn a_tampered_plan_is_found_out() {
    type Change<'c> = &'c dyn Fn(&mut Value);
    let sandbox = Sandbox::new();
    let text = plan(&sandbox, SERVER, "-c 6 --json");
    let good: Value = serde_json::from_str(&text).unwrap();
    let tampered = |change: Change<'_>| {
        let mut document = good.clone();
        change(&mut document);
        assert_ne!(document, good, "nothing was changed");
        sandbox.trimtab("check -").input(document.to_string()).ends()
    };
    let changes: [(&str, Change<'_>); 11] = [
        ("mask", &|document| document["plan"]["mask"] = json!("0-3")),
        ("hold", &|document| document["plan"]["hold"] = json!("")),
        ("a slot twice", &|document| document["plan"]["slots"][1] = document["plan"]["slots"][0].clone()),
        ("a slot less", &|document| drop(document["plan"]["slots"].as_array_mut().unwrap().pop())),
        ("no slot", &|document| document["plan"]["slots"] = json!([])),
        ("a CPU that is not there", &|document| document["plan"]["slots"][0]["cpu"] = json!(999)),
        ("a core that is another", &|document| document["plan"]["slots"][0]["core"] = json!(9)),
        ("a node that is another", &|document| document["plan"]["slots"][0]["node"] = json!(3)),
        ("another request", &|document| document["request"]["amount"] = json!({"cores": 7})),
        ("less is allowed", &|document| document["taken"]["allowed"] = json!("1-63")),
        ("others hold it", &|document| document["taken"]["held"] = json!("0")),
    ];
    for (what, change) in changes {
        let outcome = tampered(change);
        assert_eq!(outcome.code, Some(1), "{what}: {outcome}");
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{what}: {outcome}");
    }
}

#[test]
fn an_impossible_plan_is_refused() {
    let sandbox = Sandbox::new();
    let text = plan(&sandbox, SERVER, "-c 6 --json");
    let good: Value = serde_json::from_str(&text).unwrap();
    let other = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        document.to_string()
    };
    for (input, words) in [
        (String::new(), &["standard input", "not JSON"][..]),
        ("x".to_owned(), &["not JSON"]),
        (text[..text.len() / 2].to_owned(), &["not JSON"]),
        ("[]".to_owned(), &["no schema", "trimtab plan --json"]),
        ("{}".to_owned(), &["no schema"]),
        (
            other(&|document| document["schema"] = json!("trimtab.plan/9")),
            &["trimtab.plan/9", "trimtab.plan/2"],
        ),
        (other(&|document| document["schema"] = json!("trimtab.topo/1")), &["trimtab.topo/1"]),
        (other(&|document| document["plan"] = json!(null)), &["not a plan"]),
        (other(&|document| document["plan"]["mask"] = json!("3-1")), &["runs backwards"]),
        (other(&|document| document["machine"]["of"] = json!("pack:")), &["--machine"]),
        (
            other(&|document| document["machine"] = json!({"from": "xml", "of": "/no/such.xml"})),
            &["/no/such.xml"],
        ),
    ] {
        sandbox.trimtab("check -").input(&input).ends().fails(2, words);
    }
    sandbox.trimtab("check /no/such.json").ends().fails(2, &["cannot read /no/such.json"]);
    sandbox.trimtab("check").arg(sandbox.path("")).ends().fails(2, &["cannot read"]);
    let odd = sandbox.write("odd.json", b"{\"schema\": \"\xff\"}");
    sandbox.trimtab("check").arg(odd).ends().fails(2, &["odd.json"]);
}

/// Returns a package of four dies with four cores each, as `lstopo` writes it, in which every other
/// die has memory: the others' nodes are empty or absent.
fn four_dies(with_empty_nodes: bool) -> String {
    let dies = 0..4u32;
    let has_node = |die: u32| die % 2 == 1 || with_empty_nodes;
    let bits = |numbers: &mut dyn Iterator<Item = u32>| {
        format!("{:#x}", numbers.fold(0u32, |bits, at| bits | 1 << at))
    };
    let sets = |cpus: std::ops::Range<u32>, nodes: std::ops::Range<u32>| {
        let (cpus, nodes) = (bits(&mut cpus.into_iter()), bits(&mut nodes.filter(|&die| has_node(die))));
        format!(
            "cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\""
        )
    };
    let die = |die: u32| {
        let whole = sets(die * 4..die * 4 + 4, die..die + 1);
        let bytes = if die % 2 == 1 { 8u64 << 30 } else { 0 };
        let node = format!("<object type=\"NUMANode\" os_index=\"{die}\" {whole} local_memory=\"{bytes}\"/>");
        let core = |cpu: u32| {
            let own = sets(cpu..cpu + 1, die..die + 1);
            format!(
                "<object type=\"Core\" os_index=\"{cpu}\" {own}><object type=\"PU\" os_index=\"{cpu}\" {own}/></object>"
            )
        };
        let cores: String = (die * 4..die * 4 + 4).map(core).collect();
        let node = if has_node(die) { node } else { String::new() };
        format!("<object type=\"Group\" {whole} kind=\"0\" subkind=\"0\">{node}{cores}</object>")
    };
    let (whole, all) = (sets(0..16, dies.clone()), dies.map(die).collect::<String>());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\
         <object type=\"Machine\" os_index=\"0\" {whole} allowed_cpuset=\"0xffff\" allowed_nodeset=\"{}\">\
         <object type=\"Package\" os_index=\"0\" {whole}>{all}</object></object></topology>\n",
        bits(&mut (0..4).filter(|&die| has_node(die)))
    )
}

#[test]
fn dies_without_memory_come_last_and_a_plan_that_takes_them_first_fails_the_check() {
    let sandbox = Sandbox::new();
    for with_empty_nodes in [true, false] {
        let file = sandbox.write(&format!("dies-{with_empty_nodes}.xml"), four_dies(with_empty_nodes));
        let plan = |options: &str| plan(&sandbox, file.to_str().unwrap(), options);
        for (options, cores) in [
            ("-c 4", "4 cores: CPUs 4-7 on node 1"),
            ("-c 6", "6 cores: CPUs 4-7,12-13 on node 1,3"),
            ("-c 8 -s scatter", "8 cores: CPUs 4-7,12-15 on node 1,3"),
            ("-c 2 -s stride:2", "2 cores: CPUs 4,6 on node 1"),
            ("-c 1/node", "2 cores: CPUs 4,12 on node 1,3"),
            ("-c node", "4 cores: CPUs 4-7 on node 1"),
        ] {
            let said = plan(&format!("{options} --explain"));
            assert!(said.starts_with(cores), "{options}: {said}");
            assert!(said.contains("they have no memory of their own"), "{options}: {said}");
        }
        let nine = plan("-c 9 --explain");
        assert!(nine.starts_with("9 cores: CPUs 0,4-7,12-15"), "{nine}");
        assert!(nine.contains("uses CPUs 0 although they have no memory of their own"), "{nine}");
        assert!(nine.contains("preferred-many on node 1,3"), "{nine}");
        // Valid as made, and invalid once its request is moved to the dies without memory.
        let right = plan("-c 4 --json");
        sandbox.trimtab("check -").input(&right).ends().ok();
        let mut wrong: Value = serde_json::from_str(&plan("--cpus 0-3 --json")).unwrap();
        let asked: Value = serde_json::from_str(&right).unwrap();
        wrong["request"] = asked["request"].clone();
        let outcome = sandbox.trimtab("check -").input(wrong.to_string()).ends();
        let said = format!("{}{}", outcome.out(), outcome.stderr);
        assert_eq!(outcome.code, Some(1), "{outcome}");
        assert!(said.contains("CPUs 0-3 have no memory of their own, while CPUs 4-7,12-15"), "{said}");
    }
}

#[test]
fn every_format_says_the_same_plan() {
    let sandbox = Sandbox::new();
    for (format, wanted) in [
        ("omp", "OMP_NUM_THREADS=6\nOMP_PLACES='{0},{2},{4},{6},{8},{10}'\nOMP_PROC_BIND=close"),
        ("taskset", "taskset -c 0,2,4,6,8,10"),
        ("numactl", "numactl --physcpubind=0,2,4,6,8,10 --preferred=0"),
        ("likwid", "likwid-pin -c 0,2,4,6,8,10"),
        ("slurm", "srun --ntasks=1 --cpu-bind=mask_cpu:0x555 --mem-bind=prefer,mask_mem:0x1"),
        ("cpuset", "cpuset.cpus=0-11\ncpuset.mems=0"),
    ] {
        assert_eq!(plan(&sandbox, SERVER, &format!("-c 6 --format {format}")), wanted);
    }
    let json: Value = serde_json::from_str(&plan(&sandbox, SERVER, "-c 6 --format json")).unwrap();
    assert_eq!(json, serde_json::from_str::<Value>(&plan(&sandbox, SERVER, "-c 6 --json")).unwrap());
    let outcome = sandbox.trimtab("plan --format pbs").ends();
    outcome.fails(2, &["\"pbs\" is not a format", "omp, taskset, numactl", "and json"]);
    assert_eq!(sandbox.trimtab("plan --json --format omp").ends().code, Some(2));
}

#[test]
fn a_format_can_be_used() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let command = sandbox.trimtab(&format!("plan --survey none --cpus {a} --format taskset")).ends().ok();
    assert_eq!(sandbox.shell(&format!("{command} sh -c '{}'", crate::util::MASK)).ends().ok(), a.to_string());
    let assignments = sandbox.trimtab("plan --survey none -c 2 --format omp").ends().ok();
    let said = sandbox.shell(&format!("{assignments}; echo $OMP_NUM_THREADS $OMP_PLACES")).ends().ok();
    assert!(said.starts_with("2 {"), "{said}");
}

#[test]
fn likwid_and_numactl_accept_a_plan() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // likwid-pin binds a program of one thread to all of them.
    for (tool, format) in [("likwid-pin", "likwid"), ("numactl", "numactl")] {
        if installed(tool).is_none() {
            skip(&format!("{tool} is not here"));
            continue;
        }
        let command =
            sandbox.trimtab(&format!("plan --survey none --cpus {a},{b} --format {format}")).ends().ok();
        let said = sandbox.shell(&format!("{command} cat /proc/self/status")).ends().ok();
        let mask = said.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let mask: CpuSet = mask.parse().unwrap();
        assert_eq!(mask.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [a, b], "{command}");
    }
}

#[test]
fn the_kernel_accepts_a_plan_as_files_of_a_control_group() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for cpus in [format!("{a}"), format!("{b}"), format!("{a},{b}")] {
        let text = sandbox.trimtab(&format!("plan --survey none --cpus {cpus} --format cpuset")).ends().ok();
        let settings: Vec<(&str, String)> = text
            .lines()
            .map(|line| line.split_once('=').map(|(file, value)| (file, value.to_owned())).unwrap())
            .collect();
        let group = need!(Group::new("cpuset", &settings), "no cpuset can be made here");
        let mask = sandbox.shell(crate::util::MASK).through(group.join()).ends().ok();
        assert_eq!(mask.parse::<CpuSet>().unwrap(), cpus.parse::<CpuSet>().unwrap(), "{text}");
    }
}

#[test]
fn openmp_accepts_a_plan() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for compiler in ["gcc", "clang"] {
        let Some(program) = built(compiler, "openmp.c", &["-O1", "-fopenmp"]) else {
            skip(&format!("no {compiler} with OpenMP"));
            continue;
        };
        let plan = sandbox.trimtab(&format!("plan --survey none --cpus {a},{b} --format omp")).ends().ok();
        let script = format!("set -a\n{plan}\nexec \"$0\"");
        let said = sandbox.shell(&script).arg(&program).ends().ok();
        let masks: std::collections::BTreeSet<&str> =
            said.lines().filter_map(|line| line.strip_prefix("thread ")?.split(" cpu").next()).collect();
        let expected = [format!("0 mask {a}"), format!("1 mask {b}")];
        assert_eq!(masks, expected.iter().map(String::as_str).collect(), "{compiler}: {said}");
    }
}

#[test]
fn systemd_accepts_a_plan() {
    let analyze = need!(installed("systemd-analyze"), "systemd-analyze is not here");
    let sandbox = Sandbox::new();
    let verify = |settings: &str| {
        let unit = format!("[Unit]\nDescription=a test\n[Service]\nExecStart=/bin/true\n{settings}\n");
        let file = sandbox.write("trimtab-test.service", unit);
        sandbox.shell("\"$@\" 2>&1").arg("sh").arg(&analyze).arg("verify").arg(&file).ends().ok()
    };
    for memory in ["local", "bind", "interleave", "preferred:0", "none"] {
        let settings = plan(&sandbox, SERVER, &format!("-c 6 --mem {memory} --format systemd"));
        assert!(settings.contains("CPUAffinity=0"), "{settings}");
        assert_eq!(verify(&settings), "", "{settings}");
    }
    // It tells what it does not accept, though with status 0.
    assert!(verify("[Service]\nNUMAPolicy=near").contains("Invalid NUMA policy"));
}

#[test]
fn a_ranks_plan_is_its_part_and_passes_the_check() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    for (rank, cpu) in [("0", a), ("1", b)] {
        let plan = sandbox.trimtab("plan --survey none --json -c 2 true");
        let text = plan.env("LOCAL_RANK", rank).env("LOCAL_WORLD_SIZE", "2").ends().ok();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["plan"]["mask"], cpu.to_string());
        assert_eq!(document["ranks"].as_array().unwrap().len(), 2);
        assert_eq!(sandbox.trimtab("check -").input(&text).ends().ok(), "");
        let mut tampered = document.clone();
        tampered["plan"]["mask"] = json!("0-63");
        assert_eq!(sandbox.trimtab("check -").input(tampered.to_string()).ends().code, Some(1));
    }
}

#[test]
fn a_plan_reserves_and_starts_nothing() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let file = sandbox.path("started");
    sandbox.trimtab("plan --survey none -c 2 touch").arg(&file).ends().ok();
    assert!(!file.exists());
    assert!(std::fs::read_dir(sandbox.path("ledger")).unwrap().next().is_none(), "looking made a ledger");
    let outcome = sandbox.trimtab("plan --survey none no-such-program").ends();
    outcome.fails(2, &["no-such-program"]);
}

#[test]
fn a_plan_that_cannot_be_had_now_is_a_no() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 1");
    sandbox.trimtab("plan --survey none -c 2").ends().fails(1, &["held by", "trimtab ps"]);
    let why = sandbox.trimtab("plan --survey none --explain -c 1").ends().ok();
    assert!(why.contains("avoided CPUs") && why.contains("they are held for other programs"), "{why}");
}

#[test]
fn machines_that_cannot_be_read_are_refused() {
    let sandbox = Sandbox::new();
    let xml = |name: &str, text: &str| sandbox.write(name, text).display().to_string();
    for (machine, words) in [
        ("/no/such.xml".to_owned(), &["cannot read /no/such.xml"][..]),
        ("nonsense".to_owned(), &["nonsense"]),
        (xml("text.xml", "not XML at all\n"), &["text.xml", "not XML", "lstopo"]),
        (xml("empty.xml", ""), &["empty.xml", "empty"]),
        (xml("other.xml", "<html></html>\n"), &["other.xml"]),
        (
            xml("short.xml", "<topology version=\"2.0\">\n<object type=\"Machine\""),
            &["short.xml", "cut short"],
        ),
        (
            xml("three.xml", "<topology version=\"3.0\"></topology>"),
            &["three.xml", "format 3.0", "--export-xml-flags v2"],
        ),
        (sandbox.path("").display().to_string(), &["not a regular file"]),
        ("pack:0".to_owned(), &["--machine", "position"]),
        ("pack:2 x".to_owned(), &["--machine", "position 8"]),
        ("pack:x".to_owned(), &["--machine", "position"]),
        ("core:4 pack:2".to_owned(), &["--machine"]),
        ("bogus:4".to_owned(), &["--machine", "bogus"]),
        ("pack:99999 core:99999 pu:9".to_owned(), &["--machine"]),
        (":".to_owned(), &["--machine"]),
    ] {
        sandbox.trimtab("plan --machine").arg(&machine).ends().fails(2, words);
        sandbox.trimtab("topo --machine").arg(&machine).ends().fails(2, words);
    }
    if !rustix::process::geteuid().is_root() {
        let closed = sandbox.write("closed.xml", "<topology/>");
        crate::util::chmod(&closed, 0);
        sandbox.trimtab("plan --machine").arg(&closed).ends().fails(2, &["Permission denied"]);
    }
}

#[test]
fn every_captured_machine_can_be_planned_and_drawn() {
    let files = need!(topologies(), "no captured machines: set TRIMTAB_TOPOLOGIES");
    let sandbox = Sandbox::new();
    let (mut planned, mut refused) = (0, Vec::new());
    for file in &files {
        let outcome = sandbox.trimtab("plan -c 50% --json --machine").arg(file).ends();
        if text(file).contains("version=\"3.") {
            refused.push(outcome.stderr.clone());
            outcome.fails(2, &["format 3.0"]);
            continue;
        }
        let text = outcome.ok();
        assert_eq!(sandbox.trimtab("check -").input(&text).ends().ok(), "", "{}", file.display());
        let drawn = sandbox.trimtab("plan -c 50% --map --explain --machine").arg(file).ends().ok();
        assert!(
            drawn.contains("slots in thread order: ") && drawn.contains("because:"),
            "{}: {drawn}",
            file.display()
        );
        planned += 1;
    }
    assert!(planned > 0, "{refused:?}");
    if files.len() < 25 {
        skip(&format!("only {} captured machines are there", files.len()));
    }
}

#[test]
fn plans_look_like_this() {
    let sandbox = Sandbox::new();
    for (name, machine, options) in [
        ("a_server_in_part", SERVER, "-c 12"),
        ("a_cache_each", SERVER, "-c 2xl3 --smt all"),
        ("scattered", SERVER, "-c 8 -s scatter --mem interleave"),
        ("balanced", SERVER, "-c 6 -s balanced"),
        ("strided", "pack:1 l3:2 l2:4 core:2", "-c 4 -s stride:l2"),
        ("some_of_every_node", "numa:4 core:6", "-c 2/node"),
        ("named", "numa:2 core:4 pu:2", "--cpus 0-3,8-9"),
        ("one_kind", "l3:1 core:4 pu:2", "-c 3 --kind one"),
    ] {
        insta::assert_snapshot!(
            name,
            plan(&sandbox, machine, &format!("{options} --explain --map")),
            &format!("{machine} | {options}")
        );
    }
}

/// Prints the properties that a child reads of itself: mask, memory policy and environment.
const READ_BACK: &str = "while read -r key list; do case $key in Cpus_allowed_list:) echo \"mask $list\";; esac; done \
    </proc/self/status; read -r _ policy _ </proc/self/numa_maps && echo \"policy $policy\"; env -0 | tr '\\n\\0' ' \\n'";

#[test]
fn real_launches_are_as_planned() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let rank = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2"), ("TORCHELASTIC_RUN_ID", "x")];
    for (options, variables) in [
        ("", &[][..]),
        ("-c 1", &[]),
        ("-c 2 -s scatter --threads 3", &[]),
        ("-c 1 --wait-policy sleep --thp on", &[]),
        ("-c 1", &[("OMP_NUM_THREADS", "4"), ("OPENBLAS_NUM_THREADS", "2")]),
        ("-c 2 --fit keep", &[("OMP_NUM_THREADS", "4")]),
        ("--nest 2,scatter", &[("OMP_PLACES", "cores")]),
        ("-c 1 --pin mask", &[("LD_PRELOAD", "")]),
        ("-c 1 --env keep --threads 2", &[]),
        ("-c 1 --mem bind", &[]),
        ("-c 1 --mem local", &[]),
        ("-c 2", &rank),
        ("--cpus 0 --balance=float", &[]),
    ] {
        let call = |command: &str| {
            let call =
                sandbox.trimtab(&format!("{command} --quiet --survey none {options} --")).sh(READ_BACK);
            variables.iter().fold(call, |call, (name, value)| call.env(name, value))
        };
        let plan: Value = serde_json::from_str(&call("plan --json").ends().ok()).unwrap();
        let run = call("run").ends();
        assert_eq!(run.code, Some(0), "{options}: {run}");
        let said = run.out();
        let line = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        assert_eq!(line("mask "), plan["plan"]["mask"].as_str(), "{options}");
        let policy = line("policy ").unwrap_or_default();
        let wanted = match plan["plan"]["memory"]["policy"].as_str().unwrap() {
            "none" => "default".to_owned(),
            "preferred" => format!("prefer:{}", plan["plan"]["memory"]["nodes"].as_str().unwrap()),
            other => format!("{other}:{}", plan["plan"]["memory"]["nodes"].as_str().unwrap()),
        };
        let wanted = wanted.trim_end_matches(':');
        assert!(policy.is_empty() || policy.starts_with(wanted), "{options}: {policy}, not {wanted}");
        let set = plan["env"] == "set";
        for variable in plan["environment"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            let found = line(&format!("{name}="));
            let of_process = ["TRIMTAB_PLAN", "TRIMTAB_CHANGED"].contains(&name);
            let planned = variable["value"].as_str();
            match variable["action"].as_str().unwrap() {
                "set" | "fitted" if set && of_process => assert!(found.is_some(), "{options}: {name}"),
                "set" | "fitted" if set => assert_eq!(found, planned, "{options}: {name}"),
                "kept" => assert_eq!(found, planned, "{options}: {name}"),
                "removed" if set => assert_eq!(found, None, "{options}: {name}"),
                "unset" => assert_eq!(found, None, "{options}: {name}"),
                _ => {}
            }
        }
        sandbox.until_free();
    }
}

#[test]
fn an_imagined_occupation_is_avoided_and_named() {
    let sandbox = Sandbox::new();
    let mask = |options: &str| {
        let document: Value = serde_json::from_str(&plan(&sandbox, "core:8", options)).unwrap();
        document["plan"]["mask"].as_str().unwrap().to_owned()
    };
    assert_eq!(mask("--json -c 2"), "0-1");
    assert_eq!(mask("--json -c 2 --held 0-2"), "3-4");
    assert_eq!(mask("--json -c 2 --held 0-2 --busy 3,6"), "4-5");
    assert_eq!(mask("--json --held 0-2 --busy 3,6"), "4-5,7");
    let why = plan(&sandbox, "core:8", "--explain --held 0-2 --busy 3,6");
    for text in
        ["CPUs 0-2 are assumed to be held by other runs (--held)", "CPUs 3,6 are assumed to be kept busy"]
    {
        assert!(why.contains(text), "{text}: {why}");
    }
    let full = sandbox.trimtab("plan --machine core:8 -c 2 --held 0-6").ends();
    full.fails(1, &["1 can be had now: CPUs 0-6 are held"]);
    let foreign = sandbox.trimtab("plan --machine core:8 --busy 7-9").ends();
    foreign.fails(2, &["--busy: the machine has no CPUs 8-9; it has 0-7"]);
}

#[test]
fn a_grant_of_slurm_is_for_this_machine_only() {
    let sandbox = Sandbox::new();
    let said = |options: &str| {
        let call = sandbox.trimtab(&format!("plan --explain --survey none {options}"));
        call.env("SLURM_CPUS_ON_NODE", "1").ends().ok()
    };
    assert!(!said("--machine core:8").contains("SLURM"));
    need!(two(), "two cores are needed");
    assert!(said("").contains("SLURM_CPUS_ON_NODE grants this job 1 CPU: 1 core is taken"), "{}", said(""));
    assert!(!said("-c 2").contains("SLURM"));
}

/// Returns the JSON of a plan that passes the check.
fn checked(sandbox: &Sandbox, machine: &str, options: &str) -> Value {
    let text = plan(sandbox, machine, &format!("--json {options}"));
    assert_eq!(sandbox.trimtab("check -").input(&text).ends().ok(), "", "{machine} {options}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn requested_memory_is_on_the_nodes_of_the_plan_or_refused() {
    let sandbox = Sandbox::new();
    let machine = "pack:2 numa:2(memory=64GB) core:4";
    for (size, nodes) in [("60G", "0"), ("100G", "0-1"), ("0.25T", "0-3")] {
        let plan = checked(&sandbox, machine, &format!("-c 4 --mem-size {size}"));
        assert_eq!(plan["plan"]["memory"]["nodes"], nodes, "{size}");
    }
    let too_much = sandbox.trimtab("plan --mem-size 257G --machine").arg(machine).ends();
    too_much.fails(1, &["257 GiB of memory asked for (--mem-size), 256 GiB can be had now on nodes 0-3"]);
    let here = sandbox.run("-c 1 --mem-size 8000T").arg("true").ends();
    here.fails(125, &["8000 TiB of memory asked for (--mem-size)", "can be had now on"]);
    assert_eq!(sandbox.run("-c 1 --mem-size 1M").args(["echo", "ran"]).ends().ok(), "ran");
}

#[test]
fn cpus_have_names_by_their_place() {
    let sandbox = Sandbox::new();
    for (names, mask) in [
        ("S0:0-1@S1:0", "0,2,32"),
        ("N1:0-3", "16,18,20,22"),
        ("node:1.core:even.pu:1", "17,21,25,29"),
        ("C3:0", "24"),
    ] {
        let plan = checked(&sandbox, SERVER, &format!("--cpus {names}"));
        assert_eq!(plan["plan"]["mask"], mask, "{names}");
    }
    let narrowed = checked(&sandbox, SERVER, "-c 2 --cpus node:3.core:all");
    assert_eq!(narrowed["plan"]["mask"], "48,50");
    let fails = |names: &str, words: &str| {
        let run = sandbox.trimtab(&format!("plan --cpus {names} --machine")).arg(SERVER).ends();
        run.fails(2, &[words]);
    };
    fails("node:9.core:0", "--cpus node:9: node 9 does not exist there (there is 0-3)");
    fails("D0:0", "--cpus D0:0: this machine has no die");
}

#[test]
fn cores_near_a_device_are_chosen_on_captured_machines() {
    let files = need!(topologies(), "no captured machines: set TRIMTAB_TOPOLOGIES");
    let file = |name: &str| files.iter().find(|file| file.ends_with(format!("{name}.xml")));
    let sandbox = Sandbox::new();
    for (name, device, nodes) in [
        ("epyc-corona", "gpu:1", "2"),
        ("32em64t-2n8c2t-pci-normalio", "nic:mlx5_0", "1"),
        ("eas-tioga", "hsi0", "3"),
    ] {
        let Some(file) = file(name) else { continue };
        let plan = checked(&sandbox, &file.display().to_string(), &format!("-c 4 --near {device}"));
        assert_eq!(plan["plan"]["nodes"], nodes, "{name}");
        assert_eq!(plan["plan"]["memory"]["nodes"], nodes, "{name}");
    }
    let unknown = sandbox.trimtab("plan --near gpu:9 --machine").arg(SERVER).ends();
    unknown.fails(2, &["--near gpu:9: that machine has no such device (devices in the model: none)"]);
    let here = sandbox.trimtab("plan --survey none --near nic:none0").ends();
    here.fails(2, &["there is no device nic:none0 here"]);
}
