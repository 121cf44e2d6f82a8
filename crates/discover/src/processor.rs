//! Maker of the processor, and the kinds of its cores.

use crate::runs::cpus;
use crate::text;
use hwlocality::Topology;
use hwlocality::cpu::kind::CpuKind;
use hwlocality::object::types::ObjectType;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{CpuModel, KindPart};

/// Returns the processor of the first package, or of the machine if packages have no such infos.
pub(crate) fn model(topology: &Topology) -> CpuModel {
    let package = topology.objects_with_type(ObjectType::Package).next();
    let says = |name: &str| {
        package
            .and_then(|package| text::info(package, name))
            .or_else(|| text::info(topology.root_object(), name))
    };
    CpuModel {
        vendor: says("CPUVendor"),
        family: says("CPUFamilyNumber").and_then(|number| number.parse().ok()),
        model: says("CPUModel"),
    }
}

/// Returns the kinds that hwloc reports: one for each distinct frequency, capacity or core type.
pub(crate) fn kinds(topology: &Topology) -> Vec<KindPart> {
    topology.cpu_kinds().map(|kinds| kinds.map(|kind| part(&kind)).collect()).unwrap_or_default()
}

fn part(kind: &CpuKind<'_>) -> KindPart {
    let says = |name: &str| {
        let info = kind.infos.iter().find(|info| info.name().to_bytes() == name.as_bytes());
        info.map(|info| text::owned(info.value()))
    };
    let number = |name: &str| says(name).and_then(|value| value.trim().parse().ok());
    KindPart {
        cpus: cpus(&kind.cpuset),
        make: says("CoreType"),
        efficiency: kind.efficiency.and_then(|rank| u32::try_from(rank).ok()),
        mhz_max: number("FrequencyMaxMHz"),
        capacity: number("LinuxCapacity"),
    }
}

/// Returns the core types that the kernel's counter units distinguish on hybrid Intel processors,
/// in hwloc's words. hwloc reads the identification of each CPU instead, which discovery does not
/// allow here; empty on every other machine.
pub(crate) fn hybrid_makes() -> Vec<(&'static str, CpuSet)> {
    let units = [("cpu_core", "IntelCore"), ("cpu_atom", "IntelAtom"), ("cpu_lowpower", "IntelLowPower")];
    units
        .into_iter()
        .filter_map(|(unit, make)| {
            let list = text::trimmed(&format!("/sys/devices/{unit}/cpus"))?;
            Some((make, list.parse().ok()?))
        })
        .collect()
}

/// Writes core types into kinds, splitting a kind that holds several.
pub(crate) fn name_makes(kinds: &mut Vec<KindPart>, pus: &[OsCpu], makes: Vec<(&'static str, CpuSet)>) {
    if makes.len() < 2 {
        return; // one unit for all distinguishes nothing
    }
    if kinds.is_empty() {
        kinds.push(KindPart { cpus: pus.iter().copied().collect(), ..KindPart::default() });
    }
    let mut named = Vec::new();
    for kind in kinds.drain(..) {
        let mut rest = kind.cpus.clone();
        for (make, cpus) in &makes {
            let both = rest.intersection(cpus);
            if !both.is_empty() {
                rest = rest.difference(cpus);
                named.push(KindPart { cpus: both, make: Some((*make).to_owned()), ..kind.clone() });
            }
        }
        if !rest.is_empty() {
            named.push(KindPart { cpus: rest, ..kind });
        }
    }
    *kinds = named;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_of_cores_split_a_kind_that_frequencies_joined() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let pus: Vec<OsCpu> = (0..8).map(OsCpu).collect();
        let makes = || vec![("IntelCore", cpus("0-3")), ("IntelAtom", cpus("4-7"))];
        let shown = |kinds: &[KindPart]| {
            let words =
                kinds.iter().map(|kind| format!("{} {:?}", kind.cpus, kind.make.as_deref().unwrap_or("")));
            words.collect::<Vec<_>>().join("; ")
        };
        for (before, after) in [
            (vec![], "0-3 \"IntelCore\"; 4-7 \"IntelAtom\""),
            (vec!["0-1", "2-7"], "0-1 \"IntelCore\"; 2-3 \"IntelCore\"; 4-7 \"IntelAtom\""),
            (vec!["0-8"], "0-3 \"IntelCore\"; 4-7 \"IntelAtom\"; 8 \"\""),
        ] {
            let part = |text: &str| KindPart { cpus: cpus(text), ..KindPart::default() };
            let mut kinds: Vec<KindPart> = before.into_iter().map(part).collect();
            name_makes(&mut kinds, &pus, makes());
            assert_eq!(shown(&kinds), after);
        }
        let mut kinds = Vec::new();
        name_makes(&mut kinds, &pus, vec![("IntelCore", cpus("0-7"))]);
        assert!(kinds.is_empty());
    }
}
