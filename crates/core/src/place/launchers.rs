//! Launchers: settings that keep the ranks started by `mpirun` and similar programs on the CPUs of
//! the plan.
//!
//! Problem: a launcher that binds its ranks counts the cores of the whole machine from the first
//! one. The inherited affinity mask does not stop it, since a process may widen its own mask, so
//! ranks leave the held cores. Idea: nearly all launchers read the machine's topology through
//! hwloc, and hwloc reads the topology from a file if `HWLOC_XMLFILE` names one (here called a
//! picture). A picture with only the CPUs of the plan keeps the ranks inside for any options of the
//! launcher, and `--bind-to`, `--map-by` and core numbers keep their meaning. If the file is
//! missing, hwloc examines the machine itself; this happens on other hosts of the job and after the
//! launcher has ended.
//!
//! Open MPI takes the number of cores in the picture as its number of slots. More ranks, up to the
//! number of cores of the machine, start without trimtab, so they are allowed here too.
//!
//! Shells, make and Python start launchers that are not known beforehand. A picture would change
//! the topology that every program below them sees, so only Open MPI's default binding is switched
//! off for them: ranks then keep the mask that they inherit, and explicit options still take
//! precedence. Nothing is set if the plan has the whole machine, nor in a rank.

use super::{Action, Variable};
use crate::ids::CoreId;
use crate::set::CpuSet;
use crate::topology::Machine;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// Program that starts the ranks of a parallel program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launcher {
    /// `mpirun` of Open MPI up to version 4 (ORTE).
    OpenMpi4,
    /// `mpirun` of Open MPI from version 5 on, and `prterun` (PRRTE).
    OpenMpi5,
    /// `mpiexec` of MPICH (Hydra).
    Hydra,
    /// `mpiexec` and `mpirun` of Intel MPI: Hydra with its own pinning.
    IntelMpi,
    /// `torchrun`.
    Torchrun,
    /// `srun`.
    Slurm,
    /// `flux run` and similar commands.
    Flux,
    /// `aprun` and PALS.
    Pals,
    /// `jsrun`.
    Jsm,
    /// Named like a launcher, but none of the above.
    Unknown,
}

/// Means by which a launcher's ranks stay on the CPUs of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeps {
    /// A picture of the machine, always.
    Picture,
    /// The inherited mask; and the picture if one of these words is an option (without its dashes)
    /// or a variable. The words request binding, or a binding that ignores the mask.
    MaskUnless(&'static [&'static str]),
    /// None, for this reason.
    No(&'static str),
}

/// Facts about one launcher.
struct LauncherRow {
    launcher: Launcher,
    /// Name in messages.
    name: &'static str,
    keeps: Keeps,
    /// Setting that allows more ranks than the picture has cores; `None` if no setting is needed.
    room: Option<Room>,
    /// Tested version and date; place where the behaviour is described or implemented.
    #[cfg_attr(not(test), expect(dead_code, reason = "says where the row comes from"))]
    source: &'static str,
}

/// Setting that lets a launcher start more ranks than the picture has cores.
struct Room {
    /// Variable and its value.
    variable: (&'static str, &'static str),
    /// Option that contradicts it, without its dashes.
    contradiction: &'static str,
    /// Variable for a list of cores to which all ranks are bound together. It is used if the user
    /// wants each rank bound to its own object, which the launcher would refuse. It contradicts
    /// every option that maps ranks.
    together: Option<&'static str>,
}

/// Reason why the tasks of a batch system cannot be controlled: their masks come from a daemon that
/// is not a child of this run.
const DAEMON: &str = "its ranks are started by a daemon of the batch system, which does not see this run";

const ROWS: [LauncherRow; 10] = [
    LauncherRow {
        launcher: Launcher::OpenMpi4,
        name: "Open MPI",
        keeps: Keeps::Picture,
        room: Some(Room {
            variable: ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            contradiction: "nooversubscribe",
            together: Some("OMPI_MCA_hwloc_base_cpu_list"),
        }),
        // hwloc_base_cpu_list alone was tried too: it makes --map-by fail.
        // hwloc_base_binding_policy=none is overridden by --bind-to.
        source: "4.1.4 (Debian 12), 2026-11; orte/mca/rmaps/base of v4.1.x",
    },
    LauncherRow {
        launcher: Launcher::OpenMpi5,
        name: "Open MPI",
        keeps: Keeps::Picture,
        // The variable also leaves ranks unbound, so it is set only if there are more ranks than
        // cores.
        room: Some(Room {
            variable: ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            contradiction: "nooversubscribe",
            together: None,
        }),
        // hwloc_default_cpu_list was tried too: --bind-to numa and --map-by package leave it, and
        // more ranks than cores fail.
        source: "5.0.11 (PyPI), 2026-11; src/hwloc and src/mca/rmaps of PRRTE v3.0",
    },
    LauncherRow {
        launcher: Launcher::Hydra,
        name: "Hydra",
        // Hydra binds only on request, and then by the whole machine.
        keeps: Keeps::MaskUnless(&["bind-to", "binding", "map-by", "HYDRA_BINDING", "HYDRA_MAPPING"]),
        room: None,
        source: "4.0.2 (Debian 12) and 5.0.2 (PyPI), 2026-11; mpiexec -bind-to -help",
    },
    LauncherRow {
        launcher: Launcher::IntelMpi,
        name: "Intel MPI",
        // Its pinning divides the mask of mpiexec, also for -bind-to and for
        // I_MPI_PIN_PROCESSOR_LIST.
        keeps: Keeps::MaskUnless(&["I_MPI_PIN_RESPECT_CPUSET"]),
        room: None,
        source: "2021.19 (PyPI), 2026-11; I_MPI_PIN_RESPECT_CPUSET in its developer reference",
    },
    LauncherRow {
        launcher: Launcher::Torchrun,
        name: "torchrun",
        keeps: Keeps::MaskUnless(&[]),
        room: None,
        // --numa-binding restricts a node to the CPUs in the process's own mask.
        source: "1.13.1 (Debian 12), 2026-11; torch/distributed/run.py, torch/numa/binding.py",
    },
    LauncherRow {
        launcher: Launcher::Slurm,
        name: "srun",
        // SLURM_CPU_BIND=mask_cpu is refused if the step's CPUs, unknown beforehand, do not include
        // the whole mask.
        keeps: Keeps::No(DAEMON),
        room: None,
        source: "22.05.8 (Debian 12), 2026-11; man srun, --cpu-bind",
    },
    LauncherRow {
        launcher: Launcher::Flux,
        name: "flux",
        keeps: Keeps::No(DAEMON),
        room: None,
        source: "not tried; man flux-run",
    },
    LauncherRow {
        launcher: Launcher::Pals,
        name: "aprun",
        keeps: Keeps::No(DAEMON),
        room: None,
        source: "not tried; man aprun",
    },
    LauncherRow {
        launcher: Launcher::Jsm,
        name: "jsrun",
        keeps: Keeps::No(DAEMON),
        room: None,
        source: "not tried; man jsrun",
    },
    LauncherRow {
        launcher: Launcher::Unknown,
        name: "this launcher",
        keeps: Keeps::No("trimtab does not know this launcher"),
        room: None,
        source: "MVAPICH, vendors' own",
    },
];

/// Variable that names the file of a picture.
pub const PICTURE: &str = "HWLOC_XMLFILE";

/// Variables that give hwloc another picture of the machine, or another machine. Each of them is
/// the user's decision.
const PICTURES: [&str; 5] =
    [PICTURE, "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_CPUID_PATH", "HWLOC_DUMPED_HWDATA_DIR"];

/// Variables that switch off a launcher's default binding, and others with which the user decides
/// about this binding.
const DEFAULT_BINDINGS: [(&str, &str, &[&str]); 2] = [
    (
        "OMPI_MCA_hwloc_base_binding_policy",
        "Open MPI 4",
        &[
            "OMPI_MCA_hwloc_base_cpu_list",
            "OMPI_MCA_hwloc_base_cpu_set",
            "OMPI_MCA_rmaps_base_mapping_policy",
        ],
    ),
    (
        "PRTE_MCA_hwloc_default_binding_policy",
        "Open MPI 5",
        &["PRTE_MCA_prte_bindto", "PRTE_MCA_hwloc_default_cpu_list", "PRTE_MCA_rmaps_default_mapping_policy"],
    ),
];

/// Options of `mpirun` and `mpiexec`, without their dashes, that take no value. Any other option is
/// assumed to have one, so that its value is not mistaken for the program.
const FLAGS: [&str; 24] = [
    "oversubscribe",
    "nooversubscribe",
    "allow-run-as-root",
    "report-bindings",
    "display-map",
    "display-allocation",
    "display-topo",
    "use-hwthread-cpus",
    "tag-output",
    "timestamp-output",
    "bind-to-core",
    "bind-to-socket",
    "bycore",
    "byslot",
    "bynode",
    "bysocket",
    "nolocal",
    "l",
    "q",
    "v",
    "verbose",
    "prepend-rank",
    "genvall",
    "genvnone",
];

/// Options of Open MPI that map ranks, without their dashes.
const MAPPINGS: [&str; 15] = [
    "map-by",
    "rankfile",
    "rf",
    "npernode",
    "npersocket",
    "pernode",
    "N",
    "bycore",
    "byslot",
    "bynode",
    "bysocket",
    "cpu-set",
    "cpu-list",
    "slot-list",
    "bind-to-core",
];

/// Options with a number of ranks as value.
const COUNTS: [&str; 6] = ["n", "np", "c", "npernode", "N", "ppn"];

/// Parsed command line of a launcher.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct LauncherArguments {
    /// All options up to the program, without their dashes, each with its value.
    options: Vec<(String, Option<String>)>,
    /// Number of requested ranks; `None` if the line does not give it.
    ranks: Option<u32>,
}

impl LauncherArguments {
    /// Parses the words after the launcher's name. Words after a program are ignored up to a `:`,
    /// which starts the next part.
    fn read(words: &[&str]) -> Self {
        let mut line = Self::default();
        for part in words.split(|word| *word == ":") {
            line.part(part);
        }
        line
    }

    fn part(&mut self, words: &[&str]) {
        let mut words = words.iter();
        while let Some(option) = words.next().and_then(|word| word.strip_prefix('-')) {
            let option = option.strip_prefix('-').unwrap_or(option);
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None if FLAGS.contains(&option) => (option, None),
                None => (option, words.next().copied()),
            };
            if let Some(ranks) = value.filter(|_| COUNTS.contains(&name)).and_then(|value| value.parse().ok())
            {
                self.ranks = Some(self.ranks.unwrap_or(0).saturating_add(ranks));
            }
            self.options.push((name.to_owned(), value.map(str::to_owned)));
            // -genv NAME VALUE, -env NAME VALUE, -mca NAME VALUE: the relevant word is the name.
            if ["genv", "env", "mca", "gmca", "prtemca"].contains(&name) {
                self.options
                    .extend(value.map(|name| (name.to_owned(), words.next().map(|v| (*v).to_owned()))));
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| option == name)
    }

    /// Returns the requested binding that ranks may not share.
    fn binding(&self) -> Option<&str> {
        let (_, value) = self.options.iter().rfind(|(option, _)| option == "bind-to")?;
        value.as_deref().filter(|value| !value.starts_with("none") && !value.contains("overload-allowed"))
    }
}

/// Launcher to be started, with its surroundings.
pub struct LauncherStart<'a> {
    /// The launcher.
    pub launcher: Launcher,
    /// Words after its name.
    pub words: &'a [&'a str],
    /// CPUs of the plan.
    pub cpus: &'a CpuSet,
    /// The machine.
    pub machine: &'a Machine,
    /// Returns the values that the user set.
    pub user: &'a dyn Fn(&str) -> Option<String>,
    /// Whether this process is itself a rank, so that the settings of its launcher must stay.
    pub rank: bool,
}

/// Settings for a launcher.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LauncherSettings {
    /// Whether the launcher needs a picture of the machine, see [`picture()`].
    pub picture: bool,
    /// Variables besides the picture.
    pub variables: Vec<Variable>,
    /// Reason why ranks may leave the CPUs of the plan; `None` if this is prevented.
    pub leaves: Option<String>,
    /// Another warning for the user.
    pub caution: Option<String>,
}

/// Returns the settings that keep a launcher's ranks on the CPUs of the plan.
pub fn tell(start: &LauncherStart<'_>) -> LauncherSettings {
    let mut told = LauncherSettings::default();
    if start.cpus.is_empty() || start.machine.cpus().is_subset(start.cpus) {
        return told;
    }
    let Some(row) = ROWS.iter().find(|row| row.launcher == start.launcher) else { return told };
    let line = LauncherArguments::read(start.words);
    match row.keeps {
        Keeps::No(why) => told.leaves = Some(why.to_owned()),
        Keeps::MaskUnless(words) => {
            told.picture = words.iter().any(|word| line.has(word) || (start.user)(word).is_some());
        }
        Keeps::Picture => told.picture = true,
    }
    if told.picture
        && let Some(name) = PICTURES.iter().find(|name| (start.user)(name).is_some())
    {
        told.picture = false;
        told.leaves = Some(format!("you set {name}, and {} binds by it", row.name));
        return told;
    }
    if told.picture {
        room(row, start, &line, &mut told);
    }
    told
}

/// Adds settings for more ranks than the picture has cores: they start as they would without it.
fn room(row: &LauncherRow, start: &LauncherStart<'_>, line: &LauncherArguments, told: &mut LauncherSettings) {
    let Some(Room { variable, contradiction, together }) = row.room else { return };
    let pus = start.cpus.iter().filter_map(|cpu| start.machine.pu(cpu));
    let cores: BTreeSet<CoreId> = pus.map(|pu| start.machine.core_of(pu)).collect();
    let (cores, all) = (cores.len(), start.machine.cores().len());
    let ranks = line.ranks.map(|ranks| ranks as usize);
    let Some(ranks) = ranks.filter(|ranks| (cores + 1..=all).contains(ranks)) else { return };
    let mut set: Vec<(&str, String)> = Vec::new();
    if !start.rank && !line.has(contradiction) {
        set.push((variable.0, variable.1.to_owned()));
    }
    if let Some(binding) = line.binding() {
        match together {
            Some(name) if !start.rank && !MAPPINGS.iter().any(|option| line.has(option)) => {
                set.push((name, format!("0-{}", cores - 1)));
            }
            _ => {
                told.caution = Some(format!(
                    "{} may refuse to bind {ranks} ranks to the {binding}s of {cores} held: hold more with -c {ranks}, or say --bind-to {binding}:overload-allowed",
                    row.name
                ));
            }
        }
    }
    told.variables.extend(set.into_iter().map(|(name, value)| Variable {
        name: name.to_owned(),
        reader: row.name,
        action: (start.user)(name).map_or(Action::Set { value }, |value| Action::Kept { value }),
    }));
}

/// Returns the variables that make hwloc read the topology from a file and treat it as this
/// machine.
pub fn picture(path: &str) -> Vec<Variable> {
    let set = |name: &str, value: &str| Variable {
        name: name.to_owned(),
        reader: "hwloc, in the launcher",
        action: Action::Set { value: value.to_owned() },
    };
    vec![set(PICTURE, path), set("HWLOC_THISSYSTEM", "1")]
}

/// Returns the variables for a program that may start launchers, and for a launcher that can have
/// no picture: ranks are not bound unless the launcher's options request it.
pub fn unbound(
    cpus: &CpuSet,
    machine: &Machine,
    user: &dyn Fn(&str) -> Option<String>,
    rank: bool,
) -> Vec<Variable> {
    if rank || cpus.is_empty() || machine.cpus().is_subset(cpus) {
        return Vec::new();
    }
    let variable = |&(name, reader, also): &(&str, &'static str, &[&str])| {
        let others = also.iter().find_map(|other| Some((other, user(other)?)));
        let action = match (user(name), others) {
            (Some(value), _) => Action::Kept { value },
            (None, Some((other, value))) => {
                Action::Unset { why: format!("you set {other}={value}: how ranks are bound is left to you") }
            }
            (None, None) => Action::Set { value: "none".to_owned() },
        };
        Variable { name: name.to_owned(), reader, action }
    };
    DEFAULT_BINDINGS.iter().map(variable).collect()
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROWS.iter().find(|row| row.launcher == *self).map_or("launcher", |row| row.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    /// Returns the settings for a launcher on four cores with two hardware threads, of which the
    /// plan has some.
    fn of(launcher: Launcher, words: &str, cpus: &str, set: &[(&str, &str)]) -> LauncherSettings {
        let machine = parse_synthetic("core:4 pu:2(far)").unwrap();
        let words: Vec<&str> = words.split_whitespace().collect();
        let user =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let cpus = cpus.parse().unwrap();
        tell(&LauncherStart {
            launcher,
            words: &words,
            cpus: &cpus,
            machine: &machine,
            user: &user,
            rank: false,
        })
    }

    fn set(told: &LauncherSettings) -> Vec<String> {
        let set = told.variables.iter().filter_map(|variable| match &variable.action {
            Action::Set { value } => Some(format!("{}={value}", variable.name)),
            _ => None,
        });
        set.collect()
    }

    #[test]
    fn no_setting_is_made_if_the_plan_has_the_whole_machine() {
        for row in &ROWS {
            assert_eq!(of(row.launcher, "-np 4 --bind-to core a", "0-7", &[]), LauncherSettings::default());
        }
        let machine = parse_synthetic("core:2").unwrap();
        assert!(unbound(&"0-1".parse().unwrap(), &machine, &|_| None, false).is_empty());
    }

    #[test]
    fn every_launcher_has_a_row_with_its_source() {
        use Launcher::{Flux, Hydra, IntelMpi, Jsm, OpenMpi4, OpenMpi5, Pals, Slurm, Torchrun, Unknown};
        for launcher in [OpenMpi4, OpenMpi5, Hydra, IntelMpi, Torchrun, Slurm, Flux, Pals, Jsm, Unknown] {
            let rows: Vec<_> = ROWS.iter().filter(|row| row.launcher == launcher).collect();
            assert!(
                matches!(rows[..], [row] if !row.source.is_empty() && !row.name.is_empty()),
                "{launcher:?}"
            );
        }
    }

    #[test]
    fn a_launcher_that_binds_gets_a_picture() {
        for launcher in [Launcher::OpenMpi4, Launcher::OpenMpi5] {
            for words in ["-np 1 a", "-np 1 --bind-to core a", "a -np 3"] {
                let told = of(launcher, words, "0", &[]);
                assert!(
                    told.picture && told.leaves.is_none() && told.variables.is_empty(),
                    "{words}: {told:?}"
                );
            }
        }
        let hydra = |words| of(Launcher::Hydra, words, "0", &[]).picture;
        assert!(!hydra("-n 2 a") && !hydra("-n 2 a -bind-to core"), "it does not bind by itself");
        assert!(
            hydra("-n 2 -bind-to core a")
                && hydra("-bind-to=core -n 2 a")
                && hydra("-n 1 a : -bind-to core b")
        );
        assert!(of(Launcher::Hydra, "-n 2 a", "0", &[("HYDRA_BINDING", "core")]).picture);
        assert!(!of(Launcher::IntelMpi, "-n 2 -bind-to core a", "0", &[]).picture);
        assert!(of(Launcher::IntelMpi, "-n 2 -genv I_MPI_PIN_RESPECT_CPUSET 0 a", "0", &[]).picture);
        assert!(of(Launcher::IntelMpi, "-n 2 a", "0", &[("I_MPI_PIN_RESPECT_CPUSET", "0")]).picture);
    }

    #[test]
    fn children_of_the_launcher_that_are_not_bound_need_nothing() {
        assert_eq!(of(Launcher::Torchrun, "--nproc-per-node 2 a.py", "0", &[]), LauncherSettings::default());
    }

    #[test]
    fn more_ranks_than_held_cores_start_where_they_would_without_a_hold() {
        let open4 = |words, cpus, user: &[(&str, &str)]| set(&of(Launcher::OpenMpi4, words, cpus, user));
        let allowed = ["OMPI_MCA_rmaps_base_oversubscribe=1"];
        assert_eq!(open4("-np 2 a", "0", &[]), allowed);
        assert_eq!(open4("--np=1 a : -n 1 b", "0", &[]), allowed);
        assert_eq!(open4("-np 2 a", "0,4", &[]), allowed, "two hardware threads are one core");
        for (words, why) in [
            ("-np 1 a", "it fits"),
            ("-np 5 a", "it would not start without a hold either"),
            ("-np 2 --nooversubscribe a", "the user forbids it"),
            ("a -np 2", "that is the program's"),
            ("--report-bindings a -np 2", "that is the program's"),
            ("-np many a", "no number"),
            ("", "nothing is said"),
        ] {
            assert_eq!(open4(words, "0", &[]), [""; 0], "{words}: {why}");
        }
        assert_eq!(open4("-np 2 a", "0-1", &[]), [""; 0]);
        let kept = of(Launcher::OpenMpi4, "-np 2 a", "0", &[("OMPI_MCA_rmaps_base_oversubscribe", "0")]);
        assert_eq!(kept.variables[0].action, Action::Kept { value: "0".to_owned() });
        let told = of(Launcher::OpenMpi5, "-np 2 a", "0", &[]);
        assert_eq!(set(&told), ["PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"]);
    }

    #[test]
    fn ranks_beyond_the_cores_of_the_hold_share_them_or_the_user_gets_an_error() {
        let together = |words| set(&of(Launcher::OpenMpi4, words, "0-1", &[])).get(1).cloned();
        let list = "OMPI_MCA_hwloc_base_cpu_list=0-1".to_owned();
        assert_eq!(together("-np 3 --bind-to core a"), Some(list));
        for words in ["-np 3 a", "-np 2 --bind-to core a", "-np 3 --map-by core --bind-to core a"] {
            assert_eq!(together(words), None, "{words}");
        }
        let mapped = of(Launcher::OpenMpi4, "-np 2 --map-by core --bind-to core a", "0", &[]);
        assert!(mapped.caution.is_some_and(|said| said.starts_with("Open MPI may refuse")));
        let caution = |words| of(Launcher::OpenMpi5, words, "0", &[]).caution;
        let said = caution("-np 2 --bind-to core a").unwrap();
        assert!(said.contains("2 ranks") && said.contains("-c 2") && said.contains("core:overload-allowed"));
        for words in [
            "-np 2 a",
            "-np 2 --bind-to none a",
            "-np 2 --bind-to core:overload-allowed a",
            "-np 1 --bind-to core a",
        ] {
            assert_eq!(caution(words), None, "{words}");
        }
    }

    #[test]
    fn ranks_that_a_daemon_starts_may_leave() {
        for launcher in [Launcher::Slurm, Launcher::Flux, Launcher::Pals, Launcher::Jsm, Launcher::Unknown] {
            let told = of(launcher, "-n 2 a", "0", &[]);
            assert!(told.leaves.is_some() && !told.picture && told.variables.is_empty(), "{told:?}");
        }
        let slurm = of(Launcher::Slurm, "-n 2 a", "0", &[]).leaves.unwrap();
        assert!(slurm.contains("daemon"), "{slurm}");
    }

    #[test]
    fn a_picture_of_the_users_is_left_alone() {
        for name in PICTURES {
            let told = of(Launcher::OpenMpi4, "-np 2 a", "0", &[(name, "x")]);
            assert!(!told.picture && told.variables.is_empty(), "{told:?}");
            assert!(told.leaves.is_some_and(|why| why.contains(name)));
        }
        assert_eq!(
            of(Launcher::Hydra, "-n 2 a", "0", &[("HWLOC_XMLFILE", "x")]),
            LauncherSettings::default()
        );
    }

    #[test]
    fn a_rank_keeps_the_variables_of_its_launcher() {
        let machine = parse_synthetic("core:4").unwrap();
        let cpus = "0".parse().unwrap();
        let words = ["-np", "2", "a"];
        let (launcher, user) = (Launcher::OpenMpi4, |_: &str| None);
        let start = LauncherStart {
            launcher,
            words: &words,
            cpus: &cpus,
            machine: &machine,
            user: &user,
            rank: true,
        };
        assert!(tell(&start).variables.is_empty());
        assert!(unbound(&cpus, &machine, &user, true).is_empty());
    }

    #[test]
    fn programs_that_start_launchers_switch_the_default_binding_off() {
        let machine = parse_synthetic("core:4").unwrap();
        let of = |set: &'static [(&'static str, &'static str)]| {
            let user =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            let all = unbound(&"0-1".parse().unwrap(), &machine, &user, false);
            all.into_iter().map(|variable| (variable.name, variable.action)).collect::<Vec<_>>()
        };
        let none = || Action::Set { value: "none".to_owned() };
        assert_eq!(
            of(&[]),
            [
                ("OMPI_MCA_hwloc_base_binding_policy".to_owned(), none()),
                ("PRTE_MCA_hwloc_default_binding_policy".to_owned(), none())
            ]
        );
        let mine = of(&[("OMPI_MCA_hwloc_base_binding_policy", "core"), ("PRTE_MCA_prte_bindto", "core")]);
        assert_eq!(mine[0].1, Action::Kept { value: "core".to_owned() });
        assert!(matches!(&mine[1].1, Action::Unset { why } if why.contains("PRTE_MCA_prte_bindto=core")));
    }

    #[test]
    fn a_picture_is_taken_for_this_machine() {
        let set: Vec<_> = picture("/proc/7/fd/600").into_iter().map(|one| (one.name, one.action)).collect();
        assert_eq!(set[0], ("HWLOC_XMLFILE".to_owned(), Action::Set { value: "/proc/7/fd/600".to_owned() }));
        assert_eq!(set[1], ("HWLOC_THISSYSTEM".to_owned(), Action::Set { value: "1".to_owned() }));
    }
}
