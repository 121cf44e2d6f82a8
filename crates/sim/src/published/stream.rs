//! Table of nested STREAM: memory bandwidth in GB/s of teams of threads, bound and unbound (seed
//! 004).
//!
//! The table as stored has eight columns and, for the machines of 16 cores, four values. They
//! belong to the first four columns: six and thirteen teams of one thread would fit too, but four
//! values in a row of the same order of size as the first four of the third machine fit best there.

use super::{Basis, PublishedValue, Used};

const PLACE: &str = "seed 004, table of nested STREAM";

const fn gbs(key: &'static str, what: &'static str, value: f64, used: Used) -> PublishedValue {
    PublishedValue { key, what, value, unit: "GB/s", place: PLACE, basis: Basis::Stated, used }
}

/// The values, machine by machine, unbound and bound, by teams x threads.
pub const STREAM: &[PublishedValue] = &[
    gbs("stream/barcelona/unbound/1x1", "4 x Opteron 8356, 1x1 threads, unbound", 4.4, Used::Calibrated),
    gbs("stream/barcelona/unbound/1x4", "4 x Opteron 8356, 1x4 threads, unbound", 4.9, Used::HeldOut),
    gbs("stream/barcelona/unbound/4x1", "4 x Opteron 8356, 4x1 threads, unbound", 15.0, Used::HeldOut),
    gbs("stream/barcelona/unbound/4x4", "4 x Opteron 8356, 4x4 threads, unbound", 10.7, Used::HeldOut),
    gbs("stream/barcelona/bound/1x1", "4 x Opteron 8356, 1x1 threads, bound", 4.4, Used::Calibrated),
    gbs("stream/barcelona/bound/1x4", "4 x Opteron 8356, 1x4 threads, bound", 7.6, Used::Calibrated),
    gbs("stream/barcelona/bound/4x1", "4 x Opteron 8356, 4x1 threads, bound", 15.8, Used::Calibrated),
    gbs("stream/barcelona/bound/4x4", "4 x Opteron 8356, 4x4 threads, bound", 13.1, Used::HeldOut),
    gbs("stream/tigerton/unbound/1x1", "4 x Xeon X7350, 1x1 threads, unbound", 2.3, Used::Calibrated),
    gbs("stream/tigerton/unbound/1x4", "4 x Xeon X7350, 1x4 threads, unbound", 6.0, Used::HeldOut),
    gbs("stream/tigerton/unbound/4x1", "4 x Xeon X7350, 4x1 threads, unbound", 4.8, Used::HeldOut),
    gbs("stream/tigerton/unbound/4x4", "4 x Xeon X7350, 4x4 threads, unbound", 8.7, Used::HeldOut),
    gbs("stream/tigerton/bound/1x1", "4 x Xeon X7350, 1x1 threads, bound", 2.3, Used::Calibrated),
    gbs("stream/tigerton/bound/1x4", "4 x Xeon X7350, 1x4 threads, bound", 3.0, Used::Calibrated),
    gbs("stream/tigerton/bound/4x1", "4 x Xeon X7350, 4x1 threads, bound", 8.2, Used::HeldOut),
    gbs("stream/tigerton/bound/4x4", "4 x Xeon X7350, 4x4 threads, bound", 8.5, Used::Calibrated),
    gbs("stream/scalemp/unbound/1x1", "ScaleMP, 13 boards, 1x1 threads, unbound", 3.8, Used::Calibrated),
    gbs("stream/scalemp/unbound/1x4", "ScaleMP, 13 boards, 1x4 threads, unbound", 10.7, Used::HeldOut),
    gbs("stream/scalemp/unbound/4x1", "ScaleMP, 13 boards, 4x1 threads, unbound", 11.2, Used::HeldOut),
    gbs("stream/scalemp/unbound/4x4", "ScaleMP, 13 boards, 4x4 threads, unbound", 1.7, Used::HeldOut),
    gbs("stream/scalemp/unbound/6x1", "ScaleMP, 13 boards, 6x1 threads, unbound", 9.0, Used::HeldOut),
    gbs("stream/scalemp/unbound/6x4", "ScaleMP, 13 boards, 6x4 threads, unbound", 1.6, Used::HeldOut),
    gbs("stream/scalemp/unbound/13x1", "ScaleMP, 13 boards, 13x1 threads, unbound", 3.4, Used::HeldOut),
    gbs("stream/scalemp/unbound/13x4", "ScaleMP, 13 boards, 13x4 threads, unbound", 2.4, Used::HeldOut),
    gbs("stream/scalemp/bound/1x1", "ScaleMP, 13 boards, 1x1 threads, bound", 3.8, Used::Calibrated),
    gbs("stream/scalemp/bound/1x4", "ScaleMP, 13 boards, 1x4 threads, bound", 5.9, Used::Calibrated),
    gbs("stream/scalemp/bound/4x1", "ScaleMP, 13 boards, 4x1 threads, bound", 14.4, Used::HeldOut),
    gbs("stream/scalemp/bound/4x4", "ScaleMP, 13 boards, 4x4 threads, bound", 18.8, Used::HeldOut),
    gbs("stream/scalemp/bound/6x1", "ScaleMP, 13 boards, 6x1 threads, bound", 20.4, Used::HeldOut),
    gbs("stream/scalemp/bound/6x4", "ScaleMP, 13 boards, 6x4 threads, bound", 15.8, Used::HeldOut),
    gbs("stream/scalemp/bound/13x1", "ScaleMP, 13 boards, 13x1 threads, bound", 43.0, Used::HeldOut),
    gbs("stream/scalemp/bound/13x4", "ScaleMP, 13 boards, 13x4 threads, bound", 27.8, Used::HeldOut),
];
