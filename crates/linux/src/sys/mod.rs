//! System calls that no safe library covers: one per wrapper, each with its safety argument.
#![allow(unsafe_code)]

pub mod affinity;
pub mod bpf;
pub mod clock;
pub mod entry;
mod errno;
pub mod exec;
pub mod fork;
pub mod inherited;
pub mod lock;
pub mod mempolicy;
pub mod orphan;
pub mod peer;
pub mod perf;
pub mod prctl;
pub mod realtime;
pub mod residency;
pub mod signals;
pub mod slice;
pub mod timers;
pub mod usage;
pub mod version;
pub mod vsock;
