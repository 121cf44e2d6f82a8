//! Options of `trimtab bench oversub`.

use super::Class;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::set::CpuSet;
use trimtab_core::study::{Family, Grip, Runtime};

/// More threads than cores: what that costs or gains, by program, runtime, way to wait and binding; alone and two programs at once.
///
/// Runs NAS kernels by OpenMP (GCC's and LLVM's), by MPI (Open MPI, MPICH) and by teams of threads and of processes; programs with
/// barriers at chosen intervals; a pipeline that spins on flags of its own; and nested teams: with 1, 2, 4 and 8 threads for each core,
/// pinned, floating and balanced by speed, waiting in several ways. Pairs of programs share all cores or have half of them each. Each case
/// is run beside its baseline, one thread for each core: what is shown is its time over that of the baseline run just before, as medians with
/// 95 % bootstrap intervals. A case that takes too many times its baseline's time is stopped, and shown as more than that. First it is
/// measured what sched_yield does on this kernel. As by default this takes an hour or two, with --quick at most ten minutes;
/// use a machine that is otherwise idle.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OversubArgs {
    /// Programs: NAS kernels bt, cg, ep, ft, is, lu, mg, sp (ep, ft and is also by MPI and teams); lu-flags, which is lu with threads that spin on flags of
    /// their own without end; the NAS multi-zone benchmarks bt-mz, lu-mz and sp-mz, with teams in teams; barriers-1ms, -10ms, -100ms; pipeline, whose threads
    /// spin on flags; zones, with teams in teams. Without it all but bt, sp, lu-flags and the multi-zone benchmarks, which take long.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub kernels: Vec<Program>,
    /// Who runs their threads: libgomp, libomp, openmpi, mpich, team-thread, team-process. Without it all that are here.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub runtimes: Vec<Runtime>,
    /// Threads for each core.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2, 4, 8],
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub per_core: Vec<u32>,
    /// Where threads may run: pinned, floating, balanced (by speed). Without it all, and with --quick floating.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub grips: Vec<Grip>,
    /// How threads wait, as `trimtab run --wait-policy` has it: keep (as the runtime does by itself), spin, yield, sleep, auto. Without it
    /// all, and for pairs keep and auto; what a runtime has no variable for is left out.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub waits: Vec<WaitPolicy>,
    /// Every way to wait with every grip, and not only with floating threads.
    #[arg(long)]
    pub cross: bool,
    /// Programs to run two at once, as cg+ep; none for none. Without it cg+ep, ep+ep and lu+barriers-10ms.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pairs: Option<Vec<Couple>>,
    /// Threads for each core of the two: even as 1:1, or uneven as 1:4.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [Mix(1, 1), Mix(2, 2), Mix(1, 4)])]
    pub mixes: Vec<Mix>,
    /// Problem class of all programs: S, W, A, B or C. Without it W.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,
    /// How often each case is run; fewer than 5 give no intervals.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Stop a case that takes so many times its baseline's time.
    #[arg(long, value_name = "TIMES", default_value_t = 10.0, value_parser = times)]
    pub limit: f64,
    /// Begin nothing more after so many minutes: what was not run is said, and can be run by --resume.
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// A few telling cases, at most ten minutes: for a first look.
    #[arg(long)]
    pub quick: bool,
    /// List cases and commands, say what cannot be run here, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// The folder of the programs, instead of the installed ones or the source tree's bench/build/gcc; those of clang are in `clang` beside it.
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// The script that starts MPI and teams, instead of the source tree's bench/team/peer.
    #[arg(long, value_name = "FILE")]
    pub peer: Option<PathBuf>,
    /// Seed of order and bootstrap.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all samples and results to FILE as JSON lines, each as soon as it is known (schema in docs/json.md); - for standard output, instead
    /// of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Go on with the record in --json's file: what it holds is not run again. More programs, ways or rounds can be asked for.
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Show the record in FILE again, as --json wrote it, and run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "list", "quick"])]
    pub from: Option<PathBuf>,
    /// Write a chart to FILE: slow-downs over threads for each core.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench oversub --quick                             a first look: at most ten minutes\n  \
    trimtab bench oversub --list                              what would be run, and by which commands\n  \
    trimtab bench oversub --kernels lu,pipeline --pairs none  programs that wait by themselves\n  \
    trimtab bench oversub --kernels lu-flags,lu-mz --class S --pairs none --limit 200   those that suffer most\n  \
    trimtab bench oversub --kernels cg --runtimes libgomp,libomp --waits keep,spin,sleep --pairs none\n  \
    trimtab bench oversub --pairs cg+ep --mixes 1:1,1:4 --kernels cg --per-core 1   sharing against partitioning\n  \
    trimtab bench oversub --json o.jsonl --svg o.svg          a measurement to keep\n  \
    trimtab bench oversub --json o.jsonl --resume             go on after an interruption\n\n\
    The programs are built by: make -C bench, make -C bench CC=clang, and for teams first cargo build --release -p trimtab-team-c\n\
    Ctrl-C ends it early: what was measured until then is shown and written.";

/// Starts a program on some CPUs so that it ends with who started it.
#[derive(Args, Debug)]
pub struct OversubCellArgs {
    /// CPUs that it may use.
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
}

impl Program {
    /// As in options and records.
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
        }
    }

    /// What kind of program it is.
    pub fn family(self) -> Family {
        match self {
            Self::Barriers1ms | Self::Barriers10ms | Self::Barriers100ms => Family::Barriers,
            Self::Pipeline => Family::Pipeline,
            Self::Zones | Self::BtMz | Self::LuMz | Self::SpMz => Family::Zones,
            _ => Family::Nas,
        }
    }
}

/// Two programs at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Couple {
    /// No pair.
    None,
    /// These.
    Of(Program, Program),
}

impl FromStr for Couple {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let (one, other) = text
            .split_once('+')
            .ok_or_else(|| format!("\"{text}\" is no pair such as cg+ep, and not none"))?;
        let program = |name: &str| {
            <Program as ValueEnum>::from_str(name, false)
                .map_err(|_| format!("there is no program \"{name}\""))
        };
        Ok(Self::Of(program(one)?, program(other)?))
    }
}

/// Threads for each core of two programs.
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
                "\"{text}\" is no mix such as 1:4: one thread a core of the first program, four of the second"
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
        assert_eq!("cg+ep".parse(), Ok(Couple::Of(Program::Cg, Program::Ep)));
        assert_eq!("lu+barriers-1ms".parse(), Ok(Couple::Of(Program::Lu, Program::Barriers1ms)));
        assert_eq!("none".parse(), Ok(Couple::None));
        for bad in ["", "cg", "cg+", "+ep", "cg+xx", "cg+ep+ft", "CG+ep"] {
            assert!(bad.parse::<Couple>().is_err(), "{bad:?}");
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
