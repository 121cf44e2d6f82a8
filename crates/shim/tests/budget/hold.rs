//! The page of a hold, and programs that run in it.

use super::common::{HostProgram, library_with_blas};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trimtab_core::budget::page::{self, BYTES, Content};
use trimtab_core::budget::{Rule, VARIABLE, handoff};
use trimtab_core::set::CpuSet;

/// Longest wait for something that a program is about to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The page of a hold.
pub(crate) struct Hold {
    pub(crate) file: File,
    cores: u32,
    rule: Rule,
}

impl Hold {
    pub(crate) fn of(cores: u32, rule: Rule) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(page::NAME, flags).unwrap());
        file.set_len(BYTES as u64).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        file.write_all_at(&page::fresh(cores), 0).unwrap();
        Self { file, cores, rule }
    }

    pub(crate) fn variable(&self) -> String {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let cpus: CpuSet = list.trim().parse().unwrap();
        handoff(std::process::id(), self.file.as_raw_fd(), self.cores, self.rule, &cpus)
    }

    pub(crate) fn command(&self, program: &HostProgram, steps: &str) -> Command {
        let mut command = Command::new(&program.path);
        command.args(steps.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["TRIMTAB_", "LD_PRELOAD", "OMP_", "GOMP_", "KMP_"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        command.env("LD_PRELOAD", library_with_blas()).env(VARIABLE, self.variable());
        command
            .env("OMP_NUM_THREADS", "8")
            .env("OMP_MAX_ACTIVE_LEVELS", "3")
            .env("OMP_WAIT_POLICY", "passive");
        command
    }

    /// Runs a program and returns what it printed.
    pub(crate) fn run(&self, program: &HostProgram, steps: &str) -> String {
        finish(self.command(program, steps).spawn().unwrap())
    }

    /// Starts a program and returns it with the first word that it prints.
    pub(crate) fn start(&self, program: &HostProgram, steps: &str) -> (Child, String) {
        let mut child = self.command(program, steps).spawn().unwrap();
        let out = child.stdout.as_mut().unwrap();
        #[expect(clippy::unbuffered_bytes, reason = "what follows the word is left to be read later")]
        let word: Vec<u8> =
            out.bytes().map(Result::unwrap).take_while(|byte| !byte.is_ascii_whitespace()).collect();
        (child, String::from_utf8(word).unwrap())
    }

    pub(crate) fn content(&self) -> Content {
        let mut bytes = vec![0; BYTES];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        page::read(&bytes).unwrap()
    }

    pub(crate) fn put(&self, word: usize, value: u64) {
        self.file.write_all_at(&value.to_ne_bytes(), 8 * word as u64).unwrap();
    }
}

pub(crate) fn finish(mut child: Child) -> String {
    drop(child.stdin.take());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status} {text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
