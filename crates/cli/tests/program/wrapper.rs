//! A monitored run has a parent, which must not be noticeable: signals, stops, terminal, statuses,
//! descriptors.

use crate::util::{MASK, Orphan, Running, Sandbox, eventually, installed, need, python, text, two};
use rustix::process::Signal;
use std::fs;
use std::io::Read;

/// The options under which trimtab stays as the parent. Its work meanwhile is not the subject of
/// these tests.
const STAYS: &str = "-c 1 --balance=float";

#[test]
fn the_exit_status_is_the_programs() {
    let sandbox = Sandbox::new();
    for status in [0, 1, 2, 3, 42, 99, 123, 124, 125, 126, 127, 128, 130, 200, 254, 255] {
        let outcome = sandbox.run(STAYS).sh(&format!("exit {status}")).ends();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(status), ""), "{outcome}");
    }
}

#[test]
fn death_by_a_signal_is_the_programs() {
    let sandbox = Sandbox::new();
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)]
    {
        let outcome = sandbox.run(STAYS).sh(&format!("kill -{name} $$")).ends();
        assert_eq!((outcome.code, outcome.signal), (None, Some(number)), "{outcome}");
        assert_eq!(outcome.stderr, "", "{name}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_the_usual_error() {
    let sandbox = Sandbox::new();
    sandbox.run(STAYS).arg("no-such-program").ends().fails(127, &["no-such-program", "not found in PATH"]);
    let plain = sandbox.write("plain", "#!/bin/sh\n");
    sandbox.run(STAYS).arg(&plain).ends().fails(126, &["plain", "not executable"]);
    let orphan = sandbox.script("orphan", "#!/no/such/interpreter\n");
    sandbox.run(STAYS).arg(&orphan).ends().fails(127, &["orphan", "interpreter"]);
    let broken = sandbox.script("broken", b"\x7fELF\x02\x01\x01 and then nothing");
    sandbox.run(STAYS).arg(&broken).ends().fails(126, &["broken", "Exec format error"]);
    sandbox.run("-c 99999 --balance").arg("true").ends().fails(125, &["99999 cores asked for"]);
    sandbox.until_free();
}

#[test]
fn signals_sent_to_trimtab_reach_the_program() {
    let sandbox = Sandbox::new();
    let signals = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("WINCH", Signal::WINCH),
        ("URG", Signal::URG),
    ];
    for (name, signal) in signals {
        let script =
            format!("trap 'echo caught {name}; exit 3' {name}; echo ready; while :; do sleep 0.05; done");
        let mut running = sandbox.run(STAYS).sh(&script).begins();
        running.line();
        running.signal(signal);
        let outcome = running.ends();
        assert_eq!(outcome.out(), format!("ready\ncaught {name}"), "{outcome}");
        assert_eq!(outcome.code, Some(3), "{outcome}");
    }
    // A signal that it does not catch ends it, and its parent.
    let mut running = sandbox.run(STAYS).sh("echo ready; exec cat").begins();
    running.line();
    running.signal(Signal::TERM);
    // Its input is still open, so that nothing else ends it.
    eventually("it ends", || !running.lives());
    assert_eq!(running.ends().signal, Some(15));
}

#[test]
fn a_run_that_waits_in_the_queue_can_be_interrupted() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&format!("--cpus {a}"));
    let waiting = sandbox.run(&format!("--cpus {a} --wait -v --balance=float")).sh("echo never").begins();
    eventually("it waits", || waiting.errors().contains("waiting for cores"));
    waiting.signal(Signal::TERM);
    let outcome = waiting.ends();
    assert_eq!((outcome.signal, outcome.out().as_str()), (Some(15), ""), "{outcome}");
}

/// A program that prints the signals that arrive, until USR1.
const COUNTS: &str = "
import os, signal, sys, time
def on(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b'\\n')
    if number == signal.SIGUSR1: sys.exit(9)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, on)
os.write(1, b'ready\\n')
while True: time.sleep(0.05)
";

/// Runs `sys.argv[1:]` on a terminal of its own as the leader of its session; prints its output and
/// how it ended. `type(text)` types, `until(text)` waits for it.
const TERMINAL: &str = "
import fcntl, os, pty, signal, struct, sys, termios
pid, master = pty.fork()
if pid == 0:
    # Else the terminal throws away, with what was typed, what the program says to the signal.
    mode = termios.tcgetattr(0); mode[3] |= termios.NOFLSH; termios.tcsetattr(0, termios.TCSANOW, mode)
    os.execvp(sys.argv[1], sys.argv[1:])
said = b''
def until(text):
    global said
    while text not in said:
        try: more = os.read(master, 4096)
        except OSError: more = b''
        if not more: print('ENDED', said); sys.exit(1)
        said += more
    said = said[said.index(text) + len(text):]
def type(text): os.write(master, text)
def taken():
    # A signal that comes while one of its kind is pending still is none.
    while not any(line.split() == ['ShdPnd:', '0' * 16] for line in open(f'/proc/{pid}/status')): pass
def ends():
    global said
    while True:
        try: more = os.read(master, 4096)
        except OSError: break
        if not more: break
        said += more
    _, status = os.waitpid(pid, 0)
    print('rest', said.decode().split())
    print('status', os.waitstatus_to_exitcode(status))
";

/// Returns the output of `steps` on a run of `program` on a terminal.
fn on_a_terminal(sandbox: &Sandbox, steps: &str, program: &[&str]) -> String {
    let python = python().unwrap();
    let script = format!("{TERMINAL}\n{steps}");
    let call = sandbox.shell("exec \"$@\"").arg("sh").arg(python).args(["-c", &script]);
    let options = STAYS.split(' ');
    let call = call.arg(crate::util::trimtab()).args(["run", "-q", "--survey", "none"]).args(options);
    call.arg("--").args(program).ends().ok()
}

#[test]
fn the_terminals_signals_come_once() {
    let python = need!(python(), "python is not installed");
    let sandbox = Sandbox::new();
    // INT and QUIT by key, WINCH by a new size; USR1 afterwards through the parent, so that a
    // second copy would have come before it.
    let steps = r"
until(b'ready')
type(b'\x03'); until(b'SIGINT')
type(b'\x1c'); until(b'SIGQUIT')
type(b'\x1a'); until(b'SIGTSTP')
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', 7, 70, 0, 0)); until(b'SIGWINCH')
taken(); os.kill(pid, signal.SIGINT); until(b'SIGINT')
os.kill(pid, signal.SIGUSR1)
ends()
";
    let said = on_a_terminal(&sandbox, steps, &[python.to_str().unwrap(), "-c", COUNTS]);
    assert_eq!(said, "rest ['SIGUSR1']\nstatus 9");
}

#[test]
fn an_interrupted_program_ends_us_by_the_same_signal() {
    need!(python(), "python is not installed");
    let sandbox = Sandbox::new();
    let steps = "until(b'ready'); type(b'\\x03'); ends()";
    let said = on_a_terminal(&sandbox, steps, &["sh", "-c", "echo ready; exec cat"]);
    assert!(said.ends_with("status -2"), "{said}");
}

#[test]
fn the_program_has_the_terminal() {
    need!(python(), "python is not installed");
    let sandbox = Sandbox::new();
    let steps = "until(b'name?'); type(b'world\\n'); until(b'hello world'); ends()";
    let script = "test -t 0 && test -t 1 && echo 'name?'; read -r name; echo hello $name; exit 4";
    let said = on_a_terminal(&sandbox, steps, &["sh", "-c", script]);
    assert!(said.ends_with("status 4"), "{said}");
}

#[test]
fn a_terminal_that_is_hung_up_ends_the_program() {
    let python = need!(python(), "python is not installed");
    let sandbox = Sandbox::new();
    let steps = "until(b'ready'); os.close(master); print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let program = "
import signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: sys.exit(6))
print('ready', flush=True)
while True: time.sleep(0.05)
";
    assert_eq!(on_a_terminal(&sandbox, steps, &[python.to_str().unwrap(), "-c", program]), "6");
}

#[test]
fn a_shell_sees_a_stopped_job_and_continues_it() {
    let python = need!(python(), "python is not installed");
    let sandbox = Sandbox::new();
    // As an interactive shell does: a separate group in the foreground, a wait that reports stops,
    // a continuation of the group.
    let steps = r"
type(b'')
until(b'job stopped by')
until(b'SIGTSTP')
until(b'on again')
ends()
";
    let shell = format!(
        "
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid()); signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv({trimtab:?}, ['trimtab', 'run', '-q', '--survey', 'none', '-c', '1', '--balance=float', '--',
        'sh', '-c', 'kill -TSTP $$; echo on again; exit 8'])
pid, status = os.waitpid(child, os.WUNTRACED)
print('job stopped by', signal.Signals(os.WSTOPSIG(status)).name, flush=True)
os.killpg(child, signal.SIGCONT)
pid, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
",
        trimtab = crate::util::trimtab()
    );
    let script = format!("{TERMINAL}\n{steps}");
    let call = sandbox.shell("exec \"$@\"").arg("sh").arg(&python).args(["-c", &script]);
    let said = call.arg(&python).args(["-c", &shell]).ends().ok();
    assert!(said.ends_with("status 8"), "{said}");
}

/// Returns the kernel's letter for a process's state.
fn state(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.split(' ').next()).unwrap_or_default().to_owned()
}

#[test]
fn a_stopped_program_is_continued_through_us() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.run(STAYS).sh("echo $$; kill -STOP $$; echo on; exit 6").begins();
    let program: u32 = running.line().parse().unwrap();
    eventually("both are stopped", || state(running.pid()) == "T" && state(program) == "T");
    running.signal(Signal::CONT);
    let outcome = running.ends();
    assert_eq!((outcome.code, outcome.out().ends_with("\non")), (Some(6), true), "{outcome}");
}

#[test]
fn a_program_that_may_not_notice_its_children_has_a_status() {
    let through = ["env", "--ignore-signal=CHLD"];
    let sandbox = Sandbox::new();
    // Also if trimtab has its own child first, which discovers the machine.
    for cache in ["home", "home/new"] {
        let call =
            sandbox.run(STAYS).sh("exit 5").through(through).env("XDG_CACHE_HOME", sandbox.path(cache));
        let outcome = call.ends();
        assert_eq!(outcome.code, Some(5), "{outcome}");
    }
}

#[test]
fn nothing_else_about_the_process_changes() {
    let sandbox = Sandbox::new();
    let script = "umask; pwd; ulimit -a; nice; for word in Sig Cap NoNewPrivs Seccomp Groups Uid; do \
                  grep \"^$word\" /proc/self/status; done | grep -v -e SigPnd -e SigQ; ls /proc/self/fd; \
                  readlink /proc/self/fd/0 | tr -d 0-9; ps -o pgid=,sid=,tpgid= -p $$ | wc -w";
    for through in [
        &["env", "--ignore-signal=INT,USR2,CHLD", "--block-signal=USR1,HUP"][..],
        &["nice", "-n", "3"],
        &["sh", "-c", "umask 027; ulimit -n 800; cd /usr; exec \"$0\" \"$@\""],
    ] {
        let seen = |options: &str| sandbox.run(options).sh(script).through(through).ends().ok();
        assert_eq!(
            seen(&format!("{STAYS} --trace {}", sandbox.path("t").display())),
            seen("-c 1 --pin mask")
        );
    }
}

#[test]
fn the_program_is_in_our_group_and_session() {
    let sandbox = Sandbox::new();
    let fields = "cut -d')' -f2 /proc/$$/stat | cut -d' ' -f3-6";
    let mut running = sandbox.run(STAYS).sh(&format!("{fields}; exec cat")).begins();
    let said = running.line();
    let [parent, group, ..] = said.split(' ').collect::<Vec<_>>()[..] else { panic!("{said}") };
    // The test starts every call as the leader of a group.
    assert_eq!((parent, group), (running.pid().to_string().as_str(), running.pid().to_string().as_str()));
}

/// Starts a program that prints its number and then its input.
fn echoes<'s>(sandbox: &'s Sandbox, options: &str) -> (Running<'s>, u32) {
    let mut running = sandbox.run(options).sh("echo $$; exec cat").begins();
    let pid = running.line().parse().unwrap();
    (running, pid)
}

#[test]
fn a_program_outlives_us_with_its_cores() {
    let sandbox = Sandbox::new();
    let (running, program) = echoes(&sandbox, STAYS);
    let orphan = Orphan::of(&program.to_string());
    let held = sandbox.held();
    assert_eq!(held.len(), 1);
    running.signal(Signal::KILL);
    eventually("we are gone", || state(running.pid()) == "Z" || state(running.pid()).is_empty());
    assert!(["S", "R"].contains(&state(program).as_str()), "{}", state(program));
    assert_eq!(sandbox.held(), held);
    drop(orphan);
    drop(running);
    sandbox.until_free();
}

#[test]
fn cores_are_held_until_the_last_of_the_program_has_ended_and_no_longer() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.run(STAYS).sh("sleep 1000 & echo $!; read -r x").begins();
    let left = Orphan::of(&running.line());
    assert_eq!(running.ends().code, Some(1));
    assert_eq!(sandbox.held().len(), 1, "what was left behind holds its core");
    drop(left);
    sandbox.until_free();
}

#[test]
fn ps_names_the_program() {
    let sandbox = Sandbox::new();
    let (_running, program) = echoes(&sandbox, STAYS);
    let ps = sandbox.ps();
    assert_eq!(ps["holds"][0]["pid"].as_u64(), Some(u64::from(program)), "{ps}");
}

#[test]
fn the_mask_is_the_plans_and_so_is_that_of_a_run_inside() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let options = format!("--cpus {a} --balance=float");
    assert_eq!(sandbox.run(&options).sh(MASK).ends().ok(), a.to_string());
    let inner = format!("exec $T run --survey none --balance=float -- sh -c '{MASK}; exit 3'");
    for outer in [&options, &format!("--cpus {a}")] {
        let outcome = sandbox.run(outer).sh(&inner).ends();
        assert_eq!((outcome.code, outcome.out()), (Some(3), a.to_string()), "{outcome}");
    }
    sandbox.until_free();
}

#[test]
fn pipes_are_the_programs() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let outcome = sandbox.run(STAYS).arg("cat").input(&bytes).ends();
    assert!(outcome.stdout == bytes && outcome.stderr.is_empty(), "{} bytes", outcome.stdout.len());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = sandbox.run(STAYS).arg("yes").onto(writer).begins();
    reader.read_exact(&mut [0; 10]).unwrap();
    drop(reader);
    assert_eq!(running.ends().signal, Some(13));
}

#[test]
fn other_wrappers_go_around_us() {
    let sandbox = Sandbox::new();
    for wrapper in [&["nohup"][..], &["setsid", "-w"], &["timeout", "100"], &["nice"]] {
        need!(installed(wrapper[0]), "{} is not installed", wrapper[0]);
        let outcome = sandbox.run(STAYS).args(["/bin/sh", "-c", "echo out; exit 3"]).through(wrapper).ends();
        assert_eq!((outcome.code, outcome.out().as_str()), (Some(3), "out"), "{outcome}");
    }
    need!(installed("timeout"), "timeout is not installed");
    let outcome = sandbox.run(STAYS).args(["sleep", "1000"]).through(["timeout", "0.3"]).ends();
    assert_eq!(outcome.code, Some(124), "{outcome}");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let sandbox = Sandbox::new();
    for option in ["--interval 10ms", "--seed 3", "--speed-metric cpu-share", "--across-nodes", "--free"] {
        let name = option.split(' ').next().unwrap();
        sandbox.run(option).arg("true").ends().fails(125, &[name, "--balance"]);
    }
    sandbox.run("--balance=fast").arg("true").ends().fails_with(125, "not a balancing policy");
    sandbox.run("--balance --interval 10us").arg("true").ends().fails_with(125, "between 1ms and 1h");
    // The value of an option is taken for the program.
    for (option, value) in [("--balance", "auto"), ("--wait", "30s"), ("--report", "r.json")] {
        let hint = format!("write {option}={value}");
        sandbox.run(option).args([value, "true"]).ends().fails(127, &[value, "not found", &hint]);
    }
    let missing = sandbox.run("--balance").args(["no-such-program"]).ends();
    assert!(!missing.stderr.contains("--balance"), "{missing}");
    sandbox.run("--nest 2 --balance=speed").arg("true").ends().fails(125, &["--nest", "--balance=float"]);
}

#[test]
fn places_that_cannot_be_written_are_refused_before_the_program_begins() {
    let sandbox = Sandbox::new();
    let run = |options: &str| sandbox.run(&format!("-c 1 {options}")).sh("echo ran").ends();
    run("--trace /nowhere/t.jsonl").fails(125, &["--trace /nowhere/t.jsonl", "No such file"]);
    run("--trace -").fails(125, &["--trace -", "standard output belongs to the program"]);
    run("--trace /").fails(125, &["--trace /", "it is a folder"]);
    run("--report=/nowhere/r").fails(125, &["there is no folder /nowhere"]);
    let earlier = "{\"header\":{\"trimtab-trace\":1}}\n";
    let trace = sandbox.write("t.jsonl", earlier);
    run(&format!("--trace {} -c 99999", trace.display()));
    assert_eq!(text(&trace), earlier, "a run that does not begin leaves an earlier trace");
}
