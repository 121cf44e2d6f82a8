//! `trimtab run` becomes the program: its input and its results are the same as without trimtab.

use crate::util::{MASK, Sandbox, built, installed, need, text, two};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[test]
fn the_exit_status_is_the_programs() {
    let sandbox = Sandbox::new();
    for status in [0, 1, 2, 3, 42, 99, 100, 123, 124, 125, 126, 127, 128, 130, 200, 254, 255] {
        let outcome = sandbox.run("-c 1").sh(&format!("exit {status}")).ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(status), ""), "{outcome}");
    }
}

#[test]
fn the_process_is_the_program() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.run("-c 1").sh("echo $$; read -r line; exit 7").begins();
    assert_eq!(running.line(), running.pid().to_string());
    assert_eq!(running.ends().code, Some(7));
}

#[test]
fn death_by_a_signal_is_the_programs() {
    let sandbox = Sandbox::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("PIPE", 13)] {
        let outcome = sandbox.run("-c 1").sh(&format!("kill -{name} $$")).ends();
        assert_eq!((outcome.code, outcome.signal), (None, Some(number)), "{outcome}");
    }
    // The shell's view of that.
    let outcome =
        sandbox.run("-c 1").sh("$T run -c 1 --survey none -- sh -c 'kill -TERM $$'; echo $?").ends();
    assert_eq!(outcome.out(), "143", "{outcome}");
}

#[test]
fn signals_go_to_the_program() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done";
    let mut running = sandbox.run("-c 1").sh(script).begins();
    running.line();
    running.signal(Signal::USR1);
    let outcome = running.ends();
    assert_eq!((outcome.code, outcome.out().as_str()), (Some(3), "ready\ncaught"), "{outcome}");
}

#[test]
fn stdout_and_stderr_hold_nothing_but_the_programs() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let outcome = sandbox.run("-c 1").arg("cat").input(&bytes).ends();
    assert!(
        outcome.stdout == bytes && outcome.stderr.is_empty(),
        "{} bytes, {}",
        outcome.stdout.len(),
        outcome.stderr
    );
    let outcome = sandbox.run("-c 1 -v").arg("cat").input(&bytes).ends();
    assert!(outcome.stdout == bytes, "--verbose speaks on stdout");
    assert!(outcome.stderr.lines().all(|line| line.starts_with("trimtab: ")), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("1 core: CPUs"), "{}", outcome.stderr);
}

#[test]
fn the_program_gets_its_words_as_typed() {
    let sandbox = Sandbox::new();
    let words = |call: crate::util::Call<'_>| call.ends().ok().replace('\0', "|");
    // argv[0] is the word as typed, not the path that was found.
    assert_eq!(words(sandbox.run("-c 1").args(["cat", "/proc/self/cmdline"])), "cat|/proc/self/cmdline|");
    let cat = installed("cat").unwrap();
    let odd = format!(
        "{}/../{}/cat",
        cat.parent().unwrap().display(),
        cat.parent().unwrap().file_name().unwrap().to_string_lossy()
    );
    assert_eq!(
        words(sandbox.run("-c 1").arg(&odd).arg("/proc/self/cmdline")),
        format!("{odd}|/proc/self/cmdline|")
    );
    // The first -- ends trimtab's options; the program keeps its own, also options that trimtab
    // has, too.
    let call = |text: &str| words(sandbox.trimtab(text));
    assert_eq!(call("run -c 1 cat -- /proc/self/cmdline"), "cat|--|/proc/self/cmdline|");
    assert_eq!(call("run -c 1 -- cat -- /proc/self/cmdline"), "cat|--|/proc/self/cmdline|");
    assert_eq!(call("run -c 1 cat -v /proc/self/cmdline").replace("^@", "|"), "cat|-v|/proc/self/cmdline|");
    let words =
        sandbox.run("-c 1").args(["printf", "%s|", "", "a b", "*", "-c", "--wait", "\u{e9}"]).ends().ok();
    assert_eq!(words, "|a b|*|-c|--wait|\u{e9}|");
}

#[test]
fn a_program_may_have_a_name_like_an_option() {
    let sandbox = Sandbox::new();
    sandbox.script("-x", "#!/bin/sh\necho \"${0##*/} $1\"\n");
    let path = format!("{}:{}", sandbox.path("").display(), "/usr/bin:/bin");
    assert_eq!(sandbox.run("-c 1").args(["-x", "-c"]).env("PATH", path).ends().ok(), "-x -c");
}

#[test]
fn words_that_are_no_text_reach_the_program() {
    use std::os::unix::ffi::OsStrExt;
    let sandbox = Sandbox::new();
    let word = std::ffi::OsStr::from_bytes(b"a\xff\x80b");
    let outcome = sandbox.run("-c 1").args(["printf", "%s"]).arg(word).env("ODD", word).ends();
    assert_eq!(outcome.stdout, b"a\xff\x80b", "{outcome}");
    let outcome = sandbox.run("-c 1").args(["printenv", "ODD"]).env("ODD", word).ends();
    assert_eq!(outcome.stdout, b"a\xff\x80b\n", "{outcome}");
}

#[test]
fn scripts_run_with_and_without_a_first_line() {
    let sandbox = Sandbox::new();
    let script = sandbox.script("with", "#!/bin/sh\necho \"$0 $1 $2\"\n");
    let said = sandbox.run("-c 1").arg(&script).args(["one", "two words"]).ends().ok();
    assert_eq!(said, format!("{} one two words", script.display()));
    // execvp(3) passes these files to the shell, and so does trimtab.
    let script = sandbox.script("without", "echo \"$0 $1 $2\"; exit 5\n");
    let outcome = sandbox.run("-c 1").arg(&script).args(["one", "two words"]).ends();
    assert_eq!(outcome.out(), format!("{} one two words", script.display()));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(5), ""), "{outcome}");
    let empty = sandbox.script("empty", "");
    assert_eq!(sandbox.run("-c 1").arg(&empty).ends().ok(), "");
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.run("-c 1").arg("no-such-program").ends().fails(127, &["no-such-program", "not found in PATH"]);
    sandbox.run("-c 1").arg("./no-such").ends().fails(127, &["./no-such", "no such file"]);
    sandbox.run("-c 1").arg("").ends().fails(127, &["not found"]);
    let plain = sandbox.write("plain", "#!/bin/sh\n");
    sandbox.run("-c 1").arg(&plain).ends().fails(126, &["plain", "not executable"]);
    sandbox.run("-c 1").arg(sandbox.path("")).ends().fails(126, &["is a directory"]);
    let orphan = sandbox.script("orphan", "#!/no/such/interpreter\n");
    sandbox.run("-c 1").arg(&orphan).ends().fails(127, &["orphan", "interpreter"]);
    let windows = sandbox.script("windows", "#!/bin/sh\r\necho\r\n");
    sandbox.run("-c 1").arg(&windows).ends().fails(127, &["windows", "interpreter"]);
    let loop_ = sandbox.path("loop");
    std::os::unix::fs::symlink(&loop_, &loop_).unwrap();
    sandbox.run("-c 1").arg(&loop_).ends().fails(126, &["loop"]);
    sandbox.until_free();
}

#[test]
fn a_binary_for_another_machine_is_not_given_to_the_shell() {
    let sandbox = Sandbox::new();
    let mut bytes = fs::read(installed("true").unwrap()).unwrap();
    bytes[18..20].copy_from_slice(&0x1234u16.to_ne_bytes());
    let foreign = sandbox.script("foreign", bytes);
    sandbox.run("-c 1").arg(&foreign).ends().fails(126, &["foreign", "Exec format error"]);
    let broken = sandbox.script("broken", b"\x7fELF\x02\x01\x01 and then nothing");
    sandbox.run("-c 1").arg(&broken).ends().fails(126, &["broken", "Exec format error"]);
}

#[test]
fn the_search_path_may_be_empty_or_absent() {
    let sandbox = Sandbox::new();
    sandbox.run("-c 1").arg("true").env("PATH", "").ends().fails(127, &["true", "not found in PATH"]);
    // An empty entry is the current directory, as for every shell.
    sandbox.script("here", "#!/bin/sh\necho found\n");
    assert_eq!(sandbox.run("-c 1").arg("here").env("PATH", "").ends().ok(), "found");
    assert_eq!(sandbox.run("-c 1").arg("true").without("PATH").ends().ok(), "");
}

#[test]
fn an_environment_of_nothing_is_enough() {
    let sandbox = Sandbox::new();
    // Without TRIMTAB_LEDGER this is the machine's real ledger, with arbitrary holds of others.
    let call =
        sandbox.run("-c 1").args(["/bin/sh", "-c", "echo ran; unset PWD OLDPWD SHLVL _; env | cut -d= -f1"]);
    let names = ["PATH", "HOME", "XDG_CACHE_HOME", "TRIMTAB_CONFIG", "LC_ALL", "T"];
    let said = names.iter().fold(call, |call, name| call.without(name)).ends().ok();
    assert!(said.starts_with("ran\n") && !said.contains("\nHOME") && !said.contains("\nPATH"), "{said}");
}

#[test]
fn the_program_reads_its_own_input() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("-c 1").sh("read -r a; read -r b; echo $b$a").input("x\ny\n").ends().ok(), "yx");
}

#[test]
fn nothing_else_about_the_process_changes() {
    let sandbox = Sandbox::new();
    let script = "umask; pwd; ulimit -a; nice; for word in Sig Cap NoNewPrivs Seccomp Groups Uid; do \
                  grep \"^$word\" /proc/self/status; done | grep -v -e SigPnd -e SigQ; readlink /proc/self/fd/0 | tr -d 0-9";
    let through = ["env", "--ignore-signal=INT,USR2", "--block-signal=USR1,HUP"];
    for through in [
        &through[..],
        &["nice", "-n", "3"],
        &["sh", "-c", "umask 027; ulimit -n 800; cd /usr; exec \"$0\" \"$@\""],
    ] {
        let with = sandbox.run("-c 1").sh(script).through(through).ends().ok();
        let mut command = std::process::Command::new(through[0]);
        command
            .args(&through[1..])
            .args(["sh", "-c", script])
            .current_dir(sandbox.path(""))
            .stdin(Stdio::null());
        let without = command.output().unwrap();
        let without = String::from_utf8_lossy(&without.stdout).into_owned();
        assert_eq!(known_signals(&with), known_signals(without.trim_end()));
    }
}

/// Returns the signals without the two that the C library keeps for itself, and without SIGPIPE,
/// which has its own test.
fn known_signals(status: &str) -> String {
    let line = |line: &str| match line.split_once(":\t") {
        Some((name, mask)) if name.starts_with("Sig") => {
            format!("{name} {:x}", u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31) & !(1 << 12))
        }
        _ => line.to_owned(),
    };
    status.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let sandbox = Sandbox::new();
    let signals = "grep SigIgn /proc/self/status";
    let pipe =
        |status: &str| u64::from_str_radix(status.trim_start_matches("SigIgn:\t"), 16).unwrap() >> 12 & 1;
    let with = sandbox.run("-c 1").sh(signals).through(["env", "--default-signal=PIPE"]).ends().ok();
    assert_eq!(pipe(&with), 0);
    let with = sandbox.run("-c 1").sh(signals).through(["env", "--ignore-signal=PIPE"]).ends().ok();
    assert_eq!(pipe(&with), 1);
}

#[test]
fn a_program_with_a_closed_pipe_ends_by_sigpipe() {
    let sandbox = Sandbox::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = sandbox.run("-c 1").arg("yes").onto(writer).begins();
    reader.read_exact(&mut [0; 10]).unwrap();
    drop(reader);
    assert_eq!(running.ends().signal, Some(13));
}

#[test]
fn a_closed_output_is_no_error_and_a_full_disk_is() {
    let sandbox = Sandbox::new();
    for words in
        ["topo", "ps", "doctor", "plan -c 1", "generate bash", "topo --json", "run --env print -c 1 -- true"]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(sandbox.trimtab(words).onto(writer).ends().ok(), "", "{words}");
        if let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") {
            let status = if words.starts_with("run") { 125 } else { 2 };
            sandbox.trimtab(words).onto(full).ends().fails(status, &["No space left"]);
        }
    }
}

#[test]
fn a_long_environment_that_no_longer_fits_says_so() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(100_000);
    // Words and variables together may use a quarter of the stack, here 256 KiB; just below the
    // limit, trimtab's do not fit any more. With a smaller stack, an unoptimised build does not
    // have enough for itself. trimtab adds 300 bytes or more.
    let mut said = Vec::new();
    for more in (50_000..62_000).step_by(50) {
        let limit = ["sh", "-c", "ulimit -s 1024; exec \"$@\"", "sh"];
        let call = sandbox.run("-c 1").arg("true").env("LONG", &long).env("AS_LONG", &long);
        let call = call.env("MORE", "x".repeat(more)).through(limit);
        let outcome = call.ends();
        if outcome.code == Some(0) {
            continue;
        }
        said.push(outcome.stderr.clone());
        if outcome.stderr.contains("trimtab") {
            outcome.fails(126, &["arguments and environment are too long"]);
            return;
        }
        break;
    }
    panic!("no size was too long for the program only: {said:?}");
}

#[test]
fn the_mask_is_set_before_the_program_begins() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let said = sandbox.run(&format!("--cpus {a}")).sh(MASK).ends().ok();
    assert_eq!(said, a.to_string());
}

#[test]
fn a_static_program_runs_as_any_other() {
    let hello = need!(built("cc", "seen.c", &["-static"]), "no static C library");
    let sandbox = Sandbox::new();
    let said = sandbox.run("-c 1").arg(hello).ends().ok();
    assert_eq!(
        said.lines().next(),
        Some(format!("mask {}", sandbox.plan("-c 1")["plan"]["mask"].as_str().unwrap()).as_str())
    );
}

#[test]
fn a_run_with_its_own_terminal_prints_one_line_there() {
    let script = need!(installed("script"), "script(1) is not installed");
    let sandbox = Sandbox::new();
    let log = sandbox.path("log");
    let command = "$T run --survey none -c 1 -- sh -c 'stty size >/dev/null && echo on a terminal'";
    let call = sandbox.shell("exec \"$@\"").arg("sh").arg(script).args(["-qec", command]).arg(&log);
    assert_eq!(call.ends().code, Some(0));
    let said = text(&log);
    assert!(said.contains("trimtab: 1 core: CPUs") && said.contains("on a terminal"), "{said}");
    assert_eq!(said.matches("trimtab: ").count(), 1, "{said}");
}
