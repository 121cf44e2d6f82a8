//! Every rung and every refusal, on machines made up for the tests.

use super::super::testing::{EventBehaviour, Scripted};
use super::*;
use proptest::prelude::*;
use trimtab_core::time::Span;

fn stand(mut ground: Scripted) -> Standing {
    climb(&mut ground, &Table::built_in().unwrap(), &Choice::Auto, None)
}

fn chosen(mut ground: Scripted, choice: &str) -> Standing {
    climb(&mut ground, &Table::built_in().unwrap(), &choice.parse().unwrap(), None)
}

fn why(standing: &Standing, rung: Rung) -> String {
    standing.missing.iter().find(|missing| missing.rung == rung).unwrap().why.to_string()
}

fn intel(model: u32) -> Option<Cpu> {
    Some(Cpu::X86 { vendor: "GenuineIntel".into(), family: 6, model })
}

fn roles(standing: &Standing) -> Vec<Role> {
    standing.recipe.iter().flat_map(|recipe| &recipe.events).map(|(role, _)| *role).collect()
}

#[test]
fn the_best_rung_counts_all_there_is_room_for() {
    let standing = stand(Scripted::default());
    assert_eq!((standing.rung, standing.missing.len()), (Rung::Exact, 0));
    assert_eq!(standing.processor.as_deref(), Some("AMD Zen 3"));
    assert_eq!(roles(&standing), Role::ALL);
    assert_eq!(standing.thrift, CounterThrottle::FREE);
    // Six counters, four, two; also if too many are accepted and then never run.
    for quietly in [false, true] {
        for (counters, many) in [(7, 6), (6, 6), (5, 4), (4, 4), (3, 3), (2, 2)] {
            let standing = stand(Scripted { counters, quietly, ..Scripted::default() });
            assert_eq!((standing.rung, roles(&standing).len()), (Rung::Exact, many), "{counters}");
            assert_eq!(roles(&standing)[..2], [Role::Busy, Role::Requests]);
        }
    }
}

#[test]
fn events_with_a_wrong_meaning_are_not_used() {
    let zen4 = || Some(Cpu::X86 { vendor: "AuthenticAMD".into(), family: 0x19, model: 0x11 });
    let standing = stand(Scripted {
        cpu: zen4(),
        events: vec![("0x6d", EventBehaviour::Silent)],
        ..Scripted::default()
    });
    assert_eq!(standing.rung, Rung::Proxy);
    assert!(why(&standing, Rung::Exact).starts_with("busy does not count here"));
    let standing =
        stand(Scripted { cpu: zen4(), events: vec![("0x6d", EventBehaviour::Noisy)], ..Scripted::default() });
    assert!(
        standing.rung == Rung::Proxy
            && why(&standing, Rung::Exact).contains("counts also where nothing waits")
    );
    // On Zen 3 there is no proxy.
    let standing = stand(Scripted { events: vec![("0x64", EventBehaviour::Silent)], ..Scripted::default() });
    assert_eq!(
        (standing.rung, roles(&standing)),
        (Rung::Generic, vec![Role::Requests, Role::Cycles, Role::Instructions])
    );
    assert!(why(&standing, Rung::Exact).starts_with("requests does not count"));
    assert!(why(&standing, Rung::Proxy).contains("does not count these events"));
    // The second pair of events works although the first does not.
    let standing = stand(Scripted {
        cpu: intel(0x55),
        events: vec![("event=0x60,umask=0x07", EventBehaviour::Silent)],
        ..Scripted::default()
    });
    assert_eq!(standing.rung, Rung::Exact);
    assert!(standing.recipe.unwrap().events[0].1.name.contains("event=0x60,umask=0x01"));
    // Cycles that do not change are refused too.
    let still = vec![("0x", EventBehaviour::Silent), ("cycles", EventBehaviour::Silent)];
    let standing = stand(Scripted { events: still, ..Scripted::default() });
    assert_eq!(standing.rung, Rung::HintFaults);
    assert!(why(&standing, Rung::Generic).starts_with("cycles does not count"));
}

#[test]
fn an_unknown_processor_uses_the_kernels_events() {
    let standing =
        stand(Scripted { cpu: Some(Cpu::Arm { implementer: 0x61, part: 0x22 }), ..Scripted::default() });
    assert_eq!((standing.rung, roles(&standing)), (Rung::Generic, vec![Role::Cycles, Role::Instructions]));
    assert!(why(&standing, Rung::Exact).contains("no events are known for implementer 0x61 part 0x22"));
    let standing = stand(Scripted { cpu: None, ..Scripted::default() });
    assert!(why(&standing, Rung::Exact).contains("does not say which processor"));
    let standing = stand(Scripted { cpu: intel(0x0f), ..Scripted::default() });
    assert_eq!(roles(&standing), [Role::Cycles, Role::Instructions, Role::LlcMisses, Role::LlcLookups]);
}

#[test]
fn each_refusal_names_its_remedy_and_leads_to_residency() {
    let refused =
        |refusal, paranoid| stand(Scripted { refusal: Some(refusal), paranoid, ..Scripted::default() });
    for (errno, paranoid, says) in [
        (Errno::NOENT, Some(2), "shows no hardware counters; in a virtual machine"),
        (Errno::ACCESS, Some(4), "perf_event_paranoid is 4, so only CAP_PERFMON"),
        (Errno::ACCESS, Some(3), "sudo sysctl kernel.perf_event_paranoid=2"),
        (Errno::PERM, Some(1), "although kernel.perf_event_paranoid is 1: a container"),
        (Errno::PERM, Some(-1), "although kernel.perf_event_paranoid is -1"),
        (Errno::ACCESS, None, "it needs CAP_PERFMON"),
        (Errno::NOSYS, Some(2), "hides perf_event_open"),
        (Errno::BUSY, Some(2), "others hold them"),
        (Errno::MFILE, Some(2), "raise the soft limit"),
        (Errno::OPNOTSUPP, Some(2), "does not count these events"),
        (Errno::INVAL, Some(2), "does not count these events"),
        (Errno::NOMEM, Some(2), "the kernel refuses"),
    ] {
        let standing = refused(errno, paranoid);
        assert_eq!(standing.rung, Rung::HintFaults, "{errno}");
        assert!(why(&standing, Rung::Exact).contains(says), "{errno}: {}", why(&standing, Rung::Exact));
        assert!(why(&standing, Rung::Generic).contains(says), "{errno}: {}", why(&standing, Rung::Generic));
        assert_eq!((standing.recipe, standing.price), (None, None));
    }
    let standing = stand(Scripted { taken: true, ..Scripted::default() });
    assert_eq!(standing.rung, Rung::HintFaults);
    assert!(
        why(&standing, Rung::Generic).contains("others hold them"),
        "what is last tried has its own reason"
    );
    assert!(why(&standing, Rung::Exact).contains("others hold them"));
    // One twentieth of the time is too little to judge by, half of it is enough.
    assert_eq!(stand(Scripted { share: 0.05, ..Scripted::default() }).rung, Rung::HintFaults);
    assert_eq!(stand(Scripted { share: 0.5, ..Scripted::default() }).rung, Rung::Exact);
}

#[test]
fn events_allowed_only_outside_the_kernel_or_without_guests_are_counted_so() {
    let standing = stand(Scripted { kernel: Some(Errno::ACCESS), ..Scripted::default() });
    let recipe = standing.recipe.unwrap();
    assert!(standing.rung == Rung::Exact && recipe.user_only && !recipe.no_guests);
    let standing = stand(Scripted { guests: Some(Errno::OPNOTSUPP), ..Scripted::default() });
    let recipe = standing.recipe.unwrap();
    assert!(standing.rung == Rung::Exact && recipe.no_guests && !recipe.user_only);
    let both = Scripted { kernel: Some(Errno::PERM), guests: Some(Errno::OPNOTSUPP), ..Scripted::default() };
    let recipe = stand(both).recipe.unwrap();
    assert!(recipe.no_guests && recipe.user_only);
    // If machines may be lent the counters, ours must not keep one from starting, whichever event
    // it is.
    let standing = stand(Scripted { lends: true, ..Scripted::default() });
    let recipe = standing.recipe.unwrap();
    assert!(standing.rung == Rung::Exact && recipe.no_guests && !recipe.user_only);
    let mut ground = Scripted { lends: true, refusal: Some(Errno::OPNOTSUPP), ..Scripted::default() };
    climb(&mut ground, &Table::built_in().unwrap(), &Choice::Auto, None);
    assert!(ground.asked.iter().all(|recipe| recipe.no_guests) && !ground.asked.is_empty());
}

#[test]
fn without_counters_the_kernels_facts_about_memory_are_used() {
    let none = || Scripted { refusal: Some(Errno::NOENT), ..Scripted::default() };
    assert_eq!(stand(none()).rung, Rung::HintFaults);
    let standing = stand(Scripted { balancing: Some(false), ..none() });
    assert_eq!(standing.rung, Rung::Residency);
    assert!(why(&standing, Rung::HintFaults).contains("sudo sysctl kernel.numa_balancing=1"));
    let standing = stand(Scripted { balancing: None, residency: Err(Errno::NOSYS), ..none() });
    assert_eq!((standing.rung, standing.missing.len()), (Rung::Nothing, 5));
    assert!(why(&standing, Rung::HintFaults).contains("built without NUMA balancing"));
    assert!(why(&standing, Rung::Residency).contains("cannot be queried"));
    let standing = stand(Scripted { nodes: 1, ..none() });
    assert_eq!(standing.rung, Rung::Nothing);
    assert!(why(&standing, Rung::Residency).contains("one memory node"));
}

#[test]
fn a_choice_is_followed_and_other_rungs_are_not_tried() {
    let standing = chosen(Scripted::default(), "generic");
    assert_eq!((standing.rung, standing.missing[0].why.clone()), (Rung::Generic, Why::NotAsked));
    // Tried when chosen by name, even if its counts mean nothing.
    assert_eq!(chosen(Scripted { nodes: 1, ..Scripted::default() }, "residency").rung, Rung::Residency);
    assert_eq!(chosen(Scripted { nodes: 1, ..Scripted::default() }, "hint-faults").rung, Rung::HintFaults);
    for off in ["off", "nothing"] {
        let mut ground = Scripted::default();
        let standing = climb(&mut ground, &Table::default(), &off.parse().unwrap(), None);
        assert_eq!((standing.rung, ground.tries), (Rung::Nothing, 0));
    }
    let standing = chosen(Scripted::default(), "busy=r016d,requests=r0964,cycles=cycles");
    assert_eq!((standing.rung, roles(&standing).len()), (Rung::Exact, 3));
    // Events that a user names are accepted unchecked, all of them or none.
    let noisy = Scripted { events: vec![("r016d", EventBehaviour::Noisy)], ..Scripted::default() };
    assert_eq!(chosen(noisy, "busy=r016d,requests=r0964").rung, Rung::Exact);
    assert_eq!(chosen(Scripted::default(), "cycles=cycles").rung, Rung::Generic);
    let standing =
        chosen(Scripted { counters: 2, ..Scripted::default() }, "busy=r1,requests=r2,cycles=cycles");
    assert_eq!(standing.rung, Rung::HintFaults);
    let standing = chosen(Scripted::default(), "busy=gpu/x/");
    assert!(why(&standing, Rung::Exact).contains("no 'gpu' among"));
}

#[test]
fn for_a_measurement_all_is_counted_in_groups_that_fit() {
    let dear = Price { read: Span::from_us(20), one: Span::from_us(26), two: Span::from_us(92) };
    let groups = |counters| {
        let standing = stand(Scripted { counters, price: Some(dear), ..Scripted::default() });
        assert_eq!(roles(&standing), [Role::Busy, Role::Requests], "it is thrifty all the same");
        let of = |recipe: &Recipe| recipe.events.iter().map(|(role, _)| *role).collect::<Vec<_>>();
        standing.groups.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(groups(8), [Role::ALL.to_vec()]);
    let cache = [Role::LlcMisses, Role::LlcLookups];
    for counters in [6, 4, 2] {
        let all = groups(counters);
        assert_eq!((all.len(), all[0].len(), &all[1][..]), (2, counters, &cache[..]), "{all:?}");
    }
    assert!(stand(Scripted { refusal: Some(Errno::NOENT), ..Scripted::default() }).groups.is_empty());
}

#[test]
fn trapped_counters_are_two_and_barred_ones_are_none() {
    let price = Price { read: Span(20_000), one: Span(26_000), two: Span(92_000) };
    let standing = stand(Scripted { price: Some(price), ..Scripted::default() });
    assert_eq!((standing.rung, standing.thrift), (Rung::Exact, CounterThrottle::TRAPPED));
    assert_eq!(roles(&standing), [Role::Busy, Role::Requests]);
    let mut ground = Scripted::default();
    let standing = climb(&mut ground, &Table::built_in().unwrap(), &Choice::Auto, Some(&Why::TooDear));
    assert_eq!((standing.rung, ground.tries), (Rung::HintFaults, 0));
    assert!(why(&standing, Rung::Generic).contains("cost more than allowed"));
}

#[test]
fn trying_ends() {
    let mut ground = Scripted { cpu: intel(0x8f), taken: true, ..Scripted::default() };
    climb(&mut ground, &Table::built_in().unwrap(), &Choice::Auto, None);
    assert!(ground.tries <= 7, "{}", ground.tries);
}

fn errno() -> impl Strategy<Value = Option<Errno>> {
    let some = [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::PERM,
        Errno::OPNOTSUPP,
        Errno::INVAL,
        Errno::BUSY,
        Errno::MFILE,
        Errno::NOSYS,
    ];
    prop_oneof![4 => Just(None), 1 => prop::sample::select(some.to_vec()).prop_map(Some)]
}

proptest! {
    #[test]
    fn every_machine_gets_one_rung_and_a_reason_against_each_better_one(
        (refusal, kernel, guests) in (errno(), errno(), errno()),
        (counters, quietly, taken, share) in (0usize..10, any::<bool>(), any::<bool>(), 0.0..1.0f64),
        does in prop::collection::vec(prop::sample::select(vec![("0x6", EventBehaviour::Silent), ("0x", EventBehaviour::Noisy), ("cycles", EventBehaviour::Silent)]), 0..2),
        (nodes, balancing) in (1usize..4, prop::option::of(any::<bool>())),
    ) {
        let mut ground = Scripted { refusal, kernel, guests, counters, quietly, taken, share, events: does, nodes, balancing, ..Scripted::default() };
        let standing = climb(&mut ground, &Table::built_in().unwrap(), &Choice::Auto, None);
        prop_assert_eq!(standing.rung.counts(), standing.recipe.is_some());
        let better: Vec<Rung> = Rung::ALL.into_iter().filter(|rung| *rung < standing.rung).collect();
        let missing: Vec<Rung> = standing.missing.iter().map(|missing| missing.rung).collect();
        prop_assert_eq!(missing, better);
        prop_assert!(ground.tries <= 7);
        prop_assert!(standing.missing.iter().all(|missing| !missing.why.to_string().contains('\n')));
    }
}
