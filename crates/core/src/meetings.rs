//! Meetings: how often the threads of a program wait for all others, and how long, as a guest library counts it for its parent.
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
//! Properties: what makes no sense is not read; a row that is being written is at worst one meeting behind; missing is not zero.

use crate::profile::{Intervals, Runtime};
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
/// The first bucket ends at two to this power, times the root of two.
const FIRST: u32 = 7;

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
    /// The row of the thread that opened its region, plus one.
    pub const LEADER: usize = 9;
    /// When the last region that this thread opened was over.
    pub const ENDED: usize = 10;
    /// What it met by, as bits: [`bit`](super::bit).
    pub const BY: usize = 11;
    /// Records made, which is what measuring costs.
    pub const RECORDS: usize = 12;
    /// The first bucket.
    pub const BUCKET: usize = 16;
}

/// The bit of a runtime.
pub const fn bit(runtime: Runtime) -> u64 {
    1 << match runtime {
        Runtime::Libgomp => 0,
        Runtime::Libomp => 1,
        Runtime::OpenMpi => 2,
        Runtime::Mpich => 3,
        Runtime::Team => 4,
        Runtime::Pthread => 5,
    }
}

const RUNTIMES: [Runtime; 6] =
    [Runtime::Libgomp, Runtime::Libomp, Runtime::OpenMpi, Runtime::Mpich, Runtime::Team, Runtime::Pthread];

/// The bucket of a time: one each from two to the power of n, and from root of two times that.
pub const fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST {
        return 0;
    }
    let power = ns.ilog2();
    // 46341 / 32768 is the root of two.
    let upper = (ns >> (power - FIRST)) as usize * 32768 >= 46341 << FIRST;
    let at = 2 * (power - FIRST) as usize + upper as usize;
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// The middle of a bucket, as factors go.
fn middle(bucket: usize) -> f64 {
    2f64.powf(f64::from(FIRST) + (bucket as f64 + 0.5) / 2.0)
}

/// What guests counted, added up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Meetings {
    /// Processes that counted.
    pub guests: u64,
    /// Threads that met others.
    pub threads: u64,
    /// Threads for which there was no room.
    pub lost: u64,
    /// What they met by.
    pub runtimes: Vec<Runtime>,
    /// Times between meetings.
    pub intervals: Option<Intervals>,
    /// Share of their parallel time that threads waited.
    pub waiting: Option<f64>,
    /// The share of the thread that waited least, and of the one that waited most.
    pub waiting_between: Option<(f64, f64)>,
    /// Calls of `sched_yield`.
    pub yields: u64,
    /// What the records of the thread that made most cost it.
    pub cost: Option<Span>,
    /// What one record costs, in nanoseconds.
    pub record_ns: Option<f64>,
}

/// Reads the page file; `None` where it is none.
pub fn read(bytes: &[u8]) -> Option<Meetings> {
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
    let (mut waited, mut spanned, mut yields, mut records, mut threads) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut shares: Vec<f64> = Vec::new();
    for row in rows {
        by |= row[row::BY];
        count = count.saturating_add(row[row::INTERVALS]);
        sum = sum.saturating_add(row[row::SUM]);
        yields = yields.saturating_add(row[row::YIELDS]);
        records = records.max(row[row::RECORDS]);
        for (all, one) in buckets.iter_mut().zip(&row[row::BUCKET..]) {
            *all = all.saturating_add(*one);
        }
        // A member of a region that was the program's last has not been told of its end: who opened the region knows.
        let leader = usize::try_from(row[row::LEADER]).ok().and_then(|at| rows.get(at.checked_sub(1)?));
        let open = leader
            .filter(|_| row[row::ARRIVED] != 0)
            .map_or(0, |leader| leader[row::ENDED].saturating_sub(row[row::ARRIVED]));
        let (own, whole) = (row[row::WAITED].saturating_add(open), row[row::SPANNED].saturating_add(open));
        if whole > 0 {
            threads += 1;
            waited = waited.saturating_add(own.min(whole));
            spanned = spanned.saturating_add(whole);
            shares.push(own.min(whole) as f64 / whole as f64);
        }
    }
    let cost = (head[header::COST] > 0).then(|| head[header::COST] as f64 / 1e3);
    let least = shares.iter().copied().reduce(f64::min);
    Some(Meetings {
        guests: head[header::GUESTS],
        threads,
        lost: head[header::NEXT].saturating_sub(ROWS as u64),
        runtimes: RUNTIMES.into_iter().filter(|runtime| by & bit(*runtime) != 0).collect(),
        intervals: intervals(count, sum, &buckets),
        waiting: Span(waited).share_of(Span(spanned)),
        waiting_between: least.zip(shares.iter().copied().reduce(f64::max)),
        yields,
        cost: cost.map(|ns| Span((ns * records as f64) as u64)),
        record_ns: cost,
    })
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
        let mut words = vec![0u64; HEADER + ROW * 4];
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
            if (1 << FIRST..1 << 38).contains(&ns) {
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
            (row::BY, bit(Runtime::Libgomp)),
            (row::RECORDS, 8),
        ];
        let member: &[(usize, u64)] =
            &[(row::LEADER, 1), (row::ARRIVED, 5_000), (row::SPANNED, 4_000), (row::YIELDS, 3)];
        let met = read(&file(&[leader, member])).unwrap();
        let intervals = met.intervals.unwrap();
        assert_eq!((intervals.count, intervals.mean, met.yields), (4, Span(1_000_000), 3));
        assert!((830_000..1_200_000).contains(&intervals.median.0));
        assert_eq!((met.threads, met.lost, met.runtimes), (2, 0, vec![Runtime::Libgomp]));
        assert_eq!(met.waiting_between.map(|(_, most)| most), Some(0.5));
        assert_eq!(met.cost, Some(Span(400)));
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
