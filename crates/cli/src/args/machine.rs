//! Options of commands that show or check a machine, its holds and its plans.

use super::SurveyMode;
use super::run::{PlaceArgs, RunOnly};
use super::time;
use super::words::Words;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use trimtab_core::place::Format;
use trimtab_core::set::CpuSet;

/// Show what a run would do, and why, without running anything.
///
/// Takes the options of trimtab run and decides as it would decide now: cores, threads, variables,
/// wait policy, the preload library. Nothing is reserved. Kept tunings, rules, quotas and the
/// variables of an MPI launcher apply.
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub run: RunOnly,
    /// Plan for another machine: an hwloc XML file (FILE.xml) or a description such as 'pack:2
    /// numa:2 l3:2 core:4 pu:2'.
    #[arg(long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Plan as if other runs held these CPUs too.
    #[arg(long, value_name = "LIST")]
    pub held: Option<CpuSet>,
    /// Plan as if other programs kept these CPUs busy too.
    #[arg(long, value_name = "LIST")]
    pub busy: Option<CpuSet>,
    /// Say why each choice was made.
    #[arg(long)]
    pub explain: bool,
    /// Draw the machine with the plan in it.
    #[arg(long)]
    pub map: bool,
    /// Print the plan as JSON (schema in docs/json.md).
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Print the plan for another tool: omp, taskset, numactl, likwid, slurm, cpuset, systemd,
    /// podman, docker, compose, libvirt, mpich, openmpi (mpirun of Open MPI 5) or rankfile (a file
    /// for mpirun, of Open MPI 4 too); json is --json.
    #[arg(long, value_name = "TOOL", value_parser = Words::<PlanFormat>::of(PlanFormat::words()), hide_possible_values = true)]
    pub format: Option<PlanFormat>,
    /// The program that the plan is for; its kind decides its environment.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Notation of a printed plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanFormat {
    /// The JSON document.
    Json,
    /// That of another tool.
    Tool(Format),
}

impl PlanFormat {
    fn words() -> impl Iterator<Item = &'static str> {
        Format::words().chain(["json"])
    }
}

impl FromStr for PlanFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "json" {
            return Ok(Self::Json);
        }
        text.parse().map(Self::Tool).map_err(|error: String| format!("{error}, and json"))
    }
}

/// Draw the machine, and which parts of it are in use.
///
/// Shows nodes, caches and cores, and which CPUs are allowed, held, pinned and busy.
#[derive(Args, Debug)]
pub struct TopoArgs {
    /// Draw another machine: an hwloc XML file (FILE.xml) or a description such as 'pack:2 numa:2
    /// l3:2 core:4 pu:2'.
    #[arg(long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Write an SVG picture to FILE (- for standard output).
    #[arg(long, value_name = "FILE", conflicts_with = "json", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Print the machine and its state as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// How to measure the load and the pinned threads of other programs.
    #[arg(long, value_name = "HOW", default_value = "full")]
    pub survey: SurveyMode,
}

/// List the programs that hold cores.
///
/// Shows CPUs, user, process, command, age and load of each hold, and programs that run on cores
/// that another program holds.
#[derive(Args, Debug)]
pub struct PsArgs {
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Draw the map of the machine too.
    #[arg(long)]
    pub map: bool,
}

/// Print how many threads a program should use here.
///
/// The number is the smallest of all bounds that hold for the calling process: its CPU mask, the
/// CPU quotas of its control groups, the cores of the trimtab run that it is in, the threads that
/// other processes of that run leave of its budget (`--fit budget`), and OMP_NUM_THREADS and
/// OMP_THREAD_LIMIT. Scripts can use it in place of coreutils' nproc, which sees the mask and the
/// variables only.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  make -j\"$(trimtab nproc)\"\n  trimtab nproc --explain\n  \
    trimtab run --fit budget sh -c 'trimtab nproc --explain'")]
pub struct NprocArgs {
    /// Print the number of CPUs that the machine has, whether or not they may be used.
    #[arg(long, conflicts_with = "explain")]
    pub all: bool,
    /// Leave this many threads out, but print at least 1.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub ignore: u32,
    /// Print every bound and its reason after the number.
    #[arg(long)]
    pub explain: bool,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long, conflicts_with_all = ["explain", "all"])]
    pub json: bool,
}

/// Find faults of this machine, or of a program's launch.
///
/// Without a program, checks the machine and the environment, and names a remedy for each fault.
/// With a program, runs it plain and under trimtab run. If the two end differently, each change
/// that a run makes is left out in turn, and the change that the program does not tolerate is
/// named. The program gets no input, and its output is dropped.
///
/// Exit status 0 if all is well, 1 if something should be changed.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Longest time that one attempt of the program may take (30s, 10m).
    #[arg(long, value_name = "TIME", value_parser = time::lasting, requires = "command")]
    pub timeout: Option<trimtab_core::time::Span>,
    /// The program to try, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Check a plan against its machine.
///
/// Reads the JSON of `trimtab plan --json`. Exit status 0 if the plan is good, 1 if it is not.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The plan; - for standard input.
    #[arg(value_name = "PLAN.json", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
}
