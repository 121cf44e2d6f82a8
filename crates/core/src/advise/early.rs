//! Early diagnosis: more computing threads than CPUs, which hardly ever sleep.
//!
//! Problem: a program whose threads spin on flags while others have no CPU can take hundreds of
//! times as long as it should. The run that shows this would itself take as long. Idea: the
//! diagnosis needs no end of the run. If for a second more threads than CPUs wanted a CPU, and they
//! gave it away less often than time slices end, then fewer threads have to be tried.
//!
//! Properties: threads that sleep often, processes that began or ended during the window, and
//! threads with unreadable switches give no diagnosis. Independent computing threads look the
//! same: the trials tell the difference.
//!
//! A run without diagnosis may be slow for the same reason: threads that sleep often, or processes
//! that come and go, also compete for CPUs. If it is crowded at [`UNDECIDED`], a trial in another
//! way tells whether it is worth its end. This is judged once, so that a run which has gone on for
//! longer is not ended.

use crate::time::Span;
use std::collections::BTreeMap;

/// Length of the window.
pub const WINDOW: Span = Span::from_ms(1_000);
/// Samples that a window has, at least.
pub const SAMPLES_MIN: usize = 4;
/// Voluntary switches per second that count as none: as many as time slices of 4 ms. Threads that
/// spin in the program's own code also meet at barriers of their runtime at times, as those of NAS
/// LU-MZ do.
pub const SLEEPS_PER_SECOND_MAX: f64 = 250.0;
/// Share of the samples in which a thread has or wants a CPU.
const RUNNING_SHARE_MIN: f64 = 0.75;
/// Time after which a run of threads that hardly ever sleep goes on: its work is not lost.
pub const CROWD_MAX: Span = Span::from_ms(30_000);
/// Time at which a crowded run without diagnosis is compared with another way.
pub const UNDECIDED: Span = Span::from_ms(3_000);
/// Latest time of this comparison, and the most that the trial of the other way takes.
pub const UNDECIDED_MAX: Span = Span::from_ms(4_000);
/// Share of the samples of a crowded run in which more threads than CPUs wanted a CPU.
const CROWDED_SHARE_MIN: f64 = 0.5;

/// A thread in one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadSample {
    /// Thread.
    pub id: u32,
    /// Process of the thread.
    pub process: u32,
    /// Whether it had a CPU or wanted one.
    pub running: bool,
    /// Number of its voluntary switches so far; `None` if they cannot be read.
    pub voluntary: Option<u64>,
    /// Whether it has the name of a thread that serves a Java machine.
    pub service: bool,
}

/// All threads of a program at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeSample {
    /// Time since the start of the program.
    pub at: Span,
    /// Threads.
    pub threads: Vec<ThreadSample>,
}

impl TreeSample {
    /// Returns the number of threads that had a CPU or wanted one.
    pub fn running(&self) -> usize {
        self.threads.iter().filter(|thread| thread.running).count()
    }

    /// Returns the number of running threads of each process that has one.
    pub fn by_process(&self) -> BTreeMap<u32, u32> {
        let mut all = BTreeMap::new();
        for thread in self.threads.iter().filter(|thread| thread.running) {
            *all.entry(thread.process).or_insert(0) += 1;
        }
        all
    }
}

/// Returns the number of threads that wanted a CPU at the same time, if during the last [`WINDOW`]
/// they were more than the CPUs half of the time. Only the first sample from [`UNDECIDED`] on gives
/// an answer.
pub fn undecided(samples: &[TreeSample], cpus: u32) -> Option<u32> {
    let [.., before, last] = samples else { return None };
    let is_first = before.at < UNDECIDED && (UNDECIDED..UNDECIDED_MAX).contains(&last.at);
    if !is_first || cpus == 0 {
        return None;
    }
    let window: Vec<usize> =
        samples.iter().filter(|sample| last.at.less(sample.at) <= WINDOW).map(TreeSample::running).collect();
    let crowded = window.iter().filter(|&&running| running > cpus as usize).count();
    let enough = window.len() >= SAMPLES_MIN && crowded as f64 >= CROWDED_SHARE_MIN * window.len() as f64;
    enough.then(|| window.into_iter().max().and_then(|most| u32::try_from(most).ok())).flatten()
}

/// Returns the number of threads that computed and hardly ever slept during the last [`WINDOW`], if
/// they are more than the CPUs: threads of any process that lived all the time, or all threads of a
/// process in which others come and go, as the inner threads of nested teams do.
pub fn crowd(samples: &[TreeSample], cpus: u32) -> Option<u32> {
    let last = samples.last().filter(|last| last.at <= CROWD_MAX)?;
    let first = samples.iter().rposition(|sample| last.at.less(sample.at) >= WINDOW)?;
    let window = &samples[first..];
    if window.len() < SAMPLES_MIN || cpus == 0 {
        return None;
    }
    let awake: Vec<&ThreadSample> = window[0].threads.iter().filter(|one| is_awake(window, one)).collect();
    let lasting = u32::try_from(awake.len()).unwrap_or(u32::MAX);
    if lasting > cpus {
        return Some(lasting);
    }
    // A process with a lasting thread that hardly ever sleeps, and with more running threads than
    // CPUs most of the time.
    let running = |sample: &TreeSample, process| sample.by_process().get(&process).copied().unwrap_or(0);
    awake.iter().find_map(|one| {
        let mut counts: Vec<u32> = window.iter().map(|sample| running(sample, one.process)).collect();
        let crowded = counts.iter().filter(|&&count| count > cpus).count();
        counts.sort_unstable();
        let is_crowded = crowded as f64 >= RUNNING_SHARE_MIN * window.len() as f64;
        is_crowded.then(|| counts[counts.len() / 2])
    })
}

/// Returns whether a thread of the first sample computes and hardly ever sleeps in all of them.
fn is_awake(window: &[TreeSample], thread: &ThreadSample) -> bool {
    let (Some(begin), Some(last)) = (window.first(), window.last()) else { return false };
    let same = |sample: &TreeSample| {
        let mut all = sample.threads.iter();
        all.find(|one| (one.id, one.process) == (thread.id, thread.process)).copied()
    };
    let ran = window.iter().filter(|sample| same(sample).is_some_and(|one| one.running)).count();
    let then = same(last).and_then(|one| one.voluntary);
    let sleeps = thread.voluntary.zip(then).map(|(before, then)| then.saturating_sub(before) as f64);
    let sleeps_max = SLEEPS_PER_SECOND_MAX * last.at.less(begin.at).seconds();
    ran as f64 >= RUNNING_SHARE_MIN * window.len() as f64 && sleeps.is_some_and(|sleeps| sleeps <= sleeps_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns samples of this number of spinning threads each 0.25 s.
    fn spinning(threads: u32, samples: u64) -> Vec<TreeSample> {
        let thread = |id| ThreadSample { id, process: 1, running: true, voluntary: Some(7), service: false };
        (0..samples)
            .map(|at| TreeSample { at: Span::from_ms(250 * at), threads: (0..threads).map(thread).collect() })
            .collect()
    }

    #[test]
    fn threads_that_spin_for_a_second_are_diagnosed_and_not_before() {
        assert_eq!(crowd(&spinning(4, 5), 2), Some(4));
        assert_eq!(crowd(&spinning(4, 4), 2), None, "0.75 s");
        assert_eq!(crowd(&spinning(2, 9), 2), None, "each has a CPU");
        assert_eq!(crowd(&spinning(4, 9), 0), None, "the CPUs are not known");
        assert_eq!(crowd(&[], 2), None);
        let later = |by: Span| {
            let mut samples = spinning(4, 5);
            samples.iter_mut().for_each(|sample| sample.at = sample.at + by);
            crowd(&samples, 2)
        };
        assert_eq!(later(CROWD_MAX.less(Span::from_ms(1_000))), Some(4));
        assert_eq!(later(CROWD_MAX), None, "the work of half a minute is not thrown away");
    }

    #[test]
    fn a_thread_that_sleeps_comes_or_cannot_be_read_does_not_count() {
        let mut sleeps = spinning(3, 5);
        sleeps[4].threads[0].voluntary = Some(7 + 250);
        assert_eq!(crowd(&sleeps, 2), Some(3), "hardly ever");
        sleeps[4].threads[0].voluntary = Some(7 + 251);
        assert_eq!(crowd(&sleeps[1..], 2), None, "too short");
        for sample in &mut sleeps {
            sample.threads[0].process = 2;
        }
        assert_eq!(crowd(&sleeps, 2), None);
        // Processes that come and go, such as the jobs of a build.
        let mut comes = spinning(3, 5);
        for (at, sample) in comes.iter_mut().enumerate() {
            for (thread, number) in sample.threads.iter_mut().zip(0..) {
                thread.id = 10 * u32::try_from(at).unwrap() + number;
                thread.process = thread.id;
            }
        }
        assert_eq!(crowd(&comes, 2), None);
        let mut waits = spinning(3, 5);
        waits[2].threads[2].running = false;
        assert_eq!(crowd(&waits, 2), Some(3), "once");
        waits[3].threads[2].running = false;
        assert_eq!(crowd(&waits, 2), None, "twice in five samples");
        let mut unread = spinning(3, 5);
        for thread in unread.iter_mut().flat_map(|sample| &mut sample.threads) {
            thread.voluntary = None;
        }
        assert_eq!(crowd(&unread, 2), None);
    }

    #[test]
    fn inner_threads_that_come_and_go_count_with_the_lasting_threads_of_their_process() {
        let mut nested = spinning(4, 5);
        for (at, sample) in nested.iter_mut().enumerate() {
            for thread in &mut sample.threads[2..] {
                thread.id += 10 * u32::try_from(at).unwrap();
            }
        }
        assert_eq!(crowd(&nested, 2), Some(4));
        assert_eq!(crowd(&nested, 4), None);
        for sample in &mut nested {
            sample.threads[2].process = 2;
            sample.threads[3].process = 3;
        }
        assert_eq!(crowd(&nested, 2), None, "of other processes");
    }

    #[test]
    fn threads_are_counted_by_process() {
        let mut sample = spinning(3, 1).remove(0);
        sample.threads[1].process = 2;
        sample.threads.push(ThreadSample {
            id: 9,
            process: 3,
            running: false,
            voluntary: None,
            service: false,
        });
        assert_eq!(sample.by_process(), BTreeMap::from([(1, 2), (2, 1)]));
        assert_eq!(sample.running(), 3);
    }

    #[test]
    fn a_crowd_that_sleeps_is_undecided_after_some_seconds() {
        let sleepy = |samples: u64| {
            let mut all = spinning(4, samples);
            for (sample, at) in all.iter_mut().zip(0_u64..) {
                for (thread, number) in sample.threads.iter_mut().zip(0_u64..) {
                    thread.voluntary = Some(100_000 * at);
                    // Every second time two of them sleep.
                    thread.running = at % 2 == 0 || number < 2;
                }
            }
            all
        };
        assert_eq!(crowd(&sleepy(14), 2), None);
        assert_eq!(undecided(&sleepy(13), 2), Some(4), "3 s");
        assert_eq!(undecided(&sleepy(12), 2), None, "2.75 s");
        for samples in 14..100 {
            assert_eq!(undecided(&sleepy(samples), 2), None, "it is judged once");
        }
        let mut late = sleepy(13);
        late[12].at = UNDECIDED_MAX;
        assert_eq!(undecided(&late, 2), None, "the watcher had no CPU for a second");
        let mut seldom = sleepy(13);
        seldom[8].threads.truncate(2);
        assert_eq!(undecided(&seldom, 2), None, "two of five samples");
        assert_eq!(undecided(&sleepy(13), 4), None, "each has a CPU");
        assert_eq!(undecided(&sleepy(13), 0), None);
        let mut quiet = sleepy(13);
        for sample in &mut quiet[8..] {
            sample.threads.truncate(2);
        }
        assert_eq!(undecided(&quiet, 2), None, "it was crowded before");
    }
}
