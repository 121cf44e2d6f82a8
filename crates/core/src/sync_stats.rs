//! Synchronisation statistics: how often the threads of a program meet at barriers and collective
//! calls, and how long they wait there, as the shim counts it for its parent.
//!
//! Unit: nanoseconds. Problem: the time that a program works between two barriers decides the cost
//! of oversubscription, and only the program itself can observe it. But the program may be killed
//! at any time, may have many processes, and must not be slowed. Idea: parent and shims share one
//! page file of words. Each thread that synchronises takes a row of its own and is its only writer;
//! a reader adds the rows up, at any time. This module defines the meaning of each word, and both
//! sides use it.
//!
//! Counted are *synchronisations*: barriers, ends of parallel regions, and collective calls. An
//! *interval* goes from the end of one synchronisation (or the beginning of the region) to the end
//! of the next; one member of each team counts them, so that each interval counts once. A histogram
//! of 64 buckets, each longer than the one before by the root of two, from 128 ns on, keeps their
//! distribution; quantiles are therefore accurate to a fifth.
//!
//! *Workers* are threads that were active at the same time: a runtime may start the threads of an
//! inner team again for each region, thousands that lived one after another. A row holds the time
//! at which it was taken and the time at which its thread was last active; the largest number of
//! such spans that overlap counts.
//!
//! Properties: a file that makes no sense is not read; a row that is being written is at most one
//! synchronisation behind; missing is not zero.

use crate::place::runtimes::Runtime;
use crate::profile::Intervals;
use crate::time::Span;

/// Environment variable that names the page file to shims.
pub const VARIABLE: &str = "TRIMTAB_MEETINGS";
/// First word of a file of this form.
pub const MAGIC: u64 = 0x7472_696d_6d65_6574;
/// Words before the first row.
pub const HEADER: usize = 16;
/// Words per row.
pub const ROW: usize = 96;
/// Number of rows; threads beyond them are only counted. One more row lets shims measure the cost
/// of a record.
pub const ROWS: usize = 4096;
/// Length of the file in bytes.
pub const BYTES: usize = (HEADER + ROW * (ROWS + 1)) * 8;
/// Buckets of the histogram.
pub const BUCKETS: usize = 64;
/// Divisor of the longest thread's parallel time: threads with less than this part have no share of
/// waiting. Chosen: the same as for CPU time in profiles.
const TIME_OF_LONGEST_MIN: u64 = 20;
/// The first bucket ends at two to this power, in nanoseconds, times the root of two.
const FIRST_BUCKET_LOG2: u32 = 7;

/// Words of the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// Next row that is free.
    pub const NEXT_ROW: usize = 1;
    /// Cost of one record, in picoseconds.
    pub const RECORD_COST_PS: usize = 2;
    /// Number of processes that opened the file.
    pub const GUEST_COUNT: usize = 3;
}

/// Words of a row.
pub mod row {
    /// Process in the upper half, thread in the lower.
    pub const THREAD_ID: usize = 0;
    /// Number of synchronisations.
    pub const MEETING_COUNT: usize = 1;
    /// Time waited in synchronisations.
    pub const WAITED_NS: usize = 2;
    /// Time of parallel work and waiting together.
    pub const SPANNED_NS: usize = 3;
    /// Number of intervals that this thread counted for its team.
    pub const INTERVAL_COUNT: usize = 4;
    /// Sum of these intervals.
    pub const INTERVAL_SUM_NS: usize = 5;
    /// Calls of `sched_yield`.
    pub const YIELD_COUNT: usize = 6;
    /// Time at which the thread was last active, such as the end of its last
    /// synchronisation.
    pub const LAST_ACTIVE_NS: usize = 7;
    /// Start of the current wait; 0 if the thread does not wait.
    pub const ARRIVED_NS: usize = 8;
    /// Region that the thread joined: [`joined`](super::joined).
    pub const JOINED_REGION: usize = 9;
    /// End of the region that this thread closed last.
    pub const REGION_ENDED_NS: usize = 10;
    /// Runtimes that the thread's synchronisations used, as bits: [`bit`](super::bit).
    pub const RUNTIME_BITS: usize = 11;
    /// Number of records made, which is the cost of measuring.
    pub const RECORD_COUNT: usize = 12;
    /// Time at which the row was taken.
    pub const TAKEN_NS: usize = 13;
    /// Number of regions that this thread has opened; it numbers them from 1.
    pub const REGIONS_OPENED: usize = 14;
    /// Number of the region that this thread closed last.
    pub const REGION_CLOSED: usize = 15;
    /// The first bucket.
    pub const FIRST_BUCKET: usize = 16;
}

/// Encodes a region as its members note it: its number among those of the thread that opened it,
/// and that thread's row plus one.
pub const fn joined(region: u64, leader: u64) -> u64 {
    region << LEADER_BITS | leader
}

/// Decodes the region's number and the leader's row from [`joined`]; `None` for a thread that
/// joined none.
pub const fn region(joined: u64) -> Option<(u64, usize)> {
    match joined & ((1 << LEADER_BITS) - 1) {
        0 => None,
        leader => Some((joined >> LEADER_BITS, leader as usize - 1)),
    }
}

/// Bits for the row of a leader; enough for every row.
const LEADER_BITS: u32 = 16;

/// Returns the bit of a runtime.
pub const fn bit(runtime: Runtime) -> u64 {
    1 << runtime as u64
}

/// Returns the bucket of a time: one bucket begins at each power of two, and one at each root of
/// two times that.
pub const fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST_BUCKET_LOG2 {
        return 0;
    }
    let power = ns.ilog2();
    // 46341 / 32768 is the root of two.
    let upper = (ns >> (power - FIRST_BUCKET_LOG2)) as usize * 32768 >= 46341 << FIRST_BUCKET_LOG2;
    let at = 2 * (power - FIRST_BUCKET_LOG2) as usize + upper as usize;
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// Returns the geometric middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    2f64.powf(f64::from(FIRST_BUCKET_LOG2) + (bucket as f64 + 0.5) / 2.0)
}

/// Sum of the counts of the shims in all processes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SyncStats {
    /// Number of processes that counted.
    pub guests: u64,
    /// Largest number of threads that took part in synchronisations and were active at the same
    /// time.
    pub threads: u64,
    /// Number of threads for which there was no row.
    pub lost: u64,
    /// Runtimes that the synchronisations used.
    pub runtimes: Vec<Runtime>,
    /// Times between synchronisations.
    pub intervals: Option<Intervals>,
    /// Share of their parallel time that threads waited.
    pub waiting: Option<f64>,
    /// Lowest and highest share of waiting of a thread, among threads with at least a twentieth of
    /// the longest parallel time.
    pub waiting_between: Option<(f64, f64)>,
    /// Number of calls of `sched_yield`.
    pub yields: u64,
    /// Cost of the records of the thread that made most.
    pub cost: Option<Span>,
    /// Cost of one record, in nanoseconds.
    pub record_ns: Option<f64>,
}

/// Reads the page file; `None` if it has another form.
pub fn read(bytes: &[u8]) -> Option<SyncStats> {
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_ne_bytes))
        .collect::<Result<_, _>>()
        .ok()?;
    let head = words.get(..HEADER)?;
    if head[header::MAGIC] != MAGIC {
        return None;
    }
    let rows: Vec<&[u64]> = words[HEADER..].chunks_exact(ROW).collect();
    let taken = usize::try_from(head[header::NEXT_ROW]).unwrap_or(usize::MAX);
    let rows = rows.get(..taken.min(ROWS).min(rows.len()))?;
    let mut by = 0;
    let (mut sum, mut count, mut buckets) = (0u64, 0u64, [0u64; BUCKETS]);
    let (mut waited, mut spanned, mut yields, mut records) = (0u64, 0u64, 0u64, 0u64);
    let mut times: Vec<(u64, u64)> = Vec::new();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for row in rows {
        by |= row[row::RUNTIME_BITS];
        count = count.saturating_add(row[row::INTERVAL_COUNT]);
        sum = sum.saturating_add(row[row::INTERVAL_SUM_NS]);
        yields = yields.saturating_add(row[row::YIELD_COUNT]);
        records = records.max(row[row::RECORD_COUNT]);
        for (all, one) in buckets.iter_mut().zip(&row[row::FIRST_BUCKET..]) {
            *all = all.saturating_add(*one);
        }
        // A thread whose last region has ended may not have seen the end. The leader's row holds
        // the end until the leader closes another region.
        let arrived = row[row::ARRIVED_NS];
        let open = region(row[row::JOINED_REGION])
            .and_then(|(region, leader)| {
                rows.get(leader).filter(|leader| leader[row::REGION_CLOSED] == region)
            })
            .filter(|_| arrived != 0)
            .map_or(0, |leader| leader[row::REGION_ENDED_NS].saturating_sub(arrived));
        let (own, whole) =
            (row[row::WAITED_NS].saturating_add(open), row[row::SPANNED_NS].saturating_add(open));
        if whole > 0 {
            waited = waited.saturating_add(own.min(whole));
            spanned = spanned.saturating_add(whole);
            times.push((own.min(whole), whole));
            spans.push((row[row::TAKEN_NS], row[row::LAST_ACTIVE_NS].max(arrived.saturating_add(open))));
        }
    }
    let longest = times.iter().map(|(_, whole)| *whole).max().unwrap_or(0);
    let counts = times.iter().filter(|(_, whole)| whole.saturating_mul(TIME_OF_LONGEST_MIN) >= longest);
    let shares: Vec<f64> = counts.map(|(own, whole)| *own as f64 / *whole as f64).collect();
    let cost = (head[header::RECORD_COST_PS] > 0).then(|| head[header::RECORD_COST_PS] as f64 / 1e3);
    let least = shares.iter().copied().reduce(f64::min);
    Some(SyncStats {
        guests: head[header::GUEST_COUNT],
        threads: at_once(&spans),
        lost: head[header::NEXT_ROW].saturating_sub(ROWS as u64),
        runtimes: Runtime::all().filter(|runtime| by & bit(*runtime) != 0).collect(),
        intervals: intervals(count, sum, &buckets),
        waiting: Span(waited).share_of(Span(spanned)),
        waiting_between: least.zip(shares.iter().copied().reduce(f64::max)),
        yields,
        cost: cost.map(|ns| Span((ns * records as f64) as u64)),
        record_ns: cost,
    })
}

/// Returns the largest number of spans that overlap; spans that only touch do not overlap.
fn at_once(spans: &[(u64, u64)]) -> u64 {
    let mut edges: Vec<(u64, bool)> = Vec::with_capacity(2 * spans.len());
    for &(first, last) in spans {
        // The thread spent time in the span, so the span is not empty, whatever the row says.
        edges.extend([(first, true), (last.max(first.saturating_add(1)), false)]);
    }
    // At equal times, ends come before beginnings.
    edges.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, begins) in edges {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

fn intervals(count: u64, sum: u64, buckets: &[u64; BUCKETS]) -> Option<Intervals> {
    let all: u64 = buckets.iter().fold(0, |all, one| all.saturating_add(*one));
    if count == 0 || all == 0 {
        return None;
    }
    let quantile = |share: f64| {
        let mut left = (share * all as f64).ceil().max(1.0) as u64;
        let at = buckets.iter().position(|&here| {
            let found = here >= left;
            left = left.saturating_sub(here);
            found
        });
        Span(middle(at.unwrap_or(BUCKETS - 1)) as u64)
    };
    Some(Intervals {
        count,
        mean: Span(sum / count),
        median: quantile(0.5),
        tenth: quantile(0.1),
        ninetieth: quantile(0.9),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rows: &[&[(usize, u64)]]) -> Vec<u8> {
        let mut words = vec![0u64; HEADER + ROW * rows.len().max(4)];
        words[header::MAGIC] = MAGIC;
        words[header::NEXT_ROW] = rows.len() as u64;
        words[header::RECORD_COST_PS] = 50_000;
        for (at, row) in rows.iter().enumerate() {
            for (word, value) in *row {
                words[HEADER + at * ROW + word] = *value;
            }
        }
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn every_time_is_in_its_bucket() {
        let mut before = 0;
        for ns in (0..5_000_000u64).step_by(37).chain([u64::MAX, 1 << 38]) {
            let at = bucket(ns);
            if ns < 5_000_000 {
                assert!(at >= before, "{ns}");
                before = at;
            }
            if (1 << FIRST_BUCKET_LOG2..1 << 38).contains(&ns) {
                let off = ns as f64 / middle(at);
                assert!((0.83..1.2).contains(&off), "{ns} {off}");
            }
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn rows_are_added_up_and_the_last_regions_wait_is_the_leaders_to_say() {
        let leader: &[(usize, u64)] = &[
            (row::INTERVAL_COUNT, 4),
            (row::INTERVAL_SUM_NS, 4_000_000),
            (row::FIRST_BUCKET + bucket(1_000_000), 4),
            (row::WAITED_NS, 100),
            (row::SPANNED_NS, 4_000_000),
            (row::REGION_ENDED_NS, 9_000),
            (row::REGION_CLOSED, 7),
            (row::LAST_ACTIVE_NS, 9_000),
            (row::RUNTIME_BITS, bit(Runtime::Libgomp)),
            (row::RECORD_COUNT, 8),
        ];
        let member: &[(usize, u64)] = &[
            (row::JOINED_REGION, joined(7, 1)),
            (row::ARRIVED_NS, 5_000),
            (row::SPANNED_NS, 200_000),
            (row::YIELD_COUNT, 3),
        ];
        let met = read(&file(&[leader, member])).unwrap();
        let intervals = met.intervals.unwrap();
        assert_eq!((intervals.count, intervals.mean, met.yields), (4, Span(1_000_000), 3));
        assert!((830_000..1_200_000).contains(&intervals.median.0));
        assert_eq!((met.threads, met.lost, met.runtimes), (2, 0, vec![Runtime::Libgomp]));
        assert_eq!(met.waiting_between, Some((100.0 / 4_000_000.0, 4_000.0 / 204_000.0)));
        assert_eq!(met.cost, Some(Span(400)));
        // The leader has the times only of the region that it closed last.
        let member: &[(usize, u64)] =
            &[(row::JOINED_REGION, joined(6, 1)), (row::ARRIVED_NS, 5_000), (row::SPANNED_NS, 200_000)];
        let met = read(&file(&[leader, member])).unwrap();
        assert_eq!(met.waiting_between.map(|(least, _)| least), Some(0.0));
        // Threads that were hardly active have no share either.
        let brief: &[(usize, u64)] =
            &[(row::WAITED_NS, 199_000), (row::SPANNED_NS, 199_999), (row::LAST_ACTIVE_NS, 1)];
        let least = read(&file(&[leader, brief])).unwrap().waiting_between.unwrap();
        assert_eq!(least.0, least.1);
    }

    #[test]
    fn threads_that_were_there_one_after_another_are_not_counted_as_if_all_were_there_at_once() {
        let thread = |first: u64, last: u64| {
            vec![
                (row::TAKEN_NS, first),
                (row::LAST_ACTIVE_NS, last),
                (row::SPANNED_NS, (last - first).max(1)),
            ]
        };
        let count = |rows: &[Vec<(usize, u64)>]| {
            let rows: Vec<&[(usize, u64)]> = rows.iter().map(Vec::as_slice).collect();
            read(&file(&rows)).unwrap().threads
        };
        // Two leaders, each with one inner member after the other, as libgomp starts them.
        let mut rows = vec![thread(1, 100_000), thread(2, 100_000)];
        for at in 0..500 {
            rows.extend([thread(10 + 100 * at, 110 + 100 * at), thread(50 + 100 * at, 120 + 100 * at)]);
        }
        assert_eq!(count(&rows), 4);
        // One thread ends as the next begins.
        assert_eq!(count(&[thread(5, 9), thread(9, 12), thread(12, 13)]), 1);
        // A row without the time at which it was taken counts from the beginning; a row that spans
        // no time is not a thread.
        assert_eq!(
            count(&[vec![(row::LAST_ACTIVE_NS, 50), (row::SPANNED_NS, 1)], thread(7, 8), thread(9, 10)]),
            2
        );
        assert_eq!(count(&[thread(1, 9), vec![(row::TAKEN_NS, 2), (row::LAST_ACTIVE_NS, 8)]]), 1);
        // The oracle: the largest number of spans at any moment, in the smallest steps.
        let mut seed = 1u64;
        let mut number = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let spans: Vec<(u64, u64)> = (0..number(20))
                .map(|_| {
                    let first = 1 + number(40);
                    (first, first + 1 + number(15))
                })
                .collect();
            let there = |at: u64| spans.iter().filter(|(first, last)| *first <= at && at < *last).count();
            let most = (0..60).map(there).max().unwrap_or(0);
            let rows: Vec<_> = spans.iter().map(|(first, last)| thread(*first, *last)).collect();
            assert_eq!(count(&rows), most as u64, "{spans:?}");
        }
    }

    #[test]
    fn a_region_is_read_as_it_was_noted() {
        for (number, leader) in [(0, 1), (1, ROWS as u64), (u64::MAX >> LEADER_BITS, 17)] {
            assert_eq!(region(joined(number, leader)), Some((number, leader as usize - 1)));
        }
        assert_eq!(region(0), None);
    }

    #[test]
    fn missing_counts_are_not_zero() {
        let met = read(&file(&[])).unwrap();
        assert_eq!((met.intervals, met.waiting, met.runtimes), (None, None, vec![]));
        assert_eq!(read(b"not a page file of meetings"), None);
        assert_eq!(read(&[0; 4096]), None);
        // More rows are taken than the file has, and a leader's row does not exist.
        let odd: &[(usize, u64)] = &[(row::JOINED_REGION, u64::MAX), (row::ARRIVED_NS, 1)];
        let mut bytes = file(&[odd]);
        bytes[header::NEXT_ROW * 8..header::NEXT_ROW * 8 + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(read(&bytes).unwrap().lost > 0);
    }
}
