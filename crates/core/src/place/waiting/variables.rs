//! Table of the variables that set how each runtime waits: one row per variable, one family per
//! kind of runtime.

use super::{How, Waiting, Yield};
use crate::place::variable::{Action, Variable};

/// Number of spins that libgomp itself uses if it has more threads than CPUs, in iterations of its
/// loop: 1 to 5 µs. This is about the cost of sleeping and waking, so that waiting costs at most
/// twice the cost of the best choice.
const BRIEF_SPINS: &str = "100";

/// Variables with which users set how one kind of runtime waits.
struct Family {
    name: &'static str,
    variables: &'static [WaitVariable],
    /// Variables that belong to the family but are never set here.
    also: &'static [&'static str],
    /// Whether processes read it, which wait for each other, and not threads of OpenMP.
    is_of_ranks: bool,
}

impl Family {
    /// Returns the message if the user set any variable of the family.
    fn of_user(&self, user: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let names = self.variables.iter().map(|row| row.name).chain(self.also.iter().copied());
        let (name, value) = names.into_iter().find_map(|name| Some((name, user(name)?)))?;
        Some(format!("you set {name}={value}: how {} is left to you", self.name))
    }
}

/// Variable and its values for spinning, yielding, brief waiting and sleeping. `Err` is the reason
/// why there is no value.
struct WaitVariable {
    name: &'static str,
    reader: &'static str,
    values: fn(WaitCase) -> Result<&'static str, &'static str>,
}

/// Inputs for the value of a variable.
#[derive(Clone, Copy)]
struct WaitCase {
    how: How,
    yields: Yield,
    /// Whether the user allows OpenMP regions to be cancelled. LLVM's runtime (14 to 23 were tried)
    /// then hangs immediately if its threads sleep without a block time, and only sometimes
    /// otherwise.
    cancels: bool,
}

/// Reason why LLVM's runtime is not set to sleep immediately.
const HANGS: &str =
    "LLVM's OpenMP hangs in cancelled regions where threads sleep at once (OMP_CANCELLATION is set)";

/// Reason why threads of OpenMP are left alone under a budget.
const FITTED: &str = "the budget makes teams smaller instead";

const FAMILIES: [Family; 4] = [
    Family {
        name: "OpenMP threads wait",
        variables: &[
            WaitVariable { name: "OMP_WAIT_POLICY", reader: "OpenMP", values: omp_wait_policy },
            WaitVariable { name: "GOMP_SPINCOUNT", reader: "OpenMP of GCC", values: gomp_spincount },
            WaitVariable { name: "KMP_BLOCKTIME", reader: "OpenMP of LLVM and Intel", values: kmp_blocktime },
            WaitVariable { name: "KMP_USE_YIELD", reader: "OpenMP of LLVM and Intel", values: kmp_use_yield },
        ],
        also: &["KMP_LIBRARY"],
        is_of_ranks: false,
    },
    Family {
        name: "Open MPI waits",
        variables: &[WaitVariable {
            name: "OMPI_MCA_mpi_yield_when_idle",
            reader: "Open MPI",
            values: |case| Ok(if case.how == How::Spin { "0" } else { "1" }),
        }],
        also: &[],
        is_of_ranks: true,
    },
    Family {
        name: "Intel MPI waits",
        variables: &[
            WaitVariable {
                name: "I_MPI_WAIT_MODE",
                reader: "Intel MPI",
                values: |case| Ok(if case.how == How::Spin { "0" } else { "1" }),
            },
            WaitVariable { name: "I_MPI_THREAD_YIELD", reader: "Intel MPI", values: impi_thread_yield },
        ],
        also: &[],
        is_of_ranks: true,
    },
    Family {
        name: "UPC++ waits",
        variables: &[WaitVariable {
            name: "UPCXX_OVERSUBSCRIBED",
            reader: "UPC++",
            values: |case| Ok(if case.how == How::Spin { "no" } else { "yes" }),
        }],
        also: &[],
        is_of_ranks: true,
    },
];

fn omp_wait_policy(case: WaitCase) -> Result<&'static str, &'static str> {
    match case.how {
        How::RanksYield => Err(FITTED),
        How::Spin => Ok("active"),
        How::Sleep if case.cancels => Err(HANGS),
        How::Sleep => Ok("passive"),
        _ => Err("it knows only spinning and sleeping; the runtimes' own variables set the rest"),
    }
}

fn gomp_spincount(case: WaitCase) -> Result<&'static str, &'static str> {
    match case.how {
        How::RanksYield => Err(FITTED),
        // OMP_WAIT_POLICY is not set in this case.
        How::Sleep if case.cancels => Ok("0"),
        // libgomp has no yielding wait.
        How::Brief | How::Yield => Ok(BRIEF_SPINS),
        _ => Err("OMP_WAIT_POLICY sets it"),
    }
}

fn kmp_blocktime(case: WaitCase) -> Result<&'static str, &'static str> {
    match case.how {
        How::RanksYield => Err(FITTED),
        How::Spin | How::Yield => Ok("infinite"),
        _ if case.cancels => Err(HANGS),
        _ => Ok("0"),
    }
}

/// Returns the value of `KMP_USE_YIELD`. Yielding is also needed for sleeping threads: this
/// runtime's locks spin, and must let their holder run. 2 yields if there are more threads than
/// CPUs, as libgomp spins less then. Never yielding (0) made barriers take a hundred times as long
/// with three threads on two CPUs.
fn kmp_use_yield(case: WaitCase) -> Result<&'static str, &'static str> {
    match case.how {
        How::RanksYield => Err(FITTED),
        How::Spin => Ok("2"),
        _ => Ok("1"),
    }
}

/// Returns the value of `I_MPI_THREAD_YIELD`: 2 is `sched_yield`, 3 is a sleep of microseconds.
fn impi_thread_yield(case: WaitCase) -> Result<&'static str, &'static str> {
    Ok(match (case.how, case.yields) {
        (How::Spin, _) => "0",
        (How::Sleep, _) | (How::Brief | How::RanksYield, Yield::Weak { .. }) => "3",
        _ => "2",
    })
}

/// Returns whether an OpenMP runtime parses a text as true.
fn is_true(text: &str) -> bool {
    let text = text.trim();
    ["true", "1", "yes", "on"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

impl Waiting {
    /// Returns whether the effect of `sched_yield`, which takes some milliseconds to measure,
    /// matters: if threads yield, or if runtimes that cannot sleep do (MPI ranks).
    pub fn asks_for_yield(&self, mpi: bool) -> bool {
        self.how == How::Yield || (matches!(self.how, How::Brief | How::RanksYield) && mpi)
    }

    /// Returns the messages about families that the user decides although trimtab would have set a
    /// variable.
    pub fn left_to_user(&self, user: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
        let families = FAMILIES.iter().filter(|family| match self.how {
            How::Left => false,
            How::RanksYield => family.is_of_ranks,
            _ => true,
        });
        families.filter_map(|family| family.of_user(user)).collect()
    }

    /// Returns a warning if `sched_yield` does not give up the CPU on this kernel.
    pub fn caution(&self, yields: Yield) -> Option<String> {
        let Yield::Weak { .. } = yields else { return None };
        let (waiters, remedy) = match self.how {
            How::Yield => ("waiting threads", "; --wait-policy sleep gives it away"),
            How::Brief | How::RanksYield => ("runtimes that cannot sleep (MPI ranks, UPC++)", ""),
            _ => return None,
        };
        Some(format!("{yields}: {waiters} will cost almost as much as spinning{remedy}"))
    }

    /// Returns the variables. `user` returns the values that the user set.
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
                (None, how) => match (row.values)(WaitCase { how, yields, cancels }) {
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
