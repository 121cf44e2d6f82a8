//! `trimtab hook libvirt --write`: writes the CPUs of a guest into its domain, by `virsh`.
//!
//! A hook cannot: libvirt hands it the domain for reading, and waits for its end, so that `virsh`
//! would wait for the hook. The CPUs that are written stay the guest's at each later start: the
//! hook reserves them, and libvirt binds the vCPUs.

use crate::domain::{self, DOMAIN_MAX};
use crate::host::{ThisHost, is_memory_bound};
use crate::outside::output;
use crate::pins::VcpuPins;
use crate::shape::GuestShape;
use anyhow::{Context, Result, anyhow};
use std::ffi::OsStr;
use std::time::Duration;
use trimtab_linux::text::printable;

/// Longest time for one command of virsh. It waits while the guest is being started.
const VIRSH_MAX: Duration = Duration::from_secs(30);
/// Longest answer of a command that changes something.
const ANSWER_MAX: u64 = 64 << 10;

/// Writes the CPUs that a guest has, or would get now, into its domain, and returns the commands.
///
/// # Errors
/// There is no such guest, it gets no cores, or virsh refuses.
pub fn write_domain(host: &ThisHost, virsh: &OsStr, name: &str) -> Result<Vec<String>> {
    let xml = output(virsh, &["dumpxml", "--inactive", "--domain", name], VIRSH_MAX, DOMAIN_MAX)?;
    let guest = domain::shape(&xml).map_err(|cause| anyhow!(printable(cause.as_bytes())))?;
    // Those that are there already are replaced.
    let free = GuestShape { own: Default::default(), ..guest };
    let pins = host.pins(name, &free).context("no CPUs can be written")?;
    let nodes = is_memory_bound(&host.config.rule(name)).then(|| host.nodes(&pins.all));
    let all = commands(name, &pins, free.iothreads, nodes.as_deref());
    for words in &all {
        output(virsh, words, VIRSH_MAX, ANSWER_MAX)?;
    }
    Ok(all.iter().map(|words| printable(words.join(" ").as_bytes())).collect())
}

/// Returns the commands of virsh that give a guest these CPUs.
fn commands(name: &str, pins: &VcpuPins, iothreads: u32, nodes: Option<&str>) -> Vec<Vec<String>> {
    let command = |verb: &str, more: &[&str]| -> Vec<String> {
        let words = [verb, "--domain", name].into_iter().chain(more.iter().copied()).chain(["--config"]);
        words.map(str::to_owned).collect()
    };
    let rest = pins.rest.to_string();
    let vcpu = |(number, cpus): (usize, &trimtab_core::set::CpuSet)| {
        command("vcpupin", &["--vcpu", &number.to_string(), "--cpulist", &cpus.to_string()])
    };
    let mut all: Vec<Vec<String>> = pins.vcpus.iter().enumerate().map(vcpu).collect();
    all.push(command("emulatorpin", &["--cpulist", &rest]));
    let iothread =
        |number: u32| command("iothreadpin", &["--iothread", &number.to_string(), "--cpulist", &rest]);
    all.extend((1..=iothreads).map(iothread));
    all.extend(nodes.map(|nodes| command("numatune", &["--mode", "strict", "--nodeset", nodes])));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_virsh_name_each_thread() {
        let set = |text: &str| text.parse().unwrap();
        let pins = VcpuPins {
            vcpus: vec![set("2"), set("4")],
            all: set("2,4"),
            rest: set("2-5"),
            notes: Vec::new(),
        };
        let said: Vec<String> =
            commands("-a b", &pins, 1, Some("0")).into_iter().map(|words| words.join("|")).collect();
        let expected = [
            "vcpupin|--domain|-a b|--vcpu|0|--cpulist|2|--config",
            "vcpupin|--domain|-a b|--vcpu|1|--cpulist|4|--config",
            "emulatorpin|--domain|-a b|--cpulist|2-5|--config",
            "iothreadpin|--domain|-a b|--iothread|1|--cpulist|2-5|--config",
            "numatune|--domain|-a b|--mode|strict|--nodeset|0|--config",
        ];
        assert_eq!(said, expected);
    }
}
