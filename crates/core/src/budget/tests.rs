//! Laws of the division, and of the page's words.

use super::page::{self, BYTES, HEADER, Owner, SLOT, State, header, slot};
use super::share::{Inside, Observed, demand, grant, part_of_opener, share, threads_used};
use super::track::{Track, USE_NS_MIN};
use super::{Handoff, Rule, handoff};
use crate::ids::OsCpu;
use crate::set::CpuSet;
use proptest::prelude::*;

/// Returns the shares of all processes.
fn shares(cores: u32, demands: &[u32]) -> Vec<u32> {
    let one = |at: usize| {
        let (before, after) = (&demands[..at], &demands[at + 1..]);
        share(cores, before.iter().copied(), demands[at], after.iter().copied())
    };
    (0..demands.len()).map(one).collect()
}

/// Divides one core after another: each goes to a process with the fewest among those that want
/// more.
fn one_by_one(cores: u32, demands: &[u32]) -> Vec<u32> {
    let mut shares: Vec<u32> = demands.iter().map(|_| 0).collect();
    for _ in 0..cores {
        let open = (0..demands.len()).filter(|&at| shares[at] < demands[at]);
        let Some(next) = open.min_by_key(|&at| (shares[at], at)) else { break };
        shares[next] += 1;
    }
    shares.iter().zip(demands).map(|(&share, &demand)| share.max(demand.min(1))).collect()
}

#[test]
fn shares_of_known_cases() {
    for (cores, demands, expected) in [
        (4, &[4][..], &[4][..]),
        (4, &[4, 4], &[2, 2]),
        (4, &[4, 0], &[4, 0]),
        (4, &[4, 1], &[3, 1]),
        (3, &[3, 3], &[2, 1]),
        (2, &[2, 2, 2, 2], &[1, 1, 1, 1]),
        (8, &[1, 8, 2, 8], &[1, 3, 2, 2]),
        (1, &[7], &[1]),
    ] {
        assert_eq!(shares(cores, demands), expected, "{cores} cores, {demands:?}");
    }
}

#[test]
fn a_waiting_process_lends_all_its_threads_and_one_between_teams_all_but_those_in_use() {
    let process = Observed { computing: 0, wants: 8, used: Some(0), opened: false };
    assert_eq!(demand(&process, 8), 0);
    assert_eq!(demand(&Observed { used: Some(1), ..process }, 8), 1);
    assert_eq!(demand(&Observed { used: Some(3), ..process }, 8), 3, "a pool that nobody counts");
    assert_eq!(demand(&Observed { used: None, ..process }, 8), 1, "not known yet");
    assert_eq!(demand(&Observed { opened: true, ..process }, 8), 8);
    // Stopped within a team.
    assert_eq!(demand(&Observed { computing: 8, ..process }, 8), 0);
    assert_eq!(demand(&Observed { computing: 8, used: Some(2), ..process }, 4), 4);
}

#[test]
fn a_process_is_tracked_over_some_milliseconds() {
    let state = |computing, teams| State { computing, wants: 6, teams };
    let mut track = Track::new(3);
    let mut see = |computing, teams, cpu_ms: u64, at_ms: u64, ready: bool| {
        let observed =
            track.observe(state(computing, teams), cpu_ms * 1_000_000, at_ms * 1_000_000, || ready);
        (observed.used, observed.opened)
    };
    assert_eq!(see(0, 3, 50, 10, false), (None, false), "one reading says nothing");
    assert_eq!(see(0, 3, 66, 17, false), (None, false), "too short a time");
    assert_eq!(see(0, 3, 66, 18, false), (Some(2), false), "16 ms in 8");
    // A team counts as opened until the CPU time was read again.
    assert_eq!(see(4, 4, 70, 20, false), (Some(2), true));
    assert_eq!(see(0, 4, 70, 22, false), (Some(2), true));
    assert_eq!(see(0, 4, 70, 26, false), (Some(1), true), "the reading after which it does not");
    assert_eq!(see(0, 4, 70, 33, false), (Some(1), false));
    assert_eq!(see(0, 4, 70, 34, false), (Some(0), false), "it waits");
    assert_eq!(see(0, 4, 70, 42, true), (Some(1), false), "it gets no CPU");
    // One that did not count for a while is not new.
    assert!(track.observe(state(0, 4), 0, 50_000_000, || false).used == Some(0) && !track.is_new());
    let mut other = Track::NOTHING;
    other.pass(5);
    assert_eq!(other.observe(state(0, 0), 0, 5 + USE_NS_MIN, || false).used, Some(0));
}

#[test]
fn cpu_time_is_counted_in_threads_and_waking_up_is_none() {
    for (cpu, threads) in [(0, 0), (10, 0), (13, 1), (100, 1), (110, 1), (113, 2), (200, 2), (390, 4)] {
        assert_eq!(threads_used(cpu, 100), threads, "{cpu} %");
    }
    assert_eq!((threads_used(5, 0), threads_used(u64::MAX, 1)), (6, u32::MAX));
}

#[test]
fn inner_teams_get_the_part_of_the_thread_that_opens_them() {
    let inside = |size, index| Some(Inside::none().then(size, index));
    // Two outer threads on two cores: nothing is left for inner teams.
    assert_eq!(grant(2, 0, 2, None), 2);
    assert_eq!(grant(2, 2, 2, inside(2, 0)), 1);
    // Two on four: each has two.
    assert_eq!(grant(4, 2, 4, inside(2, 0)), 2);
    assert_eq!(grant(4, 3, 4, inside(2, 1)), 2);
    // Three on four: the first has two.
    assert_eq!([0, 1, 2].map(|index| grant(4, 3, 4, inside(3, index))), [2, 1, 1]);
    // Two levels outside: 2 x 2 on eight.
    let deep = Inside::none().then(2, 1).then(2, 0);
    assert_eq!((deep, grant(8, 4, 8, Some(deep))), (Inside { threads: 4, index: 2 }, 2));
    // A second team outside all teams gets the rest, or one thread.
    assert_eq!((grant(4, 3, 4, None), grant(4, 4, 4, None), grant(4, 9, 4, None)), (1, 1, 1));
}

#[test]
fn rules_say_which_teams_may_be_smaller() {
    let all = |rule: Rule| {
        [(false, false), (true, false), (false, true), (true, true)].map(|(a, b)| rule.bounds(a, b))
    };
    assert_eq!(all(Rule::Unnumbered), [true, false, true, true]);
    assert_eq!(all(Rule::All), [true; 4]);
}

#[test]
fn texts_that_are_no_handoff_are_refused() {
    let cpus: CpuSet = "0-3,8".parse().unwrap();
    let good = handoff(7, 600, 4, Rule::Unnumbered, &cpus);
    let read = Handoff::read(&good).unwrap();
    assert_eq!((read.pid, read.descriptor, read.cores, read.rule), (7, 600, 4, Rule::Unnumbered));
    assert_eq!(read.cpus().flat_map(|(first, last)| (first.0..=last.0).map(OsCpu)).collect::<CpuSet>(), cpus);
    for text in [
        "",
        "1",
        "2 7 600 4 all 0",
        "1 0 600 4 all 0",
        "1 7 2 4 all 0",
        "1 7 600 0 all 0",
        "1 7 600 4",
        "1 7 600 4 some 0",
        "1 7 600 4 all 0 x",
        "1 4294967295 600 4 all 0",
        "1 7 600 65536 all 0",
        "1 -7 600 4 all 0",
        "1  7 600 4 all 0",
        "1 7 600 4 all",
        "1 7 600 4 all ",
        "1 7 600 4 all 3-1",
        "1 7 600 4 all 0,",
        "1 7 600 4 all 99999",
    ] {
        assert_eq!(Handoff::read(text), None, "{text:?}");
    }
}

fn put(bytes: &mut [u8], word: usize, value: u64) {
    bytes[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
}

#[test]
fn a_page_has_the_computing_threads_and_sums_of_living_and_ended_processes() {
    let mut bytes = vec![0; BYTES];
    bytes[..HEADER * 8].copy_from_slice(&page::fresh(4));
    for (at, sum) in [5, 4, 3, 2].into_iter().enumerate() {
        put(&mut bytes, header::ENDED + at, sum);
        put(&mut bytes, HEADER + SLOT + slot::TEAMS + at, 10 * sum);
    }
    let owner = Owner { pid: 12, started: 99 };
    let state = State { computing: 3, wants: 4, teams: 50 };
    put(&mut bytes, HEADER + SLOT + slot::OWNER, owner.word());
    put(&mut bytes, HEADER + SLOT + slot::STATE, state.word());
    let content = page::read(&bytes).unwrap();
    assert_eq!((content.cores, content.members.len()), (4, 1));
    assert_eq!((content.members[0].owner, content.members[0].state), (owner, state));
    let sums = content.sums();
    assert_eq!((sums.teams, sums.bounded, sums.refused, sums.borrowed), (55, 44, 33, 22));
    assert_eq!(page::read(&bytes[..BYTES - 4096]), None, "cut");
    put(&mut bytes, 0, page::MAGIC + 1);
    assert_eq!(page::read(&bytes), None, "another version");
}

fn demands() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), 0u32..12, 0u32..3000], 1..40)
}

proptest! {
    #[test]
    fn the_division_is_that_of_one_core_after_another(cores in 1u32..200, demands in demands()) {
        let demands: Vec<u32> = demands.iter().map(|&demand| demand.min(cores)).collect();
        prop_assert_eq!(shares(cores, &demands), one_by_one(cores, &demands));
    }

    #[test]
    fn shares_fit_and_no_process_starves(cores in 1u32..200, demands in demands()) {
        let shares = shares(cores, &demands);
        let computing = demands.iter().filter(|&&demand| demand > 0).count() as u32;
        let (given, asked): (u32, u64) = (shares.iter().sum(), demands.iter().map(|&d| u64::from(d)).sum());
        prop_assert!(given <= cores.max(computing));
        prop_assert!(u64::from(given) >= asked.min(u64::from(cores)));
        for (&share, &demand) in shares.iter().zip(&demands) {
            prop_assert!(share <= demand && (share > 0) == (demand > 0));
            // An equal part of the cores, whatever the others demand.
            prop_assert!(share >= demand.min(cores / computing.max(1)));
        }
    }

    #[test]
    fn claims_of_one_process_cost_another_at_most_its_loans(
        cores in 1u32..200, demands in demands(), at in any::<prop::sample::Index>(), claim in any::<u32>(),
    ) {
        // The share of the others is at least their share if this process claims everything, which
        // is at least an equal part: the claim costs them only the excess over that.
        let liar = at.index(demands.len());
        let mut claimed = demands.clone();
        claimed[liar] = claim.max(1);
        let shares = shares(cores, &claimed);
        let computing = claimed.iter().filter(|&&demand| demand > 0).count() as u32;
        for (other, &share) in shares.iter().enumerate().filter(|&(other, _)| other != liar) {
            prop_assert!(share >= claimed[other].min((cores / computing).max(1)));
        }
    }

    #[test]
    fn any_word_of_the_page_is_read_within_bounds(word in any::<u64>(), cores in 1u32..5000, used in any::<Option<u32>>()) {
        let State { computing, wants, teams } = State::read(word);
        prop_assert!(computing <= page::COUNT_MAX && wants <= page::COUNT_MAX);
        prop_assert_eq!(State { computing, wants, teams }.word(), word);
        let observed = Observed { computing, wants, used, opened: word % 2 == 0 };
        prop_assert!(demand(&observed, cores) <= cores);
        if let Some(owner) = Owner::read(word) {
            prop_assert_eq!((owner.word(), i32::try_from(owner.pid).is_ok()), (word, true));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4 * BYTES / 3), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 8 {
            put(&mut bytes, 0, page::MAGIC);
        }
        if let Some(content) = page::read(&bytes) {
            let _ = content.sums();
            prop_assert!(content.cores >= 1 && content.members.len() <= page::SLOTS);
        }
    }
}

/// Hold as the processes see it: each decides by the latest observation of the others.
#[derive(Clone, Debug)]
struct Process {
    /// Sizes of its open teams.
    teams: Vec<u32>,
    wants: u32,
    waits: bool,
}

/// Event in the life of a process.
#[derive(Clone, Debug)]
enum Event {
    Open(u32),
    Close,
    Wait,
    End,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u32..20).prop_map(Event::Open),
        4 => Just(Event::Close),
        1 => Just(Event::Wait),
        1 => Just(Event::End),
    ]
}

fn observed(process: &Process) -> Observed {
    let computing = process.teams.iter().sum();
    Observed {
        computing,
        wants: process.wants,
        used: Some(u32::from(!process.waits)),
        opened: !process.waits,
    }
}

/// Returns the share of a process, computed from the present states of all processes.
fn share_of(cores: u32, processes: &[Process], at: usize) -> u32 {
    let demands: Vec<u32> = processes.iter().map(|process| demand(&observed(process), cores)).collect();
    shares(cores, &demands)[at]
}

proptest! {
    #[test]
    fn in_any_sequence_of_events_teams_fit_and_a_lender_gets_its_part_back_at_once(
        cores in 1u32..40, count in 1usize..8, events in prop::collection::vec((any::<prop::sample::Index>(), event()), 0..120),
    ) {
        let mut processes = vec![Process { teams: vec![], wants: 0, waits: true }; count];
        for (at, event) in events {
            let at = at.index(count);
            match event {
                Event::Open(wanted) => {
                    let was_waiting = processes[at].waits;
                    let computing: u32 = processes[at].teams.iter().sum();
                    processes[at].waits = false;
                    processes[at].wants = processes[at].wants.max(computing + wanted);
                    let share = share_of(cores, &processes, at);
                    let grant = grant(share, computing, wanted, None);
                    prop_assert!((1..=wanted).contains(&grant));
                    processes[at].teams.push(grant);
                    // The teams of a process fit its share, or are single threads beyond it: the
                    // share may have shrunk while earlier teams ran.
                    prop_assert!(computing + grant <= share || grant == 1);
                    let awake = processes.iter().filter(|process| !process.waits).count() as u32;
                    if was_waiting && computing == 0 {
                        prop_assert!(grant >= wanted.min((cores / awake).max(1)));
                    }
                }
                Event::Close => {
                    processes[at].teams.pop();
                    processes[at].wants = processes[at].teams.iter().sum();
                }
                Event::Wait => processes[at].waits = processes[at].teams.is_empty(),
                Event::End => processes[at] = Process { teams: vec![], wants: 0, waits: true },
            }
        }
        // Each process closes its teams and opens one again, in turn: then all have decided by the
        // same demands, and their teams fit.
        let awake: Vec<usize> = (0..count).filter(|&at| !processes[at].waits).collect();
        for &at in &awake {
            processes[at].wants = cores;
        }
        for &at in &awake {
            processes[at].teams.clear();
            let grant = grant(share_of(cores, &processes, at), 0, cores, None);
            processes[at].teams.push(grant);
        }
        let computing: u32 = processes.iter().flat_map(|process| &process.teams).sum();
        prop_assert!(computing <= cores.max(awake.len() as u32));
    }

    #[test]
    fn teams_of_teams_fit_the_share(share in 1u32..100, sizes in prop::collection::vec(1u32..12, 1..4)) {
        // All threads of a level open the next one, in any of the orders that are counted here.
        let outer = grant(share, 0, sizes[0], None);
        let mut computing = outer;
        let mut level: Vec<Inside> = (0..outer).map(|index| Inside::none().then(outer, index)).collect();
        for &size in &sizes[1..] {
            let mut next = Vec::new();
            for &inside in &level {
                let inner = grant(share, computing, size, Some(inside));
                prop_assert!(inner >= 1 && inner <= size);
                computing += inner - 1;
                next.extend((0..inner).map(|index| inside.then(inner, index)));
            }
            level = next;
            prop_assert!(computing <= share);
        }
    }
}

#[test]
fn threads_that_open_teams_at_the_same_time_get_equal_parts_of_the_share() {
    for share in 0..20 {
        for openers in 0..20 {
            let part = part_of_opener(share, openers);
            assert!(part >= 1);
            assert!(part * openers <= share.max(openers), "{share} {openers}");
            // One thread more for each would be too many.
            assert!((part + 1) * openers.max(1) > share, "{share} {openers}");
        }
    }
    assert_eq!(part_of_opener(4, 1), 4);
    assert_eq!(part_of_opener(u32::MAX, u32::MAX), 1);
}
