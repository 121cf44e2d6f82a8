//! Tests that samples of a simulated machine are as Linux would give them.

use crate::run::{END, cores, kernel, spmd};
use trimtab_core::balance::{Act, Decision, Kind, Reason, Refusal, Settings, Settled, Wanted, policy};
use trimtab_core::drive::{Awake, Go, Host, drive};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::{Metric, Notice, Observer, Sample};
use trimtab_core::time::Moment;
use trimtab_sim::host::Simulated;
use trimtab_sim::model::Model;
use trimtab_sim::program::{Body, ProgramSpec, WaitMode};
use trimtab_sim::world::World;

const MS: u64 = 1_000_000;

fn host(count: usize, programs: Vec<ProgramSpec>, seed: u64) -> Simulated {
    Simulated::new(World::new(Model::plain(cores(count)), &kernel("linux-6.12", count), programs, seed), END)
}

fn sample_at(host: &mut Simulated, ms: u64) -> Sample {
    host.wait(Moment(ms * MS)).unwrap();
    host.observe(&Wanted::all()).unwrap()
}

#[test]
fn a_wait_is_counted_when_it_is_over() {
    // Two threads on one CPU, sampled each millisecond: slices are a tick long, so one of them
    // does not run.
    let mut host = host(1, vec![spmd(2, None, WaitMode::Spin)], 1);
    let mut stood = 0;
    let mut before = sample_at(&mut host, 20);
    for ms in 21..60 {
        let now = sample_at(&mut host, ms);
        for (old, new) in before.threads.iter().zip(&now.threads) {
            let counters = |read: &trimtab_core::observe::ThreadSample| (read.run, read.wait, read.slices);
            if counters(old) == counters(new) {
                assert!(new.ready.is_some());
                stood += 1;
            } else {
                assert_eq!(new.ready, None);
            }
            assert!(new.run >= old.run && new.wait >= old.wait);
        }
        before = now;
    }
    assert!(stood > 20, "{stood}");
}

#[test]
fn speeds_are_seen_as_they_are() {
    // Three on two: speeds are 1/2, 1/2 and 1, by the kernel's counters alone.
    let mut host = host(2, vec![spmd(3, None, WaitMode::Spin).bound(trimtab_sim::program::Bind::Close)], 1);
    let mut observer = Observer::new(host.world().usable());
    for ms in [100, 200] {
        let sample = sample_at(&mut host, ms);
        observer.take(&sample, &[]);
    }
    let seen = observer.observation();
    let speeds: Vec<f64> = seen.threads.iter().map(|thread| thread.speed(Metric::RunWait).unwrap()).collect();
    let near = |speed: f64, exact: f64| (speed - exact).abs() < 0.06;
    assert!(near(speeds[0], 0.5) && near(speeds[1], 1.0) && near(speeds[2], 0.5), "{speeds:?}");
    assert!(seen.cpus.iter().all(|cpu| cpu.busy.unwrap() > 0.88));
}

#[test]
fn starts_and_ends_of_threads_are_reported_once() {
    let mut churn = spmd(0, None, WaitMode::Sleep);
    churn.body = Body::Churn { at_once: 3, work: trimtab_core::time::Span::from_ms(20), jobs: Some(50) };
    let mut host = host(2, vec![churn, ProgramSpec::hog("hog", 1)], 1);
    let (mut born, mut gone) = (Vec::new(), Vec::new());
    let mut ms = 0;
    loop {
        let sample = host.observe(&Wanted::default()).unwrap();
        born.extend(sample.news.iter().map(|info| info.id));
        gone.extend(sample.gone.iter().copied());
        assert!(sample.threads.is_sorted_by_key(|read| read.id));
        assert!(sample.threads.iter().all(|read| born.contains(&read.id) && !gone.contains(&read.id)));
        ms += 10;
        if host.wait(Moment(ms * MS)).unwrap() == Awake::Over {
            break;
        }
    }
    let mut unique = born.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), born.len());
    assert!(gone.iter().all(|id| born.contains(id)));
    assert!(born.len() > 30);
}

#[test]
fn decisions_are_carried_out() {
    let mut host = host(2, vec![spmd(2, None, WaitMode::Spin)], 1);
    sample_at(&mut host, 10);
    let decision =
        |thread, act| Decision { thread: ThreadId(thread), act, reason: Reason::Start, gain: None };
    let one = |text: &str| text.parse().unwrap();
    let outcomes = host
        .apply(&[
            decision(0, Act::Confine(one("1"))),
            decision(1, Act::Confine(one("1"))),
            decision(7, Act::Release),
            decision(1, Act::Confine(one("5"))),
        ])
        .unwrap();
    let ends: Vec<Settled> = outcomes.iter().map(|outcome| outcome.end).collect();
    assert_eq!(
        ends,
        [Settled::Applied, Settled::Applied, Settled::Vanished, Settled::Refused(Refusal::Cpus)]
    );
    assert!(sample_at(&mut host, 100).threads.iter().all(|read| read.cpu.unwrap().0 == 1));
    host.apply(&[decision(0, Act::Release), decision(1, Act::Release)]).unwrap();
    for cpu in [0, 1] {
        host.apply(&[decision(0, Act::Nudge(one(&cpu.to_string())))]).unwrap();
        assert_eq!(host.world().thread(0).cpu.0, cpu);
        assert_eq!(host.world().thread(0).mask, one("0-1"), "a nudge leaves the mask as it was");
    }
}

#[test]
fn lost_cpus_are_told() {
    let mut host = host(4, vec![spmd(4, None, WaitMode::Sleep)], 1);
    sample_at(&mut host, 10);
    host.world_mut().set_usable(&"0-1".parse().unwrap());
    let sample = sample_at(&mut host, 20);
    assert_eq!(sample.notices, [Notice::Usable("0-1".parse().unwrap())]);
    assert!(sample_at(&mut host, 30).notices.is_empty());
}

#[test]
fn equal_seeds_give_equal_samples_to_the_byte() {
    let stream = |kind, seed| {
        let mut program = spmd(9, Some(10), WaitMode::Yield);
        if let Body::Spmd { jitter, .. } = &mut program.body {
            *jitter = 0.1;
        }
        let mut host = host(4, vec![program, ProgramSpec::hog("hog", 1)], seed);
        let machine = cores(4);
        let settings = Settings { seed, ..Settings::default() };
        let (mut policy, mut observer) = (policy(kind, &machine, &settings), Observer::new(machine.cpus()));
        let mut text = String::new();
        drive(&mut host, policy.as_mut(), &mut observer, &mut |step| {
            text.push_str(&format!("{:?} {:?}\n", step.sample, step.outcomes));
            Go::On
        })
        .unwrap_or_else(|never| match never {});
        text
    };
    for kind in [Kind::Speed, Kind::Exchange, Kind::Auto] {
        assert!(stream(kind, 3) == stream(kind, 3), "{kind}");
        assert!(stream(kind, 3) != stream(kind, 4), "{kind}");
    }
}

#[test]
fn a_confined_thread_gets_its_mask_back_and_no_other_thread_does() {
    let mut host = host(2, vec![spmd(3, None, WaitMode::Spin)], 1);
    let confine = |thread: u32, to: &str| Decision {
        thread: ThreadId(thread),
        act: Act::Confine(to.parse().unwrap()),
        reason: Reason::Start,
        gain: None,
    };
    let masks = |host: &Simulated| -> Vec<String> {
        host.world().threads().map(|thread| thread.mask.to_string()).collect()
    };
    sample_at(&mut host, 20);
    // Thread 1 is bound by its own program, not through the host.
    host.world_mut().confine(ThreadId(1), &"1".parse().unwrap()).unwrap();
    host.apply(&[confine(0, "0"), confine(0, "1"), confine(2, "0")]).unwrap();
    host.apply(&[Decision { act: Act::Release, ..confine(2, "0") }]).unwrap();
    assert_eq!(masks(&host), ["1", "1", "0-1"]);
    host.restore();
    assert_eq!(masks(&host), ["0-1", "1", "0-1"]);
}
