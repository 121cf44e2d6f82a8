//! The program, on this machine and on malformed files of every kind.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use trimtab_core::topology::Machine;
use trimtab_linux::machine::{Key, MachineOptions, ModelOrigin, decode, load};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trimtab-discover");

/// Reports a skip past the test harness, which captures the output of passing tests.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

fn run(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn live() -> Machine {
    let out = run(&["live"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    decode(&out.stdout, &Key::live().unwrap()).unwrap()
}

/// Returns the single line of a refusal, and checks that it was one.
fn refusal(words: &[&str]) -> String {
    let out = run(words);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{words:?}: {said}");
    assert!(out.stdout.is_empty(), "{words:?} printed something");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    said.strip_prefix("trimtab-discover: ").unwrap_or_else(|| panic!("{said}")).trim_end().to_owned()
}

/// Returns a machine of two cores, as lstopo would write it.
fn xml() -> String {
    let object = |level: &str, attributes: &str| {
        format!(
            "<object type=\"{level}\" {attributes} cpuset=\"0x00000001\" complete_cpuset=\"0x00000001\" nodeset=\"0x1\" complete_nodeset=\"0x1\">"
        )
    };
    let second = |text: String| text.replace("0x00000001", "0x00000002");
    let core = |at: u32| {
        format!(
            "{}{}</object></object>",
            object("Core", &format!("os_index=\"{at}\" gp_index=\"{}\"", 10 + at)),
            object("PU", &format!("os_index=\"{at}\" gp_index=\"{}\"", 20 + at)),
        )
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n\
         <object type=\"Machine\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" allowed_cpuset=\"0x00000003\" \
         nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n\
         <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" nodeset=\"0x1\" complete_nodeset=\"0x1\" \
         gp_index=\"2\" local_memory=\"1073741824\"/>\n{}\n{}\n</object>\n</topology>\n",
        core(0),
        second(core(1)),
    )
}

#[test]
fn a_file_is_read_and_printed_for_people_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two cores.xml");
    fs::write(&file, xml()).unwrap();
    let file = file.to_str().unwrap();
    let out = run(&["xml", file]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let machine = decode(&out.stdout, &Key::file()).unwrap();
    assert_eq!((machine.name(), machine.cores().len(), machine.nodes().len()), ("two cores", 2, 1));
    for words in [["xml", file, "--json"], ["--json", "xml", file]] {
        let out = run(&words);
        let json: Machine = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json, machine);
    }
}

#[test]
fn caches_of_a_processor_with_one_stacked_die_have_their_sizes() {
    // Each of the two cores below a third-level cache of its own, as the dies of a 7950X3D.
    let cache = |at: u32, mebibytes: u32, core: &str| {
        let cpus = format!("0x0000000{}", at + 1);
        format!(
            "<object type=\"L3Cache\" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"0x1\" complete_nodeset=\"0x1\" \
             gp_index=\"{}\" cache_size=\"{}\" depth=\"3\" cache_linesize=\"64\" cache_associativity=\"16\" cache_type=\"0\">\n{core}\n</object>",
            30 + at,
            mebibytes << 20
        )
    };
    let plain = xml();
    let cores: Vec<&str> = plain.lines().filter(|line| line.starts_with("<object type=\"Core\"")).collect();
    let stacked = plain.replace(cores[0], &cache(0, 32, cores[0])).replace(cores[1], &cache(1, 96, cores[1]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stacked.xml");
    for (text, sizes, largest) in
        [(&stacked, vec![Some(32), Some(96)], Some("1")), (&plain, vec![None], None)]
    {
        fs::write(&file, text).unwrap();
        let out = run(&["xml", file.to_str().unwrap()]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let machine = decode(&out.stdout, &Key::file()).unwrap();
        let found: Vec<_> = machine.llcs().iter().map(|llc| llc.bytes.map(|bytes| bytes >> 20)).collect();
        assert_eq!(found, sizes);
        assert_eq!(machine.largest_cache().map(|cpus| cpus.to_string()).as_deref(), largest);
    }
}

#[test]
fn every_bad_file_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let whole = xml();
    let half = &whole[..whole.len() / 2];
    for (name, contents, cause, remedy) in [
        ("empty", String::new(), "it is empty", "lstopo"),
        ("text", "two cores, please\n".to_owned(), "not XML", "lstopo"),
        ("html", "<!DOCTYPE html><html></html>".to_owned(), "<html>", "lstopo"),
        ("cut", half.to_owned(), "cut short", "lstopo"),
        ("cut and closed", format!("{half}</topology>"), "refuses", "damaged"),
        ("hollow", "<topology version=\"2.0\">\n</topology>".to_owned(), "refuses", "damaged"),
        (
            "newer",
            whole.replace("version=\"2.0\"", "version=\"3.0\""),
            "XML format 3.0, and the installed hwloc",
            "--export-xml-flags v2",
        ),
        ("no processor", whole.replace("\"PU\"", "\"Thing\""), "refuses", "damaged"),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, contents).unwrap();
        let line = refusal(&["xml", file.to_str().unwrap()]);
        assert!(line.contains(name) && line.contains(cause) && line.contains(remedy), "{name}: {line}");
    }
    let gone = refusal(&["xml", "/nowhere/at/all.xml"]);
    assert!(gone.contains("/nowhere/at/all.xml") && gone.contains("No such file"), "{gone}");
    assert!(refusal(&["xml", "/proc"]).contains("not a regular file"));
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(refusal(&["xml", pipe.to_str().unwrap()]).contains("not a regular file"));
}

/// Files that hwloc accepts, or dies of. Never a hang, never a panic's backtrace, never an invalid
/// model.
#[test]
fn odd_files_end_in_a_machine_or_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let whole = xml();
    for (name, contents) in [
        ("all CPUs everywhere", whole.replace("cpuset=\"0x00000001\"", "cpuset=\"0x00000003\"")),
        ("endless set", whole.replace("cpuset=\"0x00000003\"", "cpuset=\"0xf...f\"")),
        ("huge number", whole.replace("os_index=\"1\"", "os_index=\"4294967290\"")),
        ("twice the same", whole.replace("os_index=\"1\"", "os_index=\"0\"")),
        ("nodes elsewhere", whole.replace("nodeset=\"0x1\"", "nodeset=\"0x8\"")),
        ("no node", whole.replace("NUMANode", "Group")),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, contents).unwrap();
        let out = run(&["xml", file.to_str().unwrap()]);
        let said = String::from_utf8(out.stderr).unwrap();
        match out.status.code() {
            Some(0) => assert!(decode(&out.stdout, &Key::file()).is_ok(), "{name}"),
            Some(2) => assert_eq!(said.lines().count(), 1, "{name}: {said}"),
            // In debug builds the binding makes hwloc assert its own invariants, which ends the
            // process.
            None if cfg!(debug_assertions) => assert!(said.contains("Assertion"), "{name}: {said}"),
            other => panic!("{name}: {other:?} {said}"),
        }
    }
}

#[test]
fn a_wrong_command_line_gets_the_usage() {
    for words in [&[][..], &["xml"], &["live", "x"], &["xml", "a", "b"], &["alive"]] {
        assert!(refusal(words).contains("expected `live`, `xml FILE` or `picture CPUS`"), "{words:?}");
    }
    let help = run(&["--help"]);
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("usage"));
}

#[test]
fn this_machine_agrees_with_lscpu() {
    let machine = live();
    let Ok(out) = Command::new("lscpu").arg("-p=CPU,CORE,SOCKET,NODE").output() else {
        skip("no lscpu to compare with");
        return;
    };
    let text = String::from_utf8(out.stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect()).collect();
    let distinct = |column: usize| rows.iter().map(|row| row[column]).collect::<BTreeSet<_>>().len();
    assert_eq!(machine.pu_count(), rows.len());
    assert_eq!(machine.cores().len(), distinct(1));
    let homes: BTreeSet<_> = machine.cores().iter().filter_map(|core| core.node).collect();
    assert_eq!(homes.len(), distinct(3));
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(machine.cpus().to_string(), online.trim());
    let Ok(count) = Command::new("hwloc-calc").args(["--disallowed", "-N", "core", "all"]).output() else {
        skip("no hwloc-calc to compare with");
        return;
    };
    assert_eq!(String::from_utf8(count.stdout).unwrap().trim(), machine.cores().len().to_string());
}

#[test]
fn this_machine_is_the_same_with_any_mask_and_environment() {
    let all = live();
    assert_eq!(all.parts().allowed, None, "what one process may use is not the machine's");
    // Bound to one CPU.
    let cpu = all.cpus().first().unwrap().to_string();
    match Command::new("taskset").args(["-c", &cpu, PROGRAM, "live"]).output() {
        Ok(out) => assert_eq!(decode(&out.stdout, &Key::live().unwrap()).unwrap(), all),
        Err(_) => skip("no taskset to narrow the mask with"),
    }
    // With hwloc told to describe another machine: `live` still means this one.
    let out = Command::new(PROGRAM)
        .arg("live")
        .env("HWLOC_SYNTHETIC", "pack:4 core:4 pu:4")
        .env("HWLOC_XMLFILE", "/nowhere.xml")
        .env("HWLOC_XML_VERBOSE", "1")
        .output()
        .unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(decode(&out.stdout, &Key::live().unwrap()).unwrap(), all);
}

#[test]
fn a_start_discovers_this_machine_once_and_caches_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = MachineOptions {
        helper: Some(PROGRAM.into()),
        user_cache: Some(folder.path().join("trimtab")),
        ..MachineOptions::default()
    };
    let first = load(&options).unwrap();
    assert_eq!(first.origin, ModelOrigin::Helper(Path::new(PROGRAM).to_owned()));
    let second = load(&options).unwrap();
    assert!(matches!(second.origin, ModelOrigin::Cache(_)));
    assert_eq!(first.machine, second.machine);
}

/// Returns what a call of the program prints, as JSON without devices.
fn without_devices(words: &[&str]) -> serde_json::Value {
    let out = run(words);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut parts: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let devices = parts["devices"].as_array_mut().unwrap();
    assert!(!words.contains(&"--no-devices") || devices.is_empty(), "{devices:?}");
    devices.clear();
    parts
}

#[test]
fn the_model_of_this_machine_without_devices_is_the_same_but_for_them() {
    assert_eq!(without_devices(&["live", "--json", "--no-devices"]), without_devices(&["live", "--json"]));
}

/// Returns hwloc's plug-ins that a call of the program loads, as the C library's loader names them.
fn plugins(words: &[&str]) -> BTreeSet<String> {
    let out = Command::new(PROGRAM).args(words).env("LD_DEBUG", "files").output().unwrap();
    assert!(out.status.success());
    let lines = String::from_utf8_lossy(&out.stderr).into_owned();
    let words = lines.split([' ', '=', ';']).filter(|word| word.contains("/hwloc/hwloc_"));
    words.filter_map(|word| Some(word.rsplit_once('/')?.1.to_owned())).collect()
}

#[test]
fn a_model_without_devices_needs_no_plugins() {
    if plugins(&["live"]).is_empty() {
        return skip("hwloc has no plug-ins here");
    }
    assert_eq!(plugins(&["live", "--no-devices"]), BTreeSet::new());
}

#[test]
fn a_picture_has_the_cpus_that_were_asked_for_and_is_one_that_hwloc_reads() {
    let machine = live();
    let folder = tempfile::tempdir().unwrap();
    for cpu in machine.allowed().iter() {
        let out = run(&["picture", &cpu.to_string()]);
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        let file = folder.path().join("picture.xml");
        fs::write(&file, &out.stdout).unwrap();
        let again = run(&["xml", file.to_str().unwrap()]);
        let pictured = decode(&again.stdout, &Key::file()).unwrap();
        assert_eq!(pictured.cpus().to_string(), cpu.to_string());
        let node = |machine: &Machine| machine.nodes_of(&pictured.cpus());
        assert_eq!(node(&pictured), node(&machine));
    }
}

#[test]
fn a_picture_of_cpus_that_are_not_there_is_refused() {
    assert!(refusal(&["picture", "60000"]).contains("a picture of CPUs 60000"));
    assert!(refusal(&["picture", "x"]).contains("picture x"));
    assert!(refusal(&["picture", "0", "--no-devices"]).contains("leave --no-devices out"));
}

#[test]
fn a_picture_is_of_this_machine_with_any_variables_of_hwloc() {
    let machine = live();
    let cpu = machine.allowed().first().unwrap().to_string();
    let plain = run(&["picture", &cpu]);
    let other = Command::new(PROGRAM)
        .args(["picture", &cpu])
        .env("HWLOC_SYNTHETIC", "pack:8 core:8 pu:2")
        .output()
        .unwrap();
    let cores = |out: &Output| String::from_utf8_lossy(&out.stdout).matches("type=\"Core\"").count();
    assert!(other.status.success());
    assert_eq!((cores(&plain), cores(&other)), (1, 1));
}
