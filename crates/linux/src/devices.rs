//! Devices of the live machine, and the CPUs near to them.
//!
//! The model of the machine lists the devices that were there when it was made, and only those for
//! which programs are usually placed. All others are found in `/sys`: the kernel links each device
//! to its place on a bus, and the nearest PCI function around it has the list of CPUs near to it.

use crate::text::{self, ReadError};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{DeviceKind, DeviceName};

/// Classes of devices below `/sys/class` in which a name is searched.
const CLASSES: [(&str, DeviceKind); 7] = [
    ("net", DeviceKind::Nic),
    ("infiniband", DeviceKind::Nic),
    ("block", DeviceKind::Storage),
    ("nvme", DeviceKind::Storage),
    ("drm", DeviceKind::Gpu),
    ("accel", DeviceKind::Gpu),
    ("kfd", DeviceKind::Gpu),
];

/// Deepest chain of devices that consist of others (a file system on LVM on RAID on partitions).
const DEPTH_MAX: u32 = 8;

/// Reason why the place of a device is not known.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// There is no such device.
    #[error("there is no device {0} here")]
    Missing(DeviceName),
    /// The file cannot be examined.
    #[error("cannot examine {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The file is not on a disk.
    #[error("{} is on no disk of this machine: a network, memory or layered file system has it", path.display())]
    NoDisk {
        /// The file.
        path: PathBuf,
    },
    /// A list of CPUs cannot be used.
    #[error(transparent)]
    Unread(#[from] ReadError),
}

/// Returns the CPUs near a device, read below `sys`; an empty set if the kernel does not know them.
///
/// # Errors
/// There is no such device, or its files cannot be read.
pub fn near(sys: &Path, name: &DeviceName) -> Result<CpuSet, DeviceError> {
    let missing = || DeviceError::Missing(name.clone());
    let found = match name {
        // Numbers are those of the model.
        DeviceName::Numbered(..) | DeviceName::Each(_) => None,
        DeviceName::Pci(address) => Some(sys.join("bus/pci/devices").join(address)),
        DeviceName::Named(kind, name) => {
            let classes = CLASSES.iter().filter(|(_, of)| kind.is_none_or(|kind| kind == *of));
            // The kernel writes the slash of a name as an exclamation mark.
            classes.map(|(class, _)| sys.join("class").join(class).join(name)).find(|path| path.exists())
        }
        DeviceName::File(path) => return of_file(sys, Path::new(path)),
    };
    let path = found.filter(|path| path.exists()).ok_or_else(missing)?;
    Ok(of_device(&path, 0)?)
}

/// Returns the CPUs near the disk that has a file.
fn of_file(sys: &Path, file: &Path) -> Result<CpuSet, DeviceError> {
    let about = fs::metadata(file).map_err(|source| DeviceError::File { path: file.to_owned(), source })?;
    let device = if rustix::fs::FileType::from_raw_mode(about.mode()) == rustix::fs::FileType::BlockDevice {
        about.rdev()
    } else {
        about.dev()
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = sys.join(format!("dev/block/{major}:{minor}"));
    if !path.exists() {
        return Err(DeviceError::NoDisk { path: file.to_owned() });
    }
    Ok(of_device(&path, 0)?)
}

/// Returns the CPUs near a device, by its nearest ancestor with a list of CPUs; for one that
/// consists of others, near any of these.
fn of_device(path: &Path, depth: u32) -> Result<CpuSet, ReadError> {
    let Ok(real) = fs::canonicalize(path) else { return Ok(CpuSet::new()) };
    let mut parts = fs::read_dir(real.join("slaves")).into_iter().flatten().flatten().peekable();
    if parts.peek().is_some() && depth < DEPTH_MAX {
        let mut near = CpuSet::new();
        for part in parts {
            near = near.union(&of_device(&part.path(), depth + 1)?);
        }
        return Ok(near);
    }
    for folder in real.ancestors() {
        let list = folder.join("local_cpulist");
        if let Some(text) = text::read_if_there(&list)? {
            let text = std::str::from_utf8(&text).ok();
            return text
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| ReadError::malformed(&list, "no list of CPUs"));
        }
    }
    Ok(CpuSet::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Makes the files of a machine with a network card, a disk with a partition, and a volume over
    /// two disks.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (function, cpus) in [("0000:3b:00.0", "0-3\n"), ("0000:af:00.0", "4-7\n")] {
            let folder = at(&format!("devices/pci0000:00/{function}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("local_cpulist"), cpus).unwrap();
            fs::create_dir_all(at("bus/pci/devices")).unwrap();
            symlink(&folder, at(&format!("bus/pci/devices/{function}"))).unwrap();
        }
        for (class, name, place) in [
            ("net", "eth0", "devices/pci0000:00/0000:3b:00.0/net/eth0"),
            ("net", "lo", "devices/virtual/net/lo"),
            ("block", "sda", "devices/pci0000:00/0000:3b:00.0/ata1/block/sda"),
            ("block", "sda1", "devices/pci0000:00/0000:3b:00.0/ata1/block/sda/sda1"),
            ("block", "nvme0n1", "devices/pci0000:00/0000:af:00.0/nvme/nvme0/nvme0n1"),
            ("block", "dm-0", "devices/virtual/block/dm-0"),
        ] {
            fs::create_dir_all(at(place)).unwrap();
            fs::create_dir_all(at(&format!("class/{class}"))).unwrap();
            symlink(at(place), at(&format!("class/{class}/{name}"))).unwrap();
        }
        let slaves = at("devices/virtual/block/dm-0/slaves");
        fs::create_dir_all(&slaves).unwrap();
        for disk in ["sda1", "nvme0n1"] {
            symlink(at(&format!("class/block/{disk}")), slaves.join(disk)).unwrap();
        }
        root
    }

    #[test]
    fn devices_are_found_below_sys() {
        let root = machine();
        let near = |name: &str| {
            near(root.path(), &name.parse().unwrap()).map(|cpus| cpus.to_string()).map_err(|e| e.to_string())
        };
        for (name, cpus) in [
            ("nic:eth0", "0-3"),
            ("eth0", "0-3"),
            ("lo", ""),
            ("pci:0000:af:00.0", "4-7"),
            ("sda1", "0-3"),
            ("disk:nvme0n1", "4-7"),
            ("dm-0", "0-7"),
        ] {
            assert_eq!(near(name), Ok(cpus.to_owned()), "{name}");
        }
        for name in ["disk:eth0", "gpu:0", "pci:0000:00:00.0", "eth1"] {
            assert_eq!(near(name), Err(format!("there is no device {name} here")));
        }
        let list = root.path().join("devices/pci0000:00/0000:3b:00.0/local_cpulist");
        fs::write(list, "all").unwrap();
        assert!(near("eth0").unwrap_err().contains("local_cpulist: no list of CPUs"));
    }

    #[test]
    fn a_file_is_near_the_disk_that_has_it() {
        let root = machine();
        let file = root.path().join("data");
        fs::write(&file, "").unwrap();
        let name = DeviceName::File(file.display().to_string());
        let error = near(root.path(), &name).unwrap_err().to_string();
        assert!(error.contains("is on no disk of this machine"), "{error}");
        let device = fs::metadata(&file).unwrap().dev();
        let link = format!("dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        symlink(root.path().join("class/block/sda1"), root.path().join(link)).unwrap();
        assert_eq!(near(root.path(), &name).unwrap().to_string(), "0-3");
        let gone = DeviceName::File(root.path().join("gone").display().to_string());
        assert!(near(root.path(), &gone).unwrap_err().to_string().contains("cannot examine"));
    }
}
