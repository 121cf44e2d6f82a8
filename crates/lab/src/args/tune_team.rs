//! Options of `trimtab tune-team`.

use clap::{Args, ValueEnum};
use trimtab_front::args::numbers::bytes_of_doubles;
use trimtab_front::args::ranks::RankLayout;
use trimtab_team::Kind;

/// Find the fastest algorithms for teams on this machine.
///
/// Makes a team for each number of ranks. In each cell (operation, size, call class), all
/// algorithms take turns in short batches, and half of them are dropped after each stage. The
/// default algorithm is replaced only by one that is more than 5 % faster. The result is kept in
/// the user's cache folder, for this machine, kernel, number of ranks, occupancy, and the caches
/// and nodes of the ranks; teams use it from then on. If other programs used more than 5 % of the
/// machine, a cell is measured again, and keeps its default after three attempts. Use a machine
/// that is otherwise idle. For the settings of a program, see `trimtab tune`.
///
/// Exit status 0 if done, 1 if --check finds too few good choices or --forget has nothing to
/// forget, 2 if it failed, 128 plus the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct TuneTeamArgs {
    /// Numbers of ranks; by default 2, the number of allowed CPUs, and twice that number.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=512))]
    pub ranks: Vec<u32>,
    /// Kind of the ranks that are measured: thread, process, or PxT for P processes of T threads
    /// each. The result applies to all kinds.
    #[arg(long, visible_alias = "kinds", value_name = "KIND", default_value = "thread")]
    pub kind: RankLayout,
    /// Bind rank i to the CPU i modulo their number.
    #[arg(long)]
    pub pin: bool,
    /// Operations: barrier, broadcast, reduce, allreduce, reduce_scatter, gather, allgather,
    /// scatter, alltoall, scan. By default, all but gather, scatter and scan.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation)]
    pub ops: Vec<Kind>,
    /// Sizes of a block in bytes, multiples of 8; by default, powers of two from 256 bytes to 2
    /// MiB. Sizes with a single algorithm are left out.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes_of_doubles)]
    pub bytes: Vec<usize>,
    /// Synchronisation of calls: stream, strict, loose. Calls of a class that was not tuned use the
    /// result for stream.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "stream")]
    pub modes: Vec<Pace>,
    /// Type of the elements: plain (32 and 64-bit numbers), heavy (16-bit floating point numbers,
    /// user-defined operators).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "plain,heavy")]
    pub types: Vec<Weight>,
    /// Longest time in seconds; cells that are left keep their algorithms.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = budget)]
    pub budget: f64,
    /// Measure only two sizes and plain types, for five seconds: a first impression.
    #[arg(long)]
    pub quick: bool,
    /// Accept cells that were measured while other programs used the machine.
    #[arg(long)]
    pub accept_noise: bool,
    /// List the cells that would be measured, and measure nothing.
    #[arg(long, conflicts_with_all = ["show", "forget", "check"])]
    pub list: bool,
    /// Show the results that are kept for this machine, with evidence and date; measure nothing.
    #[arg(long, conflicts_with_all = ["forget", "check"])]
    pub show: bool,
    /// Forget the results for this machine, or with --ranks for these numbers of ranks.
    #[arg(long, conflicts_with = "check")]
    pub forget: bool,
    /// Measure all algorithms equally long, compare the fastest with the kept one, and keep
    /// nothing: exit status 0 if the kept one is within 5 % of the fastest in 95 % of the cells.
    #[arg(long)]
    pub check: bool,
    /// Print JSON on standard output instead of tables (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// Plan of a rank that is a process, as JSON.
    #[arg(long, hide = true, value_name = "PLAN")]
    pub as_rank: Option<String>,
}

const EXAMPLES: &str = "Examples:\n  trimtab tune-team                          all important cells, for a minute\n  \
    trimtab tune-team --ranks 4 --ops allreduce,barrier --modes stream,strict   one number of ranks, in detail\n  \
    trimtab tune-team --show                   the kept results, with evidence\n  \
    trimtab tune-team --check --json >t.json   how close the kept results are to the best\n\n\
    Ctrl-C ends it early: finished cells are kept and shown.";

/// Synchronisation of calls.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// A rank may reuse its buffers after each call.
    Stream,
    /// All ranks wait for all ranks before and after each call.
    Strict,
    /// A call waits for its data only.
    Loose,
}

/// Type of the elements.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Integers, and floating point numbers of 32 and 64 bits.
    Plain,
    /// 16-bit floating point numbers, and user-defined operators.
    Heavy,
}

fn operation(text: &str) -> Result<Kind, String> {
    let wanted = match text {
        "bcast" => "broadcast",
        other => other,
    };
    let named = |kind: &Kind| kind.name() == wanted || kind.name().replace('_', "-") == wanted;
    Kind::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        format!("\"{text}\" is not one of {}", names.join(", "))
    })
}

fn budget(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("expected 0 to 86400 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_names() {
        assert_eq!(operation("bcast"), Ok(Kind::Broadcast));
        assert_eq!(operation("reduce-scatter"), Ok(Kind::ReduceScatter));
        assert!(operation("sum").unwrap_err().contains("allreduce"));
        assert!(budget("-1").is_err() && budget("NaN").is_err() && budget("0") == Ok(0.0));
    }
}
