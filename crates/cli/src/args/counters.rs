//! What can be typed about counters of hardware.

use super::balance::choices;
use super::time;
use clap::Args;
use trimtab_core::time::Span;
use trimtab_linux::perf::Choice;

/// Show what hardware can count of threads here, what that costs, and why not more.
///
/// Climbs a ladder: the processor's own events for waiting beyond its private caches (exact), events that come near (proxy), the
/// kernel's cycles and cache misses (generic), faults of NUMA balancing (hint-faults), the nodes of sampled pages (residency), nothing.
/// Each rung is tried by counting. With processes their threads are counted for a while, too.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab counters                    which rung, and why not a better one\n  \
    trimtab counters 4711               its threads: penalty, cycles, misses, far memory\n  \
    trimtab counters --for 5s 4711      over five seconds\n  \
    trimtab counters --events busy=r016d,requests=r0964,cycles=cycles 4711\n\n\
    P is busy cycles a request (what a line beyond the private caches costs), W the share of all cycles that were busy.\n\n\
    Roles of events: busy, requests, cycles, instructions, far, near, llc-misses, llc-lookups. Events: r0964, cpu/event=0x64,umask=0x09/,\n\
    cpu/NAME/ of /sys/bus/event_source/devices, or a name of the kernel's.\n\n\
    Exit status: 0 when something can be counted, 1 when nothing can, 2 when a process cannot be watched."
)]
pub struct CountersArgs {
    /// Processes whose threads are counted, each with all that it starts.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Count these events, as ROLE=EVENT,..., or begin at a rung: exact, proxy, generic, hint-faults, residency.
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = choices(), hide_possible_values = true, hide_default_value = true)]
    pub events: Choice,
    /// How long threads are counted: 1s, 500ms, 1m (default 1s).
    #[arg(long = "for", value_name = "TIME", value_parser = time::lasting, requires = "pids")]
    pub time: Option<Span>,
    /// Print as JSON (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}
