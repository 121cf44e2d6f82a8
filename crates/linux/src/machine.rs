//! Machine model of this computer: from the cache if it is still valid, else from
//! `trimtab-discover`.
//!
//! Problem: hwloc needs tens of milliseconds and a C library to discover a machine that changes
//! once a boot, and every `trimtab run` needs the model. Idea: a separate program calls hwloc and
//! prints the model; its output is, byte for byte, the cache file. A start then costs a few small
//! reads ([`Key`]) and a decode.
//!
//! Terms: the *key* identifies the machine and the state that a model describes; the *helper* is
//! `trimtab-discover`; the *system cache* is one file written by root for all users, the *user
//! cache* a directory of the caller's.
//!
//! Properties: data read back is not trusted (owner, size, checksum and [`Machine::build`] all
//! check it); a cache that cannot be read or written costs time, never fails a run, and is reported
//! as a value. No path and no variable is taken from the environment here; both are arguments.

pub(crate) mod cache;
mod codec;
mod helper;
mod key;

pub use cache::{CacheFault, slot as user_cache_file};
pub use codec::{DecodeError, FORMAT_VERSION, MAX_BYTES, decode, encode};
pub use helper::{HELPER, HWLOC_ENVIRONMENT, NO_DEVICES, NO_PLUGINS, find_helper};
pub use key::{Key, KeyError, nodes_with_cpus};

use crate::text::{self, ReadError};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::fingerprint::hardware;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{Machine, SyntheticError, parse_synthetic};

/// Returns the fingerprint of this machine's hardware and kernel, which is the same after each
/// boot.
pub fn fingerprint() -> String {
    hardware(&|path| std::fs::read_to_string(path).ok())
}

/// Path where root may leave a model for all users: exactly the output of `trimtab-discover live`.
/// `/run` is emptied at boot.
pub const SYSTEM_CACHE: &str = "/run/trimtab/machine";

/// Sources of the model, and where to keep it.
#[derive(Debug, Clone, Default)]
pub struct MachineOptions {
    /// The helper; `None` searches next to the running program, then in `../libexec/trimtab/` from
    /// there.
    pub helper: Option<PathBuf>,
    /// File that is tried after the user's own and never written, usually [`SYSTEM_CACHE`].
    pub system_cache: Option<PathBuf>,
    /// Directory of the caller's for the model, made when missing; usually
    /// `$XDG_CACHE_HOME/trimtab`.
    pub user_cache: Option<PathBuf>,
    /// Whether the model must have the devices of the machine, which take most of a discovery. A
    /// kept model that has them serves in any case.
    pub devices: bool,
    /// Skip both caches and discover the machine again.
    pub refresh: bool,
}

/// A machine and its origin.
#[derive(Debug)]
pub struct Loaded {
    /// The machine.
    pub machine: Machine,
    /// Source of the model.
    pub origin: ModelOrigin,
    /// The key it is valid for; `None` for a machine without one.
    pub key: Option<Key>,
    /// Reason why the next start will be slow too: the model could not be kept.
    pub warning: Option<CacheFault>,
}

/// Source of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelOrigin {
    /// This cache file.
    Cache(PathBuf),
    /// This helper, run just now.
    Helper(PathBuf),
}

/// Reason why the model is missing.
#[derive(Debug, Error)]
pub enum MachineLoadError {
    /// The helper is not installed.
    #[error(
        "{HELPER} is missing (looked for {}): reinstall trimtab, or name it with its path; \
         if cargo installed trimtab, cargo install {HELPER}",
        list(looked)
    )]
    NoHelper {
        /// The places tried.
        looked: Vec<PathBuf>,
    },
    /// The helper exists but did not start.
    #[error("cannot run {}: {source}", helper.display())]
    Start {
        /// The helper.
        helper: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The helper could not load hwloc's shared library.
    #[error("{} needs hwloc's shared library: install it (Debian: libhwloc15, Fedora and SUSE: hwloc-libs) [{said}]", helper.display())]
    NoHwloc {
        /// The helper.
        helper: PathBuf,
        /// The dynamic linker's message.
        said: String,
    },
    /// The helper ran and reports why it found no machine. Its line names cause and remedy.
    #[error("{said}")]
    Refused {
        /// Its line.
        said: String,
    },
    /// The helper died, or ended with an unexpected status.
    #[error("{} {status}{}", helper.display(), and(said))]
    Failed {
        /// The helper.
        helper: PathBuf,
        /// Its end.
        status: String,
        /// The last line it wrote to its standard error, if any.
        said: String,
    },
    /// The helper's output is not a model.
    #[error("{} printed no usable model: {source}{}", helper.display(), and(said))]
    Garbage {
        /// The helper.
        helper: PathBuf,
        /// The fault in the output.
        source: DecodeError,
        /// The last line it wrote to its standard error, if any.
        said: String,
    },
    /// A synthetic description does not parse.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
}

fn list(paths: &[PathBuf]) -> String {
    let words: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    words.join(", ")
}

fn and(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// Returns the machine on which this program runs.
///
/// # Errors
/// [`MachineLoadError`] when no cache is valid and the helper finds no machine.
pub fn load(options: &MachineOptions) -> Result<Loaded, MachineLoadError> {
    let key = match Key::live() {
        Ok(key) => key,
        // A machine without a key cannot be cached; a new discovery still works.
        Err(error) => return discover(options, &Key::file(), Some(CacheFault::NoKey(error))),
    };
    let user = |devices: bool| options.user_cache.as_ref().map(|folder| cache::slot(folder, &key, devices));
    let (own, fuller) = (user(options.devices), user(true).filter(|_| !options.devices));
    if !options.refresh {
        // Few machines have a model for all users.
        for file in own.iter().chain(&options.system_cache).chain(&fuller) {
            let bytes = cache::read(file);
            if let Some(machine) = bytes.and_then(|bytes| decode_for(&bytes, &key, options.devices).ok()) {
                let origin = ModelOrigin::Cache(file.clone());
                return Ok(Loaded { machine, origin, key: Some(key), warning: None });
            }
        }
    }
    discover(options, &key, None)
}

/// Decodes a model that has devices, or any if none are needed.
fn decode_for(bytes: &[u8], key: &Key, devices: bool) -> Result<Machine, DecodeError> {
    let plain = (!devices).then(|| decode(bytes, &key.without_devices()));
    match plain {
        Some(Err(DecodeError::Stale { .. })) | None => decode(bytes, key),
        Some(other) => other,
    }
}

/// Runs the helper. One of an older release does not know the option and refuses it, so it is asked
/// without: the model that it prints names its release.
fn live_model(helper: &Path, devices: bool) -> Result<helper::Output, MachineLoadError> {
    let words = ["live".as_ref(), NO_DEVICES.as_ref()];
    if devices {
        return helper::run(helper, &words[..1]);
    }
    match helper::run(helper, &words) {
        Err(refused @ MachineLoadError::Refused { .. }) => {
            helper::run(helper, &words[..1]).map_err(|_| refused)
        }
        other => other,
    }
}

fn discover(
    options: &MachineOptions,
    key: &Key,
    mut warning: Option<CacheFault>,
) -> Result<Loaded, MachineLoadError> {
    let helper = helper::find(options.helper.as_deref())?;
    let output = live_model(&helper, options.devices)?;
    let mut machine = decode_for(&output.bytes, key, options.devices);
    let mut valid = warning.is_none().then(|| key.clone());
    if let (Err(DecodeError::Stale { .. }), Ok(now)) = (&machine, Key::live()) {
        // A CPU was switched on or off between our reading and the helper's.
        machine = decode_for(&output.bytes, &now, options.devices);
        valid = Some(now);
    }
    let machine = machine.map_err(|source| MachineLoadError::Garbage {
        helper: helper.clone(),
        source,
        said: output.said,
    })?;
    if let (None, Some(folder)) = (&warning, &options.user_cache) {
        warning = cache::write(&cache::slot(folder, key, options.devices), &output.bytes).err();
    }
    Ok(Loaded { machine, origin: ModelOrigin::Helper(helper), key: valid, warning })
}

/// Returns the machine that an hwloc XML file describes. Runs the helper; nothing is cached.
///
/// # Errors
/// [`MachineLoadError`], mostly [`Refused`](MachineLoadError::Refused) with the helper's line.
pub fn from_xml(file: &Path, helper: Option<&Path>) -> Result<Machine, MachineLoadError> {
    let helper = helper::find(helper)?;
    let output = helper::run(&helper, &["xml".as_ref(), file.as_os_str()])?;
    decode(&output.bytes, &Key::file()).map_err(|source| MachineLoadError::Garbage {
        helper,
        source,
        said: output.said,
    })
}

/// Returns a picture of this machine that has only these CPUs, as hwloc's XML. Runs the helper.
///
/// # Errors
/// [`MachineLoadError`], mostly [`Refused`](MachineLoadError::Refused) with the helper's line.
pub fn picture(cpus: &CpuSet, helper: Option<&Path>) -> Result<Vec<u8>, MachineLoadError> {
    let helper = helper::find(helper)?;
    let output = helper::run(&helper, &["picture".as_ref(), cpus.to_string().as_ref()])?;
    if output.bytes.len() > MAX_BYTES {
        return Err(MachineLoadError::Failed {
            helper,
            status: format!("printed a picture of more than {} MiB", MAX_BYTES >> 20),
            said: output.said,
        });
    }
    Ok(output.bytes)
}

/// Returns the machine of a synthetic description such as `pack:2 numa:2 core:8 pu:2`.
///
/// # Errors
/// [`MachineLoadError::Synthetic`] names the position of the fault.
pub fn from_synthetic(text: &str) -> Result<Machine, MachineLoadError> {
    Ok(parse_synthetic(text)?)
}
/// Returns the online CPUs, from the kernel's files under `sys`.
///
/// # Errors
/// The list cannot be read or parsed.
pub fn online(sys: &Path) -> Result<CpuSet, ReadError> {
    let path = sys.join("devices/system/cpu/online");
    let list = text::read(&path)?;
    std::str::from_utf8(&list)
        .ok()
        .and_then(|list| list.trim().parse().ok())
        .ok_or_else(|| ReadError::malformed(&path, "no list of CPUs"))
}
