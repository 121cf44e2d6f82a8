//! Whether a treatment helps: what a program is like under it against what it was like before.
//!
//! Unit: work a second. Problem: no treatment helps always, and what a program would do without one is only known from before; yet
//! before is another time, and two paces can be compared only if as many threads computed. Idea: three answers: it goes on, it
//! ends, or it must be seen anew without a treatment, because the number of computing threads changed.
//!
//! Properties: a function of the two sights; sights of unequally many threads are never compared.

use super::diagnosis::Sight;
use super::{Finding, Reason};
use crate::stats::comparison::{Better, Verdict, by_factors};
use crate::time::Span;

/// How long a treatment has before it is judged: several times round for a few threads.
pub(super) const TRIAL: Span = Span::from_ms(500);

/// Paces this near to each other are alike: what half a second's measurement cannot tell apart.
pub(super) const ALIKE: f64 = 0.02;

/// How long a thread sits on a slow seat before the kernel moves it on, about.
const BLUR: Span = Span::from_ms(20);

/// What becomes of a treatment on trial.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Course {
    /// The treatment goes on.
    On,
    /// It ends, and why.
    End(Reason, Finding),
    /// It cannot be told: other threads computed before.
    Unlike,
}

/// A pace of less than this part of the one before is worse.
const WORSE_BELOW: f64 = 1.0 - ALIKE;
/// A pace of more than this part of the one before is better.
const BETTER_ABOVE: f64 = 1.0 + ALIKE / 2.0;

/// Compares two paces; below `low` of the one before a pace is worse.
fn compared(now: f64, before: f64, low: f64) -> Verdict {
    by_factors(Better::More, before, now, low, BETTER_ABOVE)
}

fn worse(now: f64, before: f64) -> bool {
    compared(now, before, WORSE_BELOW) == Verdict::Worse
}

fn better(now: f64, before: f64) -> bool {
    compared(now, before, WORSE_BELOW) == Verdict::Better
}

/// Judges taking turns once every `period`, which passed an earlier trial or did not. `watch` is how long it was watched before.
pub(super) fn turns(
    before: Option<&Sight>,
    sight: &Sight,
    passed: bool,
    period: Span,
    watch: Span,
) -> Course {
    let alike = sight.slowest > 1.0 - ALIKE;
    if sight.waited.is_some() && !sight.others() && alike {
        return Course::End(Reason::Done, Finding::NothingWaits);
    }
    if let Some(before) = before {
        if before.threads.len() != sight.threads.len() {
            return Course::Unlike;
        }
        // Who is last changes hands while they take turns, in the kernel's and in ours: over a short time that blurs its pace.
        let low = 1.0 - ALIKE - BLUR.seconds() / watch.seconds();
        let much_worse = |now: f64, before: f64| compared(now, before, low) == Verdict::Worse;
        let last_better = better(sight.last_pace, before.last_pace);
        let lost =
            worse(sight.pace, before.pace) && !last_better || much_worse(sight.last_pace, before.last_pace);
        let vain = !passed && !last_better && !better(sight.pace, before.pace);
        if lost || vain {
            return Course::End(Reason::Undo, Finding::NoGain);
        }
    }
    // As many on each core, and nobody else there: the kernel keeps that by itself.
    let (threads, cpus) = (sight.threads.len(), (sight.cpus as usize).max(1));
    let even = threads.is_multiple_of(cpus) && alike;
    let own = threads as f64 / cpus as f64;
    let alone = sight.waited.is_some_and(|waited| waited < 1.0 - 1.0 / own + ALIKE);
    let settled = sight.lag < period.seconds().max(ALIKE * sight.work);
    if even && alone && settled {
        let spread = sight.lag / sight.work.max(1e-9);
        return Course::End(Reason::Done, Finding::KernelRotates { spread });
    }
    Course::On
}

/// Judges letting bound threads go where the kernel wants them.
pub(super) fn spread(before: &Sight, sight: &Sight) -> Course {
    if before.threads.len() != sight.threads.len() {
        Course::Unlike
    } else if worse(sight.last_pace, before.last_pace) && worse(sight.pace, before.pace) {
        Course::End(Reason::Undo, Finding::NoGain)
    } else {
        Course::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(threads: usize, pace: f64, last_pace: f64) -> Sight {
        Sight {
            threads: (0..threads).collect(),
            cpus: 2,
            waited: Some(0.3),
            worst: 0.5,
            pace,
            last_pace,
            lag: 1.0,
            work: 3.0,
            slowest: 1.0,
            ..Sight::default()
        }
    }

    #[test]
    fn only_like_is_compared_with_like() {
        let ms = Span::from_ms;
        let judge = |before: &Sight, now: &Sight, passed| turns(Some(before), now, passed, ms(10), ms(250));
        let before = sight(3, 0.66, 0.5);
        let undo = Course::End(Reason::Undo, Finding::NoGain);
        assert_eq!(judge(&before, &sight(3, 0.66, 0.65), false), Course::On);
        assert_eq!(judge(&before, &sight(3, 0.66, 0.5), false), undo, "in vain");
        assert_eq!(judge(&before, &sight(3, 0.66, 0.5), true), Course::On, "it helped before");
        assert_eq!(judge(&before, &sight(3, 0.6, 0.4), true), undo);
        assert_eq!(judge(&before, &sight(4, 0.5, 0.5), false), Course::Unlike);
        assert_eq!(spread(&before, &sight(3, 0.6, 0.4)), undo);
        assert_eq!(spread(&before, &sight(3, 0.6, 0.6)), Course::On);
        assert_eq!(spread(&before, &sight(2, 0.6, 0.4)), Course::Unlike);
    }

    #[test]
    fn what_has_become_even_needs_no_turns() {
        let even = Sight { threads: vec![0, 1], waited: Some(0.0), worst: 0.0, ..sight(2, 1.0, 1.0) };
        let done = Course::End(Reason::Done, Finding::NothingWaits);
        assert_eq!(turns(None, &even, false, Span::from_ms(10), Span::from_ms(250)), done);
    }
}
