//! Published results about the machines of the studies: values and orders, as data, with their
//! places in the texts.
//!
//! Unit: one number that a text gives. Problem: comparing a model with the data that it was made
//! from proves nothing. Idea: each value states whether a machine file was calibrated on it or it
//! is held out, and whether the text states it or it follows exactly from statements of the text.
//! Only numbers of figures that the texts give are here: bars and curves that are only drawn cannot
//! be read.
//!
//! Source: the seeds' texts. 000 is *Oversubscription on Multicore Processors*, 001 the poster of
//! *Efficient Utilization of Multicore Machines* with *Load Balancing on Speed*, 002 *Optimizing
//! Virtual Machine Scheduling in NUMA Multicore Systems*, 004 *Binding Nested OpenMP Programs on
//! Hierarchical Memory Architectures*.

use serde::Serialize;

mod stream;

pub use stream::STREAM;

/// Whether a value was used to make the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Used {
    /// A number in a machine file was set by it, or a reading of the text was chosen by it.
    Calibrated,
    /// The value was not used: the model predicts it.
    HeldOut,
}

/// Form in which a text gives a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// As a number.
    Stated,
    /// Follows exactly from stated values.
    Derived,
    /// In words without a number, such as "does not hurt": no effect.
    Worded,
}

/// Published number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PublishedValue {
    /// Name, which is unique among the values.
    pub key: &'static str,
    /// Description of the quantity.
    pub what: &'static str,
    /// Number.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
    /// Place in the text.
    pub place: &'static str,
    /// Form in the text.
    pub basis: Basis,
    /// Whether the model was made from the value.
    pub used: Used,
}

const fn held(
    key: &'static str,
    what: &'static str,
    value: f64,
    unit: &'static str,
    place: &'static str,
    basis: Basis,
) -> PublishedValue {
    PublishedValue { key, what, value, unit, place, basis, used: Used::HeldOut }
}

const RATIO: &str = "ratio";

/// Speed balancing: seed 001 and the analysis of Hofmeyr, Iancu and Blagojevic.
pub const BALANCING: &[PublishedValue] = &[
    held(
        "balancing/3-on-2/load",
        "three threads on two cores, LOAD, pollers: time over T",
        2.0,
        "T",
        "Load Balancing on Speed, introduction: queue lengths 2 and 1 are balanced",
        Basis::Derived,
    ),
    held(
        "balancing/3-on-2/pinned",
        "three threads on two cores, PINNED: time over T",
        2.0,
        "T",
        "Load Balancing on Speed, introduction",
        Basis::Derived,
    ),
    held(
        "balancing/3-on-2/speed",
        "three threads on two cores, SPEED: time over T",
        1.5,
        "T",
        "Load Balancing on Speed, introduction: the limit of equal speeds",
        Basis::Derived,
    ),
    held(
        "balancing/17-on-16/gain",
        "17 threads on 16 cores: PINNED over balanced",
        1.80,
        RATIO,
        "Juggle (HPDC 2011), abstract: up to 80 % better than static balancing",
        Basis::Stated,
    ),
    held(
        "balancing/pinned/2",
        "16 threads of EP, PINNED on 2 cores: speed-up",
        2.0,
        "",
        "seed 001: each task bound to a single core; 16 over ceil(16 / 2)",
        Basis::Derived,
    ),
    held(
        "balancing/pinned/4",
        "16 threads of EP, PINNED on 4 cores: speed-up",
        4.0,
        "",
        "seed 001; 16 over ceil(16 / 4)",
        Basis::Derived,
    ),
    held(
        "balancing/pinned/6",
        "16 threads of EP, PINNED on 6 cores: speed-up",
        16.0 / 3.0,
        "",
        "seed 001; 16 over ceil(16 / 6)",
        Basis::Derived,
    ),
    held(
        "balancing/pinned/8",
        "16 threads of EP, PINNED on 8 cores: speed-up",
        8.0,
        "",
        "seed 001; 16 over ceil(16 / 8)",
        Basis::Derived,
    ),
    held(
        "balancing/pinned/12",
        "16 threads of EP, PINNED on 12 cores: speed-up",
        8.0,
        "",
        "seed 001; 16 over ceil(16 / 12)",
        Basis::Derived,
    ),
    held(
        "balancing/pinned/16",
        "16 threads of EP, PINNED on 16 cores: speed-up",
        16.0,
        "",
        "seed 001; 16 over ceil(16 / 16)",
        Basis::Derived,
    ),
];

/// Oversubscription: seed 000.
pub const OVERSUBSCRIPTION: &[PublishedValue] = &[
    held(
        "oversubscription/ep",
        "EP with 2, 4, 8 threads a core over 1: speed, the one that differs most",
        1.0,
        RATIO,
        "seed 000, UPC: EP computationally intensive, unaffected",
        Basis::Worded,
    ),
    held(
        "oversubscription/ft-is",
        "FT and IS, best over all machines and threads a core: speed over 1 a core",
        1.46,
        RATIO,
        "seed 000, UPC: FT, IS: improvement up to 46 %",
        Basis::Stated,
    ),
    held(
        "oversubscription/cg",
        "CG, worst over all machines and threads a core: speed over 1 a core",
        0.56,
        RATIO,
        "seed 000, UPC: CG: degradation up to 44 %",
        Basis::Stated,
    ),
    held(
        "oversubscription/mean",
        "all benchmarks, machines and threads a core: mean speed over 1 a core",
        1.0,
        RATIO,
        "seed 000, UPC: small overall effect, +-2 % on average",
        Basis::Stated,
    ),
    held(
        "oversubscription/mpi",
        "polling without POSIX yield, all benchmarks: mean speed over 1 a core",
        0.9,
        RATIO,
        "seed 000, MPI: overall decrease by 10 %",
        Basis::Stated,
    ),
    held(
        "oversubscription/blocktime-0",
        "OpenMP, fine grain, sleep at once against polling first, oversubscribed: best gain",
        1.10,
        RATIO,
        "seed 000, OpenMP: KMP_BLOCKTIME 0, improvement up to 10 % for fine-grained benchmarks",
        Basis::Stated,
    ),
    held(
        "sharing/barcelona/upc",
        "sharing all cores over partitions of sockets, Barcelona, UPC: speed",
        1.33,
        RATIO,
        "seed 000: overall 33 % improvement with sharing, one thread per core",
        Basis::Stated,
    ),
    held(
        "sharing/barcelona/openmp",
        "sharing all cores over partitions of sockets, Barcelona, OpenMP: speed",
        1.23,
        RATIO,
        "seed 000: overall 23 % improvement with sharing, one thread per core",
        Basis::Stated,
    ),
    held(
        "sharing/nehalem/upc",
        "sharing all cores over partitions of sockets, Nehalem, UPC: speed",
        1.0,
        RATIO,
        "seed 000: no difference for Nehalem (SMT)",
        Basis::Worded,
    ),
];

/// One factor and several of the micro-benchmark: seed 002.
pub const FACTORS: &[PublishedValue] = &[
    held(
        "factors/locality/4M",
        "one thread, 4 MB, remote over local memory: time",
        1.0,
        RATIO,
        "seed 002, single factor (a): below the LLC, remote access does not hurt",
        Basis::Worded,
    ),
    held(
        "factors/locality/8M",
        "one thread, 8 MB, remote over local memory: time",
        1.0,
        RATIO,
        "seed 002, single factor (a): below the LLC, remote access does not hurt",
        Basis::Worded,
    ),
    held(
        "factors/sharing/1",
        "one thread adding to one line, across over within sockets: time",
        1.0,
        RATIO,
        "seed 002, single factor (c): one thread shares with nobody",
        Basis::Derived,
    ),
];

/// Bias random migration: seed 002.
pub const MIGRATION: &[PublishedValue] = &[
    held(
        "migration/best",
        "bias random migration, best of all workloads: time over the credit scheduler's",
        1.0 - 0.317,
        RATIO,
        "seed 002, improving performance: up to 31.7 %",
        Basis::Stated,
    ),
    PublishedValue {
        key: "migration/overhead/8",
        what: "bias random migration, eight threads: overhead",
        value: 6.4,
        unit: "%",
        place: "seed 002, overhead: up to 6.4 % for 8 threads",
        basis: Basis::Stated,
        used: Used::Calibrated,
    },
];

/// Returns every value.
pub fn all() -> impl Iterator<Item = &'static PublishedValue> {
    [BALANCING, OVERSUBSCRIPTION, FACTORS, STREAM, MIGRATION].into_iter().flatten()
}

/// Returns the value of this key.
pub fn find(key: &str) -> Option<&'static PublishedValue> {
    all().find(|value| value.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shipped;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_unique_and_numbers_are_numbers() {
        let keys: BTreeSet<&str> = all().map(|value| value.key).collect();
        assert_eq!(keys.len(), all().count());
        assert!(all().all(|value| value.value.is_finite() && value.value > 0.0 && !value.place.is_empty()));
    }

    #[test]
    fn the_calibration_points_of_machine_files_are_those_marked_calibrated() {
        // The heads of the files: "Calibrated on seed 004, nested STREAM: 1x1, 1x4 bound, 4x1
        // bound."
        for (machine, prefix) in [
            ("barcelona-8356", "stream/barcelona"),
            ("tigerton-x7350", "stream/tigerton"),
            ("scalemp-e5420", "stream/scalemp"),
        ] {
            let text = shipped::SHIPPED.iter().find(|shipped| shipped.name == machine).unwrap().text;
            let head = text.lines().find(|line| line.contains("Calibrated on")).unwrap();
            let said = head.split_once("STREAM:").unwrap().1.split_once(". Held").unwrap().0;
            let said: BTreeSet<String> = said
                .split([',', ' '])
                .map(|word| word.trim().trim_end_matches('.'))
                .filter(|word| word.contains('x'))
                .map(str::to_owned)
                .collect();
            let used: BTreeSet<String> = STREAM
                .iter()
                .filter(|value| value.key.starts_with(prefix) && value.used == Used::Calibrated)
                .map(|value| value.key.rsplit('/').next().unwrap().to_owned())
                .collect();
            assert_eq!(said, used, "{machine}");
        }
    }

    #[test]
    fn one_thread_is_the_same_bound_or_not() {
        for machine in ["barcelona", "tigerton", "scalemp"] {
            let value = |how: &str| find(&format!("stream/{machine}/{how}/1x1")).unwrap().value;
            assert_eq!(value("bound"), value("unbound"));
        }
    }
}
