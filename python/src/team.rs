//! A team, and the functions that make or join one.

use crate::errors::{self, argument};
use crate::rank::Rank;
use crate::{interrupt, meet, pinned::Here};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use trimtab_team::segment::memfd::Mapping;
use trimtab_team::{Options, Policy};

/// A team of ranks on this machine: processes, threads, or both, that share one segment of memory.
///
/// Make it once, give it to others (as an argument of multiprocessing.Process with any start
/// method, to threads as it is, over fork, or to a program by environment() and fileno()), and let
/// each call join().
///
/// ranks     number of ranks
/// heap      bytes for arrays in the segment (Rank.empty), of all ranks together
/// wait      'auto' spins, then yields, then sleeps, by occupancy and by learning;
///           'spin', 'yield' and 'park' do only that
/// deadline  seconds of waiting after which a call fails with Timeout and the team is given up;
///           None for no limit
/// gather    seconds that join() waits for the other ranks
/// cell      bytes that a rank can have under way at a time: a power of two
#[pyclass(module = "trimtab_team", frozen, weakref)]
pub(crate) struct Team {
    team: trimtab_team::Team,
    /// Rank given by the environment.
    rank: Option<u32>,
}

fn policy(word: &str) -> PyResult<Policy> {
    Ok(match word {
        "auto" => Policy::Auto,
        "spin" => Policy::Spin,
        "yield" => Policy::Yield,
        "park" => Policy::Park,
        _ => return Err(argument(format!("wait is 'auto', 'spin', 'yield' or 'park', not {word:?}"))),
    })
}

/// Converts Python's seconds.
pub(crate) fn seconds(what: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| argument(format!("{what} is a number of seconds, not {value}")))
}

fn limit(value: Option<f64>) -> PyResult<Option<Duration>> {
    value.map(|value| seconds("deadline", value)).transpose()
}

fn options(
    ranks: u32,
    heap: usize,
    wait: &str,
    deadline: Option<f64>,
    gather: f64,
    cell: usize,
) -> PyResult<Options> {
    Ok(Options {
        heap,
        cell,
        wait: policy(wait)?,
        deadline: limit(deadline)?,
        gather: seconds("gather", gather)?,
        interrupt: Some(interrupt::asked),
        ..Options::new(ranks)
    })
}

#[pymethods]
impl Team {
    #[new]
    #[pyo3(signature = (ranks, *, heap = 16 << 20, wait = "auto", deadline = None, gather = 30.0, cell = 32 << 10))]
    fn new(
        py: Python<'_>,
        ranks: u32,
        heap: usize,
        wait: &str,
        deadline: Option<f64>,
        gather: f64,
        cell: usize,
    ) -> PyResult<Self> {
        let options = options(ranks, heap, wait, deadline, gather, cell)?;
        // The memory is filled here, which takes some time.
        let team = py.detach(|| trimtab_team::Team::new(options)).map_err(errors::of)?;
        Ok(Self { team, rank: None })
    }

    /// Returns the team that this process was started into, by `trimtab run --ranks` or by a parent
    /// that used environment(). Its join() takes the intended rank.
    #[staticmethod]
    #[pyo3(signature = (*, wait = "auto", deadline = None))]
    fn from_environment(py: Python<'_>, wait: &str, deadline: Option<f64>) -> PyResult<Self> {
        let (wait, deadline) = (policy(wait)?, limit(deadline)?);
        let inherited = trimtab_team::Team::inherited().map_err(errors::of)?;
        let Some((mut team, rank)) = inherited else {
            let words: String = py.import("trimtab_team._passing")?.call_method0("no_team")?.extract()?;
            return Err(errors::raise("NotATeam", &words));
        };
        team.set_wait(wait, deadline);
        team.set_interrupt(Some(interrupt::asked));
        Ok(Self { team, rank: Some(rank) })
    }

    /// Returns the team of a job whose processes another launcher started: each passes its rank,
    /// the number of ranks, and a name that is unique to this job. Rank 0 makes the team, with the
    /// options that all pass, and the others get it, within gather seconds. join() takes the rank.
    #[staticmethod]
    #[pyo3(signature = (rank, ranks, key, *, heap = 16 << 20, wait = "auto", deadline = None, gather = 30.0, cell = 32 << 10))]
    #[expect(clippy::too_many_arguments, reason = "as Python's keywords are")]
    fn of_job(
        py: Python<'_>,
        rank: u32,
        ranks: u32,
        key: &str,
        heap: usize,
        wait: &str,
        deadline: Option<f64>,
        gather: f64,
        cell: usize,
    ) -> PyResult<Self> {
        let options = options(ranks, heap, wait, deadline, gather, cell)?;
        Ok(Self { team: meet::of_job(py, rank, key, options)?, rank: Some(rank) })
    }

    /// Returns the team whose segment another process passed as a descriptor (fileno()), which
    /// stays the caller's.
    #[staticmethod]
    #[pyo3(signature = (fd, *, wait = "auto", deadline = None, gather = 30.0, rank = None))]
    fn adopt(fd: i32, wait: &str, deadline: Option<f64>, gather: f64, rank: Option<u32>) -> PyResult<Self> {
        if fd < 0 {
            return Err(argument(format!("{fd} is not a descriptor")));
        }
        // SAFETY: only copied, at once; one that is not open is refused by the system.
        let own = unsafe { BorrowedFd::borrow_raw(fd) }
            .try_clone_to_owned()
            .map_err(|error| errors::raise("NotATeam", &format!("descriptor {fd}: {error}")))?;
        let options = Options {
            wait: policy(wait)?,
            deadline: limit(deadline)?,
            gather: seconds("gather", gather)?,
            interrupt: Some(interrupt::asked),
            ..Options::new(1)
        };
        let team = Mapping::adopt(own).and_then(|mapping| trimtab_team::Team::adopt(mapping, options));
        Ok(Self { team: team.map_err(errors::of)?, rank })
    }

    /// Makes the calling thread a rank, the one of this number or the first that is free, and waits
    /// until all ranks have joined. After that no further thread can join.
    #[pyo3(signature = (rank = None))]
    fn join(&self, py: Python<'_>, rank: Option<u32>) -> PyResult<Rank> {
        interrupt::prepare(py)?;
        let (team, wanted) = (&self.team, rank.or(self.rank));
        let joined = py.detach(move || Here(team.join(wanted))).get();
        Ok(Rank::new(interrupt::settle(joined)?, self.team.clone()))
    }

    /// The number of ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.team.ranks()
    }

    /// The intended rank of this process, if it was started into the team.
    #[getter]
    fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Bytes for arrays in the segment.
    #[getter]
    fn heap(&self) -> usize {
        self.team.options().heap
    }

    /// The wait policy of ranks of this process.
    #[getter]
    fn wait(&self) -> &'static str {
        match self.team.options().wait {
            Policy::Auto => "auto",
            Policy::Spin => "spin",
            Policy::Yield => "yield",
            Policy::Park => "park",
        }
    }

    /// Seconds after which waits are given up.
    #[getter]
    fn deadline(&self) -> Option<f64> {
        self.team.options().deadline.map(|deadline| deadline.as_secs_f64())
    }

    /// Seconds that join() waits for others.
    #[getter]
    fn gather(&self) -> f64 {
        self.team.options().gather.as_secs_f64()
    }

    /// Returns the segment's descriptor, which stays the team's: for pass_fds of subprocess.Popen.
    fn fileno(&self) -> i32 {
        self.team.fd().as_raw_fd()
    }

    /// Returns the variables that a program needs in its environment to be this rank, beside the
    /// descriptor.
    ///
    /// subprocess.Popen(words, env={**os.environ, **team.environment(1)}, pass_fds=[team.fileno()])
    fn environment<'py>(&self, py: Python<'py>, rank: u32) -> PyResult<Bound<'py, PyDict>> {
        if rank >= self.team.ranks() {
            return Err(argument(format!("a team of {} has no rank {rank}", self.team.ranks())));
        }
        let (name, value) = self.team.invitation(rank);
        let variables = PyDict::new(py);
        variables.set_item(name, value)?;
        Ok(variables)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("trimtab_team._passing")?.call_method1("reduce", (slf,))
    }

    fn __repr__(&self) -> String {
        format!("<trimtab_team.Team of {} ranks>", self.team.ranks())
    }
}
