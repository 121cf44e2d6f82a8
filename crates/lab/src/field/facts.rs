//! Facts of the machine in a field record: structure, kernel, settings, counters. Nothing in them
//! identifies the machine.

use super::cleaning::Cleaner;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use trimtab_core::counts::Rung;
use trimtab_core::topology::{Machine, Parts, draw};
use trimtab_front::process_env::World;
use trimtab_linux::perf::{self, Choice, Standing};

/// Name of the machine in a record, instead of its host name.
const MACHINE: &str = "field";

/// Facts of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FieldMachine {
    pub(crate) summary: String,
    /// Processor, as it names itself.
    pub(crate) processor: Option<String>,
    /// Structure without host name and devices.
    pub(crate) topology: Machine,
    /// CPUs that the measurement may use.
    pub(crate) allowed: String,
    /// Settings of kernel and firmware by name; null where they cannot be read.
    pub(crate) settings: BTreeMap<String, Option<String>>,
    pub(crate) counters: FieldCounters,
}

/// Counters that are permitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FieldCounters {
    pub(crate) rung: Rung,
    /// Counted events, `ROLE=EVENT`.
    pub(crate) events: Vec<String>,
    /// Better rungs, each with the reason why it does not work.
    pub(crate) missing: Vec<(Rung, String)>,
}

/// Reads the facts.
pub(super) fn read(
    world: &World,
    machine: &Machine,
    allowed: &str,
    cleaner: &Cleaner,
) -> Option<FieldMachine> {
    let topology = anonymous(machine, cleaner)?;
    let standing = perf::look(&world.proc(), &world.sys(), &Choice::Auto, None);
    Some(FieldMachine {
        summary: draw::summary(&topology),
        processor: Parts::from(topology.clone()).cpu.model,
        topology,
        allowed: allowed.to_owned(),
        settings: settings(&world.proc(), &world.sys(), cleaner),
        counters: counters(&standing, cleaner),
    })
}

/// Returns a machine without its name and devices: names of interfaces may contain their addresses.
fn anonymous(machine: &Machine, cleaner: &Cleaner) -> Option<Machine> {
    let mut parts = Parts { name: MACHINE.to_owned(), devices: Vec::new(), ..Parts::from(machine.clone()) };
    // A virtual machine's owner may choose it. Its text is free, and has slashes ("w/ Radeon").
    parts.cpu.model = parts.cpu.model.map(|model| cleaner.version(&model));
    Machine::build(parts).ok()
}

fn counters(standing: &Standing, cleaner: &Cleaner) -> FieldCounters {
    let events = standing.groups.iter().flat_map(|recipe| &recipe.events);
    FieldCounters {
        rung: standing.rung,
        events: events.map(|(role, event)| cleaner.version(&format!("{}={event}", role.word()))).collect(),
        missing: standing
            .missing
            .iter()
            .map(|missing| (missing.rung, cleaner.text(&missing.why.to_string())))
            .collect(),
    }
}

/// Reads the settings.
fn settings(proc: &Path, sys: &Path, cleaner: &Cleaner) -> BTreeMap<String, Option<String>> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let kernel = |name: &str| read(&proc.join("sys/kernel").join(name));
    let huge =
        |name: &str| read(&sys.join("kernel/mm/transparent_hugepage").join(name)).map(|all| chosen(&all));
    let uname = rustix::system::uname();
    let release = cleaner.version(&uname.release().to_string_lossy());
    let all = [
        ("kernel", Some(release)),
        ("architecture", Some(uname.machine().to_string_lossy().into_owned())),
        ("numa_balancing", kernel("numa_balancing")),
        ("perf_event_paranoid", kernel("perf_event_paranoid")),
        ("sched_autogroup_enabled", kernel("sched_autogroup_enabled")),
        ("transparent_hugepage", huge("enabled")),
        ("transparent_hugepage.defrag", huge("defrag")),
        ("zone_reclaim_mode", read(&proc.join("sys/vm/zone_reclaim_mode"))),
        ("smt", read(&sys.join("devices/system/cpu/smt/control"))),
        ("cpufreq.driver", of_cpus(sys, "cpufreq/scaling_driver")),
        ("cpufreq.governor", of_cpus(sys, "cpufreq/scaling_governor")),
        ("sched_ext", read(&sys.join("kernel/sched_ext/state"))),
        ("virtual_machine", virtual_machine(proc).map(str::to_owned)),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the chosen word of a list such as `always [madvise] never`.
fn chosen(all: &str) -> String {
    let word = all.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or(all).to_owned()
}

/// Returns the values of a file of each CPU, each value once.
fn of_cpus(sys: &Path, file: &str) -> Option<String> {
    let folders = fs::read_dir(sys.join("devices/system/cpu")).ok()?.flatten();
    let value =
        |folder: fs::DirEntry| Some(fs::read_to_string(folder.path().join(file)).ok()?.trim().to_owned());
    let values: BTreeSet<String> = folders.filter_map(value).collect();
    (!values.is_empty()).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns whether the processor says that it is virtual.
fn virtual_machine(proc: &Path) -> Option<&'static str> {
    let text = fs::read_to_string(proc.join("cpuinfo")).ok()?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(if flags.split_whitespace().any(|flag| flag == "hypervisor") { "yes" } else { "no" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::topology::{Device, DeviceKind, parse_synthetic};

    #[test]
    fn the_structure_has_no_names() {
        let plain = parse_synthetic("node:2 core:2").unwrap();
        let card = Device {
            kind: DeviceKind::Nic,
            name: "enx0011223344ff".into(),
            address: Some("0000:03:00.0".into()),
            vendor: None,
            cpus: "0".parse().unwrap(),
        };
        let mut parts = Parts { name: "secret-host".into(), devices: vec![card], ..Parts::from(plain) };
        parts.cpu.model = Some("CPU of alice".to_owned());
        let named = Machine::build(parts).unwrap();
        assert!(
            serde_json::to_string(&named).unwrap().contains("enx0011223344ff"),
            "the test is about something"
        );
        let cleaner = Cleaner::new(&["alice".to_owned()], &[]).unwrap();
        let told = serde_json::to_string(&anonymous(&named, &cleaner).unwrap()).unwrap();
        assert!(!told.contains("secret") && !told.contains("enx") && !told.contains("0000:03"), "{told}");
        assert!(!told.contains("alice") && told.contains("CPU of [name]"), "{told}");
        assert_eq!(anonymous(&named, &cleaner).unwrap().nodes().len(), 2);
    }

    #[test]
    fn settings_are_read_as_their_files_have_them() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        let put = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(proc.join("sys/kernel/numa_balancing"), "1\n");
        put(proc.join("cpuinfo"), "processor : 0\nflags\t\t: fpu hypervisor\n");
        put(sys.join("kernel/mm/transparent_hugepage/enabled"), "always [madvise] never\n");
        for (cpu, governor) in [(0, "performance"), (1, "powersave"), (2, "performance")] {
            put(sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")), governor);
        }
        let read = settings(&proc, &sys, &Cleaner::new(&[], &[]).unwrap());
        let of = |name: &str| read[name].as_deref();
        assert_eq!(of("numa_balancing"), Some("1"));
        assert_eq!(of("transparent_hugepage"), Some("madvise"));
        assert_eq!(of("cpufreq.governor"), Some("performance, powersave"));
        assert_eq!((of("virtual_machine"), of("smt"), of("perf_event_paranoid")), (Some("yes"), None, None));
    }
}
