//! Changes of a new container, as the runtime carries them out: its CPUs, memory and variables.

use crate::message::{Adjustment, Cpu, KeyValue, LinuxAdjustment, MemoryPolicy, Resources};
use std::collections::BTreeMap;
use trimtab_core::place::{MemoryPlan, MemoryPolicy as Policy};
use trimtab_core::set::CpuSet;

/// Makes the changes of a new container: its CPUs, memory and variables.
pub(crate) fn adjustment(
    cpus: &CpuSet,
    memory: Option<&MemoryPlan>,
    environment: &BTreeMap<String, Option<String>>,
) -> Adjustment {
    // A list of nodes in a cpuset is a hard limit, which only `bind` asks for.
    let bound = memory.filter(|memory| memory.policy == Policy::Bind && !memory.nodes.is_empty());
    let mems = bound.map(|memory| memory.nodes.to_string()).unwrap_or_default();
    let cpu = Cpu { cpus: cpus.to_string(), mems, ..Cpu::default() };
    let variable = |(name, value): (&String, &Option<String>)| match value {
        Some(value) => KeyValue { key: name.clone(), value: value.clone() },
        None => KeyValue { key: format!("-{name}"), value: String::new() },
    };
    let linux = LinuxAdjustment {
        resources: Some(Resources { cpu: Some(cpu) }),
        memory_policy: memory.and_then(memory_policy),
    };
    Adjustment { env: environment.iter().map(variable).collect(), linux: Some(linux) }
}

/// Returns a memory policy by its number in NRI; `None` for the inherited one.
fn memory_policy(plan: &MemoryPlan) -> Option<MemoryPolicy> {
    let mode = match plan.policy {
        Policy::None => return None,
        Policy::Preferred => 1,
        Policy::Bind => 2,
        Policy::Interleave => 3,
        Policy::Local => 4,
        Policy::PreferredMany => 5,
        Policy::Weighted => 6,
    };
    Some(MemoryPolicy { mode, nodes: plan.nodes.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bound_policy_is_a_hard_limit() {
        let cpus: CpuSet = "2-3".parse().unwrap();
        let environment = [("A".to_owned(), Some("1".to_owned())), ("B".to_owned(), None)].into();
        for (policy, mems, mode) in [
            (Policy::None, "", None),
            (Policy::Bind, "0-1", Some((2, "0-1"))),
            (Policy::Preferred, "", Some((1, "0-1"))),
            (Policy::Weighted, "", Some((6, "0-1"))),
        ] {
            let plan = MemoryPlan { policy, nodes: "0-1".parse().unwrap() };
            let made = adjustment(&cpus, Some(&plan), &environment);
            let linux = made.linux.unwrap();
            let cpu = linux.resources.unwrap().cpu.unwrap();
            assert_eq!((cpu.cpus.as_str(), cpu.mems.as_str()), ("2-3", mems), "{policy:?}");
            let told = linux.memory_policy.map(|policy| (policy.mode, policy.nodes));
            assert_eq!(told, mode.map(|(mode, nodes)| (mode, nodes.to_owned())));
            let variables: Vec<(String, String)> =
                made.env.into_iter().map(|variable| (variable.key, variable.value)).collect();
            let expected = [("A", "1"), ("-B", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!(variables, expected, "a removed variable is marked");
        }
    }
}
