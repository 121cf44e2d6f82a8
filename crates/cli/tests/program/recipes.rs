//! Test that the README, the recipes of the guide, and its pages about builds and reports show
//! trimtab's real output: the commands of each page are run and compared.
//!
//! A page's blocks of code are fenced. A `console` block is run line by line after `$ `, in one
//! shell for the whole page, in a sandbox with the trimtab under test on its path and two CPUs; the
//! output of a command, on both streams, is compared with the lines below it. A block with
//! `file=NAME` is written into the sandbox first. `needs=WHAT,WHAT` names requirements that some
//! machines do not meet: such a block is skipped there, with a message. A command that readers need
//! not see, such as waiting for a process, stands between blocks as `<!-- $ COMMAND -->`, skipped
//! with the block before it, or as `<!-- needs=WHAT $ COMMAND -->`.
//!
//! Words are compared. A number (the 32 digits of a boot id, too) matches any number, with any unit
//! of time or memory, or `-` for none; any white space matches any other; a line `...` stands for
//! any lines. If figures decide which words follow, or other lines may appear, the fence has
//! `sample`: then other lines may be between, and of a line that does not begin with a number only
//! the part before its first number is compared, or three words if it has none. `root` matches the
//! user who runs the tests. A command must succeed, or print its status (`; echo $?`).
//!
//! `TRIMTAB_RECIPES=write` writes the printed output into the pages, except where they show `...`.

use crate::util::{
    HANG_TIME_MAX, Sandbox, built, eventually_within, installed, need, skip, text, trimtab, two,
};
use regex::Regex;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fenced block: its words after the fence, and its lines of the page.
struct Block<'p> {
    words: Vec<&'p str>,
    lines: Range<usize>,
}

/// A command of a page, and the lines below it that are its output.
struct Step {
    command: String,
    shown: Range<usize>,
    sample: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn blocks<'p>(lines: &[&'p str]) -> Vec<Block<'p>> {
    let mut found = Vec::new();
    let mut open: Option<Block<'p>> = None;
    for (at, line) in lines.iter().enumerate() {
        let Some(words) = line.strip_prefix("```") else { continue };
        match open.take() {
            Some(mut block) => {
                block.lines.end = at;
                found.push(block);
            }
            None => open = Some(Block { words: words.split_whitespace().collect(), lines: at + 1..at + 1 }),
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// Returns the commands of a block. A command continues while its lines end with a backslash.
fn steps(lines: &[&str], block: &Block<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut more = false;
    let sample = block.words.contains(&"sample");
    for at in block.lines.clone() {
        let line = lines[at];
        if more {
            let step = steps.last_mut().unwrap();
            step.command.push('\n');
            step.command.push_str(line);
            step.shown = at + 1..at + 1;
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: at + 1..at + 1, sample });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("line {} is no command's output", at + 1));
            step.shown.end = at + 1;
        }
        let commanded = more || line.starts_with("$ ");
        more = commanded && line.ends_with('\\');
    }
    steps
}

/// Reduces a line to its words.
fn words(line: &str) -> String {
    let number = Regex::new(
        r"(?x) \b [0-9a-f]{32} \b | (?: \b | [+-] ) \d (?: [\d.,:]* \d | (?: [,-] \d+ )+ )*
        (?: \s? (?: ns | us | µs | ms | s | m | h | d | B | [KMGT]i?B ) \b )?",
    );
    let plain = number.unwrap().replace_all(line, "#");
    // A value that is missing at one moment may be present at the next, and a map has a digit for
    // each core.
    let words = plain.split_whitespace().map(|word| match word.trim_end_matches(['#', '%']) {
        "" | "-" => "#",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns whether the printed output matches the shown one.
fn agrees(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..])),
        Some((line, rest)) => {
            printed.first().is_some_and(|first| words(line) == words(first)) && agrees(rest, &printed[1..])
        }
    }
}

/// Returns whether the printed output matches a sample.
fn resembles(shown: &[&str], printed: &[&str]) -> bool {
    let alike = |one: &str, other: &str| {
        let one = words(one);
        let (label, numbers) = one.split_once('#').map_or((one.as_str(), false), |(label, _)| (label, true));
        let three: Vec<&str> = label.split(' ').take(3).collect();
        let label = if numbers { label.to_owned() } else { three.join(" ") };
        words(other).starts_with(if label.is_empty() { &one } else { &label })
    };
    let mut printed = printed.iter();
    shown.iter().all(|line| *line == "..." || printed.any(|other| alike(line, other)))
}

/// Returns what this machine lacks of a block's needs. An unknown word is an error of the page.
fn lacks(words: &[&str], python: Option<&Path>) -> Option<&'static str> {
    let works = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        let status =
            command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let needs = words.iter().find_map(|word| word.strip_prefix("needs="))?;
    needs.trim().split(',').find_map(|need| {
        let (here, why) = match need {
            "openmp" => (built("cc", "openmp.c", &["-fopenmp"]).is_some(), "no C compiler with OpenMP"),
            "mpi" => (installed("mpirun").is_some() && works("mpicc", &["--version"]), "no mpicc and mpirun"),
            "numpy" => (python.is_some(), "no Python with numpy"),
            "torch" => {
                (python.is_some_and(|python| imports(python, "torch")), "no Python with numpy and torch")
            }
            "qemu" => (installed("qemu-system-x86_64").is_some(), "no QEMU (qemu-system-x86_64)"),
            "namespaces" => {
                let words = ["--mount", "--pid", "--fork", "--mount-proc", "true"];
                (works("unshare", &words), "no namespaces can be made here")
            }
            "cgroup" => {
                let old = Path::new("/sys/fs/cgroup/cpu").is_dir();
                let setting = if old { "cpu.cfs_quota_us" } else { "cpu.max" };
                let group = crate::bounds::Group::new("cpu", &[(setting, "100000".to_owned())]);
                (group.is_some(), "no quota can be set here")
            }
            "old-make" => (is_old_make(), "no GNU make 4.2 or 4.3, whose form of a jobserver is shown"),
            "ninja" => (crate::jobserver::ninja().is_some(), "no ninja 1.13 (scripts/wheels fetches it)"),
            "cargo" => (!cargo().is_empty() && works("cc", &["--version"]), "no cargo with a linker"),
            other => panic!("needs={other}: recipes.rs does not know what that is"),
        };
        (!here).then_some(why)
    })
}

fn imports(python: &Path, module: &str) -> bool {
    let output = Command::new(python).args(["-c", &format!("import {module}")]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Returns whether the make in the path writes the pipe of a jobserver as two descriptors.
fn is_old_make() -> bool {
    let said = Command::new("make").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    ["GNU Make 4.2", "GNU Make 4.3"].iter().any(|old| said.starts_with(old.as_bytes()))
}

/// Returns cargo and its compiler, which work without their user's home; none if one is missing.
fn cargo() -> Vec<PathBuf> {
    let Some(cargo) = option_env!("CARGO").map(PathBuf::from) else { return Vec::new() };
    let both = vec![cargo.with_file_name("rustc"), cargo];
    if both.iter().all(|path| path.is_file()) { both } else { Vec::new() }
}

/// Puts build tools into the sandbox that are not found, or not in the version of the pages.
fn build_tools(sandbox: &Sandbox) {
    for tool in cargo() {
        let name = format!("bin/{}", tool.file_name().unwrap().to_string_lossy());
        std::os::unix::fs::symlink(tool, sandbox.path(&name)).unwrap();
    }
    if let Some(ninja) = crate::jobserver::ninja() {
        sandbox.copy("bin/ninja", &ninja);
    }
}

/// Returns a Python that has numpy: the first on the path need not be the distribution's.
fn numpy() -> Option<PathBuf> {
    let first = installed("python3").into_iter();
    first.chain(["/usr/bin/python3".into()]).find(|python| imports(python, "numpy"))
}

/// Writes a page's files into the sandbox, and its commands into a script that marks where the
/// output of each begins and ends.
fn script(name: &str, lines: &[&str], sandbox: &Sandbox, python: Option<&Path>) -> (String, Vec<Step>) {
    let unseen = Regex::new(r"^<!-- (needs=\S+ )?\$ (.*) -->$").unwrap();
    let mut script = String::from("exec 2>&1\n");
    let mut run = Vec::new();
    let mut add = |step: Step| {
        let number = run.len();
        writeln!(script, "printf '\\036%d\\n' {number}\n{}\nprintf '\\035%d\\n' $?", step.command).unwrap();
        run.push(step);
    };
    let mut skipped = false;
    let blocks = blocks(lines);
    let next = blocks.iter().map(|block| block.lines.start).chain([lines.len()]).skip(1);
    for (block, next) in blocks.iter().zip(next) {
        if let Some(file) = block.words.iter().find_map(|word| word.strip_prefix("file=")) {
            sandbox.write(&format!("here/{file}"), lines[block.lines.clone()].join("\n") + "\n");
        }
        if block.words.first() == Some(&"console") {
            let lack = lacks(&block.words, python);
            skipped = lack.is_some();
            match lack {
                Some(why) => skip(&format!("{name}, line {}: {why}", block.lines.start)),
                None => steps(lines, block).into_iter().for_each(&mut add),
            }
        }
        for hidden in lines[block.lines.end..next].iter().filter_map(|line| unseen.captures(line)) {
            let needs: Vec<&str> = hidden.get(1).map(|needs| needs.as_str()).into_iter().collect();
            let skipped = if needs.is_empty() { skipped } else { lacks(&needs, python).is_some() };
            if !skipped {
                let command = format!("{{ {}; }} >>../unseen 2>&1", &hidden[2]);
                add(Step { command, shown: 0..0, sample: false });
            }
        }
    }
    (script, run)
}

/// Runs a page and compares its output.
fn run(name: &str) {
    need!(two(), "two cores are needed");
    let path = folder().join(name);
    let page = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    // Pages measure foreign load.
    let sandbox = Sandbox::alone();
    for folder in ["bin", "here"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    // Files that pages mention and cannot show: records of measurements.
    let repository = folder().parent().unwrap().canonicalize().unwrap();
    std::os::unix::fs::symlink(repository.join("experiments"), sandbox.path("here/experiments")).unwrap();
    let python = numpy();
    if let Some(python) = &python {
        sandbox.script("bin/python3", format!("#!/bin/sh\nexec {} \"$@\"\n", python.display()));
    }
    build_tools(&sandbox);
    let (script, steps) = script(name, &lines, &sandbox, python.as_deref());
    let script = sandbox.write("script", script);
    let path_variable = std::env::var_os("PATH").unwrap();
    let own = [sandbox.path("bin"), trimtab().parent().unwrap().to_owned()];
    let search = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path_variable))).unwrap();
    let call = sandbox.shell("cd here && exec bash \"$SCRIPT\"").env("SCRIPT", script).env("PATH", search);
    let call = call.env("TRIMTAB_SOCKET", sandbox.path("shared/socket"));
    // Open MPI refuses root otherwise; tests may run as root.
    let call = call.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let mut running = call.begins();
    // Several programs in sequence, perhaps on a busy machine.
    eventually_within(5 * HANG_TIME_MAX, name, || !running.lives());
    let ended = running.ends();
    let printed = ended.out();
    assert_eq!(ended.code, Some(0), "{name}: {ended}\n{printed}");
    let user = Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    let pieces: Vec<&str> = printed.split('\x1e').skip(1).collect();
    assert_eq!(pieces.len(), steps.len(), "{name}:\n{printed}");
    let writing = std::env::var_os("TRIMTAB_RECIPES").is_some_and(|what| what == "write");
    let mut faults = String::new();
    let mut corrected: Vec<(Range<usize>, Vec<String>)> = Vec::new();
    for (step, piece) in steps.iter().zip(pieces) {
        let command = &step.command;
        let (output, status) =
            piece.rsplit_once('\x1d').unwrap_or_else(|| panic!("{name}: {command}\n{piece}"));
        let output: Vec<&str> = output.lines().skip(1).filter(|line| !is_about_others(line)).collect();
        let output = trimmed(&output);
        if status.trim() != "0" {
            let unseen =
                if step.shown.start == 0 { text(&sandbox.path("unseen")) } else { output.join("\n") };
            writeln!(faults, "{name}: $ {command}\nended with status {status}{unseen}\n").unwrap();
            continue;
        }
        if step.shown.start == 0 {
            continue;
        }
        let shown = lines[step.shown.clone()].join("\n").replace("root", user.trim());
        let shown: Vec<&str> = shown.lines().collect();
        let compare = if step.sample { resembles } else { agrees };
        let agree = compare(trimmed(&shown), output);
        if (writing && !shown.contains(&"...") && trimmed(&shown) != output) || !agree {
            corrected
                .push((step.shown.clone(), output.iter().map(|line| line.trim_end().to_owned()).collect()));
        }
        if !agree {
            let [shown, printed] = [shown.join("\n"), output.join("\n")];
            writeln!(faults, "{name}: $ {command}\n-- shown:\n{shown}\n-- printed:\n{printed}\n").unwrap();
        }
    }
    if writing {
        let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        for (range, output) in corrected.into_iter().rev() {
            lines.splice(range, output);
        }
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    assert!(faults.is_empty(), "{faults}");
}

/// Returns whether a line tells of programs that are no part of the page: tests run beside it, and
/// some of them bind threads.
fn is_about_others(line: &str) -> bool {
    line.starts_with("pinned by others: ")
}

/// Removes empty lines at both ends.
fn trimmed<'l, 't>(lines: &'l [&'t str]) -> &'l [&'t str] {
    let begin = lines.iter().take_while(|line| line.trim().is_empty()).count();
    let end = lines.iter().rev().take_while(|line| line.trim().is_empty()).count();
    if begin == lines.len() { &[] } else { &lines[begin..lines.len() - end] }
}

/// Defines a test for each page, and a test that every page has one.
macro_rules! pages {
    ($($test:ident: $page:literal,)+) => {
        const PAGES: &[&str] = &[$($page),+];
        $(
            #[test]
            fn $test() {
                run($page);
            }
        )+
    };
}

pages! {
    the_readme_shows_what_is_printed: "../README.md",
    the_page_about_reports_shows_what_is_printed: "reading-reports.md",
    the_page_about_builds_shows_what_is_printed: "guide/builds.md",
    the_recipe_for_a_shared_server_works: "recipes/shared-server.md",
    the_recipe_for_nested_openmp_works: "recipes/nested-openmp.md",
    the_recipe_for_mpi_and_openmp_works: "recipes/mpi-openmp.md",
    the_recipe_for_python_works: "recipes/python.md",
    the_recipe_for_a_host_of_virtual_machines_works: "recipes/vm-host.md",
    the_recipe_for_a_ci_machine_works: "recipes/ci.md",
    the_recipe_for_containers_works: "recipes/containers.md",
    the_recipe_for_many_jobs_works: "recipes/many-jobs.md",
    the_recipe_for_workers_works: "recipes/workers.md",
}

#[test]
fn every_recipe_is_run_by_a_test() {
    let entries = fs::read_dir(folder().join("recipes")).unwrap();
    let there: BTreeSet<String> =
        entries.map(|entry| format!("recipes/{}", entry.unwrap().file_name().to_string_lossy())).collect();
    let run: BTreeSet<String> =
        PAGES.iter().filter(|page| page.starts_with("recipes/")).map(|page| (*page).to_owned()).collect();
    assert_eq!(there, run);
}

/// A recipe says why, what to type, what can go wrong, and when not to use it.
#[test]
fn every_recipe_has_the_same_parts() {
    for page in PAGES.iter().filter(|page| page.starts_with("recipes/")) {
        let text = fs::read_to_string(folder().join(page)).unwrap();
        let titles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(titles, ["Why", "What to do", "What can go wrong", "When not to"], "{page}");
        assert!(text.contains("```console"), "{page} shows no command");
    }
}

#[test]
fn words_are_compared_and_numbers_are_not() {
    for (shown, printed) in [
        ("2 cores: CPUs 0-1 on node 0", "2 cores: CPUs 4,6 on node 1"),
        ("took 1.5 ms, 20 %", "took  900.2 us, 3 %"),
        ("trimtab: 12.5% (2/4)", "trimtab:   1% (20/40)"),
        ("end 96%  3 of 4", "end -  - of 4"),
        ("l3 0 ## cpus 0-1", "l3 1 9# cpus 2,5"),
        ("speed +1.2 [0.5, 3]", "speed -10 [0.25, 3e]"),
    ] {
        let equal = words(shown) == words(printed);
        assert_eq!(equal, !printed.contains("3e"), "{:?} and {:?}", words(shown), words(printed));
    }
    assert_ne!(words("1 core"), words("2 cores"));
    assert_ne!(words("l3 0"), words("l2 0"));
    assert!(agrees(&["a", "...", "b 1"], &["a", "x", "y", "b 2"]));
    assert!(agrees(&["...", "b"], &["b"]));
    assert!(!agrees(&["a", "...", "b"], &["a", "x"]));
    assert!(!agrees(&["a"], &["a", "b"]));
    assert!(resembles(&["cost: 3 %", "4 moves"], &["x", "cost: 12 %, kept", "y", "9 moves"]));
    assert!(!resembles(&["cost: 3 %", "4 moves"], &["cost: 3 %", "4 looks"]));
    assert!(!resembles(&["a: 1", "b: 1"], &["b: 1", "a: 1"]));
    assert!(resembles(&["9  x  1 (100%)"], &["8  x  0 (98%), 1 (2%)"]));
    assert!(resembles(&["that is very fine"], &["that is very well"]));
    assert!(!resembles(&["that is very fine"], &["that was very fine"]));
}
