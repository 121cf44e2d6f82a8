//! Hardware counts of threads, in samples. On a machine without counters, the kernel's own
//! (software) events stand in for them: only the numbers differ.

use crate::scene::{NO_COMPILER, Observations, Worker, eventually, is_root, need};
use trimtab_core::balance::Wanted;
use trimtab_core::counter_budget::CounterThrottle;
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::observe::{Notice, Observer};
use trimtab_core::time::Span;
use trimtab_linux::host::HostOptions;
use trimtab_linux::perf::{Choice, Group, Recipe, Role, Spec, Why};
use trimtab_linux::process::Tid;

/// Events that every machine has.
const SOFTWARE: &str = "busy=task-clock,requests=page-faults,cycles=cpu-clock";

fn options(choice: &str) -> HostOptions {
    HostOptions { counting: choice.parse().unwrap(), find_every: Span::ZERO, ..HostOptions::default() }
}

fn wanted() -> Wanted {
    Wanted { counts: true, ..Wanted::all() }
}

/// Returns whether this process may count at all.
fn may_count() -> bool {
    let event = "task-clock".parse::<Spec>().unwrap().resolve(std::path::Path::new("/sys")).unwrap();
    let recipe = Recipe { user_only: true, ..Recipe::of(vec![(Role::Busy, event)]) };
    Group::open(&recipe, None).is_ok()
}

const MAY_NOT: &str = "nothing may be counted here (perf_event_open is refused)";

fn counting(seen: &Observations) -> Vec<Rung> {
    let rung = |notice: &Notice| match notice {
        Notice::Counting(rung) => Some(*rung),
        _ => None,
    };
    seen.notices.iter().filter_map(rung).collect()
}

#[test]
fn counts_come_when_they_are_wanted_and_cost_nothing_before() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    let busy = Tid(worker.ask("busy 1").parse().unwrap());
    let (mut live, mut seen) = worker.seen_with(options(SOFTWARE));
    let before = live.facts().descriptors;
    for _ in 0..5 {
        seen.look(&mut live);
    }
    assert!(live.counting().is_none() && live.facts().descriptors == before, "nothing was tried");
    assert!(seen.last.threads.iter().all(|read| read.counts.is_none()) && counting(&seen).is_empty());

    let mut observer = Observer::new(crate::scene::usable());
    let mut reads: Vec<Counts> = Vec::new();
    let id = seen.id(busy);
    eventually("its counts are read three times", || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let sample = seen.look_for(&mut live, &wanted()).clone();
        reads.extend(sample.threads.iter().find(|read| read.id == id).and_then(|read| read.counts));
        observer.take(&sample, &[]);
        reads.len() >= 3
    });
    assert_eq!(counting(&seen), [Rung::Exact], "told once");
    assert_eq!(live.counted_threads(), 1, "who sleeps has no counters");
    assert!(reads.windows(2).all(|two| two[1].since(&two[0]).is_some()), "they grow: {reads:?}");
    let last = reads.last().unwrap();
    assert!(last.busy > Some(0) && last.requests.is_some() && last.cycles > Some(0));
    assert_eq!((last.instructions, last.far), (None, None), "what has no event is missing");
    assert!(last.enabled >= last.running);
    // Both are clocks of its time, in nanoseconds.
    let share = last.share().unwrap();
    assert!((0.5..=1.0).contains(&share), "{share}");
}

#[test]
fn counters_are_closed_when_they_are_not_wanted_and_when_threads_end() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    worker.ask("busy 2");
    let (mut live, mut seen) = worker.seen_with(options(SOFTWARE));
    let before = live.facts().descriptors;
    eventually("both are counted", || {
        seen.look_for(&mut live, &wanted());
        live.counted_threads() == 2
    });
    // Three each, or two if they seemed expensive on a busy machine.
    let each = live.counting().unwrap().recipe.as_ref().unwrap().events.len();
    assert!(
        each >= 2 && live.facts().descriptors >= before + 2 * each,
        "counters are descriptors like others"
    );
    // A pause does not close them, a long one does.
    seen.look(&mut live);
    assert_eq!(live.counted_threads(), 2);
    eventually("they are closed", || {
        seen.look(&mut live);
        live.counted_threads() == 0
    });
    assert!(live.facts().descriptors <= before + 2);
    eventually("they are opened anew", || {
        seen.look_for(&mut live, &wanted());
        live.counted_threads() == 2
    });
    assert_eq!(counting(&seen), [Rung::Exact], "the rung is the same, and told once");
    worker.end();
    eventually("all is closed", || {
        seen.look_for(&mut live, &wanted());
        live.facts().threads == 0
    });
    assert_eq!((live.counted_threads(), live.facts().descriptors), (0, 0));
}

#[test]
fn threads_that_end_at_any_moment_are_no_trouble() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    let (mut live, mut seen) = worker.seen_with(options(SOFTWARE));
    seen.look_for(&mut live, &wanted());
    for _ in 0..3 {
        worker.tell("storm 2000");
        for _ in 0..60 {
            seen.look_for(&mut live, &wanted());
        }
        assert_eq!(worker.answer(), "over");
    }
    eventually("only one lives", || {
        seen.look_for(&mut live, &wanted());
        live.facts().threads == 1
    });
    assert!(live.counted_threads() <= 1 && live.facts().descriptors <= 5, "{:?}", live.facts());
    assert_eq!(counting(&seen), [Rung::Exact]);
}

#[test]
fn without_room_for_descriptors_less_is_counted_and_then_nothing() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    worker.ask("busy 8");
    // At most half of these descriptors may be used merely to save work: two files for each of nine
    // threads, and twelve counters.
    let (mut live, mut seen) = worker.seen_with(HostOptions { descriptors: Some(60), ..options(SOFTWARE) });
    eventually("two counters are taken instead of three", || {
        seen.look_for(&mut live, &wanted());
        let recipe = live.counting().and_then(|standing| standing.recipe.as_ref());
        recipe.is_some_and(|recipe| recipe.events.len() == 2) && live.counted_threads() >= 4
    });
    assert!(live.facts().descriptors <= 60);
    let (mut live, mut seen) = worker.seen_with(HostOptions { descriptors: Some(12), ..options(SOFTWARE) });
    eventually("no hardware is counted any more", || {
        seen.look_for(&mut live, &wanted());
        live.counting().is_some_and(|standing| !standing.rung.counts())
    });
    let standing = live.counting().unwrap();
    assert_eq!(standing.missing[0].why, Why::NoDescriptors);
    assert_eq!(live.counted_threads(), 0);
    let told = counting(&seen);
    assert_eq!((told.len(), told[0]), (2, Rung::Exact), "{told:?}");
    // The threads are still read.
    assert!(!seen.last.threads.is_empty());
}

/// Returns the counts of a computing thread over six readings, with counters that run one tick in
/// four, and how long it ran meanwhile; `None` if hardware is not counted.
fn one_in_four(worker: &mut Worker, choice: &str) -> Option<(Counts, Span)> {
    let busy = Tid(worker.ask("busy 1").parse().unwrap());
    // However often the kernel puts it on a CPU here.
    let thrift = CounterThrottle {
        every: Span::from_ms(20),
        one_in: 4,
        switches_max: None,
        ..CounterThrottle::TRAPPED
    };
    let (mut live, mut seen) = worker.seen_with(HostOptions { thrift: Some(thrift), ..options(choice) });
    let id = seen.id(busy);
    let mut reads: Vec<Counts> = Vec::new();
    let (mut looks, mut ran) = (0, Vec::new());
    eventually("it is read six times", || {
        std::thread::sleep(std::time::Duration::from_millis(2));
        seen.look_for(&mut live, &wanted());
        looks += 1;
        let Some(read) = seen.last.threads.iter().find(|read| read.id == id) else { return false };
        if let Some(counts) = read.counts {
            reads.push(counts);
            ran.push(read.run);
        }
        reads.len() >= 6 || live.counting().is_some_and(|standing| !standing.rung.counts())
    });
    let (first, last) = (reads.first()?, reads.last().filter(|_| reads.len() >= 6)?);
    assert!(looks > reads.len(), "not at each look");
    Some((last.since(first).unwrap(), ran[ran.len() - 1].less(ran[0])))
}

#[test]
fn the_kernels_own_events_are_read_in_between_and_lose_nothing() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    let (counted, ran) = one_in_four(&mut worker, SOFTWARE).unwrap();
    // Switched off they would have a quarter of it; and on again, on some kernels, they would count
    // nothing more until the kernel puts the thread on a CPU again.
    let share = |of: Span| of.0 as f64 / ran.0 as f64;
    assert!((0.8..1.2).contains(&share(counted.running)), "{counted:?} of {ran}");
    assert!((0.8..1.2).contains(&share(Span(counted.busy.unwrap()))), "{counted:?} of {ran}");
    // A clock of the thread counts exactly the time in which it was on.
    let clock = counted.busy.unwrap() as f64 / counted.running.0 as f64;
    assert!((0.9..1.1).contains(&clock), "{clock}");
}

#[test]
fn hardware_that_runs_now_and_then_counts_only_then() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let Some((counted, ran)) = one_in_four(&mut worker, "auto") else {
        return eprintln!("SKIPPED: no hardware counters here");
    };
    // A quarter of the time, given the spacing of the samples; but never while they were off.
    assert!(counted.running < ran && counted.enabled > counted.running, "{counted:?} of {ran}");
}

#[test]
fn threads_that_are_put_on_a_cpu_too_often_are_left_out() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    need!(may_count().then_some(()), MAY_NOT);
    // These threads nap two hundred times a second.
    worker.threads(2);
    worker.ask("busy 1");
    let thrift = CounterThrottle { switches_max: Some(0.0), ..CounterThrottle::FREE };
    let (mut live, mut seen) = worker.seen_with(HostOptions { thrift: Some(thrift), ..options(SOFTWARE) });
    for _ in 0..60 {
        seen.look_for(&mut live, &wanted());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(live.counted_threads() <= 1, "{}", live.counted_threads());
    assert!(live.counting().is_some_and(|standing| standing.rung == Rung::Exact));
}

#[test]
fn nothing_is_counted_where_that_was_asked_for() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    worker.ask("busy 1");
    let (mut live, mut seen) = worker.seen_with(options("off"));
    for _ in 0..10 {
        seen.look_for(&mut live, &wanted());
        assert!(seen.last.threads.iter().all(|read| read.counts.is_none()));
    }
    assert_eq!((counting(&seen), live.counted_threads()), (vec![Rung::Nothing], 0));
}

#[test]
fn without_counters_sampled_pages_locate_the_memory() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let busy = Tid(worker.ask("busy 1").parse().unwrap());
    let (mut live, mut seen) = worker.seen_with(options("residency"));
    seen.look_for(&mut live, &wanted());
    if counting(&seen) != [Rung::Residency] {
        return eprintln!("SKIPPED: pages cannot be asked for here: {:?}", live.counting().unwrap().missing);
    }
    let id = seen.id(busy);
    let mut reads: Vec<Counts> = Vec::new();
    eventually("it is asked twice", || {
        seen.look_for(&mut live, &wanted());
        reads.extend(seen.last.threads.iter().find(|read| read.id == id).and_then(|read| read.counts));
        reads.len() >= 2
    });
    let between = reads[1].since(&reads[0]).unwrap();
    assert!(between.near.unwrap() + between.far.unwrap() > 0 && between.busy.is_none(), "{between:?}");
    if std::fs::read_to_string("/sys/devices/system/node/online").is_ok_and(|nodes| nodes.trim() == "0") {
        assert_eq!(between.far_share(), Some(0.0), "on one node all is near");
    }
    assert_eq!(live.counted_threads(), 0);
}

#[test]
fn real_counters_count_a_program_where_the_machine_has_them() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let busy = Tid(worker.ask("busy 1").parse().unwrap());
    let (mut live, mut seen) = worker.seen_with(options("auto"));
    seen.look_for(&mut live, &wanted());
    let standing = live.counting().unwrap();
    if !standing.rung.counts() {
        let why = standing.missing.first().map(|missing| missing.why.to_string());
        return eprintln!("SKIPPED: no hardware counters here: {}", why.unwrap_or_default());
    }
    let id = seen.id(busy);
    let mut reads: Vec<Counts> = Vec::new();
    eventually("its counts are read twice", || {
        seen.look_for(&mut live, &wanted());
        reads.extend(seen.last.threads.iter().find(|read| read.id == id).and_then(|read| read.counts));
        reads.len() >= 2 || !live.counting().unwrap().rung.counts()
    });
    if let [first, .., last] = reads[..] {
        let between = last.since(&first).unwrap();
        // It computes in registers.
        assert!(between.penalty().is_none_or(|penalty| penalty < 10_000.0), "{between:?}");
        assert!(between.share().is_none_or(|share| share < 0.5), "{between:?}");
    }
}

#[test]
fn another_users_threads_are_not_counted_without_the_right_to() {
    if !is_root() {
        eprintln!("SKIPPED: to act as two users a test needs root");
        return;
    }
    need!(may_count().then_some(()), MAY_NOT);
    let mut theirs = need!(Worker::start_as(Some(61_001)), NO_COMPILER);
    theirs.ask("busy 1");
    let said = crate::keeping::as_user(61_002, &format!("counted {}", theirs.pid()));
    assert!(said.starts_with("0 counted, Exact then "), "{said}");
    assert!(said.ends_with("ThreadsRefused"), "{said}");
}

/// Runs in a process of another user: counts threads of a user.
pub(crate) fn count_others(pid: u32) -> String {
    let options = HostOptions { hands_off: true, ..options(SOFTWARE) };
    let root = trimtab_linux::host::Root::Tree(trimtab_linux::process::Pid(pid));
    let proc = std::path::Path::new(crate::scene::PROC);
    let mut live = trimtab_linux::host::Live::with(proc, &[root], &crate::scene::usable(), options).unwrap();
    let mut seen = Observations::default();
    eventually("it is given up", || {
        seen.look_for(&mut live, &wanted());
        live.counting().is_some_and(|standing| !standing.rung.counts())
    });
    let told: Vec<String> = counting(&seen).iter().map(|rung| format!("{rung:?}")).collect();
    let why = &live.counting().unwrap().missing[0].why;
    format!("{} counted, {}: {why:?}", live.counted_threads(), told.join(" then "))
}

#[test]
fn a_choice_that_cannot_be_counted_is_reported_with_its_reason() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let (mut live, mut seen) = worker.seen_with(options("busy=gpu/event=1/,requests=r1"));
    seen.look_for(&mut live, &wanted());
    let standing = live.counting().unwrap();
    assert!(standing.missing[0].why.to_string().contains("no 'gpu' among"), "{:?}", standing.missing);
    assert!(!standing.rung.counts() && "auto".parse() == Ok(Choice::Auto));
    worker.end();
}
