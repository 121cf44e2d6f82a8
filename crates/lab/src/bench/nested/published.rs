//! Published results on binding nested teams, as data.
//!
//! Source: D. Schmidl, C. Terboven, D. an Mey, M. Bücker, "Binding Nested OpenMP Programs on
//! Hierarchical Memory Architectures", IWOMP 2010, slides of the talk. For a machine of 16 cores
//! the slides give four numbers under a heading of eight shapes; they are taken for the first four
//! shapes, which fit.

use crate::args::bench::Shape;

/// Source of the published results.
pub(super) const SOURCE: &str = "Schmidl, Terboven, an Mey, Bücker: Binding Nested OpenMP Programs on Hierarchical \
     Memory Architectures, IWOMP 2010, slides";

/// Machines of the published results.
pub(super) const MACHINES: &str = "Barcelona: 4 x 4-core Opteron 8356, cc-NUMA. Tigerton: 4 x 4-core Xeon X7350, one memory. \
     ScaleMP: 13 boards x 2 x 4-core Xeon E5420, one system image over InfiniBand.";

const fn shape(outer: u32, inner: u32) -> Shape {
    Shape { outer, inner }
}

/// Shapes in which bandwidth was measured; the solver's shapes were not listed.
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

/// Shapes in which synchronisation was measured.
pub(super) const SYNC_SHAPES: [Shape; 3] = [shape(1, 2), shape(4, 4), shape(2, 8)];

/// Bandwidth of a machine in GB/s, unbound and bound, in the order of [`STREAM_SHAPES`]; may end
/// early.
pub(super) struct PublishedStream {
    pub(super) machine: &'static str,
    pub(super) unbound_bound: &'static [(f64, f64)],
}

pub(super) const STREAM: [PublishedStream; 3] = [
    PublishedStream {
        machine: "Barcelona",
        unbound_bound: &[(4.4, 4.4), (4.9, 7.6), (15.0, 15.8), (10.7, 13.1)],
    },
    PublishedStream { machine: "Tigerton", unbound_bound: &[(2.3, 2.3), (6.0, 3.0), (4.8, 8.2), (8.7, 8.5)] },
    PublishedStream {
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

/// Constructs with published overheads.
pub(super) const CONSTRUCTS: [&str; 3] = ["parallel", "barrier", "reduction"];

/// Overheads of a machine in microseconds, in the order of [`CONSTRUCTS`].
pub(super) struct PublishedSync {
    pub(super) machine: &'static str,
    pub(super) shape: Shape,
    pub(super) unbound: [f64; 3],
    pub(super) bound: [f64; 3],
}

pub(super) const SYNC: [PublishedSync; 6] = [
    PublishedSync {
        machine: "Barcelona",
        shape: shape(1, 2),
        unbound: [19.25, 18.12, 19.80],
        bound: [23.53, 20.97, 24.14],
    },
    PublishedSync {
        machine: "Barcelona",
        shape: shape(4, 4),
        unbound: [117.90, 100.27, 119.35],
        bound: [70.05, 69.26, 69.29],
    },
    PublishedSync {
        machine: "Tigerton",
        shape: shape(1, 2),
        unbound: [23.88, 20.84, 24.17],
        bound: [9.48, 7.35, 9.77],
    },
    PublishedSync {
        machine: "Tigerton",
        shape: shape(4, 4),
        unbound: [74.15, 54.90, 77.00],
        bound: [58.96, 34.75, 58.24],
    },
    PublishedSync {
        machine: "ScaleMP",
        shape: shape(1, 2),
        unbound: [63.53, 65.00, 42.74],
        bound: [34.11, 33.47, 41.99],
    },
    PublishedSync {
        machine: "ScaleMP",
        shape: shape(2, 8),
        unbound: [2655.09, 2197.42, 2642.03],
        bound: [425.63, 323.71, 444.77],
    },
];

/// Results of the solver, which the slides show as curves.
pub(super) const SOLVER: &str = "SHEMAT-Suite, speed-up of bound over best unbound: Tigerton small, sometimes unbound is \
     faster; Barcelona larger; ScaleMP up to 2.5; a newer ScaleMP (15 boards x 2 x Xeon E5550) 4.";

/// Published cases in which binding loses.
pub(super) const LOSSES: &str = "Note the losses: subscatter keeps a single team on one socket or board, which halves 1x4 on two \
     machines; the 1x2 constructs on Barcelona are slower bound.";
