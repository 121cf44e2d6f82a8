//! Options of `trimtab tune-team`.

use clap::{Args, ValueEnum};
use trimtab_front::args::numbers::bytes_of_doubles;
use trimtab_front::args::ranks::RankLayout;
use trimtab_team::Kind;

/// Tune teams for this machine: which way each collective goes quickest, found beforehand and kept.
///
/// For each number of ranks a team is made, and in each cell (operation, size, manner of calling) all ways of carrying the call out take
/// turns in short batches; half of them go after each stage. The usual way is left only for one that is more than 5 % quicker.
/// What is found is kept in the user's cache folder, for this machine, kernel, number of ranks, occupancy, and caches and nodes that
/// the ranks are spread over; teams use it from then on. Where others used more than 5 % of the machine meanwhile a cell is measured again, and left as usual
/// after three tries. Use a machine that is otherwise idle. Exit status 0 when it was done, 1 when --check finds too few choices
/// good or --forget has nothing to forget, 2 when it failed, 128 and the signal's number after Ctrl-C.
#[derive(Args, Debug, Clone)]
#[command(after_help = EXAMPLES)]
pub struct TuneTeamArgs {
    /// Counts of ranks; without it: 2, as many as CPUs are allowed, and twice as many.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=512))]
    pub ranks: Vec<u32>,
    /// How ranks come to be while they are measured: thread, process, or PxT for P processes of T threads each. What is found holds for all.
    #[arg(long, visible_alias = "kinds", value_name = "KIND", default_value = "thread")]
    pub kind: RankLayout,
    /// Bind rank i to the CPU i modulo their number.
    #[arg(long)]
    pub pin: bool,
    /// Operations: barrier, broadcast, reduce, allreduce, reduce_scatter, gather, allgather, scatter, alltoall, scan. Without it: all that
    /// synchronise and move much, without gather, scatter and scan.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation)]
    pub ops: Vec<Kind>,
    /// Sizes of a block in bytes, multiples of 8; without it: powers of two from 256 bytes to 2 MiB. Sizes with one way alone are left out.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes_of_doubles)]
    pub bytes: Vec<usize>,
    /// How calls are synchronised: stream, strict, loose. Calls that were not tuned in their own manner go as those in stream do.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "stream")]
    pub modes: Vec<Pace>,
    /// What is combined: plain (32 and 64-bit numbers), heavy (16-bit floating point numbers, own operators).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "plain,heavy")]
    pub types: Vec<Weight>,
    /// Seconds for everything; what is left then stays as it was.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = budget)]
    pub budget: f64,
    /// Two sizes, plain numbers, five seconds: for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Judge cells however much others used of the machine: minima bear much.
    #[arg(long)]
    pub accept_noise: bool,
    /// List what would be measured, and measure nothing.
    #[arg(long, conflicts_with_all = ["show", "forget", "check"])]
    pub list: bool,
    /// Show what is kept for this machine, by what it was found, and when; measure nothing.
    #[arg(long, conflicts_with_all = ["forget", "check"])]
    pub show: bool,
    /// Forget what is kept for this machine, or with --ranks for these.
    #[arg(long, conflicts_with = "check")]
    pub forget: bool,
    /// Measure all ways as long as each other, compare the quickest with what is kept, and keep nothing: exit status 0 when the
    /// choice is within 5 % of the best in 95 % of the cells.
    #[arg(long)]
    pub check: bool,
    /// Print JSON on standard output instead of tables (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
    /// A rank in a process of its own: the plan, as JSON.
    #[arg(long, hide = true, value_name = "PLAN")]
    pub as_rank: Option<String>,
}

const EXAMPLES: &str = "Examples:\n  trimtab tune-team                          all that matters, for a minute\n  \
    trimtab tune-team --ranks 4 --ops allreduce,barrier --modes stream,strict   one number of ranks, closely\n  \
    trimtab tune-team --show                   what is kept, and why\n  \
    trimtab tune-team --check --json >t.json   how near it is to the best\n\n\
    Ctrl-C ends it early: what was finished is kept and shown.";

/// How calls are synchronised.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Own buffers may be used again after each call.
    Stream,
    /// All wait for all before each call and after it.
    Strict,
    /// Calls wait for no more than data.
    Loose,
}

/// What is combined.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Integers, and floating point numbers of 32 and 64 bits.
    Plain,
    /// Floating point numbers of 16 bits, and operators of a program's own.
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
        format!("\"{text}\" is none of {}", names.join(", "))
    })
}

fn budget(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not from 0 to 86400 seconds".to_owned())
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
