//! Local ranks: position of a process among its job's processes on this machine, and a rank's part
//! of an allotment.
//!
//! Problem: under `mpirun -n 4 trimtab run ./app` four planners start at once, and each would take
//! the whole machine. Idea: the ranks of one job hold one allotment together, and each takes its
//! part by local rank. Every launcher announces the local rank in its own variable. If a launcher
//! does not announce the number of local ranks, the rank cannot be placed among them and reports
//! this. Properties: Parts are disjoint while there are at least as many cores as ranks. Their
//! sizes differ by at most one core. All ranks together use every slot.

use super::{DealtDevice, Plan, Reason, deal};
use crate::ids::CoreId;
use crate::set::CpuSet;
use crate::topology::Machine;
use std::collections::BTreeSet;

/// Position of a process among its job's processes on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalRank {
    /// Name of the launcher that started the process.
    pub launcher: &'static str,
    /// Number of the rank on this machine, from 0.
    pub rank: u32,
    /// Number of ranks on this machine; `None` if the launcher does not announce it.
    pub of: Option<u32>,
    /// The launcher's name for the job; `None` if there is none.
    pub job: Option<String>,
}

/// Variables set by a launcher.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    of: &'static [&'static str],
    job: &'static [&'static str],
}

/// Known launchers, innermost first: a Slurm or Flux step may run `mpirun`, whose variables are the
/// inner ones. Slurm's local id is also set in batch scripts, where nothing was split; only steps
/// have a task count per node.
const LAUNCHERS: [Launcher; 7] = [
    // It sets Open MPI's variables too, for its own MPI. Not tried: its variables are those that
    // programs for it read.
    Launcher {
        name: "jsrun",
        rank: "JSM_NAMESPACE_LOCAL_RANK",
        of: &["JSM_NAMESPACE_LOCAL_SIZE"],
        job: &["PMIX_NAMESPACE", "LSB_JOBID"],
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        of: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"],
    },
    Launcher {
        name: "Hydra (MPICH or Intel MPI)",
        rank: "MPI_LOCALRANKID",
        of: &["MPI_LOCALNRANKS"],
        job: &["HYDI_JOBID"],
    },
    Launcher {
        name: "MVAPICH",
        rank: "MV2_COMM_WORLD_LOCAL_RANK",
        of: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        job: &[],
    },
    Launcher {
        name: "torchrun",
        rank: "LOCAL_RANK",
        of: &["LOCAL_WORLD_SIZE"],
        job: &["TORCHELASTIC_RUN_ID"],
    },
    Launcher { name: "PALS", rank: "PALS_LOCAL_RANKID", of: &["PALS_LOCAL_SIZE"], job: &["PALS_APID"] },
    Launcher { name: "Flux", rank: "FLUX_TASK_LOCAL_ID", of: &[], job: &["FLUX_JOB_ID"] },
];

/// Reads a process's local rank from its environment; `None` for a process that no known launcher
/// started.
pub fn local_rank(get: &dyn Fn(&str) -> Option<String>) -> Option<LocalRank> {
    let number = |name: &str| get(name)?.trim().parse::<u32>().ok();
    let first = |names: &[&str]| names.iter().find_map(|name| get(name).filter(|value| !value.is_empty()));
    for launcher in &LAUNCHERS {
        let Some(rank) = number(launcher.rank) else { continue };
        let of = launcher.of.iter().find_map(|name| number(name));
        let of = if launcher.name == "Flux" {
            per_node(number("FLUX_JOB_SIZE"), number("FLUX_JOB_NNODES"))
        } else {
            of
        };
        let job = first(launcher.job);
        // LOCAL_RANK alone is a common name; torchrun always announces the size too.
        if launcher.name == "torchrun" && of.is_none() {
            continue;
        }
        return Some(LocalRank { launcher: launcher.name, rank, of: of.filter(|&of| rank < of), job });
    }
    let rank = number("SLURM_LOCALID")?;
    let tasks = get("SLURM_STEP_TASKS_PER_NODE")?;
    let of = tasks_on_node(&tasks, number("SLURM_NODEID").unwrap_or(0));
    let job = get("SLURM_JOB_ID").map(|job| format!("{job}.{}", get("SLURM_STEP_ID").unwrap_or_default()));
    Some(LocalRank { launcher: "Slurm", rank, of: of.filter(|&of| rank < of), job })
}

/// Yields the variables in which launchers announce a local rank, Slurm's included.
pub fn rank_variables() -> impl Iterator<Item = &'static str> {
    LAUNCHERS.iter().map(|launcher| launcher.rank).chain(["SLURM_LOCALID"])
}

/// Returns the number of ranks per node. Flux announces only the job's ranks and nodes, so the
/// number is known only if they divide evenly.
fn per_node(size: Option<u32>, nodes: Option<u32>) -> Option<u32> {
    let (size, nodes) = (size?, nodes.filter(|&nodes| nodes > 0)?);
    size.is_multiple_of(nodes).then_some(size / nodes)
}

/// Parses Slurm's compressed list: `4(x2),1` means 4, 4 and 1 tasks on nodes 0, 1 and 2.
fn tasks_on_node(list: &str, node: u32) -> Option<u32> {
    let mut left = node;
    for item in list.split(',') {
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<u32>().ok()?),
            None => (item, 1),
        };
        if left < times {
            return count.trim().parse().ok();
        }
        left -= times;
    }
    None
}

/// Returns the part of `plan` for local rank `rank` of `of`: consecutive cores, with one more core
/// for the first ranks if the cores do not divide evenly. With devices, each rank has as many
/// cores, first the ones near its devices. With more ranks than cores, ranks share cores in turn.
/// The hold is still the whole allotment.
pub fn part(machine: &Machine, plan: &Plan, rank: u32, of: u32, devices: &[DealtDevice]) -> Plan {
    let cores: BTreeSet<CoreId> = plan.slots.iter().map(|slot| slot.core).collect();
    let cores: Vec<CoreId> = cores.into_iter().collect();
    let (rank_at, ranks) = (rank as usize, (of as usize).max(1));
    let own: BTreeSet<CoreId> = if cores.len() >= ranks && !devices.is_empty() {
        deal::deal(machine, &cores, devices, of).into_iter().nth(rank_at).unwrap_or_default()
    } else if cores.len() >= ranks {
        let (size, more) = (cores.len() / ranks, cores.len() % ranks);
        let start = rank_at * size + rank_at.min(more);
        cores[start..start + size + usize::from(rank_at < more)].iter().copied().collect()
    } else {
        cores.get(rank_at % cores.len().max(1)).copied().into_iter().collect()
    };
    let slots: Vec<_> = plan.slots.iter().filter(|slot| own.contains(&slot.core)).cloned().collect();
    let mask: CpuSet = slots.iter().map(|slot| slot.cpu).collect();
    let mut part = plan.clone();
    part.nodes = machine.nodes_of(&mask);
    if part.memory.nodes == plan.nodes {
        part.memory.nodes = part.nodes.clone();
    }
    let share = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    // A quota belongs to the job: each rank recommends its share of it, at least one thread.
    part.threads = (plan.threads * share)
        .div_ceil(u32::try_from(plan.slots.len()).unwrap_or(1).max(1))
        .clamp(1, share.max(1));
    part.reasons.push(Reason::Rank { rank, of, allotment: plan.mask.clone() });
    let mut part = Plan { slots, mask, ..part };
    part.reasons.extend(deal::reason(deal::of_rank(devices, rank, of), &part));
    part
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Taken, plan};
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn rank(set: &[(&str, &str)]) -> Option<LocalRank> {
        local_rank(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn every_launcher_is_recognised() {
        let of = |set: &[(&str, &str)]| rank(set).map(|rank| (rank.rank, rank.of, rank.job));
        let job = |job: &str| Some(job.to_owned());
        assert_eq!(
            of(&[
                ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ("PMIX_NAMESPACE", "77")
            ]),
            Some((1, Some(4), job("77")))
        );
        assert_eq!(of(&[("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")]), Some((0, Some(2), None)));
        assert_eq!(of(&[("PALS_LOCAL_RANKID", "3"), ("PALS_LOCAL_SIZE", "4")]), Some((3, Some(4), None)));
        assert_eq!(
            of(&[
                ("FLUX_TASK_LOCAL_ID", "1"),
                ("FLUX_JOB_SIZE", "8"),
                ("FLUX_JOB_NNODES", "2"),
                ("FLUX_JOB_ID", "f")
            ]),
            Some((1, Some(4), job("f")))
        );
        let jsrun =
            [("JSM_NAMESPACE_LOCAL_RANK", "2"), ("JSM_NAMESPACE_LOCAL_SIZE", "6"), ("LSB_JOBID", "77")];
        assert_eq!(of(&jsrun), Some((2, Some(6), job("77"))));
        let both = [&jsrun[..], &[("OMPI_COMM_WORLD_LOCAL_RANK", "2")]].concat();
        assert_eq!(rank(&both).map(|rank| rank.launcher), Some("jsrun"));
        assert_eq!(of(&[("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")]), Some((1, Some(2), None)));
        assert_eq!(of(&[("LOCAL_RANK", "1")]), None);
        let slurm =
            [("SLURM_LOCALID", "0"), ("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "1"), ("SLURM_NODEID", "2")];
        assert_eq!(of(&slurm), None, "a batch script is no rank");
        let step = [&slurm[..], &[("SLURM_STEP_TASKS_PER_NODE", "4(x2),3")]].concat();
        assert_eq!(of(&step), Some((0, Some(3), job("9.1"))));
    }

    #[test]
    fn a_process_without_these_variables_is_no_rank() {
        for name in rank_variables() {
            // Each of them announces a rank, with the variables for the number of ranks.
            let set = [
                (name, "0"),
                ("LOCAL_WORLD_SIZE", "2"),
                ("SLURM_STEP_TASKS_PER_NODE", "2"),
                ("FLUX_JOB_SIZE", "2"),
            ];
            assert!(rank(&set).is_some(), "{name}");
            assert_eq!(rank(&set[1..]), None);
        }
    }

    #[test]
    fn impossible_numbers_of_a_launcher_are_rejected() {
        assert_eq!(rank(&[("MPI_LOCALRANKID", "x")]), None);
        let beyond = rank(&[("MPI_LOCALRANKID", "5"), ("MPI_LOCALNRANKS", "2")]).unwrap();
        assert_eq!(beyond.of, None);
        for list in ["", "x", "4(x", "4(x2", "4(xq)", "1,1"] {
            assert_eq!(tasks_on_node(list, 7), None, "{list}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_even_and_complete(cores in 1u32..20, pu in 1u32..3, of in 1u32..9) {
            let machine = parse_synthetic(&format!("numa:2 core:{cores} pu:{pu}")).unwrap();
            let whole = plan(&machine, &Request { amount: "auto".parse().unwrap(), ..Request::default() }, &Taken::nothing(machine.cpus())).unwrap();
            let parts: Vec<Plan> = (0..of).map(|rank| part(&machine, &whole, rank, of, &[])).collect();
            let sizes: Vec<usize> = parts.iter().map(|part| part.slots.len()).collect();
            let union = parts.iter().fold(CpuSet::new(), |sum, part| sum.union(&part.mask));
            prop_assert!(sizes.iter().all(|&size| size > 0));
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            if whole.slots.len() >= of as usize {
                prop_assert_eq!(sizes.iter().sum::<usize>(), whole.slots.len());
                prop_assert_eq!(union, whole.mask.clone());
            }
            for part in &parts {
                prop_assert!(part.mask.is_subset(&part.hold) && part.threads >= 1);
            }
        }
    }
}
