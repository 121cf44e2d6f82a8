//! Libraries with thread pools of their own, recognised by the names of their files, with the
//! variable that sets their number of threads.
//!
//! Problem: a pool of processes whose library starts a thread for each CPU has processes times
//! threads, and neither the program's options nor OpenMP's variables show it. Idea: the files that
//! a process has mapped name the library, as threadpoolctl does it.

use serde::Serialize;

/// A library that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Name.
    pub name: &'static str,
    /// Variable that sets its number of threads.
    pub variable: &'static str,
    /// Start of a text in the file that has the version behind it; empty if there is none.
    pub mark: &'static str,
    /// Starts of its file's name.
    names: &'static [&'static str],
}

/// Known libraries. Sources: their manuals; names of files also from threadpoolctl 3.6. The
/// OpenBLAS of Python packages has a prefix.
const KNOWN: [Known; 4] = [
    Known {
        name: "OpenBLAS",
        variable: "OPENBLAS_NUM_THREADS",
        mark: "OpenBLAS ",
        names: &["libopenblas", "libscipy_openblas", "libblas_openblas"],
    },
    Known { name: "MKL", variable: "MKL_NUM_THREADS", mark: "", names: &["libmkl_rt", "libmkl_core"] },
    Known { name: "BLIS", variable: "BLIS_NUM_THREADS", mark: "", names: &["libblis"] },
    Known { name: "numexpr", variable: "NUMEXPR_NUM_THREADS", mark: "", names: &["interpreter.cpython"] },
];

/// A library that worked in processes of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Library {
    /// Name.
    pub name: String,
    /// Version, if the file tells it.
    pub version: Option<String>,
    /// Variable that sets its number of threads.
    pub variable: String,
    /// Largest number of processes that had it and computed at the same time.
    pub processes: u32,
    /// Largest number of computing threads of one of these processes.
    pub threads: u32,
}

impl Library {
    /// Describes the threads in words.
    pub fn words(&self) -> String {
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let threads = crate::words::plural(u64::from(self.threads), "thread");
        match self.processes {
            0 | 1 => format!("{}{version}: {threads}", self.name),
            many => format!("{}{version}: {threads} in each of {many} processes", self.name),
        }
    }
}

/// Returns the library of a mapped file.
pub fn known(file: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        known.names.iter().any(|name| file.starts_with(name)) && file.contains(".so") && !file.contains("/")
    })
}

/// Returns the version behind a library's mark in its file.
pub fn version(mark: &str, contents: &[u8]) -> Option<String> {
    if mark.is_empty() {
        return None;
    }
    let begins = contents.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark.as_bytes());
    begins.map(|(at, _)| &contents[at + mark.len()..]).find_map(|rest| {
        let digits = rest.iter().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
        let version: String = digits.map(|&byte| char::from(byte)).collect();
        let version = version.trim_end_matches('.');
        (version.contains('.') && version.starts_with(|first: char| first.is_ascii_digit()))
            .then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_recognised_by_the_names_of_their_files() {
        let name = |file: &str| known(file).map(|known| known.name);
        assert_eq!(name("libscipy_openblas64_-6bb31eeb.so"), Some("OpenBLAS"));
        assert_eq!(name("libopenblas.so.0"), Some("OpenBLAS"));
        assert_eq!(name("libmkl_rt.so.2"), Some("MKL"));
        assert_eq!(name("libgomp.so.1"), None);
        assert_eq!(name("libopenblas.a"), None);
        assert_eq!(name("dir/libopenblas.so"), None);
    }

    #[test]
    fn a_version_is_read_behind_the_mark() {
        let read = |text: &str| version("OpenBLAS ", text.as_bytes());
        assert_eq!(read("x\0OpenBLAS : see\0OpenBLAS 0.3.30 USE64BITINT"), Some("0.3.30".to_owned()));
        assert_eq!(read("OpenBLAS 1"), None);
        assert_eq!(read("OpenBLAS"), None);
        assert_eq!(version("", b"1.2"), None);
    }

    #[test]
    fn threads_in_several_processes_are_said_so() {
        let library = |processes| Library {
            name: "OpenBLAS".to_owned(),
            version: Some("0.3.30".to_owned()),
            variable: "OPENBLAS_NUM_THREADS".to_owned(),
            processes,
            threads: 2,
        };
        assert_eq!(library(4).words(), "OpenBLAS 0.3.30: 2 threads in each of 4 processes");
        assert_eq!(library(1).words(), "OpenBLAS 0.3.30: 2 threads");
    }
}
