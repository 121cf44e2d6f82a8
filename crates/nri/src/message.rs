//! The messages of NRI that are used, by their field numbers. Fields that are not listed are
//! skipped when a message is read, and left out when one is written.
//!
//! Source: the Node Resource Interface, `nri.pkg.api.v1alpha1`.

use prost::{Enumeration, Message};
use std::collections::BTreeMap;

/// Service that the runtime offers.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// Service that a plug-in offers.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

/// Introduces a plug-in to the runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterPlugin {
    /// Its name.
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    /// Two digits: its position among the plug-ins.
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

/// First call of the runtime.
#[derive(Clone, PartialEq, Message)]
pub struct Configure {
    /// Text of the configuration that the runtime has for the plug-in.
    #[prost(string, tag = "1")]
    pub config: String,
    /// Name of the runtime.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// Longest time for an answer, in milliseconds; 0 if the runtime does not say.
    #[prost(int64, tag = "5")]
    pub request_timeout: i64,
}

/// Answer to [`Configure`].
#[derive(Clone, PartialEq, Message)]
pub struct Configured {
    /// ContainerNeed events: bit N - 1 for event N.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// Second call of the runtime: all pods and containers that exist, perhaps in several parts.
#[derive(Clone, PartialEq, Message)]
pub struct Synchronize {
    /// Pods.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<Pod>,
    /// Containers.
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// Whether another part follows.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Answer to [`Synchronize`].
#[derive(Clone, PartialEq, Message)]
pub struct Synchronized {
    /// Changes of these containers.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<Update>,
    /// The request's word about another part.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A call about a container: `CreateContainer`, `UpdateContainer` and others.
#[derive(Clone, PartialEq, Message)]
pub struct About {
    /// The pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<Pod>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

/// Answer to `CreateContainer`.
#[derive(Clone, PartialEq, Message)]
pub struct Created {
    /// Changes of the new container.
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<Adjustment>,
    /// Changes of other containers.
    #[prost(message, repeated, tag = "2")]
    pub update: Vec<Update>,
}

/// Answer to `UpdateContainer` and `StopContainer`, and the argument of `UpdateContainers`.
#[derive(Clone, PartialEq, Message)]
pub struct Updates {
    /// Changes of containers.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<Update>,
}

/// A message of an event.
#[derive(Clone, PartialEq, Message)]
pub struct StateChange {
    /// The event.
    #[prost(enumeration = "NriEvent", tag = "1")]
    pub event: i32,
    /// The pod.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<Pod>,
    /// The container.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// Events, with their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum NriEvent {
    /// None.
    Unknown = 0,
    /// A container is made.
    CreateContainer = 4,
    /// A container is about to be started.
    StartContainer = 6,
    /// A container has been started.
    PostStartContainer = 7,
    /// Resources of a container are changed.
    UpdateContainer = 8,
    /// A container has ended.
    StopContainer = 10,
    /// A container is removed.
    RemoveContainer = 11,
}

impl NriEvent {
    /// Returns the event's bit in [`Configured`].
    pub fn bit(self) -> i32 {
        match self as i32 {
            number @ 1.. => 1 << (number - 1),
            _ => 0,
        }
    }
}

/// A pod.
#[derive(Clone, PartialEq, Message)]
pub struct Pod {
    /// Number of its sandbox.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its unique id in Kubernetes.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace in Kubernetes.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Handler of its RuntimeClass; empty for the default.
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
    /// What concerns Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPod>,
}

/// What concerns Linux of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxPod {
    /// Control group around the pod's own.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
}

/// A container.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its number.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Number of its pod's sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name in the pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its state.
    #[prost(enumeration = "ContainerState", tag = "4")]
    pub state: i32,
    /// Command and arguments.
    #[prost(string, repeated, tag = "7")]
    pub args: Vec<String>,
    /// Variables, as `NAME=VALUE`.
    #[prost(string, repeated, tag = "8")]
    pub env: Vec<String>,
    /// What concerns Linux.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
    /// Its first process, as the runtime numbers it; 0 if it was not started.
    #[prost(uint32, tag = "12")]
    pub pid: u32,
}

/// States of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// Not known.
    Unknown = 0,
    /// Made, and not started.
    Created = 1,
    /// Paused.
    Paused = 2,
    /// Running.
    Running = 3,
    /// Ended.
    Stopped = 4,
}

/// What concerns Linux of a container.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainer {
    /// Its resources.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<Resources>,
    /// Its control group.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
}

/// Resources.
#[derive(Clone, PartialEq, Message)]
pub struct Resources {
    /// CPUs.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<Cpu>,
}

/// Resources about CPUs.
#[derive(Clone, PartialEq, Message)]
pub struct Cpu {
    /// Weight: 1,024 for each CPU that the container requests.
    #[prost(message, optional, tag = "1")]
    pub shares: Option<OptionalU64>,
    /// CPU time in each period, in microseconds.
    #[prost(message, optional, tag = "2")]
    pub quota: Option<OptionalI64>,
    /// The period.
    #[prost(message, optional, tag = "3")]
    pub period: Option<OptionalU64>,
    /// The list of CPUs.
    #[prost(string, tag = "6")]
    pub cpus: String,
    /// The list of memory nodes.
    #[prost(string, tag = "7")]
    pub mems: String,
}

/// A number that may be absent.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct OptionalI64 {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A number that may be absent.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct OptionalU64 {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// Changes of a new container.
#[derive(Clone, PartialEq, Message)]
pub struct Adjustment {
    /// Variables; a name that begins with `-` removes one.
    #[prost(message, repeated, tag = "4")]
    pub env: Vec<KeyValue>,
    /// What concerns Linux.
    #[prost(message, optional, tag = "6")]
    pub linux: Option<LinuxAdjustment>,
}

/// Changes of a new container that concern Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxAdjustment {
    /// Resources.
    #[prost(message, optional, tag = "2")]
    pub resources: Option<Resources>,
    /// Memory policy. Runtimes before NRI 0.12 do not know it, and skip it.
    #[prost(message, optional, tag = "12")]
    pub memory_policy: Option<MemoryPolicy>,
}

/// A memory policy.
#[derive(Clone, PartialEq, Message)]
pub struct MemoryPolicy {
    /// Number of the policy in NRI.
    #[prost(int32, tag = "1")]
    pub mode: i32,
    /// Its nodes.
    #[prost(string, tag = "2")]
    pub nodes: String,
}

/// A variable.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Changes of a container that exists.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// What concerns Linux.
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxUpdate>,
    /// Whether the runtime goes on if this fails.
    #[prost(bool, tag = "3")]
    pub ignore_failure: bool,
}

/// Changes of a container that concern Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxUpdate {
    /// Resources.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<Resources>,
}

/// A message without contents.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

impl Container {
    /// Returns the resources about CPUs.
    pub fn cpu(&self) -> Option<&Cpu> {
        self.linux.as_ref()?.resources.as_ref()?.cpu.as_ref()
    }
}

impl Update {
    /// Makes the change of a container's list of CPUs. A container that has ended meanwhile is no
    /// failure.
    pub fn of_cpus(container: &str, cpus: String) -> Self {
        let cpu = Some(Cpu { cpus, ..Cpu::default() });
        let linux = Some(LinuxUpdate { resources: Some(Resources { cpu }) });
        Self { container_id: container.to_owned(), linux, ignore_failure: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_fields_are_skipped_and_truncated_messages_are_errors() {
        let pod = Pod { id: "p".into(), name: "web".into(), ..Pod::default() };
        let mut bytes = pod.encode_to_vec();
        // Field 40 of each wire type.
        bytes.extend([0xc0, 2, 7]);
        bytes.extend([0xc2, 2, 2, 8, 9]);
        bytes.extend([0xc5, 2, 1, 2, 3, 4]);
        assert_eq!(Pod::decode(&*bytes).unwrap(), pod);
        assert!(Pod::decode(&bytes[..bytes.len() - 1]).is_err());
        // A length beyond the end, and a field of the wrong type.
        assert!(Pod::decode(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f][..]).is_err());
        assert!(Pod::decode(&[0x08, 1][..]).is_err());
        assert!(Pod::decode(&[0x0a, 1, 0xff][..]).is_err(), "no UTF-8");
    }

    fn is_stable<M: Message + Default + PartialEq>(bytes: &[u8]) -> bool {
        M::decode(bytes).is_ok_and(|read| M::decode(&*read.encode_to_vec()).is_ok_and(|again| again == read))
            || M::decode(bytes).is_err()
    }

    #[test]
    fn events_are_numbered_as_the_interface_does() {
        assert_eq!(NriEvent::CreateContainer.bit(), 0b1000);
        assert_eq!(NriEvent::RemoveContainer.bit(), 0x400);
        assert_eq!(NriEvent::Unknown.bit(), 0);
    }

    proptest! {
        /// Reading any bytes ends, and a message that was read is the same when it is written and
        /// read again.
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(is_stable::<Synchronize>(&bytes));
            prop_assert!(is_stable::<About>(&bytes));
            prop_assert!(is_stable::<StateChange>(&bytes));
            prop_assert!(is_stable::<Configure>(&bytes));
            prop_assert!(is_stable::<Updates>(&bytes));
        }
    }
}
