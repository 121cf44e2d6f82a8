//! Hardware counters by thread, from the first to the last sample: a view of the [`Accumulator`].
//!
//! Properties: a thread that only one sample read has CPU time, but no counts. A thread that ended
//! stays, with its last readings.

use super::accumulator::{Accumulator, ThreadTotals};
use crate::counts::Counts;
use crate::time::Span;

/// Length of the list. The threads that ran least are left out. Chosen: a longer list would not be
/// read.
const THREADS_MAX: usize = 8_192;

/// Hardware counters of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct CounterTotals {
    /// Process of the thread.
    pub pid: u32,
    /// Thread number of the kernel.
    pub tid: u32,
    /// Name, printable.
    pub name: String,
    /// CPU time from the first to the last sample of the thread.
    pub ran: Span,
    /// Counts of the thread, if it was counted.
    pub counts: Option<Counts>,
}

/// Returns the threads that ran, longest-running first.
pub fn threads(totals: &Accumulator) -> Vec<CounterTotals> {
    let of = |thread: &ThreadTotals| {
        let ran = thread.totals.run.less(thread.first_run);
        let counts = thread.counts.and_then(|(first, last)| last.since(&first));
        (ran > Span::ZERO || counts.is_some()).then(|| CounterTotals {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            ran,
            counts,
        })
    };
    let mut threads: Vec<CounterTotals> = totals.threads.values().filter_map(of).collect();
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.ran), thread.tid));
    threads.truncate(THREADS_MAX);
    threads
}

/// Returns the misses of the last-level cache per 1,000 instructions, over all threads; `None` if
/// they were not counted.
pub fn misses_per_kilo(totals: &Accumulator) -> Option<f64> {
    let threads = totals.threads.values().filter_map(|thread| thread.misses);
    let (misses, instructions) = threads
        .fold(totals.folded.misses, |sums, one| (sums.0.saturating_add(one.0), sums.1.saturating_add(one.1)));
    (instructions > 0).then(|| 1e3 * misses as f64 / instructions as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ProgramId, ThreadId};
    use crate::observe::{Sample, ThreadInfo, ThreadSample};
    use crate::set::CpuSet;

    fn info(id: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            pid: 7,
            tid: 10 + id,
            name: "x".into(),
            home: CpuSet::new(),
            left: None,
            tagged: false,
        }
    }

    /// Thread; CPU time; and, if counted, the counted time and the busy cycles.
    type Read = (u32, u64, Option<(u64, u64)>);

    fn sample(reads: &[Read]) -> Sample {
        let read = |(id, run, busy): &Read| ThreadSample {
            id: ThreadId(*id),
            run: Span(*run),
            wait: None,
            slices: None,
            voluntary: None,
            cpu: None,
            ready: None,
            counts: busy.map(|(running, busy)| Counts {
                enabled: Span(running),
                running: Span(running),
                busy: Some(busy),
                requests: Some(busy / 100),
                ..Counts::default()
            }),
        };
        Sample {
            news: reads.iter().map(|(id, ..)| info(*id)).collect(),
            threads: reads.iter().map(read).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_total_is_the_last_count_minus_the_first() {
        let mut totals = Accumulator::default();
        totals.add(&sample(&[(0, 100, Some((10, 1_000))), (1, 5, None), (2, 9, Some((1, 1)))]));
        totals.add(&sample(&[(0, 150, None), (1, 95, None)]));
        totals.add(&sample(&[(0, 160, Some((40, 5_000))), (2, 9, None)]));
        let threads = threads(&totals);
        assert_eq!(
            threads.iter().map(|thread| (thread.tid, thread.ran.0)).collect::<Vec<_>>(),
            [(11, 90), (10, 60)]
        );
        let counts = threads[1].counts.unwrap();
        assert_eq!((counts.running, counts.busy, counts.penalty()), (Span(30), Some(4_000), Some(100.0)));
        assert_eq!((threads[0].counts, counts.share()), (None, None), "missing is not zero");
    }

    #[test]
    fn restarted_counters_are_not_mistaken_for_the_same() {
        let mut totals = Accumulator::default();
        totals.add(&sample(&[(0, 100, Some((10, 1_000)))]));
        totals.add(&sample(&[(0, 200, Some((5, 100)))]));
        assert_eq!(threads(&totals)[0].counts, None);
        totals.add(&sample(&[(0, 300, Some((25, 600)))]));
        assert_eq!(threads(&totals)[0].counts.unwrap().busy, Some(500));
    }

    #[test]
    fn misses_are_of_all_threads_together() {
        let read = |id: u32, misses: u64, instructions: Option<u64>| ThreadSample {
            id: ThreadId(id),
            run: Span(1),
            wait: None,
            slices: None,
            voluntary: None,
            cpu: None,
            ready: None,
            counts: Some(Counts { llc_misses: Some(misses), instructions, ..Counts::default() }),
        };
        let mut totals = Accumulator::default();
        assert_eq!(misses_per_kilo(&totals), None, "nothing was counted");
        let news = vec![info(0), info(1)];
        totals.add(&Sample {
            news,
            threads: vec![read(0, 1, Some(500)), read(1, 4, None)],
            ..Sample::default()
        });
        totals.add(&Sample { threads: vec![read(0, 3, Some(1_000))], ..Sample::default() });
        assert_eq!(misses_per_kilo(&totals), Some(3.0));
        let threads = vec![read(0, 3, None), read(1, 5, Some(1_000))];
        totals.add(&Sample { threads, ..Sample::default() });
        assert_eq!(misses_per_kilo(&totals), Some(4.0), "8 misses in 2,000 instructions");
    }
}
