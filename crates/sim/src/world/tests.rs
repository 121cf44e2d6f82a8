//! Tests of small cases with exact results, worked out by hand, and of invariants of all worlds.

use super::*;
use crate::kernel::Kernel;
use crate::program::{Bind, Body, Footprint, ProgramSpec, WaitMode};
use crate::progress::MemoryCounts;
use trimtab_core::ids::NodeId;
use trimtab_core::time::Span;
use trimtab_core::topology::parse_synthetic;

const MS: u64 = 1_000_000;

fn machine(text: &str) -> Model {
    Model::plain(parse_synthetic(text).unwrap()).free()
}

fn cores(count: usize) -> Model {
    machine(&format!("numa:1 l3:1 core:{count} pu:1"))
}

fn world(model: Model, kernel: &str, programs: Vec<ProgramSpec>) -> World {
    let kernel = Kernel::preset(kernel, model.machine.pu_count()).unwrap();
    World::new(model, &kernel, programs, 1)
}

fn ended(model: Model, kernel: &str, programs: Vec<ProgramSpec>) -> World {
    let mut world = world(model, kernel, programs);
    world.run(Moment(3_600_000 * MS));
    assert!(world.over());
    world
}

fn spmd(threads: u32, ms: u64, wait: WaitMode) -> ProgramSpec {
    ProgramSpec::spmd("spmd", threads, Span::from_ms(ms), wait)
}

fn took(world: &World, program: usize) -> u64 {
    world.makespan(program).unwrap().0
}

#[test]
fn a_thread_alone_takes_its_work() {
    for kernel in Kernel::PRESETS {
        assert_eq!(took(&ended(cores(1), kernel, vec![spmd(1, 70, WaitMode::Spin)]), 0), 70 * MS, "{kernel}");
        assert_eq!(
            took(&ended(cores(2), kernel, vec![spmd(2, 70, WaitMode::Sleep)]), 0),
            70 * MS,
            "{kernel}"
        );
    }
}

#[test]
fn threads_of_one_cpu_share_it() {
    for kernel in Kernel::PRESETS {
        for wait in [WaitMode::Sleep, WaitMode::Yield] {
            let world = ended(cores(1), kernel, vec![spmd(3, 300, wait)]);
            // Yielding as a hint, or on CPUs with time accounting, costs the others something.
            let most = if wait == WaitMode::Sleep { 900 * MS } else { 1_250 * MS };
            let took = took(&world, 0);
            assert!((900 * MS..=most).contains(&took), "{kernel} {wait:?} {took}");
        }
    }
}

#[test]
fn context_switches_and_wakes_cost_the_times_of_the_machine() {
    let mut model = cores(1);
    model.switching.switch = Span::from_us(7);
    let world = ended(model, "linux-6.12", vec![spmd(1, 10, WaitMode::Spin)]);
    assert_eq!(took(&world, 0), 10 * MS + 7_000);
}

#[test]
fn slow_cores_take_longer() {
    let mut model = cores(2);
    model.speeds = vec![1.0, 0.5];
    let world = ended(model, "pinned", vec![spmd(2, 10, WaitMode::Sleep)]);
    assert_eq!(took(&world, 0), 20 * MS);
}

#[test]
fn hardware_threads_share_their_core() {
    // Two on one core: 1.25 in all, 0.625 each, so 10 ms take 16.
    let world = ended(machine("core:1 pu:2"), "linux-6.12", vec![spmd(2, 10, WaitMode::Sleep)]);
    assert_eq!(took(&world, 0), 16 * MS);
    // Of unequal ones, the longer runs alone for the rest: 5 ms of work take 8, its other 10 take
    // 10.
    let mut program = spmd(2, 10, WaitMode::Sleep);
    program.body = Body::Spmd { work: Span::from_ms(10), interval: None, imbalance: 0.5, jitter: 0.0 };
    let world = ended(machine("core:1 pu:2"), "linux-6.12", vec![program]);
    assert_eq!(took(&world, 0), 18 * MS);
}

#[test]
fn fewer_busy_cores_are_faster() {
    let mut model = cores(2);
    model.turbo.factors = vec![2.0, 1.0];
    let mut program = spmd(2, 10, WaitMode::Sleep);
    program.body = Body::Spmd { work: Span::from_ms(10), interval: None, imbalance: 0.5, jitter: 0.0 };
    // 5 and 15 ms: both at 1 for 5 ms, then one at 2 for 10 ms of work.
    assert_eq!(took(&ended(model, "linux-6.12", vec![program]), 0), 10 * MS);
}

#[test]
fn barriers_wait_for_the_last() {
    for wait in [WaitMode::Spin, WaitMode::Yield, WaitMode::Sleep, WaitMode::SpinThenSleep(Span::from_us(50))]
    {
        let mut program = spmd(4, 100, wait).every(Span::from_ms(10));
        if let Body::Spmd { imbalance, .. } = &mut program.body {
            *imbalance = 0.2;
        }
        let world = ended(cores(4), "linux-6.12", vec![program]);
        assert_eq!(took(&world, 0), 120 * MS, "{wait:?}");
        assert_eq!(world.counters().barriers, 10);
        let sleeps: u64 = world.roster.iter().map(|thread| thread.sleeps).sum();
        assert_eq!(sleeps, if matches!(wait, WaitMode::Spin | WaitMode::Yield) { 0 } else { 30 }, "{wait:?}");
        // A polling thread is busy all the time; a sleeping one only while it computes.
        let busy: u64 = (0..world.cpus()).map(|cpu| world.clocks.busy(cpu)).sum();
        let expected = match wait {
            WaitMode::Spin | WaitMode::Yield => 480 * MS,
            WaitMode::Sleep => 400 * MS,
            WaitMode::SpinThenSleep(_) => 400 * MS + 30 * 50_000,
        };
        // Segments that are not whole nanoseconds end within one.
        assert!(busy.abs_diff(expected) <= 40, "{wait:?} {busy}");
    }
}

#[test]
fn nested_teams_wait_for_their_own_and_then_for_all() {
    let mut program = spmd(2, 0, WaitMode::Sleep);
    program.body = Body::Nested { inner: 3, regions: 4, work: Span::from_ms(5) };
    let world = ended(cores(6), "linux-6.12", vec![program]);
    assert_eq!(took(&world, 0), 20 * MS);
    assert_eq!((world.counters().barriers, world.roster.len()), (2 * 4 + 1, 6));
}

#[test]
fn a_hog_with_duty_works_its_part() {
    let mut hog = ProgramSpec::hog("hog", 1);
    hog.body = Body::Hog { duty: Some((Span::from_ms(3), Span::from_ms(7))) };
    let world = ended(cores(2), "linux-6.12", vec![spmd(1, 1000, WaitMode::Spin), hog]);
    let run = world.thread(1).run;
    assert!((298 * MS..=302 * MS).contains(&run.0), "{run}");
}

#[test]
fn a_churn_ends_when_its_jobs_do() {
    let mut churn = spmd(0, 0, WaitMode::Sleep);
    churn.body = Body::Churn { at_once: 4, work: Span::from_ms(5), jobs: Some(100) };
    let world = ended(cores(2), "linux-6.12", vec![churn]);
    let counters = world.counters();
    assert_eq!(world.programs().next().unwrap().born, 100);
    assert!(world.roster.len() <= 4, "numbers are used again");
    assert!((counters.done - counters.asked).abs() < 100.0);
    // Nothing is lost: two cores, busy except for the last jobs.
    assert!(took(&world, 0) as f64 * 2.0 < counters.asked * 1.2);
}

#[test]
fn a_thread_that_may_not_move_stays() {
    let zero = "0".parse().unwrap();
    let world = ended(cores(2), "linux-6.12", vec![spmd(2, 50, WaitMode::Sleep).on(zero)]);
    assert_eq!(took(&world, 0), 100 * MS);
    let bound = spmd(3, 50, WaitMode::Sleep).bound(Bind::Close);
    assert_eq!(took(&ended(cores(2), "linux-6.12", vec![bound]), 0), 100 * MS);
}

#[test]
fn threads_begin_on_the_least_loaded_cpus_of_their_sets_and_may_leave_them() {
    // Of "pinned" threads stay where they begin.
    let sets = |sets: &[&str]| sets.iter().map(|set| set.parse().unwrap()).collect();
    let program = |places: &[&str]| spmd(4, 50, WaitMode::Sleep).bound(Bind::BeginOn(sets(places)));
    for seed in 0..20 {
        let of = |program| {
            let kernel = Kernel::preset("pinned", 4).unwrap();
            let mut world = World::new(cores(4), &kernel, vec![program], seed);
            world.run(Moment(MS));
            world.threads().map(|thread| thread.cpu.0).collect::<Vec<_>>()
        };
        let crowded = of(program(&["0", "0", "0", "0-1"]));
        assert_eq!(crowded, [0, 0, 0, 1], "seed {seed}");
        let mut spread = of(program(&["0-3"]));
        spread.sort_unstable();
        assert_eq!(spread, [0, 1, 2, 3], "seed {seed}");
    }
    // Under Linux they are free to leave.
    let world = ended(cores(4), "linux-6.12", vec![program(&["0"])]);
    assert!(took(&world, 0) < 100 * MS, "{}", took(&world, 0));
}

#[test]
fn programs_start_when_they_say() {
    let mut late = spmd(1, 10, WaitMode::Spin);
    late.start = Moment(33 * MS);
    let world = ended(cores(1), "linux-6.12", vec![late]);
    assert_eq!((took(&world, 0), world.now()), (10 * MS, Moment(43 * MS)));
}

#[test]
fn lost_cpus_are_left_and_found_again() {
    let mut world = world(cores(4), "linux-6.12", vec![spmd(4, 100, WaitMode::Sleep)]);
    world.run(Moment(20 * MS));
    world.set_usable(&"0".parse().unwrap());
    for thread in world.threads() {
        assert_eq!(thread.cpu.0, 0);
    }
    world.run(Moment(60 * MS));
    world.set_usable(&"0-3".parse().unwrap());
    world.run(Moment(3_600_000 * MS));
    // 320 ms of work are left at 20 ms; 40 of them are done on one CPU until 60.
    assert!(world.over());
    let took = took(&world, 0);
    assert!((130 * MS..170 * MS).contains(&took), "{took}");
}

#[test]
fn a_stopped_program_is_over() {
    let mut world =
        world(cores(2), "linux-6.12", vec![spmd(4, 100, WaitMode::Spin), ProgramSpec::hog("hog", 3)]);
    world.run(Moment(10 * MS));
    world.stop(1);
    world.stop(0);
    assert!(world.over());
    assert!(world.loads().all(|(_, load)| load == 0));
}

/// Returns a machine and programs with something of everything.
fn mixture(kernel: &str, seed: u64) -> World {
    let model = Model::plain(parse_synthetic("pack:2 numa:1 l3:2 core:3 pu:2").unwrap());
    let kernel = Kernel::preset(kernel, 24).unwrap();
    let mut busy = spmd(17, 300, WaitMode::Yield).every(Span::from_ms(7));
    if let Body::Spmd { jitter, imbalance, .. } = &mut busy.body {
        (*jitter, *imbalance) = (0.1, 0.1);
    }
    let mut nested = spmd(3, 0, WaitMode::SpinThenSleep(Span::from_us(100)));
    nested.body = Body::Nested { inner: 4, regions: 30, work: Span::from_ms(5) };
    let mut churn = spmd(0, 0, WaitMode::Sleep);
    churn.body = Body::Churn { at_once: 6, work: Span::from_ms(3), jobs: Some(300) };
    let mut hog = ProgramSpec::hog("hog", 2);
    hog.body = Body::Hog { duty: Some((Span::from_ms(5), Span::from_ms(3))) };
    let bound = spmd(5, 200, WaitMode::Spin).every(Span::from_ms(3)).bound(Bind::Spread);
    World::new(model, &kernel, vec![busy, nested, churn, hog, bound], seed)
}

#[test]
fn time_and_work_are_conserved() {
    for kernel in Kernel::PRESETS {
        let mut world = mixture(kernel, 3);
        let mut at = 0;
        while !world.over() {
            at += 13 * MS;
            assert!(at < 100_000 * MS, "{kernel} never ends");
            world.run(Moment(at));
            let now = world.now();
            let busy: Span = world.busy().map(|(_, busy)| busy).sum();
            assert!(busy.0 <= now.0 * 24);
            // Runnable threads are either on a CPU or in one queue; a CPU with a non-empty queue
            // runs a thread.
            for cpu in 0..24 {
                let seat = &world.seats.cpus[cpu];
                assert!(seat.queue.is_empty() || seat.current != u32::MAX, "{kernel} at {now:?}");
                let movable =
                    seat.queue.iter().filter(|&&task| !world.seats.tasks[task as usize].single).count();
                let eager =
                    seat.queue.iter().filter(|&&task| !world.seats.tasks[task as usize].passive).count();
                assert_eq!((seat.movable as usize, seat.eager as usize), (movable, eager));
                assert_eq!(world.seats.domains.all[cpu].load as usize, world.seats.load(cpu));
            }
            for thread in world.threads() {
                assert!(thread.done <= thread.asked + 1.0);
                let queued = matches!(thread.activity, Activity::Over | Activity::Asleep);
                assert!(queued || thread.mask.contains(thread.cpu), "{kernel}: {thread:?}");
            }
        }
        for cpu in 0..24 {
            world.settle(cpu);
        }
        let counters = world.counters();
        assert!((counters.done - counters.asked).abs() < 1e-6 * counters.asked, "{kernel}: {counters:?}");
    }
}

#[test]
fn cpus_that_go_offline_and_online_lose_no_thread() {
    for kernel in Kernel::PRESETS {
        for seed in 0..4 {
            let (mut world, mut rng) = (mixture(kernel, seed), Rng::new(seed));
            let mut at = 0;
            while !world.over() {
                at += 1 + rng.below(40 * MS);
                assert!(at < 100_000 * MS, "{kernel} {seed} never ends");
                world.run(Moment(at));
                let first = rng.below(24);
                let last = first + rng.below(24 - first);
                world.set_usable(&format!("{first}-{last}").parse().unwrap());
                for (cpu, load) in world.loads() {
                    let inside = (first..=last).contains(&u64::from(cpu.0));
                    assert!(inside || load == 0, "{kernel} {seed} at {at}: {load} on {cpu}");
                }
            }
            let counters = world.counters();
            assert!((counters.done - counters.asked).abs() < 1e-6 * counters.asked, "{kernel}: {counters:?}");
        }
    }
}

#[test]
fn run_times_add_up_to_busy_times() {
    let mut programs =
        vec![spmd(7, 100, WaitMode::Yield).every(Span::from_ms(5)), ProgramSpec::hog("hog", 1)];
    programs[0].body = Body::Spmd {
        work: Span::from_ms(100),
        interval: Some(Span::from_ms(5)),
        imbalance: 0.3,
        jitter: 0.2,
    };
    for kernel in Kernel::PRESETS {
        let world = ended(cores(3), kernel, programs.clone());
        let run: Span = world.threads().map(|thread| thread.run).sum();
        let busy: Span = world.busy().map(|(_, busy)| busy).sum();
        assert_eq!(run, busy, "{kernel}");
        // Run time and wait time of a thread never exceed the elapsed time.
        for thread in world.threads() {
            assert!(thread.run + thread.wait <= world.now().since(Moment(0)), "{kernel}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let state = |kernel, seed| {
        let mut world = mixture(kernel, seed);
        world.run(Moment(200 * MS));
        let threads: Vec<_> = world.threads().collect();
        (format!("{threads:?}"), world.counters())
    };
    for kernel in Kernel::PRESETS {
        assert!(state(kernel, 4) == state(kernel, 4), "{kernel}");
        assert!(state(kernel, 4) != state(kernel, 5), "{kernel}");
    }
}

/// Memory model that halves the rate of all computing threads in every second millisecond.
#[derive(Debug, Default)]
struct Waves {
    on: Vec<usize>,
    slow: bool,
    at: u64,
}

impl Progress for Waves {
    fn born(&mut self, _: Moment, _: usize, _: usize, _: &Footprint) {}
    fn on_cpu(&mut self, now: Moment, thread: usize, _: Pu) {
        assert!(!self.on.contains(&thread), "on twice");
        self.on.push(thread);
        self.at = self.at.max(now.0 / MS * MS + MS);
    }
    fn off_cpu(&mut self, _: Moment, thread: usize) {
        let at = self.on.iter().position(|&other| other == thread).expect("it was on a CPU");
        self.on.remove(at);
    }
    fn ended(&mut self, _: Moment, thread: usize) {
        assert!(!self.on.contains(&thread), "ended on a CPU");
    }
    fn rate(&self, _: usize) -> f64 {
        if self.slow { 0.5 } else { 1.0 }
    }
    fn next(&self) -> Option<Moment> {
        (!self.on.is_empty()).then_some(Moment(self.at))
    }
    fn epoch(&mut self, now: Moment, changed: &mut Vec<usize>) {
        self.slow = !self.slow;
        self.at = now.0 + MS;
        changed.extend(&self.on);
    }
    fn counts(&self, _: Moment, _: usize) -> MemoryCounts {
        MemoryCounts::default()
    }
    fn fetch(&mut self, _: Moment, _: usize, _: NodeId) -> Span {
        Span::ZERO
    }
}

#[test]
fn memory_slows_threads_down_and_is_told_which_threads_compute() {
    let kernel = Kernel::preset("linux-6.12", 2).unwrap();
    let mut program = spmd(2, 9, WaitMode::Spin).every(Span::from_ms(3));
    program.footprint.misses = 1.0;
    let mut world = World::with(cores(2), &kernel, vec![program], 1, Waves::default());
    world.run(Moment(1000 * MS));
    // 1 and 0.5 ms of work in turn: 9 ms take 12.
    assert_eq!(world.makespan(0), Some(Span::from_ms(12)));
    assert!(world.progress().on.is_empty());
}

#[test]
fn barriers_may_be_more_than_four_thousand_million() {
    let mut program = spmd(1, 0, WaitMode::Spin);
    let (work, interval) = (Span::from_ms(360_000_000), Some(Span::from_us(1)));
    program.body = Body::Spmd { work, interval, imbalance: 0.0, jitter: 0.0 };
    let mut world = world(cores(1), "linux-6.12", vec![program]);
    world.run(Moment(0));
    // The first has begun.
    assert_eq!(world.roster[0].segments, 360_000_000_000 - 1);
}

#[test]
fn threads_count_in_full_from_the_moment_at_which_weights_matter() {
    let other = ProgramSpec { weight: 15, start: Moment(100 * MS), ..spmd(1, 900, WaitMode::Spin) };
    let mut world = world(cores(2), "linux-6.12", vec![spmd(3, 900, WaitMode::Spin), other]);
    world.run(Moment(99 * MS));
    assert!(!world.seats.uneven);
    world.run(Moment(101 * MS));
    assert!(world.seats.uneven);
    for task in 0..3 {
        let burden = world.seats.burden_of(task, world.timeline.now());
        assert!((burden - 1.0).abs() < 1e-9, "{burden}");
    }
}

#[test]
fn programs_start_in_time_and_in_order_after_any_order_of_adding() {
    let starts = [7, 3, 7, 0, 3, 9, 0_u64];
    let programs: Vec<ProgramSpec> = starts
        .iter()
        .map(|ms| ProgramSpec { start: Moment(ms * MS), ..spmd(1, 20, WaitMode::Sleep) })
        .collect();
    let together = world(cores(2), "linux-6.12", programs.clone());
    let mut apart = world(cores(2), "linux-6.12", Vec::new());
    for program in programs {
        apart.add(program);
    }
    let order: Vec<u32> = together.agenda.due().iter().rev().map(|&(_, at)| at).collect();
    assert_eq!(order, [3, 6, 1, 4, 0, 2, 5]);
    assert_eq!(apart.agenda.due(), together.agenda.due());
}
