//! Starter of the peers: the script that starts them as their users do (bench/team/peer), and the
//! run of a program to its end.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trimtab_front::interrupt::Interrupt;

/// All peers that bench/team/peer supports.
pub(super) const ALL: [&str; 8] =
    ["openmpi", "mpich", "libgomp", "libomp", "pthread", "multiprocessing", "mpi4py", "gloo"];
/// Longest run; a longer one counts as hung.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);
/// Period of the check for ended programs: long enough not to disturb the measured program.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Paths of the script and of its programs.
#[derive(Debug)]
pub(in super::super) struct Peers {
    script: Option<PathBuf>,
    programs: Option<PathBuf>,
}

impl Peers {
    /// Finds the script: the one that was named, else the one that is installed beside this
    /// trimtab, else the one in its source tree.
    ///
    /// # Errors
    /// The named script does not exist.
    pub(in super::super) fn find(peer: Option<&Path>, programs: Option<&Path>, own: &Path) -> Result<Self> {
        let programs = programs.map(std::path::absolute).transpose()?;
        let script = match peer {
            Some(named) if !named.is_file() => bail!("{} does not exist", named.display()),
            Some(named) => Some(std::path::absolute(named)?),
            None => {
                let prefix = own.ancestors().nth(2);
                let installed = prefix.map(|prefix| prefix.join("libexec/trimtab/bench/team/peer"));
                let built = own.ancestors().skip(1).map(|folder| folder.join("bench/team/peer"));
                installed.into_iter().chain(built).find(|file| file.is_file())
            }
        };
        Ok(Self { script, programs })
    }

    /// Returns the first words of a peer's command.
    pub(in super::super) fn words(&self, name: &str) -> Vec<OsString> {
        vec!["sh".into(), self.script.clone().unwrap_or_default().into(), name.into()]
    }

    /// Creates a command from words.
    pub(in super::super) fn start(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(words.first().cloned().unwrap_or_default());
        command.args(words.iter().skip(1));
        if let Some(programs) = &self.programs {
            command.env("TEAM_PROGRAMS", programs);
        }
        command
    }

    /// Returns why a peer cannot run here with these words, or `None`.
    pub(in super::super) fn lacks(&self, name: &str, what: &[&str]) -> Option<String> {
        if self.script.is_none() {
            return Some("bench/team/peer was not found".to_owned());
        }
        let mut words = self.words(name);
        words.extend(what.iter().chain(&["--here"]).map(OsString::from));
        match self.start(&words).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim().lines().last().unwrap_or("it gives no reason");
                Some(said.trim_start_matches("peer: ").to_owned())
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Returns the named peers, each once, or all peers.
///
/// # Errors
/// A name is not a peer.
pub(super) fn chosen(named: Option<&[String]>, all: &[&str]) -> Result<Vec<String>> {
    let Some(named) = named else { return Ok(all.iter().map(|name| (*name).to_owned()).collect()) };
    let mut chosen: Vec<String> = Vec::new();
    for name in named.iter().filter(|name| *name != "none") {
        if !all.contains(&name.as_str()) {
            bail!("unknown peer {name} (known: {}, or none)", all.join(", "));
        }
        if !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    Ok(chosen)
}

/// Runs a program to its end. Returns the value that `read` gets from its output, or the error, and
/// its standard error.
pub(super) fn run<T>(
    mut command: Command,
    read: impl FnOnce(&str) -> Result<T, String>,
    interrupt: &Interrupt,
) -> (Result<T, String>, String) {
    // A process group of its own, so that all of a launcher's ranks can be ended.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (Err(format!("cannot start the program: {error}")), String::new()),
    };
    interrupt.runs(&child);
    let begin = Instant::now();
    let mut hangs = false;
    // The output fits into a pipe.
    while matches!(child.try_wait(), Ok(None)) {
        if begin.elapsed() > RUN_TIME_MAX || interrupt.came().is_some() {
            hangs = interrupt.came().is_none();
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            break;
        }
        std::thread::sleep(CHECK_PERIOD);
    }
    let output = child.wait_with_output();
    interrupt.ended();
    let output = match output {
        Ok(output) => output,
        Err(error) => return (Err(format!("cannot read its output: {error}")), String::new()),
    };
    let stderr = String::from_utf8_lossy(&output.stderr).trim().chars().take(2000).collect();
    let came = match (hangs, output.status.code(), output.status.signal()) {
        (true, ..) => Err(format!("it did not end within {} s", RUN_TIME_MAX.as_secs())),
        (_, Some(0), _) => read(&String::from_utf8_lossy(&output.stdout)),
        (_, Some(3), _) => Err("exit status: 3, its result is wrong".to_owned()),
        _ => Err(output.status.to_string()),
    };
    (came, stderr)
}
