//! What was published about binding nested teams, as data.
//!
//! Source: D. Schmidl, C. Terboven, D. an Mey, M. Bücker, "Binding Nested OpenMP Programs on Hierarchical Memory
//! Architectures", IWOMP 2010, the talk's slides. Where the slides give four numbers to a machine of 16 cores under a heading
//! of eight shapes, they are taken for the first four, which are those that fit.

use crate::args::bench::Shape;

/// Where it is from.
pub(super) const SOURCE: &str = "Schmidl, Terboven, an Mey, Bücker: Binding Nested OpenMP Programs on Hierarchical \
     Memory Architectures, IWOMP 2010, slides";

/// The machines.
pub(super) const MACHINES: &str = "Barcelona: 4 x 4-core Opteron 8356, cc-NUMA. Tigerton: 4 x 4-core Xeon X7350, one memory. \
     ScaleMP: 13 boards x 2 x 4-core Xeon E5420, one system image over InfiniBand.";

const fn shape(outer: u32, inner: u32) -> Shape {
    Shape { outer, inner }
}

/// The shapes in which bandwidth was measured; the solver's were not listed.
pub(super) const STREAM_SHAPES: [Shape; 8] = [
    shape(1, 1),
    shape(1, 4),
    shape(4, 1),
    shape(4, 4),
    shape(6, 1),
    shape(6, 4),
    shape(13, 1),
    shape(13, 4),
];

/// Those in which synchronisation was.
pub(super) const SYNC_SHAPES: [Shape; 3] = [shape(1, 2), shape(4, 4), shape(2, 8)];

/// A machine's bandwidth in GB/s, unbound and bound, in the order of [`STREAM_SHAPES`] as far as it goes.
pub(super) struct Stream {
    pub(super) machine: &'static str,
    pub(super) unbound_bound: &'static [(f64, f64)],
}

pub(super) const STREAM: [Stream; 3] = [
    Stream { machine: "Barcelona", unbound_bound: &[(4.4, 4.4), (4.9, 7.6), (15.0, 15.8), (10.7, 13.1)] },
    Stream { machine: "Tigerton", unbound_bound: &[(2.3, 2.3), (6.0, 3.0), (4.8, 8.2), (8.7, 8.5)] },
    Stream {
        machine: "ScaleMP",
        unbound_bound: &[
            (3.8, 3.8),
            (10.7, 5.9),
            (11.2, 14.4),
            (1.7, 18.8),
            (9.0, 20.4),
            (1.6, 15.8),
            (3.4, 43.0),
            (2.4, 27.8),
        ],
    },
];

/// The constructs whose overhead was published.
pub(super) const CONSTRUCTS: [&str; 3] = ["parallel", "barrier", "reduction"];

/// A machine's overheads in microseconds, in the order of [`CONSTRUCTS`].
pub(super) struct Sync {
    pub(super) machine: &'static str,
    pub(super) shape: Shape,
    pub(super) unbound: [f64; 3],
    pub(super) bound: [f64; 3],
}

pub(super) const SYNC: [Sync; 6] = [
    Sync {
        machine: "Barcelona",
        shape: shape(1, 2),
        unbound: [19.25, 18.12, 19.80],
        bound: [23.53, 20.97, 24.14],
    },
    Sync {
        machine: "Barcelona",
        shape: shape(4, 4),
        unbound: [117.90, 100.27, 119.35],
        bound: [70.05, 69.26, 69.29],
    },
    Sync {
        machine: "Tigerton",
        shape: shape(1, 2),
        unbound: [23.88, 20.84, 24.17],
        bound: [9.48, 7.35, 9.77],
    },
    Sync {
        machine: "Tigerton",
        shape: shape(4, 4),
        unbound: [74.15, 54.90, 77.00],
        bound: [58.96, 34.75, 58.24],
    },
    Sync {
        machine: "ScaleMP",
        shape: shape(1, 2),
        unbound: [63.53, 65.00, 42.74],
        bound: [34.11, 33.47, 41.99],
    },
    Sync {
        machine: "ScaleMP",
        shape: shape(2, 8),
        unbound: [2655.09, 2197.42, 2642.03],
        bound: [425.63, 323.71, 444.77],
    },
];

/// The solver's results, which the slides show as curves.
pub(super) const SOLVER: &str = "SHEMAT-Suite, speed-up of bound over best unbound: Tigerton little, sometimes unbound is \
     better; Barcelona more; ScaleMP 2.5 at best; a newer ScaleMP (15 boards x 2 x Xeon E5550) 4.";

/// What the numbers themselves say against binding.
pub(super) const LOSSES: &str = "Note the losses: subscatter keeps a lone team on one socket or board, which halves 1x4 on two \
     machines; the 1x2 constructs on Barcelona are slower bound.";
