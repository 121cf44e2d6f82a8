//! Demand of a launch that waits for cores: the CPUs that it may use, and how many cores of them.

use crate::{LaunchFacts, LaunchRequest};
use trimtab_core::place::{Amount, KindChoice, Strategy};
use trimtab_core::queue::Demand;
use trimtab_core::set::CpuSet;

/// Returns the cores that a launch needs within the CPUs of its position in the ledger. The number
/// is known only if any free cores of these CPUs will do.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources, demand};
///
/// let facts = LaunchFacts::idle(parse_synthetic("pack:2 core:4")?);
/// let within = facts.machine.cpus();
/// let needs = |cores: &str| -> Result<Option<u32>, Box<dyn std::error::Error>> {
///     let options = Options { cores: Some(cores.parse()?), ..Options::default() };
///     let request = LaunchRequest::merge(Sources { options, ..Sources::default() })?;
///     Ok(demand(&request, &facts, &within).cores)
/// };
/// assert_eq!(needs("3")?, Some(3));
/// assert_eq!(needs("1xpackage")?, None); // Not any four cores: those of a package.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn demand(request: &LaunchRequest, facts: &LaunchFacts, within: &CpuSet) -> Demand {
    let asked = &request.place;
    let mut cpus = facts.bounds.allowed.intersection(within);
    if let Some(named) = &asked.cpus {
        cpus = cpus.intersection(named);
    }
    if asked.kind == KindChoice::LargestCache
        && let Some(largest) = facts.machine.largest_cache()
    {
        cpus = cpus.intersection(&largest);
    }
    let any_kind =
        facts.machine.kinds().len() <= 1 || matches!(asked.kind, KindChoice::Any | KindChoice::LargestCache);
    let plain = any_kind && request.nest.is_none() && !matches!(asked.strategy, Strategy::Stride(_));
    let cores = match asked.amount {
        Amount::Cores(count) if plain => Some(if asked.or_fewer { 1 } else { count }),
        _ => None,
    };
    Demand { cpus, cores }
}
