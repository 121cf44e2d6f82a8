//! Devices that a rank sees: variables by which the runtimes of accelerators leave out all others.
//!
//! Only with `--visible-devices`: a program that numbers its device by its rank would find no such
//! device among those that are left. A variable that the user set stays, and a message says so.

use crate::ranks::Role;
use crate::reason::{LaunchReason, Topic};
use crate::request::LaunchRequest;
use trimtab_core::place::deal::{names, of_rank};
use trimtab_core::place::{Action, Variable};

/// Runtime of a maker's accelerators.
struct DeviceRuntime {
    /// PCI number of the maker.
    vendor: u16,
    reader: &'static str,
    /// Variable with the numbers of the visible devices.
    visible: &'static str,
    /// Variable and value with which the runtime numbers devices in the order of bus ids, as
    /// trimtab does.
    order: Option<(&'static str, &'static str)>,
}

/// Sources: NVIDIA, "CUDA Environment Variables"; AMD, "GPU isolation techniques"; Intel, "Level
/// Zero specification", "Environment Variables". ROCm numbers devices in the order in which its
/// driver found them on the bus.
const RUNTIMES: [DeviceRuntime; 3] = [
    DeviceRuntime {
        vendor: 0x10de,
        reader: "CUDA",
        visible: "CUDA_VISIBLE_DEVICES",
        order: Some(("CUDA_DEVICE_ORDER", "PCI_BUS_ID")),
    },
    DeviceRuntime { vendor: 0x1002, reader: "ROCm", visible: "ROCR_VISIBLE_DEVICES", order: None },
    DeviceRuntime {
        vendor: 0x8086,
        reader: "Level Zero",
        visible: "ZE_AFFINITY_MASK",
        order: Some(("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1")),
    },
];

/// Returns the variables for a rank's devices, and the messages about them.
pub(crate) fn decide(request: &LaunchRequest, role: &Role) -> (Vec<Variable>, Vec<LaunchReason>) {
    let rank = match role {
        Role::Shares(rank, _) | Role::Bound(rank) => rank,
        // One process has all devices.
        Role::Alone | Role::Uncounted(_) => return Default::default(),
    };
    let near = request.place.near.as_ref().filter(|_| request.visible_devices);
    let (Some(near), Some(of)) = (near, rank.of) else { return Default::default() };
    let own = of_rank(&near.each, rank.rank, of);
    let warning = |text: String| vec![LaunchReason::warning(Topic::Environment, text)];
    let vendor = own.first().and_then(|device| device.vendor);
    let Some(runtime) = RUNTIMES.iter().find(|runtime| Some(runtime.vendor) == vendor) else {
        let text = format!(
            "--visible-devices: no variable is known for the maker of {}: all ranks see all devices",
            names(own)
        );
        return (Vec::new(), warning(text));
    };
    let DeviceRuntime { reader, visible, order, .. } = *runtime;
    let variable = |name: &str, action| Variable { name: name.to_owned(), reader, action };
    if let Some(value) = request.user(visible) {
        let text = format!(
            "{visible}={value} is set already and stays: --visible-devices gives this rank no device of its own"
        );
        return (vec![variable(visible, Action::Kept { value })], warning(text));
    }
    let list: Vec<String> = own.iter().map(|device| device.index.to_string()).collect();
    let mut reasons = Vec::new();
    let mut variables = vec![variable(visible, Action::Set { value: list.join(",") })];
    if let Some((name, wanted)) = order {
        let action = match request.user(name) {
            Some(value) => {
                if value != wanted {
                    let text = format!(
                        "{name}={value} is set already and stays: {visible} counts in the order of bus ids ({name}={wanted})"
                    );
                    reasons = warning(text);
                }
                Action::Kept { value }
            }
            None => Action::Set { value: wanted.to_owned() },
        };
        variables.push(variable(name, action));
    }
    (variables, reasons)
}
