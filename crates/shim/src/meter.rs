//! Meetings, counted: how long this program's threads work between barriers, and how long they wait there.
//!
//! What is counted and where it goes says [`trimtab_core::sync_stats`]. Only a process that finds the page file by its variable counts; in all
//! others a meeting costs one load. The file is named as a descriptor of the parent (`/proc/PID/fd/N`), so that programs which
//! close what they inherited, as MPI launchers do, find it still; it is mapped and closed again while the process starts.
//!
//! - A thread takes a row with its first record, and is the only one that writes there. Rows are never given back: where threads come and go by the
//!   thousand, those that find none left are counted.
//! - A forked child takes rows of its own. A meeting inside another one (a Fortran call that calls the C function) is one meeting.
//! - The wait at the end of a region nobody tells its members: they note when they arrive, and who opened the region when it is over. A member reads
//!   that when it joins the next region, or when its thread ends.
//! - What a record costs is measured once, in a row that nobody reads.

use crate::{imports, plan, unwinder};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use trimtab_core::place::runtimes::{RANK_VARIABLES, Runtime};
use trimtab_core::sync_stats::{
    BYTES, HEADER, MAGIC, ROW, ROWS, VARIABLE, bit, bucket, header, joined, region, row,
};

/// The page file; null where nobody wants to know.
static BASE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// How often this process is a fork of one that counted.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Whether intervals are this process's to count: rank 0 of an MPI job, or no rank.
static LEADS: AtomicBool = AtomicBool::new(true);

/// Records in a row over which the cost of one is measured ...
const TRIALS: u64 = 32;
/// ... and how often, of which the least counts. Chosen: together some ten microseconds.
const BATCHES: u32 = 6;
/// For a thread that found no row.
const NO_ROW: usize = usize::MAX;

thread_local! {
    /// The thread's row plus one; 0 before its first record.
    static MINE: Cell<usize> = const { Cell::new(0) };
    /// Of which of [`FORKS`] that is.
    static OF: Cell<u64> = const { Cell::new(0) };
    /// Whether it is in a meeting.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Its number in its team, where the runtime told it.
    static INDEX: Cell<u32> = const { Cell::new(0) };
    /// Notes its last wait when it ends.
    static ENDS: Ends = const { Ends };
}

/// The end of a thread that counted.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let row = MINE.get();
        let base = BASE.load(Acquire);
        if row != 0 && row != NO_ROW && !base.is_null() && OF.get() == FORKS.load(Relaxed) {
            settle(Row::at(base, row - 1), Some(now()));
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
    // SAFETY: all zero is a valid `stat`, and the kernel writes one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: our own descriptor and memory.
    let fits = unsafe { libc::fstat(file, &raw mut stat) } == 0 && usize::try_from(stat.st_size) == Ok(BYTES);
    let map = if fits {
        // SAFETY: a new mapping, of a file that is as long.
        unsafe {
            libc::mmap(null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, 0)
        }
    } else {
        libc::MAP_FAILED
    };
    // SAFETY: our own descriptor.
    unsafe { libc::close(file) };
    if map == libc::MAP_FAILED {
        return None;
    }
    let base: *mut AtomicU64 = map.cast();
    // SAFETY: mapped just now, for good, and page-aligned.
    if unsafe { &*base.add(header::MAGIC) }.load(Relaxed) != MAGIC {
        // SAFETY: nobody else knows of the mapping.
        unsafe { libc::munmap(map, BYTES) };
        return None;
    }
    let rank = RANK_VARIABLES.into_iter().find_map(plan::variable);
    LEADS.store(rank.is_none_or(|rank| rank == "0"), Relaxed);
    BASE.store(base, Release);
    add(word(base, header::GUESTS), 1);
    let price = word(base, header::COST);
    if price.load(Relaxed) == 0 {
        price.store(cost(Row::at(base, ROWS)), Relaxed);
    }
    // SAFETY: the handler lives as long as the process and does one atomic addition.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Some(())
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    INSIDE.set(false);
}

/// Whether anybody wants to know.
pub(crate) fn is_on() -> bool {
    !BASE.load(Relaxed).is_null()
}

fn word(base: *mut AtomicU64, at: usize) -> &'static AtomicU64 {
    debug_assert!(at < BYTES / 8);
    // SAFETY: the mapping has that many words, stays for good, and any value is valid.
    unsafe { &*base.add(at) }
}

/// Adds where others add too: the header.
fn add(word: &AtomicU64, one: u64) -> u64 {
    word.fetch_add(one, Relaxed)
}

/// A thread's row.
#[derive(Clone, Copy)]
struct Row(&'static [AtomicU64; ROW]);

impl Row {
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

    /// No other thread writes here.
    fn add(self, word: usize, value: u64) {
        self.set(word, self.get(word).wrapping_add(value));
    }

    /// A meeting from `begin` to `end`.
    fn met(self, by: Runtime, begin: u64, end: u64, leads: Lead) {
        self.add(row::MEETINGS, 1);
        self.add(row::RECORDS, 1);
        self.set(row::BY, self.get(row::BY) | bit(by));
        let last = self.get(row::LAST);
        if last != 0 {
            let span = end.saturating_sub(last);
            self.add(row::WAITED, end.saturating_sub(begin).min(span));
            self.add(row::SPANNED, span);
            if leads == Lead::Own {
                self.interval(span);
            }
        }
        if let Lead::Took(span) = leads {
            self.interval(span);
        }
        self.set(row::LAST, end);
    }
}

impl Row {
    fn interval(self, span: u64) {
        self.add(row::INTERVALS, 1);
        self.add(row::SUM, span);
        self.add(row::BUCKET + bucket(span), 1);
    }
}

/// Whether a thread counts the interval for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// Another does.
    No,
    /// It does, and always: from the end of its last meeting.
    Own,
    /// It does this time, and so long was the interval.
    Took(u64),
}

impl Lead {
    /// The first of a team, always.
    pub(crate) fn if_first(first: bool) -> Self {
        if first { Self::Own } else { Self::No }
    }

    /// At a barrier that names another thread each time: from when it let its threads go last. The first time nothing is counted, and
    /// nothing either when two barriers want the same place.
    pub(crate) fn of_barrier(address: usize, end: u64) -> Self {
        let Some((of, last)) = BARRIERS.get((address >> 5) % BARRIERS.len()) else { return Self::No };
        let (of, last) = (of.swap(address, AcqRel), last.swap(end, AcqRel));
        if of == address { Self::Took(end.saturating_sub(last)) } else { Self::No }
    }
}

/// Barriers, and when each let its threads go last.
static BARRIERS: [(AtomicUsize, AtomicU64); 64] = [const { (AtomicUsize::new(0), AtomicU64::new(0)) }; 64];

/// What a record costs, in picoseconds.
fn cost(scratch: Row) -> u64 {
    let record = || {
        let begin = now();
        scratch.met(Runtime::Pthread, begin, now(), Lead::Own);
    };
    let batch = || {
        let begin = now();
        (0..TRIALS).for_each(|_| record());
        now().saturating_sub(begin) * 1_000 / TRIALS
    };
    // Others may take the CPU during any of them, and the first fetches the page.
    (0..BATCHES).map(|_| batch()).min().unwrap_or(0).max(1)
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: our own memory; the call leaves `errno` alone for a clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The calling thread's row and its number plus one.
fn mine() -> Option<(Row, usize)> {
    let base = BASE.load(Acquire);
    if base.is_null() {
        return None;
    }
    let forks = FORKS.load(Relaxed);
    let mut row = MINE.get();
    if row == 0 || OF.get() != forks {
        let next = usize::try_from(add(word(base, header::NEXT), 1)).unwrap_or(NO_ROW);
        row = if next < ROWS { next + 1 } else { NO_ROW };
        MINE.set(row);
        OF.set(forks);
        if row != NO_ROW {
            // SAFETY: no preconditions.
            let (process, thread) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
            let mine = Row::at(base, row - 1);
            mine.set(row::WHO, (process as u64) << 32 | (thread as u64 & 0xffff_ffff));
            mine.set(row::FIRST, now());
            // Not there any more in the last moments of a thread, when nothing is left to note.
            let _ = ENDS.try_with(|_| ());
        }
    }
    (row != NO_ROW).then(|| (Row::at(base, row - 1), row))
}

/// Does `work`, which is a meeting; what it answers says whether this thread counts for all.
///
/// Holds nothing that would have to be dropped: cancellation unwinds through it.
pub(crate) fn meet<T>(
    by: impl FnOnce() -> Runtime,
    work: impl FnOnce() -> T,
    leads: impl FnOnce(&T, u64) -> Lead,
) -> T {
    if !is_on() || INSIDE.get() {
        return work();
    }
    let Some((row, _)) = mine() else { return work() };
    INSIDE.set(true);
    let begin = now();
    let result = work();
    let end = now();
    row.met(by(), begin, end, leads(&result, end));
    INSIDE.set(false);
    result
}

/// A meeting of the calling thread, as who met tells it.
pub(crate) fn told(by: Runtime, begin: u64, end: u64, leads: Lead) {
    if INSIDE.get() {
        return;
    }
    if let Some((row, _)) = mine() {
        row.met(by, begin, end, leads);
    }
}

/// Does `work`, which waits for one other: that is waiting, and no meeting.
pub(crate) fn wait<T>(work: impl FnOnce() -> T) -> T {
    if !is_on() || INSIDE.get() {
        return work();
    }
    let Some((row, _)) = mine() else { return work() };
    INSIDE.set(true);
    let begin = now();
    let result = work();
    // Before the first meeting nothing is spanned in which that could have been waited.
    if row.get(row::LAST) != 0 {
        row.add(row::WAITED, now().saturating_sub(begin));
    }
    row.add(row::RECORDS, 1);
    INSIDE.set(false);
    result
}

/// Whether this process counts the meetings of its job.
pub(crate) fn is_first_rank() -> bool {
    LEADS.load(Relaxed)
}

/// `sched_yield` was called.
pub(crate) fn yielded() {
    if let Some((row, _)) = mine() {
        row.add(row::YIELDS, 1);
    }
}

/// A region as its members know it.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    by: Runtime,
    /// Its number, and the row of the thread that opened it plus one; 0: it is not counted.
    joined: u64,
    /// That thread's number in the team around.
    outer: u32,
}

impl Region {
    /// The calling thread opens a region.
    pub(crate) fn open(by: Runtime) -> Self {
        let joined = mine().map_or(0, |(row, number)| {
            row.set(row::LAST, now());
            row.add(row::OPENED, 1);
            joined(row.get(row::OPENED), number as u64)
        });
        Self { by, joined, outer: INDEX.get() }
    }

    /// The calling thread joins under this number.
    pub(crate) fn join(&self, index: u32) {
        if self.joined == 0 {
            return;
        }
        INDEX.set(index);
        if index == 0 {
            return;
        }
        let Some((row, _)) = mine() else { return };
        settle(row, None);
        row.set(row::LEADER, self.joined);
        row.set(row::BY, row.get(row::BY) | bit(self.by));
        row.set(row::LAST, now());
        row.add(row::RECORDS, 1);
    }

    /// The calling thread has done its part, and waits for the others.
    pub(crate) fn arrive(&self) {
        if self.joined != 0 {
            arrive();
        }
    }

    /// It is over, says the thread that opened it.
    pub(crate) fn close(&self) {
        let Some((number, _)) = region(self.joined) else { return };
        INDEX.set(self.outer);
        let Some((row, _)) = mine() else { return };
        let end = now();
        let arrived = row.get(row::ARRIVED);
        if arrived != 0 {
            row.set(row::ARRIVED, 0);
            row.met(self.by, arrived, end, Lead::Own);
        }
        row.set(row::ENDED, end);
        row.set(row::CLOSED, number);
    }
}

/// A member's wait at the end of its last region, which is known now: from who opened it, or else until the thread ended, if it does.
fn settle(row: Row, ends: Option<u64>) {
    let (arrived, joined) = (row.get(row::ARRIVED), row.get(row::LEADER));
    row.set(row::ARRIVED, 0);
    let base = BASE.load(Acquire);
    let Some((number, leader)) = region(joined) else { return };
    if arrived == 0 || leader >= ROWS || base.is_null() {
        return;
    }
    let leader = Row::at(base, leader);
    let told = (leader.get(row::CLOSED) == number).then(|| leader.get(row::ENDED));
    // Who opened it may have closed another since: then how long this one waited is not known.
    let Some(end) = told.or(ends) else { return };
    let waited = end.saturating_sub(arrived);
    row.add(row::WAITED, waited);
    row.add(row::SPANNED, waited);
    row.add(row::MEETINGS, 1);
    if let Some(told) = told {
        // It was there until then, but no longer: its place may be another thread's from there on.
        row.set(row::LAST, told.max(arrived));
    }
}

fn arrive() {
    let Some((row, _)) = mine() else { return };
    let at = now();
    let last = row.get(row::LAST);
    if INDEX.get() != 0 && last != 0 {
        // Until here it worked. The rest is known when the region is over.
        row.add(row::SPANNED, at.saturating_sub(last));
        row.set(row::LAST, at);
    }
    row.set(row::ARRIVED, at);
}

/// A barrier of an OpenMP runtime that tells a tool: it begins.
pub(crate) fn barrier_begins() {
    arrive();
}

/// And is over; `inside` its region, and not its end, of which only who opened it knows when it was.
pub(crate) fn barrier_ends(by: Runtime, inside: bool) {
    let index = INDEX.get();
    if !inside && index != 0 {
        return;
    }
    let Some((row, _)) = mine() else { return };
    let (arrived, end) = (row.get(row::ARRIVED), now());
    if arrived == 0 {
        return;
    }
    row.set(row::ARRIVED, 0);
    row.met(by, arrived, end, Lead::if_first(index == 0));
}
