//! Run of the helper `trimtab-discover`.

use super::MachineLoadError;
use super::codec::MAX_BYTES;
use crate::capture::{CaptureLimits, capture};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The helper's file name.
pub const HELPER: &str = "trimtab-discover";

/// Option of the helper: a model without devices.
pub const NO_DEVICES: &str = "--no-devices";

/// hwloc's variables as the helper needs them. It starts again where they differ:
/// - the helper reports errors itself, in one line;
/// - accelerators are identified by PCI and the kernel, so that no vendor's library, and no X
///   server, can delay the start;
/// - the memory of NVIDIA accelerators stays in the model, named as such, since the kernel counts
///   it among nodes. The last one: pictures are made without it.
pub const HWLOC_ENVIRONMENT: [(&str, &str); 4] = [
    ("HWLOC_HIDE_ERRORS", "2"),
    ("HWLOC_COMPONENTS", "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero"),
    (
        "HWLOC_PLUGINS_BLACKLIST",
        "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so",
    ),
    ("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1"),
];

/// hwloc's variable with which it loads no plug-ins, as a model without devices needs none: they
/// find devices, or read XML. Their libraries (libxml2, ICU, the C++ library) take half of a
/// discovery.
pub const NO_PLUGINS: (&str, &str) = ("HWLOC_PLUGINS_PATH", "/dev/null");

/// Largest part of the helper's standard error that is kept, in bytes: one line is expected, a
/// dynamic linker's takes a few hundred bytes.
const MAX_SAID: usize = 4096;

/// Output of a helper that ended well.
pub(super) struct Output {
    /// Its standard output, at most a byte more than [`MAX_BYTES`].
    pub(super) bytes: Vec<u8>,
    /// The last line of its standard error.
    pub(super) said: String,
}

/// Returns the path of the helper that belongs to the running program.
///
/// # Errors
/// It is not installed; the message lists the places that were searched.
pub fn find_helper() -> Result<PathBuf, MachineLoadError> {
    find(None)
}

/// Returns the helper's path: the one given, else next to the running program, else in `libexec`
/// beside its `bin`.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf, MachineLoadError> {
    let mut looked: Vec<PathBuf> = Vec::new();
    match (given, std::env::current_exe()) {
        (Some(given), _) => looked.push(given.to_owned()),
        (None, Ok(program)) => {
            let folder = program.parent().unwrap_or(Path::new("/"));
            looked.push(folder.join(HELPER));
            looked.push(folder.join("../libexec/trimtab").join(HELPER));
        }
        (None, Err(_)) => {} // no /proc: the program's own path is unknown
    }
    match looked.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(MachineLoadError::NoHelper { looked }),
    }
}

/// Runs the helper to its end.
pub(super) fn run(helper: &Path, arguments: &[&OsStr]) -> Result<Output, MachineLoadError> {
    // The discovery of a large machine takes as long as it takes.
    let limits = CaptureLimits { time: None, output: MAX_BYTES + 1, errors: MAX_SAID };
    // It would start once more for these.
    let mut command = Command::new(helper);
    command.args(arguments).envs(HWLOC_ENVIRONMENT);
    if arguments == ["live", NO_DEVICES] {
        command.envs([NO_PLUGINS]);
    }
    let ended = capture(&mut command, limits)
        .and_then(|ended| ended.ok_or_else(|| std::io::ErrorKind::TimedOut.into()))
        .map_err(|source| MachineLoadError::Start { helper: helper.to_owned(), source })?;
    let helper = helper.to_owned();
    let (bytes, said, status) = (ended.output, last_line(&ended.errors), ended.status);
    if bytes.len() > MAX_BYTES {
        return Ok(Output { bytes, said }); // decoding will report it; the helper ended because we closed the pipe
    }
    match status.code() {
        Some(0) => Ok(Output { bytes, said }),
        Some(2) if !said.is_empty() => Err(MachineLoadError::Refused { said }),
        Some(127) if said.contains("libhwloc") => Err(MachineLoadError::NoHwloc { helper, said }),
        Some(code) => {
            Err(MachineLoadError::Failed { helper, status: format!("ended with status {code}"), said })
        }
        None => {
            let signal = status.signal().unwrap_or_default();
            Err(MachineLoadError::Failed { helper, status: format!("was killed by signal {signal}"), said })
        }
    }
}

/// Returns the last line, without the helper's own name before it.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    line.strip_prefix(HELPER).and_then(|line| line.strip_prefix(": ")).unwrap_or(line).to_owned()
}
