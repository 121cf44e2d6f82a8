//! Devices as a user names them: `gpu:0`, `nic:mlx5_0`, `pci:0000:3b:00.0`, `nvme0n1`,
//! `file:/data`.

use super::{DeviceKind, Machine};
use crate::set::CpuSet;
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// Device as a user names it. The text form is a command-line value.
///
/// # Examples
/// ```
/// use trimtab_core::topology::DeviceName;
///
/// let name: DeviceName = "pci:3b:00.0".parse()?;
/// assert_eq!(name.to_string(), "pci:0000:3b:00.0");
/// assert!("gpu:".parse::<DeviceName>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceName {
    /// The device with this number of its kind, in the order of bus ids.
    Numbered(DeviceKind, u32),
    /// The device with this name of the kernel, of any kind or of one.
    Named(Option<DeviceKind>, String),
    /// The function at this PCI bus id.
    Pci(String),
    /// The device that has this file.
    File(String),
    /// All devices of a kind, each for some ranks of a job.
    Each(DeviceKind),
}

/// Forms of a name, for messages.
const FORMS: &str =
    "gpu:0, gpu:each for ranks, nic:eth0, disk:0, pci:0000:3b:00.0, file:/data, or a name such as nvme0n1";

/// Words before a colon, with the kind that they mean.
const KINDS: [(&str, DeviceKind); 6] = [
    ("gpu", DeviceKind::Gpu),
    ("nic", DeviceKind::Nic),
    ("net", DeviceKind::Nic),
    ("disk", DeviceKind::Storage),
    ("storage", DeviceKind::Storage),
    ("nvme", DeviceKind::Storage),
];

/// Returns the first word for a kind.
fn word(kind: DeviceKind) -> &'static str {
    KINDS.into_iter().find(|(_, of)| *of == kind).map_or("device", |(word, _)| word)
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |problem: &str| Err(format!("\"{text}\" is not a device: {problem} (expected {FORMS})"));
        // A name is a part of paths below /sys, and of messages.
        let is_name = |name: &str| {
            let plain = |letter: char| {
                letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '!' | ':')
            };
            !name.is_empty() && name != "." && name != ".." && name.chars().all(plain)
        };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind.to_ascii_lowercase(), rest),
            None => (String::new(), text),
        };
        if kind == "file" {
            return if rest.is_empty() {
                fault("a path is missing")
            } else {
                Ok(Self::File(rest.to_owned()))
            };
        }
        if kind == "pci" {
            return match bus_id(rest) {
                Some(address) => Ok(Self::Pci(address)),
                None => fault("a bus id has the form 0000:3b:00.0"),
            };
        }
        if let Some(&(_, kind)) = KINDS.iter().find(|(word, _)| *word == kind) {
            return match rest.parse() {
                _ if rest.eq_ignore_ascii_case("each") => Ok(Self::Each(kind)),
                Ok(number) if !rest.starts_with('+') => Ok(Self::Numbered(kind, number)),
                _ if is_name(rest) => Ok(Self::Named(Some(kind), rest.to_owned())),
                _ => fault("a number or a name is missing after the colon"),
            };
        }
        if let Some(address) = bus_id(text) {
            return Ok(Self::Pci(address));
        }
        match text {
            "" => fault("it is empty"),
            _ if KINDS.iter().any(|(word, _)| text.eq_ignore_ascii_case(word)) => {
                fault("a number or a name is missing, as in gpu:0")
            }
            _ if !kind.is_empty() => fault("the word before the colon is not known"),
            _ if is_name(text) => Ok(Self::Named(None, text.to_owned())),
            _ => fault("a name has letters, digits and _ - . ! only"),
        }
    }
}

/// Returns a PCI bus id in the kernel's form; the domain 0000 may be left out.
fn bus_id(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0000", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let hex = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let good = hex(domain, 8) && hex(bus, 2) && hex(device, 2) && hex(function, 1);
    let padded = |text: &str, width: usize| format!("{text:0>width$}").to_ascii_lowercase();
    let address =
        || format!("{}:{}:{}.{}", padded(domain, 4), padded(bus, 2), padded(device, 2), padded(function, 1));
    good.then(address)
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbered(kind, number) => write!(f, "{}:{number}", word(*kind)),
            Self::Named(Some(kind), name) => write!(f, "{}:{name}", word(*kind)),
            Self::Named(None, name) => f.write_str(name),
            Self::Pci(address) => write!(f, "pci:{address}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Each(kind) => write!(f, "{}:each", word(*kind)),
        }
    }
}

impl DeviceName {
    /// Returns the CPUs near the device, according to the model of the machine: an empty set if it
    /// does not know them, `None` if it does not have the device.
    pub fn near(&self, machine: &Machine) -> Option<CpuSet> {
        if let Self::Each(kind) = self {
            let each = each_device(machine, *kind);
            let near = each.iter().map(|(_, device)| device.cpus.intersection(&machine.cpus()));
            return near.reduce(|all, near| all.union(&near));
        }
        let mut of_kind = machine.devices().iter().filter(|device| match self {
            Self::Numbered(kind, _) => device.kind == *kind,
            Self::Named(kind, name) => kind.is_none_or(|kind| device.kind == kind) && device.name == *name,
            Self::Pci(address) => device.address.as_ref() == Some(address),
            Self::File(_) | Self::Each(_) => false,
        });
        let at = if let Self::Numbered(_, number) = self { *number as usize } else { 0 };
        of_kind.nth(at).map(|device| device.cpus.intersection(&machine.cpus()))
    }
}

/// Returns the devices of a kind that can be dealt to ranks, each with its number in
/// [`DeviceName::Numbered`]. Of accelerators of several makers, those of the one with the most:
/// ranks of a program use devices of one make.
pub fn each_device(machine: &Machine, kind: DeviceKind) -> Vec<(u32, &super::Device)> {
    let all = || (0..).zip(machine.devices().iter().filter(|device| device.kind == kind));
    if kind != DeviceKind::Gpu {
        return all().collect();
    }
    let count = |vendor: Option<u16>| all().filter(|(_, device)| device.vendor == vendor).count();
    // Of equally many, the first in the order of bus ids.
    let most = all().map(|(at, device): (u32, _)| (count(device.vendor), Reverse(at), device.vendor)).max();
    all().filter(|(_, device)| most.is_some_and(|(_, _, vendor)| device.vendor == vendor)).collect()
}

/// Returns the devices that a machine has, as they can be named.
pub fn known_devices(machine: &Machine) -> Vec<String> {
    let mut counts = [0u32; 3];
    let name = |device: &super::Device| {
        let count = &mut counts[device.kind as usize];
        *count += 1;
        match device.kind {
            DeviceKind::Gpu => format!("gpu:{}", *count - 1),
            kind => format!("{}:{}", word(kind), device.name),
        }
    };
    machine.devices().iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Device, parse_synthetic};
    use proptest::prelude::*;

    fn machine() -> Machine {
        let mut parts = parse_synthetic("numa:2 core:4").unwrap().parts().clone();
        let device = |kind, name: &str, address: Option<&str>, cpus: &str| Device {
            kind,
            name: name.to_owned(),
            address: address.map(str::to_owned),
            vendor: None,
            cpus: cpus.parse().unwrap(),
        };
        parts.devices = vec![
            device(DeviceKind::Gpu, "card0", Some("0000:3b:00.0"), "0-3"),
            device(DeviceKind::Gpu, "card1", Some("0000:af:00.0"), "4-7"),
            device(DeviceKind::Nic, "eth0", Some("0000:01:00.0"), "0-7"),
            device(DeviceKind::Storage, "nvme0n1", None, ""),
        ];
        Machine::build(parts).unwrap()
    }

    #[test]
    fn devices_are_found_by_number_name_and_bus_id() {
        let machine = machine();
        for (text, cpus) in [
            ("gpu:0", Some("0-3")),
            ("gpu:1", Some("4-7")),
            ("gpu:2", None),
            ("gpu:card1", Some("4-7")),
            ("card1", Some("4-7")),
            ("nic:card1", None),
            ("net:0", Some("0-7")),
            ("pci:0000:af:00.0", Some("4-7")),
            ("AF:00.0", Some("4-7")),
            ("disk:0", Some("")),
            ("file:/data", None),
        ] {
            let found = text.parse::<DeviceName>().unwrap().near(&machine).map(|cpus| cpus.to_string());
            assert_eq!(found.as_deref(), cpus, "{text}");
        }
        assert_eq!(known_devices(&machine), ["gpu:0", "gpu:1", "nic:eth0", "disk:nvme0n1"]);
    }

    #[test]
    fn faults_are_explained() {
        for (text, words) in [
            ("", "it is empty"),
            ("gpu", "as in gpu:0"),
            ("gpu:", "missing after the colon"),
            ("nic:../x", "missing after the colon"),
            ("..", "letters, digits"),
            ("file:", "a path is missing"),
            ("pci:zz:00.0", "form 0000:3b:00.0"),
            ("foo:0", "before the colon is not known"),
        ] {
            let error = text.parse::<DeviceName>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn accepted_names_are_read_back_and_stay_in_their_folder(text in "(gpu|nic|disk|pci|file|net)?:?[a-z0-9:./_]{0,12}|.{0,8}") {
            if let Ok(name) = text.parse::<DeviceName>() {
                prop_assert_eq!(name.to_string().parse::<DeviceName>(), Ok(name.clone()));
                if let DeviceName::Named(_, part) = &name {
                    prop_assert!(!part.contains('/') && part != "..");
                }
                let _ = name.near(&machine());
            }
        }
    }
}
