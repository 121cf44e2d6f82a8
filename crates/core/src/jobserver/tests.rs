//! Tests of the jobserver: words as the tools read them, and the upkeep against a model of builds.

use super::flags::{
    Jobs, WordChange, cargo_makeflags, jobs_of_make, makeflags, names_jobserver, stated_in_makeflags,
    stated_jobs,
};
use super::upkeep::{INTERVAL_MIN, LOST_SAMPLES, Sample, TokenChange, Upkeep, interval};
use super::{Form, TOKENS_MAX, tokens};
use crate::time::Span;
use proptest::prelude::*;

fn make(line: &str) -> Jobs {
    jobs_of_make(&line.split(' ').collect::<Vec<_>>())
}

fn change(at: usize, instead: Option<&str>) -> WordChange {
    WordChange { at, instead: instead.map(str::to_owned) }
}

#[test]
fn makes_own_numbers_are_read_as_make_reads_them() {
    for (line, own) in [
        ("make -j8", "-j8"),
        ("make -j 8 all", "-j 8"),
        ("make -kj4", "-kj4"),
        ("make -kj 4", "-kj 4"),
        ("make --jobs=3", "--jobs=3"),
        ("make --jobs 3", "--jobs 3"),
        ("make all -j2", "-j2"),
        ("make -j -j2", "-j2"),
        // An error of make, which stays one.
        ("make -jk", "-jk"),
    ] {
        assert_eq!(make(line), Jobs::Own(own.to_owned()), "{line}");
    }
}

#[test]
fn a_j_without_a_number_is_left_out_and_other_letters_stay() {
    for (line, changes) in [
        ("make -j", vec![change(1, None)]),
        ("make -j all", vec![change(1, None)]),
        ("make --jobs all", vec![change(1, None)]),
        ("make -ksj all", vec![change(1, Some("-ks"))]),
        ("make -C sub -j -k -j", vec![change(3, None), change(5, None)]),
    ] {
        assert_eq!(make(line), Jobs::Open(changes), "{line}");
    }
}

#[test]
fn words_that_only_look_like_jobs_are_none() {
    for line in [
        "make",
        "make all",
        "make -k",
        "make -C -j",
        "make -f -j",
        "make --file -j",
        "make -Cj",
        "make -Oj",
        "make -- -j",
        "make --just-print",
        "make V=-j",
    ] {
        assert_eq!(make(line), Jobs::Unsaid, "{line}");
    }
}

#[test]
fn ninja_and_cargo_state_jobs_with_a_value() {
    let stated = |line: &str| stated_jobs(&line.split(' ').collect::<Vec<_>>());
    for (line, own) in [
        ("ninja", None),
        ("ninja -C out -j4", Some("-j4")),
        ("ninja -j 4 all", Some("-j 4")),
        ("cargo build --jobs=2", Some("--jobs=2")),
        ("cargo build --jobs 2", Some("--jobs 2")),
        ("cargo +nightly test -j default", Some("-j default")),
        ("cargo test -- -j 4", None),
        ("cargo build --jobserver", None),
    ] {
        assert_eq!(stated(line).as_deref(), own, "{line}");
    }
}

#[test]
fn a_jobserver_is_written_behind_the_flags_and_before_the_variables() {
    for (users, value) in [
        ("", " -j4 --jobserver-auth=fifo:P"),
        ("ks", "ks -j4 --jobserver-auth=fifo:P"),
        (" --no-print-directory", " --no-print-directory -j4 --jobserver-auth=fifo:P"),
        ("k -- A=1 B=2", "k -j4 --jobserver-auth=fifo:P -- A=1 B=2"),
        (" -- A=1", " -j4 --jobserver-auth=fifo:P -- A=1"),
        ("-- A=1", " -j4 --jobserver-auth=fifo:P -- A=1"),
    ] {
        assert_eq!(makeflags(users, 3, "fifo:P"), value, "{users:?}");
        assert!(names_jobserver(value));
        assert_eq!(stated_in_makeflags(users), None);
    }
    assert_eq!(stated_in_makeflags("k -j8 -- X=1").as_deref(), Some("-j8"));
    assert_eq!(stated_in_makeflags("k -- X=-j8"), None);
    assert_eq!(stated_in_makeflags("k -- -j8"), None);
    assert!(!names_jobserver("kj -- A=x"));
    assert_eq!(cargo_makeflags("5,6"), "-j --jobserver-fds=5,6 --jobserver-auth=5,6");
    assert_eq!(Form::Fifo.auth(7, 600, 601), "fifo:/proc/7/fd/600");
    assert_eq!(Form::Pipe.auth(7, 600, 601), "600,601");
    assert_eq!([0, 1, 2, 64, 10_000].map(tokens), [0, 0, 1, 63, TOKENS_MAX]);
}

/// Tools that take tokens for their jobs, and jobs that compute with some threads or sleep.
struct Model {
    cores: u32,
    pipe: u32,
    /// Jobs with a token.
    jobs: u32,
    /// Jobs that are ready to begin.
    ready: u32,
    /// Jobs without a token: one of each tool.
    tools: u32,
    /// Computing threads of each job; 0: it sleeps.
    threads: u32,
    taken: u32,
    upkeep: Upkeep,
}

impl Model {
    fn new(cores: u32, tools: u32) -> Self {
        let upkeep = Upkeep::new(cores);
        let pipe = tokens(cores);
        Self { cores, pipe, jobs: 0, ready: u32::MAX, tools, threads: 1, taken: 0, upkeep }
    }

    /// One sample, and the changes that follow.
    fn step(&mut self) -> TokenChange {
        let begin = self.pipe.min(self.ready);
        self.pipe -= begin;
        self.jobs += begin;
        self.ready -= begin;
        let counts = self.upkeep.counts(self.pipe);
        let computing = counts.then(|| (self.jobs + self.tools) * self.threads);
        let change = self.upkeep.turn(Sample { unclaimed: self.pipe, computing, taken: self.taken });
        self.pipe += change.add;
        // Jobs end before the next sample, and the upkeep gets its share of their tokens.
        self.taken = change.take.min(self.jobs + self.pipe);
        let from_pipe = self.taken.min(self.pipe);
        self.pipe -= from_pipe;
        self.jobs -= self.taken - from_pipe;
        change
    }

    fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step();
        }
    }
}

#[test]
fn a_build_that_keeps_its_cores_busy_keeps_its_tokens() {
    for cores in [2, 3, 8, 64] {
        let mut model = Model::new(cores, 1);
        for _ in 0..100 {
            assert_eq!(model.step(), TokenChange::default());
        }
        assert_eq!(model.jobs, cores - 1);
    }
}

#[test]
fn a_lost_token_is_replaced_after_a_second_and_as_often_as_there_are_cores() {
    let mut model = Model::new(4, 1);
    model.steps(20);
    model.jobs -= 1; // The tool that held it was killed.
    model.steps(LOST_SAMPLES - 1);
    assert_eq!(model.jobs, 2, "too early");
    model.steps(LOST_SAMPLES);
    assert_eq!(model.jobs, 3);
    for _ in 0..20 {
        model.jobs = model.jobs.saturating_sub(1);
        model.steps(3 * LOST_SAMPLES);
    }
    assert_eq!(model.jobs, 0, "the fifth loss stays");
}

#[test]
fn jobs_that_sleep_let_others_run_and_the_tokens_lent_for_them_are_taken_back() {
    let mut model = Model::new(4, 1);
    model.threads = 0;
    model.steps(200);
    assert_eq!(model.jobs, 3 + 4, "as many as cores are lent");
    model.threads = 1;
    model.steps(200);
    assert!(model.jobs < 3 + 2, "{} jobs compute", model.jobs);
}

#[test]
fn tools_beside_the_first_and_jobs_with_many_threads_cost_tokens_until_they_end() {
    let mut model = Model::new(8, 4);
    model.steps(100);
    assert!(model.jobs + model.tools < 10, "{} jobs of 4 tools", model.jobs);
    model.tools = 1;
    model.steps(100);
    assert_eq!(model.jobs, 7);
    model.threads = 8;
    model.steps(100);
    assert_eq!(model.jobs, 0, "one job computes on all cores");
    model.threads = 1;
    model.steps(100);
    assert_eq!(model.jobs, 7);
}

#[test]
fn tokens_that_a_tool_adds_are_taken() {
    let mut model = Model::new(4, 1);
    model.ready = 0;
    model.pipe += 5;
    model.steps(2);
    assert_eq!(model.pipe, 3);
    model.ready = u32::MAX;
    model.steps(50);
    assert_eq!(model.jobs, 3);
}

#[test]
fn without_a_count_of_tasks_only_surplus_is_taken() {
    let mut upkeep = Upkeep::new(4);
    for unclaimed in 0..3 {
        assert_eq!(upkeep.turn(Sample { unclaimed, ..Sample::default() }), TokenChange::default());
    }
    assert_eq!(upkeep.turn(Sample { unclaimed: 5, ..Sample::default() }), TokenChange { add: 0, take: 2 });
    assert!(!Upkeep::new(1).counts(0) && Upkeep::new(2).counts(0) && !Upkeep::new(2).counts(1));
    assert_eq!(
        Upkeep::new(1).turn(Sample { computing: Some(9), ..Sample::default() }),
        TokenChange::default()
    );
    assert_eq!(interval(Span::from_us(10)), INTERVAL_MIN);
    assert_eq!(interval(Span::from_ms(4)), Span::from_ms(400));
}

proptest! {
    #[test]
    fn tokens_are_added_only_to_an_empty_pipe_and_never_exceed_twice_the_cores(
        cores in 1..70u32,
        steps in prop::collection::vec((0..200u32, 0..4u32, 0..3u32, any::<bool>()), 1..200),
    ) {
        let mut model = Model::new(cores, 1);
        for (ready, threads, tools, killed) in steps {
            (model.ready, model.threads, model.tools) = (ready, threads, tools);
            if killed {
                model.jobs = model.jobs.saturating_sub(1);
            }
            let before = model.pipe.saturating_sub(model.ready);
            let change = model.step();
            prop_assert!(change.add == 0 || before == 0);
            prop_assert!(change.add == 0 || change.take == 0);
            prop_assert!(model.pipe + model.jobs <= tokens(model.cores) + model.cores);
            // Jobs end now and then.
            let ended = model.jobs / 2;
            model.jobs -= ended;
            model.pipe += ended;
        }
    }
}
