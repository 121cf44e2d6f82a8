//! Synchronisation statistics of a run: the preload library's counts of barriers, collectives and
//! waits, and the events that it could not see.
//!
//! [`trimtab_core::sync_stats`] defines the words of the page file. The cost of counting is counted
//! too.

use serde::Serialize;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::profile::{Intervals, Profile};
use trimtab_core::sync_stats::SyncStats;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_linux::meetings::PageFile;

/// Page file of a run, in which its threads are counted.
#[derive(Debug)]
pub struct SyncPage {
    page: Result<PageFile, String>,
    /// No variable reaches the program, so that neither the library nor a wait policy does.
    kept_out: bool,
}

impl SyncPage {
    /// Makes the page file. If that fails, the statistics say why they are missing.
    pub fn create(kept_out: bool) -> Self {
        let page =
            PageFile::create().map_err(|error| format!("no memory is available for the counts ({error})"));
        Self { page, kept_out }
    }

    /// Returns the path for the preload library.
    pub fn path(&self) -> Option<String> {
        self.page.as_ref().ok().map(PageFile::path)
    }

    /// Returns the counts so far, of a program that took `wall`. `unreached`: reasons why the
    /// library cannot count in this program, empty if it can. `wait`: how its threads wait, if
    /// known.
    pub fn read(&self, unreached: &[String], wait: Option<String>, wall: Span) -> SyncReport {
        let met = self.page.as_ref().ok().and_then(PageFile::read).unwrap_or_default();
        let why = match &self.page {
            Err(why) => vec![format!("barriers and collectives: {why}")],
            Ok(_) if self.kept_out => {
                vec!["barriers and collectives: --env leaves variables alone, and the preload library needs one".to_owned()]
            }
            Ok(_) => unreached.to_vec(),
        };
        SyncReport::of(&met, why, wait.filter(|_| !self.kept_out), wall)
    }
}

/// Counts, with reasons for those that are missing. The fields are the `meetings` of a report's
/// JSON.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SyncReport {
    /// The greatest number of threads that synchronised with others at the same time.
    pub workers: Option<u64>,
    /// The runtimes of these barriers and collectives.
    pub runtimes: Vec<Runtime>,
    /// Times between two barriers or collectives.
    pub intervals: Option<Intervals>,
    /// Share of their parallel time that threads waited, from 0 to 1.
    pub waiting: Option<f64>,
    /// The same share of the thread that waited least, and of the thread that waited most.
    pub waiting_between: Option<(f64, f64)>,
    /// Wait policy of the threads, as set by the environment or by the runtime's default; `None` if
    /// unknown.
    pub wait: Option<String>,
    /// Calls of `sched_yield`.
    pub yields: Option<u64>,
    /// Share of the program's time that counting took, from 0 to 1.
    pub overhead: Option<f64>,
    /// Cost of one record, in nanoseconds.
    pub record_ns: Option<f64>,
    /// Missing statistics, with reasons.
    pub unseen: Vec<String>,
}

impl SyncReport {
    /// Builds the report from the words of a page file; `why`: reasons that keep the library out.
    pub fn of(met: &SyncStats, why: Vec<String>, wait: Option<String>, wall: Span) -> Self {
        let mut unseen = why;
        let is_counted = met.guests > 0;
        if unseen.is_empty() && !is_counted {
            unseen.push(
                "barriers and collectives: the preload library did not get into the program".to_owned(),
            );
        }
        if is_counted && met.intervals.is_none() {
            let why = match met.runtimes.is_empty() {
                true => {
                    "barriers and collectives: none through libgomp, libomp, MPI, teams of trimtab's or POSIX barriers; flags of its own and runtimes linked statically are not seen"
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

    /// Returns the statistics that a profile holds.
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
    fn the_reason_why_the_library_was_not_loaded_is_said_once() {
        let read = |unreached: &[String]| SyncPage::create(false).read(unreached, None, Span::from_ms(10));
        let linked = "barriers and collectives: it is statically linked".to_owned();
        assert_eq!(read(std::slice::from_ref(&linked)).unseen, [linked]);
        assert_eq!(
            read(&[]).unseen,
            ["barriers and collectives: the preload library did not get into the program"]
        );
    }
}
