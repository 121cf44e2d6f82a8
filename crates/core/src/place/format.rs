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
    /// `srun`, for a step of one task in an allocation of the whole node.
    Slurm,
    /// The files of a cgroup v2 cpuset.
    Cpuset,
    /// A drop-in of a systemd service.
    Systemd,
    /// `podman run`.
    Podman,
    /// `docker run`, which has the options of podman.
    Docker,
    /// A service of a Compose file.
    Compose,
    /// The elements of a libvirt domain for a virtual machine.
    Libvirt,
    /// MPICH's `mpiexec`, for a rank on each slot.
    Mpich,
    /// Open MPI's `mpirun` from version 5 on, for a rank on the core of each slot.
    OpenMpi,
    /// A file of Open MPI's ranks, for all its versions, as `OpenMpi`.
    Rankfile,
}

impl Format {
    /// All formats, in the order of the help text.
    pub const ALL: [(&'static str, Self); 14] = [
        ("omp", Self::Omp),
        ("taskset", Self::Taskset),
        ("numactl", Self::Numactl),
        ("likwid", Self::Likwid),
        ("slurm", Self::Slurm),
        ("cpuset", Self::Cpuset),
        ("systemd", Self::Systemd),
        ("podman", Self::Podman),
        ("docker", Self::Docker),
        ("compose", Self::Compose),
        ("libvirt", Self::Libvirt),
        ("mpich", Self::Mpich),
        ("openmpi", Self::OpenMpi),
        ("rankfile", Self::Rankfile),
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
        Format::Slurm => srun(plan),
        Format::Cpuset => format!("cpuset.cpus={}\ncpuset.mems={}", plan.hold, plan.nodes),
        Format::Systemd => systemd(plan),
        Format::Podman => format!("podman run {}", container(plan)),
        Format::Docker => format!("docker run {}", container(plan)),
        Format::Compose => format!("services:\n  app:\n    cpuset: \"{}\"", plan.mask),
        Format::Libvirt => libvirt(plan),
        Format::Mpich => format!("mpiexec -n {} -bind-to user:{in_order}", plan.slots.len()),
        Format::OpenMpi => {
            let cores: Vec<String> = plan.slots.iter().map(|slot| slot.core.to_string()).collect();
            format!("mpirun -n {} --map-by pe-list={}:ordered", cores.len(), cores.join(","))
        }
        Format::Rankfile => rankfile(plan),
    }
}

/// Returns a line for each rank. Open MPI counts cores, not CPUs, in the order of the machine.
fn rankfile(plan: &Plan) -> String {
    let ranks = plan.slots.iter().enumerate();
    let lines: Vec<String> =
        ranks.map(|(rank, slot)| format!("rank {rank}=localhost slot={}", slot.core)).collect();
    lines.join("\n")
}

/// Returns the line for a step in an allocation of the whole node. With `--cpus-per-task` Slurm
/// (seen with 22.05) would give the step the first free CPUs only, and refuse a mask of others.
fn srun(plan: &Plan) -> String {
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
    format!("srun --ntasks=1 --cpu-bind=mask_cpu:0x{mask}{memory}")
}

/// Returns a drop-in. systemd prefers one node only, and has no weights; such a policy is left out.
fn systemd(plan: &Plan) -> String {
    let nodes = &plan.memory.nodes;
    let memory = match plan.memory.policy {
        MemoryPolicy::Local => "\nNUMAPolicy=local".to_owned(),
        MemoryPolicy::Preferred => format!("\nNUMAPolicy=preferred\nNUMAMask={nodes}"),
        MemoryPolicy::Bind => format!("\nNUMAPolicy=bind\nNUMAMask={nodes}"),
        MemoryPolicy::Interleave => format!("\nNUMAPolicy=interleave\nNUMAMask={nodes}"),
        MemoryPolicy::None | MemoryPolicy::PreferredMany | MemoryPolicy::Weighted => String::new(),
    };
    format!("[Service]\nCPUAffinity={}{memory}", plan.mask)
}

/// Returns the options of a container. Engines bind memory or leave it alone.
fn container(plan: &Plan) -> String {
    let memory = match plan.memory.policy {
        MemoryPolicy::Bind => format!(" --cpuset-mems={}", plan.memory.nodes),
        _ => String::new(),
    };
    format!("--cpuset-cpus={}{memory}", plan.mask)
}

/// Returns the elements of a domain: a virtual CPU on each slot, the emulator's threads on the
/// whole mask. libvirt prefers one node only, and has no weights; such a policy is left out.
fn libvirt(plan: &Plan) -> String {
    let mut lines = vec![
        format!("<vcpu placement='static' cpuset='{}'>{}</vcpu>", plan.mask, plan.slots.len()),
        "<cputune>".to_owned(),
    ];
    let pins = plan.slots.iter().enumerate();
    lines.extend(pins.map(|(vcpu, slot)| format!("  <vcpupin vcpu='{vcpu}' cpuset='{}'/>", slot.cpu)));
    lines.extend([format!("  <emulatorpin cpuset='{}'/>", plan.mask), "</cputune>".to_owned()]);
    let mode = match plan.memory.policy {
        MemoryPolicy::Bind => Some("strict"),
        MemoryPolicy::Interleave => Some("interleave"),
        MemoryPolicy::Preferred => Some("preferred"),
        _ => None,
    };
    lines.extend(mode.into_iter().flat_map(|mode| {
        let memory = format!("  <memory mode='{mode}' nodeset='{}'/>", plan.memory.nodes);
        ["<numatune>".to_owned(), memory, "</numatune>".to_owned()]
    }));
    lines.join("\n")
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
    use super::super::{Amount, Request, Strategy, Taken, plan};
    use super::*;
    use crate::topology::parse_synthetic;

    #[test]
    fn each_tool_gets_the_same_places() {
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
            "srun --ntasks=1 --cpu-bind=mask_cpu:0x30000000003 --mem-bind=prefer,mask_mem:0x3"
        );
        assert_eq!(said("cpuset"), "cpuset.cpus=0-1,40-41\ncpuset.mems=0-1");
        assert_eq!(said("systemd"), "[Service]\nCPUAffinity=0-1,40-41");
        assert_eq!(said("podman"), "podman run --cpuset-cpus=0-1,40-41");
        assert_eq!(said("docker"), "docker run --cpuset-cpus=0-1,40-41");
        assert_eq!(said("compose"), "services:\n  app:\n    cpuset: \"0-1,40-41\"");
        assert_eq!(said("mpich"), "mpiexec -n 4 -bind-to user:0,40,1,41");
        assert_eq!(said("openmpi"), "mpirun -n 4 --map-by pe-list=0,40,1,41:ordered");
        let ranks = ["rank 0=localhost slot=0", "rank 1=localhost slot=40", "rank 2=localhost slot=1"];
        assert!(said("rankfile").starts_with(&ranks.join("\n")), "{}", said("rankfile"));
        assert!("qsub".parse::<Format>().is_err_and(|message| message.ends_with("rankfile)")));
    }

    #[test]
    fn open_mpi_is_told_cores_and_not_hardware_threads() {
        let machine = parse_synthetic("core:4 pu:2(far)").unwrap();
        let request =
            Request { amount: Amount::Exact, cpus: Some("2,7".parse().unwrap()), ..Request::default() };
        let plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        assert_eq!(format(&plan, Format::OpenMpi), "mpirun -n 2 --map-by pe-list=2,3:ordered");
    }

    #[test]
    fn bound_memory_is_bound_in_each_tool_that_can() {
        let machine = parse_synthetic("pack:2 numa:1 core:2").unwrap();
        let request =
            Request { amount: "2".parse().unwrap(), memory: "bind".parse().unwrap(), ..Request::default() };
        let plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        let said = |word: &str| format(&plan, word.parse().unwrap());
        assert_eq!(said("systemd"), "[Service]\nCPUAffinity=0-1\nNUMAPolicy=bind\nNUMAMask=0");
        assert_eq!(said("podman"), "podman run --cpuset-cpus=0-1 --cpuset-mems=0");
        let domain = [
            "<vcpu placement='static' cpuset='0-1'>2</vcpu>",
            "<cputune>",
            "  <vcpupin vcpu='0' cpuset='0'/>",
            "  <vcpupin vcpu='1' cpuset='1'/>",
            "  <emulatorpin cpuset='0-1'/>",
            "</cputune>",
            "<numatune>",
            "  <memory mode='strict' nodeset='0'/>",
            "</numatune>",
        ];
        assert_eq!(said("libvirt").lines().collect::<Vec<_>>(), domain);
    }

    #[test]
    fn slurm_masks_wider_than_a_word_keep_their_zeros() {
        let machine = parse_synthetic("core:80").unwrap();
        let request =
            Request { amount: Amount::Exact, cpus: Some("0,70".parse().unwrap()), ..Request::default() };
        let plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        assert!(format(&plan, Format::Slurm).contains("mask_cpu:0x400000000000000001"));
    }
}
