use super::*;
use crate::checkers::{Invariant, check};
use crate::program::Body;
use crate::scenario::Happening;
use std::cell::Cell;
use trimtab_core::time::Moment;

/// Seed of the drafts that every test run checks.
const SWARM_SEED: u64 = 1;

/// Checks that a quarter of the drafts break no invariant; quarters are checked in parallel.
fn quarter(first: u64) {
    for number in (first..200).step_by(4) {
        let run = run(&draw(SWARM_SEED, number, Size::Small));
        assert_eq!(run.violations, [], "draft {number} of seed {SWARM_SEED}");
    }
}

#[test]
fn two_hundred_drafts_break_no_law_first_quarter() {
    quarter(0);
}

#[test]
fn two_hundred_drafts_break_no_law_second_quarter() {
    quarter(1);
}

#[test]
fn two_hundred_drafts_break_no_law_third_quarter() {
    quarter(2);
}

#[test]
fn two_hundred_drafts_break_no_law_last_quarter() {
    quarter(3);
}

#[test]
fn a_draft_depends_on_its_seed_and_number_alone() {
    for number in [0, 7, 1_000_000] {
        let one = draw(9, number, Size::Any);
        assert_eq!(draw(9, number, Size::Any), one);
        assert_eq!(run(&one), run(&one.clone()), "{number}");
        assert_ne!(draw(8, number, Size::Any), one);
    }
}

#[test]
fn drafts_are_of_every_kind() {
    let drafts: Vec<Draft> = (0..300).map(|number| draw(2, number, Size::Any)).collect();
    let some = |what: &dyn Fn(&Draft) -> bool| drafts.iter().filter(|draft| what(draft)).count() > 3;
    for kernel in crate::kernel::Kernel::PRESETS {
        assert!(some(&|draft| draft.kernel == kernel), "{kernel}");
    }
    for kind in trimtab_core::balance::Kind::ALL {
        assert!(some(&|draft| draft.policy.as_ref().is_some_and(|(of, _)| *of == kind)), "{kind}");
    }
    assert!(some(&|draft| draft.policy.is_none()));
    assert!(some(&|draft| draft.memory) && some(&|draft| !draft.arrivals.is_empty()));
    assert!(some(&|draft| matches!(draft.ground, DraftMachine::Shipped(_))));
    let happens =
        |draft: &Draft, what: fn(&Happening) -> bool| draft.events.iter().any(|event| what(&event.what));
    assert!(some(&|draft| happens(draft, |what| matches!(what, Happening::Usable(_)))));
    assert!(some(&|draft| happens(draft, |what| matches!(what, Happening::Start(_)))));
    assert!(some(&|draft| happens(draft, |what| matches!(what, Happening::Stop(_)))));
    assert!(some(&|draft| draft.faults.stale > 0.0 && draft.faults.delayed > 0.0));
    let is_of_hold = |body: &Body| matches!(body, Body::Teams { hold: Some(_), .. });
    assert!(some(&|draft| draft.programs.iter().filter(|program| is_of_hold(&program.body)).count() > 1));
    // Every draft ends, and names only things that exist.
    for draft in &drafts {
        let scenario = draft.scenario();
        assert!(scenario.end > Moment(0) && scenario.events.is_sorted_by_key(|event| event.at));
        let cpus = scenario.model.machine.cpus();
        let inside = scenario.programs.iter().filter_map(|program| program.mask.as_ref());
        assert!(inside.into_iter().all(|mask| mask.is_subset(&cpus) && !mask.is_empty()));
    }
}

/// Pretends that a draft breaks an invariant whenever it has two programs and CPU 1 is usable.
fn contrived(draft: &Draft) -> DraftRun {
    let scenario = draft.scenario();
    let wrong = scenario.programs.len() > 1 && scenario.model.machine.pu_count() > 1;
    let at = Moment(5);
    let violation = Violation { invariant: Invariant::Idle, at, thread: None, text: String::new() };
    DraftRun { events: 0, violations: if wrong { vec![violation] } else { Vec::new() } }
}

#[test]
fn parts_that_do_not_matter_are_left_out() {
    let wrong = |number: &u64| !contrived(&draw(3, *number, Size::Any)).violations.is_empty();
    for number in (0..).filter(wrong).take(20) {
        let draft = draw(3, number, Size::Any);
        let broken = contrived(&draft).violations;
        let small = shrink::shrink_by(&draft, &broken, &contrived, &|| true);
        let left = &small.draft;
        assert!(!small.violations.is_empty());
        assert_eq!((left.programs.len(), left.events.len(), left.arrivals.len()), (2, 0, 0), "{number}");
        assert_eq!(left.ground.model().machine.pu_count(), 2, "{number}");
        assert!(left.policy.is_none() && !left.memory, "{number}");
        assert!(left.programs.iter().all(|program| program.threads == 1 && program.mask.is_none()));
        let again = shrink::shrink_by(&draft, &broken, &contrived, &|| true);
        assert_eq!(again, small, "equal drafts shrink alike");
        // A search that is ended early has the result reached until then.
        for most in [0, 1, small.tried / 2] {
            let asked = Cell::new(0);
            let go = || asked.replace(asked.get() + 1) < most;
            let ended = shrink::shrink_by(&draft, &broken, &contrived, &go);
            assert_eq!((ended.tried, ended.whole, asked.get()), (most, false, most + 1));
            assert!(!contrived(&ended.draft).violations.is_empty());
        }
        assert!(small.whole);
    }
}

#[test]
fn a_law_that_is_not_broken_leaves_the_draft_as_it_is() {
    let draft = draw(SWARM_SEED, 0, Size::Small);
    assert_eq!(check(&draft.scenario()).1, []);
    let broken = [Violation { invariant: Invariant::Time, at: Moment(5), thread: None, text: String::new() }];
    let none = |_: &Draft| DraftRun { events: 0, violations: Vec::new() };
    let kept = shrink::shrink_by(&draft, &broken, &none, &|| true);
    assert_eq!((&kept.draft, &kept.violations[..], kept.whole), (&draft, &broken[..], true));
    let kept = shrink::shrink_by(&draft, &[], &none, &|| true);
    assert_eq!((kept.draft, kept.tried), (draft, 0));
}

#[test]
fn a_reduced_scenario_can_be_written() {
    // Ends, programs and events are cut to those before the violation.
    let late = |draft: &Draft| DraftRun {
        violations: draft
            .programs
            .first()
            .map(|_| Violation {
                invariant: Invariant::Idle,
                at: Moment(1),
                thread: None,
                text: String::new(),
            })
            .into_iter()
            .collect(),
        events: 0,
    };
    for number in 0..40 {
        let draft = draw(4, number, Size::Small);
        let small = shrink::shrink_by(&draft, &late(&draft).violations, &late, &|| true).draft;
        assert_eq!(small.end, Moment(100_000_000));
        crate::scenario::file::write(&small.scenario()).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}
