//! The environment a plan asks for: thread counts for the runtimes people use, and exact places for OpenMP.
//!
//! Problem: most runtimes size themselves by the CPU mask, but some read variables first, some ignore quotas, and an
//! OpenMP runtime with places narrows the initial thread to one CPU before `main`, after which libraries that count the
//! mask (OpenBLAS among them) start a single thread. Idea: set every count beside the mask, set exact places only for
//! programs that link an OpenMP runtime, and never touch what the user set. A count the user gave to OpenMP is left to
//! reach the libraries that fall back to it. The whole table is in docs/guide.md.

use super::Plan;
use super::nesting::Resolved;
use serde::Serialize;

/// What becomes of one variable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Set by the plan.
    Set {
        /// The value.
        value: String,
    },
    /// Set by the user, and left alone.
    Kept {
        /// The user's value.
        value: String,
    },
    /// Set by the user, and taken away, for this reason.
    Removed {
        /// The user's value.
        value: String,
        /// The reason, in words.
        why: String,
    },
    /// Not set, for this reason.
    Unset {
        /// The reason, in words.
        why: String,
    },
}

/// One variable of the environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Which runtime reads it.
    pub reader: &'static str,
    /// What becomes of it.
    #[serde(flatten)]
    pub action: Action,
}

/// A thread count variable: its name, its reader, and whether that reader falls back to `OMP_NUM_THREADS`.
const COUNTS: [(&str, &str, bool); 10] = [
    ("OMP_NUM_THREADS", "OpenMP", false),
    ("OPENBLAS_NUM_THREADS", "OpenBLAS", true),
    ("MKL_NUM_THREADS", "Intel MKL", true),
    ("BLIS_NUM_THREADS", "BLIS", true),
    ("NUMEXPR_NUM_THREADS", "numexpr", true),
    ("NUMEXPR_MAX_THREADS", "numexpr", true),
    ("RAYON_NUM_THREADS", "Rayon (Rust)", false),
    ("JULIA_NUM_THREADS", "Julia", false),
    ("POLARS_MAX_THREADS", "Polars", false),
    ("GOMAXPROCS", "Go", false),
];

/// Variables by which a user binds OpenMP threads; any one of them means: hands off.
const BINDINGS: [&str; 4] = ["OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// The runtime whose threads a plan binds to exact places, by the language its places are told in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMp {
    /// GCC's libgomp: `OMP_PLACES`.
    Gnu,
    /// LLVM's libomp and Intel's libiomp5: `KMP_AFFINITY`. They read `OMP_PLACES` too, but with a list of places there
    /// version 14 frees memory twice in a forked child, and the program dies.
    Llvm,
}

/// What binds the OpenMP threads of a program, if anything does.
#[derive(Clone, Copy, Debug)]
pub enum Binder<'a> {
    /// Nothing: it has no runtime that we know of.
    Nobody,
    /// Nothing: threads are to stay free to move.
    Free,
    /// The runtime itself, told the slots as its places.
    Runtime(OpenMp),
    /// The guest, by these nested teams; the runtime must not.
    Guest(&'a Resolved),
}

/// The variables for a plan. `user` answers what the user set.
pub fn environment(plan: &Plan, user: &dyn Fn(&str) -> Option<String>, binder: Binder<'_>) -> Vec<Variable> {
    let omp = user("OMP_NUM_THREADS");
    let count = |&(name, reader, follows): &(&str, &'static str, bool)| {
        let action = match (user(name), &omp) {
            (Some(value), _) => Action::Kept { value },
            (None, Some(omp)) if follows => {
                Action::Unset { why: format!("{reader} follows your OMP_NUM_THREADS={omp}") }
            }
            (None, _) => match binder {
                Binder::Guest(nest) if name == "OMP_NUM_THREADS" => {
                    Action::Set { value: list(&nest.sizes()) }
                }
                _ => Action::Set { value: plan.threads.to_string() },
            },
        };
        Variable { name: name.to_owned(), reader, action }
    };
    let mut variables: Vec<Variable> = COUNTS.iter().map(count).collect();
    variables.push(Variable {
        name: "JAVA_TOOL_OPTIONS".to_owned(),
        reader: "JVM",
        action: match user("JAVA_TOOL_OPTIONS") {
            Some(value) => Action::Kept { value },
            None => Action::Unset {
                why: "the JVM counts the CPU mask and the quota itself, and would report the variable on stderr".to_owned(),
            },
        },
    });
    variables.extend(match binder {
        Binder::Nobody => {
            places(plan, user, Err("the program does not itself link an OpenMP runtime"), omp.as_deref())
        }
        Binder::Free => places(plan, user, Err("threads are to stay free to move"), omp.as_deref()),
        Binder::Runtime(openmp) => places(plan, user, Ok(openmp), omp.as_deref()),
        Binder::Guest(nest) => nested(user, nest.levels().len()),
    });
    variables
}

/// What runtimes must know, and must not be told, for nested teams that the guest places.
fn nested(user: &dyn Fn(&str) -> Option<String>, levels: usize) -> Vec<Variable> {
    let variable = |name: &str, reader, action| Variable { name: name.to_owned(), reader, action };
    let count = |name: &str, reader| {
        let set = || Action::Set { value: levels.to_string() };
        variable(name, reader, user(name).map_or_else(set, |value| Action::Kept { value }))
    };
    let mut variables = vec![
        count("OMP_MAX_ACTIVE_LEVELS", "OpenMP"),
        // Without it LLVM's runtime gives the threads of inner teams back after each region.
        count("KMP_HOT_TEAMS_MAX_LEVEL", "OpenMP of LLVM and Intel"),
        variable("OMP_PROC_BIND", "OpenMP", Action::Set { value: "false".to_owned() }),
    ];
    for name in BINDINGS.into_iter().filter(|&name| name != "OMP_PROC_BIND") {
        if let Some(value) = user(name) {
            let why = "the nested teams you asked for place the threads instead".to_owned();
            variables.push(variable(name, "OpenMP", Action::Removed { value, why }));
        }
    }
    variables
}

/// A list as OpenMP reads it: one number for each level.
fn list(sizes: &[u32]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Exact OpenMP places: thread i on slot i.
fn places(
    plan: &Plan,
    user: &dyn Fn(&str) -> Option<String>,
    openmp: Result<OpenMp, &str>,
    omp: Option<&str>,
) -> Vec<Variable> {
    let bound: Vec<(&str, String)> = BINDINGS.iter().filter_map(|&name| Some((name, user(name)?))).collect();
    let variable = |name: &str, action| Variable { name: name.to_owned(), reader: "OpenMP", action };
    if !bound.is_empty() {
        return bound.into_iter().map(|(name, value)| variable(name, Action::Kept { value })).collect();
    }
    let threads = omp.map(str::parse::<usize>);
    let crowded =
        |threads| format!("{threads} threads on {} slots are better left to the kernel", plan.slots.len());
    let why_not = match threads {
        _ if openmp.is_err() => openmp.err().map(str::to_owned),
        Some(Err(_)) => Some(format!("OMP_NUM_THREADS={} is no single count", omp.unwrap_or(""))),
        Some(Ok(threads)) if threads > plan.slots.len() => Some(crowded(threads)),
        None if plan.threads as usize > plan.slots.len() => Some(crowded(plan.threads as usize)),
        _ => None,
    };
    if let Some(why) = why_not {
        let unset = |name| variable(name, Action::Unset { why: why.clone() });
        return BINDINGS[..2].iter().map(|name| unset(name)).collect();
    }
    let list = |open: &str, close: &str| {
        let places: Vec<String> =
            plan.slots.iter().map(|slot| format!("{open}{}{close}", slot.cpu)).collect();
        places.join(",")
    };
    match openmp {
        Ok(OpenMp::Llvm) => {
            let value = format!("granularity=fine,explicit,proclist=[{}]", list("", ""));
            vec![variable("KMP_AFFINITY", Action::Set { value })]
        }
        _ => vec![
            variable("OMP_PLACES", Action::Set { value: list("{", "}") }),
            variable("OMP_PROC_BIND", Action::Set { value: "close".to_owned() }),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Taken, plan};
    use super::*;
    use crate::topology::parse_synthetic;

    fn of(user: &[(&str, &str)], openmp: impl Into<Option<OpenMp>>) -> Vec<(String, Action)> {
        let machine = parse_synthetic("core:4 pu:2(far)").unwrap();
        let request = Request { amount: "4".parse().unwrap(), ..Request::default() };
        let plan = plan(&machine, &request, &Taken::nothing(machine.cpus())).unwrap();
        let user =
            |name: &str| user.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        environment(&plan, &user, openmp.into().map_or(Binder::Nobody, Binder::Runtime))
            .into_iter()
            .map(|variable| (variable.name, variable.action))
            .collect()
    }

    fn action(all: &[(String, Action)], name: &str) -> Action {
        all.iter().find(|(set, _)| set == name).unwrap_or_else(|| panic!("{name}: {all:?}")).1.clone()
    }

    fn set(value: &str) -> Action {
        Action::Set { value: value.to_owned() }
    }

    #[test]
    fn counts_are_set_where_the_user_set_none() {
        let all = of(&[("RAYON_NUM_THREADS", "2")], None);
        assert_eq!(action(&all, "OMP_NUM_THREADS"), set("4"));
        assert_eq!(action(&all, "GOMAXPROCS"), set("4"));
        assert_eq!(action(&all, "RAYON_NUM_THREADS"), Action::Kept { value: "2".to_owned() });
        assert!(matches!(action(&all, "OMP_PLACES"), Action::Unset { .. }));
    }

    #[test]
    fn a_users_openmp_count_reaches_the_libraries_that_follow_it() {
        let all = of(&[("OMP_NUM_THREADS", "2")], OpenMp::Gnu);
        assert!(matches!(action(&all, "OPENBLAS_NUM_THREADS"), Action::Unset { .. }));
        assert_eq!(action(&all, "POLARS_MAX_THREADS"), set("4"));
        assert_eq!(action(&all, "OMP_PLACES"), set("{0},{1},{2},{3}"));
    }

    #[test]
    fn nested_teams_replace_the_runtimes_own_places() {
        let machine = parse_synthetic("core:8").unwrap();
        let plan = plan(&machine, &Request::default(), &Taken::nothing(machine.cpus())).unwrap();
        let tree = crate::place::nesting::Tree::new(&machine, &plan.mask).unwrap();
        let nest = "4,scatter,2".parse::<crate::place::nesting::Nest>().unwrap().resolve(&tree);
        let user = |name: &str| match name {
            "OMP_PLACES" => Some("cores".to_owned()),
            "OMP_MAX_ACTIVE_LEVELS" => Some("5".to_owned()),
            _ => None,
        };
        let all: Vec<_> = environment(&plan, &user, Binder::Guest(&nest))
            .into_iter()
            .map(|variable| (variable.name, variable.action))
            .collect();
        assert_eq!(action(&all, "OMP_NUM_THREADS"), set("4,2"));
        assert_eq!(action(&all, "OMP_PROC_BIND"), set("false"));
        assert_eq!(action(&all, "KMP_HOT_TEAMS_MAX_LEVEL"), set("2"));
        assert_eq!(action(&all, "OMP_MAX_ACTIVE_LEVELS"), Action::Kept { value: "5".to_owned() });
        assert!(matches!(action(&all, "OMP_PLACES"), Action::Removed { .. }));
    }

    #[test]
    fn llvms_runtime_is_told_the_same_places_in_its_own_words() {
        let all = of(&[], OpenMp::Llvm);
        assert_eq!(action(&all, "KMP_AFFINITY"), set("granularity=fine,explicit,proclist=[0,1,2,3]"));
        assert!(!all.iter().any(|(name, _)| name == "OMP_PLACES"));
    }

    #[test]
    fn places_keep_away_from_other_bindings_nesting_and_oversubscription() {
        for (name, value) in
            [("GOMP_CPU_AFFINITY", "0"), ("KMP_AFFINITY", "compact"), ("OMP_PROC_BIND", "false")]
        {
            let all = of(&[(name, value)], OpenMp::Gnu);
            assert_eq!(action(&all, name), Action::Kept { value: value.to_owned() });
            assert!(!all.iter().any(|(_, action)| *action == set("close")));
        }
        for count in ["2,2", "9", "many"] {
            assert!(matches!(
                action(&of(&[("OMP_NUM_THREADS", count)], OpenMp::Gnu), "OMP_PLACES"),
                Action::Unset { .. }
            ));
        }
    }
}
