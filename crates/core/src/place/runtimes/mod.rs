//! Table of the runtimes that run the threads or ranks of a program: OpenMP, MPI, teams, POSIX
//! threads.
//!
//! Problem: the launcher, the reader of ELF files, the preload library and the advice ask different
//! questions about the same runtime: which library it is, how to set its places, how its threads
//! wait. Idea: one [`Runtime`] names it everywhere, and one [`RuntimeRow`] answers all questions. A
//! new runtime needs a variant, a row here, and an interface of the preload library that reports
//! its regions or barriers.
//!
//! [`THREAD_COUNTS`] is the table of the variables for a thread count, by library (BLAS, pools of
//! languages). [`HELPER_LIBRARIES`] lists the libraries with threads that take no slot.
//! [`RANK_VARIABLES`] lists the variables that number the ranks of a job.

mod thread_counts;

pub use thread_counts::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};

use super::waiting::How;
use serde::{Deserialize, Serialize};

/// Runtime of a program's threads or ranks.
///
/// The order is that of the bits in the preload library's page of barriers (`core::sync_stats`), so
/// a new runtime is appended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// GCC's OpenMP.
    Libgomp,
    /// LLVM's OpenMP and Intel's (libiomp5), which has the same code.
    Libomp,
    /// Open MPI.
    OpenMpi,
    /// MPICH and the libraries with its interface (Intel MPI, MVAPICH).
    Mpich,
    /// Teams of this project.
    Team,
    /// POSIX threads with barriers of the C library.
    Pthread,
}

/// Kind of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuntimeKind {
    /// Threads in parallel regions.
    OpenMp,
    /// Processes that pass messages.
    Mpi,
    /// Threads or processes of a team of this project.
    Team,
    /// Threads that the program starts itself.
    Threads,
}

/// Variable with which an OpenMP runtime gets the exact places of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceSyntax {
    /// `OMP_PLACES` and `OMP_PROC_BIND`.
    OmpPlaces,
    /// `KMP_AFFINITY`. LLVM's runtime reads `OMP_PLACES` too, but with a list of places in it
    /// version 14 frees memory twice in a forked child, and the program crashes.
    KmpAffinity,
}

/// Ways in which threads wait, depending on whether there are more threads than CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Way of waiting if every thread has a CPU.
    pub uncrowded: How,
    /// Way of waiting if there are more threads than CPUs. The runtime compares its own threads
    /// with the mask.
    pub crowded: How,
}

impl Waits {
    const fn always(how: How) -> Self {
        Self { uncrowded: how, crowded: how }
    }

    /// Returns the way of waiting.
    pub const fn of(self, crowded: bool) -> How {
        if crowded { self.crowded } else { self.uncrowded }
    }
}

/// Facts about one runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeRow {
    /// The runtime.
    pub runtime: Runtime,
    /// Kind of the runtime.
    pub kind: RuntimeKind,
    /// Owner as reports name it: `3 regions of GNU's runtime`.
    pub owner: &'static str,
    /// Prefixes of its libraries' names, before `.so` or a packager's `-HASH.so`.
    pub libraries: &'static [&'static str],
    /// Variable for exact places; `None` if trimtab sets no places.
    pub places: Option<PlaceSyntax>,
    /// Whether it binds threads again by itself after places were set, so that the preload library
    /// must verify the masks that it gave.
    pub rebinds: bool,
    /// Whether it creates new threads for inner teams in each region.
    pub recreates_inner_teams: bool,
    /// Whether every thread that opens a team by itself gets the first places, so that the teams of
    /// several threads share the same CPUs.
    pub reuses_first_places: bool,
    /// Variables that set how its threads wait.
    pub wait_variables: &'static [&'static str],
    /// Default way of waiting.
    pub waits: Waits,
    /// Way of waiting if the variables ask for spinning.
    pub spins: Waits,
}

/// All rows, in the order of [`Runtime`].
///
/// Sources: libgomp 12.2 and libomp 14.0 by their sources and by running them; Open MPI 4.1 and
/// MPICH 4.0 by running them.
pub const RUNTIMES: [RuntimeRow; 6] = [
    RuntimeRow {
        libraries: &["libgomp"],
        places: Some(PlaceSyntax::OmpPlaces),
        recreates_inner_teams: true,
        reuses_first_places: true,
        wait_variables: &["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"],
        // It spins 300,000 rounds, longer than most phases, and a thousand rounds if it counts more
        // threads of its own than CPUs.
        waits: Waits { uncrowded: How::Spin, crowded: How::Brief },
        spins: Waits { uncrowded: How::Spin, crowded: How::Brief },
        ..RuntimeRow::new(Runtime::Libgomp, RuntimeKind::OpenMp, "GNU's runtime")
    },
    RuntimeRow {
        libraries: &["libomp", "libiomp5"],
        places: Some(PlaceSyntax::KmpAffinity),
        rebinds: true,
        wait_variables: &["OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_USE_YIELD"],
        waits: Waits::always(How::Yield),
        spins: Waits { uncrowded: How::Spin, crowded: How::Yield },
        ..RuntimeRow::new(Runtime::Libomp, RuntimeKind::OpenMp, "LLVM's or Intel's")
    },
    RuntimeRow {
        libraries: &["libmpi"],
        wait_variables: &["OMPI_MCA_mpi_yield_when_idle"],
        ..RuntimeRow::new(Runtime::OpenMpi, RuntimeKind::Mpi, "Open MPI")
    },
    RuntimeRow { libraries: &["libmpich"], ..RuntimeRow::new(Runtime::Mpich, RuntimeKind::Mpi, "MPICH") },
    RuntimeRow {
        libraries: &["libtrimtab_team"],
        waits: Waits::always(How::Brief),
        ..RuntimeRow::new(Runtime::Team, RuntimeKind::Team, "teams of trimtab")
    },
    RuntimeRow {
        waits: Waits::always(How::Sleep),
        ..RuntimeRow::new(Runtime::Pthread, RuntimeKind::Threads, "the C library")
    },
];

/// Prefixes of library files with threads that belong to no code of the program. A thread with its
/// start routine in such a library takes no slot.
pub const HELPER_LIBRARIES: [&str; 11] = [
    // OpenMP.
    "libgomp",
    "libomp",
    "libiomp",
    "libnvomp",
    // An allocator that returns memory in its own thread, and a tracer.
    "libjemalloc",
    "liblttng-ust",
    // Progress of Open MPI, PMIx and UCX.
    "libopen-pal",
    "libpmix",
    "libucs",
    // Devices.
    "libcuda.",
    "libhsa-runtime",
];

/// Variables with which a user binds OpenMP threads; any of them means that the user decides. The
/// first two are those of the standard, which trimtab sets itself.
pub const BINDING_VARIABLES: [&str; 4] = ["OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// Variables in which launchers give a process its rank in the whole job, innermost first.
pub const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

impl RuntimeRow {
    /// Creates a row for a runtime without settings that spins, as most message passing does.
    const fn new(runtime: Runtime, kind: RuntimeKind, owner: &'static str) -> Self {
        Self {
            runtime,
            kind,
            owner,
            libraries: &[],
            places: None,
            rebinds: false,
            recreates_inner_teams: false,
            reuses_first_places: false,
            wait_variables: &[],
            waits: Waits::always(How::Spin),
            spins: Waits::always(How::Spin),
        }
    }
}

impl Runtime {
    /// Number of runtimes.
    pub const COUNT: usize = RUNTIMES.len();

    /// Returns all runtimes, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Self> {
        RUNTIMES.iter().map(|row| row.runtime)
    }

    /// Returns the facts about the runtime.
    pub const fn row(self) -> &'static RuntimeRow {
        const ROWS: &[RuntimeRow; Runtime::COUNT] = &RUNTIMES;
        &ROWS[self as usize]
    }

    /// Returns whether it runs OpenMP threads.
    pub fn is_openmp(self) -> bool {
        self.row().kind == RuntimeKind::OpenMp
    }

    /// Returns whether it runs MPI ranks.
    pub fn is_mpi(self) -> bool {
        self.row().kind == RuntimeKind::Mpi
    }

    /// Returns the OpenMP runtime of a library's file name, which may include the versions and
    /// hashes added by packagers.
    pub fn openmp_library(name: &str) -> Option<Self> {
        let is = |stem: &&str| {
            let rest = name.strip_prefix(stem);
            rest.is_some_and(|rest| {
                rest.starts_with(".so") || (rest.starts_with('-') && rest.contains(".so"))
            })
        };
        let found =
            RUNTIMES.iter().find(|row| row.kind == RuntimeKind::OpenMp && row.libraries.iter().any(is));
        found.map(|row| row.runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runtime_has_its_row_at_its_place() {
        for (at, row) in RUNTIMES.iter().enumerate() {
            assert_eq!((row.runtime as usize, row.runtime.row().runtime), (at, row.runtime));
        }
    }

    #[test]
    fn openmp_runtimes_get_places_and_have_helper_threads() {
        for row in RUNTIMES.iter().filter(|row| row.kind == RuntimeKind::OpenMp) {
            assert!(row.places.is_some() && !row.libraries.is_empty(), "{row:?}");
            let helps = |stem: &&str| HELPER_LIBRARIES.iter().any(|helper| stem.starts_with(helper));
            assert!(row.libraries.iter().all(helps), "{row:?}");
        }
    }

    #[test]
    fn openmp_runtimes_are_known_under_packagers_names() {
        for (name, runtime) in [
            ("libgomp.so.1", Some(Runtime::Libgomp)),
            ("libgomp-a34b3233.so.1.0.0", Some(Runtime::Libgomp)),
            ("libomp.so", Some(Runtime::Libomp)),
            ("libomp.so.5", Some(Runtime::Libomp)),
            ("libomp-14.so.5", Some(Runtime::Libomp)),
            ("libiomp5.so", Some(Runtime::Libomp)),
            ("libompstub.so", None),
            ("libgomp-plugin", None),
            ("libgomp", None),
            ("libmpi.so.40", None),
            ("libm.so.6", None),
            ("", None),
        ] {
            assert_eq!(Runtime::openmp_library(name), runtime, "{name:?}");
        }
    }
}
