//! Tests of the environment of a plan.

use super::super::nesting::{Nest, Tree};
use super::super::{Request, Taken, plan, stated};
use super::*;
use crate::topology::parse_synthetic;
use proptest::prelude::*;

/// Returns a plan for `cores` of four cores, under a quota in thousandths of a CPU.
fn four(cores: u32, quota: Option<u32>) -> Plan {
    let machine = parse_synthetic("core:4 pu:2(far)").unwrap();
    let request = Request { amount: cores.to_string().parse().unwrap(), ..Request::default() };
    plan(&machine, &request, &Taken { quota, ..Taken::nothing(machine.cpus()) }).unwrap()
}

fn with(
    plan: &Plan,
    user: &[(&str, &str)],
    binder: Binder<'_>,
    asked: &CountRequest<'_>,
) -> Vec<(String, Action)> {
    let user = |name: &str| user.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    let variables = environment(plan, &user, binder, asked);
    variables.into_iter().map(|variable| (variable.name, variable.action)).collect()
}

fn of(user: &[(&str, &str)], openmp: impl Into<Option<Runtime>>) -> Vec<(String, Action)> {
    let binder = openmp.into().map_or(Binder::Unknown, Binder::Runtime);
    with(&four(4, None), user, binder, &CountRequest::default())
}

fn action(all: &[(String, Action)], name: &str) -> Action {
    all.iter().find(|(set, _)| set == name).unwrap_or_else(|| panic!("{name}: {all:?}")).1.clone()
}

fn set(value: &str) -> Action {
    Action::Set { value: value.to_owned() }
}

fn kept(value: &str) -> Action {
    Action::Kept { value: value.to_owned() }
}

/// Returns the names and values of all variables that are changed for the program.
fn changed(all: &[(String, Action)]) -> Vec<String> {
    let one = |(name, action): &(String, Action)| match action {
        Action::Set { value } | Action::Fitted { value, .. } => Some(format!("{name}={value}")),
        Action::Removed { .. } => Some(format!("-{name}")),
        _ => None,
    };
    all.iter().filter_map(one).collect()
}

#[test]
fn the_mask_alone_carries_the_count() {
    assert_eq!(changed(&of(&[], None)), [""; 0]);
    assert_eq!(changed(&of(&[("RAYON_NUM_THREADS", "9")], None)), [""; 0]);
}

#[test]
fn a_quota_below_the_mask_is_said_to_runtimes_that_count_only_the_mask() {
    let all = with(&four(4, Some(2_000)), &[], Binder::Unknown, &CountRequest::default());
    assert_eq!(
        changed(&all),
        ["OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2", "MKL_NUM_THREADS=2", "GOMAXPROCS=2"]
    );
}

#[test]
fn a_requested_count_is_set_for_every_runtime_with_a_variable() {
    let asked = CountRequest { threads: Some(3), ..CountRequest::default() };
    let all = with(&four(4, None), &[("GOMAXPROCS", "1")], Binder::Unknown, &asked);
    for row in THREAD_COUNTS.iter().filter(|row| row.name != "GOMAXPROCS") {
        let expected = if row.never.is_some() {
            matches!(action(&all, row.name), Action::Unset { .. })
        } else {
            action(&all, row.name) == set("3")
        };
        assert!(expected, "{}: {all:?}", row.name);
    }
    assert_eq!(action(&all, "GOMAXPROCS"), kept("1"));
}

#[test]
fn a_users_openmp_count_reaches_the_libraries_that_follow_it() {
    let all = of(&[("OMP_NUM_THREADS", "2")], Runtime::Libgomp);
    assert!(matches!(action(&all, "OPENBLAS_NUM_THREADS"), Action::Unset { .. }));
    assert_eq!(action(&all, "OMP_NUM_THREADS"), kept("2"));
    assert_eq!(action(&all, "OMP_PLACES"), set("{0},{1},{2},{3}"));
}

#[test]
fn places_come_without_counts() {
    assert_eq!(changed(&of(&[], Runtime::Libgomp)), ["OMP_PLACES={0},{1},{2},{3}", "OMP_PROC_BIND=close"]);
    assert_eq!(changed(&of(&[("OMP_PROC_BIND", "false")], Runtime::Libgomp)), [""; 0]);
}

#[test]
fn counts_that_exceed_the_cpus_are_fitted_unless_they_are_to_be_kept() {
    let user = [("OMP_NUM_THREADS", "4,2"), ("OPENBLAS_NUM_THREADS", "8"), ("GOMAXPROCS", "8")];
    let two = four(2, None);
    let all = with(&two, &user, Binder::Unknown, &CountRequest::default());
    let fitted = |value: &str, from: &str| Action::Fitted { value: value.to_owned(), from: from.to_owned() };
    assert_eq!(action(&all, "OMP_NUM_THREADS"), fitted("2,1", "4,2"));
    assert_eq!(action(&all, "OPENBLAS_NUM_THREADS"), fitted("2", "8"));
    assert_eq!(action(&all, "GOMAXPROCS"), kept("8"));
    let keep = CountRequest { fit: Fit::Keep, ..CountRequest::default() };
    assert_eq!(action(&with(&two, &user, Binder::Unknown, &keep), "OMP_NUM_THREADS"), kept("4,2"));
    let of_user =
        |name: &str| user.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    let variables = environment(&two, &of_user, Binder::Unknown, &CountRequest::default());
    assert_eq!(
        fitted_lines(&variables, &two)[0],
        "OMP_NUM_THREADS=4,2 is fitted to 2,1: the run has 2 CPUs (--fit keep leaves it)"
    );
}

#[test]
fn the_command_line_of_a_known_program_wins() {
    let words = ["gmx", "mdrun", "-ntmpi", "2", "-ntomp", "1"];
    let said = stated(&words, false).unwrap();
    let asked = CountRequest { stated: Some(&said), ..CountRequest::default() };
    for quota in [None, Some(1_000)] {
        let all = with(
            &four(2, quota),
            &[("OMP_NUM_THREADS", "4")],
            Binder::Program("the program binds its own threads"),
            &asked,
        );
        assert_eq!(changed(&all), [""; 0]);
        let all = with(&four(2, quota), &[], Binder::Program("the program binds its own threads"), &asked);
        assert_eq!(changed(&all), [""; 0]);
        let why = Action::Unset { why: "the command line of GROMACS says -ntmpi 2 -ntomp 1".to_owned() };
        assert_eq!(action(&all, "OMP_NUM_THREADS"), why);
    }
}

/// Returns nested teams on eight cores.
fn teams(text: &str) -> (Plan, Resolved) {
    let machine = parse_synthetic("core:8").unwrap();
    let plan = plan(&machine, &Request::default(), &Taken::nothing(machine.cpus())).unwrap();
    let tree = Tree::new(&machine, &plan.mask).unwrap();
    let resolved = text.parse::<Nest>().unwrap().resolve(&tree);
    (plan, resolved)
}

#[test]
fn nested_teams_replace_the_runtimes_own_places() {
    let (plan, nest) = teams("4,scatter,2");
    let user = [("OMP_PLACES", "cores"), ("OMP_MAX_ACTIVE_LEVELS", "5")];
    let all = with(&plan, &user, Binder::Teams(&nest), &CountRequest::default());
    assert_eq!(action(&all, "OMP_NUM_THREADS"), set("4,2"));
    assert_eq!(action(&all, "OMP_PROC_BIND"), set("false"));
    assert_eq!(action(&all, "KMP_HOT_TEAMS_MAX_LEVEL"), set("2"));
    assert_eq!(action(&all, "OMP_MAX_ACTIVE_LEVELS"), kept("5"));
    assert!(matches!(action(&all, "OMP_PLACES"), Action::Removed { .. }));
}

#[test]
fn a_shape_of_the_users_changes_no_variable() {
    let (plan, nest) = teams("4,scatter,2");
    let all = with(&plan, &[("OMP_NUM_THREADS", "4,2")], Binder::Shape(&nest), &CountRequest::default());
    assert_eq!(changed(&all), [""; 0]);
}

#[test]
fn llvms_runtime_gets_the_same_places_in_its_own_form() {
    let all = of(&[], Runtime::Libomp);
    assert_eq!(action(&all, "KMP_AFFINITY"), set("granularity=fine,explicit,proclist=[0,1,2,3]"));
    assert!(!all.iter().any(|(name, _)| name == "OMP_PLACES"));
}

#[test]
fn places_keep_away_from_other_bindings_nesting_and_oversubscription() {
    for (name, value) in [("GOMP_CPU_AFFINITY", "0"), ("KMP_AFFINITY", "compact"), ("OMP_PROC_BIND", "false")]
    {
        let all = of(&[(name, value)], Runtime::Libgomp);
        assert_eq!(action(&all, name), kept(value));
        assert!(!all.iter().any(|(_, action)| *action == set("close")));
    }
    for count in ["2,2", "many"] {
        assert!(matches!(
            action(&of(&[("OMP_NUM_THREADS", count)], Runtime::Libgomp), "OMP_PLACES"),
            Action::Unset { .. }
        ));
    }
    let keep = CountRequest { fit: Fit::Keep, ..CountRequest::default() };
    let crowd = with(&four(4, None), &[("OMP_NUM_THREADS", "9")], Binder::Runtime(Runtime::Libgomp), &keep);
    assert!(matches!(action(&crowd, "OMP_PLACES"), Action::Unset { .. }));
    let own = with(
        &four(4, None),
        &[],
        Binder::Program("the program binds its own threads"),
        &CountRequest::default(),
    );
    assert!(matches!(action(&own, "OMP_PLACES"), Action::Unset { .. }));
}

#[test]
fn a_list_whose_inner_teams_have_one_thread_is_a_single_count() {
    let all = of(&[("OMP_NUM_THREADS", "4,1")], Runtime::Libgomp);
    assert_eq!(action(&all, "OMP_PLACES"), set("{0},{1},{2},{3}"));
}

proptest! {
    /// The only change of a user's value is to a count above the CPUs of the run.
    #[test]
    fn counts_that_fit_are_never_touched(at in 0..THREAD_COUNTS.len(), first in 1u32..6, inner in 1u32..4) {
        let value = format!("{first},{inner}");
        let all = of(&[(THREAD_COUNTS[at].name, &value)], Runtime::Libgomp);
        let fits = first * inner <= 4 || !THREAD_COUNTS[at].fits;
        prop_assert_eq!(action(&all, THREAD_COUNTS[at].name) == kept(&value), fits);
    }
}
