//! Synchronisation statistics of a run: what the preload library counted of barriers, collectives
//! and waits, and what it could not see.
//!
//! The words of the page file mean what [`trimtab_core::sync_stats`] says; what counting costs is
//! counted along.

use serde::Serialize;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::profile::{Intervals, Profile};
use trimtab_core::sync_stats::SyncStats;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_linux::meetings::PageFile;

/// The page file of a run, in which its threads are counted.
#[derive(Debug)]
pub struct SyncPage {
    page: Result<PageFile, String>,
    /// No variable reaches the program, so that neither the library nor a wait policy does.
    kept_out: bool,
}

impl SyncPage {
    /// Makes the page file. Where it cannot be had, the statistics say why they are missing.
    pub fn create(kept_out: bool) -> Self {
        let page =
            PageFile::create().map_err(|error| format!("no memory can be had to count them in ({error})"));
        Self { page, kept_out }
    }

    /// The path that the preload library is told.
    pub fn path(&self) -> Option<String> {
        self.page.as_ref().ok().map(PageFile::path)
    }

    /// What was counted by now, of a program that took `wall`. `unreached` is why the library
    /// cannot count in this program, empty where it can; `wait` is how its threads wait, where that
    /// is known.
    pub fn read(&self, unreached: &[String], wait: Option<String>, wall: Span) -> SyncReport {
        let met = self.page.as_ref().ok().and_then(PageFile::read).unwrap_or_default();
        let why = match &self.page {
            Err(why) => vec![format!("meetings: {why}")],
            Ok(_) if self.kept_out => {
                vec!["meetings: --env leaves variables alone, and the guest library comes by one".to_owned()]
            }
            Ok(_) => unreached.to_vec(),
        };
        SyncReport::of(&met, why, wait.filter(|_| !self.kept_out), wall)
    }
}

/// What was counted, and what could not be. The fields are the `meetings` of a report's JSON.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SyncReport {
    /// The greatest number of threads that synchronised with others at the same time.
    pub workers: Option<u64>,
    /// The runtimes through which they did.
    pub runtimes: Vec<Runtime>,
    /// Times between two barriers or collectives.
    pub intervals: Option<Intervals>,
    /// Share of their parallel time that threads waited, from 0 to 1.
    pub waiting: Option<f64>,
    /// That share of the thread that waited least, and of the one that waited most.
    pub waiting_between: Option<(f64, f64)>,
    /// How threads wait, as far as that was told to the runtime or is its default.
    pub wait: Option<String>,
    /// Calls of `sched_yield`.
    pub yields: Option<u64>,
    /// Share of the program's time that counting took, from 0 to 1.
    pub overhead: Option<f64>,
    /// What one record costs, in nanoseconds.
    pub record_ns: Option<f64>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

impl SyncReport {
    /// From the words of a page file; `why` is what keeps the library out.
    pub fn of(met: &SyncStats, why: Vec<String>, wait: Option<String>, wall: Span) -> Self {
        let mut unseen = why;
        let is_counted = met.guests > 0;
        if unseen.is_empty() && !is_counted {
            unseen.push("meetings: the guest library did not get into the program".to_owned());
        }
        if is_counted && met.intervals.is_none() {
            let why = match met.runtimes.is_empty() {
                true => {
                    "meetings: none through libgomp, libomp, MPI, teams of trimtab's or POSIX barriers; flags of its own and runtimes linked statically are not seen"
                }
                false => "intervals: none ended here; those of a job of MPI are counted in its first rank",
            };
            unseen.push(why.to_owned());
        }
        if met.lost > 0 {
            unseen.push(format!("meetings of {}, for which there was no room", plural(met.lost, "thread")));
        }
        Self {
            workers: Some(met.threads).filter(|threads| *threads > 0),
            runtimes: met.runtimes.clone(),
            intervals: met.intervals,
            waiting: met.waiting,
            waiting_between: met.waiting_between,
            wait,
            yields: is_counted.then_some(met.yields),
            overhead: met.cost.and_then(|cost| cost.share_of(wall)),
            record_ns: met.record_ns,
            unseen,
        }
    }

    /// Those that a profile holds.
    pub fn in_profile(profile: &Profile) -> Self {
        Self {
            runtimes: profile.runtimes.clone(),
            intervals: profile.intervals,
            waiting: profile.waiting,
            wait: profile.wait.clone(),
            yields: profile.yields,
            overhead: profile.overhead,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_no_variable_reaches_has_no_statistics_and_no_wait_policy() {
        let page = SyncPage::create(true);
        let stats = page.read(&[], Some("threads sleep".to_owned()), Span::from_ms(10));
        assert_eq!(stats.wait, None);
        if page.path().is_some() {
            assert_eq!(stats.unseen.len(), 1);
            assert!(stats.unseen[0].contains("--env leaves variables alone"), "{stats:?}");
        }
    }

    #[test]
    fn what_keeps_the_library_out_is_said_once() {
        let read = |unreached: &[String]| SyncPage::create(false).read(unreached, None, Span::from_ms(10));
        let linked = "meetings: it is statically linked".to_owned();
        assert_eq!(read(std::slice::from_ref(&linked)).unseen, [linked]);
        assert_eq!(read(&[]).unseen, ["meetings: the guest library did not get into the program"]);
    }
}
