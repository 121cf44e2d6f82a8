//! Plan formats of other tools, for machines on which trimtab cannot run.

use super::{MemoryPolicy, Plan};
use std::str::FromStr;

/// Notation of another tool for the placement of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMP's environment variables, as shell assignments.
    Omp,
    /// `taskset`.
    Taskset,
    /// `numactl`.
    Numactl,
    /// `likwid-pin`.
    Likwid,
    /// `srun`, for a step of one task.
    Slurm,
    /// The files of a cgroup v2 cpuset.
    Cpuset,
}

impl Format {
    /// All formats, in the order of the help text.
    pub const ALL: [(&'static str, Self); 6] = [
        ("omp", Self::Omp),
        ("taskset", Self::Taskset),
        ("numactl", Self::Numactl),
        ("likwid", Self::Likwid),
        ("slurm", Self::Slurm),
        ("cpuset", Self::Cpuset),
    ];

    /// Returns the words of all formats.
    pub fn words() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(word, _)| *word)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(word, _)| *word == text).map(|(_, format)| *format);
        let known: Vec<_> = Self::words().collect();
        found.ok_or_else(|| format!("\"{text}\" is not a format (known: {})", known.join(", ")))
    }
}

/// Returns the plan in `format`: one or more lines without a trailing newline.
pub fn format(plan: &Plan, format: Format) -> String {
    let in_order: Vec<String> = plan.slots.iter().map(|slot| slot.cpu.to_string()).collect();
    let in_order = in_order.join(",");
    match format {
        Format::Omp => {
            let places: Vec<String> = plan.slots.iter().map(|slot| format!("{{{}}}", slot.cpu)).collect();
            format!(
                "OMP_NUM_THREADS={}\nOMP_PLACES='{}'\nOMP_PROC_BIND=close",
                plan.threads,
                places.join(",")
            )
        }
        Format::Taskset => format!("taskset -c {}", plan.mask),
        Format::Numactl => format!("numactl --physcpubind={}{}", plan.mask, numactl_memory(plan)),
        Format::Likwid => format!("likwid-pin -c {in_order}"),
        Format::Slurm => {
            let mut words = plan.mask.words().iter().rev();
            let top = words.next().map_or_else(String::new, |word| format!("{word:x}"));
            let mask: String = std::iter::once(top).chain(words.map(|word| format!("{word:016x}"))).collect();
            let memory = match plan.memory.policy {
                MemoryPolicy::Local => " --mem-bind=local".to_owned(),
                MemoryPolicy::None => String::new(),
                policy => {
                    let nodes = plan
                        .memory
                        .nodes
                        .iter()
                        .fold(0u64, |mask, node| mask | 1u64.checked_shl(node.0).unwrap_or(0));
                    let prefer = if policy == MemoryPolicy::Bind { "" } else { "prefer," };
                    format!(" --mem-bind={prefer}mask_mem:0x{nodes:x}")
                }
            };
            format!(
                "srun --ntasks=1 --cpus-per-task={} --cpu-bind=mask_cpu:0x{mask}{memory}",
                plan.slots.len()
            )
        }
        Format::Cpuset => format!("cpuset.cpus={}\ncpuset.mems={}", plan.hold, plan.nodes),
    }
}

fn numactl_memory(plan: &Plan) -> String {
    let nodes = &plan.memory.nodes;
    match plan.memory.policy {
        MemoryPolicy::None => String::new(),
        MemoryPolicy::Local => " --localalloc".to_owned(),
        MemoryPolicy::Preferred => format!(" --preferred={nodes}"),
        MemoryPolicy::PreferredMany => format!(" --preferred-many={nodes}"),
        MemoryPolicy::Bind => format!(" --membind={nodes}"),
        MemoryPolicy::Interleave => format!(" --interleave={nodes}"),
        MemoryPolicy::Weighted => format!(" --weighted-interleave={nodes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Strategy, Taken, plan};
    use super::*;
    use crate::topology::parse_synthetic;

    #[test]
    fn each_tool_is_told_the_same_places() {
        let machine = parse_synthetic("pack:2 core:40").unwrap();
        let request =
            Request { amount: "4".parse().unwrap(), strategy: Strategy::Scatter, ..Request::default() };
        let two_nodes = parse_synthetic("pack:2 numa:1 core:40").unwrap();
        let plan = plan(&two_nodes, &request, &Taken::nothing(machine.cpus())).unwrap();
        let said = |word: &str| format(&plan, word.parse().unwrap());
        assert_eq!(said("omp"), "OMP_NUM_THREADS=4\nOMP_PLACES='{0},{40},{1},{41}'\nOMP_PROC_BIND=close");
        assert_eq!(said("taskset"), "taskset -c 0-1,40-41");
        assert_eq!(said("numactl"), "numactl --physcpubind=0-1,40-41 --preferred-many=0-1");
        assert_eq!(said("likwid"), "likwid-pin -c 0,40,1,41");
        assert_eq!(
            said("slurm"),
            "srun --ntasks=1 --cpus-per-task=4 --cpu-bind=mask_cpu:0x30000000003 --mem-bind=prefer,mask_mem:0x3"
        );
        assert_eq!(said("cpuset"), "cpuset.cpus=0-1,40-41\ncpuset.mems=0-1");
        assert!("qsub".parse::<Format>().is_err());
    }

    #[test]
    fn slurm_masks_wider_than_a_word_keep_their_zeros() {
        let machine = parse_synthetic("core:80").unwrap();
        let request = Request {
            amount: super::super::Amount::Exact,
            cpus: Some("0,70".parse().unwrap()),
            ..Request::default()
        };
        let plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        assert!(format(&plan, Format::Slurm).contains("mask_cpu:0x400000000000000001"));
    }
}
