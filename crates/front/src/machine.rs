//! Source of the machine model: this machine, a file, or a description.

use crate::process_env::{MACHINE, World};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use trimtab_core::topology::Machine;
use trimtab_linux::machine::{self, Key, MachineOptions};

/// Source of the machine model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "from", content = "of", rename_all = "lowercase")]
pub enum Which {
    /// This machine, as discovered, or as [`MACHINE`] describes it.
    Live,
    /// An hwloc XML file.
    Xml(PathBuf),
    /// A synthetic description.
    Synthetic(String),
}

/// A model of a machine, and the facts that were read with it.
#[derive(Debug)]
pub struct Model {
    /// The machine.
    pub machine: Machine,
    /// The state of this machine for which a discovered model is valid.
    pub key: Option<Key>,
    /// Warning, if any: the model could not be cached for the next start, or differs from the
    /// discovered one.
    pub warning: Option<String>,
}

impl Which {
    /// Parses the value of `--machine`: a path or an `.xml` name is a file, anything else a
    /// description.
    pub fn of(text: Option<&str>) -> Self {
        match text {
            None => Self::Live,
            Some(text) if is_file(text) => Self::Xml(PathBuf::from(text)),
            Some(text) => Self::Synthetic(text.to_owned()),
        }
    }

    /// Describes the source for people.
    pub fn shown(&self) -> String {
        match self {
            Self::Live => "this machine".to_owned(),
            Self::Xml(path) => path.display().to_string(),
            Self::Synthetic(text) => text.clone(),
        }
    }

    /// Loads the model. The second value is a warning, if any.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn load(&self, world: &World) -> Result<(Machine, Option<String>)> {
        let Model { machine, warning, .. } = self.read(world)?;
        Ok((machine, warning))
    }

    /// Loads the model. That of this machine has no devices, unless root left one that has.
    ///
    /// # Errors
    /// The file, the description or the discovery fails; the message names cause and remedy.
    pub fn read(&self, world: &World) -> Result<Model> {
        self.read_in(world, false)
    }

    /// Loads the model with its devices.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_with_devices(&self, world: &World) -> Result<Model> {
        self.read_in(world, true)
    }

    fn read_in(&self, world: &World, devices: bool) -> Result<Model> {
        let described = |machine| Model { machine, key: None, warning: None };
        match self {
            Self::Live => {
                if let Some(text) = world.text(MACHINE).filter(|text| !text.is_empty()) {
                    return believed(world, &text);
                }
                let options = MachineOptions {
                    helper: world.helper.clone(),
                    system_cache: Some(PathBuf::from(machine::SYSTEM_CACHE)),
                    user_cache: world.cache(),
                    devices,
                    refresh: false,
                };
                let loaded = machine::load(&options).context("cannot discover this machine")?;
                let warning = loaded.warning.map(|fault| format!("the machine model is not cached: {fault}"));
                Ok(Model { machine: loaded.machine, key: loaded.key, warning })
            }
            Self::Xml(path) => Ok(described(machine::from_xml(path, None)?)),
            Self::Synthetic(text) => Ok(described(machine::from_synthetic(text).context("--machine")?)),
        }
    }
}

/// Loads the model that [`MACHINE`] gives for this machine: for machines whose firmware is wrong,
/// and for tests. Threads are moved by CPU numbers, so all CPUs of the model must exist here.
fn believed(world: &World, text: &str) -> Result<Model> {
    let said = || format!("{MACHINE}={text}");
    let (machine, _) = Which::of(Some(text)).load(world).with_context(said)?;
    let online = machine::online(&world.sys()).context("cannot tell which CPUs are here")?;
    let missing = machine.cpus().difference(&online);
    if !missing.is_empty() {
        bail!("{}: CPUs {missing} are not on this machine, which has {online}", said());
    }
    let warning = format!("the machine model is that of {}, not the discovered one", said());
    Ok(Model { machine, key: None, warning: Some(warning) })
}

/// Returns whether a text names a file. Descriptions contain a colon and no slash; anything else is
/// a path, and so is an `.xml` name.
fn is_file(text: &str) -> bool {
    let xml = Path::new(text).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
    xml || text.contains('/') || !text.contains(':')
}
