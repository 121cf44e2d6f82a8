//! Questions to an OpenMP runtime about the calling thread.
//!
//! Runtimes of GNU's and of LLVM's family have these functions under the names of the standard.
//! Each runtime knows the threads of its own teams only.

use crate::budget::Wanted;
use crate::objects::Object;
use libc::c_int;
use std::ffi::CStr;
use trimtab_core::budget::share::Inside;

const NAMES: [&CStr; 9] = [
    c"omp_get_thread_num",
    c"omp_get_max_threads",
    c"omp_get_level",
    c"omp_get_team_size",
    c"omp_get_ancestor_thread_num",
    c"omp_get_dynamic",
    c"omp_get_active_level",
    c"omp_get_max_active_levels",
    c"omp_set_num_threads",
];
const THREAD_NUM: usize = 0;
const MAX_THREADS: usize = 1;
const LEVEL: usize = 2;
const TEAM_SIZE: usize = 3;
const ANCESTOR: usize = 4;
const DYNAMIC: usize = 5;
const ACTIVE_LEVEL: usize = 6;
const ACTIVE_LEVELS_MAX: usize = 7;
const SET_THREADS: usize = 8;

/// Bound of the levels of teams that are examined.
const LEVELS_MAX: u32 = 16;

/// Addresses of a runtime's functions, 0 for those that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queries([usize; NAMES.len()]);

impl Queries {
    pub(crate) const NONE: Self = Self([0; NAMES.len()]);

    /// Returns the functions that an object defines.
    pub(crate) fn of(object: &Object<'_>) -> Self {
        Self(NAMES.map(|name| object.defines(name).unwrap_or(0)))
    }

    /// Returns whether these are the functions of a runtime.
    pub(crate) fn are_whole(&self) -> bool {
        self.0[THREAD_NUM] != 0 && self.0[MAX_THREADS] != 0
    }

    pub(crate) fn has_thread_number(&self) -> bool {
        self.0[THREAD_NUM] != 0
    }

    /// Returns the calling thread's number in its team.
    pub(crate) fn thread_number(&self) -> u32 {
        number(self.0[THREAD_NUM])
    }

    /// Returns the most threads that a team opened without a number has.
    pub(crate) fn threads_most(&self) -> u32 {
        number(self.0[MAX_THREADS])
    }

    /// Sets the number of threads of the calling thread's next teams.
    pub(crate) fn set_threads(&self, threads: u32) {
        if self.0[SET_THREADS] == 0 {
            return;
        }
        // SAFETY: the address of `omp_set_num_threads`, which takes a number and gives nothing.
        let set = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(self.0[SET_THREADS]) };
        set(c_int::try_from(threads).unwrap_or(c_int::MAX));
    }

    /// Describes the team that the calling thread is about to open with this number of threads, 0
    /// for none.
    pub(crate) fn wanted(&self, threads: u32) -> Wanted {
        let level = number(self.0[LEVEL]);
        let is_serial = level > 0 && number(self.0[ACTIVE_LEVEL]) >= number(self.0[ACTIVE_LEVELS_MAX]);
        let wanted = match threads {
            _ if is_serial => 1,
            0 => self.threads_most().max(1),
            threads => threads,
        };
        Wanted {
            threads: wanted,
            numbered: threads != 0,
            dynamic: number(self.0[DYNAMIC]) != 0,
            inside: (level > 0).then(|| self.position(level)),
            is_exact: false,
        }
    }

    /// Returns the position of the calling thread in this runtime's teams; `None` outside all.
    pub(crate) fn inside(&self) -> Option<Inside> {
        let level = number(self.0[LEVEL]);
        (level > 0).then(|| self.position(level))
    }

    fn position(&self, level: u32) -> Inside {
        (1..=level.min(LEVELS_MAX)).fold(Inside::none(), |inside, level| {
            let of = |query: usize| number_of(self.0[query], level);
            inside.then(of(TEAM_SIZE), of(ANCESTOR))
        })
    }
}

fn number(function: usize) -> u32 {
    if function == 0 {
        return 0;
    }
    // SAFETY: the address of a query, which takes nothing and gives an int.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn() -> c_int>(function) };
    u32::try_from(function()).unwrap_or(0)
}

/// Does the same for a query about a level.
fn number_of(function: usize, level: u32) -> u32 {
    if function == 0 {
        return 0;
    }
    // SAFETY: the address of `omp_get_team_size` or `omp_get_ancestor_thread_num`, which take a
    // level and give an int.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int) -> c_int>(function) };
    u32::try_from(function(level as c_int)).unwrap_or(0)
}
