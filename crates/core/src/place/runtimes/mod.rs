//! Table of the runtimes that run the threads or ranks of a program: OpenMP, MPI, teams, POSIX threads.
//!
//! Problem: the launcher, the reader of ELF files, the preload library and the advice each ask
//! another question about the same runtime: which library it is, how it is told places, how its
//! threads wait. Idea: one [`Runtime`] names it everywhere, and one [`Row`] answers all questions.
//! A new runtime is a variant, a row here, and an edge of the preload library that reports its
//! regions or barriers.
//!
//! [`THREAD_COUNTS`] is the table of the variables that carry a thread count, by library (BLAS,
//! pools of languages); [`HELPER_LIBRARIES`] lists the libraries whose threads take no slot, and
//! [`RANK_VARIABLES`] the variables that number the ranks of a job.

mod thread_counts;

pub use thread_counts::{DefaultCount, OPENMP, THREAD_COUNTS, ThreadCount};

use super::waiting::How;
use serde::{Deserialize, Serialize};

/// What runs the threads or ranks of a program.
///
/// The order is that of the bits in the preload library's page of barriers (`core::sync_stats`): a
/// new runtime is appended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// GCC's OpenMP.
    Libgomp,
    /// LLVM's OpenMP and Intel's (libiomp5), which is the same code.
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

/// What a runtime runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Threads in parallel regions.
    OpenMp,
    /// Processes that pass messages.
    Mpi,
    /// Threads or processes of a team of this project.
    Team,
    /// Threads that the program starts itself.
    Threads,
}

/// The variable by which an OpenMP runtime is told the exact places of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceSyntax {
    /// `OMP_PLACES` and `OMP_PROC_BIND`.
    OmpPlaces,
    /// `KMP_AFFINITY`. LLVM's runtime reads `OMP_PLACES` too, but with a list of places there
    /// version 14 frees memory twice in a forked child, and the program dies.
    KmpAffinity,
}

/// How threads wait for each other, by whether there are more of them than CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Every thread has a CPU.
    pub uncrowded: How,
    /// There are more threads than CPUs, counted by the runtime: its own threads against the mask.
    pub crowded: How,
}

impl Waits {
    const fn always(how: How) -> Self {
        Self { uncrowded: how, crowded: how }
    }

    /// How they wait.
    pub const fn of(self, crowded: bool) -> How {
        if crowded { self.crowded } else { self.uncrowded }
    }
}

/// What is known of one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The runtime.
    pub runtime: Runtime,
    /// What it runs.
    pub kind: Kind,
    /// Whose it is, as reports put it: `3 regions of GNU's runtime`.
    pub owner: &'static str,
    /// How the names of its libraries begin, before `.so` or a packager's `-HASH.so`.
    pub libraries: &'static [&'static str],
    /// How it is told exact places; `None`: it is told none.
    pub places: Option<PlaceSyntax>,
    /// Whether it binds threads again by itself once it was told places, so that the preload
    /// library must verify the masks that it gave.
    pub rebinds: bool,
    /// Whether it creates the threads of inner teams anew for each region.
    pub recreates_inner_teams: bool,
    /// Whether every thread that opens a team by itself gets the first places, so that the teams of
    /// several threads meet on the same CPUs.
    pub reuses_first_places: bool,
    /// The variables by which it is told how threads wait.
    pub wait_variables: &'static [&'static str],
    /// How its threads wait where nothing was told.
    pub waits: Waits,
    /// How they wait where they were told to spin.
    pub spins: Waits,
}

/// All rows, in the order of [`Runtime`].
///
/// Sources: libgomp 12.2 and libomp 14.0 by their sources and by running them; Open MPI 4.1 and
/// MPICH 4.0 by running them.
pub const RUNTIMES: [Row; 6] = [
    Row {
        libraries: &["libgomp"],
        places: Some(PlaceSyntax::OmpPlaces),
        recreates_inner_teams: true,
        reuses_first_places: true,
        wait_variables: &["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"],
        // It spins 300,000 rounds, longer than most phases, and a thousand where it sees more
        // threads of its own than CPUs.
        waits: Waits { uncrowded: How::Spin, crowded: How::Brief },
        spins: Waits { uncrowded: How::Spin, crowded: How::Brief },
        ..Row::new(Runtime::Libgomp, Kind::OpenMp, "GNU's runtime")
    },
    Row {
        libraries: &["libomp", "libiomp5"],
        places: Some(PlaceSyntax::KmpAffinity),
        rebinds: true,
        wait_variables: &["OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_USE_YIELD"],
        waits: Waits::always(How::Yield),
        spins: Waits { uncrowded: How::Spin, crowded: How::Yield },
        ..Row::new(Runtime::Libomp, Kind::OpenMp, "LLVM's or Intel's")
    },
    Row {
        libraries: &["libmpi"],
        wait_variables: &["OMPI_MCA_mpi_yield_when_idle"],
        ..Row::new(Runtime::OpenMpi, Kind::Mpi, "Open MPI")
    },
    Row { libraries: &["libmpich"], ..Row::new(Runtime::Mpich, Kind::Mpi, "MPICH") },
    Row {
        libraries: &["libtrimtab_team"],
        waits: Waits::always(How::Brief),
        ..Row::new(Runtime::Team, Kind::Team, "teams of trimtab")
    },
    Row { waits: Waits::always(How::Sleep), ..Row::new(Runtime::Pthread, Kind::Threads, "the C library") },
];

/// How the files of libraries begin whose threads belong to no code of the program: a thread with
/// its start routine there takes no slot.
pub const HELPER_LIBRARIES: [&str; 11] = [
    // OpenMP.
    "libgomp",
    "libomp",
    "libiomp",
    "libnvomp",
    // An allocator that returns memory in a thread of its own, and a tracer.
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

/// The variables by which a user binds OpenMP threads; any one of them means that the user decides.
/// The first two are the standard's, which trimtab sets itself.
pub const BINDING_VARIABLES: [&str; 4] = ["OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// The variables in which launchers give a process its rank in the whole job, the nearest first.
pub const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

impl Row {
    /// A runtime that is told nothing and spins, as most message passing does.
    const fn new(runtime: Runtime, kind: Kind, owner: &'static str) -> Self {
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
    /// How many there are.
    pub const COUNT: usize = RUNTIMES.len();

    /// All of them, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Self> {
        RUNTIMES.iter().map(|row| row.runtime)
    }

    /// What is known of it.
    pub const fn row(self) -> &'static Row {
        const ROWS: &[Row; Runtime::COUNT] = &RUNTIMES;
        &ROWS[self as usize]
    }

    /// Whether it runs OpenMP threads.
    pub fn is_openmp(self) -> bool {
        self.row().kind == Kind::OpenMp
    }

    /// Whether it runs MPI ranks.
    pub fn is_mpi(self) -> bool {
        self.row().kind == Kind::Mpi
    }

    /// The OpenMP runtime that a library's file name means, with the versions and hashes that
    /// packagers put into it.
    pub fn openmp_library(name: &str) -> Option<Self> {
        let is = |stem: &&str| {
            let rest = name.strip_prefix(stem);
            rest.is_some_and(|rest| {
                rest.starts_with(".so") || (rest.starts_with('-') && rest.contains(".so"))
            })
        };
        let found = RUNTIMES.iter().find(|row| row.kind == Kind::OpenMp && row.libraries.iter().any(is));
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
    fn openmp_runtimes_are_told_places_and_have_helper_threads() {
        for row in RUNTIMES.iter().filter(|row| row.kind == Kind::OpenMp) {
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
