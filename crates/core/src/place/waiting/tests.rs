//! Tests of the wait settings.

use super::super::{Action, CpuState, Request, Taken, plan};
use super::*;
use crate::topology::parse_synthetic;
use proptest::prelude::*;

fn own(threads: u64, cpus: u64) -> Occupancy {
    Occupancy { threads, cpus, ..Occupancy::default() }
}

/// Returns the variables that are set, as text.
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
fn auto_lets_threads_sleep_where_the_programs_own_threads_exceed_its_cpus() {
    for (occupancy, why) in [
        (own(3, 2), "3 threads on 2 CPUs"),
        (Occupancy { quota: Some(1_000), ..own(2, 2) }, "2 threads on a quota of 1.00 CPUs"),
    ] {
        assert_eq!(set(WaitPolicy::Auto, &occupancy, Yield::Unknown, &[]), BRIEF, "{why}");
        let waiting = decide(WaitPolicy::Auto, &occupancy);
        assert_eq!(waiting.to_string(), format!("waiting threads spin for a moment and then sleep: {why}"));
        assert!(waiting.asks_for_yield(true) && !waiting.asks_for_yield(false));
    }
}

#[test]
fn ranks_yield_under_a_budget_and_teams_are_left_alone() {
    let budget = Occupancy { budget: true, ..own(2, 2) };
    assert_eq!(set(WaitPolicy::Auto, &budget, Yield::Posix, &[]), BRIEF[3..]);
    let waiting = decide(WaitPolicy::Auto, &budget);
    assert!(waiting.asks_for_yield(true) && !waiting.asks_for_yield(false));
    assert_eq!(
        waiting.to_string(),
        "waiting ranks of MPI yield, since the run's processes share its CPUs by a budget"
    );
    // Where the program's own threads exceed its CPUs, all sleep; another policy is the user's.
    assert_eq!(set(WaitPolicy::Auto, &Occupancy { budget: true, ..own(3, 2) }, Yield::Posix, &[]), BRIEF);
    assert_eq!(set(WaitPolicy::Keep, &budget, Yield::Posix, &[]), [""; 0]);
    let user = |name: &str| (name == "OMPI_MCA_mpi_yield_when_idle").then(|| "0".to_owned());
    assert_eq!(waiting.left_to_user(&user).len(), 1);
    let user = |name: &str| (name == "KMP_BLOCKTIME").then(|| "5".to_owned());
    assert_eq!(waiting.left_to_user(&user), [""; 0]);
}

#[test]
fn other_programs_on_the_same_cpus_change_nothing() {
    let shared = Occupancy { shared: "1".parse().unwrap(), ..own(2, 2) };
    assert_eq!(set(WaitPolicy::Auto, &shared, Yield::Posix, &[]), [""; 0]);
    assert_eq!(
        decide(WaitPolicy::Auto, &shared).to_string(),
        "threads wait as their runtimes do: every thread has a CPU, though other programs use CPUs 1 too"
    );
    let spin = decide(WaitPolicy::Spin, &shared).to_string();
    assert!(spin.ends_with(", beside other programs on CPUs 1"), "{spin}");
}

#[test]
fn llvms_threads_are_not_put_to_sleep_where_regions_may_be_cancelled() {
    for said in ["true", "TRUE", " 1 "] {
        let all = set(WaitPolicy::Auto, &own(3, 2), Yield::Posix, &[("OMP_CANCELLATION", said)]);
        assert_eq!(all[..2], ["GOMP_SPINCOUNT=100", "KMP_USE_YIELD=1"], "{said}");
        let all = set(WaitPolicy::Sleep, &own(3, 2), Yield::Posix, &[("OMP_CANCELLATION", said)]);
        assert_eq!(all[..2], ["GOMP_SPINCOUNT=0", "KMP_USE_YIELD=1"], "{said}");
    }
    let all = set(WaitPolicy::Auto, &own(3, 2), Yield::Posix, &[("OMP_CANCELLATION", "false")]);
    assert_eq!(all, BRIEF);
}

#[test]
fn a_requested_policy_is_set_at_any_load() {
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
        for name in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_USE_YIELD", "KMP_LIBRARY"] {
            let all = set(policy, &own(3, 2), Yield::Posix, &[(name, "7")]);
            assert!(all.iter().all(|set| !set.contains("OMP_W") && !set.contains("MP_SPIN")), "{all:?}");
            assert!(all.iter().all(|set| !set.starts_with("KMP")), "{name}: {all:?}");
            let of_user = |asked: &str| (asked == name).then(|| "7".to_owned());
            let variables = decide(policy, &own(3, 2)).variables(Yield::Posix, &of_user);
            let kept: Vec<_> =
                variables.iter().filter(|one| one.action == Action::Kept { value: "7".to_owned() }).collect();
            assert_eq!(kept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [name]);
        }
    }
    let of_user = |name: &str| (name == "KMP_LIBRARY").then(|| "serial".to_owned());
    let said = |occupancy| decide(WaitPolicy::Auto, &occupancy).left_to_user(&of_user);
    assert_eq!(said(own(3, 2)), ["you set KMP_LIBRARY=serial: how OpenMP threads wait is left to you"]);
    assert_eq!(said(own(2, 2)), [""; 0], "nothing would have been set");
    // A variable that mpirun sets for Open MPI does not leave OpenMP to the user.
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
    assert!(caution.contains("gets 50 % of it") && caution.ends_with("--wait-policy sleep gives it away"));
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
    // A text that is not a count is ignored, as the runtime will report.
    for bad in ["", "0", "many", "4,,2", "4,0", "-3"] {
        assert_eq!(of(Some(bad), None, None), (2, 2, None), "{bad:?}");
    }
    assert_eq!(of(Some("4294967295,9"), None, None).0, 9 * 4_294_967_295);
    plan.reasons.push(Reason::Rank { rank: 0, of: 3, allotment: "0-3".parse().unwrap() });
    plan.reasons.push(Reason::UsedAnyway { state: CpuState::Busy, cpus: "1".parse().unwrap(), load: 900 });
    let Occupancy { threads, cpus, shared, .. } = Occupancy::of(&plan, None, None, None);
    assert_eq!((threads, cpus, shared), (6, 4, "1".parse().unwrap()));
}

proptest! {
    #[test]
    fn auto_acts_just_where_cpus_are_short(threads in 0u64..9, cpus in 1u64..9, quota in proptest::option::of(1u32..9_000), shared: bool, budget: bool) {
        let shared: CpuSet = if shared { "0".parse().unwrap() } else { CpuSet::new() };
        let occupancy = Occupancy { threads, cpus, quota, shared: shared.clone(), budget };
        // Equivalent condition: fewer threads can compute at the same time than there are. A part
        // of a CPU counts as one.
        let granted = quota.map_or(f64::INFINITY, |quota| (f64::from(quota) / 1000.0).ceil());
        let short = threads as f64 > granted.min(cpus as f64);
        let waiting = decide(WaitPolicy::Auto, &occupancy);
        prop_assert_eq!(waiting.how == How::Brief, short);
        prop_assert_eq!(waiting.how == How::RanksYield, budget && !short);
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
