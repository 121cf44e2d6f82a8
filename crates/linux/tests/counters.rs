//! Ladder of counters on this machine, as it is and behind system-call filters as in containers.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::path::Path;
use trimtab_core::counter_budget::CounterThrottle;
use trimtab_core::counts::Rung;
use trimtab_linux::perf::{Choice, Group, Recipe, Role, Spec, Standing, Why, look};

fn here(choice: &str) -> Standing {
    look(Path::new("/proc"), Path::new("/sys"), &choice.parse().unwrap(), None)
}

/// Returns the result of the ladder in a thread where some calls are answered with an error.
fn under(refused: &[(i64, Errno)], choice: &'static str) -> Standing {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = |(call, errno): &(i64, Errno)| -> BpfProgram {
        let answer = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
        SeccompFilter::new([(*call, vec![])].into(), SeccompAction::Allow, answer, arch)
            .unwrap()
            .try_into()
            .unwrap()
    };
    let programs: Vec<BpfProgram> = refused.iter().map(filter).collect();
    let run = move || {
        for program in &programs {
            seccompiler::apply_filter(program).unwrap();
        }
        here(choice)
    };
    std::thread::spawn(run).join().unwrap()
}

#[test]
fn this_machine_stands_on_some_rung_and_says_why_not_higher() {
    let standing = here("auto");
    let better: Vec<Rung> = Rung::ALL.into_iter().filter(|rung| *rung < standing.rung).collect();
    assert_eq!(standing.missing.iter().map(|missing| missing.rung).collect::<Vec<_>>(), better);
    assert_eq!(standing.recipe.is_some(), standing.rung.counts());
    assert_eq!(standing.price.is_some(), standing.rung.counts());
    match &standing.recipe {
        Some(recipe) => assert!(recipe.events.len() >= 2),
        None => eprintln!("SKIPPED: no hardware counters here: {}", standing.missing[0].why),
    }
}

#[test]
fn a_filter_that_forbids_counting_is_distinguished_from_a_machine_without_counters() {
    let call = libc::SYS_perf_event_open;
    for (errno, word) in [
        (Errno::PERM, "not-permitted"),
        (Errno::ACCESS, "not-permitted"),
        (Errno::NOSYS, "filtered"),
        (Errno::NOENT, "no-hardware"),
        (Errno::BUSY, "taken"),
        (Errno::MFILE, "no-descriptors"),
        (Errno::OPNOTSUPP, "no-such-events"),
        (Errno::NOMEM, "kernel"),
    ] {
        let standing = under(&[(call, errno)], "busy=task-clock,requests=page-faults");
        assert!(
            !standing.rung.counts() && standing.missing[0].why.word() == word,
            "{errno}: {:?}",
            standing.missing
        );
        let said = standing.missing[0].why.to_string();
        assert!(!said.contains('\n') && said.len() > 20, "{said}");
    }
    // The remedy fits the level.
    let standing = under(&[(call, Errno::PERM)], "busy=task-clock");
    assert!(standing.missing[0].why.to_string().contains("perf_event_paranoid"));
}

#[test]
fn where_pages_may_not_be_asked_for_either_nothing_is_left() {
    let calls = [(libc::SYS_perf_event_open, Errno::PERM), (libc::SYS_move_pages, Errno::PERM)];
    let standing = under(&calls, "residency");
    assert_eq!(standing.rung, Rung::Nothing);
    assert!(
        matches!(standing.missing.last().unwrap().why, Why::NoResidency(Errno::PERM)),
        "{:?}",
        standing.missing
    );
}

#[test]
fn the_kernels_own_events_go_the_same_way_as_hardware() {
    let standing = here("busy=task-clock,requests=page-faults,cycles=software/config=1/");
    if !standing.rung.counts() {
        return eprintln!("SKIPPED: nothing may be counted here: {}", standing.missing[0].why);
    }
    let recipe = standing.recipe.unwrap();
    assert_eq!(standing.rung, Rung::Exact, "whoever names events is believed");
    assert_eq!(
        recipe.events.iter().map(|(role, _)| *role).collect::<Vec<_>>(),
        [Role::Busy, Role::Requests, Role::Cycles]
    );
    assert!(
        standing.price.is_some()
            && (standing.thrift == CounterThrottle::FREE || standing.thrift == CounterThrottle::TRAPPED)
    );
    assert!(Group::open(&recipe, None).is_ok());
}

#[test]
fn the_events_read_from_sysfs_are_those_counted() {
    let sys = Path::new("/sys");
    let spec: Spec = "software/config=2/".parse().unwrap();
    match spec.resolve(sys) {
        Ok(event) => assert_eq!((event.kind, event.config), (1, [2, 0, 0])),
        Err(error) => eprintln!("SKIPPED: {error}"),
    }
    let missing = "no-such-source/x/".parse::<Spec>().unwrap().resolve(sys).unwrap_err();
    assert!(missing.to_string().contains("no-such-source"));
    assert_eq!("off".parse(), Ok(Choice::Off));
    assert!(Recipe::of(Vec::new()).events.is_empty());
}
