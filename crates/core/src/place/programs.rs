//! Known programs: the options by which a command line states a thread count, and programs that
//! pin their own threads.
//!
//! Problem: a program that was told `-ntomp 4` must not be told another count by a variable. Idea: a
//! table with one row for each program. Where the command line states a count, no variable states
//! one: nothing is exported, and the user's own variables are left as they are.
//!
//! Only the words of the command line are read. A program that is not listed states nothing.

use serde::Serialize;
use std::fmt;

/// A thread count that a command line states.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Stated {
    /// The program, by its name in the table.
    pub program: &'static str,
    /// The words that state it, as typed.
    pub words: String,
    /// The threads that result, at least 1.
    pub threads: u32,
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command line of {} says {}", self.program, self.words)
    }
}

/// The place of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// The next word: `-ntomp 4`.
    Next,
    /// The rest of the word or the next word: `-t4`, `-t 4`.
    AttachedOrNext,
    /// Behind an equals sign or the next word: `--threads=4`, `--threads 4`.
    EqualsOrNext,
    /// The rest of the word: `+p4`.
    Attached,
    /// Behind an equals sign: `num_threads=4`.
    Equals,
    /// The word behind this next one: `-pk omp 4`.
    After(&'static str),
}

struct Known {
    program: &'static str,
    /// File names; a trailing `*` stands for any rest.
    names: &'static [&'static str],
    options: &'static [(&'static str, Value)],
    /// Whether the numbers of several options multiply (ranks times threads) or the last one counts.
    multiply: bool,
    /// Whether the program binds its own threads where nothing else does.
    pins_itself: bool,
}

impl Known {
    const fn new(
        program: &'static str,
        names: &'static [&'static str],
        options: &'static [(&'static str, Value)],
    ) -> Self {
        Self { program, names, options, multiply: false, pins_itself: false }
    }
}

/// Sources: the programs' manuals. Tried by running them: GROMACS 2022.5.
const KNOWN: [Known; 22] = [
    Known {
        program: "GROMACS",
        names: &["gmx", "gmx_*", "mdrun", "mdrun_*"],
        options: &[("-nt", Value::Next), ("-ntmpi", Value::Next), ("-ntomp", Value::Next)],
        multiply: true,
        // `-pin auto`: only where no OpenMP variable binds threads.
        pins_itself: true,
    },
    Known::new(
        "LAMMPS",
        &["lmp", "lmp_*", "lammps"],
        &[("-pk", Value::After("omp")), ("-package", Value::After("omp"))],
    ),
    Known::new("NAMD", &["namd2", "namd3"], &[("+p", Value::Attached)]),
    Known::new("llama.cpp", &["llama-*"], &[("-t", Value::Next), ("--threads", Value::EqualsOrNext)]),
    Known::new("Julia", &["julia*"], &[("-t", Value::AttachedOrNext), ("--threads", Value::EqualsOrNext)]),
    Known::new("LightGBM", &["lightgbm"], &[("num_threads", Value::Equals), ("num_thread", Value::Equals)]),
    Known::new("XGBoost", &["xgboost"], &[("nthread", Value::Equals)]),
    Known::new("darktable", &["darktable*"], &[("-t", Value::Next)]),
    Known::new("POV-Ray", &["povray"], &[("+WT", Value::Attached), ("Work_Threads", Value::Equals)]),
    Known::new("FFmpeg", &["ffmpeg"], &[("-threads", Value::Next)]),
    Known::new("x264", &["x264"], &[("--threads", Value::EqualsOrNext)]),
    Known::new("xz", &["xz", "lzma"], &[("-T", Value::AttachedOrNext), ("--threads", Value::EqualsOrNext)]),
    Known::new("zstd", &["zstd"], &[("-T", Value::Attached), ("--threads", Value::Equals)]),
    Known::new("pigz", &["pigz"], &[("-p", Value::AttachedOrNext), ("--processes", Value::EqualsOrNext)]),
    Known::new("7-Zip", &["7z", "7za", "7zr", "7zz"], &[("-mmt", Value::Attached)]),
    Known::new(
        "BLAST",
        &["blastn", "blastp", "blastx", "tblastn", "tblastx"],
        &[("-num_threads", Value::Next)],
    ),
    Known::new("BWA", &["bwa", "bwa-mem2"], &[("-t", Value::AttachedOrNext)]),
    Known::new(
        "Bowtie 2",
        &["bowtie2"],
        &[("-p", Value::AttachedOrNext), ("--threads", Value::EqualsOrNext)],
    ),
    Known::new(
        "SAMtools",
        &["samtools"],
        &[("-@", Value::AttachedOrNext), ("--threads", Value::EqualsOrNext)],
    ),
    Known::new("STAR", &["STAR"], &[("--runThreadN", Value::EqualsOrNext)]),
    Known::new("HMMER", &["hmmsearch", "hmmscan", "phmmer", "jackhmmer"], &[("--cpu", Value::EqualsOrNext)]),
    Known::new("sysbench", &["sysbench"], &[("--threads", Value::EqualsOrNext)]),
];

impl Known {
    /// The row of a file name.
    fn of(name: &str) -> Option<&'static Self> {
        let is = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        KNOWN.iter().find(|known| known.names.iter().any(|pattern| is(pattern)))
    }

    /// The count that these arguments state.
    fn stated(&self, arguments: &[&str]) -> Option<Stated> {
        let mut found: Vec<(&'static str, u32)> = Vec::new();
        for (at, word) in arguments.iter().enumerate() {
            if *word == "--" {
                break;
            }
            for &(option, value) in self.options {
                let Some(text) = text_of(option, value, word, &arguments[at + 1..]) else { continue };
                // 0 stands for "choose by yourself" in every program listed.
                let Some(count) = text.parse::<u32>().ok().filter(|&count| count > 0) else { continue };
                found.retain(|(known, _)| *known != option);
                found.push((option, count));
            }
        }
        let threads = if self.multiply {
            // The total, where it is stated, counts ranks and threads together.
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

/// The value of one option at one word, if the word is that option.
fn text_of<'a>(option: &str, value: Value, word: &'a str, rest: &[&'a str]) -> Option<&'a str> {
    let next = |at: usize| rest.get(at).copied();
    let behind = word.strip_prefix(option)?;
    match (value, behind) {
        (Value::Next | Value::AttachedOrNext | Value::EqualsOrNext, "") => next(0),
        (Value::After(keyword), "") if next(0) == Some(keyword) => next(1),
        (Value::AttachedOrNext | Value::Attached, attached) if !attached.is_empty() => Some(attached),
        (Value::EqualsOrNext | Value::Equals, attached) => attached.strip_prefix('='),
        _ => None,
    }
}

/// The file name of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The count that a command line states. `behind_launcher` says that the command starts other
/// programs (`mpirun -n 2 gmx_mpi ...`), one of which may be listed.
pub fn stated(command: &[&str], behind_launcher: bool) -> Option<Stated> {
    let words = if behind_launcher { command.len() } else { command.len().min(1) };
    let found = (0..words).find_map(|at| Some((at, Known::of(file_name(command[at]))?)));
    let (at, known) = found?;
    known.stated(&command[at + 1..])
}

/// The program of this file name, if it is known to bind its own threads.
pub fn pins_itself(path: &str) -> Option<&'static str> {
    Known::of(file_name(path)).filter(|known| known.pins_itself).map(|known| known.program)
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
        ] {
            assert_eq!(says(command), Some((threads, words.to_owned())), "{command}");
        }
    }

    #[test]
    fn what_is_not_a_count_states_nothing() {
        for command in [
            "gmx mdrun",
            "gmx mdrun -ntomp",
            "gmx mdrun -nt 0",
            "gmx mdrun -ntomp x",
            "xz -T0 f",
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
    fn gromacs_pins_its_own_threads() {
        assert_eq!(pins_itself("/usr/bin/gmx"), Some("GROMACS"));
        assert_eq!(pins_itself("/usr/bin/lmp"), None);
    }
}
