//! Reference programs of the NAS Parallel Benchmarks, which the user has built (`--npb`): their
//! files, the runtime of each, the numbers of ranks that they take, and their reports.
//!
//! Source: the makefiles of NPB 3.4 for the names of files, `common/get_active_nprocs.f90` for
//! numbers of ranks, `common/print_results.f90` and `c_print_results.c` for reports.

use crate::args::{Class, NpbKernel, OversubArgs, Program};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use trimtab_core::study::Runtime;
use trimtab_linux::program;

/// Beginnings of the names of MPICH's libraries. The numbers distinguish Open MPI's `libmpi.so.40`.
/// Intel MPI and MVAPICH have the same names by agreement, so that each runs the programs of the
/// others: the one that runs is the one that the loader finds.
const MPICH: [&str; 4] = ["libmpich.so", "libmpichfort.so", "libmpifort.so", "libmpi.so.12"];
/// Beginnings of the names of Open MPI's libraries: of C, and of Fortran.
const OPEN_MPI: [&str; 3] = ["libmpi.so", "libmpi_mpifh.so", "libmpi_usempi"];

/// A reference program.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NpbProgram {
    kernel: NpbKernel,
    runtime: Runtime,
    path: PathBuf,
}

/// The reference programs of one class in a folder.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct References {
    found: Vec<NpbProgram>,
    /// Programs that are missing or not usable, with reasons.
    pub(super) left_out: Vec<String>,
}

impl References {
    /// Finds the reference programs of these kernels in the folder of `--npb`.
    ///
    /// # Errors
    /// The folder does not exist.
    pub(super) fn find(args: &OversubArgs, class: Class, kernels: &[Program]) -> Result<Self> {
        let Some(folder) = &args.npb else { return Ok(Self::default()) };
        if !folder.is_dir() {
            bail!(
                "{} is not a folder: --npb needs the one that make suite of NPB has filled",
                folder.display()
            );
        }
        let folder = std::path::absolute(folder)?;
        let mut all = Self::default();
        for kernel in kernels.iter().filter_map(|program| NpbKernel::of(*program)) {
            let path = folder.join(format!("{}.{}.x", kernel.name(), class.word()));
            match runtime_of(&path) {
                Ok(runtime) => all.found.push(NpbProgram { kernel, runtime, path }),
                Err(why) => all.left_out.push(format!("{}: {why}", kernel.word())),
            }
        }
        Ok(all)
    }

    /// Returns the runtime of a kernel's program, if there is one.
    pub(super) fn runtime(&self, kernel: NpbKernel) -> Option<Runtime> {
        self.found.iter().find(|one| one.kernel == kernel).map(|one| one.runtime)
    }

    /// Returns the file of a program for a runtime.
    pub(super) fn path(&self, kernel: NpbKernel, runtime: Runtime) -> Option<&Path> {
        let found = self.found.iter().find(|one| one.kernel == kernel && one.runtime == runtime);
        found.map(|one| one.path.as_path())
    }
}

/// Returns the runtime that a file is linked with; the error says why it cannot be run.
fn runtime_of(path: &Path) -> Result<Runtime, String> {
    if !path.is_file() {
        return Err(format!("{} does not exist", path.display()));
    }
    let file = program::Program::look(path, None).map_err(|error| error.to_string())?;
    let needed = file.binary.as_ref().map(|binary| binary.needed.as_slice()).unwrap_or_default();
    let openmp = file.binary.as_ref().and_then(|binary| binary.openmp);
    let mpi = mpi_of(needed).map_err(|name| {
        format!("{} is linked with {name}, which is of neither Open MPI nor MPICH", path.display())
    })?;
    match (mpi, openmp) {
        (Some(mpi), _) => Ok(mpi),
        (None, Some(found)) if found == Runtime::Libgomp.runtime() => Ok(Runtime::Libgomp),
        (None, Some(found)) if found == Runtime::Libomp.runtime() => Ok(Runtime::Libomp),
        _ => Err(format!("{} is linked with no known MPI or OpenMP", path.display())),
    }
}

/// Returns the MPI of a program that needs these libraries, if it needs one. The error is the name
/// of a library of another MPI, such as Cray's `libmpi_gnu_123.so.12`, for which there is no
/// launcher here.
fn mpi_of(needed: &[String]) -> Result<Option<Runtime>, &str> {
    let links = |names: &[&str]| needed.iter().any(|one| names.iter().any(|name| one.starts_with(name)));
    if links(&MPICH) {
        return Ok(Some(Runtime::Mpich));
    }
    if links(&OPEN_MPI) {
        return Ok(Some(Runtime::OpenMpi));
    }
    let other = |name: &&String| ["libmpi", "libsmpi"].iter().any(|start| name.starts_with(start));
    needed.iter().find(other).map_or(Ok(None), |name| Err(name.as_str()))
}

/// Returns why a program refuses this number of ranks, or `None`.
pub(super) fn refuses(kernel: NpbKernel, ranks: u32) -> Option<&'static str> {
    let square = ranks.isqrt().pow(2) == ranks;
    // A grid of n times m ranks that is at most twice as wide as high.
    let mut sides = ranks.isqrt().max(2)..=(2 * ranks).isqrt();
    let near_square = ranks.is_power_of_two() || sides.any(|side| ranks.is_multiple_of(side));
    match kernel {
        NpbKernel::Bt | NpbKernel::Sp if !square => Some("its number of ranks must be a square"),
        NpbKernel::Cg | NpbKernel::Ft | NpbKernel::Is | NpbKernel::Mg if !ranks.is_power_of_two() => {
            Some("its number of ranks must be a power of two")
        }
        NpbKernel::Lu if !near_square => {
            Some("its ranks must fill a grid that is at most twice as wide as high")
        }
        _ => None,
    }
}

/// Returns the seconds that a program reports, in hundredths, if its result is verified and the
/// report is of this kernel, class and number of threads or ranks.
pub(super) fn read(kernel: NpbKernel, class: &str, threads: u32, said: &str) -> Result<f64, String> {
    let of = |key: &str| {
        let mut values = said.lines().filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim())
        });
        values.next()
    };
    let ends = format!("{} Benchmark Completed", kernel.name().to_uppercase());
    if !said.lines().any(|line| line.trim().trim_end_matches('.') == ends) {
        return Err("its report is missing".to_owned());
    }
    let count = of("Total processes").or_else(|| of("Total threads"));
    if of("Class") != Some(class) || count != Some(threads.to_string().as_str()) {
        return Err("its report is of another run".to_owned());
    }
    if of("Verification") != Some("SUCCESSFUL") {
        return Err("its result is not verified".to_owned());
    }
    let seconds = of("Time in seconds").and_then(|text| text.parse::<f64>().ok());
    match seconds {
        Some(seconds) if seconds > 0.0 => Ok(seconds),
        Some(_) => {
            Err("it took less than the hundredth of a second that it reports: name a larger --class"
                .to_owned())
        }
        None => Err("its report lacks seconds".to_owned()),
    }
}

/// Returns the words that start a program by the launcher of its MPI.
pub(super) fn words(peer: Vec<std::ffi::OsString>, ranks: u32, path: &Path) -> Vec<std::ffi::OsString> {
    let mut words = peer;
    words.extend(["start", "-n", &ranks.to_string()].map(std::ffi::OsString::from));
    words.push(path.into());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report as `print_results.f90` writes it.
    fn report(verified: &str, seconds: &str, count: &str) -> String {
        format!(
            "\n\n NAS Parallel Benchmarks (NPB3.4-MPI) - CG Benchmark\n\n\n CG Benchmark Completed.\n Class           =                        W\n \
             Size            =                     7000\n Iterations      =                       15\n Time in seconds = {seconds:>24}\n \
             {count}\n Active processes=                        2\n Mop/s total     =                  1404.03\n \
             Operation type  =           floating point\n Verification    =             {verified:>12}\n Version         =                    3.4.1\n"
        )
    }

    #[test]
    fn the_time_of_a_verified_report_of_this_run_is_read() {
        let two = "Total processes =                        2";
        let cg = |threads, said: &str| read(NpbKernel::Cg, "W", threads, said);
        assert_eq!(cg(2, &report("  SUCCESSFUL", "0.30", two)), Ok(0.3));
        assert_eq!(cg(4, &report("  SUCCESSFUL", "0.30", "Total threads   =   4")), Ok(0.3));
        let other = "its report is of another run";
        assert_eq!(cg(4, &report("  SUCCESSFUL", "0.30", two)).unwrap_err(), other);
        assert_eq!(read(NpbKernel::Cg, "S", 2, &report("  SUCCESSFUL", "0.30", two)).unwrap_err(), other);
        let missing = "its report is missing";
        assert_eq!(read(NpbKernel::Mg, "W", 2, &report("  SUCCESSFUL", "0.30", two)).unwrap_err(), missing);
        assert_eq!(cg(2, "").unwrap_err(), missing);
        let wrong = report("UNSUCCESSFUL", "0.30", two);
        assert_eq!(cg(2, &wrong).unwrap_err(), "its result is not verified");
        assert!(cg(2, &report("  SUCCESSFUL", "0.00", two)).unwrap_err().contains("larger --class"));
        assert_eq!(cg(2, &report("  SUCCESSFUL", "*****", two)).unwrap_err(), "its report lacks seconds");
        // IS, in C, ends its line without a full stop.
        let is =
            report("  SUCCESSFUL", "0.14", two).replace("CG Benchmark Completed.", "IS Benchmark Completed");
        assert_eq!(read(NpbKernel::Is, "W", 2, &is), Ok(0.14));
    }

    #[test]
    fn the_names_of_libraries_tell_one_mpi_from_another() {
        let of = |names: &str| {
            let needed: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            mpi_of(&needed).map_err(str::to_owned)
        };
        assert_eq!(
            of("libmpi_usempif08.so.40 libmpi_mpifh.so.40 libmpi.so.40 libc.so.6"),
            Ok(Some(Runtime::OpenMpi))
        );
        assert_eq!(of("libmpi.so.40 libc.so.6"), Ok(Some(Runtime::OpenMpi)));
        assert_eq!(of("libmpichfort.so.12 libmpich.so.12"), Ok(Some(Runtime::Mpich)));
        assert_eq!(of("libmpifort.so.12 libmpi.so.12"), Ok(Some(Runtime::Mpich)));
        for cray in
            ["libmpi_gnu_123.so.12", "libmpi_cray.so.12", "libmpifort_cray.so.12", "libmpich_gnu_51.so.3"]
        {
            assert_eq!(of(&format!("libm.so.6 {cray}")), Err(cray.to_owned()));
        }
        assert_eq!(of("libgomp.so.1 libc.so.6"), Ok(None));
    }

    #[test]
    fn numbers_of_ranks_are_those_of_the_sources() {
        let taken = |kernel| (1..=16).filter(|ranks| refuses(kernel, *ranks).is_none()).collect::<Vec<u32>>();
        assert_eq!(taken(NpbKernel::Bt), [1, 4, 9, 16]);
        assert_eq!(taken(NpbKernel::Sp), [1, 4, 9, 16]);
        assert_eq!(taken(NpbKernel::Ft), [1, 2, 4, 8, 16]);
        assert_eq!(taken(NpbKernel::Lu), [1, 2, 4, 6, 8, 9, 12, 15, 16]);
        assert_eq!(taken(NpbKernel::Ep).len(), 16);
    }
}
