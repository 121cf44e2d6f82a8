//! Accelerators, network interfaces and disks, and the CPUs near to them.
//!
//! All data comes from PCI and the kernel's own names; no vendor library is asked. A user names an
//! interface or a disk by its kernel name, so each name is a device. An accelerator has many names
//! (`card0`, `renderD128`, `rsmi0`, `cuda0`) and is counted, so each PCI function is one device, in
//! bus order.

use crate::runs::cpus_of;
use crate::text;
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::{ObjectAttributes, PCIDeviceAttributes};
use hwlocality::object::types::{OSDeviceType, ObjectType};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{Device, DeviceKind};

/// PCI base classes.
const CLASS_STORAGE: u16 = 0x01;
const CLASS_NETWORK: u16 = 0x02;
const CLASS_DISPLAY: u16 = 0x03;
const CLASS_ACCELERATOR: u16 = 0x12;
/// The only subclass of "serial bus" that is a network.
const CLASS_INFINIBAND: u16 = 0x0c06;

/// Makers of the display adapters of management controllers and virtual machines: ASPEED, Matrox,
/// Silicon Motion, XGI, Cirrus, QEMU, Red Hat (virtio, QXL), VMware, Hyper-V. No program computes
/// on these adapters, and listed as `gpu:0` they would shift the numbers of the real accelerators.
const CONSOLES: [u16; 9] = [0x1a03, 0x102b, 0x126f, 0x18ca, 0x1013, 0x1234, 0x1b36, 0x15ad, 0x1414];

/// Returns the devices, sorted by kind, bus id and name.
pub(crate) fn devices(topology: &Topology) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for function in topology.objects_with_type(ObjectType::PCIDevice) {
        if let Some(ObjectAttributes::PCIDevice(about)) = function.attributes() {
            devices.extend(of_function(function, about));
        }
    }
    for object in topology.objects_with_type(ObjectType::OSDevice) {
        let on_pci = object.ancestors().any(|above| above.object_type() == ObjectType::PCIDevice);
        if let (false, Some(kind)) = (on_pci, kind(object)) {
            let name = name(object);
            // Outside PCI only the primary name of a display counts: there is no function to join
            // the others.
            if kind != DeviceKind::Gpu || name.starts_with("card") {
                devices.push(Device { kind, name, address: None, vendor: None, cpus: near(object) });
            }
        }
    }
    devices.sort_by(|a, b| (a.kind, &a.address, &a.name).cmp(&(b.kind, &b.address, &b.name)));
    devices
}

fn of_function(function: &TopologyObject, about: &PCIDeviceAttributes) -> Vec<Device> {
    let address = format!(
        "{:04x}:{:02x}:{:02x}.{:x}",
        about.domain(),
        about.bus_id(),
        about.bus_device(),
        about.function()
    );
    let device = |kind, name| Device {
        kind,
        name,
        address: Some(address.clone()),
        // Files that were made without the right to read it have 0.
        vendor: Some(about.vendor_id()).filter(|&vendor| vendor != 0),
        cpus: near(function),
    };
    let mut inside = Vec::new();
    os_devices(function, &mut inside);
    let by_class = match (about.class_id() >> 8, about.class_id()) {
        (CLASS_DISPLAY | CLASS_ACCELERATOR, _) => Some(DeviceKind::Gpu),
        (CLASS_NETWORK, _) | (_, CLASS_INFINIBAND) => Some(DeviceKind::Nic),
        (CLASS_STORAGE, _) => Some(DeviceKind::Storage),
        _ => None,
    };
    if by_class == Some(DeviceKind::Gpu) {
        let console = CONSOLES.contains(&about.vendor_id());
        return if console { Vec::new() } else { vec![device(DeviceKind::Gpu, gpu_name(function, &inside))] };
    }
    let named = inside.iter().filter_map(|object| Some((kind(object)?, name(object))));
    // A function without a kernel name is kept by its driver, or by a guest: no program can be
    // placed near it.
    named.filter(|(kind, _)| *kind != DeviceKind::Gpu).map(|(kind, name)| device(kind, name)).collect()
}

/// Collects the kernel's devices of a function, including those of its parts.
fn os_devices<'t>(above: &'t TopologyObject, found: &mut Vec<&'t TopologyObject>) {
    for object in above.io_children() {
        match object.object_type() {
            ObjectType::OSDevice => {
                found.push(object);
                os_devices(object, found);
            }
            ObjectType::PCIDevice | ObjectType::Bridge => {} // a function of its own
            _ => os_devices(object, found),
        }
    }
}

/// Returns the primary display node of an accelerator, else the best name that a driver gives it,
/// else its model.
fn gpu_name(function: &TopologyObject, inside: &[&TopologyObject]) -> String {
    let rank = |name: &str| match name {
        _ if name.starts_with("card") => 0,
        _ if name.starts_with("renderD") => 1,
        _ if name.starts_with("opencl") => 3, // counted per platform, and differently in each process
        _ if name.starts_with("control") => 4,
        _ => 2,
    };
    let names =
        inside.iter().filter(|object| kind(object) == Some(DeviceKind::Gpu)).map(|object| name(object));
    let best = names.filter(|name| !name.is_empty()).min_by_key(|name| (rank(name), name.clone()));
    best.or_else(|| text::info(function, "PCIDevice")).unwrap_or_else(|| "GPU".to_owned())
}

/// Returns the kind of a device of the kernel, if a program can be placed near it. Memory that is
/// shown as a disk is not such a device.
fn kind(object: &TopologyObject) -> Option<DeviceKind> {
    let Some(ObjectAttributes::OSDevice(about)) = object.attributes() else { return None };
    match about.device_type() {
        OSDeviceType::GPU | OSDeviceType::CoProcessor => Some(DeviceKind::Gpu),
        OSDeviceType::Network | OSDeviceType::OpenFabrics => Some(DeviceKind::Nic),
        OSDeviceType::Storage => {
            let subtype = object.subtype().map(text::owned).unwrap_or_default();
            matches!(subtype.as_str(), "" | "Disk" | "NVDIMM").then_some(DeviceKind::Storage)
        }
        _ => None,
    }
}

fn name(object: &TopologyObject) -> String {
    object.name().map(text::owned).unwrap_or_default()
}

/// Returns the CPUs of the innermost object around a device that has any.
fn near(object: &TopologyObject) -> CpuSet {
    object.first_non_io_ancestor().map(cpus_of).unwrap_or_default()
}
