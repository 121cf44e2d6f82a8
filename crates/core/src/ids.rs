//! Index types that cannot be confused.
//!
//! The kernel numbers CPUs and memory nodes with holes, in an order of its own; the model numbers
//! everything it holds densely, with neighbours next to each other. In C, passing one number for
//! the other compiles and pins to the wrong core; here each numbering is a type.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One more than the largest CPU number that a preload library can be given: the most CPUs that any
/// Linux configuration supports (`NR_CPUS` on x86-64). A fixed bound lets the library keep a plan
/// in static storage.
pub const CPUS_MAX: usize = 8192;

/// A small integer id that can live in a [`Set`](crate::set::Set).
pub trait Id: Copy + Ord + fmt::Debug {
    /// Creates the id with this number.
    fn from_index(index: usize) -> Self;
    /// Returns the number of this id.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A hardware thread as the kernel numbers it (`/sys/devices/system/cpu/cpuN`, affinity masks,
    /// `taskset -c`).
    OsCpu;
    /// A NUMA node as the kernel numbers it (`/sys/devices/system/node/nodeN`, memory policies,
    /// `numactl -m`).
    OsNode;
    /// A hardware thread by its place in the model: from 0 without holes, depth first through the
    /// machine.
    Pu;
    /// A core by its place in the model.
    CoreId;
    /// A last-level-cache domain by its place in the model.
    LlcId;
    /// A NUMA node by its place in the model.
    NodeId;
    /// Any object of the machine tree by its place in the model.
    ObjectId;
    /// A watched thread, by the number its host gave it: dense, never reused.
    ThreadId;
    /// A watched program: one run, or one process tree that was attached to.
    ProgramId;
}
