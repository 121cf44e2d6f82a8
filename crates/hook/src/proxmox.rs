//! Guests of Proxmox VE: `/etc/pve/qemu-server/VMID.conf`.

use crate::shape::{GuestShape, OwnCpus, numa_cells, vcpu_count};
use std::path::{Path, PathBuf};

/// Longest configuration. Chosen: descriptions and snapshots are in it.
pub const CONFIG_MAX: u64 = 1 << 20;

/// Returns the file of a guest's configuration.
pub fn file(root: &Path, vmid: &str) -> PathBuf {
    root.join("etc/pve/qemu-server").join(format!("{vmid}.conf"))
}

/// Reads the shape of a guest from its configuration.
///
/// # Errors
/// The count of its vCPUs cannot be used.
///
/// # Examples
/// ```
/// let guest = trimtab_hook::proxmox::shape("name: web\ncores: 2\nsockets: 2\n")?;
/// assert_eq!(guest.vcpus, 4);
/// # Ok::<(), String>(())
/// ```
pub fn shape(text: &str) -> Result<GuestShape, String> {
    // The sections that follow are snapshots and changes that are pending.
    let present = text.lines().take_while(|line| !line.starts_with('['));
    let lines: Vec<(&str, &str)> = present
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let value = |wanted: &str| lines.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let count = |key: &str| match value(key) {
        None => Ok(None),
        Some(text) => vcpu_count(text).map(Some).ok_or_else(|| format!("{key} is no usable number")),
    };
    let all = count("cores")?.unwrap_or(1) * count("sockets")?.unwrap_or(1);
    let vcpus = count("vcpus")?.unwrap_or(all);
    let vcpus = vcpu_count(&vcpus.to_string()).ok_or("the guest has too many vCPUs")?;
    let cells = lines.iter().filter_map(|(key, value)| cell(key, value));
    let cells = numa_cells(cells.map(|(number, list)| Some((number, list.parse().ok()?))), vcpus);
    // The mask of all threads of the guest, which other guests may have too.
    let own = match value("affinity").unwrap_or_default() {
        "" => OwnCpus::None,
        _ => OwnCpus::Shared,
    };
    Ok(GuestShape { vcpus, threads: 1, cells, own, iothreads: 0 })
}

/// Returns the number and the vCPUs of a line such as `numa0: cpus=0-1;4,memory=1024`.
fn cell(key: &str, value: &str) -> Option<(u32, String)> {
    let number = key.strip_prefix("numa")?.parse().ok()?;
    let list = value.split(',').find_map(|part| part.trim().strip_prefix("cpus="))?;
    Some((number, list.replace(';', ",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_present_state_counts() {
        let text = "#cores: 7\nboot: order=scsi0;net0\ncores: 4\nsockets: 2\nvcpus: 6\nnuma: 1\n\
                    numa0: cpus=0-2,hostnodes=0,memory=1024\nnuma1: cpus=3;4;5-9,memory=1024\n\
                    [before]\ncores: 1\naffinity: 3\n";
        let guest = shape(text).unwrap();
        assert_eq!((guest.vcpus, guest.threads, guest.own), (6, 1, OwnCpus::None));
        assert_eq!(guest.cells, [BTreeSet::from([0, 1, 2]), BTreeSet::from([3, 4, 5])]);
        assert_eq!(shape("").unwrap().vcpus, 1);
        assert_eq!(shape("affinity: 0,5,8-11").unwrap().own, OwnCpus::Shared);
    }

    #[test]
    fn nodes_that_have_the_same_vcpus_are_none() {
        let text = format!("cores: 8192\n{}", "numa0: cpus=0-8191\n".repeat(50_000));
        let guest = shape(&text).unwrap();
        assert_eq!((guest.vcpus, guest.cells.len()), (8_192, 0));
    }

    #[test]
    fn counts_that_cannot_be_used_are_errors() {
        for text in ["cores: x", "cores: 0", "sockets: -1", "cores: 8192\nsockets: 8192", "vcpus: 1e9"] {
            assert!(shape(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "(cores|sockets|vcpus|numa0|numa1)?[:=,; 0-9a-z\n\\[-]{0,80}") {
            if let Ok(guest) = shape(&text) {
                prop_assert!(guest.cells.iter().flatten().all(|vcpu| *vcpu < guest.vcpus));
            }
        }
    }
}
