//! Single-threaded jobs like those of SPEC CPU2006 that seed 002 ran: mcf, milc, soplex, sphinx3.
//!
//! Problem: the programs themselves are not available here, and the study shows its measurements of
//! them only in drawings. Idea: derive each profile from two facts that have been published often:
//! its misses in a thousand instructions with a private cache of 256 KB and with last levels of
//! some MB, and the size of its data.
//!
//! Terms: a microsecond of work is 3,000 instructions (estimated: 2.4 GHz and 0.8 cycles an
//! instruction if nothing misses). Hits of the last level are `(held / set) ^ locality`; set and
//! locality are solved from the misses at two sizes.
//!
//! Confidence: no table of these numbers could be looked up again. Misses follow curves of miss
//! rate over cache size (Jaleel 2007, SPEC CPU2006 under a simulator) as recalled: right within a
//! third, for example. Parallelism is the least certain: within a factor of two.

use super::{Footprint, PagePlacement, ProgramSpec, WaitMode};
use trimtab_core::time::Span;

/// One job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobProfile {
    /// Name.
    pub name: &'static str,
    /// Misses of a private cache of 256 KB in a thousand instructions.
    pub misses: f64,
    /// Size of the data used repeatedly, bytes.
    pub set: u64,
    /// Exponent of the hits, as in [`Footprint::locality`].
    pub locality: f64,
    /// Misses outstanding at once.
    pub parallelism: f64,
    /// Sources of the numbers: misses, set and locality, parallelism.
    pub sources: [&'static str; 3],
}

/// Thousands of instructions per microsecond of work.
const KILO_INSTRUCTIONS_PER_US: f64 = 3.0;

/// All jobs, in the order of the study's figures.
pub const JOBS: &[JobProfile] = &[
    JobProfile {
        name: "soplex",
        misses: 35.0,
        set: 24 << 20,
        locality: 0.61,
        parallelism: 3.0,
        sources: [
            "35 of 1,000 with 256 KB, as recalled",
            "24 of 1,000 with 3.5 MB and 12 with 12 MB, as recalled: its matrix of some 20 MB comes to fit large caches",
            "estimated: rows of sparse matrices, part sweeps, part lookups",
        ],
    },
    JobProfile {
        name: "mcf",
        misses: 70.0,
        set: 52 << 20,
        locality: 0.24,
        parallelism: 2.0,
        sources: [
            "70 of 1,000 with 256 KB, as recalled: the highest of all",
            "35 of 1,000 with 3 MB and 20 with 12 MB, as recalled; few nodes are hot, the rest of 1.7 GB is cold",
            "estimated: pointers of a network, a few chains at once",
        ],
    },
    JobProfile {
        name: "milc",
        misses: 27.0,
        set: 600 << 20,
        locality: 8.0,
        parallelism: 6.0,
        sources: [
            "27 of 1,000 with 256 KB, as recalled",
            "the same with 64 MB, as recalled: sweeps over 680 MB",
            "estimated: sweeps, which are fetched ahead",
        ],
    },
    JobProfile {
        name: "sphinx3",
        misses: 14.0,
        set: 14 << 20,
        locality: 1.6,
        parallelism: 3.0,
        sources: [
            "14 of 1,000 with 256 KB, as recalled",
            "12 of 1,000 with 4 MB and 3 with 12 MB, as recalled: models of some 10 MB",
            "estimated: sweeps over tables in an order that data give",
        ],
    },
];

/// Returns the job of this name.
pub fn find(name: &str) -> Option<&'static JobProfile> {
    JOBS.iter().find(|job| job.name == name)
}

impl JobProfile {
    /// Returns the job as a program, with its memory on these pages.
    pub fn program(&self, work: Span, pages: PagePlacement) -> ProgramSpec {
        let program = ProgramSpec::spmd(self.name, 1, work, WaitMode::Sleep);
        let footprint = Footprint {
            working_set: self.set,
            misses: self.misses * KILO_INSTRUCTIONS_PER_US,
            parallelism: self.parallelism,
            locality: self.locality,
            shared: 0,
            shared_writes: 0.0,
            pages,
        };
        ProgramSpec { footprint, ..program }
    }
}

/// Returns four jobs to run together: four of the named job, or one of each.
pub fn four(name: Option<&str>, work: Span, pages: PagePlacement) -> Vec<ProgramSpec> {
    let one = name.and_then(find);
    let of = |at: usize| if name.is_some() { one } else { JOBS.get(at) };
    let program = |at: usize| {
        let mut program = of(at)?.program(work, pages);
        // Copies are named as `count` of a scenario file names them.
        if name.is_some() {
            program.name = format!("{} {}", program.name, at + 1);
        }
        Some(program)
    };
    (0..4).filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_a_kind_or_one_of_each() {
        let names = |name| -> Vec<String> {
            let all = four(name, Span::from_ms(10), PagePlacement::Node(0));
            all.into_iter().map(|program| program.name).collect()
        };
        assert_eq!(names(Some("mcf")), ["mcf 1", "mcf 2", "mcf 3", "mcf 4"]);
        assert_eq!(names(None), ["soplex", "mcf", "milc", "sphinx3"]);
        assert!(names(Some("quake")).is_empty());
    }

    #[test]
    fn misses_at_two_sizes_are_those_that_were_solved_for() {
        let left = |name: &str, mib: f64| {
            let job = find(name).unwrap();
            job.misses * (1.0 - (mib * 1048576.0 / job.set as f64).min(1.0).powf(job.locality))
        };
        for (name, mib, misses) in [
            ("mcf", 3.0, 35.0),
            ("mcf", 12.0, 20.0),
            ("soplex", 3.5, 24.0),
            ("soplex", 12.0, 12.0),
            ("sphinx3", 4.0, 12.0),
            ("sphinx3", 12.0, 3.0),
            ("milc", 64.0, 27.0),
        ] {
            assert!((left(name, mib) / misses - 1.0).abs() < 0.1, "{name} {mib}: {}", left(name, mib));
        }
    }
}
