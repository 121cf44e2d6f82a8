//! Options of `trimtab bench oversub`.

use super::Class;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::set::CpuSet;
use trimtab_core::study::{Family, LoopSchedule, Runtime, ThreadBinding};

/// Benchmark programs with more threads than cores.
///
/// Measures slowdown or gain by program, runtime, wait policy and binding, for one program alone
/// and for two programs at once. Runs NAS kernels with OpenMP (GCC's and LLVM's), with MPI (Open
/// MPI, MPICH), with UPC++ and with teams of threads and of processes; programs with barriers at
/// chosen intervals; a pipeline that spins on flags of its own; and nested teams. Each runs with 1,
/// 2, 4 and 8 threads per core, pinned, floating and balanced by speed, under several wait
/// policies. Pairs of programs share all cores or get half of them each. Each case runs right after
/// its baseline of one thread per core; the tables show the ratio of the two times as medians with
/// 95 % bootstrap intervals. A case that exceeds its limit, a multiple of the baseline's time, is
/// stopped and shown as a lower bound. The effect of sched_yield on this kernel is measured first.
/// The defaults take an hour or two, --quick at most ten minutes; use an otherwise idle machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OversubArgs {
    /// Programs to run. Default: all but bt, sp, lu-flags and the multi-zone benchmarks, which take
    /// long.
    ///
    /// NAS kernels: bt, cg, ep, ft, is, lu, mg, sp (cg, ep, ft, is and mg also with MPI, UPC++ and
    /// teams). lu-flags is lu with threads that spin without limit on flags of their own. NAS
    /// multi-zone benchmarks with nested teams: bt-mz, lu-mz, sp-mz. Others: barriers-1ms,
    /// barriers-10ms, barriers-100ms; pipeline, whose threads spin on flags; zones, with nested
    /// teams.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub kernels: Vec<Program>,
    /// Runtimes: libgomp, libomp, openmpi, mpich, team-thread, team-process, upcxx. Default: all
    /// that are installed.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub runtimes: Vec<Runtime>,
    /// Threads per core.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2, 4, 8],
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub per_core: Vec<u32>,
    /// Bindings of threads: pinned, floating, balanced (by speed). Default: all; with --quick
    /// floating.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub grips: Vec<ThreadBinding>,
    /// Wait policies, as in trimtab run --wait-policy: keep (the runtime's own), spin, yield,
    /// sleep, auto. Default: all; for pairs keep and auto. Policies that a runtime has no variable
    /// for are left out.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub waits: Vec<WaitPolicy>,
    /// Schedules of OpenMP loops: static, dynamic, guided. Default: none, and loops are static.
    ///
    /// Each schedule is one case more for bt, cg, ep, ft, mg and sp, with floating threads and the
    /// runtime's own wait policy. The programs are those that take their schedule from
    /// OMP_SCHEDULE; the baseline is the usual program with static loops.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub schedules: Vec<LoopSchedule>,
    /// Also run the reference programs of the NAS Parallel Benchmarks in DIR (cg.W.x, ...), of MPI
    /// or of OpenMP.
    ///
    /// Their files are named as its makefiles name them. The libraries that a file is linked with
    /// say which runtime it is for; ranks are started by that MPI's launcher. They run floating,
    /// with each wait policy that the runtime has a variable for. A result that the program does
    /// not verify fails. Numbers of ranks that a program refuses are left out and named.
    #[arg(long, value_name = "DIR")]
    pub npb: Option<PathBuf>,
    /// Combine each wait policy with each binding, not only with floating threads.
    #[arg(long)]
    #[arg(hide_short_help = true)]
    pub cross: bool,
    /// Pairs of programs to run at once, as in cg+ep, or none. Default: cg+ep, ep+ep and
    /// lu+barriers-10ms.
    ///
    /// Programs of different runtimes, as in cg@libgomp+ft@openmpi, also ranks of MPI and teams;
    /// without @ both have the same OpenMP.
    ///
    /// Any two commands, with " + " between them: "./a 1 + ./b 2". They are split at blanks, must
    /// not contain a comma, run without input, and their output is dropped; their times are those
    /// from start to end. A number of threads is set by OMP_NUM_THREADS, by default one thread per
    /// core. With commands no program runs alone, except as a baseline, unless --kernels names it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pairs: Option<Vec<ProgramPair>>,
    /// Threads per core of the two programs of a pair: equal as in 1:1, or unequal as in 1:4.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [Mix(1, 1), Mix(2, 2), Mix(1, 4)])]
    #[arg(hide_short_help = true)]
    pub mixes: Vec<Mix>,
    /// Problem class of all programs: S, W, A, B or C (default W).
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,
    /// Runs of each case; fewer than 5 give no intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Stop a case that takes this many times its baseline's time.
    #[arg(long, value_name = "TIMES", default_value_t = 10.0, value_parser = times)]
    #[arg(hide_short_help = true)]
    pub limit: f64,
    /// Start no further run after M minutes. A note names the runs left out; --resume runs them.
    #[arg(long, value_name = "M", value_parser = minutes)]
    #[arg(hide_short_help = true)]
    pub minutes: Option<f64>,
    /// Run a few representative cases in at most ten minutes, for a first impression.
    #[arg(long)]
    pub quick: bool,
    /// List cases, commands and the cases that cannot run on this machine, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Folder of the benchmark programs; those built by clang are in the folder clang beside it.
    /// Default: the installed ones, or bench/build/gcc in the source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Script that starts MPI and teams. Default: the installed one, or bench/team/peer in the
    /// source tree.
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub peer: Option<PathBuf>,
    /// Seed of the order of runs and of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Continue the record in the file of --json; runs that it contains are not repeated. Programs,
    /// variants and rounds can be added.
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Show the record in FILE, which --json wrote, and run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "list", "quick"])]
    #[arg(hide_short_help = true)]
    pub from: Option<PathBuf>,
    /// Write a chart to FILE: slowdown over threads per core.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench oversub --quick                             a first impression, in at most ten minutes\n  \
    trimtab bench oversub --list                              the cases with their commands\n  \
    trimtab bench oversub --kernels lu,pipeline --pairs none  programs with their own ways to wait\n  \
    trimtab bench oversub --kernels lu-flags,lu-mz --class S --pairs none --limit 200   the programs that slow down most\n  \
    trimtab bench oversub --kernels cg --runtimes libgomp,libomp --waits keep,spin,sleep --pairs none\n  \
    trimtab bench oversub --pairs cg+ep --mixes 1:1,1:4 --kernels cg --per-core 1   sharing against partitioning\n  \
    trimtab bench oversub --pairs cg@libgomp+ft@openmpi,ep@libomp+is@mpich --kernels cg --per-core 1   mixed runtimes\n  \
    trimtab bench oversub --kernels cg,mg,sp --schedules static,dynamic,guided --waits keep --grips floating --pairs none\n  \
    trimtab bench oversub --kernels cg,ft,is,mg --npb ~/NPB3.4-MPI/bin --runtimes openmpi --pairs none   the reference programs\n  \
    trimtab bench oversub --pairs './a 1 + ./b 2'             two commands of yours, shared and on half of the cores each\n  \
    trimtab bench oversub --json o.jsonl --svg o.svg          a measurement to keep\n  \
    trimtab bench oversub --json o.jsonl --resume             continue after an interruption\n\n\
    The programs are built by: make -C bench, make -C bench CC=clang, and for teams first cargo build --release -p trimtab-team-c\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

/// Run a program on some CPUs; it ends when its parent ends.
#[derive(Args, Debug)]
pub struct OversubCellArgs {
    /// CPUs that the program may use.
    #[arg(long, value_name = "LIST")]
    pub cpus: CpuSet,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// A program of the study.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    Bt,
    Cg,
    Ep,
    Ft,
    Is,
    Lu,
    LuFlags,
    Mg,
    Sp,
    BtMz,
    LuMz,
    SpMz,
    #[value(name = "barriers-1ms")]
    Barriers1ms,
    #[value(name = "barriers-10ms")]
    Barriers10ms,
    #[value(name = "barriers-100ms")]
    Barriers100ms,
    Pipeline,
    Zones,
    /// A reference program of the NAS Parallel Benchmarks, in the folder of `--npb`.
    #[value(skip)]
    Npb(NpbKernel),
    /// A command of the user. Options are read once, so its text stays for good.
    #[value(skip)]
    Own(&'static str),
}

impl Program {
    /// Returns the word used in options and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bt => "bt",
            Self::Cg => "cg",
            Self::Ep => "ep",
            Self::Ft => "ft",
            Self::Is => "is",
            Self::Lu => "lu",
            Self::LuFlags => "lu-flags",
            Self::Mg => "mg",
            Self::Sp => "sp",
            Self::BtMz => "bt-mz",
            Self::LuMz => "lu-mz",
            Self::SpMz => "sp-mz",
            Self::Barriers1ms => "barriers-1ms",
            Self::Barriers10ms => "barriers-10ms",
            Self::Barriers100ms => "barriers-100ms",
            Self::Pipeline => "pipeline",
            Self::Zones => "zones",
            Self::Npb(kernel) => kernel.word(),
            Self::Own(command) => command,
        }
    }

    /// Returns the family that the program belongs to.
    pub fn family(self) -> Family {
        match self {
            Self::Barriers1ms | Self::Barriers10ms | Self::Barriers100ms => Family::Barriers,
            Self::Pipeline => Family::Pipeline,
            Self::Zones | Self::BtMz | Self::LuMz | Self::SpMz => Family::Zones,
            Self::Own(_) => Family::Command,
            _ => Family::Nas,
        }
    }
}

/// A reference program of the NAS Parallel Benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NpbKernel {
    Bt,
    Cg,
    Ep,
    Ft,
    Is,
    Lu,
    Mg,
    Sp,
}

impl NpbKernel {
    /// Returns the reference program of a kernel of this project; `None` if there is none.
    pub fn of(program: Program) -> Option<Self> {
        match program {
            Program::Bt => Some(Self::Bt),
            Program::Cg => Some(Self::Cg),
            Program::Ep => Some(Self::Ep),
            Program::Ft => Some(Self::Ft),
            Program::Is => Some(Self::Is),
            Program::Lu => Some(Self::Lu),
            Program::Mg => Some(Self::Mg),
            Program::Sp => Some(Self::Sp),
            _ => None,
        }
    }

    /// Returns the word used in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bt => "npb-bt",
            Self::Cg => "npb-cg",
            Self::Ep => "npb-ep",
            Self::Ft => "npb-ft",
            Self::Is => "npb-is",
            Self::Lu => "npb-lu",
            Self::Mg => "npb-mg",
            Self::Sp => "npb-sp",
        }
    }

    /// Returns the name that the program has in its files and reports.
    pub fn name(self) -> &'static str {
        self.word().trim_start_matches("npb-")
    }
}

/// A program of a pair, and its runtime, if the pair names one.
pub type PairMember = (Program, Option<Runtime>);

/// A pair of programs that run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramPair {
    /// No pair is run.
    None,
    /// The two programs.
    Of(PairMember, PairMember),
}

impl FromStr for ProgramPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some((one, other)) = text.split_once(" + ") {
            // The words are not those of a shell.
            if let Some(letter) = text.chars().find(|letter| matches!(letter, '"' | '\'' | '\\')) {
                return Err(format!(
                    "commands of --pairs are split at spaces and cannot have {letter}: put such a command into a script"
                ));
            }
            let own = |command: &str| {
                let words: Vec<&str> = command.split_whitespace().collect();
                let empty = format!("\"{text}\" has a command on one side of + only");
                if words.is_empty() { Err(empty) } else { Ok((Program::Own(words.join(" ").leak()), None)) }
            };
            return Ok(Self::Of(own(one)?, own(other)?));
        }
        let (one, other) = text.split_once('+').ok_or_else(|| {
            format!("\"{text}\" is neither a pair such as cg+ep or \"./a 1 + ./b 2\", nor none")
        })?;
        let program = |word: &str| {
            let (name, runtime) = word.split_once('@').map_or((word, None), |(name, of)| (name, Some(of)));
            let program = <Program as ValueEnum>::from_str(name, false)
                .map_err(|_| format!("there is no program \"{name}\""))?;
            Ok::<_, String>((program, runtime.map(str::parse).transpose()?))
        };
        Ok(Self::Of(program(one)?, program(other)?))
    }
}

/// Threads per core of the two programs of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix(pub u32, pub u32);

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|number| (1..=64).contains(number));
        let both = text.split_once(':').and_then(|(one, other)| Some(Self(number(one)?, number(other)?)));
        both.ok_or_else(|| {
            format!(
                "\"{text}\" is not a mix such as 1:4: one thread per core of the first program, four of the second"
            )
        })
    }
}

fn times(text: &str) -> Result<f64, String> {
    let times = text.parse().ok().filter(|times| (1.5..=10_000.0).contains(times));
    times.ok_or_else(|| format!("\"{text}\" is not a number from 1.5 to 10000"))
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.01..=100_000.0).contains(minutes));
    minutes.ok_or_else(|| format!("\"{text}\" is not a number of minutes from 0.01"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_mixes_are_two_words() {
        let of = |one, other| Ok(ProgramPair::Of((one, None), (other, None)));
        assert_eq!("cg+ep".parse(), of(Program::Cg, Program::Ep));
        assert_eq!("lu+barriers-1ms".parse(), of(Program::Lu, Program::Barriers1ms));
        let mixed =
            ProgramPair::Of((Program::Cg, Some(Runtime::Libomp)), (Program::Ft, Some(Runtime::OpenMpi)));
        assert_eq!("cg@libomp+ft@openmpi".parse(), Ok(mixed));
        assert_eq!("none".parse(), Ok(ProgramPair::None));
        let own = |one, other| of(Program::Own(one), Program::Own(other));
        assert_eq!("./a  -n 1 + b+c".parse(), own("./a -n 1", "b+c"));
        assert_eq!("cg + ep".parse(), own("cg", "ep"));
        for bad in [
            "",
            "cg",
            "cg+",
            "+ep",
            "cg+xx",
            "cg+ep+ft",
            "CG+ep",
            "./a + ",
            " + ./a",
            "./a '1 2' + ./b",
            "./a + ./b \"",
            "./a\\ 1 + ./b",
            "cg@+ep",
            "cg@pthread+ep",
            "@libgomp+ep",
            "npb-cg+ep",
        ] {
            assert!(bad.parse::<ProgramPair>().is_err(), "{bad:?}");
        }
        assert_eq!("1:4".parse(), Ok(Mix(1, 4)));
        for bad in ["", "1", "0:1", "1:", ":1", "1:65", "1:1:1", "-1:1"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad:?}");
        }
        for program in Program::value_variants() {
            assert_eq!(<Program as ValueEnum>::from_str(program.word(), false), Ok(*program));
        }
    }
}
