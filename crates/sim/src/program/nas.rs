//! Programs like the NAS parallel benchmarks: run time, barrier rate and memory demand.
//!
//! Problem: the published studies ran these programs on machines that no longer exist, and the
//! numbers of their tables of characteristics are not available as text. Idea: derive the profile
//! of each from the benchmark's structure (sizes and iterations are in its source, Bailey and
//! others, RNR-94-007, and NPB 3.4) and from times and sizes measured on a machine of today (class
//! A, one thread, Zen 3). No published result of the studies was used, so that all of them stay
//! predictions.
//!
//! Terms: seconds of work are those of a core of about 2 GHz of 2008, which takes three times as
//! long as the measured core (estimated). The *set* is the data that a thread of 16 uses repeatedly
//! before it needs other data. With more threads it is smaller by `16 / threads` to the power
//! [`Profile::shrink`]: 0 if every thread needs all of it, 1 if the data are divided, 2 for the
//! blocks of an all-to-all exchange.

use super::{Body, Footprint, PagePlacement, ProgramSpec, WaitMode};
use trimtab_core::time::Span;

/// One benchmark in one class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// Name, of two letters.
    pub name: &'static str,
    /// Size class of the problem.
    pub class: char,
    /// Work of all threads together, seconds.
    pub work: f64,
    /// Number of barriers in all.
    pub barriers: u32,
    /// Size of the data that a thread of 16 uses repeatedly, bytes.
    pub set: u64,
    /// Exponent with which the set shrinks as the number of threads grows.
    pub shrink: i32,
    /// Misses of private caches per microsecond of work.
    pub misses: f64,
    /// Misses outstanding at once.
    pub parallelism: f64,
    /// Exponent of the hits, as in [`Footprint::locality`].
    pub locality: f64,
    /// Sources of the numbers: work, barriers, set, misses.
    pub sources: [&'static str; 4],
}

/// Relative difference between the intervals of a thread of up to a tenth of a second: the
/// benchmarks divide their work evenly (estimated). Longer intervals are made of many such pieces,
/// whose noise evens out.
pub const INTERVAL_JITTER: f64 = 0.02;
/// Longest interval to which [`INTERVAL_JITTER`] applies in full, seconds.
const JITTER_SPAN_SECONDS: f64 = 0.1;

const SWEEP_LOCALITY: f64 = 8.0;

/// All benchmarks.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "ep",
        class: 'C',
        work: 379.0,
        barriers: 1,
        set: 64 << 10,
        shrink: 0,
        misses: 0.0,
        parallelism: 4.0,
        locality: 1.0,
        sources: [
            "class A 7.9 s measured, 16 times the numbers, 3 for the core",
            "one sum at the end",
            "NPB source: blocks of 2^16 numbers, made and used up",
            "seed 000, figure 6: the miss rate of EP is very low",
        ],
    },
    Profile {
        name: "cg",
        class: 'B',
        work: 165.0,
        barriers: 5_700,
        set: 10 << 20,
        shrink: 1,
        misses: 30.0,
        parallelism: 6.0,
        locality: SWEEP_LOCALITY,
        sources: [
            "class A 1.5 s measured, 36.6 times the operations (54.7 / 1.496 G), 3 for the core",
            "75 outer times 25 inner iterations, two sums and an exchange each",
            "NPB source: 13.7 M nonzero elements of 12 bytes, over 16 threads",
            "derived: 2.6 M lines a product of matrix and vector, which takes 85 ms of work",
        ],
    },
    Profile {
        name: "mg",
        class: 'B',
        work: 25.0,
        barriers: 640,
        set: 27 << 20,
        shrink: 1,
        misses: 15.0,
        parallelism: 8.0,
        locality: SWEEP_LOCALITY,
        sources: [
            "class A 1.7 s measured, 5 times the iterations, 3 for the core",
            "20 iterations over 8 grids, four exchanges each",
            "class A 434 MiB resident, the same grid; over 16 threads",
            "derived: 8 passes of 134 MB, and an eighth for coarser grids, in 1.25 s of work",
        ],
    },
    Profile {
        name: "ft",
        class: 'B',
        work: 132.0,
        barriers: 40,
        set: 2 << 20,
        shrink: 2,
        misses: 13.0,
        parallelism: 6.0,
        locality: 1.0,
        sources: [
            "class A 3.4 s measured, 12.9 times the operations (92 / 7.14 G), 3 for the core",
            "20 iterations, one exchange between two barriers each",
            "derived: 512 MB of data in 16 x 16 blocks, each packed, sent and unpacked",
            "derived: five passes of reading and writing 512 MB in 6.6 s of work",
        ],
    },
    Profile {
        name: "is",
        class: 'C',
        work: 82.0,
        barriers: 88,
        set: 2 << 20,
        shrink: 1,
        misses: 21.0,
        parallelism: 2.0,
        locality: 1.0,
        sources: [
            "class A 1.7 s measured, 16 times the keys, 3 for the core",
            "11 rankings of eight steps",
            "NPB source: counters of 2^23 possible keys, 4 bytes each, over 16 threads",
            "derived: 2^27 keys counted at random places, and three sweeps, in 7.5 s of work",
        ],
    },
    Profile {
        name: "lu",
        class: 'A',
        work: 80.0,
        barriers: 32_000,
        set: 2_400 << 10,
        shrink: 1,
        misses: 8.0,
        parallelism: 4.0,
        locality: 4.0,
        sources: [
            "class A 26.7 s measured, 3 for the core",
            "250 iterations of two sweeps, neighbours wait at each of 64 planes",
            "class A 38 MiB resident, over 16 threads",
            "derived: four passes of 38 MiB in 320 ms of work",
        ],
    },
    Profile {
        name: "sp",
        class: 'A',
        work: 73.0,
        barriers: 2_400,
        set: 3 << 20,
        shrink: 1,
        misses: 18.0,
        parallelism: 6.0,
        locality: 4.0,
        sources: [
            "class A 24.2 s measured, 3 for the core",
            "400 iterations of six steps",
            "class A 48 MiB resident, over 16 threads",
            "derived: 200 MB, the right side and the factors in three directions, in 182 ms of work",
        ],
    },
    Profile {
        name: "bt",
        class: 'A',
        work: 177.0,
        barriers: 1_200,
        set: 3 << 20,
        shrink: 1,
        misses: 3.7,
        parallelism: 6.0,
        locality: 4.0,
        sources: [
            "class A 59 s measured (one rank), 3 for the core",
            "200 iterations of six steps",
            "class A 46 MiB resident, over 16 threads",
            "derived: 200 MB in 885 ms of work",
        ],
    },
    Profile {
        name: "ua",
        class: 'A',
        work: 110.0,
        barriers: 8_000,
        set: 2_200 << 10,
        shrink: 1,
        misses: 10.0,
        parallelism: 3.0,
        locality: 1.0,
        sources: [
            "class A 36.6 s measured, 3 for the core",
            "200 steps, estimated: 40 loops over elements each",
            "class A 36 MiB resident, over 16 threads",
            "estimated: between LU and SP, through index lists",
        ],
    },
];

/// Returns the profile of this name.
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl Profile {
    /// Returns the work between two barriers of a thread, for a program of `threads` threads.
    pub fn interval(&self, threads: u32) -> Span {
        Span((self.work * 1e9 / f64::from(self.barriers) / f64::from(threads.max(1))) as u64)
    }

    /// Returns the size of the data that a thread of `threads` uses repeatedly, bytes.
    pub fn set(&self, threads: u32) -> u64 {
        let smaller = (16.0 / f64::from(threads.max(1))).powi(self.shrink);
        (self.set as f64 * smaller) as u64
    }

    /// Returns the benchmark with this number of threads. Iterations do not differ, so the first
    /// `most` seconds of a thread of 16 are enough of a long run.
    pub fn program(&self, threads: u32, wait: WaitMode, most: f64) -> ProgramSpec {
        let whole = self.work.min(most * 16.0) / f64::from(threads.max(1));
        let work = Span((whole * 1e9) as u64);
        let mut program = ProgramSpec::spmd(&format!("{}.{}", self.name, self.class), threads, work, wait)
            .every(self.interval(threads));
        if let Body::Spmd { jitter, .. } = &mut program.body {
            let pieces = self.interval(threads).min(work).seconds() / JITTER_SPAN_SECONDS;
            *jitter = INTERVAL_JITTER / pieces.max(1.0).sqrt();
        }
        program.footprint = Footprint {
            working_set: self.set(threads),
            misses: self.misses,
            parallelism: self.parallelism,
            locality: self.locality,
            shared: 0,
            shared_writes: 0.0,
            pages: PagePlacement::FirstTouch,
        };
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nine_are_there_once_with_sane_numbers() {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        assert_eq!(names, ["ep", "cg", "mg", "ft", "is", "lu", "sp", "bt", "ua"]);
        for profile in PROFILES {
            assert!(profile.work > 0.0 && profile.barriers > 0 && profile.misses >= 0.0, "{}", profile.name);
            assert!(profile.sources.iter().all(|source| source.len() > 8), "{}", profile.name);
        }
    }

    #[test]
    fn more_threads_have_less_each() {
        let cg = find("cg").unwrap();
        assert_eq!(cg.set(32), cg.set(16) / 2);
        assert_eq!(find("ft").unwrap().set(32), find("ft").unwrap().set(16) / 4);
        assert_eq!(cg.interval(64).0, cg.interval(16).0 / 4);
        let works = |threads| match cg.program(threads, WaitMode::Yield, 1.0).body {
            Body::Spmd { work, .. } => work.seconds() * f64::from(threads),
            _ => 0.0,
        };
        assert!((works(16) - works(64)).abs() < 1e-6);
    }

    #[test]
    fn fine_and_coarse_grain_are_as_the_studies_describe_them() {
        // "Barriers executed every few ms" in CG, MG and SP; EP, FT and IS are coarse.
        let ms = |name: &str| find(name).unwrap().interval(16).seconds() * 1e3;
        assert!(["cg", "mg", "sp"].iter().all(|name| (0.5..10.0).contains(&ms(name))));
        assert!(["ft", "is"].iter().all(|name| (20.0..500.0).contains(&ms(name))));
        assert!(ms("ep") > 10_000.0);
    }
}
