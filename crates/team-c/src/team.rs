//! Teams: making, finding, passing and joining them.

use crate::code::entry;
use crate::handles::{Handles, check_address, write_result, write_text};
use crate::locked::Locked;
use crate::rank::{keep_rank, keep_rank_of_process};
use crate::sized::{SelfSized, read_sized, write_sized};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::time::Duration;
use trimtab_team::segment::meet::keep_over_exec;
use trimtab_team::{Error, Options, Policy, Result, Tables, Team};

static TEAMS: Locked<Handles<Team>> = Locked::new(Handles::new("team"));

extern "C" fn before_fork() {
    TEAMS.lock();
}

extern "C" fn after_fork() {
    TEAMS.unlock();
}

/// Runs `work` on the table of teams. No other thread accesses the table meanwhile, and no fork
/// copies it half changed.
fn teams<T>(work: impl FnOnce(&mut Handles<Team>) -> T) -> T {
    TEAMS.with(
        || {
            // SAFETY: the handlers take and release a lock, by atomics alone.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
            }
        },
        work,
    )
}

/// `struct trimtab_team_options` of `team.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OptionsOf {
    size: usize,
    ranks: u32,
    wait: u32,
    heap: usize,
    cell: usize,
    deadline_ns: u64,
    gather_ns: u64,
    tables: u32,
}

impl SelfSized for OptionsOf {
    const WHAT: &'static str = "options";
    const KNOWN: &'static [usize] = &[size_of::<Self>()];

    fn usual() -> Self {
        let ranks = 0;
        let usual = Options::new(ranks);
        Self {
            size: size_of::<Self>(),
            ranks,
            wait: 0,
            heap: usual.heap,
            cell: usual.cell,
            deadline_ns: 0,
            gather_ns: u64::try_from(usual.gather.as_nanos()).unwrap_or(u64::MAX),
            tables: 0,
        }
    }
}

impl OptionsOf {
    fn read(&self) -> Result<Options> {
        let wait = match self.wait {
            0 => Policy::Auto,
            1 => Policy::Spin,
            2 => Policy::Yield,
            3 => Policy::Park,
            other => return Err(Error::Argument(format!("{other} is not a wait policy"))),
        };
        let deadline = (self.deadline_ns != 0).then(|| Duration::from_nanos(self.deadline_ns));
        let gather = Duration::from_nanos(self.gather_ns);
        let tables = if self.tables == 0 { Tables::Kept } else { Tables::Usual };
        Ok(Options {
            heap: self.heap,
            cell: self.cell,
            wait,
            deadline,
            gather,
            tables,
            ..Options::new(self.ranks)
        })
    }
}

/// Reads the caller's options.
///
/// # Safety
/// `options` is null or points to options.
unsafe fn options(options: *const OptionsOf) -> Result<Options> {
    // SAFETY: the caller's promise.
    unsafe { read_sized(options) }?.read()
}

/// # Safety
/// `text` is null, or a text that ends with a zero.
unsafe fn words<'a>(text: *const c_char, what: &str) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(Error::Argument(format!("there is no {what}")));
    }
    // SAFETY: not null, and so a text by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// `path` is null, or a text that ends with a zero.
unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    let text = unsafe { words(path, "path") }?;
    Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(text.to_bytes())))
}

/// Converts a rank's number; -1 is any rank.
fn wanted(rank: i64) -> Result<Option<u32>> {
    match rank {
        -1 => Ok(None),
        rank => u32::try_from(rank).map(Some).map_err(|_| Error::Argument(format!("{rank} is not a rank"))),
    }
}

/// Fills in the defaults, for the fields that the caller's header has: `size` is that of its
/// structure.
///
/// # Safety
/// `options` is null or valid for writing `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_options_fill(
    options: *mut OptionsOf,
    size: usize,
    ranks: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    entry(|| unsafe { write_sized(options, size, OptionsOf { size, ranks, ..OptionsOf::usual() }) })
}

/// # Safety
/// `asked` is null or options, `team` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_new(asked: *const OptionsOf, team: *mut u64) -> c_int {
    entry(|| {
        check_address(team)?;
        // SAFETY: the caller's promise.
        let made = Team::new(unsafe { options(asked) }?)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(team, teams(|teams| teams.add(made))) }
    })
}

/// # Safety
/// `team` and `rank` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_inherited(team: *mut u64, rank: *mut u32) -> c_int {
    entry(|| {
        let none =
            || Error::Refused("this process was not started into a team: TRIMTAB_TEAM is not set".to_owned());
        let (found, number) = Team::inherited()?.ok_or_else(none)?;
        // SAFETY: the caller's promise.
        unsafe {
            write_result(rank, number)?;
            write_result(team, teams(|teams| teams.add(found)))
        }
    })
}

/// # Safety
/// `at` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_host(team: u64, at: *const c_char) -> c_int {
    entry(|| {
        // SAFETY: the caller's promise.
        let at = unsafe { path(at) }?;
        // Outside of the lock, for which other threads may wait.
        teams(|teams| teams.get(team).cloned())?.host(at)
    })
}

/// # Safety
/// `at` is null or a text, `asked` null or options, `team` and `rank` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_meet(
    at: *const c_char,
    number: i64,
    asked: *const OptionsOf,
    team: *mut u64,
    rank: *mut u32,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's promise.
        let (met, number) = unsafe { Team::meet(path(at)?, wanted(number)?, options(asked)?)? };
        // SAFETY: the caller's promise.
        unsafe {
            write_result(rank, number)?;
            write_result(team, teams(|teams| teams.add(met)))
        }
    })
}

/// # Safety
/// `key` is null or a text, `asked` null or options, `team` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_of_job(
    rank: u32,
    key: *const c_char,
    asked: *const OptionsOf,
    team: *mut u64,
) -> c_int {
    entry(|| {
        check_address(team)?;
        // SAFETY: the caller's promise.
        let (key, options) = unsafe { (words(key, "key")?, options(asked)?) };
        if rank >= options.ranks {
            return Err(Error::Argument(format!("a team of {} has no rank {rank}", options.ranks)));
        }
        let met = Team::of_job(rank, &key.to_string_lossy(), options)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(team, teams(|teams| teams.add(met))) }
    })
}

/// # Safety
/// `text` is valid for writing `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_invitation(
    team: u64,
    rank: u32,
    text: *mut c_char,
    length: usize,
) -> c_int {
    entry(|| {
        let (name, value) = teams(|teams| {
            let team = teams.get(team)?;
            if rank >= team.ranks() {
                return Err(Error::Argument(format!("a team of {} has no rank {rank}", team.ranks())));
            }
            keep_over_exec(team.fd())?;
            Ok(team.invitation(rank))
        })?;
        // SAFETY: the caller's promise.
        unsafe { write_text(text, length, &format!("{name}={value}")) }
    })
}

/// # Safety
/// `rank` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_join(team: u64, number: i64, rank: *mut u64) -> c_int {
    entry(|| {
        let team = teams(|teams| teams.get(team).cloned())?;
        check_address(rank)?;
        let joined = team.join(wanted(number)?)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(rank, keep_rank(joined)?) }
    })
}

/// Makes this process a rank, which its threads use one at a time.
///
/// # Safety
/// `rank` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_team_join_process(team: u64, number: i64, rank: *mut u64) -> c_int {
    entry(|| {
        let team = teams(|teams| teams.get(team).cloned())?;
        check_address(rank)?;
        let joined = team.join_process(wanted(number)?)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(rank, keep_rank_of_process(joined)) }
    })
}

/// Frees a team's handle; ranks that have joined stay.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_team_free(team: u64) -> c_int {
    entry(|| teams(|teams| teams.take(team)).map(drop))
}
