//! Comparison of a program under a treatment with the same program before it.
//!
//! Unit: work per second.
//!
//! Problem: no treatment always helps, and the pace without a treatment is only known from before.
//! That was another time, and two paces can be compared only if the same number of threads
//! computed.
//!
//! Idea: there are three answers: the treatment continues, it ends, or the program must be measured
//! again without a treatment because the number of computing threads changed.
//!
//! Properties: the answer is a function of the two summaries. Summaries with different numbers of
//! threads are never compared.

use super::diagnosis::ProgramSummary;
use super::{Finding, Reason};
use crate::stats::comparison::{Better, Verdict, by_factors};
use crate::time::Span;

/// Time before a treatment is judged: several rounds of exchanges for a few threads.
pub(super) const TRIAL_TIME: Span = Span::from_ms(500);

/// Relative differences below this count as equal: a measurement of half a second cannot
/// distinguish such paces.
pub(super) const DIFFERENCE_MIN: f64 = 0.02;

/// Approximate time that a thread stays on a slow CPU before the kernel moves it.
const SLOW_CPU_STAY: Span = Span::from_ms(20);

/// Answer about a treatment on trial.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum TrialVerdict {
    /// The treatment continues.
    On,
    /// The treatment ends, with the reason and the finding.
    End(Reason, Finding),
    /// Not comparable: another number of threads computed before.
    Unlike,
}

/// A pace below this share of the earlier pace is worse.
const WORSE_BELOW: f64 = 1.0 - DIFFERENCE_MIN;
/// A pace above this share of the earlier pace is better.
const BETTER_ABOVE: f64 = 1.0 + DIFFERENCE_MIN / 2.0;

/// Compares two paces. A pace below `low` of the earlier pace is worse.
fn compared(now: f64, before: f64, low: f64) -> Verdict {
    by_factors(Better::More, before, now, low, BETTER_ABOVE)
}

fn worse(now: f64, before: f64) -> bool {
    compared(now, before, WORSE_BELOW) == Verdict::Worse
}

fn better(now: f64, before: f64) -> bool {
    compared(now, before, WORSE_BELOW) == Verdict::Better
}

/// Judges taking turns once every `period`. `passed` says whether an earlier trial was passed;
/// `watch` is the length of the measurement before the treatment.
pub(super) fn turns(
    before: Option<&ProgramSummary>,
    summary: &ProgramSummary,
    passed: bool,
    period: Span,
    watch: Span,
) -> TrialVerdict {
    let alike = summary.slowest > 1.0 - DIFFERENCE_MIN;
    if summary.waited.is_some() && !summary.others() && alike {
        return TrialVerdict::End(Reason::Done, Finding::NothingWaits);
    }
    if let Some(before) = before {
        if before.threads.len() != summary.threads.len() {
            return TrialVerdict::Unlike;
        }
        // While threads take turns, by the kernel or by this balancer, the last thread is not
        // always the same thread. Over a short window this blurs its pace.
        let low = 1.0 - DIFFERENCE_MIN - SLOW_CPU_STAY.seconds() / watch.seconds();
        let much_worse = |now: f64, before: f64| compared(now, before, low) == Verdict::Worse;
        let last_better = better(summary.last_pace, before.last_pace);
        let lost = worse(summary.pace, before.pace) && !last_better
            || much_worse(summary.last_pace, before.last_pace);
        let useless = !passed && !last_better && !better(summary.pace, before.pace);
        if lost || useless {
            return TrialVerdict::End(Reason::Undo, Finding::NoGain);
        }
    }
    // The same number of threads on each core and no other program: the kernel keeps that state by
    // itself.
    let (threads, cpus) = (summary.threads.len(), (summary.cpus as usize).max(1));
    let even = threads.is_multiple_of(cpus) && alike;
    let own = threads as f64 / cpus as f64;
    let alone = summary.waited.is_some_and(|waited| waited < 1.0 - 1.0 / own + DIFFERENCE_MIN);
    let settled = summary.lag < period.seconds().max(DIFFERENCE_MIN * summary.work);
    if even && alone && settled {
        let spread = summary.lag / summary.work.max(1e-9);
        return TrialVerdict::End(Reason::Done, Finding::KernelRotates { spread });
    }
    TrialVerdict::On
}

/// Judges the widening of the masks of bound threads.
pub(super) fn spread(before: &ProgramSummary, summary: &ProgramSummary) -> TrialVerdict {
    if before.threads.len() != summary.threads.len() {
        TrialVerdict::Unlike
    } else if worse(summary.last_pace, before.last_pace) && worse(summary.pace, before.pace) {
        TrialVerdict::End(Reason::Undo, Finding::NoGain)
    } else {
        TrialVerdict::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(threads: usize, pace: f64, last_pace: f64) -> ProgramSummary {
        ProgramSummary {
            threads: (0..threads).collect(),
            cpus: 2,
            waited: Some(0.3),
            worst: 0.5,
            pace,
            last_pace,
            lag: 1.0,
            work: 3.0,
            slowest: 1.0,
            ..ProgramSummary::default()
        }
    }

    #[test]
    fn only_like_is_compared_with_like() {
        let ms = Span::from_ms;
        let judge = |before: &ProgramSummary, now: &ProgramSummary, passed| {
            turns(Some(before), now, passed, ms(10), ms(250))
        };
        let before = summary(3, 0.66, 0.5);
        let undo = TrialVerdict::End(Reason::Undo, Finding::NoGain);
        assert_eq!(judge(&before, &summary(3, 0.66, 0.65), false), TrialVerdict::On);
        assert_eq!(judge(&before, &summary(3, 0.66, 0.5), false), undo, "in vain");
        assert_eq!(judge(&before, &summary(3, 0.66, 0.5), true), TrialVerdict::On, "it helped before");
        assert_eq!(judge(&before, &summary(3, 0.6, 0.4), true), undo);
        assert_eq!(judge(&before, &summary(4, 0.5, 0.5), false), TrialVerdict::Unlike);
        assert_eq!(spread(&before, &summary(3, 0.6, 0.4)), undo);
        assert_eq!(spread(&before, &summary(3, 0.6, 0.6)), TrialVerdict::On);
        assert_eq!(spread(&before, &summary(2, 0.6, 0.4)), TrialVerdict::Unlike);
    }

    #[test]
    fn an_even_program_needs_no_rotation() {
        let even =
            ProgramSummary { threads: vec![0, 1], waited: Some(0.0), worst: 0.0, ..summary(2, 1.0, 1.0) };
        let done = TrialVerdict::End(Reason::Done, Finding::NothingWaits);
        assert_eq!(turns(None, &even, false, Span::from_ms(10), Span::from_ms(250)), done);
    }
}
