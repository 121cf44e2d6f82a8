//! Libraries and runtimes with thread pools of their own, recognised by the names of their files,
//! with the variable that bounds their number of threads.
//!
//! Problem: a pool of processes whose library starts a thread for each CPU has processes times
//! threads, and neither the program's options nor OpenMP's variables show it. Idea: the files that
//! a process has mapped name the library, as threadpoolctl does it. A Go program has its runtime
//! inside, and a mark of the linker in its file.

use serde::Serialize;
use std::collections::BTreeMap;

/// A library that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Name.
    pub name: &'static str,
    /// Variable that bounds its number of threads; empty if there is none, so that only the CPUs
    /// which it may use bound it.
    pub variable: &'static str,
    /// Text before the number in the variable: empty, or an option.
    option: &'static str,
    /// Start of a text in the file that has the version behind it; empty if there is none.
    pub mark: &'static str,
    /// Starts of its file's name.
    names: &'static [&'static str],
}

/// Known libraries. Sources: their manuals; names of files also from threadpoolctl 3.6. The
/// OpenBLAS of Python packages has a prefix.
const KNOWN: [Known; 6] = [
    Known {
        name: "OpenBLAS",
        variable: "OPENBLAS_NUM_THREADS",
        option: "",
        mark: "OpenBLAS ",
        names: &["libopenblas", "libscipy_openblas", "libblas_openblas"],
    },
    Known {
        name: "MKL",
        variable: "MKL_NUM_THREADS",
        option: "",
        mark: "",
        names: &["libmkl_rt", "libmkl_core"],
    },
    Known { name: "BLIS", variable: "BLIS_NUM_THREADS", option: "", mark: "", names: &["libblis"] },
    Known {
        name: "numexpr",
        variable: "NUMEXPR_NUM_THREADS",
        option: "",
        mark: "",
        names: &["interpreter.cpython"],
    },
    Known {
        name: JAVA,
        variable: "JAVA_TOOL_OPTIONS",
        option: "-XX:ActiveProcessorCount=",
        mark: "",
        names: &["libjvm"],
    },
    // oneTBB and its predecessor have no variable: they count the CPUs of their mask.
    Known { name: "TBB", variable: "", option: "", mark: "", names: &["libtbb.so.12", "libtbb.so.2"] },
];

/// Go's runtime, which is part of the program.
pub const GO: Known = Known { name: "Go", variable: "GOMAXPROCS", option: "", mark: "", names: &[] };
/// Name of Java's virtual machine.
pub const JAVA: &str = "Java";
/// Option that sets the number of processors of a Java machine, and the variables whose options
/// count more than those of `JAVA_TOOL_OPTIONS`, as the command line does.
const JAVA_PROCESSORS: &str = "ActiveProcessorCount";
const JAVA_STRONGER: [&str; 2] = ["_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"];

/// Mark in the file of a Go program, and the lengths of the header behind it and of the mark.
const GO_MARK: &[u8] = b"\xff Go buildinf:";
const GO_HEADER_LEN: usize = 32;
/// Place of the flags in the header, and the flag of a version that follows the header.
const GO_FLAGS_AT: usize = 15;
const GO_INLINE: u8 = 2;

/// Starts of the names of a Java machine's own threads: collectors, compilers, and housekeeping.
const JAVA_SERVICE: [&str; 9] = [
    "GC Thread",
    "G1 ",
    "ZWorker",
    "Shenandoah",
    "ParGC",
    "C1 Compiler",
    "C2 Compiler",
    "VM Thread",
    "VM Periodic",
];

/// A library that worked in processes of the program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Library {
    /// Name.
    pub name: String,
    /// Version, if the file tells it.
    pub version: Option<String>,
    /// Variable that bounds its number of threads; empty if there is none.
    pub variable: String,
    /// Largest number of processes that had it and computed at the same time.
    pub processes: u32,
    /// Largest number of computing threads of one of these processes.
    pub threads: u32,
    /// Largest number of threads that collected garbage or compiled at the same time in one of
    /// these processes: Java's. `threads` may be from another moment.
    pub service: u32,
    /// Largest number of computing threads of one of these processes without those. At another
    /// moment more may have collected, so it is no difference of both.
    pub workers: u32,
}

impl Library {
    /// Describes the threads in words.
    pub fn words(&self) -> String {
        let plural = |count: u32, noun: &str| crate::words::plural(u64::from(count), noun);
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let threads = match self.service {
            0 => plural(self.threads, "thread"),
            service => format!(
                "{} for collection and compilation + {}",
                plural(service, "thread"),
                plural(self.workers, "worker")
            ),
        };
        match self.processes {
            0 | 1 => format!("{}{version}: {threads}", self.name),
            many => format!("{}{version}: {threads} in each of {many} processes", self.name),
        }
    }

    /// Returns the variable that bounds the threads of each process, and its value. An option is
    /// added to those that the user gives in this variable. `None` if there is no such variable.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::advise::libraries::Library;
    ///
    /// let java = Library { name: "Java".to_owned(), ..Library::default() };
    /// let (name, value) = java.bounded(2, Some("-Xmx1g")).unwrap();
    /// assert_eq!(name, "JAVA_TOOL_OPTIONS");
    /// assert_eq!(value, "-Xmx1g -XX:ActiveProcessorCount=2");
    /// ```
    pub fn bounded(&self, threads: u32, set: Option<&str>) -> Option<(&'static str, String)> {
        let known = KNOWN.iter().chain([&GO]).find(|known| known.name == self.name)?;
        let value = match (known.option, set.map(str::trim).filter(|set| !set.is_empty())) {
            ("", _) => threads.to_string(),
            (option, None) => format!("{option}{threads}"),
            // The last of several equal options counts.
            (option, Some(set)) => format!("{set} {option}{threads}"),
        };
        (!known.variable.is_empty()).then_some((known.variable, value))
    }

    /// Returns whether this is a runtime whose threads share one queue of work: they need no CPU
    /// each, and do not wait for each other at barriers.
    pub(super) fn is_pool(&self) -> bool {
        self.name == JAVA || self.name == GO.name || self.name == "TBB"
    }
}

/// Returns whether the command line, or a variable that counts more than `JAVA_TOOL_OPTIONS`, sets
/// the number of processors of a Java machine, so that an option there changes nothing.
pub fn is_java_fixed(command: &[String], variables: &BTreeMap<String, String>) -> bool {
    let stronger = JAVA_STRONGER.iter().filter_map(|name| variables.get(*name));
    command.iter().chain(stronger).any(|words| words.contains(JAVA_PROCESSORS))
}

/// Returns whether a thread of a Java machine with this name collects garbage, compiles, or serves
/// the machine in another way.
pub fn is_java_service(thread: &str) -> bool {
    JAVA_SERVICE.iter().any(|name| thread.starts_with(name))
}

/// Returns whether a file is a Go program, and the version of Go that built it, if it is known.
pub fn go(contents: &[u8]) -> Option<Option<String>> {
    let at = contents.windows(GO_MARK.len()).position(|window| window == GO_MARK)?;
    let header = &contents[at..];
    let inline = header.get(GO_FLAGS_AT).is_some_and(|flags| flags & GO_INLINE != 0);
    let version = inline.then(|| {
        // A length in one byte: versions are shorter than 128.
        let length = usize::from(*header.get(GO_HEADER_LEN)?);
        let text = header.get(GO_HEADER_LEN + 1..GO_HEADER_LEN + 1 + length)?;
        let version = std::str::from_utf8(text).ok()?.strip_prefix("go")?;
        Some(version.split(' ').next().unwrap_or(version).to_owned())
    });
    Some(version.flatten())
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
        assert_eq!(name("libjvm.so"), Some("Java"));
        assert_eq!(name("libtbb.so.12.8"), Some("TBB"));
        assert_eq!(name("libtbbmalloc.so.2"), None);
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
            service: 0,
            workers: 2,
        };
        assert_eq!(library(4).words(), "OpenBLAS 0.3.30: 2 threads in each of 4 processes");
        assert_eq!(library(1).words(), "OpenBLAS 0.3.30: 2 threads");
    }

    #[test]
    fn each_runtime_is_bounded_in_its_own_way() {
        let library = |name: &str| Library { name: name.to_owned(), ..Library::default() };
        let value = |name: &str, set| library(name).bounded(3, set);
        assert_eq!(value("Go", Some("8")), Some(("GOMAXPROCS", "3".to_owned())));
        assert_eq!(value("Java", None), Some(("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=3".to_owned())));
        assert_eq!(value("Java", Some(" ")), value("Java", None));
        assert_eq!(value("OpenBLAS", Some("2")), Some(("OPENBLAS_NUM_THREADS", "3".to_owned())));
        assert_eq!(value("TBB", None), None);
        assert_eq!(value("another", None), None);
    }

    #[test]
    fn the_threads_of_a_java_machine_are_told_from_those_that_work() {
        assert!(is_java_service("GC Thread#1") && is_java_service("C2 CompilerThre"));
        assert!(!is_java_service("ForkJoinPool.co") && !is_java_service("java") && !is_java_service(""));
        let java = Library {
            name: "Java".to_owned(),
            processes: 1,
            threads: 6,
            service: 3,
            workers: 4,
            ..Library::default()
        };
        assert_eq!(java.words(), "Java: 3 threads for collection and compilation + 4 workers");
    }

    #[test]
    fn a_go_program_is_recognised_by_the_mark_of_its_linker() {
        let file = |flags: u8| {
            let mut file = [&b"\x7fELF "[..], GO_MARK, &[8, flags], &[0; 16]].concat();
            file.extend([8]);
            file.extend(b"go1.22.1\x00\x01");
            file
        };
        assert_eq!(go(&file(2)), Some(Some("1.22.1".to_owned())));
        assert_eq!(go(&file(0)), Some(None), "before Go 1.18 the header has a pointer");
        assert_eq!(go(GO_MARK), Some(None));
        assert_eq!(go(b"no mark"), None);
    }
}
