use super::*;
use crate::balance::{Refusal, Settled};
use proptest::prelude::*;

fn info(id: u32) -> ThreadInfo {
    ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(0),
        pid: 100,
        tid: 100 + id,
        name: "worker".to_owned(),
        home: "0-3".parse().unwrap(),
        left: None,
        tagged: false,
    }
}

fn read(id: u32, run_ms: u64, wait_ms: u64) -> ThreadSample {
    ThreadSample {
        id: ThreadId(id),
        run: Span::from_ms(run_ms),
        wait: Some(Span::from_ms(wait_ms)),
        slices: None,
        voluntary: None,
        cpu: None,
        ready: None,
        counts: None,
    }
}

fn at(ms: u64, threads: Vec<ThreadSample>) -> Sample {
    Sample { at: Moment(ms * 1_000_000), threads, ..Sample::default() }
}

fn observer(samples: &[Sample]) -> Observer {
    let mut observer = Observer::new("0-3".parse().unwrap());
    for sample in samples {
        observer.take(sample, &[]);
    }
    observer
}

fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-9)
}

#[test]
fn rates_are_increments_between_two_readings() {
    let first = Sample { news: vec![info(0)], ..at(1000, vec![read(0, 500, 100)]) };
    let observer = observer(&[first, at(1100, vec![read(0, 560, 120)])]);
    let seen = observer.observation();
    let rates = seen.threads[0].rates.unwrap();
    assert!(near(Some(rates.run), 0.6) && near(rates.wait, 0.2) && near(rates.idle(), 0.2));
    assert!(near(rates.speed(Metric::RunWait), 0.75));
    assert!(near(rates.speed(Metric::CpuShare), 0.6));
    assert_eq!(seen.threads[0].run, Some(Span::from_ms(560)));
}

#[test]
fn one_reading_is_no_rate() {
    let first = Sample { news: vec![info(0)], ..at(1000, vec![read(0, 500, 100)]) };
    let observer = observer(&[first]);
    assert_eq!(observer.observation().threads[0].rates, None);
    assert_eq!(observer.observation().span, None);
}

#[test]
fn a_thread_that_was_not_read_has_no_rate_and_its_next_one_covers_both_steps() {
    let first = Sample { news: vec![info(0), info(1)], ..at(0, vec![read(0, 0, 0), read(1, 0, 0)]) };
    let mut observer = observer(&[first, at(100, vec![read(0, 100, 0)])]);
    assert_eq!(observer.observation().thread(ThreadId(1)).unwrap().rates, None);
    observer.take(&at(200, vec![read(0, 200, 0), read(1, 50, 150)]), &[]);
    let seen = observer.observation();
    let late = seen.thread(ThreadId(1)).unwrap().rates.unwrap();
    assert_eq!(late.span, Span::from_ms(200));
    assert!(near(Some(late.run), 0.25) && near(late.wait, 0.75));
}

#[test]
fn a_sleeper_has_no_speed_and_is_not_slow() {
    let first = Sample { news: vec![info(0)], ..at(0, vec![read(0, 7, 3)]) };
    let observer = observer(&[first, at(100, vec![read(0, 7, 3)])]);
    let rates = observer.observation().threads[0].rates.unwrap();
    assert_eq!(rates.speed(Metric::RunWait), None);
    assert!(near(rates.speed(Metric::CpuShare), 0.0));
}

/// Linux counts a wait when it ends: zero, zero, and then more than the length of the step.
#[test]
fn a_wait_that_is_not_counted_yet_is_no_sleep() {
    let ready = |run, wait| ThreadSample { ready: Some(true), ..read(0, run, wait) };
    let first = Sample { news: vec![info(0)], ..at(0, vec![read(0, 50, 0)]) };
    let mut observer = observer(&[first]);
    for ms in [20, 40] {
        observer.take(&at(ms, vec![ready(50, 0)]), &[]);
        let rates = observer.observation().threads[0].rates.unwrap();
        assert!(near(rates.wait, 1.0) && near(rates.speed(Metric::RunWait), 0.0));
    }
    observer.take(&at(60, vec![read(0, 55, 55)]), &[]);
    let rates = observer.observation().threads[0].rates.unwrap();
    assert!(near(Some(rates.run), 0.25) && near(rates.wait, 0.75));
    observer.take(&at(80, vec![read(0, 65, 65)]), &[]);
    let rates = observer.observation().threads[0].rates.unwrap();
    assert!(near(Some(rates.run), 0.5) && near(rates.wait, 0.5));
}

#[test]
fn without_wait_times_there_is_no_speed_by_them() {
    let bare = |run| ThreadSample { wait: None, ..read(0, run, 0) };
    let first = Sample { news: vec![info(0)], ..at(0, vec![bare(0)]) };
    let observer = observer(&[first, at(100, vec![bare(40)])]);
    let rates = observer.observation().threads[0].rates.unwrap();
    assert_eq!((rates.wait, rates.idle(), rates.speed(Metric::RunWait)), (None, None, None));
    assert!(near(rates.speed(Metric::CpuShare), 0.4));
}

#[test]
fn counters_that_decreased_start_again() {
    let first = Sample { news: vec![info(0)], ..at(0, vec![read(0, 500, 0)]) };
    let mut observer = observer(&[first, at(100, vec![read(0, 20, 0)])]);
    assert_eq!(observer.observation().threads[0].rates, None);
    observer.take(&at(200, vec![read(0, 70, 0)]), &[]);
    assert!(near(observer.observation().threads[0].rates.map(|rates| rates.run), 0.5));
}

#[test]
fn a_clock_that_jumps_or_stands_gives_no_rates() {
    let first = Sample { news: vec![info(0)], ..at(1000, vec![read(0, 0, 0)]) };
    let jump = Notice::ClockJump(Span::from_ms(9_000));
    let jumped = Sample { notices: vec![jump], ..at(10_000, vec![read(0, 50, 0)]) };
    let observer_after_jump = observer(&[first.clone(), jumped]);
    assert_eq!(observer_after_jump.observation().threads[0].rates, None);
    let standing = observer(&[first.clone(), at(1000, vec![read(0, 50, 0)])]);
    assert_eq!(standing.observation().threads[0].rates, None);
    let backwards = observer(&[first, at(900, vec![read(0, 50, 0)])]);
    assert_eq!(backwards.observation().threads[0].rates, None);
    assert_eq!(backwards.observation().span, None);
}

#[test]
fn births_deaths_and_news_are_followed() {
    let first = Sample { news: vec![info(0), info(1)], ..at(0, vec![read(0, 0, 0), read(1, 0, 0)]) };
    let gone = Sample { gone: vec![ThreadId(0)], ..at(100, vec![read(1, 0, 0)]) };
    let left = ThreadInfo { left: Some(Left::MovedItself), ..info(1) };
    let told = Sample { news: vec![left], ..at(200, vec![read(1, 0, 0), read(9, 1, 1)]) };
    let mut observer = observer(&[first, gone]);
    assert_eq!(observer.observation().gone, [ThreadId(0)]);
    observer.take(&told, &[]);
    let seen = observer.observation();
    // A thread that was not announced is ignored.
    assert_eq!(seen.threads.iter().map(ThreadView::id).collect::<Vec<_>>(), [ThreadId(1)]);
    assert!(!seen.threads[0].movable() && seen.threads[0].rates.is_some());
}

#[test]
fn outcomes_of_now_and_of_earlier_arrive_together() {
    let outcome = |id, end| Outcome { thread: ThreadId(id), end };
    let mut observer = observer(&[]);
    let settled = vec![outcome(1, Settled::Refused(Refusal::Permission))];
    observer.take(&Sample { settled, ..at(100, vec![]) }, &[outcome(2, Settled::Applied)]);
    let ids: Vec<_> = observer.observation().outcomes.iter().map(|outcome| outcome.thread.0).collect();
    assert_eq!(ids, [2, 1]);
    observer.take(&at(200, vec![]), &[]);
    assert!(observer.observation().outcomes.is_empty());
}

#[test]
fn cpus_and_quotas_have_rates_too() {
    let cpu = |busy, steal| CpuSample {
        cpu: OsCpu(2),
        busy: Span::from_ms(busy),
        steal: Some(Span::from_ms(steal)),
    };
    let step = |ms, busy, steal, throttled| Sample {
        cpus: vec![cpu(busy, steal)],
        throttled: Some(Span::from_ms(throttled)),
        ..at(ms, vec![])
    };
    let mut observer = observer(&[step(0, 100, 0, 7)]);
    assert_eq!(observer.observation().cpus[0].busy, None);
    assert_eq!(observer.observation().throttled, None);
    observer.take(&step(200, 250, 10, 47), &[]);
    let seen = observer.observation();
    assert!(near(seen.cpus[0].busy, 0.75) && near(seen.cpus[0].steal, 0.05) && near(seen.throttled, 0.2));
}

#[test]
fn usable_cpus_follow_the_notice() {
    let shrunk = Sample { notices: vec![Notice::Usable("1".parse().unwrap())], ..at(10, vec![]) };
    assert_eq!(*observer(&[at(0, vec![]), shrunk]).observation().usable, "1".parse().unwrap());
}

proptest! {
    /// For any input of a hostile or broken host, rates are finite and not negative, and never
    /// result from a single reading.
    #[test]
    fn rates_are_valid_for_any_readings(
        steps in proptest::collection::vec(
            (0_u64..500, proptest::collection::vec((0_u32..4, 0_u64..1000, 0_u64..1000), 0..5)), 1..12)
    ) {
        let mut observer = Observer::new("0-3".parse().unwrap());
        for (at_, (ms, threads)) in steps.iter().enumerate() {
            let threads = threads.iter().map(|&(id, run, wait)| read(id, run, wait)).collect();
            let news = if at_ == 0 { (0..3).map(info).collect() } else { Vec::new() };
            observer.take(&Sample { news, ..at(*ms, threads) }, &[]);
            let seen = observer.observation();
            for thread in &seen.threads {
                let Some(rates) = thread.rates else { continue };
                prop_assert!(rates.run.is_finite() && rates.run >= 0.0);
                prop_assert!(rates.wait.is_none_or(|wait| wait.is_finite() && wait >= 0.0));
                prop_assert!(at_ > 0 && rates.span > Span::ZERO);
                for metric in [Metric::RunWait, Metric::CpuShare] {
                    prop_assert!(rates.speed(metric).is_none_or(|speed| (0.0..=1.0).contains(&speed)));
                }
            }
        }
    }
}
