//! The cores of a guest, from the site's rule, the guest's shape, and the machine.

use crate::config::{GuestCores, GuestRule};
use crate::shape::{GuestShape, OwnCpus};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_hold::cores::CoresRequest;

/// Settings by which a guest gets all hardware threads of its cores.
const WHOLE_CORES: &str = "smt=all";

/// The cores of a guest.
#[derive(Clone, Debug)]
pub enum GuestNeed {
    /// The guest is left as it is, for this reason.
    Alone(String),
    /// These are reserved. The vCPUs are bound unless the engine binds them.
    Cores {
        /// The request.
        request: Box<CoresRequest>,
        /// Whether the vCPUs are to be bound.
        bind: bool,
        /// Remarks about the choice.
        notes: Vec<String>,
    },
}

/// Returns the cores of a guest.
///
/// # Errors
/// The rule cannot be used.
///
/// # Examples
/// ```
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_hook::config::GuestRule;
/// use trimtab_hook::shape::GuestShape;
/// use trimtab_hook::wanted::{GuestNeed, guest_need};
///
/// let machine = parse_synthetic("core:4").map_err(|error| error.to_string())?;
/// let guest = GuestShape { vcpus: 2, threads: 1, ..GuestShape::default() };
/// let need = guest_need(&GuestRule::default(), &guest, &machine)?;
/// assert!(matches!(need, GuestNeed::Cores { bind: true, .. }));
/// # Ok::<(), String>(())
/// ```
pub fn guest_need(rule: &GuestRule, guest: &GuestShape, machine: &Machine) -> Result<GuestNeed, String> {
    if rule.cores == GuestCores::None {
        return Ok(GuestNeed::Alone("hook.toml says that it gets no cores".to_owned()));
    }
    match &guest.own {
        OwnCpus::None => {}
        OwnCpus::Shared => {
            return Ok(GuestNeed::Alone(
                "its own settings name CPUs that other guests may share; without them it gets cores of its own"
                    .to_owned(),
            ));
        }
        OwnCpus::Exclusive(cpus) => return pinned(cpus, machine),
    }
    let mut notes = Vec::new();
    let (amount, settings) = match &rule.cores {
        GuestCores::Amount(amount) => (amount.clone(), None),
        _ => by_vcpus(guest, machine.smt(), &mut notes),
    };
    let used = |error: &dyn std::fmt::Display| format!("the rule for this guest in hook.toml: {error}");
    let mut request = CoresRequest::cores(&amount).map_err(|error| used(&error))?;
    for settings in settings.into_iter().chain(rule.settings.as_deref()) {
        request = request.with_settings(settings).map_err(|error| used(&error))?;
    }
    if let Some(device) = &rule.near {
        request = request.near(device).map_err(|error| used(&error))?;
    }
    Ok(GuestNeed::Cores { request: Box::new(request), bind: true, notes })
}

/// Returns the number of cores for as many vCPUs, and settings. vCPUs that the guest sees as
/// hardware threads of one core get those of one core of a machine that has as many.
fn by_vcpus(guest: &GuestShape, smt: usize, notes: &mut Vec<String>) -> (String, Option<&'static str>) {
    let threads = guest.threads.max(1);
    if threads == 1 || !guest.vcpus.is_multiple_of(threads) {
        return (guest.vcpus.to_string(), None);
    }
    if u32::try_from(smt) == Ok(threads) {
        return ((guest.vcpus / threads).to_string(), Some(WHOLE_CORES));
    }
    notes.push(format!(
        "the guest sees {threads} hardware threads in each core, and this machine has {smt}: each vCPU gets a core"
    ));
    (guest.vcpus.to_string(), None)
}

/// Returns the reservation of CPUs that the engine binds the vCPUs to.
fn pinned(cpus: &CpuSet, machine: &Machine) -> Result<GuestNeed, String> {
    if !cpus.is_subset(&machine.cpus()) {
        return Ok(GuestNeed::Alone(format!("it is bound to CPUs {cpus}, which this machine does not have")));
    }
    let pus = cpus.iter().filter_map(|cpu| machine.pu(cpu));
    let mut cores: Vec<_> = pus.map(|pu| machine.core_of(pu)).collect();
    cores.sort_unstable();
    cores.dedup();
    let request =
        CoresRequest::cores(&cores.len().to_string()).and_then(|all| all.with_settings(WHOLE_CORES));
    let mut request = request.map_err(|error| error.to_string())?;
    request.options.cpus = Some(cpus.clone());
    let notes = vec![format!("its own settings bind it to CPUs {cpus}, which are reserved for it")];
    Ok(GuestNeed::Cores { request: Box::new(request), bind: false, notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::place::Amount;
    use trimtab_core::topology::parse_synthetic;

    fn need(rule: &str, guest: &GuestShape, machine: &str) -> Result<GuestNeed, String> {
        let config: crate::config::HookConfig = rule.parse().unwrap();
        guest_need(&config.rule("web"), guest, &parse_synthetic(machine).unwrap())
    }

    fn guest(vcpus: u32, threads: u32) -> GuestShape {
        GuestShape { vcpus, threads, ..GuestShape::default() }
    }

    #[test]
    fn siblings_of_the_guest_are_siblings_of_the_machine() {
        for (vcpus, threads, machine, cores, whole, notes) in [
            (4, 1, "core:8 pu:2", 4, false, 0),
            (4, 2, "core:8 pu:2", 2, true, 0),
            (4, 2, "core:8 pu:1", 4, false, 1),
            (3, 2, "core:8 pu:2", 3, false, 0),
            (8, 4, "core:8 pu:4", 2, true, 0),
        ] {
            let GuestNeed::Cores { request, bind: true, notes: said } =
                need("", &guest(vcpus, threads), machine).unwrap()
            else {
                panic!("{vcpus} {threads}: no cores");
            };
            assert_eq!(request.options.cores, Some(Amount::Cores(cores)), "{vcpus} {threads} {machine}");
            assert_eq!(
                (request.options.smt.is_some(), said.len()),
                (whole, notes),
                "{vcpus} {threads} {machine}"
            );
        }
    }

    #[test]
    fn the_sites_rule_counts() {
        let alone = need("[[guest]]\nname = 'w*'\ncores = 'none'", &guest(2, 1), "core:4").unwrap();
        assert!(matches!(alone, GuestNeed::Alone(_)));
        let rule = "[[guest]]\nname = 'web'\ncores = '3'\nsettings = 'smt=all memory=bind'";
        let GuestNeed::Cores { request, .. } = need(rule, &guest(2, 1), "core:4 pu:2").unwrap() else {
            panic!("no cores");
        };
        assert_eq!(request.options.cores, Some(Amount::Cores(3)));
        assert!(request.options.smt.is_some() && request.options.mem.is_some());
    }

    #[test]
    fn a_guest_with_pins_keeps_them() {
        let own = |own: OwnCpus| need("", &GuestShape { own, ..guest(2, 1) }, "core:4 pu:2").unwrap();
        assert!(matches!(own(OwnCpus::Shared), GuestNeed::Alone(_)));
        assert!(matches!(own(OwnCpus::Exclusive("100".parse().unwrap())), GuestNeed::Alone(_)));
        let cpus: CpuSet = "2-3".parse().unwrap();
        let GuestNeed::Cores { request, bind: false, .. } = own(OwnCpus::Exclusive(cpus.clone())) else {
            panic!("no cores");
        };
        assert_eq!((request.options.cores, request.options.cpus), (Some(Amount::Cores(1)), Some(cpus)));
    }
}
