//! How threads wait for each other: what the runtimes are told, from how full the plan's CPUs will be.
//!
//! Problem: a thread that spins at a barrier is quickest where every thread has a CPU of its own, and where not it takes the
//! CPU from the one it waits for: three threads on two CPUs with a barrier each millisecond take twice as long spinning as
//! yielding or sleeping. Runtimes choose by what they see, and they see too little: libgomp counts its own threads against the
//! affinity mask, so it knows no other program and no quota, and LLVM's runtime spins 200 ms whoever else wants the CPU. Idea:
//! the launcher knows the plan, the quota and the others; [`decide`] says from these whether CPUs will be short, and
//! [`Waiting::variables`] says it to each runtime in its own words, or leaves the runtime alone.
//!
//! Terms: CPUs are *short* where more threads than CPUs (or than the quota's CPUs) will run, where others use the same CPUs,
//! or where a quota below the CPUs could become short once a program starts more threads: runtimes count the mask for that,
//! never the quota. A *family* is the variables of one runtime's kind (OpenMP, one MPI, UPC++).
//!
//! Properties: with CPUs of one's own nothing is set, so that a run is no worse than without trimtab; a family in which the
//! user set anything is left to the user as a whole, since half of a policy is none; equal input gives equal variables.
//!
//! Source: runtimes' manuals; the values were read back from libgomp 12 (`OMP_DISPLAY_ENV=verbose`) and LLVM's libomp 14
//! (`KMP_SETTINGS=1`). That waiting decides is in C. Iancu et al., "Oversubscription on Multicore Processors", IPDPS 2010.

use super::environment::{Action, Variable};
use super::{Plan, Reason};
use crate::set::CpuSet;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What libgomp itself spins once it sees more threads than CPUs, in turns of its loop: 1 to 5 µs, about what it costs to
/// sleep and be woken, so that waiting costs at most twice what the best choice would have.
const BRIEF_SPINS: &str = "100";

/// How threads are to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// As the runtimes do by themselves where CPUs are the program's own; a moment of spinning and then sleep where not.
    #[default]
    Auto,
    /// Spin, whoever waits for the CPU.
    Spin,
    /// Give the CPU away and look again.
    Yield,
    /// Sleep at once.
    Sleep,
    /// Nothing is set.
    Keep,
}

impl WaitPolicy {
    /// All of them, as listed in help.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Spin, Self::Yield, Self::Sleep, Self::Keep];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Sleep => "sleep",
            Self::Keep => "keep",
        }
    }
}

impl fmt::Display for WaitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for WaitPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.word() == text);
        known.ok_or_else(|| format!("\"{text}\" is no way to wait: auto, spin, yield, sleep or keep"))
    }
}

/// What `sched_yield` does on this kernel: measured, since versions do not tell.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[serde(tag = "yield", rename_all = "kebab-case")]
pub enum Yield {
    /// The caller gives its turn away: a computing thread beside it has nearly the whole CPU.
    Posix,
    /// The caller is chosen again soon.
    Weak {
        /// What a computing thread gets beside a yielding one, of the CPU.
        share: f64,
    },
    /// It was not measured.
    #[default]
    Unknown,
}

impl fmt::Display for Yield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posix => f.write_str("sched_yield gives the CPU away on this kernel: measured"),
            Self::Weak { share } => write!(
                f,
                "sched_yield barely gives the CPU away on this kernel: measured, a thread that computes beside one that yields \
                 gets {:.0} % of it",
                share * 100.0
            ),
            Self::Unknown => f.write_str(
                "what sched_yield does on this kernel could not be measured: others wanted the CPU",
            ),
        }
    }
}

/// How full the plan's CPUs will be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Occupancy {
    /// Threads that will compute, of all ranks on these CPUs together.
    pub threads: u64,
    /// CPUs that they have.
    pub cpus: u64,
    /// Thousandths of a CPU that they have together; `None` without a quota.
    pub quota: Option<u32>,
    /// Those of the CPUs that others use too.
    pub shared: CpuSet,
}

impl Occupancy {
    /// That of a plan. `omp` is the count of threads that the user set for OpenMP, one number or one a level; `nested` how
    /// many threads nested teams have together, where trimtab places some; `quota` in thousandths of a CPU.
    pub fn of(plan: &Plan, omp: Option<&str>, nested: Option<u64>, quota: Option<u32>) -> Self {
        let asked = omp.and_then(product).or(nested).unwrap_or(u64::from(plan.threads));
        let mut occupancy = Self { threads: asked, cpus: count(&plan.mask), quota, shared: CpuSet::new() };
        for reason in &plan.reasons {
            match reason {
                // Ranks count against the whole of what they share: a rank alone cannot tell that its core has two.
                Reason::Rank { of, allotment, .. } => {
                    occupancy.threads = asked.saturating_mul(u64::from(*of));
                    occupancy.cpus = count(allotment);
                }
                Reason::UsedAnyway { cpus, .. } => occupancy.shared.extend(cpus.iter()),
                _ => {}
            }
        }
        occupancy
    }

    /// Why CPUs will be short; empty when they will not.
    fn short(&self) -> Vec<Short> {
        let Self { threads, cpus, quota, ref shared } = *self;
        let mut why = Vec::new();
        if threads > cpus {
            why.push(Short::Threads { threads, cpus });
        }
        if let Some(quota) = quota.filter(|&quota| u64::from(quota) < 1000 * cpus) {
            why.push(Short::Quota { quota, cpus });
        }
        if !shared.is_empty() {
            why.push(Short::Shared { cpus: shared.clone() });
        }
        why
    }
}

/// A list of counts, one a level, as a number of threads.
fn product(list: &str) -> Option<u64> {
    let counts = list
        .split(',')
        .map(|count| count.trim().parse::<u32>().ok().map(u64::from).filter(|&count| count > 0));
    counts.reduce(|all, count| Some(all?.saturating_mul(count?))).flatten()
}

fn count(cpus: &CpuSet) -> u64 {
    cpus.len() as u64
}

/// Why CPUs will be short.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "short", rename_all = "kebab-case")]
pub enum Short {
    /// There are more threads than CPUs.
    Threads {
        /// Threads.
        threads: u64,
        /// CPUs.
        cpus: u64,
    },
    /// A quota gives less time than the CPUs have, and no runtime looks at quotas.
    Quota {
        /// Thousandths of a CPU.
        quota: u32,
        /// CPUs.
        cpus: u64,
    },
    /// Others use the CPUs too.
    Shared {
        /// Which.
        cpus: CpuSet,
    },
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { threads, cpus } => write!(f, "{threads} threads on {}", plural(*cpus, "CPU")),
            Self::Quota { quota, cpus } => {
                write!(
                    f,
                    "a quota of {}.{:02} CPUs on {}",
                    quota / 1000,
                    quota % 1000 / 10,
                    plural(*cpus, "CPU")
                )
            }
            Self::Shared { cpus } => write!(f, "others use CPUs {cpus} too"),
        }
    }
}

fn plural(count: u64, noun: &str) -> String {
    super::plan::plural(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

/// What waiting threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Whatever their runtime does by itself.
    Left,
    /// They spin.
    Spin,
    /// They yield.
    Yield,
    /// They spin for a moment and then sleep, or yield where a runtime cannot sleep.
    Brief,
    /// They sleep, or yield where a runtime cannot.
    Sleep,
}

/// A decision, with its causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// What was asked for.
    pub policy: WaitPolicy,
    /// What comes of it.
    pub how: How,
    /// Why CPUs will be short; empty when they will not.
    pub short: Vec<Short>,
}

/// Decides.
pub fn decide(policy: WaitPolicy, occupancy: &Occupancy) -> Waiting {
    let short = occupancy.short();
    let how = match policy {
        WaitPolicy::Keep => How::Left,
        WaitPolicy::Auto if short.is_empty() => How::Left,
        WaitPolicy::Auto => How::Brief,
        WaitPolicy::Spin => How::Spin,
        WaitPolicy::Yield => How::Yield,
        WaitPolicy::Sleep => How::Sleep,
    };
    Waiting { policy, how, short }
}

/// One line, for people.
impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<String> = self.short.iter().map(ToString::to_string).collect();
        let short = short.join("; ");
        match (self.policy, self.how) {
            (WaitPolicy::Keep, _) => f.write_str("how threads wait is left alone (--wait-policy keep)"),
            (_, How::Left) => f.write_str("threads wait as their runtimes do: every thread has a CPU"),
            (_, How::Brief) => write!(f, "waiting threads spin for a moment and then sleep: {short}"),
            (policy, how) => {
                let what = match how {
                    How::Spin => "spin",
                    How::Yield => "yield",
                    _ => "sleep",
                };
                write!(f, "waiting threads {what} (--wait-policy {policy})")?;
                match how {
                    How::Spin if !short.is_empty() => {
                        write!(f, ", and will keep others from the CPU: {short}")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Variables by which users say how one kind of runtime waits.
struct Family {
    name: &'static str,
    variables: &'static [Row],
    /// Variables that belong to the family, and are never set here.
    also: &'static [&'static str],
}

impl Family {
    /// What is said where the user set any of it.
    fn of_user(&self, user: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let names = self.variables.iter().map(|row| row.name).chain(self.also.iter().copied());
        let (name, value) = names.into_iter().find_map(|name| Some((name, user(name)?)))?;
        Some(format!("you set {name}={value}: how {} is left to you", self.name))
    }
}

/// A variable and its values: when threads spin, yield, wait briefly, sleep. `Err` is why there is none.
struct Row {
    name: &'static str,
    reader: &'static str,
    values: fn(How, Yield) -> Result<&'static str, &'static str>,
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "OpenMP threads wait",
        variables: &[
            Row { name: "OMP_WAIT_POLICY", reader: "OpenMP", values: omp_wait_policy },
            Row { name: "GOMP_SPINCOUNT", reader: "OpenMP of GCC", values: gomp_spincount },
            Row { name: "KMP_BLOCKTIME", reader: "OpenMP of LLVM and Intel", values: kmp_blocktime },
            Row { name: "KMP_USE_YIELD", reader: "OpenMP of LLVM and Intel", values: kmp_use_yield },
        ],
        also: &["KMP_LIBRARY"],
    },
    Family {
        name: "Open MPI waits",
        variables: &[Row {
            name: "OMPI_MCA_mpi_yield_when_idle",
            reader: "Open MPI",
            values: |how, _| Ok(if how == How::Spin { "0" } else { "1" }),
        }],
        also: &[],
    },
    Family {
        name: "Intel MPI waits",
        variables: &[
            Row {
                name: "I_MPI_WAIT_MODE",
                reader: "Intel MPI",
                values: |how, _| Ok(if how == How::Spin { "0" } else { "1" }),
            },
            Row { name: "I_MPI_THREAD_YIELD", reader: "Intel MPI", values: impi_thread_yield },
        ],
        also: &[],
    },
    Family {
        name: "UPC++ waits",
        variables: &[Row {
            name: "UPCXX_OVERSUBSCRIBED",
            reader: "UPC++",
            values: |how, _| Ok(if how == How::Spin { "no" } else { "yes" }),
        }],
        also: &[],
    },
];

fn omp_wait_policy(how: How, _: Yield) -> Result<&'static str, &'static str> {
    match how {
        How::Spin => Ok("active"),
        How::Sleep => Ok("passive"),
        _ => Err("it knows only spinning and sleeping; the runtimes' own variables say the rest"),
    }
}

fn gomp_spincount(how: How, _: Yield) -> Result<&'static str, &'static str> {
    match how {
        // libgomp has no waiting that yields.
        How::Brief | How::Yield => Ok(BRIEF_SPINS),
        _ => Err("OMP_WAIT_POLICY says it"),
    }
}

fn kmp_blocktime(how: How, _: Yield) -> Result<&'static str, &'static str> {
    Ok(match how {
        How::Spin | How::Yield => "infinite",
        _ => "0",
    })
}

/// Also where threads sleep: this runtime's locks spin, and must let their holder run. 2 yields once there are more threads than
/// CPUs, as libgomp spins less then; never to yield (0) made barriers take a hundred times as long with three threads on two
/// CPUs.
fn kmp_use_yield(how: How, _: Yield) -> Result<&'static str, &'static str> {
    Ok(if how == How::Spin { "2" } else { "1" })
}

/// 2 is `sched_yield`, 3 a sleep of microseconds.
fn impi_thread_yield(how: How, yields: Yield) -> Result<&'static str, &'static str> {
    Ok(match (how, yields) {
        (How::Spin, _) => "0",
        (How::Sleep, _) | (How::Brief, Yield::Weak { .. }) => "3",
        _ => "2",
    })
}

impl Waiting {
    /// Whether it matters what `sched_yield` does here, which takes some milliseconds to measure: where threads yield, and where
    /// what cannot sleep does, which is MPI's ranks.
    pub fn asks_for_yield(&self, mpi: bool) -> bool {
        self.how == How::Yield || (self.how == How::Brief && mpi)
    }

    /// What the user decides, in words, where something would have been set.
    pub fn left_to_user(&self, user: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
        let families = FAMILIES.iter().filter(|_| self.how != How::Left);
        families.filter_map(|family| family.of_user(user)).collect()
    }

    /// What should be known of yielding here, where it is not what its name says.
    pub fn caution(&self, yields: Yield) -> Option<String> {
        let Yield::Weak { .. } = yields else { return None };
        let (who, remedy) = match self.how {
            How::Yield => ("waiting threads", "; --wait-policy sleep gives it away"),
            How::Brief => ("what cannot sleep (MPI ranks, UPC++)", ""),
            _ => return None,
        };
        Some(format!("{yields}: {who} will cost almost what spinning costs{remedy}"))
    }

    /// The variables. `user` answers what the user set.
    pub fn variables(&self, yields: Yield, user: &dyn Fn(&str) -> Option<String>) -> Vec<Variable> {
        FAMILIES.iter().flat_map(|family| self.family(family, yields, user)).collect()
    }

    fn family(&self, family: &Family, yields: Yield, user: &dyn Fn(&str) -> Option<String>) -> Vec<Variable> {
        let reader = family.variables.first().map_or("", |row| row.reader);
        let also = family.also.iter().filter_map(|&name| Some((name, reader, user(name)?)));
        let own = family.variables.iter().filter_map(|row| Some((row.name, row.reader, user(row.name)?)));
        let kept: Vec<(&str, &str, String)> = own.chain(also).collect();
        let of_user = kept
            .first()
            .map(|(name, _, value)| format!("you set {name}={value}: how {} is left to you", family.name));
        let mut variables: Vec<Variable> = Vec::new();
        for row in family.variables.iter().filter(|row| !kept.iter().any(|(name, ..)| *name == row.name)) {
            let action = match (&of_user, self.how) {
                (Some(why), _) => Action::Unset { why: why.clone() },
                (None, How::Left) => Action::Unset { why: self.to_string() },
                (None, how) => match (row.values)(how, yields) {
                    Ok(value) => Action::Set { value: value.to_owned() },
                    Err(why) => Action::Unset { why: why.to_owned() },
                },
            };
            variables.push(Variable { name: row.name.to_owned(), reader: row.reader, action });
        }
        variables.extend(kept.into_iter().map(|(name, _, value)| {
            let reader =
                family.variables.iter().find(|row| row.name == name).map_or(reader, |row| row.reader);
            Variable { name: name.to_owned(), reader, action: Action::Kept { value } }
        }));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Request, State, Taken, plan};
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    fn own(threads: u64, cpus: u64) -> Occupancy {
        Occupancy { threads, cpus, ..Occupancy::default() }
    }

    /// What is set, as text.
    fn set(policy: WaitPolicy, occupancy: &Occupancy, yields: Yield, user: &[(&str, &str)]) -> Vec<String> {
        let of_user =
            |name: &str| user.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let variables = decide(policy, occupancy).variables(yields, &of_user);
        let set = variables.into_iter().filter_map(|variable| match variable.action {
            Action::Set { value } => Some(format!("{}={value}", variable.name)),
            _ => None,
        });
        set.collect()
    }

    const BRIEF: [&str; 7] = [
        "GOMP_SPINCOUNT=100",
        "KMP_BLOCKTIME=0",
        "KMP_USE_YIELD=1",
        "OMPI_MCA_mpi_yield_when_idle=1",
        "I_MPI_WAIT_MODE=1",
        "I_MPI_THREAD_YIELD=2",
        "UPCXX_OVERSUBSCRIBED=yes",
    ];

    #[test]
    fn auto_leaves_threads_with_cpus_of_their_own_alone() {
        for occupancy in [own(2, 2), own(1, 4), Occupancy { quota: Some(2_000), ..own(2, 2) }] {
            assert_eq!(set(WaitPolicy::Auto, &occupancy, Yield::Posix, &[]), [""; 0], "{occupancy:?}");
            let waiting = decide(WaitPolicy::Auto, &occupancy);
            assert_eq!((waiting.how, waiting.asks_for_yield(true)), (How::Left, false));
            assert_eq!(waiting.to_string(), "threads wait as their runtimes do: every thread has a CPU");
        }
    }

    #[test]
    fn auto_lets_threads_sleep_where_cpus_are_short() {
        let shared = Occupancy { shared: "1".parse().unwrap(), ..own(2, 2) };
        for (occupancy, why) in [
            (own(3, 2), "3 threads on 2 CPUs"),
            (Occupancy { quota: Some(1_500), ..own(2, 2) }, "a quota of 1.50 CPUs on 2 CPUs"),
            // The runtime would count the mask once the program starts more threads.
            (Occupancy { quota: Some(1_000), ..own(1, 4) }, "a quota of 1.00 CPUs on 4 CPUs"),
            (shared, "others use CPUs 1 too"),
        ] {
            assert_eq!(set(WaitPolicy::Auto, &occupancy, Yield::Unknown, &[]), BRIEF, "{why}");
            let waiting = decide(WaitPolicy::Auto, &occupancy);
            assert_eq!(
                waiting.to_string(),
                format!("waiting threads spin for a moment and then sleep: {why}")
            );
            assert!(waiting.asks_for_yield(true) && !waiting.asks_for_yield(false));
        }
    }

    #[test]
    fn a_policy_that_is_asked_for_is_set_however_full_it_is() {
        for occupancy in [own(1, 4), own(9, 2)] {
            assert_eq!(
                set(WaitPolicy::Spin, &occupancy, Yield::Posix, &[]),
                [
                    "OMP_WAIT_POLICY=active",
                    "KMP_BLOCKTIME=infinite",
                    "KMP_USE_YIELD=2",
                    "OMPI_MCA_mpi_yield_when_idle=0",
                    "I_MPI_WAIT_MODE=0",
                    "I_MPI_THREAD_YIELD=0",
                    "UPCXX_OVERSUBSCRIBED=no"
                ]
            );
            let yields = set(WaitPolicy::Yield, &occupancy, Yield::Posix, &[]);
            assert_eq!(yields[..3], ["GOMP_SPINCOUNT=100", "KMP_BLOCKTIME=infinite", "KMP_USE_YIELD=1"]);
            assert_eq!(yields[3..], BRIEF[3..]);
            let sleeps = set(WaitPolicy::Sleep, &occupancy, Yield::Posix, &[]);
            assert_eq!(sleeps[..3], ["OMP_WAIT_POLICY=passive", "KMP_BLOCKTIME=0", "KMP_USE_YIELD=1"]);
            assert!(sleeps.contains(&"I_MPI_THREAD_YIELD=3".to_owned()));
            assert_eq!(set(WaitPolicy::Keep, &occupancy, Yield::Posix, &[]), [""; 0]);
        }
        let words = decide(WaitPolicy::Spin, &own(3, 2)).to_string();
        assert_eq!(
            words,
            "waiting threads spin (--wait-policy spin), and will keep others from the CPU: 3 threads on 2 CPUs"
        );
    }

    #[test]
    fn a_family_in_which_the_user_set_anything_is_the_users() {
        for policy in WaitPolicy::ALL {
            for name in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_USE_YIELD", "KMP_LIBRARY"]
            {
                let all = set(policy, &own(3, 2), Yield::Posix, &[(name, "7")]);
                assert!(all.iter().all(|set| !set.contains("OMP_W") && !set.contains("MP_SPIN")), "{all:?}");
                assert!(all.iter().all(|set| !set.starts_with("KMP")), "{name}: {all:?}");
                let of_user = |asked: &str| (asked == name).then(|| "7".to_owned());
                let variables = decide(policy, &own(3, 2)).variables(Yield::Posix, &of_user);
                let kept: Vec<_> = variables
                    .iter()
                    .filter(|one| one.action == Action::Kept { value: "7".to_owned() })
                    .collect();
                assert_eq!(kept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [name]);
            }
        }
        let of_user = |name: &str| (name == "KMP_LIBRARY").then(|| "serial".to_owned());
        let said = |occupancy| decide(WaitPolicy::Auto, &occupancy).left_to_user(&of_user);
        assert_eq!(said(own(3, 2)), ["you set KMP_LIBRARY=serial: how OpenMP threads wait is left to you"]);
        assert_eq!(said(own(2, 2)), [""; 0], "nothing would have been set");
        // What mpirun says to Open MPI leaves OpenMP to us.
        let all = set(WaitPolicy::Auto, &own(3, 2), Yield::Posix, &[("OMPI_MCA_mpi_yield_when_idle", "0")]);
        assert_eq!(all[..3], BRIEF[..3]);
        assert!(!all.iter().any(|set| set.starts_with("OMPI")), "{all:?}");
    }

    #[test]
    fn a_yield_that_gives_nothing_away_is_not_relied_on() {
        let weak = Yield::Weak { share: 0.504 };
        assert!(
            set(WaitPolicy::Auto, &own(3, 2), weak, &[]).contains(&"I_MPI_THREAD_YIELD=3".to_owned()),
            "it can sleep instead"
        );
        let caution = decide(WaitPolicy::Yield, &own(3, 2)).caution(weak).unwrap();
        assert!(
            caution.contains("gets 50 % of it") && caution.ends_with("--wait-policy sleep gives it away")
        );
        assert!(decide(WaitPolicy::Auto, &own(3, 2)).caution(weak).unwrap().contains("MPI ranks"));
        for (policy, yields) in
            [(WaitPolicy::Yield, Yield::Posix), (WaitPolicy::Sleep, weak), (WaitPolicy::Auto, Yield::Unknown)]
        {
            assert_eq!(decide(policy, &own(3, 2)).caution(yields), None);
        }
    }

    #[test]
    fn occupancy_is_read_off_a_plan() {
        let machine = parse_synthetic("core:4 pu:1").unwrap();
        let request = Request { amount: "2".parse().unwrap(), ..Request::default() };
        let mut plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        let of = |omp, nested, quota| {
            let Occupancy { threads, cpus, quota, .. } = Occupancy::of(&plan, omp, nested, quota);
            (threads, cpus, quota)
        };
        assert_eq!(of(None, None, None), (2, 2, None));
        assert_eq!(of(Some("3"), None, Some(500)), (3, 2, Some(500)));
        assert_eq!(of(Some(" 4 , 2"), Some(5), None), (8, 2, None));
        assert_eq!(of(None, Some(5), None), (5, 2, None));
        // What is no count says nothing, as the runtime will say.
        for bad in ["", "0", "many", "4,,2", "4,0", "-3"] {
            assert_eq!(of(Some(bad), None, None), (2, 2, None), "{bad:?}");
        }
        assert_eq!(of(Some("4294967295,9"), None, None).0, 9 * 4_294_967_295);
        plan.reasons.push(Reason::Rank { rank: 0, of: 3, allotment: "0-3".parse().unwrap() });
        plan.reasons.push(Reason::UsedAnyway { state: State::Busy, cpus: "1".parse().unwrap(), load: 900 });
        let Occupancy { threads, cpus, shared, .. } = Occupancy::of(&plan, None, None, None);
        assert_eq!((threads, cpus, shared), (6, 4, "1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn auto_acts_just_where_cpus_are_short(threads in 0u64..9, cpus in 1u64..9, quota in proptest::option::of(1u32..9_000), shared: bool) {
            let shared: CpuSet = if shared { "0".parse().unwrap() } else { CpuSet::new() };
            let occupancy = Occupancy { threads, cpus, quota, shared: shared.clone() };
            // Told in another way: what is left for a thread, at the least, is a CPU.
            let time = quota.map_or(f64::INFINITY, |quota| f64::from(quota) / 1000.0).min(cpus as f64);
            let short = threads.max(cpus) as f64 > time || !shared.is_empty();
            let waiting = decide(WaitPolicy::Auto, &occupancy);
            prop_assert_eq!(waiting.how == How::Brief, short);
            prop_assert_eq!(waiting.short.is_empty(), !short);
            prop_assert_eq!(waiting.variables(Yield::Posix, &|_| None).len(), 8);
        }
    }

    #[test]
    fn policies_are_words() {
        for policy in WaitPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("passive".parse::<WaitPolicy>().unwrap_err().contains("spin, yield, sleep or keep"));
    }
}
