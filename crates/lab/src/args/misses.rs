//! Options of `trimtab bench misses`.

use super::Class;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Count cache misses per 1,000 instructions.
///
/// Runs NAS kernels with 1, 2 and 4 threads per core and shows, for each, the misses of the
/// last-level cache per 1,000 instructions, and their change with the number of threads. If
/// hardware counts here, `perf stat` counts, in user mode, with threads on all cores. Otherwise
/// valgrind's cachegrind simulates the caches of one core; its threads take turns on that core.
/// The report says which of the two it was. Threads sleep while they wait, so that waiting adds
/// neither instructions nor misses. A result that the program does not verify fails.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MissesArgs {
    /// Kernels. Default: all.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        value_parser = ["bt", "cg", "ep", "ft", "is", "lu", "mg", "sp"])]
    pub kernels: Vec<String>,
    /// Threads per core.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2, 4],
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub per_core: Vec<u32>,
    /// Source of the counts.
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub by: CountSource,
    /// Size of the simulated last-level cache in bytes, of 16 ways and lines of 64 bytes (default:
    /// this machine's): a power of two. Only for cachegrind.
    #[arg(long, value_name = "BYTES", value_parser = cache_bytes)]
    #[arg(hide_short_help = true)]
    pub cache: Option<u64>,
    /// Problem class (default: W with counters, S with cachegrind, which is fifty times slower).
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,
    /// Runs of each case. What cachegrind counts hardly differs between runs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// List the cases with their commands, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Folder of the benchmark programs. Default: the installed ones, or bench/build/gcc in the
    /// source tree.
    #[arg(long, value_name = "DIR")]
    #[arg(hide_short_help = true)]
    pub programs: Option<PathBuf>,
    /// Seed of the order of runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(hide_short_help = true)]
    pub seed: u64,
    /// Write each sample and result to FILE as a JSON line as soon as it is known (schema in
    /// docs/json.md). With -, write to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Reads the size of a cache that cachegrind can simulate: its number of sets is a power of two, so
/// with 16 ways and lines of 64 bytes its size is one too.
fn cache_bytes(text: &str) -> Result<u64, String> {
    let bytes: u64 = text.parse().map_err(|_| "not a number of bytes".to_owned())?;
    let known = (65_536..=1_073_741_824).contains(&bytes) && bytes.is_power_of_two();
    known.then_some(bytes).ok_or_else(|| {
        "cachegrind simulates caches of a power of two, of 65536 to 1073741824 bytes".to_owned()
    })
}

/// Source of the counts.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountSource {
    /// Counters if hardware counts here, else cachegrind.
    Auto,
    /// Hardware, by perf stat.
    Counters,
    /// Simulated caches of one core, by valgrind.
    Cachegrind,
}

const EXAMPLES: &str = "Examples:\n  trimtab bench misses                                   all kernels; minutes\n  \
    trimtab bench misses --kernels cg,ep --per-core 1      two of them\n  \
    trimtab bench misses --by cachegrind --cache 2097152   with a last-level cache of 2 MB, whatever is here\n\n\
    The programs are built by: make -C bench\n\
    Ctrl-C ends the measurement early; the results so far are shown and written.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_cache_is_a_power_of_two() {
        assert_eq!(cache_bytes("524288"), Ok(524_288));
        for text in ["524289", "3145728", "32768", "2147483648", "0", "-1", "2M"] {
            assert!(cache_bytes(text).is_err(), "{text}");
        }
    }
}
