//! Use that libraries make of the number of threads which they request for a team.
//!
//! A library is known by its path. Each entry was read in the source of the library, or tried.

/// Use of the requested number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountUse {
    /// The code fails, or computes wrong results, with a smaller team.
    Relied,
    /// The code is right with any number of threads, although it states one.
    Free,
    /// Not known: the rule of the budget decides.
    Unknown,
}

/// Libraries that fail with smaller teams than they request, by the beginning of their file names.
///
/// - XGBoost divides rows among the number of threads that it requested, and each thread computes
///   the part of its own number (`common::ParallelFor2d`): parts of missing threads are not
///   computed, and later code reads them (end by signal 11 in XGBoost 3.2).
/// - OpenBLAS built with OpenMP gives each thread of a team a part of a matrix and waits for the
///   parts of the others in a loop: with fewer threads than parts it waits for ever. It states no
///   number in its regions.
/// - BLIS built with OpenMP compares the size of a team with the number that it stated, and ends
///   the program if it is neither that number nor 1 ("A different number of threads was created").
/// - MKL is not known to accept fewer threads than it requests.
const RELIANT_FILES: [&str; 7] =
    ["libxgboost", "libopenblas", "libscipy_openblas", "libblas.so", "liblapack.so", "libblis", "libmkl_"];

/// Folders of libraries that fail with smaller teams, by the end of their paths.
///
/// - scikit-learn's search for neighbours gives each thread a heap, which that thread fills with
///   the highest distance; the heaps of all requested threads are read afterwards
///   (`ArgKmin._parallel_on_Y_parallel_init`, read in 1.9): those of missing threads are never
///   filled. In 1.1 it is one module, [`NEIGHBOURS_MODULE`].
const RELIANT_FOLDERS: [&str; 1] = ["sklearn/metrics/_pairwise_distances_reduction"];

/// Beginning of the path of scikit-learn 1.1's search for neighbours, from its package on.
const NEIGHBOURS_MODULE: (&str, &str) = ("sklearn/metrics", "_pairwise_distances_reduction.");

/// Folders of libraries that state a number of threads and are right with any, by the end of their
/// paths.
///
/// - scikit-learn's boosting on histograms and its losses divide each of their regions by a loop of
///   OpenMP, also where the loop goes over numbers of threads (read in scikit-learn 1.9).
const FREE_FOLDERS: [&str; 2] = ["sklearn/ensemble/_hist_gradient_boosting", "sklearn/_loss"];

/// Returns the use that a library makes of its number of threads.
///
/// ```
/// use trimtab_core::budget::count_use::{CountUse, count_use};
///
/// assert_eq!(count_use(b"/usr/lib/libxgboost.so"), CountUse::Relied);
/// assert_eq!(count_use(b"/v/sklearn/_loss/_loss.cpython-313.so"), CountUse::Free);
/// assert_eq!(count_use(b"./app"), CountUse::Unknown);
/// ```
pub fn count_use(path: &[u8]) -> CountUse {
    let (folder, file) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    let inside = |folders: &[&str]| folders.iter().any(|known| ends_with_folder(folder, known.as_bytes()));
    let (package, module) = NEIGHBOURS_MODULE;
    let is_neighbours = inside(&[package]) && file.starts_with(module.as_bytes());
    let relies = RELIANT_FILES.iter().any(|name| file.starts_with(name.as_bytes()));
    if relies || is_neighbours || inside(&RELIANT_FOLDERS) {
        CountUse::Relied
    } else if inside(&FREE_FOLDERS) {
        CountUse::Free
    } else {
        CountUse::Unknown
    }
}

/// Returns whether a path ends with these folders, and not within the name of one.
fn ends_with_folder(path: &[u8], folders: &[u8]) -> bool {
    path.strip_suffix(folders).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_path() {
        for (path, expected) in [
            ("libxgboost.so", CountUse::Relied),
            ("/usr/lib/libopenblas.so.0", CountUse::Relied),
            ("/v/numpy.libs/libscipy_openblas64_-32a4b2a6.so", CountUse::Relied),
            ("libmkl_intel_thread.so.2", CountUse::Relied),
            ("libblas.so.3", CountUse::Relied),
            ("libblis.so.4", CountUse::Relied),
            ("libblis-mt.so.5", CountUse::Relied),
            ("liblapack.so.3", CountUse::Relied),
            ("/v/sklearn/metrics/_pairwise_distances_reduction/_argkmin.so", CountUse::Relied),
            ("/v/sklearn/metrics/_pairwise_distances_reduction.cpython-310.so", CountUse::Relied),
            ("/v/sklearn/ensemble/_hist_gradient_boosting/splitting.so", CountUse::Free),
            ("sklearn/_loss/_loss.so", CountUse::Free),
            ("/v/mysklearn/_loss/_loss.so", CountUse::Unknown),
            ("/v/sklearn/_loss/more/_loss.so", CountUse::Unknown),
            ("/v/sklearn/cluster/_k_means_lloyd.so", CountUse::Unknown),
            ("/opt/libxgboost/app", CountUse::Unknown),
            ("libblast.so", CountUse::Unknown),
            ("libgomp.so.1", CountUse::Unknown),
            ("app", CountUse::Unknown),
            ("/", CountUse::Unknown),
            ("", CountUse::Unknown),
        ] {
            assert_eq!(count_use(path.as_bytes()), expected, "{path}");
        }
    }
}
