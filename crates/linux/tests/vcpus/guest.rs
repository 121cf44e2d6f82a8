//! A guest of QEMU without disk or kernel: its firmware looks for something to boot, and the
//! threads of its vCPUs are real.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Reason why there is no guest.
pub(crate) const NO_QEMU: &str = "no QEMU (qemu-system-x86_64)";
/// Time after which a test counts as hung. No test asserts that anything is faster.
const HANG: Duration = Duration::from_secs(180);

/// A guest that runs. Dropping it kills it.
pub(crate) struct Guest {
    child: Child,
    folder: TempDir,
}

/// Settings of a guest.
pub(crate) struct Setup<'a> {
    /// QEMU's `-name`, if any.
    pub(crate) name: Option<&'a str>,
    /// Number of vCPUs at the start, of four that it may have.
    pub(crate) cpus: u32,
    /// QEMU's accelerator, such as `tcg,thread=multi`.
    pub(crate) accel: &'a str,
    /// Whether it has a QMP socket.
    pub(crate) qmp: bool,
    /// Work of its vCPUs.
    pub(crate) work: Work,
    /// More of QEMU's options.
    pub(crate) options: &'a [&'a str],
}

/// Work of a guest's vCPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The usual firmware finds nothing to boot, and waits.
    Wait,
    /// They compute without a pause.
    Spin,
    /// They sleep from the first instruction on.
    Halt,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            name: Some("guest=x,debug-threads=on"),
            cpus: 2,
            accel: "tcg,thread=multi",
            qmp: true,
            work: Work::Wait,
            options: &[],
        }
    }
}

impl Guest {
    /// Starts a guest and waits until its vCPUs exist; `None` if QEMU is not installed or lacks
    /// that accelerator.
    pub(crate) fn start(setup: &Setup<'_>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-nodefaults",
            "-display",
            "none",
            "-machine",
            "q35",
            "-m",
            "32",
            "-accel",
            setup.accel,
        ]);
        command.args(setup.options);
        command.arg("-smp").arg(format!("{},maxcpus=4", setup.cpus));
        if let Some(name) = setup.name {
            command.args(["-name", name]);
        }
        if setup.qmp {
            let socket = folder.path().join("qmp").display().to_string();
            command.arg("-qmp").arg(format!("unix:{socket},server=on,wait=off"));
        }
        if setup.work != Work::Wait {
            let rom = folder.path().join("rom");
            std::fs::write(&rom, firmware(setup.work)).unwrap();
            command.arg("-bios").arg(rom);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut guest = Self { child, folder };
        // The monitor's own thread, one of RCU, and then the CPUs.
        let threads = 2 + if setup.accel.contains("single") { 1 } else { setup.cpus as usize };
        let begin = Instant::now();
        while guest.threads().len() < threads
            || (setup.qmp && !guest.socket().exists())
            || !guest.is_named(setup)
        {
            if guest.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begin.elapsed() < HANG, "QEMU does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(guest)
    }

    fn is_named(&self, setup: &Setup<'_>) -> bool {
        let cpus = if setup.accel.contains("single") { 1 } else { setup.cpus as usize };
        let wants = setup.name.is_some_and(|name| name.contains("debug-threads=on"));
        !wants || self.cpu_threads().len() == cpus
    }

    /// Returns its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of its QMP socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("qmp")
    }

    /// Returns its threads with their names.
    pub(crate) fn threads(&self) -> Vec<(u32, String)> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid()));
        let mut threads: Vec<(u32, String)> = std::fs::read_dir(tasks)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
                Some((entry.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
            })
            .collect();
        threads.sort_unstable();
        threads
    }

    /// Returns the threads of its vCPUs, by their names.
    pub(crate) fn cpu_threads(&self) -> Vec<u32> {
        let named = self.threads().into_iter().filter(|(_, name)| name.contains("CPU"));
        named.map(|(tid, _)| tid).collect()
    }

    /// Connects to its QMP socket.
    pub(crate) fn qmp(&self) -> Qmp {
        Qmp::connect(&self.socket())
    }

    /// Kills it and collects it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns firmware that starts all vCPUs and lets each compute without end, or halts the first and
/// starts none: 64 KiB below 1 MiB, where a CPU begins 16 bytes before the end.
pub(crate) fn firmware(work: Work) -> Vec<u8> {
    // cli; again: hlt; jmp again
    const HALT: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];
    // cli; again: inc eax; jmp again
    const SPIN: [u8; 5] = [0xfa, 0x66, 0x40, 0xeb, 0xfb];
    const FIRST: [u8; 64] = [
        0xfa, // cli
        0x2e, 0x66, 0x0f, 0x01, 0x16, 0x60, 0x01, // lgdt cs:0x160
        0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0, // set bit 0 of cr0: protected mode
        0xeb, 0x00, // jmp to the next
        0xbb, 0x08, 0x00, 0x8e, 0xe3, // fs = 8, which reaches all memory
        0x24, 0xfe, 0x0f, 0x22, 0xc0, // clear it: real mode, and fs as it is
        0xeb, 0x00, // jmp to the next
        0x66, 0xbb, 0x00, 0x03, 0xe0,
        0xfe, // ebx = 0xfee00300, the APIC register that sends to other CPUs
        0x64, 0x67, 0x66, 0xc7, 0x03, 0x00, 0x45, 0x0c, 0x00, // fs:[ebx] = INIT to all others
        0x66, 0xb9, 0x00, 0x00, 0x00, 0x01, 0x66, 0x49, 0x75, 0xfc, // count down from 0x1000000
        0x64, 0x67, 0x66, 0xc7, 0x03, 0xf0, 0x46, 0x0c, 0x00, // fs:[ebx] = begin at 0xf0000
    ];
    // A null segment, and a data segment over 4 GiB.
    const SEGMENTS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0x92, 0xcf, 0];
    let mut rom = vec![0; 64 << 10];
    let mut put = |at: usize, bytes: &[u8]| rom[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &SPIN);
    if work == Work::Halt {
        put(0x100, &HALT);
    } else {
        put(0x100, &FIRST);
        put(0x100 + FIRST.len(), &SPIN);
    }
    // Their length less one, and their address.
    put(0x160, &[0x0f, 0x00, 0x68, 0x01, 0x0f, 0x00]);
    put(0x168, &SEGMENTS);
    // jmp 0x100
    put(0xfff0, &[0xe9, 0x0d, 0x01]);
    rom
}

/// A client of its QMP socket, which keeps other clients out while it is connected.
pub(crate) struct Qmp {
    input: BufReader<UnixStream>,
}

impl Qmp {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut qmp = Self { input: BufReader::new(stream) };
        let mut greeting = String::new();
        qmp.input.read_line(&mut greeting).unwrap();
        assert!(greeting.contains("QMP"), "{greeting}");
        qmp.tell(r#"{"execute":"qmp_capabilities"}"#);
        qmp
    }

    /// Has a command carried out; returns the answer.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        // In one write: QEMU quits at the last brace of a quit command, and reads no line feed
        // after it.
        self.input.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            self.input.read_line(&mut line).unwrap();
            if !line.contains("\"event\"") {
                assert!(line.contains("\"return\""), "{command}: {line}");
                return line;
            }
        }
    }

    /// Plugs in the vCPU of this core.
    pub(crate) fn plug(&mut self, core: u32) {
        self.tell(&format!(
            r#"{{"execute":"device_add","arguments":{{"driver":"qemu64-x86_64-cpu","id":"c{core}","socket-id":0,"core-id":{core},"thread-id":0}}}}"#
        ));
    }
}
