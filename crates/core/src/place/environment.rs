//! Environment of a plan: thread counts that the affinity mask does not convey, and exact places
//! for OpenMP.
//!
//! Problem: most runtimes size themselves by the affinity mask, which the launcher sets. An
//! additional variable looks like a setting of the user, stops programs that compare it with their
//! options, and disables the protection of libraries that limit inner threads only if the variable
//! is absent. Idea: a count is set only if it is needed ([`super::THREAD_COUNTS`] lists how each
//! runtime counts): under a CPU quota below the mask, on request (`--threads`), and for nested
//! teams. Exact places are set only for programs that link an OpenMP runtime and load the preload
//! library, which answers with the plan's mask if a runtime has bound the initial thread.
//!
//! Properties: The user's settings stay, except counts that exceed the CPUs of the run, which are
//! fitted ([`super::fit`]). No variable repeats a count from the command line of a known program.
//! Equal input gives equal variables. The whole table is in docs/guide/threads.md.

use super::Plan;
use super::fit::{self, Fit};
use super::nesting::Resolved;
use super::programs::Stated;
use super::runtimes::{
    BINDING_VARIABLES, DefaultCount, OPENMP, PlaceSyntax, Runtime, THREAD_COUNTS, ThreadCount,
};
use super::variable::{Action, Variable};
use crate::words::plural;

/// Component that binds the OpenMP threads of a program, if any.
#[derive(Clone, Copy, Debug)]
pub enum Binder<'a> {
    /// None: the program has no known runtime.
    Unknown,
    /// None: threads should stay free to move.
    Free,
    /// None, for this reason: the program binds its threads, or starts threads that could each open
    /// a team.
    Program(&'static str),
    /// The runtime itself, with the slots as its places.
    Runtime(Runtime),
    /// The preload library, following the requested nested teams; the runtime must not bind.
    Teams(&'a Resolved),
    /// The preload library, following the shape in the user's own `OMP_NUM_THREADS`. The runtime
    /// reads this list and gets no other setting.
    Shape(&'a Resolved),
}

/// Requests beside the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountRequest<'a> {
    /// Thread count for the runtimes (`--threads`).
    pub threads: Option<u32>,
    /// Thread count in the program's command line.
    pub stated: Option<&'a Stated>,
    /// Treatment of the user's counts that exceed the CPUs of the run.
    pub fit: Fit,
}

/// Returns the value of a thread count variable that the program will find: the user's own or the
/// fitted one; `None` if the user set none.
pub fn effective(
    plan: &Plan,
    user: &dyn Fn(&str) -> Option<String>,
    asked: &CountRequest<'_>,
    name: &str,
) -> Option<String> {
    let row = THREAD_COUNTS.iter().find(|row| row.name == name)?;
    match of_user(row, plan, user(name)?, asked) {
        Action::Kept { value } | Action::Fitted { value, .. } => Some(value),
        _ => None,
    }
}

/// Returns the action on a count that the user set.
fn of_user(row: &ThreadCount, plan: &Plan, value: String, asked: &CountRequest<'_>) -> Action {
    let slots = u32::try_from(plan.slots.len()).unwrap_or(u32::MAX);
    let may = row.fits && asked.fit != Fit::Keep && asked.stated.is_none();
    let fitted = fit::counts(&value).filter(|_| may).and_then(|counts| fit::fitted(&counts, slots));
    match fitted {
        Some(counts) => Action::Fitted { value: fit::list(&counts), from: value },
        None => Action::Kept { value },
    }
}

/// Returns the variables for a plan. `user` returns the values that the user set.
pub fn environment(
    plan: &Plan,
    user: &dyn Fn(&str) -> Option<String>,
    binder: Binder<'_>,
    asked: &CountRequest<'_>,
) -> Vec<Variable> {
    let omp = effective(plan, user, asked, OPENMP);
    let bindings = match binder {
        Binder::Unknown => {
            let why = "the program does not itself link an OpenMP runtime";
            places(plan, user, Err(why.to_owned()), omp.as_deref())
        }
        Binder::Free => {
            places(plan, user, Err("threads are to stay free to move".to_owned()), omp.as_deref())
        }
        Binder::Program(why) => places(plan, user, Err(why.to_owned()), omp.as_deref()),
        Binder::Runtime(openmp) => places(plan, user, Ok(openmp), omp.as_deref()),
        Binder::Teams(nest) => nested(user, nest.levels().len()),
        Binder::Shape(_) => {
            let why = "the preload library places the nested teams that OMP_NUM_THREADS lists";
            places(plan, user, Err(why.to_owned()), omp.as_deref())
        }
    };
    let count = |row: &ThreadCount| {
        let action = match user(row.name) {
            Some(value) => of_user(row, plan, value, asked),
            None => unset_by_user(row, plan, binder, asked, omp.as_deref()),
        };
        Variable { name: row.name.to_owned(), reader: row.reader, action }
    };
    let mut variables: Vec<Variable> = THREAD_COUNTS.iter().map(count).collect();
    variables.extend(bindings);
    variables
}

/// Returns the action on a count that the user did not set. `omp` is the value of `OMP_NUM_THREADS`
/// that the program will find; `None` if the user set none.
fn unset_by_user(
    row: &ThreadCount,
    plan: &Plan,
    binder: Binder<'_>,
    asked: &CountRequest<'_>,
    omp: Option<&str>,
) -> Action {
    let unset = |why: String| Action::Unset { why };
    let set = |threads: u32| Action::Set { value: threads.to_string() };
    if let Some(why) = row.never {
        return unset(why.to_owned());
    }
    if let (Binder::Teams(nest), OPENMP) = (binder, row.name) {
        return Action::Set { value: fit::list(&nest.sizes()) };
    }
    if let Some(omp) = omp.filter(|_| row.follows_openmp) {
        return unset(format!("{} follows your OMP_NUM_THREADS={omp}", row.reader));
    }
    if let Some(threads) = asked.threads {
        return set(threads);
    }
    if let Some(stated) = asked.stated {
        return unset(stated.to_string());
    }
    let below_quota = (plan.threads as usize) < plan.slots.len();
    match row.default {
        DefaultCount::Mask if below_quota => set(plan.threads),
        DefaultCount::Mask => unset(format!("{} counts the CPU mask itself", row.reader)),
        DefaultCount::MaskAndQuota => {
            unset(format!("{} counts the CPU mask and the quota itself", row.reader))
        }
        DefaultCount::Machine => unset(format!(
            "{} asks for the online CPUs, and the preload library answers from the plan",
            row.reader
        )),
        DefaultCount::One => unset(format!("{} starts one thread by default", row.reader)),
    }
}

/// Returns one message for each fitted count.
pub fn fitted_lines(variables: &[Variable], plan: &Plan) -> Vec<String> {
    let line = |variable: &Variable| match &variable.action {
        Action::Fitted { value, from } => Some(format!(
            "{name}={from} is fitted to {value}: the run has {} (--fit keep leaves it)",
            plural(plan.slots.len(), "CPU"),
            name = variable.name
        )),
        _ => None,
    };
    variables.iter().filter_map(line).collect()
}

/// Returns the settings that runtimes need for nested teams placed by the preload library, and
/// removes those that would interfere.
fn nested(user: &dyn Fn(&str) -> Option<String>, levels: usize) -> Vec<Variable> {
    let variable = |name: &str, reader, action| Variable { name: name.to_owned(), reader, action };
    let count = |name: &str, reader| {
        let set = || Action::Set { value: levels.to_string() };
        variable(name, reader, user(name).map_or_else(set, |value| Action::Kept { value }))
    };
    let mut variables = vec![
        count("OMP_MAX_ACTIVE_LEVELS", "OpenMP"),
        // Without this setting, LLVM's runtime releases the threads of inner teams after each
        // region.
        count("KMP_HOT_TEAMS_MAX_LEVEL", "OpenMP of LLVM and Intel"),
        variable("OMP_PROC_BIND", "OpenMP", Action::Set { value: "false".to_owned() }),
    ];
    for name in BINDING_VARIABLES.into_iter().filter(|&name| name != "OMP_PROC_BIND") {
        if let Some(value) = user(name) {
            let why = "the nested teams you asked for place the threads instead".to_owned();
            variables.push(variable(name, "OpenMP", Action::Removed { value, why }));
        }
    }
    variables
}

/// Returns the variables for exact OpenMP places: thread i on slot i.
fn places(
    plan: &Plan,
    user: &dyn Fn(&str) -> Option<String>,
    openmp: Result<Runtime, String>,
    omp: Option<&str>,
) -> Vec<Variable> {
    let bound: Vec<(&str, String)> =
        BINDING_VARIABLES.iter().filter_map(|&name| Some((name, user(name)?))).collect();
    let variable = |name: &str, action| Variable { name: name.to_owned(), reader: "OpenMP", action };
    if !bound.is_empty() {
        return bound.into_iter().map(|(name, value)| variable(name, Action::Kept { value })).collect();
    }
    let threads = omp.map(flat);
    let crowded =
        |threads| format!("{threads} threads on {} slots are better left to the kernel", plan.slots.len());
    let why_not = match (&openmp, threads) {
        (Err(why), _) => Some(why.clone()),
        (Ok(_), Some(None)) => Some(format!("OMP_NUM_THREADS={} is not a single count", omp.unwrap_or(""))),
        (Ok(_), Some(Some(threads))) if threads > plan.slots.len() => Some(crowded(threads)),
        (Ok(_), None) if plan.threads as usize > plan.slots.len() => Some(crowded(plan.threads as usize)),
        _ => None,
    };
    if let Some(why) = why_not {
        let unset = |name| variable(name, Action::Unset { why: why.clone() });
        return BINDING_VARIABLES[..2].iter().map(|name| unset(name)).collect();
    }
    let list = |open: &str, close: &str| {
        let places: Vec<String> =
            plan.slots.iter().map(|slot| format!("{open}{}{close}", slot.cpu)).collect();
        places.join(",")
    };
    match openmp.ok().and_then(|runtime| runtime.row().places) {
        Some(PlaceSyntax::KmpAffinity) => {
            let value = format!("granularity=fine,explicit,proclist=[{}]", list("", ""));
            vec![variable("KMP_AFFINITY", Action::Set { value })]
        }
        _ => vec![
            variable("OMP_PLACES", Action::Set { value: list("{", "}") }),
            variable("OMP_PROC_BIND", Action::Set { value: "close".to_owned() }),
        ],
    }
}

/// Returns the number of threads of a team with inner teams of one thread each; `None` for
/// another shape.
fn flat(omp: &str) -> Option<usize> {
    let counts = fit::counts(omp)?;
    let (first, inner) = counts.split_first()?;
    inner.iter().all(|&count| count == 1).then_some(*first as usize)
}

#[cfg(test)]
mod tests;
