//! Families of programs that are recognised by name.

use serde::Serialize;

/// Kind of program that a launch treats specially. [`Family::of_name`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Java virtual machine: places its own threads and sizes itself by the mask and the quota.
    Jvm,
    /// Node.js: one thread runs the program, with a thread pool beside it.
    Node,
    /// Python: the modules that it loads later decide, so its linked libraries imply nothing.
    Python,
    /// MPI launcher: starts the ranks of a parallel program, and may bind each of them itself.
    Launcher,
    /// Shell: the programs that it starts decide.
    Shell,
    /// Starts many programs at once: make and similar tools.
    Make,
}

/// Names of each family, without versions and flavours.
const NAMES: [(Family, &[&str]); 6] = [
    (Family::Jvm, &["java"]),
    (Family::Node, &["node", "nodejs"]),
    (Family::Python, &["python", "pypy"]),
    (
        Family::Launcher,
        &["mpirun", "mpiexec", "orterun", "prterun", "srun", "flux", "torchrun", "aprun", "jsrun"],
    ),
    (Family::Shell, &["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh"]),
    (Family::Make, &["make", "gmake", "ninja"]),
];

/// Suffixes that distributions and MPI packages add to a launcher's name.
const FLAVOURS: [&str; 5] = [".openmpi", ".mpich", ".hydra", ".gforker", ".slurm"];

impl Family {
    /// Returns the family of a program's name, such as `python3.11`, `mpiexec.hydra` or `bash`.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::Family;
    ///
    /// assert_eq!(Family::of_name("mpiexec.hydra"), Some(Family::Launcher));
    /// assert_eq!(Family::of_name("solver"), None);
    /// ```
    pub fn of_name(name: &str) -> Option<Self> {
        let plain = FLAVOURS.iter().find_map(|flavour| name.strip_suffix(flavour)).unwrap_or(name);
        // Debug and free-threaded builds of Python end in a letter, for example python3.13t.
        let plain = plain
            .strip_suffix(['d', 't'])
            .filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit()))
            .unwrap_or(plain);
        let stem = plain.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let is_version = plain[stem.len()..].chars().any(|c| c.is_ascii_digit()) || stem == plain;
        NAMES.iter().find(|(_, names)| is_version && names.contains(&stem)).map(|&(family, _)| family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_known_by_name_version_and_flavour() {
        for (name, family) in [
            ("java", Some(Family::Jvm)),
            ("node", Some(Family::Node)),
            ("node18", Some(Family::Node)),
            ("python", Some(Family::Python)),
            ("python3", Some(Family::Python)),
            ("python3.11", Some(Family::Python)),
            ("python3.13t", Some(Family::Python)),
            ("pypy3.10", Some(Family::Python)),
            ("mpirun", Some(Family::Launcher)),
            ("mpirun.openmpi", Some(Family::Launcher)),
            ("mpiexec.hydra", Some(Family::Launcher)),
            ("flux", Some(Family::Launcher)),
            ("sh", Some(Family::Shell)),
            ("ksh93", Some(Family::Shell)),
            ("bash-5.2", Some(Family::Shell)),
            ("gmake", Some(Family::Make)),
            ("", None),
            ("3", None),
            ("node_exporter", None),
            ("python-config", None),
            ("flux.py", None),
            ("make.", None),
            ("javac", None),
            ("mpicc", None),
        ] {
            assert_eq!(Family::of_name(name), family, "{name:?}");
        }
    }
}
