//! Counter of barriers: the times during which this program's threads work between barriers, and
//! wait at them.
//!
//! A *barrier* here is a barrier or a collective call. [`trimtab_core::sync_stats`] defines the
//! numbers that are counted and their places. Only a process that finds the page file by its
//! variable counts; in all others a barrier costs one load. The file is named as a descriptor of
//! the parent (`/proc/PID/fd/N`), so that programs which close inherited descriptors, as MPI
//! launchers do, still find it. It is mapped and closed again while the process starts.
//!
//! - A thread takes a row with its first record, and is the only one that writes there. Rows are
//!   never released. If thousands of threads start and end, those that find no free row are
//!   counted.
//! - A forked child takes rows of its own. A barrier inside another one (a Fortran call that calls
//!   the C function) is one barrier.
//! - The cost of a record is measured once, in a row that no reader uses.

use crate::ticks::monotonic_ns as now;
use crate::{imports, plan, shared_page, unwinder};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use trimtab_core::place::runtimes::{RANK_VARIABLES, Runtime};
use trimtab_core::sync_stats::{BYTES, HEADER, MAGIC, ROW, ROWS, VARIABLE, bit, bucket, header, row};

mod regions;

use regions::note_barrier;
pub(crate) use regions::{Region, barrier_begins, barrier_ends, count_team_barrier};

/// Start of the page file; null if nothing is counted.
static BASE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Number of forks between this process and the one that started to count.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Whether this process counts the intervals: it is rank 0 of an MPI job, or has no rank.
static LEADS: AtomicBool = AtomicBool::new(true);

/// Consecutive records over which the cost of one is measured ...
const RECORDS_PER_BATCH: u64 = 32;
/// ... and the number of such batches, of which the cheapest counts. Chosen: together some ten
/// microseconds.
const COST_BATCHES: u32 = 6;
/// Row number of a thread that found no row.
const NO_ROW: usize = usize::MAX;

thread_local! {
    /// The thread's row plus one; 0 before its first record.
    static MINE: Cell<usize> = const { Cell::new(0) };
    /// Value of [`FORKS`] when the row was taken.
    static OF: Cell<u64> = const { Cell::new(0) };
    /// Whether the thread is in a barrier.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Records the thread's last wait when the thread ends.
    static ENDS: Ends = const { Ends };
}

/// Destructor of a thread that counted.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let row = MINE.get();
        let base = BASE.load(Acquire);
        if row != 0 && row != NO_ROW && !base.is_null() && OF.get() == FORKS.load(Relaxed) {
            regions::thread_ends(ThreadRow::at(base, row - 1));
        }
    }
}

/// Opens the page file, if there is one. Called while the process has one thread.
pub(crate) fn begin() {
    // SAFETY: the location is valid in the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    let _ = open();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn open() -> Option<()> {
    let path = plan::variable(VARIABLE).filter(|_| imports::is_home() && unwinder::find())?;
    let path = CString::new(path).ok()?;
    // SAFETY: a C string.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let base = shared_page::map(file, BYTES, header::MAGIC, MAGIC);
    // SAFETY: our own descriptor.
    unsafe { libc::close(file) };
    let base = base?;
    let rank = RANK_VARIABLES.into_iter().find_map(plan::variable);
    LEADS.store(rank.is_none_or(|rank| rank == "0"), Relaxed);
    BASE.store(base, Release);
    add(word(base, header::GUEST_COUNT), 1);
    let price = word(base, header::RECORD_COST_PS);
    if price.load(Relaxed) == 0 {
        price.store(cost(ThreadRow::at(base, ROWS)), Relaxed);
    }
    // SAFETY: the handler lives as long as the process and does one atomic addition.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Some(())
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    INSIDE.set(false);
}

/// Returns whether this process counts.
pub(crate) fn is_on() -> bool {
    !BASE.load(Relaxed).is_null()
}

fn word(base: *mut AtomicU64, at: usize) -> &'static AtomicU64 {
    debug_assert!(at < BYTES / 8);
    // SAFETY: the mapping has at least `at + 1` words, stays for good, and any value is valid.
    unsafe { &*base.add(at) }
}

/// Adds to a word of the header, which other threads add to as well.
fn add(word: &AtomicU64, one: u64) -> u64 {
    word.fetch_add(one, Relaxed)
}

/// Row of a thread.
#[derive(Clone, Copy)]
struct ThreadRow(&'static [AtomicU64; ROW]);

impl ThreadRow {
    fn at(base: *mut AtomicU64, row: usize) -> Self {
        debug_assert!(row <= ROWS);
        // SAFETY: `row` is at most ROWS, and the mapping has one row more than that.
        Self(unsafe { &*base.add(HEADER + row * ROW).cast() })
    }

    fn get(self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    fn set(self, word: usize, value: u64) {
        self.0[word].store(value, Relaxed);
    }

    /// Adds without a read-modify-write: no other thread writes here.
    fn add(self, word: usize, value: u64) {
        self.set(word, self.get(word).wrapping_add(value));
    }

    /// Records a barrier from `begin` to `end`, which stands for `weight` barriers.
    fn record(self, by: Runtime, begin: u64, end: u64, leads: Lead, weight: u32) {
        let times = u64::from(weight);
        self.add(row::MEETING_COUNT, times);
        self.add(row::RECORD_COUNT, 1);
        self.set(row::RUNTIME_BITS, self.get(row::RUNTIME_BITS) | bit(by));
        let last = self.get(row::LAST_ACTIVE_NS);
        if last != 0 {
            let span = end.saturating_sub(last);
            self.add(row::WAITED_NS, end.saturating_sub(begin).min(span).saturating_mul(times));
            self.add(row::SPANNED_NS, span.saturating_mul(times));
            if leads == Lead::Own {
                self.interval(span, times);
            }
        }
        if let Lead::Took(span) = leads {
            self.interval(span, times);
        }
        self.set(row::LAST_ACTIVE_NS, end);
    }
}

impl ThreadRow {
    fn interval(self, span: u64, times: u64) {
        self.add(row::INTERVAL_COUNT, times);
        self.add(row::INTERVAL_SUM_NS, span.saturating_mul(times));
        self.add(row::FIRST_BUCKET + bucket(span), times);
    }
}

/// Way in which a thread counts the interval for its team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// Another thread counts it.
    No,
    /// This thread always counts it: from the end of its last barrier.
    Own,
    /// This thread counts it this time; the length of the interval in nanoseconds.
    Took(u64),
}

impl Lead {
    /// Returns the lead of a team in which the first thread always counts.
    pub(crate) fn if_first(first: bool) -> Self {
        if first { Self::Own } else { Self::No }
    }

    /// Returns the lead at a barrier that names another thread each time. The interval begins when
    /// the barrier last released its threads. Nothing is counted the first time, or if two barriers
    /// share a place of the table.
    pub(crate) fn of_barrier(address: usize, end: u64) -> Self {
        let Some((of, last)) = BARRIERS.get((address >> 5) % BARRIERS.len()) else { return Self::No };
        let (of, last) = (of.swap(address, AcqRel), last.swap(end, AcqRel));
        if of == address { Self::Took(end.saturating_sub(last)) } else { Self::No }
    }
}

/// Addresses of barriers, and the time at which each last released its threads.
static BARRIERS: [(AtomicUsize, AtomicU64); 64] = [const { (AtomicUsize::new(0), AtomicU64::new(0)) }; 64];

/// Measures the cost of a record, in picoseconds.
fn cost(scratch: ThreadRow) -> u64 {
    let record = || {
        let begin = now();
        scratch.record(Runtime::Pthread, begin, now(), Lead::Own, 1);
    };
    let batch = || {
        let begin = now();
        (0..RECORDS_PER_BATCH).for_each(|_| record());
        now().saturating_sub(begin) * 1_000 / RECORDS_PER_BATCH
    };
    // Other threads may take the CPU during any batch, and the first batch fetches the page.
    (0..COST_BATCHES).map(|_| batch()).min().unwrap_or(0).max(1)
}

/// Returns the calling thread's row and its number plus one.
fn mine() -> Option<(ThreadRow, usize)> {
    let base = BASE.load(Acquire);
    if base.is_null() {
        return None;
    }
    let forks = FORKS.load(Relaxed);
    let mut row = MINE.get();
    if row == 0 || OF.get() != forks {
        let next = usize::try_from(add(word(base, header::NEXT_ROW), 1)).unwrap_or(NO_ROW);
        row = if next < ROWS { next + 1 } else { NO_ROW };
        MINE.set(row);
        OF.set(forks);
        if row != NO_ROW {
            // SAFETY: no preconditions.
            let (process, thread) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
            let mine = ThreadRow::at(base, row - 1);
            mine.set(row::THREAD_ID, (process as u64) << 32 | (thread as u64 & 0xffff_ffff));
            mine.set(row::TAKEN_NS, now());
            // Not available in the last moments of a thread, when nothing is left to record.
            let _ = ENDS.try_with(|_| ());
        }
    }
    (row != NO_ROW).then(|| (ThreadRow::at(base, row - 1), row))
}

/// Runs `work`, which is a barrier. `leads` says whether this thread counts for all.
///
/// Holds nothing that would have to be dropped: cancellation unwinds through it.
pub(crate) fn count_barrier<T>(
    by: impl FnOnce() -> Runtime,
    work: impl FnOnce() -> T,
    leads: impl FnOnce(&T, u64) -> Lead,
) -> T {
    if !is_on() {
        return work();
    }
    note_barrier();
    count(1, by, work, leads)
}

fn count<T>(
    weight: u32,
    by: impl FnOnce() -> Runtime,
    work: impl FnOnce() -> T,
    leads: impl FnOnce(&T, u64) -> Lead,
) -> T {
    if INSIDE.get() {
        return work();
    }
    let Some((row, _)) = mine() else { return work() };
    INSIDE.set(true);
    let begin = now();
    let result = work();
    let end = now();
    row.record(by(), begin, end, leads(&result, end), weight);
    INSIDE.set(false);
    result
}

/// Records a barrier of the calling thread that a team reported.
pub(crate) fn record_reported(by: Runtime, begin: u64, end: u64, leads: Lead) {
    if INSIDE.get() {
        return;
    }
    if let Some((row, _)) = mine() {
        note_barrier();
        row.record(by, begin, end, leads, 1);
    }
}

/// Runs `work`, which waits for another thread or rank: the time is waiting, but not a barrier.
pub(crate) fn count_wait<T>(work: impl FnOnce() -> T) -> T {
    if !is_on() || INSIDE.get() {
        return work();
    }
    let Some((row, _)) = mine() else { return work() };
    INSIDE.set(true);
    let begin = now();
    let result = work();
    // Before the first barrier the wait is not part of any span.
    if row.get(row::LAST_ACTIVE_NS) != 0 {
        row.add(row::WAITED_NS, now().saturating_sub(begin));
    }
    row.add(row::RECORD_COUNT, 1);
    INSIDE.set(false);
    result
}

/// Returns whether this process counts the barriers of its job.
pub(crate) fn is_first_rank() -> bool {
    LEADS.load(Relaxed)
}

/// Counts a call of `sched_yield`.
pub(crate) fn count_yield() {
    if let Some((row, _)) = mine() {
        row.add(row::YIELD_COUNT, 1);
    }
}
