//! Processes that another launcher started, as torchrun and MPI's launchers do, meet under a name
//! that is unique to their job.
//!
//! **Problem.** A user may want to end the wait for a process that never comes by Ctrl-C, and the
//! length of that wait is not known.
//!
//! **Idea.** As `trimtab_team::Team::of_job`, in slices of time, between which Python runs handlers
//! of signals.

use crate::errors::{self, argument, raise};
use pyo3::prelude::*;
use std::time::{Duration, Instant};
use trimtab_team::segment::meeting::Meeting;
use trimtab_team::{Error, Options, Team};

const SIGNAL_PERIOD: Duration = Duration::from_millis(100);

/// Returns the team of a job: rank 0 makes it and passes it on, the others get it. All pass the
/// same options.
pub(crate) fn of_job(py: Python<'_>, rank: u32, key: &str, options: Options) -> PyResult<Team> {
    if rank >= options.ranks {
        return Err(argument(format!("rank {rank} is not one of the {} ranks", options.ranks)));
    }
    let until = Instant::now() + options.gather;
    let meeting = Meeting::of_job(key);
    let team = if rank == 0 {
        host(py, &meeting, options, until)?
    } else {
        meet(py, &meeting, rank, options, until)?
    };
    if team.ranks() != options.ranks {
        let words = format!(
            "rank 0 has made a team of {} ranks, and this rank asks for {}",
            team.ranks(),
            options.ranks
        );
        return Err(raise("Refused", &words));
    }
    Ok(team)
}

fn host(py: Python<'_>, meeting: &Meeting, options: Options, until: Instant) -> PyResult<Team> {
    // The memory is filled here, which takes some time.
    let team = py.detach(|| Team::new(options)).map_err(errors::of)?;
    if options.ranks == 1 {
        return Ok(team);
    }
    let host = meeting.listen().map_err(errors::of)?;
    let mut free: Vec<bool> = (0..options.ranks).map(|rank| rank != 0).collect();
    loop {
        let served = py.detach(|| host.serve(team.fd(), &mut free, SIGNAL_PERIOD));
        let missing: Vec<usize> = (0..free.len()).filter(|rank| free[*rank]).collect();
        match served {
            _ if missing.is_empty() => return Ok(team),
            Err(Error::Refused(_)) if Instant::now() < until => py.check_signals()?,
            Err(Error::Refused(_)) => {
                let words = format!(
                    "of {} ranks these did not come within {:?}: {missing:?}",
                    options.ranks, options.gather
                );
                return Err(raise("Refused", &words));
            }
            Err(error) => return Err(errors::of(error)),
            Ok(()) => py.check_signals()?,
        }
    }
}

fn meet(py: Python<'_>, meeting: &Meeting, rank: u32, options: Options, until: Instant) -> PyResult<Team> {
    // There may be a file at which no host listens any more.
    while !meeting.is_hosted() {
        py.check_signals()?;
        if Instant::now() >= until {
            let words =
                format!("rank 0 did not come within {:?}: no host listens at {meeting}", options.gather);
            return Err(raise("Refused", &words));
        }
        py.detach(|| std::thread::sleep(Duration::from_millis(2)));
    }
    // Joining counts towards the same time limit.
    let gather = until.saturating_duration_since(Instant::now());
    let (team, _) = py
        .detach(|| Team::meet_at(meeting, Some(rank), Options { gather, ..options }))
        .map_err(errors::of)?;
    Ok(team)
}
