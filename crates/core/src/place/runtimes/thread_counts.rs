//! Table of thread-pool runtimes: the variable for a thread count, and the default count of each
//! runtime.
//!
//! Problem: a count exported by a launcher looks like a setting of the user. Programs then stop
//! (GROMACS compares the variable with its options), and libraries lose their own protection
//! (joblib, scikit-learn, torchrun and mpirun limit inner threads only if the variable is absent).
//! Idea: most runtimes count the CPUs of the affinity mask, which the launcher sets anyway. The
//! table lists which runtimes do, so that a variable is set only if the mask does not convey the
//! count.
//!
//! Source: each row was tested with the versions that it names, by running the runtime under
//! `taskset -c 1` on a machine with two CPUs and reading its count back. The behaviour with quotas
//! is from the manuals.

/// Default of a runtime's number of threads, used if no variable sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultCount {
    /// One thread for each CPU of the affinity mask. The runtime ignores a CPU quota.
    Mask,
    /// Number of CPUs of the mask, or of the cgroup's quota if that is less.
    MaskAndQuota,
    /// One thread for each online CPU of the machine. The preload library answers this query from
    /// the plan.
    Machine,
    /// One thread.
    One,
}

/// Variable with a thread count.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCount {
    /// Name of the variable.
    pub name: &'static str,
    /// Runtime that reads it.
    pub reader: &'static str,
    /// Default count without the variable.
    pub default: DefaultCount,
    /// Whether the runtime reads `OMP_NUM_THREADS` if its own variable is absent.
    pub follows_openmp: bool,
    /// Whether a user's count that exceeds the CPUs of the run is lowered (`--fit`). Only for pools
    /// with two properties: surplus threads delay the others, and the thread count never needs to
    /// be exact.
    pub fits: bool,
    /// Reason why trimtab never sets the variable; `None` if it may.
    pub never: Option<&'static str>,
    /// Versions with which the row was tested.
    pub tried: &'static str,
}

impl ThreadCount {
    const fn new(name: &'static str, reader: &'static str, default: DefaultCount) -> Self {
        Self { name, reader, default, follows_openmp: false, fits: false, never: None, tried: "" }
    }

    const fn follows_openmp(self) -> Self {
        Self { follows_openmp: true, ..self }
    }

    const fn fits(self) -> Self {
        Self { fits: true, ..self }
    }

    const fn never(self, why: &'static str) -> Self {
        Self { never: Some(why), ..self }
    }

    const fn tried(self, versions: &'static str) -> Self {
        Self { tried: versions, ..self }
    }
}

/// Variable of OpenMP. Its value may be a list: one count for each nesting level.
pub const OPENMP: &str = "OMP_NUM_THREADS";

/// All rows, OpenMP first.
pub const THREAD_COUNTS: [ThreadCount; 12] = [
    ThreadCount::new(OPENMP, "OpenMP", DefaultCount::Mask)
        .fits()
        .tried("libgomp 12.2, libomp 14.0, libiomp5 2026.2"),
    ThreadCount::new("OPENBLAS_NUM_THREADS", "OpenBLAS", DefaultCount::Mask)
        .follows_openmp()
        .fits()
        .tried("0.3.21 (Debian 12), 0.3.31 (wheel of numpy 2.4)"),
    ThreadCount::new("MKL_NUM_THREADS", "Intel MKL", DefaultCount::Mask)
        .follows_openmp()
        .fits()
        .tried("2026.2 (mkl_rt.so.3)"),
    ThreadCount::new("BLIS_NUM_THREADS", "BLIS", DefaultCount::One)
        .follows_openmp()
        .fits()
        .tried("0.9.0 (Debian 12)"),
    ThreadCount::new("NUMEXPR_NUM_THREADS", "numexpr", DefaultCount::Machine)
        .follows_openmp()
        .fits()
        .tried("2.14.2"),
    ThreadCount::new("NUMEXPR_MAX_THREADS", "numexpr", DefaultCount::Machine)
        .follows_openmp()
        .never("it is an upper bound: numexpr.set_num_threads() beyond it is an error")
        .tried("2.14.2"),
    ThreadCount::new("NUMBA_NUM_THREADS", "numba", DefaultCount::Mask)
        .never("it is an upper bound: numba.set_num_threads() beyond it is an error")
        .tried("0.68.1"),
    ThreadCount::new("RAYON_NUM_THREADS", "Rayon (Rust)", DefaultCount::MaskAndQuota).tried("1.10"),
    ThreadCount::new("JULIA_NUM_THREADS", "Julia", DefaultCount::One).tried("none: by its manual"),
    ThreadCount::new("POLARS_MAX_THREADS", "Polars", DefaultCount::MaskAndQuota).tried("2.1.0"),
    // Go counts the quota since 1.25.
    ThreadCount::new("GOMAXPROCS", "Go", DefaultCount::Mask).tried("1.19, 1.26"),
    ThreadCount::new("JAVA_TOOL_OPTIONS", "JVM", DefaultCount::MaskAndQuota)
        .never("the JVM counts the CPU mask and the quota itself, and would report the variable on stderr")
        .tried("17, 25 (OpenJDK)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_unique_name_and_the_versions_tried() {
        let names: BTreeSet<_> = THREAD_COUNTS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), THREAD_COUNTS.len());
        assert!(THREAD_COUNTS.iter().all(|row| !row.tried.is_empty() && !row.reader.is_empty()));
        assert_eq!(THREAD_COUNTS[0].name, OPENMP);
    }

    #[test]
    fn an_upper_bound_is_never_lowered() {
        assert!(THREAD_COUNTS.iter().all(|row| row.never.is_none() || !row.fits));
    }
}
