//! Known programs: the options with which a command line states a thread count, and programs that
//! pin their own threads.
//!
//! Problem: a program with `-ntomp 4` must not get another count from a variable. Idea: a table
//! with one row for each program. If the command line states a count, no variable states one:
//! nothing is exported, and the user's own variables stay unchanged.
//!
//! Only the words of the command line are read. A program that is not listed states nothing. Build
//! tools (`make -j`, `ninja -j`, `cargo -j`) are not listed: their number is of jobs, which trimtab
//! never changes, and each job is a program of its own.

use serde::Serialize;
use std::fmt;

/// Thread count that a command line states.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Stated {
    /// Name of the program in the table.
    pub program: &'static str,
    /// Words that state the count, as typed.
    pub words: String,
    /// Resulting number of threads, at least 1.
    pub threads: u32,
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command line of {} says {}", self.program, self.words)
    }
}

/// Position of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ValuePosition {
    /// The next word: `-ntomp 4`.
    Next,
    /// The rest of the word or the next word: `-t4`, `-t 4`.
    AttachedOrNext,
    /// After an equals sign or the next word: `--threads=4`, `--threads 4`.
    EqualsOrNext,
    /// The rest of the word: `+p4`.
    Attached,
    /// After an equals sign: `num_threads=4`.
    Equals,
    /// The word after this next word: `-pk omp 4`.
    After(&'static str),
}

/// Shells that take a command as text.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "zsh", "ash"];

struct KnownProgram {
    program: &'static str,
    /// File names; a trailing `*` matches any rest.
    names: &'static [&'static str],
    options: &'static [(&'static str, ValuePosition)],
    /// Whether the numbers of several options are multiplied (ranks times threads); if not, the
    /// last one counts.
    multiply: bool,
    /// Whether the program binds its own threads if nothing else does.
    pins_itself: bool,
}

impl KnownProgram {
    const fn new(
        program: &'static str,
        names: &'static [&'static str],
        options: &'static [(&'static str, ValuePosition)],
    ) -> Self {
        Self { program, names, options, multiply: false, pins_itself: false }
    }
}

/// Known programs. Sources: the programs' manuals. Tested by running: those that the corpus has.
const KNOWN: [KnownProgram; 25] = [
    KnownProgram {
        program: "GROMACS",
        names: &["gmx", "gmx_*", "mdrun", "mdrun_*"],
        options: &[
            ("-nt", ValuePosition::Next),
            ("-ntmpi", ValuePosition::Next),
            ("-ntomp", ValuePosition::Next),
        ],
        multiply: true,
        // `-pin auto`: only if no OpenMP variable binds threads.
        pins_itself: true,
    },
    KnownProgram::new(
        "LAMMPS",
        &["lmp", "lmp_*", "lammps"],
        &[("-pk", ValuePosition::After("omp")), ("-package", ValuePosition::After("omp"))],
    ),
    KnownProgram::new("NAMD", &["namd2", "namd3"], &[("+p", ValuePosition::Attached)]),
    KnownProgram::new(
        "llama.cpp",
        &["llama-*"],
        &[("-t", ValuePosition::Next), ("--threads", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new(
        "Julia",
        &["julia*"],
        &[("-t", ValuePosition::AttachedOrNext), ("--threads", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new(
        "LightGBM",
        &["lightgbm"],
        &[("num_threads", ValuePosition::Equals), ("num_thread", ValuePosition::Equals)],
    ),
    KnownProgram::new("XGBoost", &["xgboost"], &[("nthread", ValuePosition::Equals)]),
    KnownProgram::new("darktable", &["darktable*"], &[("-t", ValuePosition::Next)]),
    KnownProgram::new(
        "POV-Ray",
        &["povray"],
        &[("+WT", ValuePosition::Attached), ("Work_Threads", ValuePosition::Equals)],
    ),
    KnownProgram::new("FFmpeg", &["ffmpeg"], &[("-threads", ValuePosition::Next)]),
    KnownProgram::new("x264", &["x264"], &[("--threads", ValuePosition::EqualsOrNext)]),
    KnownProgram::new(
        "xz",
        &["xz", "lzma"],
        &[("-T", ValuePosition::AttachedOrNext), ("--threads", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new(
        "zstd",
        &["zstd"],
        &[("-T", ValuePosition::Attached), ("--threads", ValuePosition::Equals)],
    ),
    KnownProgram::new(
        "pigz",
        &["pigz"],
        &[("-p", ValuePosition::AttachedOrNext), ("--processes", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new("7-Zip", &["7z", "7za", "7zr", "7zz"], &[("-mmt", ValuePosition::Attached)]),
    KnownProgram::new(
        "BLAST",
        &["blastn", "blastp", "blastx", "tblastn", "tblastx"],
        &[("-num_threads", ValuePosition::Next)],
    ),
    KnownProgram::new("BWA", &["bwa", "bwa-mem2"], &[("-t", ValuePosition::AttachedOrNext)]),
    KnownProgram::new(
        "Bowtie 2",
        &["bowtie2"],
        &[("-p", ValuePosition::AttachedOrNext), ("--threads", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new(
        "SAMtools",
        &["samtools"],
        &[("-@", ValuePosition::AttachedOrNext), ("--threads", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new("STAR", &["STAR"], &[("--runThreadN", ValuePosition::EqualsOrNext)]),
    KnownProgram::new(
        "HMMER",
        &["hmmsearch", "hmmscan", "phmmer", "jackhmmer"],
        &[("--cpu", ValuePosition::EqualsOrNext)],
    ),
    KnownProgram::new(
        "IQ-TREE",
        &["iqtree", "iqtree2", "iqtree3"],
        &[("-T", ValuePosition::Next), ("-nt", ValuePosition::Next)],
    ),
    KnownProgram::new("minimap2", &["minimap2"], &[("-t", ValuePosition::AttachedOrNext)]),
    KnownProgram::new("MAFFT", &["mafft"], &[("--thread", ValuePosition::Next)]),
    KnownProgram::new("sysbench", &["sysbench"], &[("--threads", ValuePosition::EqualsOrNext)]),
];

impl KnownProgram {
    /// Returns the row for a file name.
    fn of(name: &str) -> Option<&'static Self> {
        let is = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        KNOWN.iter().find(|known| known.names.iter().any(|pattern| is(pattern)))
    }

    /// Returns the count that these arguments state.
    fn stated(&self, arguments: &[&str]) -> Option<Stated> {
        let mut found: Vec<(&'static str, u32)> = Vec::new();
        for (at, word) in arguments.iter().enumerate() {
            if *word == "--" {
                break;
            }
            for &(option, value) in self.options {
                let Some(text) = text_of(option, value, word, &arguments[at + 1..]) else { continue };
                // 0 means "choose automatically" in every listed program.
                let Some(count) = text.parse::<u32>().ok().filter(|&count| count > 0) else { continue };
                found.retain(|(known, _)| *known != option);
                found.push((option, count));
            }
        }
        let threads = if self.multiply {
            // If the total is stated, it includes ranks and threads.
            let total = found.iter().find(|(option, _)| *option == "-nt").map(|&(_, count)| count);
            let product = found.iter().fold(1u32, |all, &(_, count)| all.saturating_mul(count));
            total.unwrap_or(product)
        } else {
            found.last()?.1
        };
        let words: Vec<String> = found.iter().map(|(option, count)| format!("{option} {count}")).collect();
        (!words.is_empty()).then(|| Stated { program: self.program, words: words.join(" "), threads })
    }
}

impl KnownProgram {
    /// Returns these arguments with another total of threads; `None` if they state none, or if the
    /// total is not a multiple of the other counts.
    fn with_count(&self, arguments: &[&str], threads: u32) -> Option<Vec<String>> {
        let end = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        let mut found: Vec<(&'static str, usize, CountPlace, u32)> = Vec::new();
        for at in 0..end {
            for &(option, value) in self.options {
                let Some(place) = place_of(option, value, arguments[at], &arguments[at + 1..]) else {
                    continue;
                };
                let text = text_of(option, value, arguments[at], &arguments[at + 1..]);
                let Some(count) = text.and_then(|text| text.parse().ok()).filter(|&count| count > 0) else {
                    continue;
                };
                found.push((option, at, place, count));
            }
        }
        let &(changed, .., own) = found.last()?;
        let others: Vec<u32> = found.iter().filter(|one| one.0 != changed).map(|one| one.3).collect();
        // `-nt` is a total.
        let others = if self.multiply && changed != "-nt" {
            others.iter().fold(1, |all: u32, &one| all.saturating_mul(one))
        } else {
            1
        };
        let count = (threads / others.max(1)).max(1);
        if count >= own {
            return None;
        }
        let mut words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        for (option, at, place, _) in found.into_iter().filter(|one| one.0 == changed) {
            match place {
                CountPlace::Word(ahead) => words[at + ahead] = count.to_string(),
                CountPlace::Behind(sign) => words[at] = format!("{option}{sign}{count}"),
            }
        }
        Some(words)
    }
}

/// Place of a count in a command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountPlace {
    /// A word of its own, this number of words after the option.
    Word(usize),
    /// The option's own word, behind the option and this sign.
    Behind(&'static str),
}

/// Returns the place of an option's count, if the word is that option.
fn place_of(option: &str, value: ValuePosition, word: &str, rest: &[&str]) -> Option<CountPlace> {
    text_of(option, value, word, rest)?;
    Some(match value {
        ValuePosition::After(_) => CountPlace::Word(2),
        _ if word == option => CountPlace::Word(1),
        ValuePosition::Equals | ValuePosition::EqualsOrNext => CountPlace::Behind("="),
        _ => CountPlace::Behind(""),
    })
}

/// Returns the value of one option at one word, if the word is that option.
fn text_of<'a>(option: &str, value: ValuePosition, word: &'a str, rest: &[&'a str]) -> Option<&'a str> {
    let next = |at: usize| rest.get(at).copied();
    let behind = word.strip_prefix(option)?;
    match (value, behind) {
        (ValuePosition::Next | ValuePosition::AttachedOrNext | ValuePosition::EqualsOrNext, "") => next(0),
        (ValuePosition::After(keyword), "") if next(0) == Some(keyword) => next(1),
        (ValuePosition::AttachedOrNext | ValuePosition::Attached, attached) if !attached.is_empty() => {
            Some(attached)
        }
        (ValuePosition::EqualsOrNext | ValuePosition::Equals, attached) => attached.strip_prefix('='),
        _ => None,
    }
}

/// Returns the file name of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the count that a command line states. `behind_launcher` says that the command starts
/// other programs (`mpirun -n 2 gmx_mpi ...`), one of which may be listed.
pub fn stated(command: &[&str], behind_launcher: bool) -> Option<Stated> {
    let words = if behind_launcher { command.len() } else { command.len().min(1) };
    let found = (0..words).find_map(|at| Some((at, KnownProgram::of(file_name(command[at]))?)));
    let (at, known) = found?;
    known.stated(&command[at + 1..])
}

/// Returns the largest count that a command line states, also inside the text of `sh -c TEXT`
/// ([`stated_in_text`]).
///
/// # Examples
/// ```
/// use trimtab_core::place::stated_within;
///
/// let found = stated_within(&["sh", "-ec", "cd data && iqtree -s a.fa -T 2; xz -T1 out"]);
/// assert_eq!(found.map(|stated| stated.threads), Some(2));
/// assert_eq!(stated_within(&["iqtree", "-T", "4"]).map(|stated| stated.threads), Some(4));
/// ```
pub fn stated_within(command: &[&str]) -> Option<Stated> {
    let (shell, arguments) = command.split_first()?;
    if !SHELLS.contains(&file_name(shell)) {
        return stated(command, false);
    }
    let at = arguments.iter().take_while(|word| is_shell_option(word)).position(|word| word.contains('c'))?;
    let text = arguments[at + 1..].iter().find(|word| !is_shell_option(word))?;
    stated_in_text(text)
}

fn is_shell_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// Returns the file that a shell is to read: its first argument that is no option. `None` for other
/// programs, and for `sh -c TEXT`.
///
/// # Examples
/// ```
/// use trimtab_core::place::shell_script;
///
/// assert_eq!(shell_script(&["/bin/sh", "-e", "build.sh", "all"]), Some("build.sh"));
/// assert_eq!(shell_script(&["sh", "-c", "make all"]), None);
/// ```
pub fn shell_script<'a>(command: &[&'a str]) -> Option<&'a str> {
    let (shell, arguments) = command.split_first()?;
    let mut options = arguments.iter().take_while(|word| is_shell_option(word));
    if !SHELLS.contains(&file_name(shell)) || options.any(|word| word.contains(['c', 's'])) {
        return None;
    }
    arguments.iter().copied().find(|word| !is_shell_option(word)).filter(|word| !word.starts_with('-'))
}

/// Returns the largest count that a command in the text of a shell states.
///
/// Lines are split at blanks, and quotes around a word and comments are dropped, which is no
/// parsing of a shell's language: a count that a variable or a function hides is not found.
///
/// # Examples
/// ```
/// use trimtab_core::place::stated_in_text;
///
/// let text = "# xz -T 8\nfor tree in *.fa; do\n  iqtree -s $tree \\\n    -T 2\ndone\n";
/// assert_eq!(stated_in_text(text).map(|stated| stated.threads), Some(2));
/// ```
pub fn stated_in_text(text: &str) -> Option<Stated> {
    let text = text.replace("\\\n", " ");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().take_while(|word| !word.starts_with('#')).collect::<Vec<&str>>());
    let ends = |word: &&str| word.ends_with([';', '|', '&']);
    let bare = |word: &&str| word.trim_matches(['\'', '"', ';', '|', '&', '(', ')']).to_owned();
    let in_line = |words: Vec<&str>| {
        let commands = words.split_inclusive(ends);
        let found = commands.filter_map(|command| {
            let command: Vec<String> = command.iter().map(bare).collect();
            stated(&command.iter().map(String::as_str).collect::<Vec<&str>>(), true)
        });
        found.max_by_key(|stated| stated.threads)
    };
    lines.filter_map(in_line).max_by_key(|stated| stated.threads)
}

/// Returns the command line with at most this number of threads in place of the count that it
/// states; `None` if it states none, or no more than that.
pub fn lower_stated(command: &[&str], behind_launcher: bool, threads: u32) -> Option<Vec<String>> {
    let words = if behind_launcher { command.len() } else { command.len().min(1) };
    let found = (0..words).find_map(|at| Some((at, KnownProgram::of(file_name(command[at]))?)));
    let (at, known) = found?;
    let rest = known.with_count(&command[at + 1..], threads)?;
    Some(command[..=at].iter().map(|word| (*word).to_owned()).chain(rest).collect())
}

/// Returns the program with this file name, if it is known to bind its own threads.
pub fn pins_itself(path: &str) -> Option<&'static str> {
    KnownProgram::of(file_name(path)).filter(|known| known.pins_itself).map(|known| known.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(command: &str) -> Option<(u32, String)> {
        let words: Vec<&str> = command.split(' ').collect();
        let launched = matches!(words[0], "mpirun" | "srun");
        stated(&words, launched).map(|stated| (stated.threads, stated.words))
    }

    #[test]
    fn counts_in_a_shells_text_are_found() {
        let found = |words: &[&str]| stated_within(words).map(|stated| stated.threads);
        for (text, threads) in [
            ("iqtree2 -s p.fa -T 2 && grep x out", Some(2)),
            ("cat x | xz -T8 | wc; samtools sort -@ 3 y", Some(8)),
            ("'/opt/bin/iqtree' -T '4'", Some(4)),
            ("(bwa mem -t 5 ref)", Some(5)),
            ("echo; grep -T 2 x", None),
            ("set -e\niqtree -T 2 a\nxz -T3 b # xz -T9\n", Some(3)),
            ("iqtree -s a \\\n  -T 4", Some(4)),
            ("#!/bin/sh\n# iqtree -T 4", None),
            ("iqtree -s a\n-T 4", None),
            ("", None),
        ] {
            assert_eq!(found(&["/bin/bash", "-c", text]), threads, "{text}");
        }
        assert_eq!(found(&["sh", "-e", "-c", "xz -T2 a"]), Some(2));
        assert_eq!(found(&["sh", "-c"]), None);
        assert_eq!(found(&["sh", "script", "-c", "xz -T2 a"]), None, "a script's own arguments");
        assert_eq!(found(&["xz", "-T2"]), Some(2));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_file_of_a_shell_is_its_first_argument() {
        for (command, file) in [
            ("sh a.sh", Some("a.sh")),
            ("/usr/bin/bash -eu ./a.sh -c x", Some("./a.sh")),
            ("bash -ec a.sh", None),
            ("sh -s a", None),
            ("bash --norc a.sh", None),
            ("sh", None),
            ("python3 a.py", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(shell_script(&words), file, "{command}");
        }
    }

    #[test]
    fn counts_are_read_as_the_programs_read_them() {
        for (command, threads, words) in [
            ("gmx mdrun -ntmpi 2 -ntomp 1", 2, "-ntmpi 2 -ntomp 1"),
            ("/usr/bin/gmx mdrun -nt 4", 4, "-nt 4"),
            ("gmx mdrun -ntomp 4 -pin on", 4, "-ntomp 4"),
            ("mpirun -n 2 gmx_mpi mdrun -ntomp 3", 3, "-ntomp 3"),
            ("lmp -in x -pk omp 4 -sf omp", 4, "-pk 4"),
            ("namd3 +p8 conf", 8, "+p 8"),
            ("xz -T4 file", 4, "-T 4"),
            ("xz --threads=4 file", 4, "--threads 4"),
            ("julia -t 2 x.jl", 2, "-t 2"),
            ("bwa mem -t 4 ref reads", 4, "-t 4"),
            ("bwa mem -t 4 -t 2 ref reads", 2, "-t 2"),
            ("lightgbm num_threads=4 task=train", 4, "num_threads 4"),
            ("iqtree2 -s a.phy -T 3", 3, "-T 3"),
            ("iqtree -s a.phy -nt 3", 3, "-nt 3"),
            ("minimap2 -t4 ref reads", 4, "-t 4"),
            ("mafft --thread 2 --quiet a.fa", 2, "--thread 2"),
        ] {
            assert_eq!(says(command), Some((threads, words.to_owned())), "{command}");
        }
    }

    #[test]
    fn a_value_that_is_no_count_states_nothing() {
        for command in [
            "gmx mdrun",
            "gmx mdrun -ntomp",
            "gmx mdrun -nt 0",
            "gmx mdrun -ntomp x",
            "xz -T0 f",
            "iqtree2 -T AUTO",
            "mafft --thread -1 a.fa",
            "make -j4",
            "./app -ntomp 4",
            "julia -- -t 4",
            "julia -t auto x.jl",
            "lmp -pk gpu 1",
            "sh -c gmx",
            "",
        ] {
            assert_eq!(says(command), None, "{command}");
        }
    }

    #[test]
    fn a_stated_count_is_lowered_where_it_stands() {
        for (command, then) in [
            ("gmx mdrun -ntmpi 2 -ntomp 4 -v", Some("gmx mdrun -ntmpi 2 -ntomp 1 -v")),
            ("gmx mdrun -nt 4", Some("gmx mdrun -nt 2")),
            ("lmp -in x -pk omp 4 -sf omp", Some("lmp -in x -pk omp 2 -sf omp")),
            ("namd3 +p8 conf", Some("namd3 +p2 conf")),
            ("xz -T4 file", Some("xz -T2 file")),
            ("xz --threads=4 file", Some("xz --threads=2 file")),
            ("xz --threads 4 file", Some("xz --threads 2 file")),
            ("lightgbm num_threads=4 task=train", Some("lightgbm num_threads=2 task=train")),
            ("mpirun -n 2 gmx_mpi mdrun -ntomp 3", Some("mpirun -n 2 gmx_mpi mdrun -ntomp 2")),
            ("xz -T2 file", None),
            ("gmx mdrun -ntmpi 4 -ntomp 1", None),
            ("./app -T4", None),
            ("julia -- -t 4", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let lowered = lower_stated(&words, words[0] == "mpirun", 2).map(|words| words.join(" "));
            assert_eq!(lowered.as_deref(), then, "{command}");
            // The reader of counts is the oracle.
            if let Some(lowered) = lowered {
                assert!(says(&lowered).is_some_and(|(threads, _)| threads <= 2), "{lowered}");
            }
        }
    }

    #[test]
    fn gromacs_pins_its_own_threads() {
        assert_eq!(pins_itself("/usr/bin/gmx"), Some("GROMACS"));
        assert_eq!(pins_itself("/usr/bin/lmp"), None);
    }
}
