//! What each runtime is told, in its own words: a row a variable, a family a runtime's kind.

use super::{How, Waiting, Yield};
use crate::place::environment::{Action, Variable};

/// What libgomp itself spins once it sees more threads than CPUs, in turns of its loop: 1 to 5 µs, about what it costs to
/// sleep and be woken, so that waiting costs at most twice what the best choice would have.
const BRIEF_SPINS: &str = "100";

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
    values: fn(Case) -> Result<&'static str, &'static str>,
}

/// What the value of a variable depends on.
#[derive(Clone, Copy)]
struct Case {
    how: How,
    yields: Yield,
    /// Whether the user allows OpenMP regions to be cancelled. LLVM's runtime (14 to 23 were tried)
    /// then hangs at once where its threads sleep without a block time, and only sometimes otherwise.
    cancels: bool,
}

/// Why LLVM's runtime is not told to sleep at once.
const HANGS: &str =
    "LLVM's OpenMP hangs in cancelled regions where threads sleep at once (OMP_CANCELLATION is set)";

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
            values: |case| Ok(if case.how == How::Spin { "0" } else { "1" }),
        }],
        also: &[],
    },
    Family {
        name: "Intel MPI waits",
        variables: &[
            Row {
                name: "I_MPI_WAIT_MODE",
                reader: "Intel MPI",
                values: |case| Ok(if case.how == How::Spin { "0" } else { "1" }),
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
            values: |case| Ok(if case.how == How::Spin { "no" } else { "yes" }),
        }],
        also: &[],
    },
];

fn omp_wait_policy(case: Case) -> Result<&'static str, &'static str> {
    match case.how {
        How::Spin => Ok("active"),
        How::Sleep if case.cancels => Err(HANGS),
        How::Sleep => Ok("passive"),
        _ => Err("it knows only spinning and sleeping; the runtimes' own variables say the rest"),
    }
}

fn gomp_spincount(case: Case) -> Result<&'static str, &'static str> {
    match case.how {
        // OMP_WAIT_POLICY is not set then.
        How::Sleep if case.cancels => Ok("0"),
        // libgomp has no waiting that yields.
        How::Brief | How::Yield => Ok(BRIEF_SPINS),
        _ => Err("OMP_WAIT_POLICY says it"),
    }
}

fn kmp_blocktime(case: Case) -> Result<&'static str, &'static str> {
    match case.how {
        How::Spin | How::Yield => Ok("infinite"),
        _ if case.cancels => Err(HANGS),
        _ => Ok("0"),
    }
}

/// Also where threads sleep: this runtime's locks spin, and must let their holder run. 2 yields once there are more threads than
/// CPUs, as libgomp spins less then; never to yield (0) made barriers take a hundred times as long with three threads on two
/// CPUs.
fn kmp_use_yield(case: Case) -> Result<&'static str, &'static str> {
    Ok(if case.how == How::Spin { "2" } else { "1" })
}

/// 2 is `sched_yield`, 3 a sleep of microseconds.
fn impi_thread_yield(case: Case) -> Result<&'static str, &'static str> {
    Ok(match (case.how, case.yields) {
        (How::Spin, _) => "0",
        (How::Sleep, _) | (How::Brief, Yield::Weak { .. }) => "3",
        _ => "2",
    })
}

/// Whether an OpenMP runtime reads a text as true.
fn is_true(text: &str) -> bool {
    let text = text.trim();
    ["true", "1", "yes", "on"].iter().any(|word| text.eq_ignore_ascii_case(word))
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
        let cancels = user("OMP_CANCELLATION").is_some_and(|value| is_true(&value));
        let mut variables: Vec<Variable> = Vec::new();
        for row in family.variables.iter().filter(|row| !kept.iter().any(|(name, ..)| *name == row.name)) {
            let action = match (&of_user, self.how) {
                (Some(why), _) => Action::Unset { why: why.clone() },
                (None, How::Left) => Action::Unset { why: self.to_string() },
                (None, how) => match (row.values)(Case { how, yields, cancels }) {
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
