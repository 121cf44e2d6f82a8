//! Options of `trimtab counters`.

use super::balance::choices;
use super::time;
use clap::Args;
use trimtab_core::time::Span;
use trimtab_linux::perf::Choice;

/// Show which hardware counters work here.
///
/// Tries sources of counts from the most to the least precise, each a rung: the processor's own
/// events for cycles beyond its private caches (exact), similar events (proxy), the kernel's cycles
/// and cache misses (generic), faults of NUMA balancing (hint-faults), the nodes of sampled pages
/// (residency), nothing. Each rung is tried by counting. Prints the cost, and why a better rung
/// does not work. With process ids, the threads of these processes are counted for a while.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab counters                    the best rung, and why not a better one\n  \
    trimtab counters 4711               its threads: penalty, cycles, misses, far memory\n  \
    trimtab counters --for 5s 4711      over five seconds\n  \
    trimtab counters --events busy=r016d,requests=r0964,cycles=cycles 4711\n\n\
    P: busy cycles for each request (the cost of a line beyond the private caches). W: share of all\ncycles that were busy.\n\n\
    Roles of events: busy, requests, cycles, instructions, far, near, llc-misses, llc-lookups. Events: r0964, cpu/event=0x64,umask=0x09/,\n\
    cpu/NAME/ of /sys/bus/event_source/devices, or\na name of the kernel's.\n\n\
    Exit status: 0 if any counter works, 1 if none works, 2 if a process cannot be observed."
)]
pub struct CountersArgs {
    /// Processes whose threads are counted, with all their descendants.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Events to count, as ROLE=EVENT,..., or the rung to begin with: exact, proxy, generic,
    /// hint-faults, residency.
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = choices(), hide_possible_values = true, hide_default_value = true)]
    pub events: Choice,
    /// Time for which threads are counted: 1s, 500ms, 1m (default 1s).
    #[arg(long = "for", value_name = "TIME", value_parser = time::lasting, requires = "pids")]
    pub time: Option<Span>,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}
