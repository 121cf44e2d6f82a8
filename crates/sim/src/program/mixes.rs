//! Programs that studies ran together, by name: list walks, array sweeps, hogs, compilations.

use super::{Bind, Body, Footprint, PagePlacement, ProgramSpec, WaitMode};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

/// Steps of a list per microsecond of work: a step alone takes about five nanoseconds, for an
/// addition and a hit.
const STEPS_PER_US: f64 = 200.0;

/// Returns a walk through a random list of this size: each step needs the previous one. This is the
/// private part of the micro-benchmark of seed 002.
pub fn walk(bytes: u64) -> Footprint {
    Footprint { working_set: bytes, misses: STEPS_PER_US, parallelism: 1.0, ..Footprint::default() }
}

/// Returns the micro-benchmark of seed 002: threads walk private random lists, and in `share` of
/// all steps add to lines that all of them share.
pub fn micro(threads: u32, work: Span, private: u64, shared: u64, share: f64) -> ProgramSpec {
    let mut program = ProgramSpec::spmd("micro", threads, work, WaitMode::Spin);
    let private = if private > 0 { walk(private) } else { Footprint::default() };
    program.footprint = Footprint { shared, shared_writes: STEPS_PER_US * share, ..private };
    program
}

/// A sweep over arrays far larger than any cache, with as many misses outstanding as the core can
/// have: STREAM's triad.
pub const STREAM: Footprint = Footprint {
    working_set: 1 << 30,
    misses: 1000.0,
    parallelism: 64.0,
    locality: 8.0,
    shared: 0,
    shared_writes: 0.0,
    pages: PagePlacement::FirstTouch,
};

/// Returns teams of `inner` threads, one for each of `outer`, that sweep arrays of their own:
/// nested STREAM of seed 004. `places` are the CPUs of all threads, team by team; if it is `None`,
/// the kernel places the threads.
pub fn nested_stream(
    outer: u32,
    inner: u32,
    regions: u32,
    work: Span,
    places: Option<Vec<CpuSet>>,
) -> ProgramSpec {
    let mut program = ProgramSpec::spmd("stream", outer, Span::ZERO, WaitMode::Spin);
    program.body = Body::Nested { inner, regions, work };
    program.footprint = STREAM;
    program.bind = places.map_or(Bind::Free, |places| Bind::List(places.into()));
    program
}

/// Returns `make -j`: `at_once` compilations at a time of 200 ms on average (estimated: a file of C
/// of some thousand lines), without end.
pub fn make(at_once: u32) -> ProgramSpec {
    ProgramSpec {
        body: Body::Churn { at_once, work: Span::from_ms(200), jobs: None },
        footprint: Footprint { working_set: 4 << 20, misses: 4.0, parallelism: 2.0, ..Footprint::default() },
        ..ProgramSpec::hog("make", at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_with_nothing_private_only_shares() {
        let program = micro(4, Span::from_ms(10), 0, 64, 1.0);
        assert_eq!((program.footprint.working_set, program.footprint.misses), (0, 0.0));
        assert_eq!((program.footprint.shared, program.footprint.shared_writes), (64, STEPS_PER_US));
    }

    #[test]
    fn jobs_of_a_make_are_not_balanced() {
        assert!(!make(8).balanced && make(8).threads == 8);
        assert_eq!(nested_stream(4, 4, 2, Span::from_ms(1), None).bind, Bind::Free);
    }
}
