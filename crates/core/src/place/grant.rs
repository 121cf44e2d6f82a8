//! Grant of a workload manager: number of CPUs that a job may use on this machine.
//!
//! Problem: Slurm, LSF, Grid Engine and similar managers count CPUs, but many sites do not confine
//! jobs to CPUs. The mask of a job then names the whole machine, and `auto` would take the cores of
//! other jobs. Idea: each manager announces the number in a variable, and `auto` takes at most as
//! many cores as give each thread one of the granted CPUs.
//!
//! Properties: A grant only lowers `auto`. It is never a reason to refuse a run, and a stated
//! amount takes precedence. Only numbers that are valid for the whole machine are used, because a
//! number that is too small would put all ranks of a job on one core. `NCPUS` of PBS Professional
//! is therefore not read: it is the number of one chunk, of which a machine may have several.
//!
//! Sources: sbatch(1) and srun(1), "output environment variables"; IBM, "Environment variables set
//! for job execution"; qsub(1) of Grid Engine; Torque, "Exported batch environment variables";
//! HyperQueue, "CPU resource management"; the R package `parallelly`, `availableCores()`.

use super::{LocalRank, Smt};
use crate::set::CpuSet;
use crate::topology::Machine;
use serde::{Deserialize, Serialize};

/// Variable of a task manager: the CPUs of a task of HyperQueue.
const TASK: &str = "HQ_CPUS";
/// Variables that identify a task of HyperQueue, together with its CPUs.
const TASK_NUMBERS: [&str; 3] = ["HQ_JOB_ID", "HQ_TASK_ID", "HQ_INSTANCE_ID"];
/// Variable with which a run that holds cores inside a task tells runs inside it which task that
/// is.
pub const TASK_OF_HOLD: &str = "TRIMTAB_TASK";

/// Number of CPUs that a workload manager grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Variable that announces the grant.
    pub variable: &'static str,
    /// Number of CPUs, at least 1.
    pub cpus: u32,
    /// Whether each rank of the job on this machine has that many CPUs.
    pub per_rank: bool,
}

/// Most cores that `auto` takes by a grant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantedCores {
    /// Variable that announces the grant.
    pub variable: String,
    /// Number of CPUs that are granted on this machine.
    pub cpus: u32,
    /// Number of cores that have as many slots.
    pub cores: u32,
}

impl Grant {
    /// Returns whether it counts inside a hold: it is that of a task manager, which itself runs
    /// inside of the hold. Grants of other managers are for the job around a hold, and so is that
    /// of a task in which the hold was made ([`TASK_OF_HOLD`]).
    pub fn is_inside_hold(&self, get: &dyn Fn(&str) -> Option<String>) -> bool {
        self.variable == TASK && get(TASK_OF_HOLD) != task(get)
    }

    /// Returns the number of cores whose slots are as many as the granted CPUs, for `ranks` ranks
    /// on this machine.
    pub fn cores(&self, machine: &Machine, smt: Smt, ranks: u32) -> GrantedCores {
        let cpus = self.cpus.saturating_mul(if self.per_rank { ranks.max(1) } else { 1 });
        let most = u32::try_from(machine.smt()).unwrap_or(u32::MAX).max(1);
        let slots = match smt {
            Smt::Threads(threads) => threads.clamp(1, most),
            Smt::All => most,
        };
        GrantedCores { variable: self.variable.to_owned(), cpus, cores: cpus.div_ceil(slots) }
    }
}

/// Returns the words that identify the task of a task manager in which this process is; `None`
/// outside of tasks.
///
/// # Examples
/// ```
/// use trimtab_core::place::task;
///
/// let get = |name: &str| match name {
///     "HQ_CPUS" => Some("2,5".to_owned()),
///     "HQ_TASK_ID" => Some("7".to_owned()),
///     _ => None,
/// };
/// assert_eq!(task(&get).as_deref(), Some("2,5 - 7 -"));
/// ```
pub fn task(get: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut words = vec![get(TASK)?.trim().to_owned()];
    words.extend(TASK_NUMBERS.map(|name| get(name).unwrap_or_else(|| "-".to_owned())));
    Some(words.join(" "))
}

/// Reads the grant of the innermost job from its variables; `None` outside of jobs, and if the
/// number for this machine is not announced. `rank` is the process's local rank, if it is one.
///
/// # Examples
/// ```
/// use trimtab_core::place::grant;
///
/// // A batch script of Slurm's with eight CPUs on this machine.
/// let get = |name: &str| (name == "SLURM_CPUS_ON_NODE").then(|| "8".to_owned());
/// let grant = grant(&get, None).expect("a grant");
/// assert_eq!((grant.variable, grant.cpus, grant.per_rank), ("SLURM_CPUS_ON_NODE", 8, false));
/// ```
pub fn grant(get: &dyn Fn(&str) -> Option<String>, rank: Option<&LocalRank>) -> Option<Grant> {
    let number = |name: &str| get(name)?.trim().parse::<u32>().ok().filter(|&number| number > 0);
    let of_job = |variable: &'static str, cpus: u32| Grant { variable, cpus, per_rank: false };
    // A task manager inside a job of another manager has a part of it.
    if let Some(cpus) = get(TASK).and_then(|list| list.parse::<CpuSet>().ok()) {
        return u32::try_from(cpus.len()).ok().filter(|&cpus| cpus > 0).map(|cpus| of_job(TASK, cpus));
    }
    // Also set in batch scripts, where it is the number for a task of a later step. The number for
    // the machine is known only together with the number of ranks.
    if rank.is_some_and(|rank| rank.launcher == "Slurm" && rank.of.is_some())
        && let Some(cpus) = number("SLURM_CPUS_PER_TASK")
    {
        return Some(Grant { variable: "SLURM_CPUS_PER_TASK", cpus, per_rank: true });
    }
    if let Some(cpus) = number("SLURM_CPUS_ON_NODE") {
        return Some(of_job("SLURM_CPUS_ON_NODE", cpus));
    }
    let by_jsrun = get("JSM_NAMESPACE_SIZE").is_some();
    let of_hosts = |hosts: String| if by_jsrun { of_each_host(&hosts) } else { of_only_host(&hosts) };
    if let Some(cpus) = get("LSB_MCPU_HOSTS").and_then(of_hosts) {
        return Some(of_job("LSB_MCPU_HOSTS", cpus));
    }
    let torque = get("PBS_JOBID").is_some() && number("PBS_NUM_NODES") == Some(1);
    if let Some(cpus) = number("PBS_NUM_PPN").filter(|_| torque) {
        return Some(of_job("PBS_NUM_PPN", cpus));
    }
    let grid_engine = get("JOB_ID").is_some() && number("NHOSTS") == Some(1);
    if let Some(cpus) = number("NSLOTS").filter(|_| grid_engine) {
        return Some(of_job("NSLOTS", cpus));
    }
    number("PJM_VNODE_CORE").map(|cpus| of_job("PJM_VNODE_CORE", cpus))
}

/// Parses LSF's list of hosts and their slots, `node7 8`; `None` unless it has exactly one host.
/// With several hosts, the name of this one would have to be known.
fn of_only_host(hosts: &str) -> Option<u32> {
    match slots(hosts)?[..] {
        [slots] => Some(slots),
        _ => None,
    }
}

/// Returns the slots of a host on which jsrun started this process; `None` unless all such hosts
/// have equally many. jsrun starts nothing on the host of the batch script, which comes first with
/// one slot.
fn of_each_host(hosts: &str) -> Option<u32> {
    let slots = slots(hosts)?;
    let computing = match slots[..] {
        [1, _, ..] => &slots[1..],
        _ => &slots[..],
    };
    let first = *computing.first()?;
    computing.iter().all(|&other| other == first).then_some(first)
}

/// Returns the slots of each host of LSF's list; `None` if it is malformed.
fn slots(hosts: &str) -> Option<Vec<u32>> {
    let words: Vec<&str> = hosts.split_whitespace().collect();
    let of = |pair: &[&str]| pair.get(1)?.parse::<u32>().ok().filter(|&slots| slots > 0);
    words.chunks(2).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn found(
        variables: &[(&str, &str)],
        launcher: Option<&'static str>,
    ) -> Option<(&'static str, u32, bool)> {
        let get = |name: &str| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        };
        let rank = launcher.map(|launcher| LocalRank { launcher, rank: 0, of: Some(2), job: None });
        grant(&get, rank.as_ref()).map(|grant| (grant.variable, grant.cpus, grant.per_rank))
    }

    #[test]
    fn each_manager_announces_in_its_own_way() {
        let slurm = [("SLURM_CPUS_PER_TASK", "4"), ("SLURM_CPUS_ON_NODE", "16")];
        for (variables, launcher, expected) in [
            (&[][..], None, None),
            (&slurm, None, Some(("SLURM_CPUS_ON_NODE", 16, false))),
            (&slurm, Some("Slurm"), Some(("SLURM_CPUS_PER_TASK", 4, true))),
            // The ranks of mpirun share the CPUs that Slurm granted on the machine.
            (&slurm, Some("Open MPI"), Some(("SLURM_CPUS_ON_NODE", 16, false))),
            (&slurm[1..], Some("Slurm"), Some(("SLURM_CPUS_ON_NODE", 16, false))),
            (&[("LSB_MCPU_HOSTS", "node7 8")], None, Some(("LSB_MCPU_HOSTS", 8, false))),
            (&[("LSB_MCPU_HOSTS", "node7 8 node8 4")], None, None),
            // jsrun: the first host has the batch script.
            (
                &[("JSM_NAMESPACE_SIZE", "6"), ("LSB_MCPU_HOSTS", "batch5 1 h41n08 42 h41n09 42")],
                Some("jsrun"),
                Some(("LSB_MCPU_HOSTS", 42, false)),
            ),
            (
                &[("JSM_NAMESPACE_SIZE", "6"), ("LSB_MCPU_HOSTS", "h41n08 40")],
                Some("jsrun"),
                Some(("LSB_MCPU_HOSTS", 40, false)),
            ),
            (&[("JSM_NAMESPACE_SIZE", "6"), ("LSB_MCPU_HOSTS", "batch5 1 a 42 b 20")], Some("jsrun"), None),
            (&[("JSM_NAMESPACE_SIZE", "6"), ("LSB_MCPU_HOSTS", "batch5 1 a")], Some("jsrun"), None),
            (
                &[("PBS_JOBID", "1"), ("PBS_NUM_NODES", "1"), ("PBS_NUM_PPN", "6")],
                None,
                Some(("PBS_NUM_PPN", 6, false)),
            ),
            (&[("PBS_JOBID", "1"), ("PBS_NUM_NODES", "2"), ("PBS_NUM_PPN", "6")], None, None),
            (&[("PBS_JOBID", "1"), ("NCPUS", "1")], None, None),
            (&[("JOB_ID", "1"), ("NHOSTS", "1"), ("NSLOTS", "3")], None, Some(("NSLOTS", 3, false))),
            (&[("NSLOTS", "3")], None, None),
            (&[("PJM_VNODE_CORE", "12")], None, Some(("PJM_VNODE_CORE", 12, false))),
            // HyperQueue's tasks have a part of Slurm's job.
            (&[("HQ_CPUS", "3,5-6"), slurm[1]], None, Some(("HQ_CPUS", 3, false))),
            (&[("HQ_CPUS", "1,0")], None, Some(("HQ_CPUS", 2, false))),
        ] {
            assert_eq!(found(variables, launcher), expected, "{variables:?} {launcher:?}");
        }
    }

    #[test]
    fn tasks_of_hyperqueue_may_be_inside_of_a_hold() {
        for (variable, expected) in [("HQ_CPUS", true), ("SLURM_CPUS_ON_NODE", false)] {
            let get = |name: &str| (name == variable).then(|| "1".to_owned());
            assert_eq!(grant(&get, None).unwrap().is_inside_hold(&get), expected, "{variable}");
        }
        // The hold was made in this task, or in another one, whose worker was started there.
        for (of_hold, expected) in [("0-1 3 - -", false), ("0-1 2 - -", true), ("", true)] {
            let get = |name: &str| match name {
                "HQ_CPUS" => Some("0-1".to_owned()),
                "HQ_JOB_ID" => Some("3".to_owned()),
                TASK_OF_HOLD => Some(of_hold.to_owned()),
                _ => None,
            };
            assert_eq!(grant(&get, None).unwrap().is_inside_hold(&get), expected, "{of_hold}");
        }
    }

    #[test]
    fn a_number_for_each_rank_counts_only_with_the_number_of_ranks() {
        let get = |name: &str| match name {
            "SLURM_CPUS_PER_TASK" => Some("4".to_owned()),
            "SLURM_CPUS_ON_NODE" => Some("16".to_owned()),
            _ => None,
        };
        let of = |of| LocalRank { launcher: "Slurm", rank: 0, of, job: None };
        let grant = |ranks| grant(&get, Some(&of(ranks))).unwrap();
        assert_eq!((grant(Some(3)).cpus, grant(Some(3)).per_rank), (4, true));
        assert_eq!((grant(None).cpus, grant(None).per_rank), (16, false));
    }

    #[test]
    fn a_value_that_is_no_number_is_no_grant() {
        for bad in ["", "0", "-1", "4x", "99999999999", "4(x2)"] {
            assert_eq!(found(&[("SLURM_CPUS_ON_NODE", bad)], None), None, "{bad:?}");
            assert_eq!(found(&[("LSB_MCPU_HOSTS", bad)], None), None, "{bad:?}");
        }
    }

    #[test]
    fn each_granted_cpu_is_a_slot() {
        let machine = parse_synthetic("core:8 pu:2").unwrap();
        let cores = |per_rank, smt, ranks| {
            Grant { variable: "V", cpus: 5, per_rank }.cores(&machine, smt, ranks).cores
        };
        assert_eq!(cores(false, Smt::Threads(1), 3), 5);
        assert_eq!(cores(true, Smt::Threads(1), 3), 15);
        assert_eq!(cores(false, Smt::Threads(2), 1), 3);
        assert_eq!(cores(false, Smt::All, 1), 3);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in ".{0,40}") {
            for name in ["HQ_CPUS", "SLURM_CPUS_ON_NODE", "LSB_MCPU_HOSTS", "PJM_VNODE_CORE"] {
                if let Some((_, cpus, _)) = found(&[(name, &text)], None) {
                    prop_assert!(cpus > 0);
                }
            }
        }
    }
}
