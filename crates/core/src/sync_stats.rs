//! Synchronisation statistics: how often the threads of a program meet at barriers and collective calls, and how long they wait there, as the
//! preload library counts it for its parent.
//!
//! Unit: nanoseconds. Problem: how long a program works between two barriers decides what oversubscription costs it, and only inside
//! the program can that be seen; but the program may be killed at any time, has any number of processes, and must not be slowed.
//! Idea: one page file of words that parent and guests share. Each thread that meets others takes a row of its own and is its only
//! writer; who reads adds rows up, at any time. This module says what each word means, and both sides use it.
//!
//! A *meeting* is a barrier, the end of a parallel region, or a collective call. An *interval* goes from the end of one meeting (or the
//! beginning of the region) to the end of the next; one member of each team counts them, so that none counts twice. A histogram of
//! 64 buckets, each longer by the root of two, from 128 ns on, keeps their spread; quantiles are therefore good to a fifth.
//!
//! *Workers* are threads that were at it at the same time: a runtime may start the threads of an inner team anew for each region, thousands that lived
//! one after another. A row says when it was taken and when its thread was last at it; the greatest number of such spans that overlap counts.
//!
//! Properties: what makes no sense is not read; a row that is being written is at worst one meeting behind; missing is not zero.

use crate::place::runtimes::Runtime;
use crate::profile::Intervals;
use crate::time::Span;

/// The variable that names the page file to guests.
pub const VARIABLE: &str = "TRIMTAB_MEETINGS";
/// What the first word says: a file of this form.
pub const MAGIC: u64 = 0x7472_696d_6d65_6574;
/// Words before the first row.
pub const HEADER: usize = 16;
/// Words of a row.
pub const ROW: usize = 96;
/// Rows; threads beyond them are only counted. One more is there for guests to find out what a record costs.
pub const ROWS: usize = 4096;
/// The file's length.
pub const BYTES: usize = (HEADER + ROW * (ROWS + 1)) * 8;
/// Buckets of the histogram.
pub const BUCKETS: usize = 64;
/// The share of waiting is told of threads whose parallel time is at least one part in so many of the longest thread's. Chosen: as of CPU time
/// in profiles.
const TIME_OF_LONGEST_MIN: u64 = 20;
/// The first bucket ends at two to this power, in nanoseconds, times the root of two.
const FIRST_BUCKET_LOG2: u32 = 7;

/// Words of the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// The next row that nobody has.
    pub const NEXT: usize = 1;
    /// What one record costs, in picoseconds.
    pub const COST: usize = 2;
    /// Processes that opened the file.
    pub const GUESTS: usize = 3;
}

/// Words of a row.
pub mod row {
    /// The process in the upper half, the thread in the lower.
    pub const WHO: usize = 0;
    /// Meetings.
    pub const MEETINGS: usize = 1;
    /// Time waited in them.
    pub const WAITED: usize = 2;
    /// Time of parallel work and waiting together.
    pub const SPANNED: usize = 3;
    /// Intervals that this thread counted for its team.
    pub const INTERVALS: usize = 4;
    /// Their sum.
    pub const SUM: usize = 5;
    /// Calls of `sched_yield`.
    pub const YIELDS: usize = 6;
    /// When the last meeting ended.
    pub const LAST: usize = 7;
    /// Since when it waits, 0 when it does not.
    pub const ARRIVED: usize = 8;
    /// The region it joined: [`joined`](super::joined).
    pub const LEADER: usize = 9;
    /// When the region that this thread closed last was over.
    pub const ENDED: usize = 10;
    /// What it met by, as bits: [`bit`](super::bit).
    pub const BY: usize = 11;
    /// Records made, which is what measuring costs.
    pub const RECORDS: usize = 12;
    /// When the row was taken.
    pub const FIRST: usize = 13;
    /// How many regions this thread has opened, which numbers them from 1.
    pub const OPENED: usize = 14;
    /// The number of the region that it closed last.
    pub const CLOSED: usize = 15;
    /// The first bucket.
    pub const BUCKET: usize = 16;
}

/// A region as its members note it: its number among those of the thread that opened it, and that thread's row plus one.
pub const fn joined(region: u64, leader: u64) -> u64 {
    region << LEADER_BITS | leader
}

/// The region's number and the leader's row, of what [`joined`] says; `None` for a thread that joined none.
pub const fn region(joined: u64) -> Option<(u64, usize)> {
    match joined & ((1 << LEADER_BITS) - 1) {
        0 => None,
        leader => Some((joined >> LEADER_BITS, leader as usize - 1)),
    }
}

/// Enough for every row.
const LEADER_BITS: u32 = 16;

/// The bit of a runtime.
pub const fn bit(runtime: Runtime) -> u64 {
    1 << runtime as u64
}

/// The bucket of a time: one each from two to the power of n, and from root of two times that.
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

/// The middle of a bucket, as factors go.
fn middle(bucket: usize) -> f64 {
    2f64.powf(f64::from(FIRST_BUCKET_LOG2) + (bucket as f64 + 0.5) / 2.0)
}

/// What the preload libraries of all processes counted, added up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SyncStats {
    /// Processes that counted.
    pub guests: u64,
    /// Threads that met others, the greatest number that was at it at the same time.
    pub threads: u64,
    /// Threads for which there was no room.
    pub lost: u64,
    /// What they met by.
    pub runtimes: Vec<Runtime>,
    /// Times between meetings.
    pub intervals: Option<Intervals>,
    /// Share of their parallel time that threads waited.
    pub waiting: Option<f64>,
    /// The share of the thread that waited least, and of the one that waited most, of those with at least a twentieth of the longest's parallel time.
    pub waiting_between: Option<(f64, f64)>,
    /// Calls of `sched_yield`.
    pub yields: u64,
    /// What the records of the thread that made most cost it.
    pub cost: Option<Span>,
    /// What one record costs, in nanoseconds.
    pub record_ns: Option<f64>,
}

/// Reads the page file; `None` where it is none.
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
    let taken = usize::try_from(head[header::NEXT]).unwrap_or(usize::MAX);
    let rows = rows.get(..taken.min(ROWS).min(rows.len()))?;
    let mut by = 0;
    let (mut sum, mut count, mut buckets) = (0u64, 0u64, [0u64; BUCKETS]);
    let (mut waited, mut spanned, mut yields, mut records) = (0u64, 0u64, 0u64, 0u64);
    let mut times: Vec<(u64, u64)> = Vec::new();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for row in rows {
        by |= row[row::BY];
        count = count.saturating_add(row[row::INTERVALS]);
        sum = sum.saturating_add(row[row::SUM]);
        yields = yields.saturating_add(row[row::YIELDS]);
        records = records.max(row[row::RECORDS]);
        for (all, one) in buckets.iter_mut().zip(&row[row::BUCKET..]) {
            *all = all.saturating_add(*one);
        }
        // A member of a region that was its last has not been told of its end: who opened the region knows, until it closes another.
        let arrived = row[row::ARRIVED];
        let open = region(row[row::LEADER])
            .and_then(|(region, leader)| rows.get(leader).filter(|leader| leader[row::CLOSED] == region))
            .filter(|_| arrived != 0)
            .map_or(0, |leader| leader[row::ENDED].saturating_sub(arrived));
        let (own, whole) = (row[row::WAITED].saturating_add(open), row[row::SPANNED].saturating_add(open));
        if whole > 0 {
            waited = waited.saturating_add(own.min(whole));
            spanned = spanned.saturating_add(whole);
            times.push((own.min(whole), whole));
            spans.push((row[row::FIRST], row[row::LAST].max(arrived.saturating_add(open))));
        }
    }
    let longest = times.iter().map(|(_, whole)| *whole).max().unwrap_or(0);
    let counts = times.iter().filter(|(_, whole)| whole.saturating_mul(TIME_OF_LONGEST_MIN) >= longest);
    let shares: Vec<f64> = counts.map(|(own, whole)| *own as f64 / *whole as f64).collect();
    let cost = (head[header::COST] > 0).then(|| head[header::COST] as f64 / 1e3);
    let least = shares.iter().copied().reduce(f64::min);
    Some(SyncStats {
        guests: head[header::GUESTS],
        threads: at_once(&spans),
        lost: head[header::NEXT].saturating_sub(ROWS as u64),
        runtimes: Runtime::all().filter(|runtime| by & bit(*runtime) != 0).collect(),
        intervals: intervals(count, sum, &buckets),
        waiting: Span(waited).share_of(Span(spanned)),
        waiting_between: least.zip(shares.iter().copied().reduce(f64::max)),
        yields,
        cost: cost.map(|ns| Span((ns * records as f64) as u64)),
        record_ns: cost,
    })
}

/// The greatest number of spans that overlap; those that only touch do not.
fn at_once(spans: &[(u64, u64)]) -> u64 {
    let mut edges: Vec<(u64, bool)> = Vec::with_capacity(2 * spans.len());
    for &(first, last) in spans {
        // Time was spent in it, so that it is not empty whatever its row says.
        edges.extend([(first, true), (last.max(first.saturating_add(1)), false)]);
    }
    // At equal times ends come before beginnings.
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
        words[header::NEXT] = rows.len() as u64;
        words[header::COST] = 50_000;
        for (at, row) in rows.iter().enumerate() {
            for (word, value) in *row {
                words[HEADER + at * ROW + word] = *value;
            }
        }
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn every_time_lies_in_its_bucket() {
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
            (row::INTERVALS, 4),
            (row::SUM, 4_000_000),
            (row::BUCKET + bucket(1_000_000), 4),
            (row::WAITED, 100),
            (row::SPANNED, 4_000_000),
            (row::ENDED, 9_000),
            (row::CLOSED, 7),
            (row::LAST, 9_000),
            (row::BY, bit(Runtime::Libgomp)),
            (row::RECORDS, 8),
        ];
        let member: &[(usize, u64)] =
            &[(row::LEADER, joined(7, 1)), (row::ARRIVED, 5_000), (row::SPANNED, 200_000), (row::YIELDS, 3)];
        let met = read(&file(&[leader, member])).unwrap();
        let intervals = met.intervals.unwrap();
        assert_eq!((intervals.count, intervals.mean, met.yields), (4, Span(1_000_000), 3));
        assert!((830_000..1_200_000).contains(&intervals.median.0));
        assert_eq!((met.threads, met.lost, met.runtimes), (2, 0, vec![Runtime::Libgomp]));
        assert_eq!(met.waiting_between, Some((100.0 / 4_000_000.0, 4_000.0 / 204_000.0)));
        assert_eq!(met.cost, Some(Span(400)));
        // Of a region that is not the one it closed last the leader knows nothing more.
        let member: &[(usize, u64)] =
            &[(row::LEADER, joined(6, 1)), (row::ARRIVED, 5_000), (row::SPANNED, 200_000)];
        let met = read(&file(&[leader, member])).unwrap();
        assert_eq!(met.waiting_between.map(|(least, _)| least), Some(0.0));
        // Nor is a share told of threads that were hardly at it.
        let brief: &[(usize, u64)] = &[(row::WAITED, 199_000), (row::SPANNED, 199_999), (row::LAST, 1)];
        let least = read(&file(&[leader, brief])).unwrap().waiting_between.unwrap();
        assert_eq!(least.0, least.1);
    }

    #[test]
    fn threads_that_were_there_one_after_another_are_not_counted_as_if_all_were_there_at_once() {
        let thread = |first: u64, last: u64| {
            vec![(row::FIRST, first), (row::LAST, last), (row::SPANNED, (last - first).max(1))]
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
        // One ends as the next begins.
        assert_eq!(count(&[thread(5, 9), thread(9, 12), thread(12, 13)]), 1);
        // A row that does not say when it was taken was there from the beginning; one that spanned nothing is no thread.
        assert_eq!(count(&[vec![(row::LAST, 50), (row::SPANNED, 1)], thread(7, 8), thread(9, 10)]), 2);
        assert_eq!(count(&[thread(1, 9), vec![(row::FIRST, 2), (row::LAST, 8)]]), 1);
        // The oracle: at some moment of the smallest step as many are there.
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
    fn what_was_not_counted_is_missing() {
        let met = read(&file(&[])).unwrap();
        assert_eq!((met.intervals, met.waiting, met.runtimes), (None, None, vec![]));
        assert_eq!(read(b"not a page file of meetings"), None);
        assert_eq!(read(&[0; 4096]), None);
        // More rows taken than the file has, and leaders that are nowhere.
        let odd: &[(usize, u64)] = &[(row::LEADER, u64::MAX), (row::ARRIVED, 1)];
        let mut bytes = file(&[odd]);
        bytes[header::NEXT * 8..header::NEXT * 8 + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(read(&bytes).unwrap().lost > 0);
    }
}
